"""Convolutions equal the CPU's: dimensions, transposition, groups, dilation, layouts, padding by name; values, strides,
first and second derivatives."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from parity import DOUBLE, DOUBLE_CLOSE, backward, check, check_error, gradients, leaf, made, seeded

FLOAT_TOLERANCE = {"rtol": 1e-4, "atol": 1e-4}

OPTIONS = {
    "plain": {},
    "no bias": {"bias": False},
    "strided": {"stride": 2, "padding": 1},
    "dilated": {"dilation": 2},
    "grouped": {"groups": 2},
    "depthwise": {"groups": 4, "padding": 1},
}
NAMED = {
    "same": {"padding": "same"},
    "same, even kernel": {"padding": "same", "kernel_size": 2},
    "same, dilated": {"padding": "same", "dilation": 2},
    "valid": {"padding": "valid"},
    "reflected": {"padding": 1, "padding_mode": "reflect"},
    "replicated": {"padding": 2, "padding_mode": "replicate"},
    "circular": {"padding": 1, "padding_mode": "circular"},
}
TRANSPOSED = {"output padding": {"stride": 2, "padding": 1, "output_padding": 1}}


def layer_of(dims: int, transposed: bool, options: dict) -> nn.Module:
    kind = getattr(nn, f"Conv{'Transpose' if transposed else ''}{dims}d")
    return kind(4, 8, **{"kernel_size": 3, **options})


def images(dims: int, device: str, dtype=DOUBLE, channels_last: bool = False) -> torch.Tensor:
    tensor = seeded((2, 4, 7, 6, 5)[: dims + 2], 1, dtype, device)
    formats = {2: torch.channels_last, 3: torch.channels_last_3d}
    if channels_last:
        tensor = tensor.contiguous(memory_format=formats[dims])
    return tensor.requires_grad_()


def run(device: str, dims: int, transposed: bool, options: dict, dtype=DOUBLE, channels_last: bool = False):
    layer = made(lambda: layer_of(dims, transposed, options), device).to(dtype)
    inputs = images(dims, device, dtype, channels_last)
    if channels_last:
        layer = layer.to(memory_format={2: torch.channels_last, 3: torch.channels_last_3d}[dims])
    output = layer(inputs)
    backward(output)
    return output, inputs.grad, gradients(layer)


CASES = [
    (d, t, name, o)
    for d in (1, 2, 3)
    for t in (False, True)
    for name, o in (OPTIONS | (TRANSPOSED if t else NAMED)).items()
    if not (d == 3 and name == "reflected")
]


@pytest.mark.parametrize(
    "dims, transposed, options",
    [(d, t, o) for d, t, _, o in CASES],
    ids=[f"{'transposed ' if t else ''}{d}d {name}" for d, t, name, _ in CASES],
)
def test_forward_and_backward(dims, transposed, options):
    check(lambda device: run(device, dims, transposed, options), **DOUBLE_CLOSE)
    check(lambda device: run(device, dims, transposed, options, torch.float32), **FLOAT_TOLERANCE)


@pytest.mark.parametrize("dims", [2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("name", OPTIONS)
def test_channels_last(dims, transposed, dtype, name):
    output, *_ = check(
        lambda device: run(device, dims, transposed, OPTIONS[name], dtype, channels_last=True), **FLOAT_TOLERANCE
    )
    if dims == 2 and dtype == torch.float32 and not transposed:
        assert output.is_contiguous(memory_format=torch.channels_last)


@pytest.mark.parametrize("dims", [1, 2, 3])
@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("name", ["plain", "strided", "grouped"])
def test_double_backward(dims, transposed, name):
    def program(device):
        layer = made(lambda: layer_of(dims, transposed, OPTIONS[name]), device).double()
        inputs = images(dims, device)
        wanted = [inputs, *layer.parameters()]
        first = torch.autograd.grad(layer(inputs).square().sum(), wanted, create_graph=True)
        return torch.autograd.grad(sum((gradient**2).sum() for gradient in first), wanted)

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
@pytest.mark.parametrize("dims, transposed", [(1, False), (2, False), (2, True)])
def test_half_precision(dims, transposed, dtype):
    check(lambda device: run(device, dims, transposed, {}, dtype), rtol=5e-2, atol=5e-2)


@pytest.mark.parametrize("dtype", [torch.complex64, torch.complex128, torch.int32, torch.int64, torch.uint8])
def test_other_dtypes(dtype):
    def program(device):
        if dtype.is_complex:
            make = lambda shape, seed: torch.complex(seeded(shape, seed, DOUBLE), seeded(shape, seed + 1, DOUBLE))  # noqa: E731
        else:
            make = lambda shape, seed: seeded(shape, seed, DOUBLE).mul(4).abs()  # noqa: E731
        given = make((1, 2, 5, 5), 0).to(dtype).to(device), make((3, 2, 3, 3), 5).to(dtype).to(device)
        wide = dtype.is_complex or dtype == torch.int64  # the CPU's transposed convolution takes no other integers
        return F.conv2d(*given), F.conv_transpose2d(given[0], given[1].transpose(0, 1)) if wide else None

    check(program, **FLOAT_TOLERANCE)


@pytest.mark.parametrize("shape", [(4, 7, 6), (0, 4, 7, 6), (1, 4, 3, 3)])
def test_unbatched_empty_and_one(shape):
    def program(device):
        layer = made(lambda: nn.Conv2d(4, 8, 3), device)
        inputs = leaf(shape, device=device)
        output = layer(inputs)
        backward(output)
        return output, inputs.grad, gradients(layer)

    check(program, **FLOAT_TOLERANCE)


@pytest.mark.parametrize(
    "need", [(True, False, False), (False, True, False), (False, False, True), (True, False, True)]
)
def test_gradients_only_where_wanted(need):
    def program(device):
        given = [
            seeded((2, 4, 6, 6), 0, DOUBLE, device),
            seeded((8, 4, 3, 3), 1, DOUBLE, device),
            seeded((8,), 2, DOUBLE, device),
        ]
        for tensor, wanted in zip(given, need):
            tensor.requires_grad_(wanted)
        backward(F.conv2d(*given))
        return [tensor.grad for tensor in given]

    check(program, **DOUBLE_CLOSE)


def test_strided_operands():
    def program(device):
        inputs = leaf((2, 8, 12, 6), device=device)
        weight = leaf((3, 3, 4, 8), 1, device=device)
        output = F.conv2d(inputs[:, ::2, ::2].transpose(2, 3), weight.permute(3, 2, 0, 1)[::2])
        backward(output)
        return output, inputs.grad, weight.grad

    check(program, **FLOAT_TOLERANCE)


def test_direct_calls():
    """The ops below nn.functional, as other libraries call them."""

    def program(device):
        given = [
            seeded((2, 4, 6, 6), 0, DOUBLE, device),
            seeded((8, 4, 3, 3), 1, DOUBLE, device),
            seeded((8,), 2, DOUBLE, device),
        ]
        settings = [1, 1], [0, 0], [1, 1], False, [0, 0], 1
        output = torch.ops.aten.convolution(*given, *settings)
        grads = torch.ops.aten.convolution_backward(
            torch.ones_like(output), *given[:2], [8], *settings, [True, True, True]
        )
        return (
            output,
            grads,
            torch._convolution(*given, *settings, False, False, False, False),
            torch.ops.aten.convolution_overrideable(*given, *settings) if device == "flex" else output,
            F.unfold(given[0], 3),
            F.fold(F.unfold(given[0], 2), (6, 6), 2),
            torch.conv_tbc(seeded((6, 2, 4), 3, DOUBLE, device), seeded((3, 4, 8), 4, DOUBLE, device), given[2]),
        )

    check(program, **DOUBLE_CLOSE)


@pytest.mark.parametrize(
    "case",
    [
        lambda x, w, b: F.conv2d(x, w[:, :3], b),
        lambda x, w, b: F.conv2d(x, w, b[:3]),
        lambda x, w, b: F.conv2d(x, w, b, stride=0),
        lambda x, w, b: F.conv2d(x, w, b, padding=-1),
        lambda x, w, b: F.conv2d(x, w, b, groups=3),
        lambda x, w, b: F.conv2d(x, w, b, padding="half"),
        lambda x, w, b: F.conv2d(x, w, b, stride=2, padding="same"),
        lambda x, w, b: F.conv2d(x[..., :2], w, b),
        lambda x, w, b: F.conv2d(x[0, 0], w, b),
        lambda x, w, b: F.conv2d(x.double(), w, b),
        lambda x, w, b: F.conv2d(x, w, b, dilation=0),
        lambda x, w, b: F.conv_transpose2d(x, w.transpose(0, 1), b, output_padding=3),
        lambda x, w, b: F.conv1d(x, w, b),
    ],
)
def test_errors(case):
    check_error(
        lambda device: case(
            seeded((2, 4, 6, 6), device=device), seeded((8, 4, 3, 3), device=device), seeded((8,), device=device)
        )
    )


def test_inputs_of_two_devices():
    with pytest.raises(RuntimeError, match="(?=.*flex)(?=.*cpu)"):
        F.conv2d(torch.ones(1, 1, 4, 4, device="flex"), torch.ones(1, 1, 3, 3))
    with pytest.raises(RuntimeError, match="(?=.*flex)(?=.*cpu)"):
        F.conv2d(torch.ones(1, 1, 4, 4), torch.ones(1, 1, 3, 3, device="flex"))


def test_lazy_convolution():
    layer = nn.LazyConv2d(4, 3, device="flex")
    assert layer(torch.ones(1, 2, 5, 5, device="flex")).shape == (1, 4, 3, 3)
    assert layer.weight.device.type == "flex" and layer.weight.shape == (4, 2, 3, 3)
