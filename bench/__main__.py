"""python -m bench: see the package."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

try:
    from rich.console import Console
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
    from rich.table import Table
except ImportError as error:
    sys.exit(f"{error}; the benchmarks need more packages: pip install 'flexcpu[bench]'")

from . import compare, instructions, report
from .cases import select
from .plot import plot
from .run import Results, run
from .settings import QUICK, Settings
from .worker import SIMD_CAPS, Failed


def _arguments(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench", description="The flex device against stock CPU PyTorch.")
    commands = parser.add_subparsers(dest="command", required=True)
    cases = {"nargs": "*", "metavar": "CASES", "help": "families, or family:case, with * and ?; default: all"}

    command = commands.add_parser("run", help="measure")
    command.add_argument("cases", **cases)
    command.add_argument("--threads", type=int, default=1)
    command.add_argument("--json", type=Path, metavar="FILE", help="where the results go")
    command.add_argument("--quick", action="store_true", help="few short windows: shows that all works, no more")
    command.add_argument("--simd", choices=tuple(SIMD_CAPS), help="cap the instruction set of both devices")
    command.add_argument("--tcmalloc", action="store_true", help="measure against stock on tcmalloc, too")
    command.add_argument("--device", choices=("flex", "cpu"), default="flex", help="cpu: stock against itself")
    command.add_argument("--pairs", type=int, help=f"of windows, to begin with (default {Settings.pairs})")
    command.add_argument("--most-pairs", type=int, help=f"for unsure rows (default {Settings.most_pairs})")
    command.add_argument("--window", type=float, metavar="MS", help=f"default {Settings.window_ms:g}")
    command.add_argument("--timeout", type=float, metavar="S", default=Settings.timeout, help="of a case")

    command = commands.add_parser("list", help="the cases and their statements")
    command.add_argument("cases", **cases)

    command = commands.add_parser("compare", help="what moved beyond noise between two runs")
    command.add_argument("before", type=Path)
    command.add_argument("after", type=Path)
    command.add_argument("--threshold", type=float, default=0.05, help="lesser changes are noise (default 0.05)")

    command = commands.add_parser("plot", help="a picture of a run")
    command.add_argument("results", type=Path)
    command.add_argument("--out", type=Path, help="default: beside the results, as .png")

    command = commands.add_parser("instructions", help="instructions per call of tiny tensors' ops, by callgrind")
    command.add_argument("cases", **cases | {"help": "default: tiny"})
    command.add_argument("--json", type=Path, metavar="FILE")
    command.add_argument("--calls", type=int, default=200)
    return parser.parse_args(arguments)


def _settings(arguments: argparse.Namespace) -> Settings:
    given = {"window_ms": arguments.window, "pairs": arguments.pairs, "most_pairs": arguments.most_pairs}
    given = (QUICK if arguments.quick else {}) | {name: value for name, value in given.items() if value is not None}
    pairs = given.get("pairs", Settings.pairs)
    given["most_pairs"] = max(pairs, given.get("most_pairs", Settings.most_pairs))
    return Settings(arguments.device, arguments.threads, timeout=arguments.timeout, **given)


def _run(arguments: argparse.Namespace, console: Console) -> int:
    cases = select(arguments.cases)
    settings = _settings(arguments)
    results: Results | None = None
    terminal = sys.stdout.isatty()
    columns = (TextColumn("{task.description:40.40}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not terminal) as progress:
            task = progress.add_task(cases[0].id, total=len(cases))
            for done, results in enumerate(run(cases, settings, simd=arguments.simd, tcmalloc=arguments.tcmalloc)):
                progress.update(task, completed=done, description=cases[min(done, len(cases) - 1)].id)
                if done and not terminal:
                    print(f"{done} of {len(cases)}: {cases[done - 1].id}", file=sys.stderr, flush=True)
                if arguments.json:
                    results.write(arguments.json)
    except Failed as failure:
        console.print(str(failure), markup=False)
        return 2
    except KeyboardInterrupt:
        if results is None:
            return 130
        console.print("interrupted: what is done so far")
    report.print_results(results, console)
    if arguments.quick:
        console.print("[yellow]A quick run: no number of it is worth quoting.[/]")
    missed = any("missed" in (row.verdict, row.memory_verdict) for row in results.rows)
    return 1 if results.failed or missed else 0


def _list(arguments: argparse.Namespace, console: Console) -> int:
    table = Table("case", "statement", "out", "mark", title_justify="left")
    for case in select(arguments.cases):
        mark = "" if case.mark is None else f"{case.mark:g}"
        stock = f"   (stock: {case.stock})" if case.stock else ""
        cells = (case.id, case.statement + stock, case.out or "", mark)
        table.add_row(*(cell.replace("[", r"\[") for cell in cells))
    console.print(table)
    return 0


def _compare(arguments: argparse.Namespace, console: Console) -> int:
    before, after = Results.read(arguments.before), Results.read(arguments.after)
    found = compare.compare(before, after, arguments.threshold)
    compare.print_comparison(found, before, after, console)
    return 1 if found.slower or found.broken else 0


def _plot(arguments: argparse.Namespace, console: Console) -> int:
    path = arguments.out or arguments.results.with_suffix(".png")
    plot(Results.read(arguments.results), path)
    console.print(f"wrote {path}", highlight=False)
    return 0


def _instructions(arguments: argparse.Namespace, console: Console) -> int:
    return instructions.main(select(arguments.cases or ["tiny"]), arguments.calls, arguments.json, console)


def main(arguments: list[str] | None = None) -> int:
    """The exit status: 1 if a case failed, a mark was missed, or (compare) a row got slower; 2 if nothing was run."""
    parsed = _arguments(arguments)
    console = Console(width=None if sys.stdout.isatty() else 160)
    commands = {"run": _run, "list": _list, "compare": _compare, "plot": _plot, "instructions": _instructions}
    try:
        return commands[parsed.command](parsed, console)
    except LookupError as error:
        console.print(str(error.args[0]), markup=False)
        return 2


if __name__ == "__main__":
    sys.exit(main())
