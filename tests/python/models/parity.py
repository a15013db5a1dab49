"""Runs one program on stock CPU and on flex, and compares everything it returns."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

import pytest
import torch

import flexcpu  # noqa: F401  (the device, also where torch does not autoload it)

DEVICES = ("cpu", "flex")


def seeded(shape, seed: int = 0, dtype: torch.dtype = torch.float32, device: str = "cpu") -> torch.Tensor:
    """Normal numbers that depend on shape and seed only, not on the device."""
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


def assert_same(flex: Any, cpu: Any, where: str = "result", *, strides: bool = True, **tolerance) -> None:
    """Same structure, and every tensor the same dtype, sizes, strides and values, the one on flex, the other on CPU."""
    recurse = lambda f, c, at: assert_same(f, c, where + at, strides=strides, **tolerance)  # noqa: E731
    if isinstance(cpu, torch.Tensor):
        assert isinstance(flex, torch.Tensor), f"{where}: {type(flex).__name__} instead of a tensor"
        assert flex.device.type == "flex" and cpu.device.type == "cpu", f"{where}: on {flex.device} and {cpu.device}"
        assert flex.layout == cpu.layout, f"{where}: layouts {flex.layout} and {cpu.layout}"
        assert flex.requires_grad == cpu.requires_grad, f"{where}: requires_grad differs"
        if strides and cpu.layout == torch.strided and cpu.numel() > 0 and not cpu.is_nested:
            assert flex.stride() == cpu.stride(), f"{where}: strides {flex.stride()} and {cpu.stride()}"
        torch.testing.assert_close(flex.detach().cpu(), cpu.detach(), equal_nan=True,
                                   msg=lambda text: f"{where}: {text}", **tolerance)
    elif isinstance(cpu, Mapping):
        assert list(flex) == list(cpu), f"{where}: keys {list(flex)} and {list(cpu)}"
        for key in cpu:
            recurse(flex[key], cpu[key], f"[{key!r}]")
    elif isinstance(cpu, (list, tuple)):
        assert type(flex) is type(cpu) and len(flex) == len(cpu), f"{where}: {flex!r} and {cpu!r}"
        for i, (f, c) in enumerate(zip(flex, cpu)):
            recurse(f, c, f"[{i}]")
    elif dataclasses.is_dataclass(cpu) or hasattr(cpu, "__dict__"):
        assert type(flex) is type(cpu), f"{where}: {type(flex)} and {type(cpu)}"
        recurse(vars(flex), vars(cpu), "")
    elif isinstance(cpu, float):
        assert flex == pytest.approx(cpu, rel=tolerance.get("rtol", 1e-5), abs=tolerance.get("atol", 1e-6),
                                     nan_ok=True), f"{where}: {flex} and {cpu}"
    else:
        assert flex == cpu, f"{where}: {flex!r} and {cpu!r}"


def check(program: Callable[[str], Any], *, strides: bool = True, **tolerance) -> Any:
    """Runs program("cpu") and program("flex") from the same seed and compares what they return. Returns flex's."""
    results = {}
    for device in DEVICES:
        torch.manual_seed(0)
        results[device] = program(device)
    assert_same(results["flex"], results["cpu"], strides=strides, **tolerance)
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


def gradients(module: torch.nn.Module) -> dict[str, torch.Tensor | None]:
    return {name: parameter.grad for name, parameter in module.named_parameters()}


def state(module: torch.nn.Module) -> dict[str, torch.Tensor]:
    return {name: tensor.detach() for name, tensor in module.state_dict().items()}


def backward(output: torch.Tensor, seed: int = 100) -> None:
    """Backward with seeded, uneven gradients."""
    output.backward(seeded(output.shape, seed, output.dtype, output.device.type))
