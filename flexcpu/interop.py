"""Flex memory is host memory: NumPy, DLPack and CPU tensors over the same bytes."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

import torch
from torch.overrides import has_torch_function_unary

if TYPE_CHECKING:
    import numpy


def _check_tensor(t: object) -> None:
    if not isinstance(t, torch.Tensor):
        raise TypeError(f"expected a torch.Tensor, not {type(t).__name__}")


def asarray(t: torch.Tensor) -> numpy.ndarray:
    """A NumPy array over a tensor's bytes, without a copy: both see each other's writes.

    From then on the tensor's bytes are never shared with its clones, as foreign code may write to them.
    `Tensor.numpy()` raises instead, as on every accelerator. Errors are those of `Tensor.numpy()` on the CPU: a tensor
    that requires grad, or is conjugated, a dtype that NumPy has not.
    """
    _check_tensor(t)
    if t.device.type != "flex" or t.layout != torch.strided:
        return t.numpy()
    if t.requires_grad:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad. Use tensor.detach().numpy() instead.")
    from . import _C

    return _C.alias_on_cpu(t).numpy()


def from_cpu(t: torch.Tensor, copy: bool = True) -> torch.Tensor:
    """The flex tensor of a CPU tensor: its shape, dtype and values. A copy, as by `t.to("flex", copy=True)`.

    With `copy=False` it is on the bytes of `t`, with its strides, and one of two things holds:

    - Ordinarily it is an alias, for good: both see each other's writes, until either is resized.
    - Where `t` came from a flex tensor (`.cpu()`), and nobody has written to it or taken its address since, the two
      share copy-on-write, as clones do: the first write to either copies, and the other does not see it.

    Raises ValueError when `t` is not on the CPU, or, with `copy=False`, requires grad or is no plain strided tensor.
    """
    _check_tensor(t)
    if t.device.type != "cpu":
        raise ValueError(f"expected a CPU tensor, not one on {t.device}")
    if copy:
        return t.to("flex", copy=True)
    if t.requires_grad:
        raise ValueError("a tensor that requires grad cannot be shared with another device; pass t.detach()")
    if t.layout != torch.strided or t.is_nested or t.is_quantized or t._is_zerotensor():
        raise ValueError("only a plain strided tensor has bytes that can be shared; pass copy=True")
    from . import _C

    return _C.adopt_from_cpu(t)


def shares_memory(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether the storages of two tensors, on flex or on the CPU, are the same bytes right now. A write to either may
    end that."""
    _check_tensor(a)
    _check_tensor(b)
    from . import _C

    return _C.shares_memory(a, b)


def register() -> None:
    """Exports flex tensors through DLPack as CPU memory. torch knows a device of ours only by its unchanged name, and
    would call its memory unreadable."""
    from torch.utils.dlpack import DLDeviceType

    from . import _C

    export, device_of = torch.Tensor.__dlpack__, torch.Tensor.__dlpack_device__

    def is_ours(t: torch.Tensor) -> bool:
        return t.device.type == "flex" and not has_torch_function_unary(t)

    @functools.wraps(export)
    def __dlpack__(self, **kwargs):
        if is_ours(self) and not (self.requires_grad or self.is_conj() or self.layout != torch.strided):
            self = _C.alias_on_cpu(self)
        return export(self, **kwargs)

    @functools.wraps(device_of)
    def __dlpack_device__(self):
        return (DLDeviceType.kDLCPU, 0) if is_ours(self) else device_of(self)

    torch.Tensor.__dlpack__ = __dlpack__
    torch.Tensor.__dlpack_device__ = __dlpack_device__
