"""One test a case, run by the same workers as the command line's: pytest --pyargs flexcpu.conformance."""

from __future__ import annotations

import os
from functools import cache

import pytest

from . import expected
from .databases import TIERS, Case, cases
from .workers import Worker

DEVICE = os.environ.get("FLEXCPU_CONFORMANCE_DEVICE", "flex")
TIER = TIERS[os.environ.get("FLEXCPU_CONFORMANCE_TIER", "quick")]


@cache
def reasons() -> dict[tuple[str, str, str], str]:
    return {} if DEVICE == "cpu" else expected.load().differences


@pytest.fixture(scope="session")
def worker():
    worker = Worker(DEVICE, TIER)
    yield worker
    worker.close()


@pytest.mark.parametrize("case", cases(TIER), ids=lambda case: case.id)
def test_equals_cpu(worker: Worker, case: Case) -> None:
    result = worker.run(case)
    reason = reasons().get(expected.key_of(case))
    if reason and not result.equal:
        pytest.xfail(reason)
    assert result.equal, "\n".join(
        [f"{result.different_samples} differences in {result.samples} samples", *result.differences]
    )
