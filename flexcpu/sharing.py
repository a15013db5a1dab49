"""Flex storages in memory that processes share: share_memory_(), queues, torch.multiprocessing.

Shared memory is torch's own: a flex storage is put on the bytes of a CPU storage in shared memory, and it is that CPU
storage that travels to another process, by torch's reducers and under either sharing strategy.
"""

from __future__ import annotations

import functools
from multiprocessing import reduction

import torch
from torch.multiprocessing import reductions

from . import _C

_Storage = torch.UntypedStorage

# Flex storages of this process by the CPU storage that they are on: what arrives twice is one storage.
_storages_on = reductions.SharedCache()


def _share_memory(storage: _Storage) -> None:
    if storage.nbytes() == 0 or _C.mapping_of(storage) is not None:
        return
    mapping = _Storage._new_shared(storage.nbytes())
    mapping.copy_(storage)
    _C.install_mapping(storage, mapping)


def _reduce_mapping(mapping: _Storage):
    """As reductions.reduce_storage(), but under the strategy that the mapping was made by: another process may have set
    another one, and that one would move the bytes elsewhere."""
    if _C.is_mapped_by_descriptor(mapping):
        descriptor, size = mapping._share_fd_cpu_()
        key, args = reductions.fd_id(descriptor), (reduction.DupFd(descriptor), size)
        rebuild = reductions.rebuild_storage_fd
    else:
        args = mapping._share_filename_cpu_()
        key, rebuild = args[1], reductions.rebuild_storage_filename
        mapping._shared_incref()
    reductions.shared_cache[key] = reductions.StorageWeakRef(mapping)
    return rebuild, (type(mapping), *args)


def _rebuild_storage(rebuild_mapping, args) -> _Storage:
    mapping = rebuild_mapping(*args)
    known = _storages_on.get(mapping._cdata)
    storage = _Storage._new_with_weak_ptr(known.cdata) if known is not None else None
    if storage is None:
        storage = _Storage(mapping.nbytes(), device="flex")
        _C.install_mapping(storage, mapping)
        _storages_on[mapping._cdata] = reductions.StorageWeakRef(storage)
    return storage


def _rebuild_empty_storage() -> _Storage:
    return _Storage(0, device="flex")


def _reduce_storage(storage: _Storage):
    if storage.device.type != "flex":
        return reductions.reduce_storage(storage)
    if storage.nbytes() == 0:
        return _rebuild_empty_storage, ()
    storage.share_memory_()
    mapping = _C.mapping_of(storage)
    _storages_on[mapping._cdata] = reductions.StorageWeakRef(storage)
    return _rebuild_storage, _reduce_mapping(mapping)


def register() -> None:
    share_memory_, is_shared = torch.storage._StorageBase.share_memory_, _Storage.is_shared

    @functools.wraps(share_memory_)
    def flex_share_memory_(self):
        if self.device.type != "flex":
            return share_memory_(self)
        _share_memory(self)
        return self

    @functools.wraps(is_shared)
    def flex_is_shared(self):
        return is_shared(self) if self.device.type != "flex" else _C.mapping_of(self) is not None

    # UntypedStorage.share_memory_ calls its base's under a lock of the storage.
    torch.storage._StorageBase.share_memory_ = flex_share_memory_
    _Storage.is_shared = flex_is_shared
    reduction.register(_Storage, _reduce_storage)
