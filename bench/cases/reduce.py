"""Sums and means: over all, over columns, over rows; sizes, layouts, dtypes."""

import torch

from ..case import LAYOUTS, Case, Tensor
from ..sizes import SIZES, shape

# Stock's own float32 sums may be off by a few units in the last place, more over strides of zero.
CLOSE = (1e-5, 1e-5)
DIMS = {"all": "dim=()", "columns": "0", "rows": "1"}


def _matrix(size: str, dtype: torch.dtype = torch.float32, layout: str = "contiguous") -> dict[str, Tensor]:
    # Of one sign: where terms cancel, two right sums may have no digit in common.
    return {"a": Tensor(shape(size, dtype), dtype, layout, positive=True)}


CASES = [
    Case(
        f"{op}-{size}-{name}", f"a.{op}({dims})", _matrix(size), out=f"torch.{op}(a, {dims}, out=out)", tolerance=CLOSE
    )
    for op in ("sum", "mean")
    for size in SIZES
    for name, dims in DIMS.items()
]
CASES += [
    Case(f"sum-L2-{name}-{layout}", f"a.sum({dims})", _matrix("L2", layout=layout), tolerance=CLOSE)
    for layout in LAYOUTS
    if layout != "contiguous"
    for name, dims in DIMS.items()
]
CASES += [
    Case(f"sum-L2-{name}-flipped", f"a.flip(0).sum({dims})", _matrix("L2"), tolerance=CLOSE)
    for name, dims in DIMS.items()
]
CASES += [
    Case(f"sum-L2-{name}-{str(dtype).removeprefix('torch.')}", f"a.sum({dims})", _matrix("L2", dtype))
    for dtype in (torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.uint8, torch.bool)
    for name, dims in DIMS.items()
]
