"""Whether two samplers draw from one distribution."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.utils._pytree import tree_leaves

_DRAWS = 128  # calls of each sampler
_VALUES = 30_000  # numbers of each sampler, at most
_P_VALUE = 1e-6  # of the two-sample Kolmogorov-Smirnov test; seeds are fixed, so a verdict is reproducible


def distribution_difference(expected: Callable[[int], Any], actual: Callable[[int], Any]) -> str | None:
    """Compares samplers (seed -> tensors) by all their numbers pooled, and by the mean of each draw.

    The pool sees a wrong distribution of single numbers; the means see numbers that depend on one another.
    """
    from scipy.stats import ks_2samp

    pools, means = zip(
        *(_numbers(sampler, range(start, start + _DRAWS)) for sampler, start in ((expected, 0), (actual, _DRAWS)))
    )
    for name, (e, a) in (("numbers", pools), ("means of draws", means)):
        if len(e) and len(a):
            p_value = ks_2samp(e.numpy(), a.numpy(), method="asymp").pvalue
            if p_value < _P_VALUE:
                found = f"p = {p_value:.1e}, means {a.mean():.6g} and {e.mean():.6g}"
                return f"{name} are distributed otherwise than on CPU: {found}"
    return None


def _numbers(sampler: Callable[[int], Any], seeds: range) -> tuple[torch.Tensor, torch.Tensor]:
    pooled, means = [], []
    for seed in seeds:
        tensors = [t for t in tree_leaves(sampler(seed)) if isinstance(t, torch.Tensor)]
        parts = [torch.view_as_real(t.to(torch.complex64).resolve_conj()) if t.is_complex() else t for t in tensors]
        drawn = torch.cat([part.to(torch.float64).flatten() for part in parts] or [torch.empty(0, dtype=torch.float64)])
        drawn = drawn[~drawn.isnan()]
        pooled.append(drawn[: _VALUES // _DRAWS])
        if drawn.numel():
            means.append(drawn.mean())
    return torch.cat(pooled), torch.stack(means) if means else torch.empty(0)
