"""How a run measures."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Settings:
    """How to measure. A row starts with `pairs` pairs of windows and gets at most `most_pairs`."""

    device: str = "flex"
    threads: int = 1
    window_ms: float = 10
    pairs: int = 11
    most_pairs: int = 44
    memory_calls: int = 8
    memory_seconds: float = 3
    timeout: float = 600  # of a process; seconds


QUICK = {"window_ms": 2, "pairs": 3, "most_pairs": 3, "memory_calls": 1}
