"""The device under test, and the way samples get there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.utils._pytree import tree_map


class Device:
    """Stock CPU as the device under test: proves the harness. It has no fallback, and its clones share nothing."""

    name = "cpu"
    counts_sharing = False

    def invoke(self, function, *args, **kwargs) -> Any:
        """Calls a function of the database on operands that live on this device."""
        return function(*args, **kwargs)

    def clone(self, t: torch.Tensor) -> torch.Tensor:
        """The clone that watches an operand."""
        return t.detach().clone()

    def reset_fallbacks(self) -> None:
        pass

    def fallbacks(self) -> dict[str, int]:
        """Calls of the fallback since the last reset, by op name."""
        return {}

    def shares(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return False

    @contextmanager
    def pending(self, kind: str) -> Iterator[Transfer]:
        """A Transfer that makes pending copies where the device has such; kinds are layouts.PENDING."""
        yield PendingTransfer(self.name, kind)

    def version(self) -> dict[str, str]:
        return {"torch": torch.__version__}


class FlexDevice(Device):
    name = "flex"
    counts_sharing = True

    def __init__(self):
        import flexcpu

        self.package = flexcpu
        self.module = torch.get_device_module("flex")

    def reset_fallbacks(self) -> None:
        self.module.reset_fallback_report()

    def fallbacks(self) -> dict[str, int]:
        return dict(self.module.fallback_report())

    def shares(self, a: torch.Tensor, b: torch.Tensor) -> bool:
        return self.package.shares_memory(a, b)

    @contextmanager
    def pending(self, kind: str) -> Iterator[Transfer]:
        self.package._C.set_pending(True, small=True)
        try:
            yield PendingTransfer(self.name, kind)
        finally:
            self.package._C.set_pending(True)

    def version(self) -> dict[str, str]:
        return {"torch": torch.__version__, "flexcpu": self.package.__version__}


_BITS = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64, 16: torch.complex128}
DEVICES = {"cpu": Device, "flex": FlexDevice}


class Transfer:
    """Copies samples to a device with everything that shows: strides, offsets, aliases, conj and neg bits,
    requires_grad.

    One Transfer holds one universe of tensors: what aliases in the source aliases in the copy, also across calls.
    """

    def __init__(self, device: str):
        self.device = torch.device(device)
        self.moved = False  # anything was: else an op has no way to know of the device
        self._tensors: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}  # id -> (source, kept alive, and its copy)
        self._storages: dict[int, torch.UntypedStorage] = {}

    def __call__(self, tree: Any) -> Any:
        return tree_map(self._leaf, tree)

    def _leaf(self, leaf: Any) -> Any:
        if isinstance(leaf, torch.Tensor):
            return self.tensor(leaf)
        if (isinstance(leaf, torch.device) and leaf.type == "cpu") or (isinstance(leaf, str) and leaf == "cpu"):
            self.moved = True
            return self.device if isinstance(leaf, torch.device) else str(self.device)
        if isinstance(leaf, PackedSequence):
            self.moved = True
            return leaf.to(self.device)
        return leaf

    def tensor(self, source: torch.Tensor) -> torch.Tensor:
        if id(source) not in self._tensors:
            self._tensors[id(source)] = (source, self._copy(source))
        return self._tensors[id(source)][1]

    def _copy(self, source: torch.Tensor) -> torch.Tensor:
        if source.device.type != "cpu":
            return source
        self.moved = True
        with torch.no_grad():
            if source.layout != torch.strided:
                copy = source.detach().clone().to(self.device)
            else:
                storage = source.untyped_storage()
                copy = torch.empty(0, dtype=source.dtype, device=self.device)
                copy.set_(self._storage(storage, source.dtype), source.storage_offset(), source.shape, source.stride())
                copy = copy.conj() if source.is_conj() else copy
                copy = torch._neg_view(copy) if source.is_neg() else copy
        return copy.requires_grad_(source.requires_grad)

    def _storage(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.UntypedStorage:
        if storage._cdata not in self._storages:
            self._storages[storage._cdata] = self._copied(storage, dtype).untyped_storage()
        return self._storages[storage._cdata]

    def _copied(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.Tensor:
        raw = torch.empty(0, dtype=torch.uint8).set_(storage)
        return raw.clone() if self.device.type == "cpu" else raw.to(self.device)


class PendingTransfer(Transfer):
    """A Transfer to storages that are copies, rearranged, of others: where the device puts such copies off, pending."""

    def __init__(self, device: str, kind: str):
        super().__init__(device)
        self.kind = kind
        self._sources: list[tuple[torch.Tensor, torch.Tensor]] = []  # what was rearranged, and its bytes as they were

    def has_changed_sources(self) -> bool:
        return not all(torch.equal(source.view(torch.uint8).cpu(), was) for source, was in self._sources)

    def _copied(self, storage: torch.UntypedStorage, dtype: torch.dtype) -> torch.Tensor:
        raw = super()._copied(storage, dtype)
        if raw.numel() == 0 or raw.numel() % dtype.itemsize:
            return raw
        # As unsigned bits: no dtype is refused, no value is changed.
        elements = raw.view(_BITS[dtype.itemsize])
        if self.kind == "flipped":
            source = elements.flip(0)
            copy = self._settled(source).flip(0)
        else:
            rows = next((n for n in range(2, elements.numel()) if elements.numel() % n == 0), None)
            if rows is None:
                return raw
            grid = elements.view(rows, -1)
            if self.kind == "permuted":
                source = grid.t().contiguous()
                copy = self._settled(source).t().contiguous()
            elif bool((grid == grid[0]).all()):
                source = grid[0].clone()
                copy = self._settled(source).expand(grid.shape).contiguous()
            else:
                return raw
        self._sources.append((source, source.view(torch.uint8).cpu().clone()))
        return copy

    def _settled(self, source: torch.Tensor) -> torch.Tensor:
        source.view(-1)[:1].fill_(source.view(-1)[0].item())  # a write makes the bytes
        return source


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor on any device, as an ordinary CPU tensor."""
    return tensor.detach().cpu().resolve_conj().resolve_neg()
