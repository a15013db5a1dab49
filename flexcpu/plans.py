"""Which way the kernels went."""

from __future__ import annotations

from dataclasses import dataclass

import torch


@dataclass(frozen=True)
class Plan:
    """How one kernel was carried out: chosen from dtypes and layouts, never from data.

    family: "copy", "elementwise", "reduce"
    route: the way that was taken
    dtypes: of the operands, the result first
    extents: of the loops, after dimensions that all operands walk as one were merged; the innermost last
    threads: how many took part
    refusals: why the faster routes were not taken, by route
    """

    family: str
    route: str
    dtypes: tuple[torch.dtype, ...]
    extents: tuple[int, ...]
    threads: int
    refusals: dict[str, str]

    def __str__(self) -> str:
        result, *sources = (str(dtype).removeprefix("torch.") for dtype in self.dtypes)
        loops = " x ".join(map(str, self.extents)) or "1"
        threads = f"{self.threads} thread{'s' * (self.threads != 1)}"
        lines = [f"{self.family}: {self.route}, {result} from {', '.join(sources)}, {loops}, {threads}"]
        return "\n".join(lines + [f"  not {route}: {reason}" for route, reason in self.refusals.items()])


class Plans(list):
    """Of `Plan`, in the order in which the kernels ran. `str()` gives a line for each, and one for every refusal."""

    def __str__(self) -> str:
        return "\n".join(map(str, self))


class explain:
    """Keeps the plans of the kernels that this thread runs in the block, backward included:

        with flexcpu.explain() as plans:
            y = x.t().contiguous()
        print(plans)

    The list is filled when the block is left. What ran on the CPU's kernels, and what needed none, as a clone that
    shares, is not in it.
    """

    def __enter__(self) -> Plans:
        from . import _C

        self._plans = Plans()
        self._mark = _C.begin_explaining()
        return self._plans

    def __exit__(self, *error: object) -> None:
        from . import _C

        self._plans.extend(Plan(*plan) for plan in _C.explained_since(self._mark))
