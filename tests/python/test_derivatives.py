"""docs/derivatives.md says where the derivatives of each native op come from, and must say what is true.

The truth is asked of torch's dispatcher and of the derivative formulas in its wheel. Run as a program, this file prints
the table as it should be.
"""

import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pytest
import torch
import torchgen
import yaml

TABLE = Path(__file__).parents[2] / "docs" / "derivatives.md"
KEYS = ("PrivateUse1", "AutogradPrivateUse1")
NAMESPACES = ("aten::", "flexcpu::")
OF_THE_FALLBACK = "registration.cc"
BY_HAND = "VariableTypeManual.cpp"
COLUMNS = ("operators", "derivative", "vmap", "forward AD", "double backward")


class Sources(NamedTuple):
    """Where an op's transformations come from, in the table's words."""

    derivative: str
    vmap: str
    forward_ad: str
    double_backward: str


@cache
def formulas():
    """torch's derivative formulas by op name without the trailing underscore of in-place forms."""
    path = Path(torchgen.__file__).parent / "packaged" / "autograd" / "derivatives.yaml"
    found = {}
    for entry in yaml.safe_load(path.read_text()):
        name = entry.pop("name").split("(")[0]
        per_key = entry.pop("dispatch", {})
        formula = {**entry, **per_key.get("Default", {})}
        found[functional(name)] = {key: str(value) for key, value in formula.items()}
    return found


def functional(name):
    """add_.Tensor -> add.Tensor"""
    base, _, overload = name.removeprefix("aten::").partition(".")
    return (base.rstrip("_") if not base.endswith("__") else base) + ("." + overload if overload else "")


def has(name, key):
    return torch._C._dispatch_has_kernel_for_dispatch_key(name, key)


def registered_at(name, key):
    """The source file of an op's registration at a key; empty if there is none."""
    match = re.search(rf"^{re.escape(key)}: registered at ([^:]+):", torch._C._dispatch_dump(name), re.MULTILINE)
    return match[1] if match else ""


def native_ops():
    """Every op registered for the device otherwise than as the fallback, {name: keys}."""
    found = {}
    for key in KEYS:
        for name in torch._C._dispatch_get_registrations_for_dispatch_key(key):
            if name.startswith(NAMESPACES) and not registered_at(name, key).endswith(OF_THE_FALLBACK):
                found.setdefault(name, set()).add(key)
    return found


def schema_of(name):
    base, _, overload = name.partition(".")
    return torch._C._get_schema(base, overload)


def is_out(name):
    return any(argument.kwarg_only and argument.is_out for argument in schema_of(name).arguments)


def gradients(formula):
    """The formulas of an op's gradients, of those arguments that have any."""
    return [
        value
        for key, value in formula.items()
        if not key.startswith("result") and key != "output_differentiability" and value != "non_differentiable"
    ]


def sources(name, keys):
    """Where the derivative, the vmap rule, forward AD and double backward of a registered op come from."""
    if is_out(name):
        return Sources(*["refused"] * 4)
    if has(name, "FuncTorchBatched") or has(name, "FuncTorchVmapMode"):
        vmap = "batch rule"
    elif has(name, "FuncTorchBatchedDecomposition"):
        vmap = "decomposition"
    elif any("List" in value.type.kind() for value in schema_of(name).returns):
        vmap = "none"
    else:
        vmap = "loop"
    formula = formulas().get(functional(name))
    if "AutogradPrivateUse1" in keys:
        if "PrivateUse1" in keys and formula and gradients(formula):
            return Sources("formula", vmap, "composite", double_backward(gradients(formula)))
        # A composite of the device, in the place of torch's at both keys, is differentiated as what it is made of.
        replaces = "PrivateUse1" in keys and has(name, "CompositeImplicitAutograd")
        return Sources("composite" if replaces else "own function", vmap, "composite", "composite")
    if registered_at(name, "Autograd[alias]").endswith(BY_HAND):
        return Sources("by hand", vmap, "by hand", "by hand")
    returns_tensor = any("Tensor" in str(value.type) for value in schema_of(name).returns)
    if returns_tensor and has(name, "CompositeImplicitAutograd") and not has(name, "Autograd"):
        return Sources(*["hidden"] * 4)
    if formula is None or not gradients(formula):
        return Sources("none", vmap, "none", "none")
    forward_ad = "formula" if any(key.startswith("result") for key in formula) else "none"
    return Sources("formula", vmap, forward_ad, double_backward(gradients(formula)))


def double_backward(of_gradients):
    """A gradient formula can be differentiated where every op in it can."""
    text = " ".join(of_gradients)
    if "GradMode::is_enabled()" in text:
        return "other formula"
    for op in re.findall(r"\b(\w+_backward\w*)\(", text):
        op = re.sub(r"_symint$", "", op)
        if op in formulas() and gradients(formulas()[op]):
            return f"formula of {op}"
    return "ops of the formula"


def render(table):
    """Rows of ops with the same sources, as Markdown."""
    rows = {}
    for name, source in sorted(table.items()):
        rows.setdefault(source, []).append(f"`{name.removeprefix('aten::')}`")
    lines = [f"| {' | '.join(COLUMNS)} |", "|" + "---|" * len(COLUMNS)]
    lines += [f"| {', '.join(names)} | {' | '.join(source)} |" for source, names in sorted(rows.items())]
    return "\n".join(lines)


def parse(text):
    """{name: Sources} of the table in a Markdown text; a name that stands twice is an error."""
    found = {}
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip().strip("|").split("|")]
        if not line.startswith("| `") or len(cells) != len(COLUMNS):
            continue
        for name in re.findall(r"`([^`]+)`", cells[0]):
            assert name not in found, f"{name} stands twice in the table"
            found[name] = Sources(*cells[1:])
    return found


def violations(documented, true):
    """Missing, stale and wrong rows."""
    true = {name.removeprefix("aten::"): source for name, source in true.items()}
    found = [f"missing: {name}" for name in true.keys() - documented.keys()]
    found += [f"stale: {name}" for name in documented.keys() - true.keys()]
    found += [
        f"wrong: {name} is {true[name]}" for name in true.keys() & documented.keys() if true[name] != documented[name]
    ]
    found += [f"hidden derivative: {name}" for name, source in true.items() if source.derivative == "hidden"]
    return sorted(found)


def truth():
    return {name: sources(name, keys) for name, keys in native_ops().items()}


PLAIN = Sources("formula", "batch rule", "formula", "ops of the formula")


@pytest.mark.parametrize(
    "documented, found",
    [
        ("| `add.Tensor` | formula | batch rule | formula | ops of the formula |", []),
        ("", ["missing: add.Tensor"]),
        ("| `add.Tensor`, `gone` | formula | batch rule | formula | ops of the formula |", ["stale: gone"]),
        ("| `add.Tensor` | formula | loop | formula | ops of the formula |", [f"wrong: add.Tensor is {PLAIN}"]),
    ],
)
def test_a_wrong_table_is_found(documented, found):
    assert violations(parse(documented), {"aten::add.Tensor": PLAIN}) == found


def test_a_composite_that_would_be_hidden_is_found():
    hidden = sources("aten::layer_norm", {"PrivateUse1"})
    assert violations({"layer_norm": hidden}, {"aten::layer_norm": hidden}) == ["hidden derivative: layer_norm"]


def test_a_registration_without_a_row_is_found():
    documented = parse(TABLE.read_text())
    library = torch.library.Library("aten", "IMPL")
    try:
        library.impl("_cdist_forward", lambda *arguments: arguments[0], "PrivateUse1")
        assert "missing: _cdist_forward" in violations(documented, truth())
    finally:
        library._destroy()


def test_native_ops_are_told_from_the_fallback():
    found = native_ops()
    assert "aten::add.Tensor" in found and "aten::empty.memory_format" in found
    assert "aten::native_layer_norm" not in found  # sent to the fallback, away from its composite


def test_the_table_is_true():
    documented = parse(TABLE.read_text())
    assert violations(documented, truth()) == [], "\n" + render(truth())


if __name__ == "__main__":
    print(render(truth()))
