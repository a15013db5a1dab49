"""flip, roll, tril, triu, pixel_shuffle and their kin on flex against the CPU: dtypes, layouts, arguments, errors."""

import pytest
import torch
import torch.nn.functional as F

import flexcpu
from parity import DTYPES, LAYOUTS, UINTS, assert_equal, assert_same, check, leaf, name, seeded

aten = torch.ops.aten
LONG = 2**63 - 1

FLIPS = [(), (0,), (1, 2), (0, 1, 2, 3), (-1,), (-2, 0)]
ROLLS = [((1,), (0,)), ((-3, 5), (1, -1)), ((2, 3, 1, 9), (0, 1, 2, 3)), ((1, 1), (2, 2)), ((0, 4), (0, 1)), ((7,), ())]
DIAGONALS = [0, 1, -1, 3, -4, 100, -100, LONG, -LONG - 1]


def source(dtype, *sizes):
    return (seeded(sizes) * 50).to(dtype)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_dtypes(dtype):
    x = source(dtype, 2, 8, 6, 34)
    for dims in FLIPS:
        assert_same(lambda d: x.to(d).flip(dims), native=dtype not in [*UINTS, torch.complex32], context=dims)
    for shifts, dims in ROLLS:
        assert_same(lambda d: x.to(d).roll(shifts, dims), native=True, context=(shifts, dims))
    has_triangle = dtype not in UINTS
    for diagonal in DIAGONALS:
        for part in (torch.tril, torch.triu):
            assert_same(lambda d: part(x.to(d), diagonal), native=has_triangle, context=diagonal)
    shuffles = has_triangle and dtype != torch.complex32
    assert_same(lambda d: F.pixel_shuffle(x.to(d), 2), native=shuffles)
    assert_same(lambda d: F.pixel_unshuffle(x.to(d), 2), native=shuffles)
    assert_same(lambda d: aten.channel_shuffle(x.to(d), 4), native=shuffles)


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float32, torch.complex128], ids=name)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_layouts(layout, dtype):
    x, view = source(dtype, 6, 8, 18, 20), LAYOUTS[layout]
    rank = view(x).dim()
    for dims in ((), (0,), (-1,), tuple(range(rank))) if rank else ((),):
        assert_same(lambda d: view(x.to(d)).flip(dims), native=True, context=dims)
    for shifts, dims in [((3,), (0,)), ((-2,), (-1,)), ((5,), ()), ((1,) * rank, tuple(range(rank)))]:
        assert_same(lambda d: view(x.to(d)).roll(shifts, dims), native=False, context=(shifts, dims))
    for diagonal in (0, 2, -3):
        assert_same(lambda d: view(x.to(d)).tril(diagonal), native=rank > 1, context=diagonal)
        assert_same(lambda d: view(x.to(d)).triu(diagonal), native=rank > 1, context=diagonal)
    for shuffle in (F.pixel_shuffle, F.pixel_unshuffle, aten.channel_shuffle):
        assert_same(lambda d: shuffle(view(x.to(d)), 2), native=False, context=shuffle)


def test_triangles_in_place_and_into_out():
    x = seeded((3, 5, 7))
    for view in (lambda t: t, lambda t: t.transpose(0, 2), lambda t: t[..., ::2], lambda t: t[:, 1:]):
        for diagonal in (0, 2, -2):

            def in_place(device, op="tril_"):
                whole = x.to(device, copy=True)
                getattr(view(whole), op)(diagonal)
                return whole

            assert_same(in_place, native=True)
            assert_same(lambda d: in_place(d, "triu_"), native=True)
            assert_same(
                lambda d: torch.tril(view(x.to(d)), diagonal, out=view(torch.ones(x.size(), device=d))), native=True
            )
    assert_same(lambda d: torch.triu(x.to(d), out=torch.ones(2, device=d)), native=False)
    assert_same(lambda d: torch.triu(x.to(d), out=torch.ones(x.size(), dtype=torch.float64, device=d)), native=False)
    assert_same(lambda d: torch.ones(1, 3, device=d).expand(3, 3).tril_(), native=False)


def test_in_place_leaves_sharers_alone():
    x = torch.ones(4, 4, device="flex")
    peer = x.clone()
    x.tril_()
    assert_equal(peer, torch.ones(4, 4))
    assert_equal(x, torch.ones(4, 4).tril())


@pytest.mark.parametrize(
    "run",
    [
        lambda x: x.flip(0, 0),
        lambda x: x.flip(5),
        lambda x: x[:0].flip(0),
        lambda x: x.roll((1, 2), (0,)),
        lambda x: x.roll((), ()),
        lambda x: x.roll(1, 7),
        lambda x: x[:0].roll(1, 1),
        lambda x: x[0, 0, 0, 0].roll(1),
        lambda x: x[0, 0, 0, 0].roll(1, 0),
        lambda x: x[0, 0, 0].tril(),
        lambda x: x[..., :0].triu(),
        lambda x: F.pixel_shuffle(x, 3),
        lambda x: F.pixel_shuffle(x, 0),
        lambda x: F.pixel_shuffle(x, -2),
        lambda x: F.pixel_shuffle(x[0, 0], 2),
        lambda x: F.pixel_shuffle(x[:0], 2),
        lambda x: F.pixel_unshuffle(x, 5),
        lambda x: F.pixel_unshuffle(x, 0),
        lambda x: aten.channel_shuffle(x, 3),
        lambda x: aten.channel_shuffle(x, 0),
        lambda x: aten.channel_shuffle(x[0, 0], 2),
    ],
)
def test_what_the_cpu_answers(run):
    x = seeded((4, 8, 6, 4))
    assert_same(lambda d: run(x.to(d)), native=False)


def test_bits():
    z = torch.complex(seeded((4, 6)), seeded((4, 6), 1))
    for run in [lambda t: t.flip(0), lambda t: t.roll(1, 0), lambda t: t.tril(), lambda t: t.imag.triu()]:
        assert_same(lambda d: run(z.to(d).conj()), native=False)


def test_gradients():
    def program(device):
        x = leaf((2, 8, 4, 6), device=device)
        y = x.flip(1).roll((1, 2), (2, 3)).tril(1)
        y = F.pixel_unshuffle(F.pixel_shuffle(y * x, 2), 2)
        (y.cos() * x).sum().backward()
        return x.grad

    check(program)


@pytest.mark.parametrize("threads", [1, 2])
def test_large_ones(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        x = seeded((4, 16, 90, 70))
        for run in [
            lambda t: t.flip(3),
            lambda t: t.flip((0, 2)),
            lambda t: t.roll((7, 3), (2, 3)),
            lambda t: t.roll(1001),
            lambda t: t.tril(-3),
            lambda t: t.mT.triu(4),
            lambda t: F.pixel_shuffle(t, 4),
            lambda t: F.pixel_unshuffle(t, 2),
            lambda t: F.pixel_shuffle(t.to(memory_format=torch.channels_last), 2),
        ]:
            assert_same(lambda d: run(x.to(d)), native=True)
    finally:
        torch.set_num_threads(before)


def test_routes():
    x = torch.ones(2, 16, 32, 80, device="flex")

    def routes(run):
        with flexcpu.explain() as plans:
            run()
        return [plan.route for plan in plans]

    assert routes(lambda: x.flip(3).data_ptr()) == ["reversed rows"]
    assert routes(lambda: x.flip(0).data_ptr()) == ["rows"]
    assert routes(lambda: x.roll(3, 2)) == ["rows", "rows"]
    assert routes(lambda: F.pixel_shuffle(x, 2)) == ["interleave"]
    assert routes(lambda: F.pixel_unshuffle(x, 4)) == ["deinterleave"]
