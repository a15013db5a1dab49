"""Ratios, how sure they are, and what that says about a mark."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

WIDE = 0.1  # a spread of more than this share of the ratio gets more pairs


ENOUGH = 6  # samples: with fewer, not even all that they span holds the true median with 95 % confidence


@dataclass(frozen=True)
class Spread:
    """A median of some samples, and the interval [low, high] that holds the true one with 95 % confidence, or all that
    they span if they are not enough to tell."""

    low: float
    median: float
    high: float
    samples: int

    @property
    def sure(self) -> bool:
        return self.samples >= ENOUGH

    @property
    def below_one(self) -> bool:
        return self.sure and self.high < 1

    @property
    def wide(self) -> bool:
        return self.high - self.low > WIDE * self.median


def spread(samples: Sequence[float]) -> Spread:
    """The interval comes from order statistics: it asks nothing of the samples' distribution, and outliers do not
    move it."""
    ordered = sorted(samples)
    n = len(ordered)
    # The k-th sample from either end bounds the median unless fewer than k of n coins show heads.
    k, tail = 1, 1 / 2**n
    while 2 * (tail + math.comb(n, k) / 2**n) <= 0.05:
        tail += math.comb(n, k) / 2**n
        k += 1
    return Spread(ordered[k - 1], median(ordered), ordered[n - k], n)


def verdict(found: Spread, mark: float) -> str:
    """ "met" if all of the spread reaches the mark, "missed" if none of it does, else "unclear"."""
    if not found.sure:
        return "unclear"
    if found.low >= mark:
        return "met"
    return "missed" if found.high < mark else "unclear"


def apart(a: Spread, b: Spread, threshold: float) -> bool:
    """Whether b moved beyond noise: the spreads do not meet, and the medians differ by more than the threshold. The
    latter is for what one process cannot see of itself: where its memory and code came to lie."""
    return a.sure and b.sure and (a.high < b.low or b.high < a.low) and abs(b.median / a.median - 1) > threshold
