"""Runs one case, in this process."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable

import torch

from . import module_checks, op_checks, optim_checks
from .databases import Case, Tier, dtype_named, entries
from .devices import Device
from .execution import describe
from .results import Result
from .subject import Subject

_CHECKS = {"op": op_checks.CHECKS, "module": module_checks.CHECKS, "optim": optim_checks.CHECKS}
_SUBJECTS = {"op": op_checks.OpSubject, "module": module_checks.ModuleSubject, "optim": optim_checks.OptimSubject}


class Runner:
    """Runs cases of one tier on one device. The samples of an entry are kept until a case of another entry comes."""

    def __init__(self, device: Device, tier: Tier, progress: Callable[[int], None] = lambda index: None):
        self.device = device
        self.tier = tier
        self.progress = progress
        self._key: tuple | None = None
        self._subject: Subject | None = None
        torch.set_warn_always(True)  # else a warning is shown for whichever device runs first

    def run(self, case: Case) -> Result:
        result = Result(case)
        started = time.perf_counter()
        self.progress(-1)
        check = _CHECKS[case.database][case.check]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # those of the database; those of the ops are recorded
            try:
                check(self._subject_of(case), result, self.tier.cap(case))
            except Exception as error:  # not the op's: what the device does outside of it, the database or the harness
                result.failure = "harness"
                result.differs("harness", describe(error))
        result.seconds = time.perf_counter() - started
        return result

    def _subject_of(self, case: Case) -> Subject:
        key = case[:3]
        if key != self._key:
            info = entries()[case.database, case.name]
            self._subject = _SUBJECTS[case.database](info, dtype_named(case.dtype), self.device, self.progress)
            self._key = key
        return self._subject
