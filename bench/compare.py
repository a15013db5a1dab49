"""Two runs: what moved beyond noise."""

from __future__ import annotations

from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from . import machine
from .measure import Row
from .report import number, ratio
from .run import Results
from .statistics import apart


@dataclass(frozen=True)
class Comparison:
    """Rows by what became of them: (before, after) pairs, the greatest change first."""

    faster: list[tuple[Row, Row]]
    slower: list[tuple[Row, Row]]
    same: list[tuple[Row, Row]]
    broken: list[tuple[Row, Row]]  # measured before, failed after
    mended: list[tuple[Row, Row]]
    gone: list[Row]
    new: list[Row]


def compare(before: Results, after: Results, threshold: float) -> Comparison:
    """Ratios are compared, not times: a ratio was taken against stock in the same minute. A change counts when the
    spreads do not meet and the medians differ by more than the threshold (a share)."""
    old, new = ({row.id: row for row in results.rows} for results in (before, after))
    found = Comparison([], [], [], [], [], [old[i] for i in old if i not in new], [new[i] for i in new if i not in old])
    for a, b in ((old[i], new[i]) for i in old if i in new):
        if a.ratio and b.ratio:
            moved = apart(a.ratio, b.ratio, threshold)
            kind = found.same if not moved else found.faster if b.ratio.median > a.ratio.median else found.slower
            kind.append((a, b))
        elif a.ratio or b.ratio:
            (found.broken if a.ratio else found.mended).append((a, b))
    found.faster.sort(key=_change, reverse=True)
    found.slower.sort(key=_change)
    return found


def _change(pair: tuple[Row, Row]) -> float:
    return pair[1].ratio.median / pair[0].ratio.median


def print_comparison(found: Comparison, before: Results, after: Results, console: Console) -> None:
    for title, pairs in (("Slower", found.slower), ("Faster", found.faster)):
        if not pairs:
            continue
        table = Table(title=f"{title}: ratio to stock, before and after", title_justify="left")
        table.add_column("case")
        for column in ("before", "after", "change", "faults a call", "mark"):
            table.add_column(column, justify="right", no_wrap=True)
        for a, b in pairs:
            faults = f"{a.device['faults']:,.4g} > {b.device['faults']:,.4g}"
            marks = f"{a.verdict} > {b.verdict}" if a.verdict != b.verdict else b.verdict
            table.add_row(a.id, _plain(ratio(a)), _plain(ratio(b)), f"{number(_change((a, b)))}x", faults, marks)
        console.print(table)
    for name, rows in (("Broken", [b for _, b in found.broken]), ("Mended", [b for _, b in found.mended]),
                       ("Only before", found.gone), ("Only after", found.new)):  # fmt: skip
        for row in rows:
            console.print(f"{name}: {row.id} {row.error or ''}", highlight=False, markup=False)
    counts = f"{len(found.slower)} slower, {len(found.faster)} faster, {len(found.same)} within noise"
    console.print(f"[bold]{counts}[/]", highlight=False)
    for name, results in (("before", before), ("after", after)):
        console.print(f"{name}: {machine.line(results.machine)}", highlight=False, markup=False, soft_wrap=True)
    differing = [key for key in ("processor", "threads", "simd", "torch", "allocator", "huge pages", "operands")
                 if before.machine.get(key) != after.machine.get(key)]  # fmt: skip
    if differing:
        console.print(f"[yellow]Not like for like: {', '.join(differing)}[/]", highlight=False)


def _plain(text: str) -> str:
    return text.replace("[", r"\[")
