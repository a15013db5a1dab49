"""What a check runs: an entry of a database, in one dtype, on one device."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import torch

from .compare import Tolerance
from .databases import spread
from .devices import Device
from .results import Result


class Subject:
    """One entry in one dtype (None where the database gives the dtypes itself). `progress` is told the position of the
    sample that is about to run."""

    def __init__(self, info: Any, dtype: torch.dtype | None, device: Device, progress: Callable[[int], None]):
        self.info = info
        self.dtype = dtype
        self.device = device
        self.progress = progress
        self.tolerance = Tolerance(info, dtype)

    def chosen(self, samples: Iterable[Any], result: Result, cap: int) -> Iterator[tuple[int, Any]]:
        """At most `cap` of the entry's samples, with their positions in the database's list."""
        found = list(enumerate(samples))
        taken = spread(found, cap)
        result.capped_from = len(found) if len(taken) < len(found) else 0
        for index, sample in taken:
            self.progress(index)
            yield index, sample


def seeded_like(tensor: torch.Tensor) -> torch.Tensor:
    """Normal numbers in a tensor's shape and dtype, on its device, that do not depend on the device."""
    generator = torch.Generator().manual_seed(tensor.numel())
    wide = torch.complex64 if tensor.is_complex() else torch.float32
    values = torch.randn(tensor.shape, generator=generator, dtype=wide).to(tensor.dtype)
    return values.to(tensor.device)
