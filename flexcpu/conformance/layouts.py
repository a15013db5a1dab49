"""Tensors in every layout that strided memory allows: operands, and what callers may pass as out= or change in place.

All are made on the CPU; a Transfer carries the layout to the device. Storages have room to spare: some stock kernels
write outside of an out= that is not dense (avg_pool3d, narrow_copy, tril, linalg.lu), and must not hit what is not
theirs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map

Arrange = Callable[[torch.Tensor], torch.Tensor | None]


def _transposed(t: torch.Tensor) -> torch.Tensor | None:
    return t.transpose(-1, -2).contiguous().transpose(-1, -2) if t.dim() >= 2 else None


def _channels_last(t: torch.Tensor) -> torch.Tensor | None:
    return t.movedim(1, -1).contiguous().movedim(-1, 1) if t.dim() >= 3 else None


def _stepped(t: torch.Tensor) -> torch.Tensor | None:
    if t.dim() == 0:
        return None
    wide = t.new_zeros((*t.shape[:-1], 2 * t.shape[-1]))[..., ::2]
    return wide.copy_(t)


def _offset(t: torch.Tensor) -> torch.Tensor:
    return t.new_zeros(t.numel() + 3)[3:].view(t.shape).copy_(t)


def _expanded(t: torch.Tensor) -> torch.Tensor | None:
    if t.dim() == 0 or t.shape[0] < 2:
        return None
    row = t.new_zeros(2 * t.numel())[: t[0].numel()].view(t[0].shape).copy_(t[0])
    return row.expand(t.shape)


def _conj(t: torch.Tensor) -> torch.Tensor | None:
    return t.conj_physical().conj() if t.is_complex() else None


def _neg(t: torch.Tensor) -> torch.Tensor | None:
    has_neg = t.is_complex() or (t.is_floating_point() and t.dtype.itemsize > 1)  # no 8-bit float has
    return torch._neg_view(-t) if has_neg else None


LAYOUTS: dict[str, Arrange] = {
    "transposed": _transposed, "channels_last": _channels_last, "stepped": _stepped, "offset": _offset,
    "expanded": _expanded, "conj": _conj, "neg": _neg,
}  # fmt: skip


# Copies that a device may put off, of memory that holds an operand's values in another order or once.
PENDING = ("flipped", "permuted", "expanded")


def repeated(t: torch.Tensor) -> torch.Tensor | None:
    """A dense tensor that an expanded copy could be."""
    expanded = _expanded(t)
    return None if expanded is None else expanded.contiguous()


def arranged(tree: Any, arrange: Arrange) -> Any | None:
    """The tree with every tensor rearranged that can be; None if none can."""
    changed = {}
    for t in tree_leaves(tree):
        if isinstance(t, torch.Tensor) and t.layout == torch.strided and t.device.type == "cpu":
            changed[id(t)] = arrange(t.detach())
    if all(t is None for t in changed.values()):
        return None
    return tree_map(lambda leaf: leaf if changed.get(id(leaf)) is None else changed[id(leaf)], tree)


def _other_dtype(dtype: torch.dtype) -> torch.dtype:
    """A dtype that a result of `dtype` cannot be cast to, where there is one."""
    if dtype.is_floating_point or dtype.is_complex:
        return torch.int32
    return torch.bool if dtype != torch.bool else torch.uint8


def out_tensors(results: list[torch.Tensor], operands: tuple) -> Iterator[tuple[str, list[torch.Tensor], tuple]]:
    """(kind, the tensors for out=, the operands) for results of these shapes and dtypes. Some kinds are errors."""

    def each(make: Callable[[torch.Tensor], torch.Tensor]) -> list[torch.Tensor]:
        return [make(r) for r in results]

    def room(r: torch.Tensor) -> torch.Tensor:
        return torch.zeros(2 * r.numel() + 2, dtype=r.dtype)

    def transposed(r: torch.Tensor) -> torch.Tensor:
        return room(r)[: r.numel()].view(r.shape[::-1]).permute(tuple(range(r.dim()))[::-1])

    yield "fresh", each(lambda r: torch.zeros(0, dtype=r.dtype)), operands
    yield "same", each(lambda r: torch.zeros(r.shape, dtype=r.dtype)), operands
    yield "strided", each(lambda r: room(r)[: 2 * r.numel()].view(*r.shape, 2)[..., 0]), operands
    yield "transposed", each(transposed), operands
    yield "wrong size", each(lambda r: torch.zeros([n + 1 for n in r.shape] or [2], dtype=r.dtype)), operands
    yield "wrong dtype", each(lambda r: torch.zeros(r.shape, dtype=_other_dtype(r.dtype))), operands
    yield "float64", each(lambda r: torch.zeros(r.shape, dtype=torch.float64)), operands
    if all(r.numel() > 1 for r in results):
        yield "expanded", each(lambda r: room(r)[:1].expand(r.shape)), operands
    first = operands[0]
    if len(results) == 1 and isinstance(first, torch.Tensor) and first.layout == torch.strided:
        if first.shape == results[0].shape and first.dtype == results[0].dtype:
            yield "the operand", [first], operands
            if first.numel() > 1:
                base = first.new_zeros(first.numel() + 1)
                shifted = base[1:].view(first.shape).copy_(first)
                yield "overlapping the operand", [base[:-1].view(first.shape)], (shifted, *operands[1:])


def inplace_operands(t: torch.Tensor) -> Iterator[tuple[str, torch.Tensor]]:
    """(kind, a tensor of t's values to change in place). The last overlaps itself, which most ops refuse."""
    t = t.detach()
    yield "in-place", t
    for kind, arrange in (
        ("in-place stepped", _stepped),
        ("in-place transposed", _transposed),
        ("in-place expanded", _expanded),
    ):
        changed = arrange(t)
        if changed is not None:
            yield kind, changed
