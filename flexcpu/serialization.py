"""Files: torch.load() adopts the bytes that it read, or mapped, and neither load nor save makes tensors escape."""

from __future__ import annotations

import functools
import mmap
import threading

import torch

from . import _C

# Before torch's own entry for the device (23), which copies.
_PRIORITY = 15

_thread = threading.local()


def _restore(storage: torch.UntypedStorage, location: str) -> torch.UntypedStorage | None:
    if location not in ("flex", "flex:0") or storage.device.type != "cpu":
        return None
    if torch.serialization.get_default_mmap_options() == getattr(mmap, "MAP_SHARED", None):
        return None  # writes to the tensor would be writes to the file
    return _C.adopt_storage(storage)


def _comparing_addresses(function):
    """torch's reader and writer ask storages for their addresses, only to compare them."""

    @functools.wraps(function)
    def wrapper(*args, **kwargs):
        before, _thread.compares = getattr(_thread, "compares", False), True
        try:
            return function(*args, **kwargs)
        finally:
            _thread.compares = before

    return wrapper


def register() -> None:
    torch.serialization.register_package(_PRIORITY, lambda storage: None, _restore)

    for name in ("_save", "_load", "_legacy_save", "_legacy_load"):
        setattr(torch.serialization, name, _comparing_addresses(getattr(torch.serialization, name)))

    data_ptr, write_file = torch.UntypedStorage.data_ptr, torch.UntypedStorage._write_file

    @functools.wraps(data_ptr)
    def flex_data_ptr(self):
        if getattr(_thread, "compares", False) and self.device.type == "flex":
            return _C.address(self)
        return data_ptr(self)

    @functools.wraps(write_file)
    def flex_write_file(self, *args):
        return write_file(self.cpu() if self.device.type == "flex" else self, *args)

    torch.UntypedStorage.data_ptr = flex_data_ptr
    torch.UntypedStorage._write_file = flex_write_file
