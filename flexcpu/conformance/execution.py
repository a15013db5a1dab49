"""Runs a function and keeps all that shows: its value or exception, its warnings, and whether it drew numbers."""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch


@dataclass
class Outcome:
    value: Any = None
    error: Exception | None = None
    warnings: list[tuple[str, str]] = field(default_factory=list)  # category, text
    random: bool = False  # the CPU generator moved


def execute(function: Callable[[], Any], seed: int) -> Outcome:
    """Calls function() with the generators of all devices seeded."""
    outcome = Outcome()
    torch.manual_seed(seed)
    before = torch.default_generator.get_state()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            outcome.value = function()
        except Exception as error:  # any failure is a result here
            outcome.error = error.with_traceback(None)
    outcome.warnings = [(w.category.__name__, str(w.message)) for w in caught]
    outcome.random = not torch.equal(before, torch.default_generator.get_state())
    return outcome


# A message may name its device, alone or in a type's name, and where in the sources it was raised.
_DEVICE = re.compile(r"\b(flex(:\d+)?|cpu(:\d+)?|privateuse1|privateuseone)\b", re.IGNORECASE)
_ARGUMENT = re.compile(r",? device='(flex(:\d+)?|cpu)'")  # of a tensor that is printed
_TYPE = re.compile(r"\btorch\.(?:flex\.)?(\w+)Tensor\b|\bflex(\w+)Type\b")
_ORIGIN = re.compile(r" \(Triggered internally at [^)]*\)| at \"?/\S+:\d+")


def without_device(text: str) -> str:
    """A message with the device's name and the place in the sources taken out: what must be the same on two devices."""
    text = _TYPE.sub(lambda m: f"<device> {m[1] or m[2]}", _ARGUMENT.sub("", _ORIGIN.sub("", text)))
    return _DEVICE.sub("<device>", text).strip()


def describe(error: Exception) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}"
