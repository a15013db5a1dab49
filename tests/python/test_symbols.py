"""What the module exports: its entry point. The libraries in it stay private."""

import importlib.util
import re
import subprocess
from pathlib import Path

import pytest

OF_THE_LINKER = {"__bss_start", "_edata", "_end", "_init", "_fini"}
# Weak: instances of other people's headers, which every library carries, and run-time type information, which must be
# seen in order to be one across libraries.
FOREIGN = re.compile(r".*?\b(?:std|__gnu_cxx|c10|at|torch|caffe2|pybind11)::")
TYPE_INFORMATION = re.compile(r"typeinfo (?:name )?for ")
PRIVATE = re.compile(r"\b(?:flexcpu|hwy|dnnl)::|\bdnnl_")


def export_violations(library):
    """Exported symbols of a shared library that should be hidden."""
    table = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    found = []
    for line in table.splitlines():
        kind, name = re.fullmatch(r"[0-9a-f]*\s+(\S)\s+(.+)", line).groups()
        if name == "PyInit__C" or name in OF_THE_LINKER:
            continue
        if kind in "VvWwu" and TYPE_INFORMATION.match(name):
            continue
        if kind not in "VvWwu" or PRIVATE.search(name) or not FOREIGN.match(name):
            found.append(f"{kind} {name}")
    return found


@pytest.mark.parametrize(
    "source, exported",
    [
        ('extern "C" int dnnl_version() { return 0; }', "T dnnl_version"),
        ("namespace flexcpu { int leaked() { return 0; } }", "T flexcpu::leaked()"),
        (
            "namespace hwy { template <class T> T leaked(T x) { return x; } template int leaked(int); }",
            "W int hwy::leaked<int>(int)",
        ),
        ("int leaked = 1;", "D leaked"),
    ],
)
def test_an_exported_symbol_is_found(tmp_path, source, exported):
    (tmp_path / "leak.cc").write_text(source + '\nextern "C" void PyInit__C() {}\n')
    library = tmp_path / "leak.so"
    subprocess.run(["g++", "-shared", "-fPIC", "-o", library, tmp_path / "leak.cc"], check=True)
    assert export_violations(library) == [exported]


def test_only_the_entry_point_is_exported():
    package = Path(importlib.util.find_spec("flexcpu").origin).parent
    assert export_violations(package / "_C.so") == []
