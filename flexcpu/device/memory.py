"""Memory in use by tensors on the device, under torch.cuda's names. Bytes of clones that share count once.

Freed memory is kept for the next tensor, because fresh pages cost more than most operations: up to 32 KiB by the thread
that freed it (the "small pool"), beyond by the process (the "large pool"). The large pool keeps at most `cache_limit()`
bytes, gives back what was not asked for in ten seconds, and stays with all that is in use within 9/8 of the most that
ever was, and 16 MiB.
"""

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
    return {**stats, **_C.sharing_statistics()}


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
    """Gives memory that no tensor occupies back to the system, but for small blocks that other threads keep."""
    _C.empty_cache()


def cache_limit() -> int:
    """The most bytes that the large pool keeps: FLEXCPU_CACHE_LIMIT, or a quarter of the machine's memory."""
    return _C.cache_limit()


def set_cache_limit(nbytes: int) -> None:
    """Sets `cache_limit()` for this process, and gives back what is beyond it. 0 keeps nothing."""
    if not isinstance(nbytes, int):
        raise TypeError(f"the cache limit is an int, a number of bytes, not {type(nbytes).__name__}")
    if not 0 <= nbytes <= _NO_LIMIT:
        raise ValueError(f"the cache limit is a number of bytes, not {nbytes}")
    _C.set_cache_limit(nbytes)


def set_per_process_memory_fraction(fraction: float, device: Device = None) -> None:
    """Lets tensors of the large pool occupy at most this fraction (0 to 1) of the machine's memory in this process.
    Beyond, allocations raise torch.OutOfMemoryError. 1 is the default, and means no limit."""
    checked_index(device)
    if not isinstance(fraction, (float, int)):
        raise TypeError("Invalid type for fraction argument, must be `float`")
    if not 0 <= fraction <= 1:
        raise ValueError(f"Invalid fraction value: {fraction}. Allowed range: 0~1")
    _C.set_memory_limit(_NO_LIMIT if fraction == 1 else int(fraction * _C.memory_info()[1]))


def get_per_process_memory_fraction(device: Device = None) -> float:
    checked_index(device)
    return round(min(1.0, _C.memory_limit() / _C.memory_info()[1]), 9)  # the limit is in whole bytes


def memory_snapshot() -> list[dict[str, Any]]:
    """The blocks that the allocator holds, as torch.cuda.memory_snapshot() lists segments: one of the large pool from
    2 MiB on is a segment with one block; all others together are the last segment of each pool, with address 0."""
    segments = [_segment("large", address, total, size) for address, total, size in _C.segments()]
    stats = memory_stats()
    for pool in ("small", "large"):
        listed = [segment for segment in segments if segment["segment_type"] == pool]
        reserved = stats[f"reserved_bytes.{pool}_pool.current"] - sum(segment["total_size"] for segment in listed)
        allocated = stats[f"allocated_bytes.{pool}_pool.current"] - sum(s["allocated_size"] for s in listed)
        if reserved > 0:
            segments.append(_segment(pool, 0, reserved, allocated))
    return segments


def _segment(pool: str, address: int, total: int, size: int) -> dict[str, Any]:
    state = "active_allocated" if size else "inactive"
    return {
        "device": 0,
        "address": address,
        "total_size": total,
        "allocated_size": size,
        "active_size": size,
        "requested_size": size,
        "stream": 0,
        "segment_type": pool,
        "segment_pool_id": (0, 0),
        "is_expandable": False,
        "frames": [],
        "blocks": [{"address": address, "size": total, "requested_size": size, "state": state, "frames": []}],
    }


def reset_peak_memory_stats(device: Device = None) -> None:
    """Makes what is in use now the peak."""
    checked_index(device)
    _C.reset_peak_memory_stats()


reset_max_memory_allocated = reset_max_memory_cached = reset_peak_memory_stats


def reset_accumulated_memory_stats(device: Device = None) -> None:
    """Sets what was ever allocated and freed to 0."""
    checked_index(device)
    _C.reset_accumulated_memory_stats()


_NO_LIMIT = 2**64 - 1
_SUMMARY = (
    ("allocated_bytes", "Allocated memory"),
    ("reserved_bytes", "Reserved memory"),
    ("allocation", "Allocations"),
    ("segment", "Blocks held"),
)
_POOLS = (("large_pool", "from large pool"), ("small_pool", "from small pool"))


def memory_summary(device: Device = None, abbreviated: bool = False) -> str:
    """A printable table of the statistics. `abbreviated` leaves out the pools and the counters below it."""
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
        lines.append(rule)
        for pool, label in (("all", title),) if abbreviated else (("all", title), *_POOLS):
            figures = (write(stats[f"{metric}.{pool}.{kind}"]) for kind in ("current", "peak", "allocated", "freed"))
            lines.append(f" {label:<18} | " + " | ".join(f"{figure:>12}" for figure in figures))
    if not abbreviated:
        lines += [
            rule,
            f" Copies shared: {stats['num_shares']}; made after all by a write: {stats['num_unshares']}; "
            f"out of memory: {stats['num_ooms']}",
            f" Kept at most: {_bytes(cache_limit())}; retries after giving it back: {stats['num_alloc_retries']}",
        ]
    return "\n".join([*lines, "=" * 79, ""])


def _bytes(count: float) -> str:
    for unit in ("B", "KiB", "MiB", "GiB"):
        if count < 1024:
            return f"{count:.0f} {unit}" if unit == "B" else f"{count:.1f} {unit}"
        count /= 1024
    return f"{count:.1f} TiB"
