"""What is built on autograd equals the CPU's: forward AD, torch.func, tensors without data, tracing and compiling."""

from __future__ import annotations

import subprocess
import sys

import pytest
import torch
from torch import nn
from torch.autograd import forward_ad
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, jvp, linearize, stack_module_state, vjp, vmap

from models.layers import LAYERS, mlp, mlp_and_inputs
from parity import DOUBLE, DOUBLE_CLOSE, assert_equal, backward, check, gradients, integers, made, seeded, state
from models.vision import UNet


# ---- Forward AD ----


def test_dual_tensors():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(inputs.detach(), seeded((4, 5), 2, DOUBLE, device))
            output, tangent = forward_ad.unpack_dual(model(dual))
            mixed = dual.clone()
            mixed[1:3] = 0
            mixed = mixed.flip(0).cumsum(1)
            return output, tangent, forward_ad.unpack_dual(mixed).tangent

    check(program, **DOUBLE_CLOSE)


def test_zero_tangents():
    """Where only one operand has a tangent, the other's is a tensor of zeros without bytes."""

    def program(device):
        a, b = seeded((3,), 0, DOUBLE, device), seeded((3,), 1, DOUBLE, device)
        with forward_ad.dual_level():
            dual = forward_ad.make_dual(a, torch.ones_like(a))
            stacked = torch.stack([dual, b])
            return forward_ad.unpack_dual(stacked.prod(0) + torch.where(b > 0, dual, b)).tangent

    check(program, **DOUBLE_CLOSE)


def test_tensors_of_zeros_without_bytes():
    def program(device):
        zero = torch._efficientzerotensor((3, 4), dtype=DOUBLE, device=device)
        assert zero._is_zerotensor() and zero.device.type == device
        x = seeded((3, 4), 0, DOUBLE, device)
        wide = zero[0].expand(2, 3, 4).transpose(1, 2)
        return (
            zero.clone(),
            x.clone().copy_(zero),
            zero + x,
            zero * x,
            zero.sum(0),
            torch.cat([zero, x]),
            wide.contiguous(),
            zero.view(-1).dot(x.view(-1)) + 1,
            zero @ x.t(),
            torch.zeros(0, device=device).resize_(12).copy_(zero.view(-1)),
            zero.to(torch.float32),
            zero.add(1),
        )

    check(program, strides=False, **DOUBLE_CLOSE)
    zero = torch._efficientzerotensor((3,), device="flex")
    assert zero.cpu().tolist() == [0, 0, 0] and repr(zero.clone()) == "tensor([0., 0., 0.], device='flex:0')"


@pytest.mark.parametrize("name", [name for name in LAYERS if name != "batch_norm"])  # it writes to its buffers
def test_jvp_of_layers(name):
    build, shape = LAYERS[name]

    def program(device):
        layer = made(build, device).double()
        return jvp(layer, (seeded(shape, 1, DOUBLE, device),), (seeded(shape, 2, DOUBLE, device),))

    _, tangent = check(program, strides=False, **DOUBLE_CLOSE)
    assert tangent.abs().max() > 0


# ---- torch.func ----


def test_jacobians_and_hessian():
    def program(device):
        def f(x):
            return (x.sin() @ x.cos().t()).square().sum(1)

        x = seeded((3, 4), 0, DOUBLE, device)
        return (
            jacrev(f)(x),
            jacfwd(f)(x),
            hessian(lambda x: f(x).sum())(x),
            jacrev(f, chunk_size=1)(x),
            torch.autograd.functional.jacobian(f, x, vectorize=True),
            torch.autograd.functional.hvp(lambda x: f(x).sum(), x, x),
        )

    reverse, forward, *_ = check(program, strides=False, **DOUBLE_CLOSE)
    torch.testing.assert_close(reverse, forward, **DOUBLE_CLOSE)


def test_vjp_and_linearize():
    def program(device):
        x = seeded((4,), 0, DOUBLE, device)
        output, pull = vjp(lambda x: (x.exp(), x.sum()), x)
        value, push = linearize(torch.sin, x)
        return output, pull((x, x.sum())), value, push(x)

    check(program, **DOUBLE_CLOSE)


def test_per_sample_gradients():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        weights = {name: p.detach() for name, p in model.named_parameters()}
        labels = integers(3, (4,), device=device)

        def loss(weights, row, label):
            return nn.functional.cross_entropy(functional_call(model, weights, (row[None],)), label[None])

        return vmap(grad(loss), in_dims=(None, 0, 0))(weights, inputs.detach(), labels)

    check(program, strides=False, **DOUBLE_CLOSE)


def test_ensemble():
    def program(device):
        models = [made(mlp, device, seed).double() for seed in range(3)]
        weights, buffers = stack_module_state(models)
        inputs = seeded((4, 5), 1, DOUBLE, device)

        def call(weights, buffers):
            return functional_call(models[0], (weights, buffers), (inputs,))

        return vmap(call)(weights, buffers), [model(inputs) for model in models]

    together, apart = check(program, strides=False, **DOUBLE_CLOSE)
    torch.testing.assert_close(together, torch.stack(apart))


def test_vmap_of_convolution_and_norm():
    def program(device):
        images, kernels = seeded((3, 2, 4, 6, 6), 0, DOUBLE, device), seeded((3, 5, 4, 3, 3), 1, DOUBLE, device)
        model = made(lambda: nn.Sequential(nn.Conv2d(4, 4, 3), nn.GroupNorm(2, 4), nn.MaxPool2d(2)), device).double()
        return vmap(nn.functional.conv2d)(images, kernels), vmap(model, randomness="error")(images)

    check(program, strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("dims", [((0, None), 0), ((1, 0), 1), ((None, 1), -1)])
def test_vmap_dims(dims):
    into, out = dims

    def program(device):
        a, b = seeded((3, 3, 2), 0, DOUBLE, device), seeded((3, 3, 2), 1, DOUBLE, device)
        return vmap(lambda a, b: (a @ b.transpose(-1, -2)).cumsum(0).sort().values, in_dims=into, out_dims=out)(a, b)

    check(program, strides=False, **DOUBLE_CLOSE)


def test_vmap_in_place_and_index():
    def program(device):
        def f(row, i):
            work = row.clone()
            work[1:] *= 2
            work.index_fill_(0, i[None], -1)
            return work.masked_fill(work > 1, 0), row[i[None]]

        return vmap(f)(seeded((4, 5), 0, DOUBLE, device), integers(5, (4,), device=device))

    check(program, strides=False, **DOUBLE_CLOSE)


@pytest.mark.parametrize("randomness", ["same", "different"])
def test_vmap_randomness(randomness):
    drawn = vmap(lambda row: torch.rand_like(row), randomness=randomness)(torch.ones(2, 8, device="flex"))
    assert drawn.device.type == "flex"
    assert torch.equal(drawn[0], drawn[1]) == (randomness == "same")
    with pytest.raises(RuntimeError, match="random"):
        vmap(torch.rand_like)(torch.ones(2, 8, device="flex"))


def test_grad_of_dropout_and_nested_transforms():
    weights = seeded((4,), 0, DOUBLE, "flex")
    torch.manual_seed(1)
    slope = grad(lambda w: nn.functional.dropout(w, 0.5).sum())(weights)
    assert set(slope.tolist()) <= {0.0, 2.0}

    def program(device):
        x = seeded((4,), 0, DOUBLE, device)
        return grad(lambda x: vmap(grad(torch.sin))(x).square().sum())(x), grad(grad(lambda t: t**3))(x[0])

    check(program, **DOUBLE_CLOSE)


def test_functionalize():
    def program(device):
        def f(x):
            y = x.clone()
            y.view(-1)[::2].mul_(3)
            y[0].copy_(y[1])
            return y

        return torch.func.functionalize(f)(seeded((3, 4), 0, DOUBLE, device))

    check(program, **DOUBLE_CLOSE)


# ---- Without data ----


def test_fake_tensors():
    from torch._subclasses.fake_tensor import FakeTensorMode

    real = torch.ones(2, device="flex")
    with FakeTensorMode() as mode, torch.device("flex"):
        output = (model := UNet())(torch.empty(2, 3, 8, 8))
        output.sum().backward()
        assert output.shape == (2, 2, 8, 8) and output.device == torch.device("flex:0")
        assert model.head.weight.grad.device.type == "flex"
        recurrent, _ = nn.LSTM(8, 4)(torch.empty(2, 3, 8))
        assert recurrent.shape == (2, 3, 4) and recurrent.device.type == "flex"
    with mode:
        moved = mode.from_tensor(real)
        assert (moved + 1).device.type == "flex" and moved.cpu().device.type == "cpu"


def test_fake_backward_in_a_fresh_process():
    """The first thing that a process does with the device, without a byte of its memory."""
    program = """
import torch
import flexcpu
from torch._subclasses.fake_tensor import FakeTensorMode

with FakeTensorMode():
    weight = torch.empty(3, 3, device="flex:0", requires_grad=True)
    (weight @ weight).sum().backward()
    assert weight.grad.device == torch.device("flex:0")
    crossing = torch.empty(3, device="flex:0", requires_grad=True)
    crossing.cpu().sum().backward()
    assert crossing.grad.device == torch.device("flex:0")
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)


def test_transforms_of_recurrent_cells():
    def program(device):
        cells = [made(lambda: nn.LSTMCell(5, 4), device).double(), made(lambda: nn.GRUCell(5, 4), device).double()]
        inputs = seeded((3, 2, 5), 1, DOUBLE, device)
        state = seeded((3, 2, 4), 2, DOUBLE, device)

        def lstm(x, h):
            return cells[0](x, (h, h.sin()))[1]

        mapped = vmap(cells[1])(inputs, state)  # torch maps no LSTM cell
        return mapped, [
            [
                vmap(grad(lambda x, h: cell(x, h).sum()))(inputs, state),
                jacfwd(cell, (0, 1))(inputs[0], state[0]),
                jacrev(cell, (0, 1))(inputs[0], state[0]),
                hessian(lambda h: cell(inputs[0], h).square().sum())(state[0]),
            ]
            for cell in (lstm, cells[1])
        ]

    check(program, strides=False, **DOUBLE_CLOSE)


def test_meta():
    with torch.device("meta"):
        model = UNet()
    model.to_empty(device="flex")
    assert {tensor.device.type for tensor in state(model).values()} == {"flex"}
    source = made(UNet, "cpu")
    model.load_state_dict(source.state_dict())
    images = seeded((1, 3, 8, 8))
    assert_equal(model.eval()(images.to("flex")), source.eval()(images), rtol=1e-4, atol=1e-5)
    skipped = nn.utils.skip_init(nn.Linear, 4, 3, device="flex")
    assert skipped.weight.device.type == "flex"
    assert torch.ones(3, device="flex").to("meta").device.type == "meta"


def test_default_device_makes_a_model():
    torch.manual_seed(0)
    with torch.device("flex"):
        model = UNet()
        assert torch.ones(2).device.type == "flex"
    assert {tensor.device.type for tensor in state(model).values()} == {"flex"}
    assert torch.ones(2).device.type == "cpu"


# ---- Tracing and compiling ----


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile(backend):
    import torch._dynamo

    torch._dynamo.reset()

    def program(device):
        model, inputs = mlp_and_inputs(device)
        compiled = torch.compile(model, backend=backend)
        output = compiled(inputs)
        backward(output)
        return output, inputs.grad, gradients(model)

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_compile_with_mutation(backend):
    import torch._dynamo

    torch._dynamo.reset()

    def program(device):
        @torch.compile(backend=backend)
        def step(x, memory):
            memory.add_(x)
            return nn.functional.relu(memory[::2]).sum() + x.mean()

        memory = torch.zeros(6, device=device)
        return step(seeded((6,), device=device), memory), step(seeded((6,), 1, device=device), memory), memory

    check(program)


def test_autocast():
    model, inputs = made(UNet, "flex"), seeded((2, 3, 8, 8), device="flex")
    with torch.autocast("flex"):
        model(inputs).float().sum().backward()
    assert all(gradient is None or gradient.isfinite().all() for gradient in gradients(model).values())
    with torch.autocast("flex", enabled=False):
        assert torch.equal(model.eval()(inputs), model(inputs))


@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*torch.jit:FutureWarning")
def test_jit(tmp_path):
    def program(device):
        model, inputs = mlp_and_inputs(device)
        traced = torch.jit.trace(model, inputs.detach())
        scripted = torch.jit.script(model)
        backward(scripted(inputs))
        torch.jit.save(scripted, str(tmp_path / f"{device}.pt"))
        loaded = torch.jit.load(str(tmp_path / f"{device}.pt"), map_location=device)
        frozen = torch.jit.freeze(torch.jit.script(model.eval()))
        return [f(inputs.detach()).detach() for f in (traced, scripted, loaded, frozen)], gradients(model)

    check(program, **DOUBLE_CLOSE)


def test_fx_and_export():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        exported = torch.export.export(model, (inputs.detach(),)).module()
        return torch.fx.symbolic_trace(model)(inputs), exported(inputs.detach())

    check(program, **DOUBLE_CLOSE)


def test_make_fx():
    from torch.fx.experimental.proxy_tensor import make_fx

    def program(device):
        x = seeded((3, 4), 0, DOUBLE, device)
        return make_fx(lambda x: torch.softmax(x @ x.t(), -1).sum(0))(x)(x)

    check(program, **DOUBLE_CLOSE)
