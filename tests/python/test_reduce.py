"""sum and mean on flex against the CPU: dtypes, dimensions, layouts, strides of the result, special values, errors."""

import itertools
import math

import pytest
import torch

from parity import BOOL, COMPLEX, DTYPES, FLOATS, HALVES, INTS, LAYOUTS, UINTS, assert_equal, assert_same, name

OPS = ["sum", "mean"]
# The CPU adds none of these up.
NOT_ADDED = [*UINTS, torch.complex32]
# Both add in float32 or better, in different orders; the CPU's 16-bit sums come from chunks rounded to 16 bits.
TOLERANCE = {
    torch.float16: (2e-3, 1e-3),
    torch.bfloat16: (1.6e-2, 1e-2),
    torch.float32: (1e-5, 1e-4),
    torch.complex64: (1e-5, 1e-4),
    torch.float64: (1e-12, 1e-11),
    torch.complex128: (1e-12, 1e-11),
}


def tolerance(dtype):
    rtol, atol = TOLERANCE.get(dtype, (0, 0))
    return {"rtol": rtol, "atol": atol}


def values(dtype, *sizes):
    generator = torch.Generator().manual_seed(math.prod(sizes))
    if dtype.is_complex:
        parts = torch.randn(*sizes, 2, generator=generator, dtype=torch.float64)
        return torch.view_as_complex(parts).to(dtype)
    if dtype.is_floating_point:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)
    if dtype in BOOL:
        return torch.randint(0, 2, sizes, generator=generator).to(dtype)
    return torch.randint(-(2**62), 2**62, sizes, generator=generator).to(dtype)


def dimension_sets(rank):
    for count in range(1, rank + 1):
        yield from itertools.combinations(range(rank), count)


def result_dtype(op, dtype, asked):
    return asked or (torch.int64 if op == "sum" and not dtype.is_floating_point and not dtype.is_complex else dtype)


def is_native(op, dtype, asked):
    result = result_dtype(op, dtype, asked)
    if dtype.is_complex and not result.is_complex or result in [*NOT_ADDED, *BOOL]:
        return False
    return op == "sum" or result.is_floating_point or result.is_complex


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_dimensions_and_layouts(op, dtype):
    t = values(dtype, 4, 6, 8, 10)
    native = is_native(op, dtype, None)
    for layout, view in LAYOUTS.items():
        for dims in dimension_sets(view(t).dim()):
            for keepdim in (False, True):
                assert_same(
                    lambda d: getattr(torch, op)(view(t.to(d)), dims, keepdim),
                    native=native,
                    context=(layout, dims, keepdim),
                    **tolerance(dtype),
                )
            if not native:
                break
        assert_same(lambda d: getattr(torch, op)(view(t.to(d))), native=native, context=layout, **tolerance(dtype))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("asked", DTYPES, ids=name)
def test_asked_dtype(op, asked, every_warning):
    for dtype in DTYPES:
        t = values(dtype, 6, 70)
        if dtype.is_floating_point or dtype.is_complex:
            t = t * 5
        elif not t.dtype == torch.bool:
            t = t % 7 if dtype not in UINTS else (t.to(torch.int64) % 7).to(dtype)
        for dims in [(0,), (1,), (0, 1)]:
            assert_same(
                lambda d: getattr(torch, op)(t.to(d, copy=True), dims, dtype=asked),
                context=(dtype, dims),
                native=is_native(op, dtype, asked),
                **tolerance(asked),
            )


@pytest.mark.parametrize("op", OPS)
def test_long_sums_from_several_threads(op):
    threads = torch.get_num_threads()
    run = getattr(torch, op)
    cases = [
        ((1 << 20,), (0,)),
        ((3000, 700), (0,)),
        ((3000, 700), (1,)),
        ((100000, 7), (0,)),
        ((100000, 7), (1,)),
        ((30, 200, 350), (0, 2)),
        ((7, 300001), (1,)),
    ]
    try:
        for sizes, dims in cases:
            for dtype in [torch.float32, torch.bfloat16, torch.int16, torch.bool]:
                if not is_native(op, dtype, None):
                    continue
                t = values(dtype, *sizes)
                seen = []
                for count in (1, 2):
                    torch.set_num_threads(count)
                    assert_same(lambda d: run(t.to(d), dims), native=True, context=(sizes, dims), **tolerance(dtype))
                    seen.append(run(t.to("flex"), dims).cpu())
                assert torch.equal(seen[0], seen[1])
    finally:
        torch.set_num_threads(threads)


def test_long_sums_are_accurate():
    eps = torch.finfo(torch.float32).eps
    for t in [values(torch.float32, 1 << 20), values(torch.float32, 1 << 20).abs(), torch.full((1 << 20,), 0.1)]:
        for view in [t, t.view(-1, 8), t.view(8, -1).t()]:
            exact, magnitudes = view.double().sum(0), view.double().abs().sum(0)
            error = (view.to("flex").sum(0).cpu() - exact).abs()
            assert (error <= eps * (2 * exact.abs() + magnitudes / 32)).all()


def test_integers_wrap():
    t = torch.full((1000,), 2**62)
    for asked in INTS + [None]:
        assert_same(lambda d: t.to(d).sum(dtype=asked), native=True, context=asked)


@pytest.mark.parametrize("dtype", FLOATS + [torch.complex64], ids=name)
def test_special_values(dtype):
    for special in [(math.nan,), (math.inf,), (-math.inf,), (math.inf, -math.inf), (math.inf, math.nan)]:
        for place in (0, 3, 64, 998):
            t = torch.ones(1000, 3, dtype=dtype)
            for i, value in enumerate(special):
                t[(place + 500 * i) % 1000, 1] = value
            for op, dims in itertools.product(OPS, [(0,), (1,), (0, 1)]):
                assert_same(
                    lambda d: getattr(torch, op)(t.to(d), dims),
                    native=True,
                    context=(special, place, op, dims),
                    **tolerance(dtype),
                )


@pytest.mark.parametrize("op", OPS)
def test_nothing_to_add(op):
    for sizes in [(0,), (3, 0), (0, 3), (2, 0, 4)]:
        t = torch.zeros(sizes)
        assert_same(lambda d: getattr(torch, op)(t.to(d)), native=True, context=sizes)
        for dims in dimension_sets(len(sizes)):
            assert_same(lambda d: getattr(torch, op)(t.to(d), dims), native=True, context=(sizes, dims))
            assert_same(lambda d: getattr(torch, op)(t.to(d), dims, keepdim=True), native=True, context=(sizes, dims))


@pytest.mark.parametrize("op", OPS)
def test_no_dimensions_are_all(op):
    t = values(torch.float32, 3, 4)
    run = getattr(torch, op)
    for call in [
        lambda t: run(t, ()),
        lambda t: run(t, [], keepdim=True),
        lambda t: run(t, None, keepdim=True),
        lambda t: run(t, None),
    ]:
        assert_same(lambda d: call(t.to(d)), native=True, **tolerance(t.dtype))
    scalar = torch.tensor(2.5)
    for dims in [0, -1, ()]:
        assert_same(lambda d: run(scalar.to(d), dims), native=True)
        assert_same(lambda d: run(scalar.to(d), dims, keepdim=True), native=True)


@pytest.mark.parametrize("op", OPS)
def test_out(op):
    t = values(torch.float32, 5, 6)
    run = getattr(torch, op)
    whole = {"native": True, **tolerance(t.dtype)}
    assert_same(lambda d: run(t.to(d), 0, out=torch.zeros(6, device=d)), **whole)
    assert_same(lambda d: run(t.to(d), 0, keepdim=True, out=torch.zeros(1, 6, device=d)), **whole)
    assert_same(lambda d: run(t.to(d), 0, out=torch.zeros(6, 2, device=d)[:, 1]), **whole)
    assert_same(
        lambda d: run(t.to(d), 1, dtype=torch.float64, out=torch.zeros(5, dtype=torch.float64, device=d)), **whole
    )
    assert_same(lambda d: run(t.to(d), 1, out=torch.zeros(5, dtype=torch.float64, device=d)), **whole)
    # Resized with a warning, or refused.
    for out in [
        lambda d: torch.zeros(0, device=d),
        lambda d: torch.zeros(7, device=d),
        lambda d: torch.zeros(1, device=d).expand(6),
        lambda d: torch.zeros(6, dtype=torch.float64, device=d),
        lambda d: torch.zeros(6, dtype=torch.int64, device=d),
    ]:
        assert_same(lambda d: run(t.to(d), 0, dtype=torch.float32, out=out(d)), native=False, **tolerance(t.dtype))


ERRORS = {
    "out of range": lambda t: t.sum(2),
    "below range": lambda t: t.mean(-3),
    "named twice": lambda t: t.sum((0, -2)),
    "mean of integers": lambda t: t.long().mean(),
    "mean into integers": lambda t: t.mean(dtype=torch.int32),
    "mean of bools": lambda t: (t > 0).mean(0),
    "scalar": lambda t: t[0, 0].sum(1),
}


@pytest.mark.parametrize("what", ERRORS)
def test_errors(what):
    t = values(torch.float32, 3, 4)
    assert_same(lambda d: ERRORS[what](t.to(d)), native=False)


@pytest.mark.parametrize("dtype", COMPLEX[1:], ids=name)
def test_bits_of_views(dtype):
    z = values(dtype, 6, 40)
    for view in [lambda t: t.conj(), lambda t: t.conj().imag, lambda t: torch._neg_view(t)]:
        assert_same(lambda d: view(z.to(d)).sum(1), native=False, **tolerance(dtype))


@pytest.mark.parametrize("dtype", HALVES, ids=name)
def test_halves_add_in_float(dtype):
    """A mean of 16-bit numbers is the rounded mean of the same numbers in float32."""
    t = values(dtype, 300, 70).abs()
    with torch.flex.forbid_fallback():
        assert_equal(t.to("flex").mean(0), t.double().mean(0).float().to(dtype))


def test_gradients():
    for run in [lambda t: t.sum(), lambda t: t.sum((0, 2)), lambda t: t.mean(1, keepdim=True), lambda t: t.mean()]:

        def gradient(device):
            t = values(torch.float32, 3, 4, 5).to(device).requires_grad_()
            run(t).pow(2).sum().backward()
            return t.grad

        assert_same(gradient, native=False, rtol=1e-5, atol=1e-5)
