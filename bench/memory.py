"""What a case needs at its peak, and putting malloc into its lasting state."""

from __future__ import annotations

import ctypes
import time
from pathlib import Path

import torch

from .case import Case
from .settings import Settings
from .sizes import MB
from .timing import Loop


def settle_malloc() -> None:
    """Allocates and frees a few blocks of 30 MB: glibc raises its thresholds for mapping and trimming at the first
    such frees, and stock runs up to 1.45 times as fast after."""
    for _ in range(4):
        blocks = [torch.empty(30 * MB, dtype=torch.uint8) for _ in range(2)]
        del blocks


def resident() -> tuple[int, int]:
    """Bytes of memory that this process has, and the most that it had since the last reset_peak()."""
    fields = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return tuple(int(fields[name].split()[0]) * 1024 for name in ("VmRSS", "VmHWM"))


def reset_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def peak(case: Case, device: str, settings: Settings) -> int:
    """Bytes of resident memory that the inputs and some calls need at most. For a process of its own.

    Freed temporaries of building the inputs are given back first: they are not the device's.
    """
    torch.set_num_threads(settings.threads)
    settle_malloc()
    ctypes.CDLL(None).malloc_trim(0)
    before, _ = resident()
    run = Loop(case.statement_on(device), case.build(device))
    ctypes.CDLL(None).malloc_trim(0)
    reset_peak()
    end = time.monotonic() + settings.memory_seconds
    for _ in range(settings.memory_calls):
        run()
        if time.monotonic() > end:
            break
    return max(0, resident()[1] - before)
