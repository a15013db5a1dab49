"""Padding by constants, reflection and replication, and im2col, on flex against the CPU."""

import pytest
import torch
import torch.nn.functional as F

from parity import DTYPES, LAYOUTS, UINTS, assert_equal, assert_same, check, leaf, name, seeded

aten = torch.ops.aten
LAST = torch.channels_last
INTEGERS = [d for d in DTYPES if not (d.is_floating_point or d.is_complex or d == torch.bool)]

PADS = [(1, 2), (3, 0, 1, 2), (0, 1), (-1, 2), (2, -3, -1, 1), (0, 0, 2, 1), (1, 1, 1, 1, 1, 1), (0,) * 6 + (2, 1),
        (1,) * 8, (), (0, 0), (-1, -1), (-4, 6), (-5, 0), (70, 0)]  # fmt: skip


def source(dtype, *sizes):
    return (seeded(sizes) * 50).to(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_dtypes(dtype):
    x = source(dtype, 2, 3, 4, 5)
    for pad in PADS:
        assert_same(lambda d: F.pad(x.to(d), pad, value=1), native=pad != (-5, 0), context=pad)
    has_modes = dtype not in [torch.bool, *UINTS, torch.complex32]
    for mode in ("reflect", "replicate"):
        for pad in [(1, 2, 3, 1), (0, 0, 0, 2), (4, 0, 0, 0)]:
            assert_same(lambda d: F.pad(x.to(d), pad, mode), native=has_modes, context=pad)
        assert_same(lambda d: F.pad(x[0].to(d), (2, 3), mode), native=has_modes)
        assert_same(lambda d: F.pad(x[:1].to(d), (2, 3, 0, 1, 1, 1), mode), native=has_modes)
    assert_same(lambda d: F.unfold(x.to(d), 2), native=dtype not in [*INTEGERS, torch.complex32])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout):
    x, view = seeded((2, 6, 8, 10)), LAYOUTS[layout]
    for pad in [(1, 2), (2, 1, 0, 3), (-1, 1), (0, 0, 1, 1), (1,) * 6]:
        assert_same(lambda d: F.pad(view(x.to(d)), pad, value=7), native=False, context=pad)
    for mode in ("reflect", "replicate"):
        assert_same(lambda d: F.pad(view(x.to(d)), (2, 1, 1, 0), mode), native=False)
    assert_same(lambda d: F.unfold(view(x.to(d)), (2, 3), padding=1, stride=(1, 2)), native=False)


def test_memory_formats():
    x = seeded((2, 5, 6, 7))
    for pad in [(1, 2), (1, 2, 2, 1), (0, 0, 1, 0), (0, 0, 0, 0, 1, 2), (1,) * 8, (-1, 3)]:
        assert_same(lambda d: F.pad(x.to(d, memory_format=LAST), pad), native=True, context=pad)
        assert_same(lambda d: F.pad(x[:, :1].to(d, memory_format=LAST), pad), native=True, context=pad)
    voxels = seeded((2, 3, 4, 5, 6)).to(memory_format=torch.channels_last_3d)
    for mode in ("constant", "reflect", "replicate"):
        assert_same(lambda d: F.pad(x.to(d, memory_format=LAST), (2, 1, 1, 0), mode), native=True)
        assert_same(lambda d: F.pad(voxels.to(d), (1, 2, 0, 1, 2, 0), mode), native=True)


def test_out():
    x = seeded((2, 3, 4, 5))
    for op in (aten.reflection_pad2d, aten.replication_pad2d):
        for make in [
            lambda d: torch.ones(2, 3, 6, 8, device=d),
            lambda d: torch.ones(2, 3, 8, 6, device=d).mT,
            lambda d: torch.ones(0, device=d),
            lambda d: torch.ones(2, 3, 6, 8, dtype=torch.float64, device=d),
        ]:
            assert_same(lambda d: op.out(x.to(d), (1, 2, 1, 1), out=make(d)), native=False)
    out = torch.ones(2, 3, 6, 8, device="flex")
    peer = out.clone()
    aten.reflection_pad2d.out(x.to("flex"), (1, 2, 1, 1), out=out)
    assert_equal(peer, torch.ones(2, 3, 6, 8))


@pytest.mark.parametrize(
    "run",
    [
        lambda x: F.pad(x, (1,)),
        lambda x: F.pad(x, (1,) * 10),
        lambda x: F.pad(x, (-3, -3)),
        lambda x: F.pad(x.to(torch.uint8), (1, 1), value=300),
        lambda x: F.pad(x, (1, 1), value=1j),
        lambda x: F.pad(x, (2**62, 2**62)),
        lambda x: F.pad(x[:0], (1, 1)),
        lambda x: F.pad(x[..., :0], (1, 1)),
        lambda x: F.pad(x[..., :0], (1, 1, 1, 1), "reflect"),
        lambda x: F.pad(x[:0], (1, 1, 1, 1), "reflect"),
        lambda x: F.pad(x, (5, 1, 1, 1), "reflect"),
        lambda x: F.pad(x, (-1, 1, 1, 1), "reflect"),
        lambda x: F.pad(x, (-1, 1, 1, 1), "replicate"),
        lambda x: F.pad(x, (-3, -3, 0, 0), "replicate"),
        lambda x: F.pad(x, (1, 1), "reflect"),
        lambda x: F.pad(x[0, 0, 0, 0], ()),
        lambda x: F.unfold(x, 9),
        lambda x: F.unfold(x, 0),
        lambda x: F.unfold(x, 2, stride=0),
        lambda x: F.unfold(x, 2, padding=-1),
        lambda x: F.unfold(x[0, 0], 2),
        lambda x: F.unfold(x[:0], 2),
        lambda x: F.unfold(x[:, :0], 2),
    ],
)
def test_what_the_cpu_answers(run):
    x = seeded((2, 3, 4, 5))
    assert_same(lambda d: run(x.to(d)), native=False)


@pytest.mark.parametrize("threads", [1, 2])
def test_im2col(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = seeded((2, 7, 30, 41))
        for kernel, dilation, padding, stride in [
            (3, 1, 1, 1),
            ((2, 5), 1, 0, 1),
            (3, 2, 3, 1),
            (3, 1, 1, (2, 3)),
            ((1, 4), (1, 7), (4, 9), (3, 2)),
            (2, 1, 40, 50),
            ((30, 41), 1, 0, 1),
        ]:
            for view in (lambda t: t, lambda t: t[0], lambda t: t.mT, lambda t: t.flip(0)[:, ::2]):
                if not (view(x).size(-1) == 30 and kernel == (30, 41)):
                    assert_same(lambda d: F.unfold(view(x.to(d)), kernel, dilation, padding, stride), native=True)
    finally:
        torch.set_num_threads(before)


def test_large_ones():
    x = seeded((4, 8, 60, 61))
    for pad, mode in [((1, 2, 3, 4), "constant"), ((1, 2, 3, 4), "reflect"), ((7, 0, 0, 9), "replicate")]:
        for memory_format in (torch.contiguous_format, LAST):
            assert_same(lambda d: F.pad(x.to(d, memory_format=memory_format), pad, mode), native=True)


def test_gradients():
    def program(device):
        x = leaf((2, 3, 6, 7), device=device)
        y = F.pad(F.pad(F.pad(x, (1, 2, -1, 1)), (2, 1, 1, 1), "reflect"), (1, 1, 2, 0), "replicate")
        F.unfold(y.cos(), 3, padding=1).square().sum().backward()
        return x.grad

    check(program)
