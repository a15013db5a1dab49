"""expected_differences.toml: the cases that may differ from the CPU, the ops that end sharing, and the reasons."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass, field
from pathlib import Path

from .databases import FULL, Case, cases

PATH = Path(__file__).with_name("expected_differences.toml")
LIMIT = 100  # differences


@dataclass(frozen=True)
class Expected:
    """`differences`: reasons by (name, dtype, check). `unshared`: reasons by the op that ends its operands' sharing."""

    differences: dict[tuple[str, str, str], str] = field(default_factory=dict)
    unshared: dict[str, str] = field(default_factory=dict)


def load(path: Path = PATH) -> Expected:
    """Reads the file.

    Raises ValueError for an entry without a reason, one that names no case, one named twice, or more than LIMIT
    differences.
    """
    with open(path, "rb") as file:
        given = tomllib.load(file)
    if len(given.get("difference", [])) > LIMIT:
        raise ValueError(f"{path.name}: {len(given['difference'])} differences, at most {LIMIT} are allowed")
    known = {(case.name, case.dtype, case.check) for case in cases(FULL)}
    expected = Expected()
    for entry in given.get("difference", []):
        _check(path, entry, "op", "dtypes", "check", "reason")
        for dtype in entry["dtypes"]:
            key = (entry["op"], dtype, entry["check"])
            if key not in known:
                raise ValueError(f"{path.name}: there is no case {'-'.join(key)}")
            if key in expected.differences:
                raise ValueError(f"{path.name}: {'-'.join(key)} is named twice")
            expected.differences[key] = entry["reason"].strip()
    for entry in given.get("unshared", []):
        _check(path, entry, "op", "reason")
        if entry["op"] not in {name for name, _, _ in known}:
            raise ValueError(f"{path.name}: there is no op {entry['op']}")
        expected.unshared[entry["op"]] = entry["reason"].strip()
    return expected


def _check(path: Path, entry: dict, *fields: str) -> None:
    if set(entry) != set(fields) or not entry["reason"].strip():
        raise ValueError(f"{path.name}: an entry has exactly {', '.join(fields)}: {entry}")


def key_of(case: Case) -> tuple[str, str, str]:
    return case.name, case.dtype, case.check
