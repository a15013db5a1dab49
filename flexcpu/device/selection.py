"""Which device is current: always flex:0."""

from __future__ import annotations

from typing import Any

import torch

Device = torch.device | str | int | None


def checked_index(device: Device = None) -> int:
    """The index of a device, given as torch's device functions take it; None and negative indices mean the current one.

    Raises ValueError for a device of another type, RuntimeError for an index other than 0, TypeError for what is no
    device.
    """
    if device is None:
        return 0
    if isinstance(device, str):
        device = torch.device(device)
    if isinstance(device, torch.device):
        if device.type != "flex":
            raise ValueError(f"Expected a flex device, but got: {device}")
        device = 0 if device.index is None else device.index
    if not isinstance(device, int):
        raise TypeError(f"Expected a torch.device, a string or an integer, but got: {device!r}")
    if device >= device_count():
        raise RuntimeError(f"flex has one device, flex:0; got index {device}")
    return 0


def is_available() -> bool:
    """True: the device needs nothing but the processor."""
    return True


def device_count() -> int:
    return 1


def current_device() -> int:
    """The index of the current device."""
    return 0


def set_device(device: Device) -> None:
    """Checks `device`; a negative index changes nothing, as elsewhere."""
    checked_index(device)


def synchronize(device: Device = None) -> None:
    """Returns at once: every operation is done when its call returns."""
    checked_index(device)


def is_initialized() -> bool:
    return True


def init() -> None:
    """Nothing is left to initialize after the import."""


def _lazy_init() -> None:
    pass


def _is_in_bad_fork() -> bool:
    """False: a forked child goes on using the device."""
    return False


class device:
    """Context manager that selects a device. None or a negative index selects none."""

    def __init__(self, device: Device) -> None:
        checked_index(device)
        self.idx = -1 if device is None else current_device()
        self.prev_idx = -1

    def __enter__(self) -> None:
        self.prev_idx = current_device()

    def __exit__(self, *exception: Any) -> bool:
        return False


class device_of(device):
    """Context manager that selects the device of a tensor or storage; it does nothing where that is no flex device."""

    def __init__(self, obj: torch.Tensor | torch.UntypedStorage | torch.TypedStorage) -> None:
        super().__init__(obj.device if obj.device.type == "flex" else None)
