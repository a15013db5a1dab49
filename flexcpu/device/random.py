"""The random number generator of the device. torch.manual_seed() seeds it along with the CPU's."""

from __future__ import annotations

from collections.abc import Iterable

import torch

from .. import _C
from .selection import Device, checked_index


def manual_seed(seed: int) -> None:
    """Seeds the current device."""
    _C.default_generator().manual_seed(int(seed))


def manual_seed_all(seed: int) -> None:
    """Seeds all devices, which is the one."""
    manual_seed(seed)


def seed() -> None:
    """Seeds the current device with a number that is different each time."""
    _C.default_generator().seed()


def seed_all() -> None:
    seed()


def initial_seed() -> int:
    """What the device was last seeded with."""
    return _C.default_generator().initial_seed()


def get_rng_state(device: Device = "flex") -> torch.Tensor:
    """The state of the device's generator, a CPU tensor of bytes."""
    checked_index(device)
    return _C.default_generator().get_state()


def set_rng_state(new_state: torch.Tensor, device: Device = "flex") -> None:
    """Puts the device's generator into a state that get_rng_state() gave. Raises RuntimeError for one of another size."""
    checked_index(device)
    _C.default_generator().set_state(new_state.clone(memory_format=torch.contiguous_format))


def get_rng_state_all() -> list[torch.Tensor]:
    """The states of all devices' generators, which is the one."""
    return [get_rng_state()]


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """The reverse of get_rng_state_all()."""
    for index, state in enumerate(new_states):
        set_rng_state(state, index)
