"""A picture of a run: ratios with their spreads, on a logarithmic axis."""

from __future__ import annotations

from pathlib import Path

from . import machine
from .run import Results


def plot(results: Results, path: Path) -> None:
    """A PNG with a line a row, the families in the order of the run. Red is below 1, grey is not sure."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    rows = results.measured
    figure, axes = pyplot.subplots(figsize=(10, 1.5 + 0.22 * len(rows)), layout="constrained")
    for position, row in enumerate(rows):
        found = row.ratio
        color = "#b30000" if found.below_one else "#888888" if found.low < 1 or not found.sure else "#2171b5"
        axes.plot((found.low, found.high), (position, position), color=color, linewidth=4, solid_capstyle="butt")
        axes.plot(found.median, position, "o", color=color, markersize=4)
        if row.mark is not None:
            axes.plot(row.mark, position, "|", color="black", markersize=9)
    axes.axvline(1, color="black", linewidth=0.8)
    axes.set_yticks(range(len(rows)), [row.id.removesuffix(" stock") for row in rows], fontsize=7)
    axes.set(xscale="log", xlabel="stock / flex; to the right is faster, | is the mark", ylim=(len(rows) - 0.5, -0.5))
    axes.grid(axis="x", alpha=0.3)
    figure.suptitle(machine.line(results.machine).replace("; ", "\n"), fontsize=7, x=0.01, ha="left")
    figure.savefig(path, dpi=150)
    pyplot.close(figure)
