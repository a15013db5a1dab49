"""Fresh outputs, copies that are not made, and patterns of training that live by them."""

from itertools import pairwise

import torch
from torch import nn

from ..case import Case, Tensor
from ..sizes import KB, MB, shape


def _operands(names: str, size: int) -> dict[str, Tensor]:
    return {name: Tensor(shape(size), positive=True) for name in names}


class Model:
    """A multilayer perceptron of some 64 MB; as an input, the module itself."""

    def on(self, device: str, generator: torch.Generator) -> nn.Module:
        widths = (1024, 4096, 2048, 1024, 1024)
        layers = [nn.Linear(a, b) for a, b in pairwise(widths)]
        return nn.Sequential(*layers).requires_grad_(False).to(device)


# Fresh outputs. Stock pays for every page of a block that glibc maps anew.
CASES = [
    Case("add-64MB", "a + b", _operands("ab", 64 * MB), out="torch.add(a, b, out=out)", mark=3),
    Case("mul-64MB", "a * b", _operands("ab", 64 * MB), out="torch.mul(a, b, out=out)", mark=3),
    Case("div-scalar-64MB", "a / 3.0", _operands("a", 64 * MB), out="torch.div(a, 3.0, out=out)", mark=3),
    Case("to-float64-64MB", "a.to(torch.float64)", _operands("a", 32 * MB), mark=3),
    Case("zeros-64MB", "torch.zeros(4096, 4096, device=device)", mark=3),
    Case("full-64MB", "torch.full((4096, 4096), 0.5, device=device)", mark=3),
    # A CPU kernel's output, by way of the fallback.
    Case("sqrt-64MB", "a.sqrt()", _operands("a", 64 * MB), out="torch.sqrt(a, out=out)"),
]
CASES += [
    Case(f"chain-{size}MB", "(a + b) * c", _operands("abc", size * MB), mark=3 if size == 64 else None)
    for size in (4, 16, 64, 256)
]
CASES += [
    Case(f"add-{name}", "a + b", _operands("ab", size), out="torch.add(a, b, out=out)")
    for name, size in (("64KB", 64 * KB), ("1MB", MB), ("4MB", 4 * MB), ("16MB", 16 * MB), ("256MB", 256 * MB))
]
# Values are not set: what is compared has them.
CASES += [
    Case(
        f"empty-{name}",
        f"torch.empty({size}, dtype=torch.uint8, device=device)",
        check=f"torch.empty({size}, dtype=torch.uint8, device=device).zero_()",
    )
    for name, size in (("256B", 256), ("64KB", 64 * KB), ("4MB", 4 * MB), ("64MB", 64 * MB))
]

# Copies that are shared until somebody writes.
CASES += [
    Case("clone-64MB", "a.clone()", _operands("a", 64 * MB), mark=1000),
    # Stock's cpu() returns its own tensor; a copy on the host is what flex's stands for.
    Case("cpu-64MB", "a.cpu()", _operands("a", 64 * MB), stock="a.clone()", mark=1000),
    Case("deepcopy-64MB", "copy.deepcopy(a)", _operands("a", 64 * MB), mark=1000),
    Case("copy_-64MB", "b.copy_(a)", _operands("ab", 64 * MB)),
    Case("clone-64KB", "a.clone()", _operands("a", 64 * KB)),
    # The copy is made after all.
    Case("clone-written-64MB", "b = a.clone(); b[0, 0].zero_(); b", _operands("a", 64 * MB)),
    Case("clone-written-1MB", "b = a.clone(); b[0, 0].zero_(); b", _operands("a", MB)),
    Case("clone-overwritten-64MB", "b = a.clone(); b.zero_(); b", _operands("a", 64 * MB)),
]

# What trainers do with parameters.
CASES += [
    Case("snapshot", "copy.deepcopy(model.state_dict())", {"model": Model()}),
    Case(
        "load-state-dict",
        "target.load_state_dict(model.state_dict()); target[0].weight",
        {"model": Model(), "target": Model()},
    ),
    Case(
        "moving-average",
        "torch._foreach_lerp_(list(averages.parameters()), list(model.parameters()), 0.01); averages[0].weight",
        {"model": Model(), "averages": Model()},
    ),
]
