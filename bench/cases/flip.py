"""Rearrangements that a consumer may read in place: flips first, then permuted and expanded views that stock copies
at once. A row without a consumer says little: the copy may only be put off."""

import torch

from ..case import Case, Tensor
from ..sizes import KB, MB, shape

CLOSE = (1e-5, 1e-5)  # for sums; stock's own are off by a few units in the last place
NO_DEARER = 0.95  # than stock, which copies at once


def _flips(size: int, dtype: torch.dtype = torch.float32) -> dict[str, Tensor]:
    return {
        "a": Tensor(shape(size, dtype), dtype, positive=True),
        "b": Tensor(shape(size, dtype), dtype, positive=True),
    }


A4 = {"a": _flips(4 * MB)["a"]}
AB4 = _flips(4 * MB)

CASES = [
    Case(f"{name}-4MB", statement, A4, mark=20)
    for name, statement in (
        ("flip-rows", "a.flip(0)"),
        ("flip-columns", "a.flip(1)"),
        ("flip-both", "a.flip((0, 1))"),
        ("fliplr", "a.fliplr()"),
        ("flipud", "a.flipud()"),
        ("rot180", "a.rot90(2)"),
        ("flip-twice", "a.flip(0).flip(0)"),
    )
]
CASES += [Case("rot90-4MB", "a.rot90()", A4), Case("flip-256B", "a.flip(0)", {"a": Tensor(shape("tiny"))})]

# Consumers that read a flip in place.
CASES += [
    Case("flip-rows-add-4MB", "a.flip(0) + b", AB4, out="torch.add(a.flip(0), b, out=out)", mark=1.5),
    Case("flip-columns-add-4MB", "a.flip(1) + b", AB4, out="torch.add(a.flip(1), b, out=out)", mark=1.5),
    Case("flip-add-64MB", "a.flip(0) + b", _flips(64 * MB), mark=1.5),
    Case("flip-add-64KB", "a.flip(0) + b", _flips(64 * KB), mark=NO_DEARER),
    Case("flip-mul-scalar-4MB", "a.flip(1) * 2.0", A4, mark=NO_DEARER),
    Case("flip-sum-4MB", "a.flip(0).sum()", A4, tolerance=CLOSE, mark=NO_DEARER),
    Case("flip-sum-rows-4MB", "a.flip(1).sum(1)", A4, tolerance=CLOSE, mark=NO_DEARER),
    Case("flip-add-bfloat16-4MB", "a.flip(1) + b", _flips(4 * MB, torch.bfloat16), mark=NO_DEARER),
]

# Consumers that need it in order, or more than once.
IMAGES = {"a": Tensor((16, 3, 128, 128)), "w": Tensor((8, 3, 3, 3))}
CASES += [
    Case(f"flip-{name}", statement, inputs, mark=NO_DEARER, tolerance=tolerance)
    for name, statement, inputs, tolerance in (
        ("read-twice-4MB", "f = a.flip(0); f + b; f * b", AB4, None),
        ("added-to-itself-4MB", "f = a.flip(0); f + f", A4, None),
        ("sqrt-4MB", "a.flip(0).sqrt()", A4, None),
        ("matmul-1MB", "a.flip(0) @ b", _flips(MB), (1e-4, 1e-3)),
        ("cat-4MB", "torch.cat((a.flip(0), b))", AB4, None),
        ("written-4MB", "f = a.flip(0); f[0].zero_(); f", A4, None),
        ("source-written-4MB", "f = a.flip(0); a[0].mul_(1.0); f + 0", A4, None),
        ("item-4MB", "a.flip(0)[0, 0].item()", A4, None),
        ("address-4MB", "f = a.flip(0); f.data_ptr(); f", A4, None),
        ("augmented-convolution", "F.conv2d(a.flip(3), w)", IMAGES, (1e-4, 1e-4)),
    )
]

# Expanded and permuted views, copied by reshape and contiguous.
TABLE = {"a": Tensor((1, 256, 1024), positive=True)}
HEADS = {"x": Tensor((8, 256, 512), positive=True)}
_SPLIT = "x.view(8, 256, 8, 64).transpose(1, 2)"
CASES += [
    Case("expand-reshape-sum", "a.expand(16, -1, -1).reshape(-1, 1024).sum()", TABLE, tolerance=CLOSE, mark=3),
    Case("expand-reshape-add", "a.expand(16, -1, -1).reshape(-1, 1024) + 1.0", TABLE, mark=NO_DEARER),
    Case("expand-contiguous-address", "c = a.expand(16, -1, -1).contiguous(); c.data_ptr(); c", TABLE, mark=NO_DEARER),
    Case("heads-contiguous-sum", f"{_SPLIT}.contiguous().sum()", HEADS, tolerance=CLOSE, mark=1),
    Case("heads-contiguous-add", f"{_SPLIT}.contiguous() + 1.0", HEADS, mark=NO_DEARER),
    Case("heads-reshape-matmul", f"{_SPLIT}.reshape(64, 256, 64) @ w", HEADS | {"w": Tensor((64, 64), positive=True)},
         mark=NO_DEARER, tolerance=(1e-4, 1e-3)),
    Case("transposed-contiguous-sum", "a.t().contiguous().sum()", A4, tolerance=CLOSE, mark=NO_DEARER),
    Case("transposed-contiguous-twice", "c = a.t().contiguous(); c + 1.0; c * 2.0", A4, mark=NO_DEARER),
]  # fmt: skip
