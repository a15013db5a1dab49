"""Arithmetic: sizes, layouts, dtypes, broadcasting."""

import torch

from ..case import LAYOUTS, Case, Tensor
from ..sizes import SIZES, shape

OPS = {"add": "+", "sub": "-", "mul": "*", "div": "/"}


def _pair(size: str, dtype: torch.dtype = torch.float32, layout: str = "contiguous") -> dict[str, Tensor]:
    matrix = shape(size, dtype)
    return {"a": Tensor(matrix, dtype, layout), "b": Tensor(matrix, dtype, positive=True)}


def _named(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


CASES = [
    Case(f"{name}-{size}", f"a {sign} b", _pair(size), out=f"torch.{name}(a, b, out=out)")
    for name, sign in OPS.items()
    for size in SIZES
]
CASES += [
    Case(f"add-{size}-{layout}", "a + b", _pair(size, layout=layout), out="torch.add(a, b, out=out)")
    for size in SIZES
    for layout in LAYOUTS
    if layout != "contiguous"
]
# A flip that is made once would be put in order by its first reader: it belongs into the statement.
CASES += [
    Case(f"add-{size}-flipped", "a.flip(1) + b", _pair(size), out="torch.add(a.flip(1), b, out=out)") for size in SIZES
]
CASES += [
    Case(f"{name}-L2-{_named(dtype)}", f"a {sign} b", _pair("L2", dtype), out=f"torch.{name}(a, b, out=out)")
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32, torch.uint8, torch.complex64)
    for name, sign in (("add", "+"), ("mul", "*"))
]

_ROWS, _COLUMNS = shape("L2")
_MATRIX = Tensor((_ROWS, _COLUMNS))
CASES += [
    Case("add-scalar", "a + 1.5", {"a": _MATRIX}, out="torch.add(a, 1.5, out=out)"),
    Case("add-row", "a + b", {"a": _MATRIX, "b": Tensor((_COLUMNS,))}, out="torch.add(a, b, out=out)"),
    Case("add-column", "a + b", {"a": _MATRIX, "b": Tensor((_ROWS, 1))}, out="torch.add(a, b, out=out)"),
    Case("add-int64", "a + b", {"a": _MATRIX, "b": Tensor((_ROWS, _COLUMNS), torch.int64)}),
    Case("mul-bfloat16-float32", "a * b", {"a": _MATRIX, "b": Tensor((_ROWS, _COLUMNS), torch.bfloat16)}),
    Case("add-in-place", "a.add_(b, alpha=1e-6)", {"a": _MATRIX, "b": _MATRIX}),
    Case("div-floor", "a // b", _pair("L2", torch.int32), out="torch.floor_divide(a, b, out=out)"),
]
