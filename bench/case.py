"""What is timed, as data: a statement over named inputs."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

import torch


class Input(Protocol):
    """Anything that can be built on a device: a Tensor below, or a model."""

    def on(self, device: str, generator: torch.Generator) -> Any: ...


# How a tensor of some shape is laid out: the shape that is allocated, and the view of it that is used.
LAYOUTS = {
    "contiguous": (lambda shape: shape, lambda base, shape: base),
    "transposed": (lambda shape: (*shape[:-2], shape[-1], shape[-2]), lambda base, shape: base.transpose(-1, -2)),
    "stepped": (lambda shape: (*shape[:-1], 2 * shape[-1]), lambda base, shape: base[..., ::2]),
    "expanded": (lambda shape: (1, *shape[1:]), lambda base, shape: base.expand(shape)),
}


@dataclass(frozen=True)
class Tensor:
    """Random values: floats from the normal distribution, or from [0.5, 1.5) if `positive` (sums that do not cancel,
    logarithms, divisors), small integers of either sign, all values of uint8 and bool."""

    shape: tuple[int, ...]
    dtype: torch.dtype = torch.float32
    layout: str = "contiguous"
    positive: bool = False

    def on(self, device: str, generator: torch.Generator) -> torch.Tensor:
        allocated, view = LAYOUTS[self.layout]
        return view(self._values(allocated(self.shape), generator).to(device), self.shape)

    def _values(self, shape: tuple[int, ...], generator: torch.Generator) -> torch.Tensor:
        if self.dtype.is_floating_point or self.dtype.is_complex:
            wide = self.dtype if self.dtype.itemsize >= 4 else torch.float32
            if self.positive:
                return torch.rand(shape, dtype=wide, generator=generator).add_(0.5).to(self.dtype)
            return torch.randn(shape, dtype=wide, generator=generator).to(self.dtype)
        low, high = {torch.bool: (0, 2), torch.uint8: (0, 256)}.get(self.dtype, (-100, 100))
        return torch.randint(1 if self.positive else low, high, shape, dtype=self.dtype, generator=generator)


@dataclass(frozen=True)
class Case:
    """One row of a table, or two.

    name: unique in its family.
    statement: simple Python statements on one line, over the names of the inputs, `device`, `torch`, `F`
        (torch.nn.functional) and `copy`. The last one is an expression: its value is the result that must agree.
    inputs: by name; built anew for each device, with the same values.
    out: a statement that writes the same result into `out`, a tensor like it. It gives a row of its own.
    stock: what stock runs in place of `statement`, where the two devices' words for one thing differ.
    check: what is compared in place of the statement's result: of a training step, the losses of the first few.
    mark, out_mark: the least ratio stock/flex of the row, against stock with the system's allocator.
    memory_mark: the greatest ratio flex/stock of peak memory.
    tolerance: (relative, absolute), for the comparison; default: torch.testing.assert_close's for the dtype.
    """

    name: str
    statement: str
    inputs: Mapping[str, Input] = field(default_factory=dict)
    out: str | None = None
    stock: str | None = None
    check: str | None = None
    mark: float | None = None
    out_mark: float | None = None
    memory_mark: float | None = None
    tolerance: tuple[float, float] | None = None
    family: str = ""  # the file's name; set when the families are loaded

    @property
    def id(self) -> str:
        return f"{self.family}:{self.name}"

    def build(self, device: str) -> dict[str, Any]:
        """The names of the statement: the inputs on a device. Their values depend on the case alone."""
        seed = zlib.crc32(self.id.encode())
        torch.manual_seed(seed)  # for the parameters of models
        generator = torch.Generator().manual_seed(seed)
        return {"device": device} | {name: value.on(device, generator) for name, value in self.inputs.items()}

    def statement_on(self, device: str) -> str:
        return self.stock or self.statement if device == "cpu" else self.statement
