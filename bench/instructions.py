"""Instructions per call, counted by valgrind's callgrind: a number that noise does not move.

One process runs all statements on both devices under callgrind, which counts between the calls of torch's own
bindings and writes a file for each. Valgrind knows no AVX-512, so both devices are capped to AVX2.
"""

from __future__ import annotations

import json
import pickle
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from rich.console import Console
from rich.table import Table

from . import machine
from .case import Case
from .report import number
from .timing import Loop
from .worker import Failed, Worker, environment

DEVICES = ("cpu", "flex")
MISSING = "valgrind is not installed (apt-get install valgrind)"
_WARM_UP = 20


def count(cases: list[Case], calls: int) -> dict[str, dict[str, float]]:
    """{case: {"cpu": instructions per call, "flex": ...}}, without those of the loop itself. Takes minutes: torch
    loads under valgrind. Raises Failed."""
    valgrind = shutil.which("valgrind")
    if not valgrind:
        raise Failed(MISSING)
    with tempfile.TemporaryDirectory(prefix="bench-") as folder:
        work = Path(folder) / "cases"
        work.write_bytes(pickle.dumps((cases, calls)))
        command = [valgrind, "--tool=callgrind", "--collect-atstart=no", f"--callgrind-out-file={folder}/out"]
        command += [sys.executable, "-m", "bench.instructions", str(work)]
        with Worker(_environment()) as worker:
            done = worker.call(_run, command, timeout=3600)
        if done.returncode:
            raise Failed(done.stderr[-2000:])
        found = [_total(Path(f"{folder}/out.{i + 1}"), calls) for i in range(1 + len(cases) * len(DEVICES))]
    loop, *counts = found
    pairs = zip(counts[::2], counts[1::2], strict=True)
    return {case.id: {"cpu": a - loop, "flex": b - loop} for case, (a, b) in zip(cases, pairs, strict=True)}


def main(cases: list[Case], calls: int, path: Path | None, console: Console) -> int:
    try:
        counts = count(cases, calls)
        with Worker(_environment()) as worker:
            found = {"machine": worker.call(machine.describe, 1), "instructions": counts}
    except Failed as failure:
        console.print(str(failure), markup=False)
        return 2
    table = Table("case", "statement", title="Instructions per call", title_justify="left")
    for column in ("stock", "flex", "ratio"):
        table.add_column(column, justify="right")
    for case in cases:
        stock, flex = (counts[case.id][device] for device in DEVICES)
        ratio = f"[{'red' if flex > stock else 'green'}]{number(stock / flex)}[/]"
        table.add_row(case.name, case.statement.replace("[", r"\["), f"{stock:,.0f}", f"{flex:,.0f}", ratio)
    console.print(table)
    more = [case.name for case in cases if counts[case.id]["flex"] > counts[case.id]["cpu"]]
    console.print(f"More than stock: {len(more)} of {len(cases)}: {', '.join(more)}", highlight=False)
    console.print(machine.line(found["machine"]), highlight=False, markup=False, soft_wrap=True)
    if path:
        path.write_text(json.dumps(found, indent=1) + "\n")
    return 0


def _environment() -> dict[str, str]:
    """Strings hash alike in every run, or dictionaries would take other numbers of steps."""
    return environment(1, "avx2") | {"PYTHONHASHSEED": "0"}


def _run(command: list[str]) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def _total(path: Path, calls: int) -> float:
    """Instructions per call in one of callgrind's files."""
    match = re.search(r"^(?:summary|totals): (\d+)", path.read_text(), re.MULTILINE)
    return int(match[1]) / calls


def _measure(cases: list[Case], calls: int) -> None:
    """Runs under callgrind: an empty loop first, then every case on both devices; a file of counts for each."""
    torch.set_num_threads(1)
    loops = [Loop("None", {})]
    loops += [Loop(case.statement_on(device), case.build(device)) for case in cases for device in DEVICES]
    for loop in loops:
        loop.calls = _WARM_UP
        loop.window()
        loop.calls = calls
        torch._C._valgrind_toggle()
        loop.run()
        torch._C._valgrind_toggle_and_dump_stats()


if __name__ == "__main__":
    _measure(*pickle.loads(Path(sys.argv[1]).read_bytes()))
