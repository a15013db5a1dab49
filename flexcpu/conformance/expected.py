"""expected_differences.toml: the cases that may differ from the CPU, each with its reason."""

from __future__ import annotations

import tomllib
from pathlib import Path

from .databases import FULL, Case, cases

PATH = Path(__file__).with_name("expected_differences.toml")
LIMIT = 100  # entries


def load(path: Path = PATH) -> dict[tuple[str, str, str], str]:
    """Reasons by (name, dtype, check).

    Raises ValueError for an entry without a reason, one that names no case, one named twice, or more than LIMIT entries.
    """
    with open(path, "rb") as file:
        given = tomllib.load(file).get("difference", [])
    if len(given) > LIMIT:
        raise ValueError(f"{path.name}: {len(given)} entries, at most {LIMIT} are allowed")
    known = {(case.name, case.dtype, case.check) for case in cases(FULL)}
    reasons: dict[tuple[str, str, str], str] = {}
    for entry in given:
        if set(entry) != {"op", "dtypes", "check", "reason"} or not entry["reason"].strip():
            raise ValueError(f"{path.name}: an entry has exactly op, dtypes, check and reason: {entry}")
        for dtype in entry["dtypes"]:
            key = (entry["op"], dtype, entry["check"])
            if key not in known:
                raise ValueError(f"{path.name}: there is no case {'-'.join(key)}")
            if key in reasons:
                raise ValueError(f"{path.name}: {'-'.join(key)} is named twice")
            reasons[key] = entry["reason"].strip()
    return reasons


def key_of(case: Case) -> tuple[str, str, str]:
    return case.name, case.dtype, case.check
