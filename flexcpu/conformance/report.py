"""The five numbers, the table and the JSON file of a run."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from .compare import percent
from .databases import CHECKS, Case, Tier, database_sizes
from .expected import Expected, key_of
from .results import Result

_LISTED = 60  # lines of a list on the console; the JSON file has all


@dataclass
class Report:
    """Collects the results of a run."""

    device: str
    tier: Tier
    versions: dict[str, str]
    expected: Expected
    results: list[Result] = field(default_factory=list)

    def add(self, result: Result) -> None:
        self.results.append(result)

    @property
    def different(self) -> list[Result]:
        return [r for r in self.results if not r.equal]

    @property
    def unexplained(self) -> list[Result]:
        return [r for r in self.different if key_of(r.case) not in self.expected.differences]

    @property
    def stale(self) -> list[Case]:
        """Cases that are expected to differ, were run, and do not."""
        return [r.case for r in self.results if r.equal and key_of(r.case) in self.expected.differences]

    def unshared(self) -> dict[str, str]:
        """The entries in which a read-only operand stopped sharing with its clone: how many, where, and why."""
        return {
            r.case.name: f"{r.peers - r.peers_kept} of {r.peers} operands, first at {r.peers_lost[0]}; "
            + self.expected.unshared.get(r.case.name, "no reason is known")
            for r in self.results if r.peers_lost
        }  # fmt: skip

    def numbers(self) -> dict[str, float | int | None]:
        """The five numbers. Still-shared is None where the device's clones do not share."""
        forward = [r for r in self.results if r.case.database == "op" and r.case.check == "forward"]
        watched = [r for r in self.results if r.peers]
        errors = sum(r.errors for r in self.results)
        kept = sum(r.peers == r.peers_kept for r in watched)
        return {
            "equal %": percent(len(self.results) - len(self.different), len(self.results)),
            "native %": percent(sum(r.native_samples for r in forward), sum(r.samples for r in forward)),
            "still-shared %": percent(kept, len(watched)) if watched else None,
            "error parity %": percent(sum(r.same_errors for r in self.results), errors),
            "unexplained differences": len(self.unexplained),
        }

    def by_check(self) -> dict[str, dict[str, int]]:
        """Executed and differing cases, and executed samples, by database and check."""
        rows: dict[str, Counter] = defaultdict(Counter)
        for r in self.results:
            row = rows[f"{r.case.database} {r.case.check}"]
            row.update(cases=1, samples=r.samples, equal=int(r.equal), errors=r.errors, same_errors=r.same_errors)
            if not r.equal:
                row["expected" if key_of(r.case) in self.expected.differences else "unexplained"] += 1
        order = {f"{database} {check}": i for i, (database, check) in
                 enumerate((d, c) for d in ("op", "module", "optim") for c in CHECKS)}  # fmt: skip
        return {name: dict(rows[name]) for name in sorted(rows, key=order.__getitem__)}

    def fallbacks(self) -> dict[str, int]:
        total: Counter = Counter()
        for r in self.results:
            total.update(r.fallbacks)
        return dict(total.most_common())

    def capped(self) -> dict[str, list[int]]:
        """Entries with more samples than the cap in some check: samples run and in the database, the largest by
        name."""
        most: dict[str, list[int]] = {}
        for r in self.results:
            if r.capped_from > most.get(r.case.name, [0, 0])[1]:
                most[r.case.name] = [self.tier.cap(r.case), r.capped_from]
        return dict(sorted(most.items(), key=lambda item: -item[1][1]))

    def as_json(self) -> dict:
        return {
            "device": self.device,
            "tier": self.tier.name,
            "versions": self.versions,
            "databases": database_sizes(),
            "sample caps": self.tier.samples,
            "numbers": self.numbers(),
            "executed": self.by_check(),
            "unexplained": [r.as_json() for r in self.unexplained],
            "expected": [{**r.as_json(), "reason": self.expected.differences[key_of(r.case)]} for r in self.different
                         if key_of(r.case) in self.expected.differences],
            "stale": [case.id for case in self.stale],
            "entries that share": sum(r.peers > 0 for r in self.results),
            "no longer shared": self.unshared(),
            "texts that name the device": {r.case.id: r.device_texts for r in self.results if r.device_texts},
            "fallbacks": self.fallbacks(),
            "capped": self.capped(),
            "seconds": {r.case.id: round(r.seconds, 2) for r in self.results if r.seconds >= 5},
        }  # fmt: skip

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(self.as_json(), indent=1) + "\n")

    def print(self, console: Console) -> None:
        table = Table(title=f"{self.device} against stock CPU, {self.tier.name} tier")
        columns = ("cases", "samples", "equal", "expected", "unexplained", "errors", "same_errors")
        table.add_column("check")
        for column in columns:
            table.add_column(column.replace("_", " "), justify="right")
        rows = self.by_check()
        for name, row in rows.items():
            table.add_row(name, *(f"{row.get(column, 0):,}" for column in columns))
        table.add_section()
        table.add_row("all", *(f"{sum(row.get(column, 0) for row in rows.values()):,}" for column in columns))
        console.print(table)

        _list(console, "Unexplained differences", [f"{r.case.id}: {r.differences[0]}" for r in self.unexplained])
        _list(console, "Expected to differ, and equal (remove them)", [case.id for case in self.stale])
        sharing = sum(r.peers > 0 for r in self.results)
        unshared = [f"{name}: {text}" for name, text in self.unshared().items()]
        _list(
            console, f"Of {sharing} entries, those whose operands no longer share though they were only read", unshared
        )
        caps = ", ".join(f"{name} {run} of {n}" for name, (run, n) in list(self.capped().items())[:8])
        if caps:
            console.print(
                f"Samples capped (evenly taken) in {len(self.capped())} entries: {caps}, ...", highlight=False
            )
        sizes = ", ".join(f"{name} {size}" for name, size in database_sizes().items())
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        console.print(f"{versions}; {sizes}", highlight=False)
        for name, number in self.numbers().items():
            shown = "-" if number is None else f"{number:.2f}" if isinstance(number, float) else str(number)
            console.print(f"[bold]{name:>24} {shown:>8}[/bold]", highlight=False)


def _list(console: Console, title: str, lines: list[str]) -> None:
    if lines:
        console.print(f"[bold]{title}: {len(lines)}[/bold]", highlight=False)
        for line in lines[:_LISTED]:
            console.print(f"  {line[:300]}", highlight=False, markup=False)
        if len(lines) > _LISTED:
            console.print(f"  ... and {len(lines) - _LISTED} more, in the JSON file", highlight=False)
