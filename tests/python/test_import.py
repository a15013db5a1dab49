"""Loading: by itself, on request, twice, in a thread, after a fork; its failures; and what it must not change."""

import importlib.metadata
import json
import statistics

import pytest

OFF = {"TORCH_DEVICE_BACKEND_AUTOLOAD": "0"}
PLAIN_SUM = "print(torch.ones(3, device='flex').sum().item())"

autoloads = pytest.mark.skipif(
    not importlib.metadata.entry_points(group="torch.backends", name="flexcpu"), reason="flexcpu is not installed"
)


@autoloads
def test_torch_alone_brings_the_device(python):
    done = python(f"import torch; {PLAIN_SUM}")
    assert (done.stdout, done.stderr) == ("3.0\n", "")


def test_without_autoload_the_import_asks_for_it(python):
    done = python(
        """
        import torch
        try:
            torch.ones(3, device="flex")
        except RuntimeError as error:
            print("flex" in str(error), hasattr(torch, "flex"))
        import flexcpu
        print(torch.ones(3, device="flex").sum().item())
        """,
        **OFF,
    )
    assert done.stdout == "True False\n3.0\n"


@pytest.mark.parametrize("first", ["import flexcpu, torch", "import torch, flexcpu"])
@pytest.mark.parametrize("autoload", ["0", "1"])
def test_order_of_imports_is_free(python, first, autoload):
    assert python(f"{first}; {PLAIN_SUM}", TORCH_DEVICE_BACKEND_AUTOLOAD=autoload).stdout == "3.0\n"


def test_loading_again_is_harmless(python):
    done = python(
        """
        import importlib, sys, threading, torch, flexcpu
        method, engine, dlpack = torch.Tensor.flex, torch.autograd.Variable._execution_engine, torch.Tensor.__dlpack__
        flexcpu._autoload()
        torch._import_device_backends()
        importlib.reload(flexcpu)
        del sys.modules["flexcpu"]
        import flexcpu
        threads = [threading.Thread(target=flexcpu._autoload) for _ in range(8)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert torch.Tensor.flex is method
        assert torch.autograd.Variable._execution_engine is engine and torch.Tensor.__dlpack__ is dlpack
        print(torch.ones(3, device="flex").sum().item(), flexcpu.shares_memory(torch.ones(1), torch.ones(1)))
        """
    )
    assert (done.stdout, done.stderr) == ("3.0 False\n", "")


@pytest.mark.parametrize("module", ["torch", "flexcpu"])
def test_first_import_in_threads(python, module):
    done = python(
        f"""
        import threading
        failures = []
        def load():
            try:
                import {module}
                import flexcpu
                import torch
                torch.ones(3, device="flex").add(1)
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=load) for _ in range(4)]
        [thread.start() for thread in threads]
        [thread.join() for thread in threads]
        assert not failures, failures
        import torch; {PLAIN_SUM}
        """
    )
    assert done.stdout == "3.0\n"


@pytest.mark.parametrize("loaded_before_fork", [False, True])
def test_import_after_a_fork(python, loaded_before_fork):
    done = python(
        f"""
        import os, torch
        if {loaded_before_fork}:
            import flexcpu
            torch.ones(2, device="flex").add(1)
        if os.fork() == 0:
            import flexcpu
            x = torch.ones(3, device="flex", requires_grad=True)
            (x * 2).sum().backward()
            os._exit(0 if x.grad.tolist() == [2, 2, 2] else 1)
        assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
        import flexcpu
        {PLAIN_SUM}
        """,
        **OFF,
    )
    assert done.stdout == "3.0\n"


# `import torch` that runs `prepare(torch)` as if it were another package's autoload, and then ours.
AUTOLOAD = """
import importlib.metadata, warnings
class Before:
    name = "before"
    def load(self):
        return lambda: exec(PREPARE, {})
ours = importlib.metadata.EntryPoint("flexcpu", "flexcpu:_autoload", "torch.backends")
importlib.metadata.entry_points = lambda group: [Before(), ours]
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    import torch
print([str(w.message) for w in caught])
print(torch.ones(2).sum().item(), hasattr(torch, "flex"), torch._C._get_privateuse1_backend_name())
"""

# A torch that has an accelerator already, told by what must be asked: nothing here may initialize CUDA.
OTHER_ACCELERATOR = """
import torch
def forbidden(*args): raise AssertionError("CUDA was initialized")
torch.cuda.is_available = torch.cuda._lazy_init = torch._C._cuda_getDeviceCount = forbidden
torch.backends.cuda.is_built = lambda: {cuda}
torch.cuda._device_count_nvml = lambda: {devices}
torch.xpu._is_compiled = lambda: {xpu}
torch.xpu.device_count = lambda: 1
"""


@pytest.mark.parametrize(
    ("cuda", "devices", "xpu", "autoloaded"),
    [(True, 2, False, False), (False, 0, True, False), (True, 0, False, True), (True, -1, False, True)],
)
def test_another_accelerator_comes_first(python, cuda, devices, xpu, autoloaded):
    prepare = OTHER_ACCELERATOR.format(cuda=cuda, devices=devices, xpu=xpu)
    done = python(f"PREPARE = {prepare!r}\n{AUTOLOAD}\nimport flexcpu\n{PLAIN_SUM}")
    assert done.stdout == f"[]\n2.0 {autoloaded} {'flex' if autoloaded else 'privateuseone'}\n3.0\n"


# What breaks loading, and words of the cause and the remedy that the message must have.
FAILURES = {
    "torch": ("torch.__version__ = torch.torch_version.TorchVersion('2.14.0')", {}, ["2.13", "2.14.0", "pip install"]),
    "torch 2.130": ("torch.__version__ = torch.torch_version.TorchVersion('2.130.0')", {}, ["2.13,", "2.130.0"]),
    "library": (
        """
import sys
class NoLibrary:
    def find_spec(name, path=None, target=None):
        if name == "flexcpu._C":
            raise ImportError("libdnnl.so.3: cannot open shared object file: No such file or directory")
sys.meta_path.insert(0, NoLibrary)
""",
        {},
        ["libdnnl.so.3", "pip install onednn-cpu-gomp"],
    ),
    "other backend": (
        "torch.utils.rename_privateuse1_backend('other')",
        {},
        ['"other"', "TORCH_DEVICE_BACKEND_AUTOLOAD=0"],
    ),
    "simd": ("", {"FLEXCPU_SIMD": "avx512"}, ["FLEXCPU_SIMD", "baseline, avx2, avx3", '"avx512"']),
    "fallback": ("", {"FLEXCPU_FALLBACK": "loud"}, ["FLEXCPU_FALLBACK", "silent, warn, error", '"loud"']),
}


@pytest.mark.parametrize("cause", FAILURES)
def test_a_failing_import_says_why(python, cause):
    prepare, env, words = FAILURES[cause]
    done = python(
        "import torch\n" + prepare + "\n"
        "for _ in range(2):\n"
        "    try:\n"
        "        import flexcpu\n"
        "    except ImportError as error:\n"
        "        print(error)\n"
        "print(torch.ones(2).sum().item(), hasattr(torch, 'flex'))",
        **OFF, **env,
    )  # fmt: skip
    first, second, rest = done.stdout.split("\n", 2)
    assert first == second and rest == "2.0 False\n"
    assert all(word in first for word in words), first


@pytest.mark.parametrize("cause", ["torch", "library", "simd"])
def test_a_failing_autoload_is_a_warning(python, cause):
    prepare, env, words = FAILURES[cause]
    done = python(f"PREPARE = {'import torch;' + prepare!r}\n{AUTOLOAD}", **env)
    message, rest = done.stdout.split("\n", 1)
    assert message.count('device "flex" is not available') == 1 and all(word in message for word in words), message
    assert rest == "2.0 False privateuseone\n"


def test_a_cpu_too_old(python):
    done = python(
        """
        import torch, sys, types
        import flexcpu._load as loading
        class Core:
            cpu_has_baseline = staticmethod(lambda: False)
        loading._loaded, loading._import_core = False, lambda: Core
        torch._C._get_privateuse1_backend_name = lambda: "privateuseone"
        try:
            loading.load()
        except ImportError as error:
            print(error)
        """
    )
    assert "SSE4.2" in done.stdout and 'device="cpu"' in done.stdout


def test_onednn_elsewhere_on_the_path_is_found(python):
    done = python(
        """
        import torch, ctypes, sys, importlib
        tried, loaded = [], []
        class FailsOnce:
            def find_spec(name, path=None, target=None):
                if name == "flexcpu._C" and not tried:
                    tried.append(name)
                    raise ImportError("libdnnl.so.3: cannot open shared object file")
        sys.meta_path.insert(0, FailsOnce)
        load = ctypes.CDLL
        ctypes.CDLL = lambda path, *args: loaded.append(path) or load(path, *args)
        import flexcpu
        print(len(tried), [path.endswith("libdnnl.so.3") for path in loaded], torch.ones(2, device="flex").sum().item())
        """,
        **OFF,
    )
    assert done.stdout == "1 [True] 2.0\n"


@pytest.mark.parametrize("target", ["baseline", "avx2", "avx3"])
def test_simd_cap(python, target):
    done = python("import torch, flexcpu; print(torch.flex.get_device_properties().simd)", FLEXCPU_SIMD=target)
    ranking = ["baseline", "avx2", "avx3"]
    assert ranking.index(done.stdout.strip()) <= ranking.index(target)
    if target == "baseline":
        assert done.stdout == "baseline\n"


@pytest.mark.parametrize("mode", ["silent", "warn", "error"])
def test_fallback_mode_from_the_environment(python, mode):
    done = python("import torch, flexcpu; print(torch.flex.fallback_mode())", FLEXCPU_FALLBACK=mode)
    assert done.stdout == f"{mode}\n"


# ---- Installed but not used, it changes nothing ----

UNUSED = """
import os, torch
torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Dropout(), torch.nn.Linear(16, 2))
optimizer = torch.optim.Adam(model.parameters())
x = torch.randn(32, 8)
for _ in range(3):
    optimizer.zero_grad()
    model(x).square().mean().backward()
    optimizer.step()
numbers = [p.double().sum().item().hex() for p in model.parameters()]
numbers += [torch.initial_seed(), torch.rand(3).tolist(), torch.is_grad_enabled(), torch.get_num_threads()]
numbers += [torch.get_default_device().type, torch._C._is_multithreading_enabled(), str(x.clone().storage_offset())]

class Data(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, i): return torch.full((2,), float(i)), torch.rand(1)
loader = torch.utils.data.DataLoader(Data(), batch_size=4, num_workers=2, shuffle=True)
numbers += [[part.tolist() for part in batch] for batch in loader]

# In a forked child, backward as before.
read, write = os.pipe()
if os.fork() == 0:
    torch.set_num_threads(1)
    w = torch.ones(4, requires_grad=True)
    (w * 3).sum().backward()
    os.write(write, str(w.grad.tolist()).encode())
    os._exit(0)
assert os.waitstatus_to_exitcode(os.wait()[1]) == 0
numbers.append(os.read(read, 100).decode())
import json, threading
numbers.append(sorted(thread.name for thread in threading.enumerate()))
print(json.dumps(numbers))
"""


def test_unused_it_changes_no_result(python):
    without = python(UNUSED, **OFF)
    loaded = python("import flexcpu\n" + UNUSED)
    assert json.loads(loaded.stdout) == json.loads(without.stdout)
    assert loaded.stderr == without.stderr == ""


def test_unused_it_is_not_used(python):
    done = python(
        "import flexcpu, torch; w = torch.ones(2, requires_grad=True); w.sum().backward(); print(flexcpu._C.was_used())"
    )
    assert done.stdout == "False\n"


def test_import_time(python):
    """At most 150 ms beyond torch, by the median of paired runs in fresh processes."""
    program = """
    import time, torch
    start = time.process_time()
    import flexcpu
    print(time.process_time() - start)
    """
    spent = statistics.median(float(python(program, **OFF).stdout) for _ in range(5))
    assert spent < 0.150
    done = python("import sys, torch; a = set(sys.modules); import flexcpu; print(sorted(set(sys.modules) - a))", **OFF)
    new = [name for name in eval(done.stdout) if not name.startswith(("flexcpu", "torch.flex"))]
    assert not [name for name in new if name.split(".")[0] in ("torch", "numpy")], new


def test_public_names():
    import flexcpu

    assert flexcpu.__version__.count(".") == 2
    assert all(hasattr(flexcpu, name) for name in flexcpu.__all__)
