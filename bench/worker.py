"""Processes to measure in: one worker a baseline, which has torch loaded and computes nothing, and a fork of it for
every case. So cases start alike, cannot disturb one another, and a crash is a row."""

from __future__ import annotations

import multiprocessing
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from typing import Any, Self

TCMALLOC = "libtcmalloc_minimal.so.4"

# FLEXCPU_SIMD caps the device, oneDNN 3.2 with it; the others cap stock: ATen's kernels, its oneDNN, its MKL.
SIMD_CAPS = {
    "baseline": {
        "FLEXCPU_SIMD": "baseline",
        "ATEN_CPU_CAPABILITY": "default",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
    },
    "avx2": {
        "FLEXCPU_SIMD": "avx2",
        "ATEN_CPU_CAPABILITY": "avx2",
        "ONEDNN_MAX_CPU_ISA": "AVX2",
        "MKL_ENABLE_INSTRUCTIONS": "AVX2",
    },
}


class Failed(RuntimeError):
    """What happened to a process instead of a result."""


class Worker:
    """worker.call(function, *arguments) runs a function in a fresh process and returns its value, or raises Failed.

    All of that must be picklable. `environment` holds for the worker from its start, as preloaded libraries and caps
    need.
    """

    def __init__(self, environment: dict[str, str] | None = None):
        context = multiprocessing.get_context("spawn")
        self._connection, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs,))
        with _environment(environment or {}):
            self._process.start()
        theirs.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._connection.close()
        self._process.join()

    def call(self, function: Callable, *arguments: Any, timeout: float = 600) -> Any:
        try:
            self._connection.send((function, arguments, timeout))
            failed, value = self._connection.recv()
        except (EOFError, ConnectionError) as error:
            raise Failed("the worker has ended") from error
        if failed:
            raise Failed(value)
        return value


def environment(threads: int, simd: str | None = None, *, tcmalloc: bool = False) -> dict[str, str]:
    """Of a worker. Threads are set for libraries that read their number at the start."""
    found = {"OMP_NUM_THREADS": str(threads), "MKL_NUM_THREADS": str(threads)} | SIMD_CAPS.get(simd, {})
    if tcmalloc:
        found["LD_PRELOAD"] = " ".join(filter(None, (TCMALLOC, os.environ.get("LD_PRELOAD"))))
    return found


@contextmanager
def _environment(changes: dict[str, str]) -> Iterator[None]:
    before = dict(os.environ)
    os.environ.update(changes)
    try:
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def _serve(connection: Connection) -> None:
    # Imported once, for all forks. Optimizers import dynamo at their first step: 70 MB, which would be a case's peak.
    import torch._dynamo  # noqa: F401

    import flexcpu  # noqa: F401

    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the user's interrupt is for the one who asks
    while True:
        try:
            function, arguments, timeout = connection.recv()
        except EOFError:
            return
        connection.send(_in_fork(function, arguments, timeout))


def _in_fork(function: Callable, arguments: tuple, timeout: float) -> tuple[bool, Any]:
    """(False, the value) or (True, what went wrong)."""
    context = multiprocessing.get_context("fork")
    ours, theirs = context.Pipe(duplex=False)
    process = context.Process(target=_child, args=(theirs, function, arguments))
    process.start()
    theirs.close()
    try:
        if not ours.poll(timeout):
            return True, f"no result after {timeout:g} s"
        return ours.recv()
    except EOFError:
        process.join()
        code = process.exitcode
        return True, f"ended by {signal.Signals(-code).name}" if code < 0 else f"ended with status {code}"
    finally:
        process.kill()
        process.join()


def _child(connection: Connection, function: Callable, arguments: tuple) -> None:
    try:
        answer = False, function(*arguments)
    except Exception as error:
        answer = True, f"{type(error).__name__}: {' '.join(str(error).split())}"[:500]
    connection.send(answer)
