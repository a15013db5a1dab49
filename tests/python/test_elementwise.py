"""add, sub, mul, true div, fill_ and zero_ on flex against the CPU: values, dtypes, strides, warnings and errors.

Every case is one function of a device, run on both. What a native kernel takes runs under `forbid_fallback`.
"""

import itertools
import random

import pytest
import torch

import flexcpu
from parity import CLOSE, DTYPES, FLOATS, INTS, UINTS, assert_same, name, put

# The CPU casts operands to complex32 in tensors of their own, which warn; kernels of ours cast as they go.
pytestmark = [pytest.mark.usefixtures("every_warning"), pytest.mark.filterwarnings("ignore:ComplexHalf support")]

OPS = ["add", "sub", "mul", "div"]


def tolerance(*operands):
    """Products and quotients of complex numbers are rounded in another order than the CPU's."""
    is_complex = any(isinstance(x, complex) or isinstance(x, torch.dtype) and x.is_complex for x in operands)
    return CLOSE if is_complex else {}


def numbers(dtype, *sizes):
    """Random numbers, the same at every call; small, so that no sum or product overflows a float16."""
    generator = torch.Generator().manual_seed(sum(sizes) + len(sizes))
    if dtype.is_complex:
        real = torch.view_as_complex(torch.randn(*sizes, 2, generator=generator, dtype=torch.float64))
        return real.to(dtype)
    if dtype.is_floating_point:
        return torch.randn(sizes, generator=generator, dtype=torch.float64).to(dtype)
    is_bool = dtype == torch.bool
    return torch.randint(0 if is_bool else -9, 2 if is_bool else 10, sizes, generator=generator).to(dtype)


def is_refused(op, a, b):
    """Whether the CPU has no such op."""
    try:
        result = torch.result_type(a, b)
    except RuntimeError:
        return True
    if op == "sub" and torch.bool in (a.dtype, b.dtype):
        return True
    if op in ("add", "sub") and result in UINTS:
        return True
    return op == "div" and result == torch.complex32


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("a_dtype", DTYPES, ids=name)
def test_dtype_pairs(op, a_dtype):
    for b_dtype in DTYPES:
        a, full = numbers(a_dtype, 5, 77), numbers(b_dtype, 77)
        for b in [full, full[:1], full[0]]:
            assert_same(
                lambda d: getattr(torch, op)(put(a, d), put(b, d)),
                native=not is_refused(op, a, b),
                context=(b_dtype, b.shape),
                **tolerance(a_dtype, b_dtype),
            )


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_in_place_dtypes(op, dtype):
    for b_dtype in DTYPES:
        a, b = numbers(dtype, 6, 70), numbers(b_dtype, 6, 70)
        assert_same(
            lambda d: getattr(put(a, d), op + "_")(put(b, d)),
            native=False,
            context=b_dtype,
            **tolerance(dtype, b_dtype),
        )


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_python_scalars(op, dtype):
    a = numbers(dtype, 3, 50)
    function = getattr(torch, op)
    for scalar in [3, -1, 0, 0.1, 2.5, float("inf"), float("nan"), True, 1 + 2j, 300, 2**40, 1e300]:
        how = {"native": False, "context": scalar, **tolerance(dtype, scalar)}
        assert_same(lambda d: function(put(a, d), scalar), **how)
        assert_same(lambda d: getattr(put(a, d), op + "_")(scalar), **how)
        assert_same(lambda d: function(scalar, put(a, d)), **how)
    assert_same(lambda d: 3 - put(a, d) if op == "sub" else 3 / put(a, d), native=False, **tolerance(dtype))


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("dtype", FLOATS, ids=name)
def test_zero_dim_tensors(op, dtype):
    """A 0-d tensor beside others, on flex and on the CPU; beside 16-bit floats it is not rounded for mul and div."""
    a = numbers(dtype, 1000)
    function = getattr(torch, op)
    for scalar_dtype in INTS + FLOATS:
        s = torch.tensor(0.1 if scalar_dtype.is_floating_point else 3, dtype=scalar_dtype)
        for place in ["cpu", "flex"]:
            on = lambda d: s if d == "cpu" or place == "cpu" else put(s, d)  # noqa: E731
            assert_same(lambda d: function(put(a, d), on(d)), native=True, context=(place, scalar_dtype))
            assert_same(lambda d: function(on(d), put(a, d)), native=True, context=(place, scalar_dtype))
            assert_same(lambda d: function(put(a[0], d), on(d)), native=True, context=(place, scalar_dtype))
            assert_same(lambda d: getattr(put(a, d), op + "_")(on(d)), native=True, context=(place, scalar_dtype))


@pytest.mark.parametrize("op", ["add", "sub"])
@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_alpha(op, dtype):
    a, b = numbers(dtype, 4, 40), numbers(dtype, 4, 40)
    for alpha in [1, 1.0, 2, -3, 0.1, 1.5, True, False, 1 + 1j, 300, 2**40, 1e300, float("nan")]:
        f = getattr(torch, op)
        how = {"native": False, "context": alpha, **CLOSE}  # rounded once or twice, by the instruction set
        assert_same(lambda d: f(put(a, d), put(b, d), alpha=alpha), **how)
        assert_same(lambda d: f(put(a, d), put(b[0, 0], d), alpha=alpha), **how)
        assert_same(lambda d: getattr(put(a, d), op + "_")(put(b, d), alpha=alpha), **how)


LAYOUTS = {
    "contiguous": lambda t: t,
    "transposed": lambda t: t.transpose(-1, -2).contiguous().transpose(-1, -2),
    "permuted": lambda t: t.permute(2, 0, 3, 1).contiguous().permute(1, 3, 0, 2),
    "channels_last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "columns": lambda t: torch.stack([t, t], -1)[..., 0],
    "rows": lambda t: torch.stack([t, t], -2)[..., 1, :],
    "expanded": lambda t: t[:, :1].expand(t.size()),
    "expanded_columns": lambda t: t[..., :1].expand(t.size()),
    "one_row": lambda t: t[:, :, :1, :],
    "one_column": lambda t: t[..., :1],
    "channel": lambda t: t[:1, :, :1, :1],
    "last_dimension": lambda t: t[0, 0, 0],
    "scalar": lambda t: t[0, 0, 0, 0],
}


def strided(t, device):
    """`t` on `device` with its strides and whatever lies between its elements."""
    if device == "cpu":
        return t
    base = torch.empty(t.untyped_storage().nbytes() // t.element_size(), dtype=t.dtype, device=device)
    base.copy_(t.as_strided(base.size(), (1,), 0))
    return base.as_strided(t.size(), t.stride(), t.storage_offset())


@pytest.mark.parametrize("op", OPS)
@pytest.mark.parametrize("sizes", [(2, 3, 5, 7), (3, 33, 40, 41), (1, 2, 1, 9)], ids=str)
def test_layouts(op, sizes):
    t, u = numbers(torch.float32, *sizes), numbers(torch.float32, *sizes) + 1
    for left, right in itertools.product(LAYOUTS, repeat=2):
        a, b = LAYOUTS[left](t), LAYOUTS[right](u)
        assert_same(lambda d: getattr(torch, op)(strided(a, d), strided(b, d)), native=True, context=(left, right))


@pytest.mark.parametrize("layout", [k for k in LAYOUTS if not k.startswith("expanded")])
def test_in_place_layouts(layout):
    t = numbers(torch.float32, 3, 4, 20, 30)
    a = LAYOUTS[layout](t).clone(memory_format=torch.preserve_format)
    b = numbers(torch.float32, *a.shape)

    def run(d):
        base = strided(LAYOUTS[layout](t.clone()), d)
        base.mul_(put(b, d))
        return base

    assert_same(run, native=True)


def random_view(sizes, rng):
    """A tensor that broadcasts to `sizes`, with random strides."""
    shape = [1 if rng.random() < 0.15 else n for n in sizes]
    if rng.random() < 0.15:
        shape = shape[rng.randrange(len(shape) + 1) :]
    order = list(range(len(shape)))
    if rng.random() < 0.6:
        rng.shuffle(order)
    steps = [rng.choice([1, 1, 1, 2]) for _ in shape]
    base = numbers(torch.float32, *[max(shape[d], 0) * steps[d] for d in order])
    view = base.permute([order.index(d) for d in range(len(shape))])
    view = view[tuple(slice(None, None, s) for s in steps)]
    if rng.random() < 0.2 and shape:
        d = rng.randrange(len(shape))
        view = view.narrow(d, 0, min(1, shape[d])).expand(shape)
    return view


def test_random_layouts():
    """Strides of results follow the CPU's rule, over any mixture of orders, gaps, broadcasts and empties."""
    rng = random.Random(0)
    for i in range(1500):
        sizes = [
            rng.choice([0, 1, 2, 3, 4, 5, 8] if rng.random() < 0.1 else [1, 2, 3, 4, 5, 8])
            for _ in range(rng.randrange(1, 6))
        ]
        a, b = random_view(sizes, rng), random_view(sizes, rng)
        assert_same(
            lambda d: strided(a, d) + strided(b, d),
            native=True,
            context=(i, a.size(), a.stride(), b.size(), b.stride()),
        )


def test_special_values():
    values = [0.0, -0.0, 1.0, -1.0, float("inf"), -float("inf"), float("nan"), 1e-45, -1e-40, 3e38, 65504.0, 6e-8]
    for dtype in FLOATS:
        a = torch.tensor(values, dtype=torch.float64).to(dtype).repeat_interleave(len(values))
        b = torch.tensor(values, dtype=torch.float64).to(dtype).repeat(len(values))
        for op in OPS:
            assert_same(lambda d: getattr(torch, op)(put(a, d), put(b, d)), native=True, context=(op, dtype))
    parts = [0.0, -0.0, 1.0, -2.0, float("inf"), -float("inf"), float("nan")]
    for dtype in [torch.complex64, torch.complex128]:
        z = torch.tensor([complex(x, y) for x in parts for y in parts], dtype=dtype)
        for op in OPS:
            assert_same(
                lambda d: getattr(torch, op)(put(z, d)[:, None], put(z, d)), native=True, context=(op, dtype), **CLOSE
            )


@pytest.mark.parametrize("dtype", INTS, ids=name)
def test_integers_wrap(dtype):
    info = torch.iinfo(dtype)
    a = torch.tensor([info.min, info.max, info.min, info.max, 0, 7] * 20, dtype=dtype)
    b = torch.tensor([info.min, info.max, -1 if info.min else 1, 2, 0, 0] * 20, dtype=dtype)
    for op in OPS:
        assert_same(lambda d: getattr(torch, op)(put(a, d), put(b, d)), native=True, context=op)
    assert_same(lambda d: torch.add(put(a, d), put(b, d), alpha=3), native=True)


def test_default_dtype_of_division():
    a = numbers(torch.int64, 40)
    previous = torch.get_default_dtype()
    for dtype in [torch.float64, torch.float16, torch.bfloat16]:
        torch.set_default_dtype(dtype)
        try:
            assert_same(lambda d: put(a, d) / put(a, d), native=True)
            assert_same(lambda d: put(a, d) / 3, native=True)
        finally:
            torch.set_default_dtype(previous)


@pytest.mark.parametrize("op", OPS)
def test_out(op):
    a, b = numbers(torch.float32, 6, 50), numbers(torch.float32, 50) + 1

    def into(make):
        def run(d):
            out = make(d)
            result = getattr(torch, op)(put(a, d), put(b, d), out=out)
            assert result is out
            return out

        return run

    assert_same(into(lambda d: torch.empty(6, 50, device=d)), native=True)
    assert_same(into(lambda d: torch.empty(50, 6, device=d).t()), native=True)
    assert_same(into(lambda d: torch.empty(6, 100, device=d)[:, ::2]), native=True)
    for dtype in DTYPES:
        assert_same(into(lambda d: torch.empty(6, 50, device=d, dtype=dtype)), native=False, context=dtype)
    assert_same(into(lambda d: torch.empty(0, device=d)), native=False)
    assert_same(into(lambda d: torch.empty(7, 50, device=d)), native=False)  # a warning about resizing
    assert_same(into(lambda d: torch.empty(1, 50, device=d).expand(6, 50)), native=False)  # an error
    assert_same(into(lambda d: torch.empty(6, 50, device=d, requires_grad=True)), native=False)  # an error


def changing(t, change):
    """The program that makes the change to `t` on a device."""

    def run(d):
        x = put(t, d)
        change(x)
        return x

    return run


def test_out_may_be_an_input():
    t = numbers(torch.float32, 8, 60)
    for change in [
        lambda x: torch.add(x, x, out=x),
        lambda x: torch.add(x[:4], x[4:], out=x[:4]),
        lambda x: torch.add(x[:4], x[4:], out=x[4:]),
        lambda x: torch.add(x[2], x[3], out=x[5]),
        lambda x: torch.mul(x.view(60, 8), x.view(60, 8), out=x.view(60, 8)),
    ]:
        assert_same(changing(t, change), native=True)


def test_overlap_errors():
    t = numbers(torch.float32, 10, 10)
    for change in [
        lambda x: x[1:].add_(x[:-1]),
        lambda x: x.add_(x.t()),
        lambda x: x[0].expand(10, 10).add_(1),
        lambda x: torch.add(x[1:], x[1:], out=x[:-1]),
        lambda x: x.as_strided((5, 5), (1, 1)).mul_(2),
        lambda x: torch.add(x, x, out=x[0].expand(10, 10)),
    ]:
        assert_same(changing(t, change), native=False)


def test_errors():
    a, b = numbers(torch.float32, 3, 4), numbers(torch.float32, 5)
    for op in OPS:
        function = getattr(torch, op)
        assert_same(lambda d: function(put(a, d), put(b, d)), native=False)
        assert_same(lambda d: getattr(put(b, d), op + "_")(put(a, d)), native=False)
        assert_same(lambda d: getattr(torch.ones(1, device=d), op + "_")(torch.ones(3, device=d)), native=False)
        assert_same(lambda d: function(put(a, d), "x"), native=False)
        assert_same(lambda d: getattr(torch.ones(3, dtype=torch.int64, device=d), op + "_")(0.5), native=False)
        assert_same(lambda d: getattr(torch.ones(3, device=d), op + "_")(1j), native=False)
    flex, cpu = torch.ones(3, device="flex"), torch.ones(3)
    for left, right in [(flex, cpu), (cpu, flex)]:
        with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
            left + right
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.tensor(1.0).add_(flex[0])
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.add(flex, flex, out=cpu)


def test_views_and_bits():
    """Conjugates, negatives and imaginary parts are views that carry bits."""
    z = numbers(torch.complex64, 5, 6)
    assert_same(lambda d: put(z, d).conj() * put(z, d), native=False, **CLOSE)
    assert_same(lambda d: put(z, d).conj().imag + put(z, d).real, native=False)
    assert_same(lambda d: put(z, d).t().conj() / put(z, d).t(), native=False, **CLOSE)


@pytest.mark.parametrize("op", OPS)
def test_peers_keep_their_values(op):
    t = numbers(torch.float32, 100) + 20
    a = put(t, "flex")
    peer = a.clone()
    assert flexcpu.shares_memory(a, peer)
    getattr(a, op + "_")(a)
    assert torch.equal(peer.cpu(), t)
    assert torch.equal(a.cpu(), getattr(torch, op)(t, t))
    out = peer.clone()
    getattr(torch, op)(peer, peer, out=out)
    assert torch.equal(peer.cpu(), t) and torch.equal(out.cpu(), a.cpu())
    row = peer.clone()
    row[10:20].fill_(7)
    assert torch.equal(peer.cpu(), t) and torch.equal(row[20:].cpu(), t[20:])


def test_out_that_aliases_an_input_and_is_shared():
    """A shared buffer that is overwritten in full is still an input under another name."""
    t = numbers(torch.float32, 64)
    a = put(t, "flex")
    peer, other_name = a.clone(), a.view(64)
    torch.add(other_name, other_name, out=a)
    assert torch.equal(a.cpu(), t + t) and torch.equal(peer.cpu(), t)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.int64, torch.complex64], ids=name)
def test_threads_give_the_same_bits(dtype):
    a, b = put(numbers(dtype, 500, 401), "flex"), put(numbers(dtype, 401, 500), "flex").t()
    results = []
    previous = torch.get_num_threads()
    for threads in [1, 2, 3]:
        torch.set_num_threads(threads)
        results.append([(a + b).cpu(), (a * b).cpu(), (a / 3).cpu(), torch.add(a, b, alpha=2).cpu()])
    torch.set_num_threads(previous)
    for others in results[1:]:
        for x, y in zip(results[0], others, strict=True):
            assert torch.equal(x, y)


def test_derivatives():
    def run(d):
        a = put(numbers(torch.float64, 4, 5), d).requires_grad_()
        b = put(numbers(torch.float64, 5) + 3, d).requires_grad_()
        ((a + b) * a / b - 2 * b).mul(0.5).add(a, alpha=3).sum().backward()
        return torch.cat([a.grad.flatten(), b.grad])

    assert_same(run, native=False, **CLOSE)


# fill_ and zero_


@pytest.mark.parametrize("dtype", DTYPES, ids=name)
def test_fill(dtype):
    def run(value):
        return lambda d: put(numbers(dtype, 7, 45), d).fill_(value)

    for value in [0, 3, -1, 2.7, True, 1 + 2j, float("nan"), float("inf"), -0.0, 255, 300, 2**40, 2**64 - 1, 1e300]:
        assert_same(run(value), native=False, context=value)
    assert_same(run(1), native=True)
    assert_same(lambda d: put(numbers(dtype, 7, 45), d).zero_(), native=True)
    for other in DTYPES:
        assert_same(
            lambda d: put(numbers(dtype, 9), d).fill_(put(numbers(other, 2)[0], d)), native=False, context=other
        )


def test_fill_views():
    t = numbers(torch.float32, 4, 5, 6)
    for view in [
        lambda x: x,
        lambda x: x.transpose(0, 2),
        lambda x: x[:, 1],
        lambda x: x[..., ::2],
        lambda x: x[2, 3, 4],
        lambda x: x[:0],
        lambda x: x[0, 0, :1].expand(5),
        lambda x: x.as_strided((3, 3), (1, 1)),
    ]:
        for change in [lambda v: v.fill_(2.5), lambda v: v.zero_(), lambda v: v.fill_(v.new_full((), 3))]:

            def run(d):
                x = strided(t.clone(), d)
                change(view(x))
                return x

            assert_same(run, native=False)


def test_fill_with_tensors():
    assert_same(lambda d: torch.zeros(4, device=d).fill_(torch.ones(2, device=d)), native=False)  # an error
    assert_same(lambda d: torch.zeros(4, device=d).fill_(torch.tensor(7)), native=True)  # from the CPU

    def run(d):
        x = put(numbers(torch.float32, 9), d)
        return x.fill_(x[3])

    assert_same(run, native=True)


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.complex64])
def test_results_larger_than_the_cache(dtype, threads):
    """Written past the cache: every element, and none beside them."""
    n, before = (33 << 20) // dtype.itemsize + 7, torch.get_num_threads()
    a = (torch.arange(n) % 251).to(dtype)
    b = (torch.arange(n) % 7).to(dtype)
    torch.set_num_threads(threads)
    try:
        x, y = a.flex(), b.flex()
        assert torch.equal((x + y).cpu(), a + b)
        assert torch.equal((x * 2).cpu(), a * 2)
        out = torch.ones(n + 9, dtype=dtype, device="flex")
        torch.add(x, y, out=out[3 : n + 3])
        assert torch.equal(out[3 : n + 3].cpu(), a + b) and (out[:3] == 1).all() and (out[n + 3 :] == 1).all()
        rows = n // 4099
        grid = torch.zeros(rows, 4111, dtype=dtype, device="flex")
        torch.mul(x[: rows * 4099].view(rows, 4099), y[:4099], out=grid[:, 5:4104])
        assert torch.equal(grid[:, 5:4104].cpu(), a[: rows * 4099].view(rows, 4099) * b[:4099])
        assert (grid[:, :5] == 0).all() and (grid[:, 4104:] == 0).all()
    finally:
        torch.set_num_threads(before)
