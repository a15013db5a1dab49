"""Operators of users that only have a CPU kernel run on flex tensors: arguments of every kind, mutation, autograd."""

from __future__ import annotations

import pytest
import torch

from parity import check, leaf, seeded

library = torch.library.Library("flexcpu_test", "DEF")


def define(schema: str, kernel, key: str = "CPU") -> None:
    library.define(schema)
    library.impl(schema.split("(")[0], kernel, key)


def on_cpu(*tensors: torch.Tensor | None) -> None:
    assert all(tensor is None or tensor.device.type == "cpu" for tensor in tensors)


def affine(x, scale, shift=None):
    on_cpu(x, shift)
    return x * scale if shift is None else x * scale + shift


def push_(stack, items):
    on_cpu(stack, *items)
    for i, item in enumerate(items):
        stack[i].add_(item)


def double_all_(tensors):
    on_cpu(*tensors)
    for tensor in tensors:
        tensor.mul_(2)


def halves(x):
    return [x[: len(x) // 2].clone(), x[len(x) // 2 :].clone()]


def pick(tensors, which):
    on_cpu(*(t for t in tensors if t is not None))
    present = [tensors[i] for i in which if tensors[i] is not None]
    return torch.stack(present).sum(0)


def add_into(x, *, out):
    out.resize_(x.shape).copy_(x + 1)
    return out


def whole(x, table, names):
    on_cpu(x, *table.values())
    return sum((table[name].sum() for name in names), x)


def summary(x, keep):
    if not keep:
        return x.sum(), int(x.numel()), [1, 2], "none"
    return x, int(x.numel()), [3], "kept"


def noise(x, generator=None):
    return x + torch.empty_like(x).normal_(generator=generator)


def placed(x, device=None, dtype=None):
    on_cpu(x)
    return torch.ones(len(x), device=device, dtype=dtype)


define("affine(Tensor x, float scale, Tensor? shift=None) -> Tensor", affine)
define("push_(Tensor(a!) stack, Tensor[] items) -> ()", push_)
define("double_all_(Tensor(a!)[] tensors) -> ()", double_all_)
define("halves(Tensor x) -> Tensor[]", halves)
define("pick(Tensor?[] tensors, int[] which) -> Tensor", pick)
define("add_into(Tensor x, *, Tensor(a!) out) -> Tensor(a!)", add_into)
define("summary(Tensor x, bool keep) -> (Tensor, int, int[], str)", summary)
define("noise(Tensor x, Generator? generator=None) -> Tensor", noise)
define("placed(Tensor x, *, Device? device=None, ScalarType? dtype=None) -> Tensor", placed)
define("whole(Tensor x, Dict(str, Tensor) table, str[] names) -> Tensor", whole)

ops = torch.ops.flexcpu_test


def test_arguments():
    def program(device):
        x, y = seeded((3, 4), device=device), seeded((3, 4), 1, device=device)
        return (
            ops.affine(x, 2.0),
            ops.affine(x.t(), 2.0, y.t()),
            ops.affine(x[1:, ::2], 0.5, y[:2, ::2]),
            ops.halves(x),
            ops.pick([x, None, y], [2, 1, 0]),
            ops.summary(x, False),
            ops.placed(x, device=device, dtype=torch.int32),
        )

    check(program)


def test_an_argument_comes_back():
    x = seeded((3, 4), device="flex")
    same, *_ = ops.summary(x, True)
    assert same.device.type == "flex" and torch.equal(same, x)
    before = x.clone()
    same.add_(1)  # whatever CPU programs see through such an alias
    assert torch.equal(x, before + 1)


def test_mutation():
    def program(device):
        stack = seeded((2, 3, 4), device=device)
        peer = stack.clone()
        ops.push_(stack, [stack[1], seeded((3, 4), 1, device=device)])
        ops.push_(stack.transpose(1, 2), [torch.ones(4, 3, device=device)])
        return stack, peer

    check(program)


def test_mutated_list():
    def program(device):
        base, other = seeded((6,), device=device), seeded((2,), 1, device=device)
        peer = base.clone()
        views = [base[:3], base[2:5], other]  # overlapping: the middle element doubles twice
        versions = [view._version for view in views]
        ops.double_all_(views)
        assert all(view._version > version for view, version in zip(views, versions))
        return base, other, peer

    check(program)


def test_mutation_of_a_saved_tensor_is_noticed():
    x = leaf((2, 3), device="flex").exp()
    output = x * x
    with torch.no_grad():
        ops.push_(x, [torch.ones(3, device="flex")])
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        output.sum().backward()


def test_out_argument_is_resized():
    def program(device):
        out = torch.empty(0, device=device)
        held = ops.add_into(seeded((2, 3), device=device), out=out)
        assert held is out
        return out

    check(program)


def test_dictionary_of_tensors():
    def program(device):
        table = {
            "a": seeded((3,), device=device),
            "b": seeded((2, 2), 1, device=device),
            "c": seeded((1,), 2, device=device),
        }
        return ops.whole(torch.ones(2, device=device), table, ["a", "b"])

    check(program)


def test_generator():
    x = torch.zeros(5, device="flex")
    drawn = []
    for seed in (1, 1, 2):
        drawn.append(ops.noise(x, torch.Generator("flex").manual_seed(seed)))
    assert torch.equal(drawn[0], drawn[1]) and not torch.equal(drawn[0], drawn[2])
    torch.manual_seed(3)
    first = ops.noise(x)
    torch.manual_seed(3)
    assert torch.equal(first, ops.noise(x))


def test_the_device_argument_decides():
    x = seeded((3,), device="flex")
    assert ops.placed(x, device="flex").device.type == "flex"
    assert ops.placed(x, device="cpu").device.type == "cpu"


def test_error_of_a_kernel():
    library.define("fails(Tensor x) -> Tensor")

    def fails(x):
        raise ValueError(f"bad shape {tuple(x.shape)}")

    library.impl("fails", fails, "CPU")
    x = torch.ones(2, device="flex")
    with pytest.raises(ValueError, match=r"bad shape \(2,\)"):
        ops.fails(x)
    assert torch.equal(x + 1, torch.full((2,), 2.0, device="flex"))


def test_cpu_tensors_beside_flex_ones():
    """A user's op decides itself what it takes; its kernel sees CPU tensors only."""
    found = ops.affine(torch.ones(3, device="flex"), 2.0, torch.ones(3))
    assert found.device.type == "flex" and found.tolist() == [3.0] * 3


@torch.library.custom_op("flexcpu_test::cubed", mutates_args=())
def cubed(x: torch.Tensor) -> torch.Tensor:
    on_cpu_or_flex = x.device.type
    assert on_cpu_or_flex in ("cpu", "flex")
    return x**3


@cubed.register_fake
def _(x):
    return torch.empty_like(x)


cubed.register_autograd(
    lambda ctx, gradient: gradient * 3 * ctx.saved_tensors[0] ** 2,
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[0]),
)
cubed.register_vmap(lambda info, dims, x: (cubed(x), dims[0]))


@torch.library.custom_op("flexcpu_test::cpu_only", mutates_args=(), device_types="cpu")
def cpu_only(x: torch.Tensor, scales: list[float]) -> torch.Tensor:
    on_cpu(x)
    import numpy

    return torch.from_numpy(numpy.outer(x.numpy(), scales))


@cpu_only.register_fake
def _(x, scales):
    return x.new_empty(len(x), len(scales), dtype=torch.float64)


cpu_only.register_autograd(
    lambda ctx, gradient: ((gradient * gradient.new_tensor(ctx.scales)).sum(1), None),
    setup_context=lambda ctx, inputs, output: setattr(ctx, "scales", inputs[1]),
)


@torch.library.custom_op("flexcpu_test::scale_", mutates_args=("x",), device_types="cpu")
def scale_(x: torch.Tensor, by: float) -> None:
    on_cpu(x)
    array = x.numpy()
    array *= by


def test_custom_op_with_autograd():
    def program(device):
        x = leaf((4,), device=device)
        output = cubed(x)
        (first,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        return output, first, second, torch.func.vmap(cubed)(x.detach().view(2, 2))

    check(program)


def test_custom_op_with_a_cpu_kernel_in_numpy():
    def program(device):
        x = leaf((4,), device=device)
        output = cpu_only(x, [1.0, 2.0, 3.0])
        output.square().sum().backward()
        return output, x.grad

    check(program)


def test_custom_op_that_mutates():
    def program(device):
        x = seeded((3, 4), device=device)
        peer, view = x.clone(), x[1]
        scale_(x, 2.0)
        scale_(x[:, 1:3], 10.0)
        return x, peer, view

    check(program)


def test_opcheck():
    torch.library.opcheck(cubed, (seeded((4,), device="flex"),), test_utils=("test_schema", "test_faketensor"))
    torch.library.opcheck(
        cpu_only, (leaf((4,), device="flex"), [1.0, 2.0]), test_utils=("test_schema", "test_faketensor")
    )


def test_compiled_custom_op():
    import torch._dynamo

    torch._dynamo.reset()

    def program(device):
        compiled = torch.compile(lambda x: cpu_only(x.exp(), [2.0, 3.0]).sum(0), backend="aot_eager", fullgraph=True)
        x = leaf((4,), device=device)
        output = compiled(x)
        output.sum().backward()
        return output, x.grad

    check(program)


def test_own_kernel_for_the_device():
    """An op may have a kernel for flex of its own; without one for this device, the CPU's serves."""
    define("which(Tensor x) -> Tensor", lambda x: x + 1)
    assert ops.which(torch.zeros(1, device="flex")).item() == 1
    library.impl("which", lambda x: x + 2, "PrivateUse1")
    assert ops.which(torch.zeros(1, device="flex")).item() == 2


def test_missing_cpu_kernel():
    library.define("nowhere(Tensor x) -> Tensor")
    library.impl("nowhere", lambda x: x, "CUDA")
    with pytest.raises(NotImplementedError, match="nowhere"):
        ops.nowhere(torch.zeros(1, device="flex"))


def test_composite_op():
    define("composite(Tensor x) -> Tensor", lambda x: x.sin().sum(), "CompositeImplicitAutograd")

    def program(device):
        x = leaf((4,), device=device)
        output = ops.composite(x)
        output.backward()
        return output, x.grad

    check(program)


def test_op_without_a_derivative_warns():
    """As on the CPU: the first backward through an op without a formula says so."""

    def program(device):
        x = leaf((3,), device=device)
        output = ops.affine(x, 2.0)
        assert output.requires_grad
        with pytest.warns(UserWarning, match="an autograd kernel was not registered"):
            output.sum().backward()
        return output.detach()

    check(program)
