"""Worker processes that run cases one at a time, so that a crash or a hang costs one case and is named.

Workers are forked by a server process that has imported the databases and has run no op: a replacement is there at
once.
"""

from __future__ import annotations

import faulthandler
import multiprocessing
import os
import signal
import tempfile
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import groupby
from multiprocessing.connection import Connection, wait

from .databases import Case, Tier
from .results import Result

_CONTEXT = multiprocessing.get_context("forkserver")
_CONTEXT.set_forkserver_preload(["flexcpu.conformance.run"])

Initializer = Callable[[], None]


def _serve(
    connection: Connection, errors: str, position, device: str, tier: str, initializer: Initializer | None
) -> None:
    """The worker: receives lists of cases, sends None as a case begins and its result as it ends."""
    import torch

    from .databases import TIERS
    from .devices import DEVICES
    from .run import Runner

    descriptor = os.open(errors, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    os.dup2(descriptor, 2)
    faulthandler.enable()
    torch.set_num_threads(1)
    if initializer:
        initializer()

    def progress(index: int) -> None:
        position.value = index

    runner = Runner(DEVICES[device](), TIERS[tier], progress)
    connection.send("ready")
    while True:
        try:
            cases = connection.recv()
        except EOFError:
            return
        for case in cases:
            connection.send(None)
            connection.send(runner.run(Case(*case)))


class Worker:
    """One worker process and its successors."""

    def __init__(self, device: str, tier: Tier, initializer: Initializer | None = None):
        self._arguments = (device, tier.name, initializer)
        self._timeout = tier.timeout
        self._directory = tempfile.TemporaryDirectory(prefix="flexcpu-conformance-")
        self._errors = os.path.join(self._directory.name, "stderr")
        self._position = _CONTEXT.Value("q", -1, lock=False)
        self.cases: deque[Case] = deque()
        self._begun = 0.0
        self._start()

    def _start(self) -> None:
        self.connection, theirs = _CONTEXT.Pipe()
        arguments = (theirs, self._errors, self._position, *self._arguments)
        self._process = _CONTEXT.Process(target=_serve, args=arguments, daemon=True)
        self._process.start()
        theirs.close()
        if not self.connection.poll(600) or self._receive() != "ready":
            self._process.join(10)
            raise RuntimeError(f"a worker did not start: {self._last_words() or self._process.exitcode}")

    def _receive(self) -> object:
        try:
            return self.connection.recv()
        except (EOFError, ConnectionResetError):
            return EOFError

    def give(self, cases: Iterable[Case]) -> None:
        """Hands out cases; the worker must be idle."""
        self.cases = deque(cases)
        self._begun = time.monotonic()
        if self.cases:
            self.connection.send([tuple(case) for case in self.cases])

    @property
    def overdue(self) -> bool:
        return bool(self.cases) and time.monotonic() - self._begun > self._timeout

    def take(self) -> Result | None:
        """The next result, if one is there; to be called when the connection is ready or the case is overdue."""
        if not self.connection.poll():
            return self._bury("timeout", f"no end after {self._timeout:g} s") if self.overdue else None
        received = self._receive()
        if received is None:
            self._begun = time.monotonic()
            return None
        if received is EOFError:
            self._process.join(30)
            code = self._process.exitcode
            what = signal.Signals(-code).name if code is not None and code < 0 else f"exit code {code}"
            return self._bury("crash", f"{what} {self._last_words()}".rstrip())
        self.cases.popleft()
        self._begun = time.monotonic()
        return received

    def _bury(self, failure: str, text: str) -> Result:
        """Replaces the process. The case it ran is a failure, those after it go on."""
        if not self.cases:
            raise RuntimeError(f"an idle worker died: {text}")
        result = Result(self.cases.popleft(), failure=failure, seconds=time.monotonic() - self._begun)
        result.differs(f"sample {self._position.value}", f"{failure}: {text}")
        self._stop()
        self._start()
        self.give(self.cases)
        return result

    def _last_words(self) -> str:
        """Where the process died: the message of an abort, and the innermost Python frames."""
        try:
            with open(self._errors, errors="replace") as file:
                lines = [line.strip() for line in file if line.strip()]
        except OSError:
            return ""
        frames = [line for line in lines if line.startswith("File ")][:2]
        words = [line for line in lines if "terminate called" in line or "what():" in line or "ERROR" in line][:2]
        return "; ".join([*words, *frames]) or "; ".join(lines[-2:])

    def _stop(self) -> None:
        if self._process.pid is not None:
            self._process.kill()
            self._process.join()
        self.connection.close()

    def close(self) -> None:
        self._stop()
        self._directory.cleanup()

    def run(self, case: Case) -> Result:
        """Runs one case and waits for it."""
        self.give([case])
        while True:
            wait([self.connection], timeout=1)
            result = self.take()
            if result is not None:
                return result


def run_cases(
    cases: list[Case], device: str, tier: Tier, count: int, initializer: Initializer | None = None
) -> Iterator[Result]:
    """Results of all cases, as they come, from `count` workers. All cases of an entry go to one of them."""
    units = deque(list(unit) for _, unit in groupby(cases, key=lambda case: case[:2]))
    workers: list[Worker] = []
    try:
        for _ in range(min(count, len(units))):
            workers.append(Worker(device, tier, initializer))
        while units or any(worker.cases for worker in workers):
            for worker in workers:
                if not worker.cases and units:
                    worker.give(units.popleft())
            busy = {worker.connection: worker for worker in workers if worker.cases}
            ready = wait(list(busy), timeout=1)
            for connection, worker in busy.items():
                if connection in ready or worker.overdue:
                    result = worker.take()
                    if result is not None:
                        yield result
    finally:
        for worker in workers:
            worker.close()
