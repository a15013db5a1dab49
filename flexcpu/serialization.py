"""torch.load() into flex memory: the bytes that the loader read, or mapped, are adopted instead of copied."""

from __future__ import annotations

import mmap

import torch

from . import _C

# Before torch's own entry for the device (23), which copies.
_PRIORITY = 15


def _restore(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    if location not in ("flex", "flex:0") or storage.device.type != "cpu":
        return None
    if torch.serialization.get_default_mmap_options() == getattr(mmap, "MAP_SHARED", None):
        return None  # writes to the tensor would be writes to the file
    return _C.adopt_storage(storage)


def register() -> None:
    torch.serialization.register_package(_PRIORITY, lambda storage: None, _restore)
