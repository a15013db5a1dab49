"""cat, stack and their kin on flex against the CPU: dtypes, layouts, memory formats, empty tensors, out=, errors."""

import itertools

import pytest
import torch

import flexcpu
from parity import DTYPES, LAYOUTS, assert_equal, assert_same, check, leaf, name, seeded

SIZES = {
    "one dimension": ([(5,), (3,), (70,)], 0),
    "rows": ([(2, 3), (4, 3)], 0),
    "columns": ([(40, 3), (40, 1), (40, 2)], 1),
    "long columns": ([(9, 70), (9, 1), (9, 300)], -1),
    "one column each": ([(50, 1)] * 3, 1),
    "one column of many": ([(50, 1)] * 7, 1),
    "the middle": ([(4, 2, 9), (4, 5, 9)], 1),
    "the first of three": ([(4, 2, 9), (1, 2, 9)], -3),
    "a single tensor": ([(4, 6)], 0),
    "many": ([(3, 4)] * 40, 1),
    "with nothing": ([(3, 4), (0,), (3, 2), (3, 0)], 1),
    "nothing at all": ([(3, 0), (3, 0)], 1),
    "large": ([(300, 400), (300, 7), (300, 500)], 1),
}


def tensors(sizes, dtype=torch.float32):
    return [(seeded(size, n) * 50).to(dtype) for n, size in enumerate(sizes)]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
@pytest.mark.parametrize("what", SIZES)
def test_sizes(what, dtype):
    sizes, dim = SIZES[what]
    assert_same(lambda d: torch.cat([t.to(d) for t in tensors(sizes, dtype)], dim), native=True)
    if what != "nothing at all":

        def into(device):
            parts = [t.to(device) for t in tensors(sizes, dtype)]
            out = torch.zeros_like(torch.cat(parts, dim))
            assert torch.cat(parts, dim, out=out) is out
            return out

        assert_same(into, native=True)


@pytest.mark.parametrize("second", LAYOUTS)
@pytest.mark.parametrize("first", LAYOUTS)
def test_layouts(first, second):
    a, b = seeded((6, 8, 4, 10), 1), seeded((6, 8, 4, 10), 2)
    x, y = LAYOUTS[first](a), LAYOUTS[second](b)
    for dim in range(x.dim()):
        assert_same(lambda d: torch.cat([LAYOUTS[first](a.to(d)), LAYOUTS[second](b.to(d)), LAYOUTS[first](b.to(d))], dim),
                    native=x.dim() == y.dim() and x.dim() > 0 and
                    all(x.size(k) == y.size(k) for k in range(x.dim()) if k != dim))  # fmt: skip
        if x.size() == y.size():
            assert_same(lambda d: torch.stack([LAYOUTS[first](a.to(d)), LAYOUTS[second](b.to(d))], dim), native=True)


def test_mixed_dtypes():
    for one, other in itertools.product([torch.uint8, torch.int64, torch.bfloat16, torch.float64, torch.complex64],
                                        repeat=2):  # fmt: skip
        assert_same(lambda d: torch.cat([torch.ones(3, 4, dtype=one, device=d), torch.ones(2, 4, dtype=other, device=d)]),
                    native=True, context=(one, other))  # fmt: skip
        assert_same(lambda d: torch.cat([torch.ones(3, 4, dtype=one, device=d), torch.ones(0, dtype=other, device=d)]),
                    native=True, context=(one, other))  # fmt: skip


def test_memory_formats():
    last = torch.channels_last
    a, b = seeded((2, 3, 4, 5), 1), seeded((2, 3, 4, 5), 2)
    for one, other in itertools.product([torch.contiguous_format, last], repeat=2):
        for dim in range(4):
            assert_same(
                lambda d: torch.cat([a.to(d, memory_format=one), b.to(d, memory_format=other)], dim), native=True
            )
    assert_same(lambda d: torch.cat([torch.ones(0, device=d), a.to(d, memory_format=last)]), native=True)
    voxels = seeded((2, 3, 4, 5, 6)).to(memory_format=torch.channels_last_3d)
    assert_same(lambda d: torch.cat([voxels.to(d)] * 2, 1), native=True)


@pytest.mark.parametrize(
    "run",
    [
        lambda d: torch.cat([]),
        lambda d: torch.cat([torch.ones((), device=d)]),
        lambda d: torch.cat([torch.ones(0, device=d), torch.ones(0, device=d)]),
        lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)]),
        lambda d: torch.cat([torch.ones(2, 3, device=d), torch.ones(2, 3, 1, device=d)]),
        lambda d: torch.cat([torch.ones(2, 3, device=d)] * 2, 2),
        lambda d: torch.cat([torch.ones(2, device=d)] * 2, out=torch.ones(4, dtype=torch.int64, device=d)),
        lambda d: torch.cat([torch.ones(2, device=d)] * 2, out=torch.ones(3, device=d)),
        lambda d: torch.cat([torch.ones(2, device=d)] * 2, out=torch.ones(1, device=d).expand(4)),
        lambda d: torch.cat([torch.ones(2, device=d)] * 2, out=torch.empty(0, device=d)),
        lambda d: torch.stack([torch.ones(2, 3, device=d), torch.ones(2, 4, device=d)], -1),
        lambda d: torch.cat([torch.ones(2, 3, dtype=torch.complex64, device=d).conj(), torch.ones(2, 3, device=d)]),
    ],
)
def test_what_the_cpu_answers(run):
    assert_same(run, native=False)


def test_out_of_every_layout():
    a, b = seeded((2, 6)), seeded((4, 6))
    for make in [
        lambda d: torch.zeros(6, 6, device=d).t(),
        lambda d: torch.zeros(6, 12, device=d)[:, ::2],
        lambda d: torch.zeros(6, 6, dtype=torch.float64, device=d),
    ]:
        assert_same(lambda d: torch.cat([a.to(d), b.to(d)], out=make(d)), native=True)

    def overlapping(device):
        whole = torch.arange(24.0).view(6, 4).to(device)
        torch.cat([whole[:2], whole[1:3]], out=whole[:4])
        return whole

    assert_same(overlapping, native=False)


def test_sharers_keep_their_bytes():
    a = torch.arange(8.0, device="flex")
    peer = a.clone()
    torch.cat([torch.zeros(4, device="flex"), torch.ones(4, device="flex")], out=a)
    assert_equal(peer, torch.arange(8.0))


def test_gradients():
    def program(device):
        a, b = leaf((3, 4), 1, device=device), leaf((3, 2), 2, device=device)
        (torch.cat([a, b, a], 1) ** 2).sum().backward()
        c = leaf((3, 4), 3, device=device)
        torch.stack([c, c * 2, c], -1).cos().sum().backward()
        return a.grad, b.grad, c.grad

    check(program)


@pytest.mark.parametrize("threads", [1, 2])
def test_several_threads(threads):
    before = torch.get_num_threads()
    torch.set_num_threads(threads)
    try:
        for sizes, dim in [
            ([(90000,), (80001,)], 0),
            ([(70000, 1)] * 3, 1),
            ([(50000, 1)] * 5, 1),
            ([(40000, 2), (40000, 9)], 1),
        ]:
            assert_same(lambda d: torch.cat([t.to(d) for t in tensors(sizes)], dim), native=True)
    finally:
        torch.set_num_threads(before)


def test_routes():
    def routes(run):
        with flexcpu.explain() as plans:
            run()
        return [(plan.family, plan.route) for plan in plans]

    column, rows = torch.ones(64, 1, device="flex"), torch.ones(64, 64, device="flex")
    assert routes(lambda: torch.cat([column] * 3, 1)) == [("cat", "interleave")]
    assert routes(lambda: torch.stack([rows] * 2, -1)) == [("cat", "interleave")]
    assert routes(lambda: torch.cat([column] * 5, 1)) == [("cat", "short runs")]
    assert routes(lambda: torch.cat([column, rows], 1)) == [("cat", "runs")]
    assert routes(lambda: torch.cat([rows.t(), rows])) == [("copy", "transpose"), ("copy", "contiguous")]
