"""The same call or program on stock CPU and on flex, and everything that comes of it compared."""

from __future__ import annotations

import contextlib
import dataclasses
import re
import warnings
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

DEVICES = ("cpu", "flex")

BOOL = [torch.bool]
INTS = [torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64]
UINTS = [torch.uint16, torch.uint32, torch.uint64]
HALVES = [torch.float16, torch.bfloat16]
FLOATS = HALVES + [torch.float32, torch.float64]
COMPLEX = [torch.complex32, torch.complex64, torch.complex128]
DTYPES = BOOL + INTS + UINTS + FLOATS + COMPLEX

# Tolerances: torch.testing's for the dtype, and one for programs in float64, where the order of sums shows only here.
CLOSE = {"rtol": None, "atol": None}
DOUBLE = torch.float64
DOUBLE_CLOSE = {"rtol": 1e-8, "atol": 1e-10}


def name(value: object) -> str:
    return str(value).removeprefix("torch.")


# ---- What a program starts from, the same on both devices ----


def put(t: torch.Tensor, device: str) -> torch.Tensor:
    """A tensor of the same sizes and strides on `device`, with elements of its own."""
    result = torch.empty_strided(t.size(), t.stride(), dtype=t.dtype, device=device)
    return result.copy_(t)


def seeded(shape, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    """Normal numbers that depend on shape and seed only."""
    numbers = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return numbers.to(dtype).to(device)


def leaf(shape, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    return seeded(shape, seed, dtype, device).requires_grad_()


def integers(high: int, shape, seed: int = 0, device: str = "cpu", low: int = 0) -> torch.Tensor:
    return torch.randint(low, high, shape, generator=torch.Generator().manual_seed(seed)).to(device)


def made(build: Callable[[], torch.nn.Module], device: str, seed: int = 0) -> torch.nn.Module:
    """The module with its initial weights drawn on the CPU, on `device`."""
    torch.manual_seed(seed)
    return build().to(device)


# ---- What it does ----


def backward(output: torch.Tensor, seed: int = 100) -> None:
    """Backward with seeded, uneven gradients."""
    output.backward(seeded(output.shape, seed, output.dtype, output.device.type))


def minimize(optimizer: torch.optim.Optimizer, loss: Callable[[], torch.Tensor], steps: int = 3) -> list[torch.Tensor]:
    """Steps of an optimizer. Returns the loss before each."""
    losses = []
    for _ in range(steps):
        optimizer.zero_grad()
        value = loss()
        value.backward()
        optimizer.step()
        losses.append(value.detach())
    return losses


def gradients(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in module.state_dict().items()}


# ---- Comparing ----


def assert_equal(flex: Any, cpu: Any, where: object = "result", *, strides: bool = True, **tolerance) -> None:
    """Same structure, and every tensor the same dtype, sizes, strides and elements, the one on flex, the other on CPU.

    Without a tolerance elements are equal to the last bit, signs of zeros included; all NaNs are one.
    """
    if isinstance(cpu, torch.Tensor):
        _assert_equal_tensors(flex, cpu, where, strides, tolerance)
    elif isinstance(cpu, Mapping):
        assert list(flex) == list(cpu), f"{where}: keys {list(flex)} and {list(cpu)}"
        for key in cpu:
            assert_equal(flex[key], cpu[key], f"{where}[{key!r}]", strides=strides, **tolerance)
    elif isinstance(cpu, (list, tuple)):
        assert type(flex) is type(cpu) and len(flex) == len(cpu), f"{where}: {flex!r} and {cpu!r}"
        for i, (f, c) in enumerate(zip(flex, cpu)):
            assert_equal(f, c, f"{where}[{i}]", strides=strides, **tolerance)
    elif dataclasses.is_dataclass(cpu) or hasattr(cpu, "__dict__"):
        assert type(flex) is type(cpu), f"{where}: {type(flex)} and {type(cpu)}"
        assert_equal(vars(flex), vars(cpu), where, strides=strides, **tolerance)
    elif isinstance(cpu, float) and tolerance:
        given = {name: limit for name, limit in tolerance.items() if limit is not None}
        near = pytest.approx(cpu, rel=given.get("rtol", 1e-5), abs=given.get("atol", 1e-6), nan_ok=True)
        assert flex == near, f"{where}: {flex} and {cpu}"
    else:
        assert flex == cpu, f"{where}: {flex!r} and {cpu!r}"


def _assert_equal_tensors(flex: Any, cpu: torch.Tensor, where: object, strides: bool, tolerance: dict) -> None:
    assert isinstance(flex, torch.Tensor), f"{where}: {type(flex).__name__} instead of a tensor"
    assert flex.device.type == "flex" and cpu.device.type == "cpu", f"{where}: on {flex.device} and {cpu.device}"
    for attribute in ("dtype", "layout", "requires_grad"):
        ours, theirs = getattr(flex, attribute), getattr(cpu, attribute)
        assert ours == theirs, f"{where}: {attribute} {ours} and {theirs}"
    is_strided = cpu.layout == torch.strided and not cpu.is_nested
    if is_strided:
        assert flex.size() == cpu.size(), f"{where}: sizes {flex.size()} and {cpu.size()}"
        assert not strides or flex.stride() == cpu.stride(), f"{where}: strides {flex.stride()} and {cpu.stride()}"
    got, want = flex.detach().cpu(), cpu.detach()
    if is_strided and want.is_complex():  # torch.testing takes no complex32, signbit() no complex dtype
        got, want = (torch.view_as_real(t.resolve_conj().resolve_neg()) for t in (got, want))
    torch.testing.assert_close(
        got, want, equal_nan=True, msg=lambda text: f"{where}: {text}", **(tolerance or {"rtol": 0, "atol": 0})
    )
    if not tolerance and is_strided and want.is_floating_point():
        zeros = want == 0
        assert torch.equal(got[zeros].signbit(), want[zeros].signbit()), f"{where}: signs of zeros"


class Outcome:
    """What a function returned or raised, and what it warned of."""

    def __init__(self, run: Callable[[str], Any], device: str):
        self.error = self.value = None
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always", append=True)  # what the test ignores stays ignored
            try:
                self.value = run(device)
            except Exception as e:
                self.error = e
        self.warnings = [text_of(w.message) for w in caught]


def text_of(error: Exception | Warning) -> str:
    text = re.sub(r"flex(:0)?", "cpu", str(error).split("\n")[0])
    return re.sub(r" \(Triggered internally.*", "", text)


def assert_same(run: Callable[[str], Any], *, native: bool, context: object = "", **tolerance) -> None:
    """One op: run("cpu") and run("flex") return the same, to the last bit unless a tolerance is given, or raise the
    same, and warn of the same. `native`: without the fallback."""
    cpu = Outcome(run, "cpu")
    with torch.flex.forbid_fallback() if native else contextlib.nullcontext():
        flex = Outcome(run, "flex")
    if cpu.error is not None or flex.error is not None:
        assert type(cpu.error) is type(flex.error), (context, cpu.error, flex.error)
        assert text_of(cpu.error) == text_of(flex.error), context
        return
    assert cpu.warnings == flex.warnings, context
    assert_equal(flex.value, cpu.value, context, **tolerance)


def check(program: Callable[[str], Any], *, strides: bool = True, **tolerance) -> Any:
    """Many ops: program("cpu") and program("flex") return the same from the same seed, within torch.testing's
    tolerances or the given one. Returns flex's."""
    results = {}
    for device in DEVICES:
        torch.manual_seed(0)
        results[device] = program(device)
    assert_equal(results["flex"], results["cpu"], strides=strides, **(tolerance or CLOSE))
    return results["flex"]


def check_error(program: Callable[[str], Any], *, same_text: bool = True) -> Exception:
    """Both devices raise the same exception, by the same text where that does not name the device."""
    raised = {}
    for device in DEVICES:
        torch.manual_seed(0)
        with pytest.raises(Exception) as caught:
            program(device)
        raised[device] = caught.value
    assert type(raised["flex"]) is type(raised["cpu"]), f"{raised['flex']!r} and {raised['cpu']!r}"
    if same_text:
        assert str(raised["flex"]) == str(raised["cpu"])
    return raised["flex"]


# ---- Layouts ----

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
