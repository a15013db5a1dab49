"""The cases: which check runs on which entry of the installed torch's databases, in which dtype.

Everything here is decided from the databases and the CPU's dtype claims alone, never from the device under test, so
that the same cases are executed on every device.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from typing import NamedTuple

import torch  # before the testing modules: they look up the backend's name when imported
from torch.testing._internal import common_methods_invocations as methods
from torch.testing._internal.common_modules import module_db
from torch.testing._internal.common_optimizers import optim_db

# The database runs random ops under a fixed seed in a scope of its own. The harness seeds every call itself and must
# see whether the generator moved.
methods.wrapper_set_seed = lambda op, *args, **kwargs: op(*args, **kwargs)

DTYPES = (
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.complex64, torch.complex128, torch.complex32,
    torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8, torch.bool, torch.uint16, torch.uint32,
    torch.uint64, torch.float8_e4m3fn, torch.float8_e4m3fnuz, torch.float8_e5m2, torch.float8_e5m2fnuz,
    torch.float8_e8m0fnu,
)  # fmt: skip

# Ops that draw from the generator on at least one sample. Forward fails on one that is missing here.
RANDOM = frozenset(
    """
    bernoulli cauchy exponential geometric log_normal multinomial normal normal.in_place normal.number_mean pca_lowrank
    rand_like randint randint_like randn randn_like svd_lowrank uniform nn.functional.alpha_dropout
    nn.functional.dropout nn.functional.dropout2d nn.functional.dropout3d nn.functional.feature_alpha_dropout.with_train
    nn.functional.fractional_max_pool2d nn.functional.fractional_max_pool3d nn.functional.multi_head_attention_forward
    nn.functional.rrelu nn.functional.scaled_dot_product_attention
""".split()
)

# Ops whose result holds memory that nobody wrote: only its dtype, shape and strides are promised.
UNINITIALIZED = frozenset(
    """
    empty empty_like empty_permuted empty_strided new_empty new_empty_strided resize_ resize_as_
""".split()
)


class Case(NamedTuple):
    """One test: a check on one database entry in one dtype ("any" where the database gives the dtypes itself)."""

    database: str  # "op", "module" or "optim"
    name: str
    dtype: str
    check: str

    @property
    def id(self) -> str:
        return f"{self.name}-{self.dtype}-{self.check}"


@dataclass(frozen=True, eq=False)
class Tier:
    """How much is run. `samples` caps the samples of one (entry, dtype) in a check of ops, or in a check of the other
    databases; they are taken evenly from the list."""

    name: str
    all_dtypes: bool
    samples: dict[str, int]
    timeout: float  # seconds for one case

    def cap(self, case: Case) -> int:
        """The most samples that a case takes; 0 for a check that takes all or makes its own."""
        return self.samples.get(case.check if case.database == "op" else case.database, 0)


QUICK = Tier(
    "quick",
    False,
    {"forward": 20, "backward": 8, "out": 3, "inplace": 5, "pending": 2, "shared": 4, "random": 1,
     "module": 20, "optim": 50},
    120,
)  # fmt: skip
FULL = Tier(
    "full",
    True,
    {"forward": 200, "backward": 60, "out": 6, "inplace": 10, "layouts": 6, "pending": 6, "shared": 10, "unclaimed": 2,
     "random": 3, "module": 1000, "optim": 1000},
    300,
)  # fmt: skip
TIERS = {tier.name: tier for tier in (QUICK, FULL)}

OP_CHECKS = ("forward", "backward", "out", "inplace", "layouts", "pending", "shared", "random", "unclaimed", "errors")
MODULE_CHECKS = ("train", "eval", "state_dict", "deepcopy", "to", "errors")
OPTIM_CHECKS = ("default", "for_loop", "foreach", "fused")
CHECKS = tuple(dict.fromkeys(OP_CHECKS + MODULE_CHECKS + OPTIM_CHECKS))


def dtype_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def dtype_named(name: str) -> torch.dtype | None:
    return None if name == "any" else getattr(torch, name)


def op_name(info) -> str:
    return f"{info.name}.{info.variant_test_name}" if info.variant_test_name else info.name


@cache
def entries() -> dict[tuple[str, str], object]:
    """Every database entry by (database, name)."""
    found = {("op", op_name(info)): info for info in methods.op_db}
    found |= {("module", info.name): info for info in module_db}
    found |= {("optim", f"optim.{info.name}"): info for info in optim_db}
    if len(found) != len(methods.op_db) + len(module_db) + len(optim_db):
        raise RuntimeError("two entries of torch's test databases share a name")
    return found


def database_sizes() -> dict[str, int]:
    return {"op_db": len(methods.op_db), "module_db": len(module_db), "optim_db": len(optim_db)}


def _representative(dtypes: list[torch.dtype]) -> list[torch.dtype]:
    """float32 where it is claimed, else int64, else the first."""
    for dtype in (torch.float32, torch.int64, *dtypes):
        if dtype in dtypes:
            return [dtype]
    return []


def _op_cases(name: str, info, tier: Tier):
    claimed = info.supported_dtypes("cpu")
    forward = [dtype for dtype in DTYPES if dtype in claimed]
    if len(forward) != len(claimed):
        raise RuntimeError(f"{name} claims a dtype that the harness does not know: {set(claimed) - set(DTYPES)}")
    differentiable = info.supported_backward_dtypes("cpu") if info.supports_autograd else ()
    backward = [dtype for dtype in forward if dtype in differentiable]
    one = _representative(forward)
    wanted = {
        "forward": forward if tier.all_dtypes else one,
        "backward": backward if tier.all_dtypes else _representative(backward),
        "out": (forward if tier.all_dtypes else one) if info.supports_out else [],
        "inplace": (forward if tier.all_dtypes else one) if info.inplace_variant else [],
        "pending": one,
        "shared": one,
        "random": (forward if tier.all_dtypes else one) if name in RANDOM else [],
        "layouts": [dtype for dtype in forward if dtype in (one[0], torch.complex64, torch.int64, torch.bfloat16)],
        "unclaimed": [dtype for dtype in DTYPES if dtype not in claimed],
    }
    for check in OP_CHECKS:
        if check == "errors":
            if info.error_inputs_func is not None and one:
                yield Case("op", name, "any", "errors")
        elif check in tier.samples:
            for dtype in wanted[check] if one else ():
                yield Case("op", name, dtype_name(dtype), check)


def _module_cases(name: str, info, tier: Tier):
    claimed = [dtype for dtype in DTYPES if dtype in info.supported_dtypes("cpu")]
    for dtype in claimed if tier.all_dtypes else _representative(claimed):
        for check in MODULE_CHECKS:
            if check != "errors" or info.module_error_inputs_func is not None:
                yield Case("module", name, dtype_name(dtype), check)


def _optim_cases(name: str, info, tier: Tier):
    supported = {"default": True, "for_loop": True, "foreach": "foreach" in info.supported_impls,
                 "fused": "cpu" in info.supports_fused_on}  # fmt: skip
    for dtype in (torch.float32, torch.float64) if tier.all_dtypes else (torch.float32,):
        for check in OPTIM_CHECKS:
            if supported[check]:
                yield Case("optim", name, dtype_name(dtype), check)


@cache
def cases(tier: Tier) -> tuple[Case, ...]:
    """All cases of a tier, those of one entry together, dtype by dtype."""
    makers = {"op": _op_cases, "module": _module_cases, "optim": _optim_cases}
    found = []
    for (database, name), info in entries().items():
        of_entry = list(makers[database](name, info, tier))
        found += sorted(
            of_entry, key=lambda case: (case.dtype == "any", DTYPES.index(dtype_named(case.dtype) or DTYPES[0]))
        )
    return tuple(found)


def select(tier: Tier, words: list[str], checks: list[str]) -> list[Case]:
    """The tier's cases whose id holds one of `words` (an entry's exact name matches that entry alone), in `checks`."""
    names = {name for _, name in entries()}
    exact = {word for word in words if word in names}
    partial = [word for word in words if word not in names]
    return [
        case for case in cases(tier)
        if (not words or case.name in exact or any(word in case.id for word in partial))
        and (not checks or case.check in checks)
    ]  # fmt: skip


def spread(items: list, cap: int) -> list:
    """At most `cap` of the items, taken evenly from first to last."""
    if len(items) <= cap:
        return items
    return [items[round(i * (len(items) - 1) / (cap - 1))] if cap > 1 else items[0] for i in range(cap)]
