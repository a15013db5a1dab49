"""Compares what two devices gave: structure, dtype, shape, strides, layout, aliasing, and values within a tolerance."""

from __future__ import annotations

import copy
import math
from collections.abc import Iterable
from typing import Any

import torch
from torch.nn.utils.rnn import PackedSequence
from torch.testing._comparison import default_tolerances
from torch.testing._internal.common_device_type import precisionOverride, toleranceOverride
from torch.testing._internal.opinfo.core import BinaryUfuncInfo, DecorateInfo, UnaryUfuncInfo
from torch.utils._pytree import tree_flatten, tree_leaves

from .devices import to_host

# The tests whose tolerances are for comparing two eager runs of one op, as is done here.
_EAGER_CLASSES = (None, "TestCommon", "TestUnaryUfuncs", "TestBinaryUfuncsDevice", "TestReductions")
_EAGER_TESTS = (None, "test_out", "test_noncontiguous_samples", "test_variant_consistency_eager")

# Dtypes that assert_close cannot subtract, compared in one that holds all their values.
_WIDER = {
    torch.complex32: torch.complex64, torch.uint16: torch.int64, torch.uint32: torch.int64,
    torch.float8_e4m3fn: torch.float32, torch.float8_e4m3fnuz: torch.float32, torch.float8_e5m2: torch.float32,
    torch.float8_e5m2fnuz: torch.float32, torch.float8_e8m0fnu: torch.float32,
}  # fmt: skip


class Tolerance:
    """What two results of one op may differ by: assert_close's default for the result's dtype, or more where the
    database overrides it for the op on the CPU. Integers and booleans are compared exactly."""

    def __init__(self, info: object = None, dtype: torch.dtype | None = None):
        self.rtol = self.atol = 0.0
        self.computed: tuple[torch.dtype, ...] = ()
        self.sign_of_zero = isinstance(info, (UnaryUfuncInfo, BinaryUfuncInfo))
        for override in _overrides(info):
            if dtype in override.d:
                given = override.d[dtype]
                atol, rtol = (given.atol, given.rtol) if isinstance(override, toleranceOverride) else (given, 0.0)
                self.rtol, self.atol = max(self.rtol, rtol), max(self.atol, atol)

    def computed_in(self, dtype: torch.dtype) -> Tolerance:
        """For results that are computed in a dtype, whatever they are stored in."""
        other = copy.copy(self)
        other.computed = (dtype,)
        return other

    def of(self, dtype: torch.dtype) -> tuple[float, float]:
        """(rtol, atol) for results of a dtype."""
        if not (dtype.is_floating_point or dtype.is_complex):
            return 0.0, 0.0
        rtol, atol = default_tolerances(dtype, *self.computed)
        return max(rtol, self.rtol), max(atol, self.atol)


def _overrides(info: object) -> Iterable[precisionOverride | toleranceOverride]:
    for decorator in getattr(info, "decorators", ()):
        group = [decorator]
        if isinstance(decorator, DecorateInfo):
            eager = decorator.cls_name in _EAGER_CLASSES and decorator.test_name in _EAGER_TESTS
            if not eager or decorator.device_type not in (None, "cpu"):
                continue
            group = decorator.decorators
        yield from (one for one in group if isinstance(one, (precisionOverride, toleranceOverride)))


def difference(
    actual: Any, expected: Any, tolerance: Tolerance, device: str | None, *, values: bool = True
) -> str | None:
    """The first difference between two trees of results, or None.

    `device` is where tensors must live that live on the CPU in `expected` (None: do not ask). Without `values` only
    what is visible without reading elements is compared.
    """
    actual_leaves, actual_spec = tree_flatten(_plain(actual))
    expected_leaves, expected_spec = tree_flatten(_plain(expected))
    if actual_spec != expected_spec:
        return f"result is {actual_spec}, CPU gives {expected_spec}"
    for i, (a, e) in enumerate(zip(actual_leaves, expected_leaves)):
        found = _leaf_difference(a, e, tolerance, device, values)
        if found:
            return found if len(expected_leaves) == 1 else f"result {i}: {found}"
    if aliases(actual_leaves) != aliases(expected_leaves):
        return f"results alias one another as {aliases(actual_leaves)}, on CPU as {aliases(expected_leaves)}"
    return None


def _plain(tree: Any) -> Any:
    return tuple(tree) if isinstance(tree, PackedSequence) else tree


def _leaf_difference(actual: Any, expected: Any, tolerance: Tolerance, device: str | None, values: bool) -> str | None:
    if type(actual) is not type(expected):
        return f"is a {type(actual).__name__}, CPU gives a {type(expected).__name__}"
    if isinstance(expected, torch.Tensor):
        return _tensor_difference(actual, expected, tolerance, device, values)
    if isinstance(expected, torch.device):
        actual, expected = actual.type, device if device and expected.type == "cpu" else expected.type
    elif isinstance(expected, (float, complex)):
        rtol, atol = tolerance.of(torch.float64)
        try:
            torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True)
        except AssertionError as error:
            return " ".join(str(error).split()) if values else None
        return None
    if actual != expected and (values or not isinstance(expected, (int, bool))):
        return f"is {actual!r}, CPU gives {expected!r}"
    return None


def _tensor_difference(
    actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance, device: str | None, values: bool
) -> str | None:
    if device and expected.device.type == "cpu" and actual.device.type != device:
        return f"lives on {actual.device}"
    for name in ("dtype", "shape", "layout", "requires_grad"):
        if getattr(actual, name) != getattr(expected, name):
            return f"{name} is {getattr(actual, name)}, CPU gives {getattr(expected, name)}"
    if expected.device.type == "meta":
        return None
    if expected.layout != torch.strided:
        return _values_difference(actual.detach().cpu(), expected.detach(), tolerance) if values else None
    for name in ("stride", "storage_offset", "is_conj", "is_neg"):
        if getattr(actual, name)() != getattr(expected, name)():
            return f"{name}() is {getattr(actual, name)()}, CPU gives {getattr(expected, name)()}"
    if not values or same_bits(actual, expected):
        return None
    return _values_difference(to_host(actual), to_host(expected), tolerance)


def same_bits(actual: torch.Tensor, expected: torch.Tensor) -> bool:
    """Whether two strided tensors of one shape and dtype hold the same bits."""
    if expected.numel() == 0:
        return True
    return torch.equal(*(_bytes(to_host(t).contiguous()) for t in (actual, expected)))


def _bytes(t: torch.Tensor) -> torch.Tensor:
    return t.as_strided((t.numel(),), (1,)).view(torch.uint8)


def _values_difference(actual: torch.Tensor, expected: torch.Tensor, tolerance: Tolerance) -> str | None:
    rtol, atol = tolerance.of(expected.dtype)
    if expected.dtype == torch.uint64:  # compared exactly, so the reading as signed does not matter
        actual, expected = actual.view(torch.int64), expected.view(torch.int64)
    wider = _WIDER.get(expected.dtype, expected.dtype)
    actual, expected = actual.to(wider), expected.to(wider)
    try:
        torch.testing.assert_close(actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=False)
    except AssertionError as error:
        return " ".join(str(error).split())
    if tolerance.sign_of_zero and expected.layout == torch.strided:
        for part in (torch.view_as_real,) if wider.is_complex else (torch.Tensor.detach,):
            a, e = part(actual), part(expected)
            wrong = (a == 0) & (e == 0) & (torch.signbit(a) != torch.signbit(e))
            if wrong.any():
                return f"sign of zero differs in {int(wrong.sum())} of {wrong.numel()} elements"
    return None


def tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def requiring_grad(tree: Any) -> list[torch.Tensor]:
    return [t for t in tensors(tree) if t.requires_grad]


def storage_of(tensor: torch.Tensor) -> int | None:
    """Identity of the storage that a tensor is a view of; None where it has none."""
    if tensor.layout != torch.strided or tensor.device.type == "meta":
        return None
    return tensor.untyped_storage()._cdata


def aliases(tree: Any) -> list[int]:
    """For each tensor of a tree the position of the first one that is a view of the same storage."""
    first: dict[int, int] = {}
    found = []
    for position, leaf in enumerate(tree_leaves(tree)):
        if isinstance(leaf, torch.Tensor):
            storage = storage_of(leaf)
            found.append(position if storage is None else first.setdefault(storage, position))
    return found


def percent(part: int, whole: int) -> float:
    """Percentage, 100 for nothing at all; rounded down, so that only a whole gives 100."""
    return math.floor(10000 * part / whole) / 100 if whole else 100.0
