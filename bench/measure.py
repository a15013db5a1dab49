"""One case, in a process of its own: the results compared, then pairs of windows."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

from . import memory
from .case import Case
from .settings import Settings
from .statistics import Spread, spread, verdict
from .timing import Loop, Window


@dataclass
class Row:
    """What was found. Times are nanoseconds per call, faults are per call, memory is in bytes, ratios are
    stock/device, above 1 is faster; memory ratios are device/stock."""

    case: str
    variant: str  # "fresh" or "out"
    statement: str
    baseline: str = "stock"  # or "tcmalloc"
    stock: dict[str, float] | None = None  # min, median, calls, faults
    device: dict[str, float] | None = None
    ratio: Spread | None = None
    disturbed: int = 0  # pairs during which the process was off the processor
    mark: float | None = None
    verdict: str = ""
    memory: dict[str, int] | None = None  # stock, device
    memory_mark: float | None = None
    error: str | None = None

    @property
    def id(self) -> str:
        return f"{self.case} {self.variant} {self.baseline}"

    @property
    def memory_ratio(self) -> float | None:
        return self.memory["device"] / self.memory["stock"] if self.memory and self.memory["stock"] else None

    @property
    def memory_verdict(self) -> str:
        if self.memory_mark is None or self.memory_ratio is None:
            return ""
        return "met" if self.memory_ratio <= self.memory_mark else "missed"

    def as_json(self) -> dict[str, Any]:
        return asdict(self) | {"memory_verdict": self.memory_verdict}

    @classmethod
    def from_json(cls, found: dict[str, Any]) -> Row:
        fields = {name: value for name, value in found.items() if name != "memory_verdict"}
        return cls(**fields | {"ratio": found["ratio"] and Spread(**found["ratio"])})


def measure(case: Case, settings: Settings) -> list[Row]:
    """The case's rows. What goes wrong is a row's error."""
    torch.set_num_threads(settings.threads)
    memory.settle_malloc()
    rows = [Row(case.id, "fresh", case.statement, mark=case.mark, memory_mark=case.memory_mark)]
    if case.out:
        rows.append(Row(case.id, "out", case.out, mark=case.out_mark))
    inputs: list[dict[str, Any]] = []
    for row in rows:
        try:
            inputs = inputs or [case.build(device) for device in ("cpu", settings.device)]
            stock, device = (_loop(case, row.variant, names) for names in inputs)
            _check(case, row.variant, stock, device)
            _take(row, stock, device, settings)
        except Exception as error:
            row.error = describe(error)
    return rows


def describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]


def _loop(case: Case, variant: str, inputs: dict[str, Any]) -> Loop:
    """What a variant runs. The memory that `out` writes into holds zeros at first."""
    fresh = Loop(case.statement_on(inputs["device"]), inputs)
    return fresh if variant == "fresh" else Loop(case.out, inputs | {"out": torch.zeros_like(fresh())})


def _check(case: Case, variant: str, stock: Loop, device: Loop) -> None:
    """Raises if a result is not stock's fresh one, or if nothing of the case is on the device."""
    if variant == "fresh":
        expected, actual = (Loop(case.check, loop.inputs)() if case.check else loop() for loop in (stock, device))
        _compare(case, actual, expected)
    else:
        expected = _loop(case, "fresh", stock.inputs)()
        for loop in (stock, device):
            loop()
            actual = loop.inputs["out"]
            _compare(case, actual, expected)
    where = device.inputs["device"]
    if not any(tensor.device.type == where for tensor in _tensors((device.inputs, actual))):
        raise ValueError(f"no tensor of the case is on {where}")


def _compare(case: Case, actual: Any, expected: Any) -> None:
    actual, expected = (tree_map_only(torch.Tensor, lambda t: t.detach().cpu(), tree) for tree in (actual, expected))
    if isinstance(actual, torch.Tensor) and _same(actual, expected):
        return
    rtol, atol = case.tolerance or (None, None)
    torch.testing.assert_close(
        actual, expected, rtol=rtol, atol=atol, equal_nan=True, check_stride=True,
        msg=lambda text: f"wrong result: {text}",
    )  # fmt: skip


def _same(a: torch.Tensor, b: torch.Tensor) -> bool:
    """Whether tensors are alike to the last bit (but for zeros' signs): much faster to see than that they are close."""
    return (a.dtype, a.shape, a.stride()) == (b.dtype, b.shape, b.stride()) and torch.equal(a, b)


def _tensors(tree: Any) -> list[torch.Tensor]:
    return [leaf for leaf in tree_leaves(tree) if isinstance(leaf, torch.Tensor)]


def _take(row: Row, stock: Loop, device: Loop, settings: Settings) -> None:
    """Takes pairs until the row is sure, or has as many as it may have."""
    for loop in (stock, device):
        loop.calibrate(int(settings.window_ms * 1e6))
    collected: list[tuple[Window, Window]] = []
    wanted = settings.pairs
    while True:
        disturbed = _pairs(stock, device, collected, wanted, may_retake=settings.threads == 1)
        row.disturbed += disturbed
        row.ratio = spread([s.per_call / d.per_call for s, d in collected])
        row.verdict = "" if row.mark is None else verdict(row.ratio, row.mark)
        if wanted >= settings.most_pairs or not (row.ratio.wide or row.verdict == "unclear"):
            break
        wanted = min(wanted + settings.pairs, settings.most_pairs)
    row.stock, row.device = (_summary(windows) for windows in zip(*collected, strict=True))


def _pairs(stock: Loop, device: Loop, collected: list[tuple[Window, Window]], wanted: int, *, may_retake: bool) -> int:
    """Adds pairs up to the wanted number, AB, BA, AB and so on, and returns how many were disturbed. Those are taken
    again, as often as there are pairs to add: on a machine that is never quiet, disturbed pairs must do."""
    disturbed = 0
    retakes = wanted - len(collected) if may_retake else 0
    while len(collected) < wanted:
        first, second = (stock, device) if len(collected) % 2 == 0 else (device, stock)
        windows = {first: first.window(), second: second.window()}
        if may_retake and any(window.disturbed for window in windows.values()):
            disturbed += 1
            if retakes:
                retakes -= 1
                continue
        collected.append((windows[stock], windows[device]))
    return disturbed


def _summary(windows: tuple[Window, ...]) -> dict[str, float]:
    times = [window.per_call for window in windows]
    calls = sum(window.calls for window in windows)
    faults = sum(window.faults for window in windows) / calls
    return {"min": min(times), "median": median(times), "calls": windows[0].calls, "faults": round(faults, 2)}
