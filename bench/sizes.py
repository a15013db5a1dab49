"""Four size classes from this machine's caches: 64 elements, in L2, in L3, in memory."""

from __future__ import annotations

import math
from pathlib import Path

import torch

KB, MB = 2**10, 2**20


def caches() -> dict[str, int]:
    """Bytes of the first processor's caches, by name: {"L1d": 32768, "L2": ...}. Empty if the system does not tell."""
    found = {}
    for index in sorted(Path("/sys/devices/system/cpu/cpu0/cache").glob("index*")):
        kind = (index / "type").read_text().strip()
        if kind != "Instruction":
            size = (index / "size").read_text().strip()
            name = f"L{(index / 'level').read_text().strip()}{'d' if kind == 'Data' else ''}"
            found[name] = int(size.rstrip("KMG")) * {"K": KB, "M": MB, "G": 2**30}.get(size[-1], 1)
    return found


def operand_bytes(l2: int, l3: int) -> dict[str, int]:
    """Bytes of one operand of three, for each class.

    A shared L3 is never all ours, so that its class stays a small multiple of L2. That of memory has three operands
    that do not fit into L3 together, but none of more than 256 MB.
    """
    return {"L2": l2 // 8, "L3": max(2 * l2, min(4 * l2, l3 // 8)), "DRAM": min(256 * MB, max(64 * MB, l3 // 2))}


_CACHES = caches()
OPERAND_BYTES = operand_bytes(_CACHES.get("L2", MB), _CACHES.get("L3", 32 * MB))
SIZES = ("tiny", *OPERAND_BYTES)


def shape(size: str | int, dtype: torch.dtype = torch.float32) -> tuple[int, int]:
    """A matrix of a size class, or of about so many bytes: as wide as it is high, or twice as wide."""
    if size == "tiny":
        return (8, 8)
    elements = (OPERAND_BYTES[size] if isinstance(size, str) else size) // dtype.itemsize
    rows = 2 ** (int(math.log2(elements)) // 2)
    return (rows, elements // rows)
