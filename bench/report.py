"""Tables of a run, and what must not be overlooked in them."""

from __future__ import annotations

from collections import Counter
from itertools import groupby

from rich.console import Console
from rich.table import Table

from . import machine
from .measure import Row
from .run import Results
from .statistics import WIDE

_STYLES = {"met": "green", "missed": "bold red", "unclear": "yellow"}


def print_results(results: Results, console: Console) -> None:
    ordered = sorted(results.rows, key=lambda row: (row.baseline != "stock", row.case.split(":")[0]))  # stable
    for (baseline, family), rows in groupby(ordered, key=lambda row: (row.baseline, row.case.split(":")[0])):
        console.print(_table(f"{family}, against {_name(baseline)}", list(rows), results.settings.device))
    print_summary(results, console)


def print_summary(results: Results, console: Console) -> None:
    """Marks, losses, failures, noise, and the machine line."""
    marks = Counter(row.verdict for row in results.measured if row.verdict)
    marks.update(row.memory_verdict for row in results.rows if row.memory_verdict)
    if marks:
        counted = ", ".join(f"{marks[name]} {name}" for name in _STYLES)
        _list(console, f"Marks: {counted}", [_missed(row) for row in results.rows if _missed(row)])
    losses = sorted(results.losses, key=lambda row: row.ratio.median)
    sure = sum(row.ratio.below_one for row in losses)
    lines = [f"{row.id}: {ratio(row)}" for row in losses]
    _list(console, f"Below 1: {len(losses)} of {len(results.measured)} rows, {sure} of them beyond noise", lines)
    if results.failed:
        _list(console, f"Failed: {len(results.failed)}", [f"{row.id}: {row.error}" for row in results.failed])
    wide = [row.id for row in results.measured if row.ratio.wide]
    if wide:
        _list(console, f"Spread still over {WIDE:.0%}: {len(wide)} rows", [", ".join(wide)])
    pairs, disturbed = sum(row.ratio.samples for row in results.measured), sum(row.disturbed for row in results.rows)
    settings = results.settings
    _print(console, f"{pairs} pairs of {settings.window_ms:g} ms windows, {disturbed} disturbed by other processes")
    _print(console, machine.line(results.machine))


def ratio(row: Row) -> str:
    """The ratio and its spread."""
    return f"{number(row.ratio.median)} [{number(row.ratio.low)}, {number(row.ratio.high)}]"


def number(value: float) -> str:
    for least, form in ((100, ",.0f"), (10, ".1f"), (0.1, ".2f")):
        if value >= least:
            return format(value, form)
    return f"{value:.2g}"


def duration(nanoseconds: float) -> str:
    for unit, size in (("s", 1e9), ("ms", 1e6), ("us", 1e3)):
        if nanoseconds >= size:
            return f"{number(nanoseconds / size)} {unit}"
    return f"{nanoseconds:.0f} ns"


def _table(title: str, rows: list[Row], device: str) -> Table:
    table = Table(title=title, title_justify="left", caption_justify="left")
    table.add_column("case")
    table.add_column("variant")
    for column in ("stock", device, "ratio", "spread", "faults a call", "peak MB", "mark"):
        table.add_column(column, justify="right", no_wrap=True)
    for row in rows:
        table.add_row(row.case.split(":")[1], row.variant, *_cells(row))
    return table


def _cells(row: Row) -> list[str]:
    if not row.ratio:
        return ["", "", "[bold red]failed[/]"]
    style = "red" if row.ratio.below_one else "yellow" if row.ratio.low < 1 else "green"
    memory = f"{_mb(row.memory['stock'])} > {_mb(row.memory['device'])}" if row.memory else ""
    mark = f"{number(row.mark)} [{_STYLES[row.verdict]}]{row.verdict}[/]" if row.verdict else ""
    if row.memory_verdict:
        mark += f" peak {row.memory_mark:g} [{_STYLES[row.memory_verdict]}]{row.memory_verdict}[/]"
    return [
        duration(row.stock["median"]),
        duration(row.device["median"]),
        f"[{style}]{number(row.ratio.median)}[/]",
        f"{number(row.ratio.low)} - {number(row.ratio.high)}",
        f"{row.stock['faults']:,.4g} > {row.device['faults']:,.4g}",
        memory,
        mark,
    ]


def _mb(size: int) -> str:
    return f"{size / 2**20:,.0f}"


def _missed(row: Row) -> str:
    found = []
    if row.verdict in ("missed", "unclear"):
        found.append(f"{row.verdict}: {row.id}: {ratio(row)}, mark {number(row.mark)}")
    if row.memory_verdict == "missed":
        found.append(f"missed: {row.id}: peak memory {row.memory_ratio:.2f} times stock's, mark {row.memory_mark:g}")
    return "; ".join(found)


def _name(baseline: str) -> str:
    return "stock" if baseline == "stock" else f"stock with {baseline}"


def _list(console: Console, title: str, lines: list[str]) -> None:
    console.print(f"[bold]{title}[/]", highlight=False)
    for text in lines:
        _print(console, f"  {text}")


def _print(console: Console, text: str) -> None:
    console.print(text, highlight=False, markup=False, soft_wrap=True)
