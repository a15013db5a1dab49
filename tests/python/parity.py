"""Runs one function of a device on the CPU and on flex, and compares what comes of it."""

import contextlib
import re
import warnings

import torch

BOOL = [torch.bool]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UINTS = [torch.uint16, torch.uint32, torch.uint64]
HALVES = [torch.float16, torch.bfloat16]
FLOATS = HALVES + [torch.float32, torch.float64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
DTYPES = BOOL + INTS + UINTS + FLOATS + COMPLEX


def name(value):
    return str(value).removeprefix("torch.")


class Outcome:
    """What a function returned or raised, and what it warned of."""

    def __init__(self, run, device):
        self.error = self.value = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", append=True)  # what the test ignores stays ignored
            try:
                self.value = run(device)
            except Exception as e:
                self.error = e
        self.warnings = [text_of(w.message) for w in caught]


def text_of(error):
    text = re.sub(r"flex(:0)?", "cpu", str(error).split("\n")[0])
    return re.sub(r" \(Triggered internally.*", "", text)


def real_numbers_of(t):
    """The real and imaginary parts of complex numbers: torch.testing takes no complex32, signbit() no complex dtype."""
    return torch.view_as_real(t.resolve_conj().resolve_neg()) if t.is_complex() else t


def assert_equal(got, want, context="", **tolerance):
    """Without a tolerance the elements are equal to the last bit: zeros of one sign; all NaNs are one."""
    assert got.dtype == want.dtype, context
    assert got.size() == want.size(), context
    assert got.stride() == want.stride(), (context, got.stride(), want.stride())
    got, want = real_numbers_of(got.cpu()), real_numbers_of(want)
    torch.testing.assert_close(got, want, equal_nan=True, msg=lambda m: f"{context}: {m}",
                               **(tolerance or {"rtol": 0, "atol": 0}))
    if not tolerance and want.is_floating_point():
        zeros = want == 0
        assert torch.equal(torch.signbit(got[zeros]), torch.signbit(want[zeros])), f"{context}: signs of zeros"


def assert_same(run, *, native, context="", **tolerance):
    """`run(device)` returns a tensor, equal to the last bit unless a tolerance is given. `native`: no fallback."""
    cpu = Outcome(run, "cpu")
    with torch.flex.forbid_fallback() if native else contextlib.nullcontext():
        flex = Outcome(run, "flex")
    if cpu.error is not None or flex.error is not None:
        assert type(cpu.error) is type(flex.error), (context, cpu.error, flex.error)
        assert text_of(cpu.error) == text_of(flex.error), context
        return
    assert cpu.warnings == flex.warnings, context
    assert flex.value.device.type == "flex", context
    assert_equal(flex.value, cpu.value, context, **tolerance)


def put(t, device):
    """A tensor of the same sizes and strides on `device`, with elements of its own."""
    result = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
    return result.copy_(t)


# Views of a tensor of four dimensions, all of whose sizes are even.
LAYOUTS = {
    "as it is": lambda t: t,
    "permuted": lambda t: t.permute(3, 1, 0, 2),
    "matrices transposed": lambda t: t.transpose(2, 3),
    "outer dimensions swapped": lambda t: t.transpose(0, 1),
    "channels last": lambda t: t.contiguous(memory_format=torch.channels_last),
    "stepped": lambda t: t[..., ::2],
    "stepped outside": lambda t: t[:, ::2],
    "offset": lambda t: t[:, 1:, 1:, 1:],
    "expanded": lambda t: t[:, :1, :, :1].expand(t.size()),
    "expanded outside": lambda t: t[:1].expand(t.size()),
    "a row": lambda t: t[0, 0, 0],
    "a column": lambda t: t[0, 0, :, 0],
    "one element": lambda t: t[0, 0, 0, 0],
    "nothing": lambda t: t[:, :0],
}
