"""Ops that have no native kernel run on the CPU's over the same bytes. What did, and whether it may."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from .. import _C


def fallback_report() -> dict[str, int]:
    """How often which op ran on a CPU kernel since the start or the last reset, the most frequent first:
    `{"aten::sort.stable": 12, ...}`."""
    return _C.fallback_counts()


def reset_fallback_report() -> None:
    """Counts from zero again."""
    _C.reset_fallback_counts()


def fallback_mode() -> str:
    """What an op without a native kernel does: "silent" runs it, "warn" also warns, once per op, and "error" raises
    NotImplementedError."""
    return _C.fallback_mode().name


def set_fallback_mode(mode: str) -> None:
    """Sets the mode for the process, as FLEXCPU_FALLBACK does for its start. Raises ValueError for another."""
    permitted = _C.FallbackMode.__members__
    if mode not in permitted:
        raise ValueError(f'the fallback mode must be one of {", ".join(permitted)}, not "{mode}"')
    _C.set_fallback_mode(permitted[mode])


@contextmanager
def forbid_fallback() -> Iterator[None]:
    """In the block, on this thread, an op without a native kernel raises NotImplementedError."""
    _C.forbid_fallback(True)
    try:
        yield
    finally:
        _C.forbid_fallback(False)
