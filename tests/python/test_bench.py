"""The benchmark harness: what it computes from samples, what it refuses, what it reports. No test looks at a time."""

import json
import random
import shutil
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))

from bench import __main__ as cli  # noqa: E402
from bench import compare, instructions, machine, memory, report, run, sizes, timing  # noqa: E402
from bench.case import LAYOUTS, Case, Tensor  # noqa: E402
from bench.cases import families, select  # noqa: E402
from bench.measure import Row, measure  # noqa: E402
from bench.settings import Settings  # noqa: E402
from bench.statistics import Spread, apart, spread, verdict  # noqa: E402
from bench.worker import Failed, Worker, environment  # noqa: E402

FAST = Settings(window_ms=0.1, pairs=1, most_pairs=1, memory_calls=1, timeout=60)
SURE = replace(FAST, pairs=6, most_pairs=6)
A = {"a": Tensor((4, 4))}


@pytest.fixture(autouse=True)
def threads_as_before():
    """Measuring sets the thread count of its process, which is the tests' here."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


def case(statement, inputs=A, **fields):
    return Case("planted", statement, inputs, family="test", **fields)


class Shared:
    """An input that is one object on all devices."""

    def __init__(self, value):
        self.on = lambda device, generator: value


def text_of(print_something, *arguments):
    console = Console(width=160)
    with console.capture() as captured:
        print_something(*arguments, console)
    return captured.get()


# ---- Statistics ----


@pytest.mark.parametrize("n, rank", [(6, 1), (8, 1), (9, 2), (11, 2), (12, 3), (15, 4), (20, 6), (44, 16)])
def test_the_interval_of_the_median_has_the_ranks_of_the_tables(n, rank):
    # Ranks of the 95 % interval as tables of the sign test give them.
    found = spread(random.Random(n).sample(range(1, n + 1), n))
    assert (found.low, found.high, found.sure) == (rank, n + 1 - rank, True)


def test_five_samples_say_nothing():
    found = spread([4.0, 4.1, 4.2, 4.3, 4.4])
    assert (found.low, found.high, found.sure) == (4.0, 4.4, False)
    assert verdict(found, 3) == verdict(found, 5) == "unclear"
    assert not apart(found, spread([9.0] * 11), 0.05)
    assert not spread([0.5] * 5).below_one and spread([0.5] * 6).below_one


def test_the_interval_holds_the_true_median_as_often_as_it_says():
    samples = random.Random(0)
    spreads = [spread([samples.expovariate(1) for _ in range(11)]) for _ in range(2000)]
    assert sum(s.low <= 0.6931 <= s.high for s in spreads) / len(spreads) >= 0.95


def test_an_outlier_does_not_move_the_spread():
    quiet = [2.0 + i / 100 for i in range(11)]
    assert spread([*quiet[:-1], 1000.0]) == spread(quiet)


@pytest.mark.parametrize(
    "low, high, mark, expected",
    [(3.0, 3.2, 3, "met"), (2.9, 3.2, 3, "unclear"), (2.5, 3.0, 3, "unclear"), (2.5, 2.9, 3, "missed")],
)
def test_a_mark_is_met_by_the_lower_end(low, high, mark, expected):
    assert verdict(Spread(low, (low + high) / 2, high, 11), mark) == expected


@pytest.mark.parametrize(
    "a, b, moved",
    [((1.0, 1.1), (1.3, 1.4), True), ((1.3, 1.4), (1.0, 1.1), True), ((1.0, 1.3), (1.2, 1.4), False),
     ((1.00, 1.01), (1.02, 1.03), False)],
)  # fmt: skip
def test_what_moved_is_apart_by_more_than_noise(a, b, moved):
    spreads = [Spread(low, (low + high) / 2, high, 11) for low, high in (a, b)]
    assert apart(*spreads, threshold=0.05) == moved


# ---- Statements and inputs ----


def test_a_loop_runs_its_statement_so_many_times():
    calls = []
    loop = timing.Loop("calls.append(x); x", {"calls": calls, "x": 7})
    assert loop() == 7
    loop.calls = 5
    window = loop.window()
    assert window.calls == 5 and window.wall > 0
    assert len(calls) == 1 + 1 + 5  # the call above, an untimed one, five timed ones


def test_a_window_gets_as_many_calls_as_its_time_holds():
    loop = timing.Loop("clock.append(None)", {"clock": []})
    durations = {"call": 1000}
    loop.run = lambda: loop.calls * durations["call"]
    loop.calibrate(10_000_000)
    assert loop.calls == 10_000
    durations["call"], loop.calls = 100_000_000, 1
    loop.calibrate(10_000_000)
    assert loop.calls == 1


def test_a_statement_needs_a_result():
    with pytest.raises(ValueError, match="is its result"):
        timing.Loop("b = a", {"a": 1})


def test_page_faults_of_a_window_are_counted():
    loop = timing.Loop("torch.empty(64 * 2**20, dtype=torch.uint8).fill_(1)", {})
    faults = loop.window().faults
    assert faults >= (64 * 2**20) // 4096 // 512  # one for each page, huge ones at best


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.uint8, torch.int64, torch.bool])
def test_inputs_are_equal_on_both_devices(layout, dtype):
    planted = case("a", {"a": Tensor((6, 10), dtype, layout)})
    stock, flex = (planted.build(device)["a"] for device in ("cpu", "flex"))
    assert stock.shape == flex.shape == (6, 10) and stock.stride() == flex.stride() and flex.device.type == "flex"
    assert torch.equal(stock, flex.cpu())
    assert stock.unique().numel() > 1
    expected = {"contiguous": (10, 1), "transposed": (1, 6), "stepped": (20, 2), "expanded": (0, 1)}
    assert stock.stride() == expected[layout]


def test_size_classes_follow_the_caches():
    for l2, l3 in ((2**19, 2**25), (2**20, 2**25), (2**21, 260 * 2**20)):
        operands = sizes.operand_bytes(l2, l3)
        assert 3 * operands["L2"] <= l2 < operands["L3"] and 3 * operands["L3"] <= l3 < 3 * operands["DRAM"]
    rows, columns = sizes.shape("L2", torch.float64)
    assert rows * columns * 8 == sizes.OPERAND_BYTES["L2"]


# ---- Measuring ----


def test_fresh_and_out_are_measured():
    rows = measure(case("a + a", out="torch.add(a, a, out=out)", mark=1e-9, out_mark=1e9), SURE)
    assert [(row.variant, row.verdict, row.error) for row in rows] == [("fresh", "met", None), ("out", "missed", None)]
    for row in rows:
        assert row.ratio.samples == 6 and row.ratio.low <= row.ratio.median <= row.ratio.high
        assert row.stock["min"] <= row.stock["median"] and row.device["median"] > 0


WRONG = {
    "values": case("a + (device == 'flex')"),
    "dtype": case("a.double() if device == 'flex' else a + 0"),
    "strides": case("a.t().clone() if device == 'flex' else a.t().contiguous()", {"a": Tensor((4, 4), torch.bool)}),
    "out": case("a + 1", out="torch.add(a, 2 if device == 'flex' else 1, out=out)"),
    "out not written": case("a + 1", out="a + 1"),
    "check": case("a + 1", check="a + (device == 'flex')"),
}


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_result_is_refused(name):
    row = measure(WRONG[name], FAST)[-1]
    assert row.error and "wrong result" in row.error and row.ratio is None


def test_results_within_the_tolerance_are_equal():
    almost = case("a + (0.01 if device == 'flex' else 0)")
    assert measure(almost, FAST)[0].error
    assert measure(replace(almost, tolerance=(0, 0.02)), FAST)[0].error is None


def test_a_case_that_forgets_the_device_is_refused():
    assert "no tensor of the case is on flex" in measure(case("torch.zeros(4)", {}), FAST)[0].error


def test_pairs_alternate_and_are_added_while_a_mark_is_unclear(monkeypatch):
    order = []

    def window(self):
        device = self.inputs["device"]
        order.append(device)
        # Ratios 2, 4, 2, 4, ...: a mark of 3 stays unclear, and one of 1 is met at once.
        wall = {"cpu": 2_000, "flex": 1_000 if (len(order) - 1) // 2 % 2 == 0 else 500}[device]
        return timing.Window(1, wall, wall, 0)

    monkeypatch.setattr(timing.Loop, "window", window)
    settings = replace(FAST, pairs=6, most_pairs=18)
    (row,) = measure(case("a + a", mark=3), settings)
    assert (row.ratio.samples, row.verdict) == (18, "unclear")
    assert order == ["cpu", "flex", "flex", "cpu"] * 9


def test_disturbed_pairs_are_taken_again(monkeypatch):
    taken = []

    def window(self):
        taken.append(self)
        disturbed = len(taken) <= 4  # the first two pairs
        return timing.Window(1, 1000, 100 if disturbed else 1000, 0)

    monkeypatch.setattr(timing.Loop, "window", window)
    (row,) = measure(case("a + a"), SURE)
    assert (row.ratio.samples, row.disturbed, len(taken)) == (6, 2, 16)
    monkeypatch.setattr(timing.Loop, "window", lambda self: timing.Window(1, 1000, 0, 0))
    (row,) = measure(case("a + a"), SURE)
    assert (row.ratio.samples, row.disturbed) == (6, 12)  # never quiet: they must do


# ---- Processes ----

BAD = {
    "wrong": (case("a + (device == 'flex')"), "wrong result"),
    "raises": (case("a.no_such_method()"), "AttributeError"),
    "crashes": (case("__import__('os').kill(__import__('os').getpid(), 11); a"), "SIGSEGV"),
    "exits": (case("__import__('os')._exit(3); a"), "status 3"),
    "hangs": (case("__import__('time').sleep(1000); a"), "no result after"),
}


def test_a_case_that_fails_is_a_row_and_ends_nothing(tmp_path):
    good = case("a + a", out="torch.add(a, a, out=out)")
    cases = [replace(bad, name=name) for name, (bad, _) in BAD.items()] + [good]
    settings = replace(FAST, timeout=10)
    *_, results = run.run(cases, settings)
    assert len(results.rows) == len(BAD) + 2
    for row, (_, expected) in zip(results.rows, BAD.values()):
        assert expected in row.error and row.ratio is None
    fresh, out = results.rows[-2:]
    assert fresh.error is None and fresh.ratio and set(fresh.memory) == {"stock", "device"} and out.ratio
    path = tmp_path / "results" / "run.json"
    results.write(path)
    assert run.Results.read(path) == results
    shown = text_of(report.print_results, results)
    assert f"Failed: {len(BAD)}" in shown and "SIGSEGV" in shown and machine.line(results.machine) in shown


def test_peak_memory_is_that_of_the_case():
    hungry = case("a + 1", {"a": Tensor((64, 2**18))})  # 64 MB in, 64 MB out
    with Worker(environment(1)) as worker:
        peaks = {device: worker.call(memory.peak, hungry, device, FAST) for device in ("cpu", "flex")}
        small = worker.call(memory.peak, case("a + 1"), "cpu", FAST)
    for device, found in peaks.items():
        assert 128 * 2**20 <= found < 160 * 2**20, device
    assert small < 32 * 2**20


@pytest.mark.parametrize("simd", ["baseline", "avx2"])
def test_caps_hold_for_both_devices(simd):
    with Worker(environment(2, simd)) as worker:
        found = worker.call(machine.describe, 2)
    assert found["simd"] == {"flex": simd, "stock": {"baseline": "DEFAULT", "avx2": "AVX2"}[simd]}
    assert found["threads"] == 2 and "FLEXCPU_SIMD" in machine.line(found)


def test_a_missing_tcmalloc_is_told(monkeypatch):
    monkeypatch.setattr("bench.worker.TCMALLOC", "libno_such_malloc.so")
    with pytest.raises(Failed, match="libtcmalloc-minimal4"):
        list(run.run([case("a + a")], FAST, tcmalloc=True))


def test_tcmalloc_is_a_second_baseline():
    with Worker(environment(1, tcmalloc=True)) as worker:
        if worker.call(machine.allocator) != "tcmalloc":
            pytest.skip(run.TCMALLOC_MISSING)
    *_, results = run.run([case("a + a", mark=1e9)], SURE, tcmalloc=True)
    assert [(row.baseline, row.verdict, row.error) for row in results.rows] == [
        ("stock", "missed", None),
        ("tcmalloc", "", None),
    ]
    assert len({row.id for row in results.rows}) == 2


# ---- Reports ----


def row_of(name, low, median, high, **fields):
    times = {"min": 1e3, "median": 2e3, "calls": 10, "faults": 0.0}
    return Row(
        f"test:{name}", "fresh", "a + b", stock=times, device=times, ratio=Spread(low, median, high, 11), **fields
    )


def results_of(*rows):
    return run.Results(FAST, machine.describe(1), list(rows))


def test_losses_are_counted_and_listed():
    loss = row_of("loss", 0.5, 0.6, 0.7, mark=0.4, verdict="met")
    results = results_of(row_of("win", 2, 2.1, 2.2), loss, row_of("tie", 0.9, 0.99, 1.1))
    shown = text_of(report.print_summary, results)
    assert "Below 1: 2 of 3 rows, 1 of them beyond noise" in shown
    listed = shown.split("Below 1")[1].splitlines()[1:3]
    assert "test:loss" in listed[0] and "0.60" in listed[0] and "test:tie" in listed[1]


def test_marks_are_counted_and_those_not_met_are_listed():
    gluttonous = {"memory": {"stock": 100, "device": 120}, "memory_mark": 1.15}
    results = results_of(
        row_of("good", 3.1, 3.2, 3.3, mark=3, verdict="met"),
        row_of("near", 2.9, 3.1, 3.3, mark=3, verdict="unclear"),
        row_of("bad", 1.1, 1.2, 1.3, mark=3, verdict="missed"),
        row_of("big", 3.1, 3.2, 3.3, **gluttonous),
    )
    shown = text_of(report.print_results, results)
    assert "Marks: 1 met, 2 missed, 1 unclear" in shown
    for expected in ("unclear: test:near", "missed: test:bad", "missed: test:big fresh stock: peak memory 1.20"):
        assert expected in shown
    assert "missed: test:good" not in shown


def test_compare_shows_what_moved(tmp_path, capsys):
    failed = Row("test:broken", "fresh", "a", error="ended by SIGSEGV")
    before = results_of(row_of("same", 1, 1.1, 1.2), row_of("up", 1, 1.1, 1.2), row_of("down", 2, 2.1, 2.2),
                        row_of("broken", 1, 1, 1), row_of("gone", 1, 1, 1))  # fmt: skip
    after = results_of(row_of("same", 1.1, 1.2, 1.3), row_of("up", 3, 3.1, 3.2), row_of("down", 1, 1.1, 1.2),
                       failed, row_of("new", 1, 1, 1))  # fmt: skip
    found = compare.compare(before, after, 0.05)
    names = {kind: [pair[1].case for pair in getattr(found, kind)] for kind in ("faster", "slower", "same", "broken")}
    assert names == {"faster": ["test:up"], "slower": ["test:down"], "same": ["test:same"], "broken": ["test:broken"]}
    assert [row.case for row in found.gone] == ["test:gone"] and [row.case for row in found.new] == ["test:new"]

    paths = [tmp_path / "before.json", tmp_path / "after.json"]
    before.write(paths[0])
    after.machine["threads"] = 2
    after.write(paths[1])
    assert cli.main(["compare", *map(str, paths)]) == 1
    shown = capsys.readouterr().out
    assert (
        "1 slower, 1 faster, 1 within noise" in shown and "SIGSEGV" in shown and "Not like for like: threads" in shown
    )
    assert cli.main(["compare", str(paths[0]), str(paths[0])]) == 0


def test_run_list_and_plot_from_the_command_line(tmp_path, capsys):
    path = tmp_path / "run.json"
    chosen = ["tiny:add", "tiny:cl*"]
    status = cli.main(["run", *chosen, "--quick", "--pairs", "1", "--window", "0.1", "--json", str(path)])
    assert status == 0
    shown = capsys.readouterr().out
    found = json.loads(path.read_text())
    assert [(row["case"], row["variant"]) for row in found["rows"]] == [
        ("tiny:add", "fresh"), ("tiny:add", "out"), ("tiny:clone", "fresh"),
    ]  # fmt: skip
    assert found["machine"]["torch"] == torch.__version__ and found["machine"]["processor"] in shown
    assert "of 3 rows" in shown and "quick run" in shown
    assert cli.main(["plot", str(path)]) == 0
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    assert cli.main(["list", *chosen]) == 0
    shown = capsys.readouterr().out
    assert "tiny:add" in shown and "a.clone()" in shown and "tiny:mul" not in shown
    assert cli.main(["run", "no-such-family"]) == 2


def test_no_valgrind_is_told(monkeypatch, capsys):
    monkeypatch.setattr(shutil, "which", lambda name: None)
    assert cli.main(["instructions", "tiny:add"]) == 2
    assert "apt-get install valgrind" in capsys.readouterr().out


def test_instructions_are_read_and_their_loops_run(tmp_path):
    (tmp_path / "out").write_text("events: Ir\nfn=(1)\n16 5\nsummary: 123400\ntotals: 123400\n")
    assert instructions._total(tmp_path / "out", 200) == 617
    tensors = []
    counted = replace(A["a"], shape=(2, 2))
    instructions._measure([case("seen.append(a) or a", {"a": counted, "seen": Shared(tensors)})], 7)
    assert [t.device.type for t in tensors] == ["cpu"] * 28 + ["flex"] * 28


# ---- The cases ----


def test_cases_are_distinct_and_their_statements_have_results():
    cases = [case for cases in families().values() for case in cases]
    assert len({case.id for case in cases}) == len(cases) > 200
    for one in cases:
        for statement in filter(None, (one.statement, one.stock, one.check, one.out)):
            timing.parts(statement)
    assert len(select(["tiny"])) == 10


@pytest.mark.parametrize("family", families())
def test_no_statement_assigns_to_an_input(family):
    for one in families()[family]:
        for statement in filter(None, (one.statement, one.stock, one.out)):
            before, _ = timing.parts(statement)
            assigned = {part.split("=")[0].strip() for part in before.split("; ") if " = " in part}
            assert not assigned & set(one.inputs), one.id
