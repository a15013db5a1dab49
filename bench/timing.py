"""A statement made into a loop, and windows of time over it."""

from __future__ import annotations

import ast
import copy
import gc
import resource
import time
from dataclasses import dataclass
from itertools import repeat
from typing import Any

import torch

MOST_CALLS = 1_000_000

_TEMPLATE = """
def call({names}):
    {before}
    return {last}

def window(calls__, {names}):
    started__ = clock__()
    for _ in repeat__(None, calls__):
        {before}
        {last}
    return clock__() - started__
"""


def parts(statement: str) -> tuple[str, str]:
    """The statements before the last, and the last, whose value is the result."""
    *before, last = ast.parse(statement).body
    if not isinstance(last, ast.Expr):
        raise ValueError(f"the last part of a statement is its result: {statement!r}")
    return "; ".join(map(ast.unparse, before)) or "pass", ast.unparse(last)


@dataclass(frozen=True)
class Window:
    """One window: times in nanoseconds, and page faults."""

    calls: int
    wall: int
    processor: int
    faults: int

    @property
    def per_call(self) -> float:
        return self.wall / self.calls

    @property
    def disturbed(self) -> bool:
        """Whether a single thread was off the processor for more than a tenth of the time."""
        return self.processor < 0.9 * self.wall


class Loop:
    """A statement over inputs. It is compiled with the inputs as parameters, so that nothing but the statement and a
    counter runs in the loop."""

    def __init__(self, statement: str, inputs: dict[str, Any]):
        before, last = parts(statement)
        code = _TEMPLATE.format(names=", ".join(inputs), before=before, last=last)
        scope: dict[str, Any] = {"torch": torch, "F": torch.nn.functional, "copy": copy}
        scope |= {"repeat__": repeat, "clock__": time.perf_counter_ns}
        exec(compile(code, f"<{statement}>", "exec"), scope)
        self._call, self._window = scope["call"], scope["window"]
        self.inputs = inputs
        self.calls = 1

    def __call__(self) -> Any:
        """Runs the statement once and returns its result."""
        return self._call(**self.inputs)

    def run(self) -> int:
        """Nanoseconds that `calls` calls take."""
        return self._window(self.calls, **self.inputs)

    def calibrate(self, nanoseconds: int) -> None:
        """Finds how many calls take so long."""
        while True:
            taken = max(self.run(), 1)
            if taken >= nanoseconds / 4 or self.calls == MOST_CALLS:
                self.calls = min(MOST_CALLS, max(1, round(self.calls * nanoseconds / taken)))
                return
            self.calls = min(MOST_CALLS, self.calls * max(2, nanoseconds // (2 * taken)))

    def window(self) -> Window:
        """Times `calls` calls. Where there are many, an untimed one before them brings the inputs back into cache."""
        collecting = gc.isenabled()
        gc.disable()
        try:
            if self.calls > 1:
                self._call(**self.inputs)
            faults, processor = page_faults(), time.process_time_ns()
            wall = self.run()
            return Window(self.calls, wall, time.process_time_ns() - processor, page_faults() - faults)
        finally:
            if collecting:
                gc.enable()


def page_faults() -> int:
    """Pages that this process has got from the system so far without reading a file."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
