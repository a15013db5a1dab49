"""A run: every case against every baseline, in processes of their own."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from . import machine, memory
from .case import Case
from .measure import Row, measure
from .settings import Settings
from .worker import Failed, Worker, environment

TCMALLOC_MISSING = "tcmalloc is not installed (apt-get install libtcmalloc-minimal4)"


@dataclass
class Results:
    """What a run found; a JSON file."""

    settings: Settings
    machine: dict[str, Any]
    rows: list[Row] = field(default_factory=list)

    @property
    def failed(self) -> list[Row]:
        return [row for row in self.rows if row.error]

    @property
    def measured(self) -> list[Row]:
        return [row for row in self.rows if row.ratio]

    @property
    def losses(self) -> list[Row]:
        return [row for row in self.measured if row.ratio.median < 1]

    def write(self, path: Path) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        found = {"settings": asdict(self.settings), "machine": self.machine}
        path.write_text(json.dumps(found | {"rows": [row.as_json() for row in self.rows]}, indent=1) + "\n")

    @classmethod
    def read(cls, path: Path) -> Results:
        found = json.loads(path.read_text())
        return cls(Settings(**found["settings"]), found["machine"], [Row.from_json(row) for row in found["rows"]])


def run(
    cases: Iterable[Case], settings: Settings, *, simd: str | None = None, tcmalloc: bool = False
) -> Iterator[Results]:
    """Yields the results, first without rows, and again with every case that is done.

    Raises Failed if tcmalloc is asked for and cannot be had.
    """
    with ExitStack() as stack:
        baselines = {"stock": stack.enter_context(Worker(environment(settings.threads, simd)))}
        if tcmalloc:
            worker = stack.enter_context(Worker(environment(settings.threads, simd, tcmalloc=True)))
            if worker.call(machine.allocator) != "tcmalloc":
                raise Failed(TCMALLOC_MISSING)
            baselines["tcmalloc"] = worker
        results = Results(settings, baselines["stock"].call(machine.describe, settings.threads))
        yield results
        for case in cases:
            for baseline, worker in baselines.items():
                results.rows += _rows(case, settings, worker, baseline)
            yield results


def _rows(case: Case, settings: Settings, worker: Worker, baseline: str) -> list[Row]:
    try:
        rows = worker.call(measure, case, settings, timeout=settings.timeout)
    except Failed as failure:
        rows = [Row(case.id, "fresh", case.statement, error=str(failure))]
    fresh = rows[0]
    if not fresh.error:
        try:
            fresh.memory = {
                name: worker.call(memory.peak, case, device, settings, timeout=settings.timeout)
                for name, device in (("stock", "cpu"), ("device", settings.device))
            }
        except Failed as failure:
            fresh.error = f"peak memory: {failure}"
    for row in rows:
        row.baseline = baseline
        if baseline != "stock":  # marks are for stock as users have it
            row.mark, row.verdict, row.memory_mark = None, "", None
    return rows
