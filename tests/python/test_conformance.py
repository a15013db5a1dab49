"""The conformance harness judges the device; here it is judged: every kind of fault is planted and must be found."""

import json
import os
import subprocess
import sys
import time
import warnings
from collections import Counter
from dataclasses import replace

import pytest
import torch

pytest.importorskip("scipy")

from flexcpu.conformance import expected
from flexcpu.conformance.databases import CHECKS, FULL, QUICK, Case, cases, database_sizes, select, spread
from flexcpu.conformance.devices import Device, Transfer
from flexcpu.conformance.execution import Outcome
from flexcpu.conformance.expected import Expected
from flexcpu.conformance.report import Report
from flexcpu.conformance.results import Result
from flexcpu.conformance.run import Runner
from flexcpu.conformance.workers import run_cases


@pytest.fixture(autouse=True)
def warn_setting():
    before = torch.is_warn_always_enabled()
    yield
    torch.set_warn_always(before)


class Planted(Device):
    """Stock CPU, with a fault: plant(function, *args) stands in for every call on the device."""

    def __init__(self, plant):
        self.invoke = plant


def run(name: str, dtype: str, check: str, device: Device, database: str = "op") -> Result:
    return Runner(device, FULL).run(Case(database, name, dtype, check))


def changed(change):
    """A plant that changes the result."""
    return lambda function, *args: change(function(*args))


def inaccurate(t):
    return t * (1 + 1e-4)


def negative_zeros(t):
    return torch.where(t == 0, -t, t)


def with_warning(function, *args):
    warnings.warn("planted")
    return function(*args)


def without_warnings(function, *args):
    with warnings.catch_warnings(record=True):
        return function(*args)


def changing_the_operand(function, operands):
    value = function(operands)
    operands[0].add_(1)
    return value


def raising(error):
    def plant(function, *args):
        raise error

    return plant


def accepting(function, *args):
    try:
        return function(*args)
    except Exception:
        return None


def renaming(function, *args):
    try:
        return function(*args)
    except Exception as error:
        raise type(error)(str(error) + " planted") from None


def of_another_type(function, *args):
    try:
        return function(*args)
    except Exception as error:
        raise LookupError(str(error)) from None


def the_same_numbers(function, *args):
    torch.manual_seed(0)
    return function(*args)


def never_reproducible(function, *args):
    torch.manual_seed(time.perf_counter_ns())
    return function(*args)


@pytest.mark.parametrize(
    ("name", "dtype", "check", "plant", "found"),
    [
        ("sin", "float32", "forward", changed(inaccurate), "not close"),
        ("sin", "float16", "forward", changed(lambda t: t + 0.01), "not close"),
        ("add", "int64", "forward", changed(lambda t: t + 1), "not equal"),
        ("sin", "float32", "forward", changed(lambda t: t.double()), "dtype is torch.float64"),
        ("sin", "float32", "forward", changed(lambda t: t[..., None]), "shape is"),
        ("sin", "float32", "forward", changed(lambda t: t.t().contiguous().t() if t.dim() == 2 else t), "stride() is"),
        ("sin", "float32", "forward", changed(lambda t: t.requires_grad_()), "requires_grad is True"),
        ("sin", "float32", "forward", changed(lambda t: (t, t)), "result is TreeSpec"),
        ("sin", "float32", "forward", with_warning, "planted"),
        ("sin", "float32", "forward", changing_the_operand, "operands after the call"),
        ("sin", "float32", "forward", raising(RuntimeError("planted")), "raises RuntimeError: planted"),
        ("nn.functional.relu", "float32", "forward", changed(negative_zeros), "sign of zero"),
        ("t", "float32", "forward", changed(torch.clone), "alias"),
        ("clone", "float32", "forward", lambda function, operands: operands[0], "alias"),
        ("sum", "float32", "forward", changed(lambda t: t * float("nan")), "not close"),
        ("sin", "float32", "backward", changed(lambda pair: (pair[0], [(g * 2,) for (g,) in pair[1]])), "not close"),
        ("sin", "float32", "out", without_warnings, "CPU warns [('UserWarning'"),
        ("sin", "float32", "out", accepting, "accepted; CPU raises"),
        ("sin", "float32", "out", changed(torch.clone), "alias"),
        ("sin", "int64", "inplace", of_another_type, "raises LookupError"),
        ("sin", "int64", "inplace", renaming, "planted; CPU raises"),
        ("sin", "float32", "inplace", lambda function, operands: operands[0], "not close"),
        ("mul", "complex64", "layouts", changed(lambda t: t.conj() if t.is_complex() else t), "is_conj() is True"),
        ("diag", "any", "errors", accepting, "accepted; CPU raises"),
        ("diag", "any", "errors", renaming, "planted; CPU raises"),
        ("abs", "bool", "unclaimed", accepting, "accepted; CPU raises"),
        ("randn", "float32", "random", never_reproducible, "two draws of one seed differ"),
        ("randn", "float32", "random", the_same_numbers, "draws of two seeds are equal"),
        ("randn", "float32", "random", changed(lambda t: t * 2), "distributed otherwise"),
        ("bernoulli", "float32", "random", changed(lambda t: 1 - t), "distributed otherwise"),
        ("randn", "float32", "random", changed(lambda t: t - t.mean()), "means of draws are distributed otherwise"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found(name, dtype, check, plant, found):
    sound = run(name, dtype, check, Device())
    assert sound.equal, sound.differences
    assert sound.samples > 0
    result = run(name, dtype, check, Planted(plant))
    assert not result.equal and not result.failure
    assert any(found in text for text in result.differences), result.differences
    assert result.samples == sound.samples, "what is executed must not depend on the device"


def test_error_parity_is_counted():
    sound, accepted = (run("diag", "any", "errors", device) for device in (Device(), Planted(accepting)))
    assert sound.errors == sound.same_errors > 0
    assert (accepted.errors, accepted.same_errors) == (sound.errors, 0)


def test_a_text_may_name_its_device_and_nothing_more():
    def outcome(text):
        return Outcome(error=RuntimeError(text))

    result = Result(Case("op", "sin", "float32", "forward"))
    theirs = outcome("Expected a cpu tensor, got meta (Triggered internally at /a/b.cpp:12.)")
    assert not result.compare_errors(
        theirs, outcome("Expected a flex:0 tensor, got meta (Triggered internally at c.cc:1.)")
    )
    assert not result.device_texts == []
    assert result.compare_errors(theirs, outcome("Expected a flex tensor, got cuda"))
    assert result.compare_errors(theirs, Outcome(error=ValueError(str(theirs.error))))
    assert (result.errors, result.same_errors) == (3, 1)


class Sharing(Device):
    """A device whose clones are said to share; `lost` says they no longer do after the op."""

    counts_sharing = True

    def __init__(self, lost: bool):
        self.lost = lost
        self.called = False

    def invoke(self, function, *args):
        self.called = True
        return function(*args)

    def clone(self, t):
        self.called = False
        return super().clone(t)

    def shares(self, a, b):
        return not (self.lost and self.called)


def test_operands_that_stop_sharing_are_counted():
    kept, lost = (run("sin", "float32", "shared", Sharing(lost)) for lost in (False, True))
    assert kept.equal and kept.peers == kept.peers_kept > 0
    assert lost.equal and lost.peers == kept.peers and lost.peers_kept == 0
    report = Report("flex", FULL, {}, Expected(unshared={"sin": "because"}))
    report.add(lost)
    assert report.unshared() == {"sin": f"{lost.peers} of {lost.peers} operands, first at sample 0: operand 0; because"}
    assert report.numbers()["still-shared %"] == 0


def test_a_clone_that_does_not_begin_to_share_is_a_difference():
    class NotSharing(Device):
        counts_sharing = True

    assert "does not share" in run("sin", "float32", "shared", NotSharing()).differences[0]


def test_a_changed_clone_is_found():
    class Aliasing(Device):
        def clone(self, t):
            return t.detach()

    found = run("sin", "float32", "shared", Aliasing()).differences
    assert any("the clone of an operand was changed" in text for text in found), found
    assert any("operands after the call" in text for text in found), found


@pytest.mark.parametrize(
    ("database", "name", "check", "plant", "found"),
    [
        ("module", "nn.Linear", "train", changed(lambda v: v * 2 if isinstance(v, torch.Tensor) else (v[0], v[0], v[2])
                                                 if isinstance(v, tuple) else v), "result"),
        ("module", "nn.BatchNorm2d", "state_dict", changed(lambda v: (dict(list(v[0].items())[1:]), *v[1:])),
         "result is"),
        ("module", "nn.Linear", "to", changed(lambda v: (False, *v[1:])), "is False, CPU gives True"),
        ("module", "nn.Linear", "deepcopy", changed(lambda v: (v[0], v[1], v[1])), "not close"),
        ("optim", "optim.Adam", "foreach", changed(lambda v: ([p + 1 for p in v[0]], *v[1:])), "not close"),
    ],
)  # fmt: skip
def test_a_planted_fault_is_found_in_modules_and_optimizers(database, name, check, plant, found):
    assert run(name, "float32", check, Device(), database).equal
    result = run(name, "float32", check, Planted(plant), database)
    assert any(found in text for text in result.differences), result.differences


def _abort_in_cos():
    invoke = Device.invoke

    def plant(self, function, *args):
        subject = getattr(function, "__self__", None)
        if getattr(subject, "name", "") == "cos":
            os.abort()
        return invoke(self, function, *args)

    Device.invoke = plant


def _hang_in_cos():
    invoke = Device.invoke

    def plant(self, function, *args):
        subject = getattr(function, "__self__", None)
        if getattr(subject, "name", "") == "cos":
            time.sleep(1000)
        return invoke(self, function, *args)

    Device.invoke = plant


@pytest.mark.parametrize(
    ("initializer", "failure", "text"),
    [
        (_abort_in_cos, "crash", "sample 0: crash: SIGABRT"),
        (_hang_in_cos, "timeout", "sample 0: timeout: no end after 5 s"),
    ],
)
def test_a_crash_or_a_hang_is_one_named_failure(initializer, failure, text):
    tier = replace(QUICK, timeout=20 if failure == "crash" else 5)
    chosen = select(tier, ["sin", "cos", "tan"], ["forward", "backward"])
    assert len(chosen) == 6
    results = {result.case.id: result for result in run_cases(chosen, "cpu", tier, 1, initializer)}
    assert len(results) == 6
    failed = {name for name, result in results.items() if result.failure}
    assert failed == {"cos-float32-forward"}
    assert results["cos-float32-forward"].failure == failure
    assert text in results["cos-float32-forward"].differences[0]
    assert all(results[name].equal for name in results if name not in failed)


def _wrong_sin():
    global _library
    _library = torch.library.Library("aten", "IMPL", "PrivateUse1")
    _library.impl("sin", lambda t: torch.cos(t))


def test_a_wrong_kernel_on_the_device_is_found():
    chosen = select(QUICK, ["sin", "exp"], ["forward", "shared"])
    results = {result.case.id: result for result in run_cases(chosen, "flex", QUICK, 1, _wrong_sin)}
    assert not results["sin-float32-forward"].equal
    assert results["exp-float32-forward"].equal and results["exp-float32-shared"].equal


def test_the_same_is_executed_on_both_devices():
    chosen = select(QUICK, ["add", "sum", "sort", "nn.functional.dropout", "nn.Linear", "optim.SGD"], [])
    counts = []
    for device in ("flex", "cpu"):
        results = list(run_cases(chosen, device, QUICK, 1))
        counts.append(sorted((r.case.id, r.samples, r.errors) for r in results))
    assert len(counts[0]) == len(chosen) > 20
    assert counts[0] == counts[1]


def test_the_cases_cover_the_databases():
    assert database_sizes()["op_db"] >= 690
    full = cases(FULL)
    assert sum(case.check == "forward" and case.database == "op" for case in full) >= 6000
    assert {case.check for case in full} == set(CHECKS)
    assert len({case.id for case in full}) == len(full)
    assert {case.id for case in cases(QUICK)} <= {case.id for case in full}


def test_select_takes_exact_names_and_parts_of_ids():
    assert {case.name for case in select(FULL, ["add"], [])} == {"add"}
    assert {case.id for case in select(FULL, ["logsumexp-float32-forward"], [])} >= {"logsumexp-float32-forward"}
    assert {case.check for case in select(FULL, ["add", "sub"], ["out"])} == {"out"}
    assert select(FULL, ["no such op"], []) == []


def test_spread():
    assert spread(list(range(5)), 9) == [0, 1, 2, 3, 4]
    assert spread(list(range(101)), 3) == [0, 50, 100]
    assert spread(list(range(9)), 1) == [0]


def test_a_transfer_keeps_what_shows():
    base = torch.arange(24.0)
    whole = base.view(4, 6)
    tensors = {
        "transposed": whole.t(), "stepped": base[3::4], "expanded": base[:1].expand(5), "part": whole[1:3, 2:],
        "leaf": torch.ones(2, requires_grad=True), "conj": torch.ones(3, dtype=torch.complex64).conj(),
        "empty": torch.ones(0, 3),
    }  # fmt: skip
    copies = Transfer("cpu")({**tensors, "again": tensors["leaf"], "device": torch.device("cpu")})
    for name, t in tensors.items():
        copy = copies[name]
        assert copy is not t and torch.equal(copy, t)
        assert (copy.stride(), copy.storage_offset(), copy.is_conj()) == (t.stride(), t.storage_offset(), t.is_conj())
        assert copy.requires_grad == t.requires_grad
    assert copies["again"] is copies["leaf"]
    copies["transposed"][0, 0] = 7
    assert whole[0, 0] == 0 and copies["part"].untyped_storage()._cdata == copies["transposed"].untyped_storage()._cdata


def write(path, *entries):
    lines = []
    for entry in entries:
        lines += ["[[difference]]", *(f"{key} = {json.dumps(value)}" for key, value in entry.items())]
    path.write_text("\n".join(lines))
    return path


ENTRY = {"op": "sin", "dtypes": ["float32", "float64"], "check": "forward", "reason": "because"}


def test_expected_differences_name_cases_exactly(tmp_path):
    expected.load()
    path = tmp_path / "differences.toml"
    assert expected.load(write(path, ENTRY)).differences == {
        ("sin", "float32", "forward"): "because",
        ("sin", "float64", "forward"): "because",
    }
    for wrong, text in (
        ({"op": "si*"}, "no case"), ({"dtypes": ["float"]}, "no case"), ({"check": "all"}, "no case"),
        ({"reason": " "}, "exactly"), ({"note": "x"}, "exactly"), ({"dtypes": ["float32", "float32"]}, "twice"),
    ):  # fmt: skip
        with pytest.raises(ValueError, match=text):
            expected.load(write(path, {**ENTRY, **wrong}))
    with pytest.raises(ValueError, match="at most 100"):
        expected.load(write(path, *[ENTRY] * 101))


def test_the_report_tells_expected_unexplained_and_stale_apart(tmp_path):
    known = {("sin", dtype, "forward"): "because" for dtype in ("float32", "int64")}
    report = Report("flex", FULL, {"torch": torch.__version__}, Expected(known))
    for dtype, differs in (("float32", True), ("float64", True), ("int64", False), ("int32", False)):
        result = Result(
            Case("op", "sin", dtype, "forward"), samples=3, native_samples=2, fallbacks=Counter({"aten::sin": 1})
        )
        if differs:
            result.differs("sample 0", "planted")
        report.add(result)
    assert [r.case.dtype for r in report.unexplained] == ["float64"]
    assert [case.dtype for case in report.stale] == ["int64"]
    assert report.numbers() == {
        "equal %": 50.0, "native %": 66.66, "still-shared %": None, "error parity %": 100.0,
        "unexplained differences": 1,
    }  # fmt: skip
    report.write(tmp_path / "report.json")
    written = json.loads((tmp_path / "report.json").read_text())
    assert written["fallbacks"] == {"aten::sin": 4}
    assert [r["id"] for r in written["unexplained"]] == ["sin-float64-forward"]
    assert written["expected"][0]["reason"] == "because"
    assert written["executed"]["op forward"] == {
        "cases": 4, "samples": 12, "equal": 2, "errors": 0, "same_errors": 0, "expected": 1, "unexplained": 1,
    }  # fmt: skip


def command(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments], capture_output=True, text=True, timeout=300, env={**os.environ, **environment}
    )


def test_the_command_line(tmp_path):
    path = tmp_path / "report.json"
    ran = command(
        "-m",
        "flexcpu.conformance",
        "--device",
        "cpu",
        "-k",
        "logsumexp",
        "-k",
        "nn.ReLU",
        "-n",
        "1",
        "--json",
        str(path),
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    for text in ("equal %   100.00", "unexplained differences        0", "op_db", torch.__version__):
        assert text in ran.stdout
    report = json.loads(path.read_text())
    assert report["numbers"]["unexplained differences"] == 0
    assert report["executed"]["op forward"]["cases"] == 1
    assert command("-m", "flexcpu.conformance", "--device", "cpu", "-k", "no such op").returncode == 2


def test_pytest_runs_the_same_cases():
    ran = command(
        "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2", "--pyargs", "flexcpu.conformance",
        "-k", "logsumexp and float32",
        FLEXCPU_CONFORMANCE_DEVICE="cpu",
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    count = len([case for case in cases(QUICK) if "logsumexp" in case.id and case.dtype == "float32"])
    assert f"{count} passed" in ran.stdout
