"""Memory in use by tensors on the device, under torch.cuda's names. Bytes of clones that share count once."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any

import torch

from .. import _C
from .selection import Device, checked_index


def memory_stats_as_nested_dict(device: Device = None) -> dict[str, Any]:
    """The statistics of memory_stats() as nested dictionaries."""
    checked_index(device)
    stats = torch._C._accelerator_getDeviceStats(0)
    own = _C.memory_statistics()
    stats["num_shares"], stats["num_unshares"] = own["num_shares"], own["num_unshares"]
    return stats


def memory_stats(device: Device = None) -> OrderedDict[str, Any]:
    """The allocator's statistics: `"allocated_bytes.all.current"` and so on, as torch.cuda.memory_stats() has them, and
    `"num_shares"` (copies that were not made) and `"num_unshares"` (those that a later write made after all)."""

    def flatten(prefix: str, value: Any) -> Any:
        if isinstance(value, dict):
            for key, inner in value.items():
                yield from flatten(f"{prefix}.{key}" if prefix else key, inner)
        else:
            yield prefix, value

    return OrderedDict(sorted(flatten("", memory_stats_as_nested_dict(device))))


def memory_allocated(device: Device = None) -> int:
    """Bytes that tensors occupy now."""
    return memory_stats(device)["allocated_bytes.all.current"]


def max_memory_allocated(device: Device = None) -> int:
    """The most bytes that tensors occupied since the start or reset_peak_memory_stats()."""
    return memory_stats(device)["allocated_bytes.all.peak"]


def memory_reserved(device: Device = None) -> int:
    """Bytes that the allocator holds, in use or not."""
    return memory_stats(device)["reserved_bytes.all.current"]


def max_memory_reserved(device: Device = None) -> int:
    """The most bytes that the allocator held since the start or reset_peak_memory_stats()."""
    return memory_stats(device)["reserved_bytes.all.peak"]


memory_cached, max_memory_cached = memory_reserved, max_memory_reserved


def mem_get_info(device: Device = None) -> tuple[int, int]:
    """Free and total bytes of the machine's memory."""
    checked_index(device)
    return _C.memory_info()


def empty_cache() -> None:
    """Gives memory that no tensor occupies back to the system."""
    _C.empty_cache()


def reset_peak_memory_stats(device: Device = None) -> None:
    """Makes what is in use now the peak."""
    checked_index(device)
    _C.reset_peak_memory_stats()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Sets what was ever allocated and freed to 0."""
    checked_index(device)
    _C.reset_accumulated_memory_stats()


_SUMMARY = (
    ("allocated_bytes", "Allocated memory"),
    ("reserved_bytes", "Reserved memory"),
    ("allocation", "Allocations"),
)


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A printable table of the statistics. `abbreviated` leaves out the counters below the table."""
    stats = memory_stats(device)
    rule = "-" * 79
    lines = [
        "=" * 79,
        f"{'PyTorch flex memory summary':^79}",
        "=" * 79,
        f" {'Metric':<18} | {'Cur Usage':>12} | {'Peak Usage':>12} | {'Tot Alloc':>12} | {'Tot Freed':>12}",
    ]
    for metric, title in _SUMMARY:
        write = _bytes if metric.endswith("bytes") else str
        figures = (write(stats[f"{metric}.all.{kind}"]) for kind in ("current", "peak", "allocated", "freed"))
        lines += [rule, f" {title:<18} | " + " | ".join(f"{figure:>12}" for figure in figures)]
    if not abbreviated:
        lines += [
            rule,
            f" Copies shared: {stats['num_shares']}; made after all by a write: {stats['num_unshares']}; "
            f"out of memory: {stats['num_ooms']}",
        ]
    return "\n".join([*lines, "=" * 79, ""])


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
