"""What a check found out about one case."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

from .compare import Tolerance, aliases, difference, tensors
from .databases import Case
from .execution import Outcome, describe, without_device

_KEPT = 4  # differences told in full for each case


@dataclass
class Result:
    """Counts and differences of one case. `samples` counts what was run on the CPU, so it does not depend on the
    device."""

    case: Case
    samples: int = 0
    different_samples: int = 0
    differences: list[str] = field(default_factory=list)  # the first few, in full
    errors: int = 0  # samples that the CPU rejects
    same_errors: int = 0  # of these, rejected with the same type and text
    device_texts: list[str] = field(default_factory=list)  # messages that differ, but only where they name the device
    native_samples: int = 0  # forward: samples that never reached the fallback
    fallbacks: Counter = field(default_factory=Counter)  # forward: samples in which an op fell back
    peers: int = 0  # shared: read-only inputs that began sharing with a clone
    peers_kept: int = 0  # of these, still sharing after the op
    peers_lost: list[str] = field(default_factory=list)  # the others: sample and position
    capped_from: int = 0  # samples in the database, where fewer were run
    seconds: float = 0.0
    failure: str = ""  # "crash", "timeout" or "harness", where the check did not finish

    @property
    def equal(self) -> bool:
        return not self.different_samples and not self.failure

    def differs(self, where: str, what: str) -> None:
        self.different_samples += 1
        if len(self.differences) < _KEPT:
            self.differences.append(f"{where}: {what}"[:800])

    def compare_errors(self, expected: Outcome, actual: Outcome) -> str | None:
        """Compares two outcomes of which the expected one is an exception."""
        self.errors += 1
        if actual.error is None:
            return f"accepted; CPU raises {describe(expected.error)}"
        same_type = type(actual.error) is type(expected.error)
        actual_text, expected_text = str(actual.error), str(expected.error)
        if not same_type or without_device(actual_text) != without_device(expected_text):
            return f"raises {describe(actual.error)}; CPU raises {describe(expected.error)}"
        self.same_errors += 1
        if actual_text != expected_text and len(self.device_texts) < _KEPT:
            self.device_texts.append(f"{actual_text} | {expected_text}"[:600])
        return None

    def compare(
        self, where: str, expected: Outcome, actual: Outcome, inputs: tuple[Any, Any], tolerance: Tolerance,
        device: str | None, *, values: bool = True,
    ) -> bool:  # fmt: skip
        """Records the first difference of a device's outcome to the CPU's; True if there is none.

        `inputs` are the operands on the CPU and on the device, as the call has left them; their tensors are compared.
        """
        values = values and not expected.random
        expected_inputs, actual_inputs = inputs
        found = None
        if expected.error is not None:
            found = self.compare_errors(expected, actual)
        elif actual.error is not None:
            found = f"raises {describe(actual.error)}"
        else:
            found = difference(actual.value, expected.value, tolerance, device, values=values)
            if not found:
                ours, theirs = aliases((actual_inputs, actual.value)), aliases((expected_inputs, expected.value))
                found = f"operands and results alias as {ours}, on CPU as {theirs}" if ours != theirs else None
        if not found:
            found = difference(tensors(actual_inputs), tensors(expected_inputs), tolerance, None, values=values)
            found = f"operands after the call: {found}" if found else None
        if not found:
            ours, theirs = ([*dict.fromkeys((c, without_device(t)) for c, t in o.warnings)] for o in (actual, expected))
            found = f"warns {ours}, CPU warns {theirs}" if ours != theirs else None
        if found:
            self.differs(where, found)
        return not found

    def as_json(self) -> dict:
        """The fields that say something, for the report."""
        fields = {name: value for name, value in vars(self).items() if value and name != "case"}
        return {"id": self.case.id, "check": self.case.check, **fields, "seconds": round(self.seconds, 3)}
