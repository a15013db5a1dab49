"""The device under test, and the way samples get there."""

from __future__ import annotations

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

    def version(self) -> dict[str, str]:
        return {"torch": torch.__version__, "flexcpu": self.package.__version__}


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
                copy.set_(self._storage(storage), source.storage_offset(), source.shape, source.stride())
                copy = copy.conj() if source.is_conj() else copy
                copy = torch._neg_view(copy) if source.is_neg() else copy
        return copy.requires_grad_(source.requires_grad)

    def _storage(self, storage: torch.UntypedStorage) -> torch.UntypedStorage:
        if storage._cdata not in self._storages:
            raw = torch.empty(0, dtype=torch.uint8).set_(storage)
            copied = raw.clone() if self.device.type == "cpu" else raw.to(self.device)
            self._storages[storage._cdata] = copied.untyped_storage()
        return self._storages[storage._cdata]


def to_host(tensor: torch.Tensor) -> torch.Tensor:
    """The values of a tensor on any device, as an ordinary CPU tensor."""
    return tensor.detach().cpu().resolve_conj().resolve_neg()
