"""The machine line: what a report's numbers were measured on."""

from __future__ import annotations

import os
import platform
import subprocess
import time
from pathlib import Path
from typing import Any

import torch

import flexcpu
from flexcpu import info

from .sizes import OPERAND_BYTES, caches

_SETTINGS = ("FLEXCPU_", "ATEN_", "ONEDNN_", "MKL_", "OMP_", "GOMP_", "MALLOC_", "GLIBC_", "TCMALLOC_", "THP_")


def describe(threads: int) -> dict[str, Any]:
    """For a process that measures: everything as JSON."""
    found = info.collect()
    return {
        "processor": found["cpu"]["name"],
        "processors": found["cpu"]["processors"],
        "caches": caches(),
        "operands": OPERAND_BYTES,
        "simd": {"flex": found["simd"]["active"], "stock": torch.backends.cpu.get_cpu_capability()},
        "torch": torch.__version__,
        "flexcpu": flexcpu.__version__,
        "commit": _commit(),
        "threads": threads,
        "allocator": allocator(),
        "huge pages": _huge_pages(),
        "system": platform.platform(),
        "environment": {name: value for name, value in sorted(os.environ.items()) if name.startswith(_SETTINGS)},
        "date": time.strftime("%Y-%m-%d %H:%M:%S%z"),
    }


def allocator() -> str:
    """Whose malloc stock runs on in this process."""
    mapped = Path("/proc/self/maps").read_text()
    for name in ("tcmalloc", "jemalloc", "mimalloc"):
        if f"lib{name}" in mapped:
            return name
    return platform.libc_ver()[0] + " " + platform.libc_ver()[1]


def line(machine: dict[str, Any]) -> str:
    """The same for readers."""
    caps = {name: value for name, value in machine["environment"].items() if not name.endswith("NUM_THREADS")}
    return "; ".join(
        [
            f"{machine['processor']}, {machine['processors']} processors",
            " ".join(f"{name} {_size(size)}" for name, size in machine["caches"].items()),
            f"SIMD flex {machine['simd']['flex']}, stock {machine['simd']['stock']}",
            f"torch {machine['torch']}, flexcpu {machine['flexcpu']} ({machine['commit'] or 'no commit'})",
            f"threads {machine['threads']}",
            f"malloc {machine['allocator']}, huge pages {machine['huge pages']}",
            *([" ".join(f"{name}={value}" for name, value in caps.items())] if caps else []),
            machine["date"],
        ]
    )


def _size(size: int) -> str:
    return f"{size / 2**20:g} MB" if size >= 2**20 else f"{size / 2**10:g} KB"


def _commit() -> str | None:
    """Of the source tree, with a mark if it was changed since."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def _huge_pages() -> str:
    try:
        text = Path("/sys/kernel/mm/transparent_hugepage/enabled").read_text()
    except OSError:
        return "unknown"
    return text.split("[")[1].split("]")[0]
