"""The cases: a file a family. A file holds `CASES`, a list of bench.case.Case, and is found by being here."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterable
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import cache

from ..case import Case


@cache
def families() -> dict[str, list[Case]]:
    """All cases, by family."""
    found = {}
    for module in pkgutil.iter_modules(__path__):
        cases = importlib.import_module(f"{__name__}.{module.name}").CASES
        found[module.name] = [replace(case, family=module.name) for case in cases]
    return found


def select(patterns: Iterable[str]) -> list[Case]:
    """Cases whose family or "family:case" matches one of the patterns; all, if there is none. Raises LookupError for
    a pattern that nothing matches."""
    everything = [case for cases in families().values() for case in cases]
    chosen: set[str] = set()
    for pattern in patterns:
        matching = {case.id for case in everything if fnmatchcase(case.id if ":" in pattern else case.family, pattern)}
        if not matching:
            raise LookupError(f"no case matches {pattern!r}; families: {', '.join(families())}")
        chosen |= matching
    return [case for case in everything if case.id in chosen] if chosen else everything
