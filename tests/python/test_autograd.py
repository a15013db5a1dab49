"""Autograd equals the CPU's: double backward of every kind of layer, hooks, checkpoints, modes, functions of users."""

from __future__ import annotations

import warnings

import pytest
import torch
from torch import nn
from torch.autograd import graph
from torch.func import jvp, vmap
from torch.utils.checkpoint import checkpoint, checkpoint_sequential

from models.layers import LAYERS, mlp_and_inputs
from parity import DOUBLE, DOUBLE_CLOSE, backward, check, check_error, gradients, leaf, made, seeded
from models.vision import UNet


# ---- Double backward ----


@pytest.mark.parametrize("name", LAYERS)
def test_double_backward(name):
    build, shape = LAYERS[name]

    def program(device):
        layer = made(build, device).double()
        inputs = leaf(shape, 1, DOUBLE, device)
        output = layer(inputs)
        weights = seeded(output.shape, 2, DOUBLE, device).requires_grad_()
        wanted = [inputs, *layer.parameters()]
        first = torch.autograd.grad((output.sin() * weights).sum(), wanted, create_graph=True)
        penalty = sum((gradient**2).sum() for gradient in first)
        second = torch.autograd.grad(penalty, [*wanted, weights], allow_unused=True)
        return output, first, second

    _, _, second = check(program, **DOUBLE_CLOSE)
    assert second[0].abs().max() > 0


@pytest.mark.parametrize("name", ["conv2d", "layer_norm", "lstm", "batch_norm"])
def test_gradgradcheck(name):
    build, shape = LAYERS[name]
    layer = made(build, "flex").double()
    inputs = leaf(
        [min(size, 4) if i else 2 for i, size in enumerate(shape)] if name == "conv2d" else shape, 1, DOUBLE, "flex"
    )
    assert torch.autograd.gradcheck(layer, inputs, fast_mode=True)
    assert torch.autograd.gradgradcheck(layer, inputs, fast_mode=True)


def test_third_derivative():
    def program(device):
        x = leaf((5,), 0, DOUBLE, device)
        y = (x.sin() * x**4).sum()
        found = []
        for _ in range(3):
            (y,) = torch.autograd.grad(y.sum(), x, create_graph=True)
            found.append(y)
        return found

    check(program, **DOUBLE_CLOSE)


def test_gradient_penalty_of_a_unet():
    def program(device):
        model = made(UNet, device).double()
        images = leaf((2, 3, 8, 8), 1, DOUBLE, device)
        (slope,) = torch.autograd.grad(model(images).square().mean(), images, create_graph=True)
        slope.flatten(1).norm(dim=1).sub(1).square().mean().backward()
        return slope, gradients(model)

    check(program, **DOUBLE_CLOSE)


# ---- The engine ----


def test_hooks():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        seen = {}
        inputs.register_hook(lambda g: g * 2)
        model[0].register_forward_hook(lambda _, args, output: seen.__setitem__("forward", output.detach()))
        model[0].register_full_backward_pre_hook(lambda _, g: (g[0] * 3,))
        model[0].register_full_backward_hook(lambda _, into, out: seen.update(into=into, out=out) and None)

        def negate(parameter):
            parameter.grad.neg_()

        model[2].weight.register_post_accumulate_grad_hook(negate)
        middle = model[0](inputs)
        middle.retain_grad()
        middle.grad_fn.register_prehook(lambda g: (g[0] + 1,))
        backward(model[2](model[1](middle)))
        return inputs.grad, middle.grad, gradients(model), seen

    check(program, **DOUBLE_CLOSE)


def test_gradients_into_old_buffers():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        for _ in range(2):
            backward(model(inputs))
        shared = model[0].weight.grad
        model.zero_grad(set_to_none=False)
        backward(model(inputs), 7)
        assert shared is model[0].weight.grad
        return gradients(model), inputs.grad

    check(program, **DOUBLE_CLOSE)


def test_multi_grad_hook_and_retain_graph():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        found = []
        parameters = list(model.parameters())
        with graph.register_multi_grad_hook(parameters, lambda grads: found.append([g.clone() for g in grads])):
            output = model(inputs).sum()
            output.backward(retain_graph=True)
            output.backward()
        return found, gradients(model)

    check(program, **DOUBLE_CLOSE)


def test_freed_graph_error():
    def program(device):
        output = leaf((3,), device=device).exp().sum()
        output.backward()
        output.backward()

    check_error(program)


def test_in_place_on_saved_error():
    def program(device):
        middle = leaf((3,), device=device).exp()
        output = middle * middle
        middle.add_(1)
        output.sum().backward()

    raised = check_error(program, same_text=False)
    assert "modified by an inplace operation" in str(raised) and "version 1" in str(raised)


def test_in_place_on_views():
    def program(device):
        base = leaf((4, 6), device=device)
        work = base.clone()
        work[1:3].mul_(2)
        work.t()[2].copy_(base[:, 0])
        work.view(2, 12)[:, ::3].zero_()
        work.select(1, 1).add_(base.sum(1))
        backward(work)
        return work, base.grad

    check(program)


def test_leaf_in_place_error():
    check_error(lambda device: leaf((3,), device=device).add_(1))
    check_error(lambda device: leaf((3,), device=device)[:2].zero_())


def test_gradient_of_another_device():
    flex = leaf((3,), device="flex")
    with pytest.raises(RuntimeError, match="flex"):
        flex.exp().backward(torch.ones(3))
    crossing = leaf((3,), device="cpu")
    (crossing.to("flex").exp() * torch.ones(3, device="flex")).cpu().sum().backward()
    torch.testing.assert_close(crossing.grad, crossing.detach().exp())


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint(reentrant):
    def program(device):
        model, inputs = mlp_and_inputs(device)
        first = checkpoint(model[0], inputs, use_reentrant=reentrant)
        output = checkpoint_sequential(model[1:], 2, first, use_reentrant=reentrant)
        backward(output)
        return output, inputs.grad, gradients(model)

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoint_draws_the_same_dropout(reentrant):
    inputs = torch.ones(1000, device="flex", requires_grad=True)
    output = checkpoint(lambda x: nn.functional.dropout(x, 0.5), inputs, use_reentrant=reentrant)
    output.sum().backward()
    assert torch.equal(inputs.grad, output.detach())
    assert 0 < int((output == 0).sum()) < 1000


@pytest.mark.parametrize("pinned", [False, True])
def test_save_on_cpu(pinned):
    def program(device):
        model, inputs = mlp_and_inputs(device)
        with graph.save_on_cpu(pin_memory=pinned and device == "flex"):
            output = model(inputs)
        backward(output)
        return output, gradients(model)

    check(program, **DOUBLE_CLOSE)


def test_saved_tensor_hooks():
    def program(device):
        packed = []
        with graph.saved_tensors_hooks(lambda t: packed.append(t.detach()) or len(packed) - 1, lambda i: packed[i] * 2):
            inputs = leaf((4,), 0, DOUBLE, device)
            output = inputs.exp() * inputs.sin()
        output.sum().backward()
        return inputs.grad, packed

    check(program, **DOUBLE_CLOSE)


def test_disabled_saving_and_mutation():
    def program(device):
        inputs = leaf((4,), 0, DOUBLE, device)
        with graph.allow_mutation_on_saved_tensors():
            work = inputs.clone()
            output = work * work
            work.zero_()
            output.sum().backward()
        return inputs.grad

    check(program, **DOUBLE_CLOSE)


def test_anomaly_mode():
    def program(device):
        with torch.autograd.detect_anomaly(check_nan=True):
            x = torch.zeros(3, device=device, requires_grad=True)
            (x.sqrt() * 0).sum().backward()

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        raised = check_error(program)
    assert "SqrtBackward0" in str(raised)


def test_inference_mode_then_training():
    def program(device):
        model, inputs = mlp_and_inputs(device)
        with torch.inference_mode():
            seen = model(inputs)
            assert seen.is_inference() and not seen.requires_grad
            seen.add_(1)
        backward(model(inputs))
        again = model(seen.clone() @ torch.ones(3, 5, dtype=DOUBLE, device=device))
        backward(again)
        return seen.clone(), again, gradients(model)

    check(program, **DOUBLE_CLOSE)


def test_inference_tensor_in_autograd_error():
    def program(device):
        with torch.inference_mode():
            seen = torch.ones(3, device=device)
        leaf((3,), device=device) * seen

    check_error(program)


@pytest.mark.parametrize("mode", [torch.no_grad, torch.inference_mode])
def test_modes_end(mode):
    x = leaf((3,), device="flex")
    with mode():
        assert not (x * 2).requires_grad
        with torch.enable_grad():
            assert (x * 2).requires_grad == (mode is torch.no_grad)
    assert (x * 2).requires_grad


class Clamp(torch.autograd.Function):
    """A function of its own: saved tensors, a mark of mutation, a derivative of the derivative, forward AD and vmap."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x, scale):
        return x.clamp(-1, 1) * scale

    @staticmethod
    def setup_context(ctx, inputs, output):
        x, ctx.scale = inputs
        ctx.save_for_backward(x)
        ctx.save_for_forward(x)

    @staticmethod
    def backward(ctx, gradient):
        (x,) = ctx.saved_tensors
        return gradient * (x.abs() <= 1) * ctx.scale * x.cos(), None

    @staticmethod
    def jvp(ctx, tangent, _):
        (x,) = ctx.saved_tensors
        return tangent * (x.abs() <= 1) * ctx.scale * x.cos()


def test_custom_function():
    def program(device):
        x = leaf((6,), 0, DOUBLE, device)
        output = Clamp.apply(x, 3.0)
        (first,) = torch.autograd.grad(output.sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
        mapped = vmap(lambda row: Clamp.apply(row, 2.0))(x.detach().view(2, 3))
        tangent = jvp(lambda t: Clamp.apply(t, 3.0), (x.detach(),), (torch.ones_like(x),))
        return output, first, second, mapped, tangent

    check(program, **DOUBLE_CLOSE)


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    @torch.autograd.function.once_differentiable
    def backward(ctx, gradient):
        return gradient * 2


def test_custom_function_in_place():
    def program(device):
        x = leaf((6,), 0, DOUBLE, device)
        work = x.clone()
        output = Doubled.apply(work)
        assert output is work
        backward(output.exp())
        return output, x.grad

    check(program, **DOUBLE_CLOSE)
