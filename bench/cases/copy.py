"""Copies that are really made: casts, transposes, images, joins, and what else rearranges.

A fresh copy may only be put off until it is read, so every fresh row also asks for the address of its result. The
`out` rows copy into memory that is there."""

import torch

from ..case import Case, Tensor
from ..sizes import MB, SIZES, shape

NO_SLOWER = 0.95
FLOAT, BYTE = torch.float32, torch.uint8


def _copied(
    name: str, expression: str, inputs: dict[str, Tensor], mark: float = NO_SLOWER, out: str | None = ""
) -> Case:
    """A row for the expression, its result in order; by default, another that copies the same into `out`, for
    expressions that end with .contiguous() or .clone(...)."""
    if out == "":
        out = f"out.copy_({expression.rpartition('.')[0]})"
    statement = f"result = {expression}; result.data_ptr(); result"
    return Case(name, statement, inputs, out=out, mark=mark, out_mark=mark if out else None)


def _matrix(size: str | int, dtype: torch.dtype = FLOAT, layout: str = "contiguous") -> dict[str, Tensor]:
    return {"a": Tensor(shape(size, dtype), dtype, layout)}


def _parts(count: int, size: tuple[int, ...], dtype: torch.dtype = FLOAT, layout: str = "contiguous"):
    return {name: Tensor(size, dtype, layout) for name in "abcdefgh"[:count]}


# Transposes, by the size of an element and by that of the matrix.
WIDTHS = {8: BYTE, 16: torch.bfloat16, 32: FLOAT, 64: torch.float64, 128: torch.complex128}
CASES = [
    _copied(f"transpose-{bits}bit-4MB", "a.t().contiguous()", _matrix(4 * MB, dtype), 3 if bits <= 16 else NO_SLOWER)
    for bits, dtype in WIDTHS.items()
]
CASES += [_copied(f"transpose-{size}", "a.t().contiguous()", _matrix(size)) for size in SIZES]
CASES += [
    _copied(f"{layout}-L3", "a.contiguous()" if layout != "flipped" else "a.flip(1).clone()", matrix)
    for layout, matrix in (
        ("stepped", _matrix("L3", layout="stepped")),
        ("expanded", _matrix("L3", layout="expanded")),
        ("flipped", _matrix("L3")),
    )
]
CASES += [
    _copied("transpose-odd", "a.t().contiguous()", {"a": Tensor((1021, 1019))}),
    _copied("keys-batched", "k.transpose(-1, -2).contiguous()", {"k": Tensor((32, 256, 64))}),
    _copied("heads", "x.view(8, 256, 8, 64).transpose(1, 2).contiguous()", {"x": Tensor((8, 256, 512))}),
    _copied("permute-210", "x.permute(2, 1, 0).contiguous()", {"x": Tensor((64, 96, 128))}),
]

# Images. Shapes are those of the source.
_TO_NCHW, _TO_NHWC = "x.permute(0, 3, 1, 2).contiguous()", "x.permute(0, 2, 3, 1).contiguous()"
CASES += [
    _copied("nhwc-nchw-uint8-3", _TO_NCHW, {"x": Tensor((8, 224, 224, 3), BYTE)}, 6),
    _copied("nchw-nhwc-uint8-3", _TO_NHWC, {"x": Tensor((8, 3, 224, 224), BYTE)}, 6),
    _copied("nhwc-nchw-uint8-4", _TO_NCHW, {"x": Tensor((8, 224, 224, 4), BYTE)}, 6),
    _copied("nchw-nhwc-uint8-4", _TO_NHWC, {"x": Tensor((8, 4, 224, 224), BYTE)}, 6),
    _copied("nhwc-nchw-float32", _TO_NCHW, {"x": Tensor((8, 56, 56, 64))}),
    _copied("nchw-nhwc-float32", _TO_NHWC, {"x": Tensor((8, 64, 56, 56))}),
    _copied("channels-last", "x.clone(memory_format=torch.channels_last)", {"x": Tensor((8, 64, 56, 56))}, out=None),
    _copied("image-to-float", "x.permute(0, 3, 1, 2).to(torch.float32, memory_format=torch.contiguous_format)",
            {"x": Tensor((8, 224, 224, 3), BYTE)}, out="out.copy_(x.permute(0, 3, 1, 2))"),
]  # fmt: skip

# Casts.
CASES += [
    _copied(f"cast-{source}-{target}", f"a.to(torch.{target})", _matrix("L3", getattr(torch, source)),
            out="out.copy_(a)")
    for source, target in (
        ("float32", "bfloat16"), ("float32", "float16"), ("bfloat16", "float32"), ("float16", "float32"),
        ("float32", "float64"), ("float64", "float32"), ("float32", "int64"), ("int64", "float32"),
        ("uint8", "float32"), ("bool", "float32"),
    )
]  # fmt: skip
CASES += [_copied("cast-transposed", "a.t().to(torch.bfloat16, memory_format=torch.contiguous_format)", _matrix("L3"),
                  out="out.copy_(a.t())")]  # fmt: skip

# Joins.
_ROWS, _COLUMNS, _SQUARE = (256, 1024), (1024, 256), (512, 512)
CASES += [
    _copied(name, expression, inputs, mark, f"{expression[:-1]}, out=out)")
    for name, expression, inputs, mark in (
        ("cat-64MB", "torch.cat((a, b, c, d))", _parts(4, (1024, 4096)), 1.5),
        ("cat-4MB", "torch.cat((a, b, c, d))", _parts(4, _ROWS), 1.5),
        ("cat-columns-4MB", "torch.cat((a, b, c, d), 1)", _parts(4, _COLUMNS), 1.5),
        ("cat-transposed-4MB", "torch.cat((a, b, c, d))", _parts(4, _ROWS, layout="transposed"), 1.5),
        ("cat-tokens", "torch.cat((a, b), 2)", _parts(2, (8, 8, 128, 64)), NO_SLOWER),
        ("stack-4MB", "torch.stack((a, b, c, d))", _parts(4, _SQUARE), NO_SLOWER),
        ("stack-last-4MB", "torch.stack((a, b, c, d), -1)", _parts(4, _SQUARE), 1.5),
        ("stack-last-uint8", "torch.stack((a, b, c), -1)", _parts(3, (1024, 1024), BYTE), 1.5),
    )
]

# Repetitions, shifts, windows, borders.
_IMAGE = {"x": Tensor((8, 32, 56, 56))}
CASES += [
    _copied(name, expression, inputs, out=None)
    for name, expression, inputs in (
        ("repeat", "a.repeat(2, 2)", _matrix(MB)),
        ("repeat-interleave", "a.repeat_interleave(4, 1)", _matrix(MB)),
        ("roll", "a.roll((17, 31), (0, 1))", _matrix(4 * MB)),
        ("tril", "a.tril()", _matrix(4 * MB)),
        ("triu", "a.triu()", _matrix(4 * MB)),
        ("pad-constant", "F.pad(x, (1, 1, 1, 1))", _IMAGE),
        ("pad-reflect", "F.pad(x, (1, 1, 1, 1), 'reflect')", _IMAGE),
        ("pad-replicate", "F.pad(x, (1, 1, 1, 1), 'replicate')", _IMAGE),
        ("pad-circular", "F.pad(x, (1, 1, 1, 1), 'circular')", _IMAGE),
        ("im2col", "F.unfold(x, 3, padding=1)", _IMAGE),
        ("windows", "a.unfold(1, 8, 4).contiguous()", _matrix(MB)),
        ("pixel-shuffle", "F.pixel_shuffle(x, 4)", _IMAGE),
        ("pixel-unshuffle", "F.pixel_unshuffle(x, 4)", _IMAGE),
    )
]

# Into a part of what is there.
CASES += [
    Case(
        "into-columns", "d[:, ::2].copy_(a); d", {"a": Tensor((1024, 512)), "d": Tensor((1024, 1024))}, mark=NO_SLOWER
    ),
    Case(
        "into-transposed", "d.t().copy_(a); d", {"a": Tensor((1024, 1024)), "d": Tensor((1024, 1024))}, mark=NO_SLOWER
    ),
    Case("into-rows", "d[100:900].copy_(a); d", {"a": Tensor((800, 1024)), "d": Tensor((1024, 1024))}, mark=NO_SLOWER),
]
