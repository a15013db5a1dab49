"""python -m flexcpu.conformance: see the package."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
except ImportError as error:
    sys.exit(f"{error}; the conformance checks need more packages: pip install 'flexcpu[conformance]'")

from .databases import CHECKS, TIERS, Case, Tier, select
from .devices import DEVICES
from .expected import Expected, load
from .report import Report
from .results import Result
from .run import Runner
from .workers import run_cases


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m flexcpu.conformance", description="Compares a device with stock CPU PyTorch."
    )
    tier = parser.add_mutually_exclusive_group()
    tier.add_argument(
        "--quick", dest="tier", action="store_const", const="quick", help="float32, few samples (default)"
    )
    tier.add_argument("--full", dest="tier", action="store_const", const="full", help="every dtype, all checks")
    parser.set_defaults(tier="quick")
    parser.add_argument(
        "-k",
        dest="words",
        action="append",
        default=[],
        metavar="OP",
        help="only this op, or cases op.variant-dtype-check whose name holds this; may be repeated",
    )
    parser.add_argument("--check", dest="checks", action="append", default=[], choices=CHECKS, help="only this check")
    parser.add_argument("--device", choices=tuple(DEVICES), default="flex", help="cpu proves the harness itself")
    parser.add_argument("--json", type=Path, metavar="FILE", help="default: conformance-DEVICE-TIER.json")
    parser.add_argument(
        "-n",
        dest="workers",
        type=int,
        default=os.cpu_count(),
        metavar="WORKERS",
        help="worker processes (default: one a CPU); 0 runs in this process, for a debugger",
    )
    return parser.parse_args()


def _results(cases: list[Case], device: str, tier: Tier, workers: int) -> Iterator[Result]:
    if workers:
        yield from run_cases(cases, device, tier, workers)
    else:
        runner = Runner(DEVICES[device](), tier)
        yield from (runner.run(case) for case in cases)


def _shown(results: Iterator[Result], total: int, console: Console) -> Iterator[Result]:
    """Passes the results on and shows how far they are: a bar in a terminal, else a line a minute."""
    terminal = sys.stdout.isatty()
    columns = (TextColumn("{task.description:40.40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    told = time.monotonic()
    with Progress(*columns, console=console, transient=True, disable=not terminal) as progress:
        task = progress.add_task("starting", total=total)
        for count, result in enumerate(results, 1):
            progress.update(task, advance=1, description=result.case.name)
            if not terminal and time.monotonic() - told > 60:
                told = time.monotonic()
                console.print(f"{count} of {total} cases, at {result.case.id}", highlight=False)
            yield result


def main() -> int:
    """Runs the checks; the exit status is 1 if a difference is not explained, 2 if nothing was run."""
    arguments = _arguments()
    tier = TIERS[arguments.tier]
    console = Console(width=None if sys.stdout.isatty() else 160)
    cases = select(tier, arguments.words, arguments.checks)
    if not cases:
        console.print("no such case")
        return 2
    known = Expected() if arguments.device == "cpu" else load()
    report = Report(arguments.device, tier, DEVICES[arguments.device]().version(), known)
    started = time.monotonic()
    try:
        for result in _shown(_results(cases, arguments.device, tier, arguments.workers), len(cases), console):
            report.add(result)
    except KeyboardInterrupt:
        console.print(f"interrupted after {len(report.results)} of {len(cases)} cases")
    path = arguments.json or Path(f"conformance-{arguments.device}-{tier.name}.json")
    report.write(path)
    report.print(console)
    console.print(
        f"{time.monotonic() - started:.0f} s with {arguments.workers} workers; details in {path}", highlight=False
    )
    return 1 if report.unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
