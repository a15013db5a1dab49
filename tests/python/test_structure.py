"""The rules of the source tree and of the process: who may include whom, who may touch bytes, one OpenMP, two threads.

Each rule is a function that returns its violations. It is tried on a planted violation, and then on the project.
"""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

CSRC = Path(__file__).parents[2] / "csrc"

# What a layer may include besides itself. Calls go down only; plans know nothing of those that carry them out.
BELOW = {
    "layout": set(),
    "parallel": set(),
    "memory": set(),
    "plan": {"memory", "layout", "parallel"},
    "kernels": {"plan", "memory", "layout", "parallel"},
    "onednn": {"kernels", "plan", "memory", "layout", "parallel"},
}
BELOW["device"] = set(BELOW)
BELOW["aten"] = set(BELOW)
BELOW["python"] = set(BELOW)
WITHOUT_TORCH = {"layout", "parallel", "memory", "plan", "kernels", "onednn"}
TORCH = re.compile(r"(ATen|c10|torch|pybind11)/")
WHOLE_OF_TORCH = {"ATen/ATen.h", "ATen/Functions.h", "ATen/NativeFunctions.h", "torch/all.h", "torch/extension.h"}


def sources(csrc):
    files = sorted(path for path in csrc.rglob("*") if path.suffix in {".h", ".cc"})
    assert files, f"no sources in {csrc}"
    return files


def without_comments(text):
    """The same lines, without comments and string literals."""
    token = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\\n])*"', re.DOTALL)
    return token.sub(lambda match: "\n" * match[0].count("\n") + '""' * (match[0][0] == '"'), text)


def include_violations(csrc):
    """Includes that climb, leave the layers, or bring torch where it must not be."""
    found = []
    for path in sources(csrc):
        layer = path.relative_to(csrc).parts[0]
        for number, line in enumerate(path.read_text().splitlines(), 1):
            match = re.match(r'\s*#\s*include\s*([<"])([^>"]+)[>"]', line)
            if not match:
                continue
            where, name = f"{path.relative_to(csrc)}:{number}", match[2]
            if TORCH.match(name):
                if layer in WITHOUT_TORCH:
                    found.append(f"{where}: {layer} knows no torch, but includes {name}")
                elif name in WHOLE_OF_TORCH:
                    found.append(f"{where}: {name} brings all of torch; include what is used")
            elif match[1] == '"' and not name.startswith("hwy/"):
                target = name.split("/")[0]
                if not (csrc / name).is_file():
                    found.append(f"{where}: {name} is not a path from csrc")
                elif target != layer and target not in BELOW[layer]:
                    found.append(f"{where}: {layer} may not include {target} ({name})")
    return found


RAW_ACCESS = re.compile(
    r"\b(?:const_|mutable_)?data_ptr(?:_impl)?\b|_data_ptr_no\w*|\bset_data_ptr\w*|\b(?:unsafe_)?mutable_data\b"
    r"|\b(?:packed_)?accessor\w*\s*<|\bTensorIterator\w*|\bstorage\(\)\s*(?:\.|->)\s*(?:mutable_)?data\b"
)


def raw_access_violations(csrc):
    """Looks at tensors' bytes outside csrc/device, where bytes may be shared with another tensor."""
    found = []
    for path in sources(csrc):
        name = path.relative_to(csrc)
        if name.parts[0] == "device":
            continue
        for number, line in enumerate(without_comments(path.read_text()).splitlines(), 1):
            found += [f"{name}:{number}: {match}" for match in RAW_ACCESS.findall(line)]
    return found


def plant(folder, files):
    for name, text in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


@pytest.mark.parametrize(
    "files",
    [
        {"layout/a.h": '#include "plan/b.h"\n', "plan/b.h": ""},
        {"plan/a.cc": '#include "kernels/b/b.h"\n', "kernels/b/b.h": ""},
        {"memory/a.h": '#include "layout/b.h"\n', "layout/b.h": ""},
        {"device/a.cc": '  #  include "aten/b.h"\n', "aten/b.h": ""},
        {"aten/a.cc": '#include "python/b.h"\n', "python/b.h": ""},
        {"kernels/a/a.cc": '#include "b.h"\n', "kernels/a/b.h": ""},
        {"kernels/a/a.cc": "#include <c10/util/Half.h>\n"},
        {"onednn/a.cc": "#include <ATen/core/Tensor.h>\n"},
        {"aten/a.cc": "#include <ATen/ATen.h>\n"},
    ],
)
def test_a_wrong_include_is_found(tmp_path, files):
    assert len(include_violations(plant(tmp_path, files))) == 1


def test_includes_never_climb():
    assert include_violations(CSRC) == []


@pytest.mark.parametrize(
    "line",
    [
        "auto* p = self.data_ptr<float>();",
        "const void* p = self.const_data_ptr();",
        "void* p = self.mutable_data_ptr();",
        "void* p = storage->mutable_data();",
        "auto& p = storage->_mutable_data_ptr_no_checks();",
        "auto a = self.accessor<float, 2>();",
        "at::TensorIteratorConfig config;",
        "const void* p = self.storage().data();",
    ],
)
def test_a_raw_access_is_found(tmp_path, line):
    violations = raw_access_violations(plant(tmp_path, {"aten/a.cc": f"// data_ptr\n{line}  // fast\n"}))
    assert len(violations) == 1 and violations[0].startswith("aten/a.cc:2: ")


def test_comments_and_the_device_layer_are_free(tmp_path):
    files = {"aten/a.cc": '/* data_ptr\n*/ f("data_ptr");  // TensorIterator\n', "device/b.cc": "t.data_ptr();\n"}
    assert raw_access_violations(plant(tmp_path, files)) == []


def test_bytes_are_reached_through_operands_only():
    assert raw_access_violations(CSRC) == []


def in_fresh_process(code):
    """Runs code that prints one JSON value last, and returns that value."""
    done = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


# ---- One OpenMP ----

MAPPED = """
import json, os
paths = {line.split(maxsplit=5)[5].strip() for line in open("/proc/self/maps") if "/" in line}
print(json.dumps(sorted(path for path in paths if "gomp" in os.path.basename(path))))
"""
USE = """
import torch
a = torch.randn(512, 512, device="flex")
((a + a) @ a).sum().item()
torch.nn.functional.conv2d(a.view(1, 16, 128, 128), torch.randn(4, 16, 3, 3, device="flex"))
"""


def openmp_violations(setup):
    """What is mapped beyond one OpenMP runtime: two teams of threads would fight for the cores."""
    mapped = in_fresh_process(setup + MAPPED)
    return [] if len(mapped) == 1 else mapped


def test_a_second_openmp_is_found(tmp_path):
    import shutil

    (runtime,) = in_fresh_process(USE + MAPPED)
    copy = shutil.copy(runtime, tmp_path / "libgomp-of-another.so.1")
    assert len(openmp_violations(USE + f"import ctypes; ctypes.CDLL({str(copy)!r})\n")) == 2


def test_one_openmp_is_mapped():
    assert openmp_violations(USE) == []


# ---- Two threads ----

# Each thread's share of the processor time that a second of native work takes, the largest first. The fallback is
# forbidden, so that these are our own parallel regions and not those of a CPU kernel.
SHARES = """
import glob, json, time, torch
torch.set_num_threads({threads})

def processor_times():
    fields = {{path: open(path).read().rsplit(")", 1)[1].split() for path in glob.glob("/proc/self/task/*/stat")}}
    return {{path: int(values[11]) + int(values[12]) for path, values in fields.items()}}

def work(a, b, out):
    {work}

a, b, out = (torch.ones(2048, 2048, device="flex") for _ in range(3))
with torch.flex.forbid_fallback():
    work(a, b, out)
    before, end = processor_times(), time.process_time() + 1
    while time.process_time() < end:
        work(a, b, out)
    after = processor_times()
spent = sorted((after[path] - before.get(path, 0) for path in after), reverse=True)
print(json.dumps([ticks / sum(spent) for ticks in spent]))
"""
WORK = {
    "add": "torch.add(a, b, out=out)",
    "fill": "out.fill_(1.0)",
    "copy": "out.copy_(a.t())",
    "sum": "torch.sum(a)",
}


def working_threads(threads, work):
    """How many threads carried at least a fifth of the work."""
    return sum(share >= 0.2 for share in in_fresh_process(SHARES.format(threads=threads, work=work)))


def test_a_single_thread_is_found():
    assert working_threads(1, WORK["add"]) == 1


@pytest.mark.parametrize("work", WORK)
def test_two_threads_share_the_work(work):
    assert working_threads(2, WORK[work]) == 2
