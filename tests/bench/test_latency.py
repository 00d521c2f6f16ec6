"""The latency study: a wrong contender is refused, a peer that fails gives a reason, numbers add up."""

from __future__ import annotations

import io
import sys
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from tests.laws.test_scan import HERE
from transductor.bench import LatencyStudy, WrongResult, run_latency
from transductor.bench.correctness import Judge
from transductor.bench.memory import PeakMemory
from transductor.bench.peers import BoundCall, Contender, Unavailable, all_contenders, library
from transductor.bench.timing import HostBurst, Stopwatch, measured_ceilings, stopwatch, take_turns
from transductor.bench.workloads import ACTS, Case, Ceilings, draw, floor_of
from transductor.configuration import from_plain
from transductor.report import latency_figure, latency_tables
from transductor.results import read_record

TINY = LatencyStudy(
    lengths=(Case(1, 20), Case(2, 33)),
    shapes=(Case(1, 24, dim=4, symbols=0), Case(1, 24, documents=3), Case(2, 20, dtype="bfloat16", bias=True)),
    check_length=200,
    sets=2,
    box=0.0,
    rounds=2,
    memory=(1, 128, 4, 2),
    quick=True,
)


@pytest.fixture(scope="module")
def record():
    return run_latency(TINY)


@pytest.fixture
def without_memory(monkeypatch):
    """Memory is measured in a process of its own, which starts for seconds; these tests look at times alone."""
    monkeypatch.setattr("transductor.bench.latency._memory", lambda *_: {})


def altered(change, **options):
    """Our scan with something done to its results."""

    def bind(operands):
        right = library("chunked")(operands)
        return BoundCall(
            lambda: change(right.forward(), 0), lambda: tuple(map(change, right.forward_backward(), range(9)))
        )

    return Contender("altered", bind, **options)


def refusing(operands):
    raise Unavailable("not today")


AUTO = Contender("auto", library("auto"), ours=True)


def test_every_contender_has_a_number_or_a_reason(record):
    names = {contender.name for contender in all_contenders("cpu")}
    assert {"auto", *HERE, "kogge_stone", "loop", "associative_scan", "jax", "attention", "lstm"} <= names
    for part, wanted in (("lengths", names), ("shapes", {"auto", "chunked"})):
        assert len(record.measurements[part]) == len(getattr(TINY, part))
        for cell in record.measurements[part]:
            assert set(cell["contenders"]) == wanted
            for name, acts in cell["contenders"].items():
                for act in ACTS:
                    outcome = acts[act]
                    if "skipped" in outcome:
                        assert outcome["skipped"], name
                    else:
                        assert 0 < outcome["min"] <= outcome["seconds"] <= outcome["max"], name
            assert all("seconds" in cell["contenders"]["auto"][act] for act in ACTS)


def test_what_ran_computes_the_same_function(record):
    judged = {entry["contender"] for entry in record.measurements["correctness"]}
    assert {"auto", *HERE, "kogge_stone backend", "loop", "associative_scan"} <= judged
    for entry in record.measurements["correctness"]:
        for part, error in entry["errors"].items():
            if entry["bounds"] is not None:
                assert error["norm"] <= entry["bounds"][part != "states"], entry


def test_the_record_comes_back_and_the_figure_needs_nothing_else(record, tmp_path):
    again = read_record(record.write(tmp_path / "scan_cpu.json"))
    assert from_plain(again.settings) == TINY
    assert latency_figure(again, tmp_path / "figure.png").read_bytes().startswith(b"\x89PNG")
    console = Console(width=240, record=True, file=io.StringIO())
    console.print(latency_tables(again))
    shown = console.export_text()
    for words in ("scan (auto)", "Kogge–Stone", "measured / floor", "peak memory", "dense", "bfloat16, bias"):
        assert words in shown
    for part in TINY.parts:  # one part alone is a record too
        alone = replace(again, measurements={k: v for k, v in again.measurements.items() if k != part})
        assert latency_figure(alone, tmp_path / f"{part}.png").exists()


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda value, place: value * (1 + 3e-4 * (place == 0)), "states off by 3.0e-04"),
        (lambda value, place: value * (1 + 1e-3 * (place == 1)), "matrices off by 1.0e-03"),
        (lambda value, place: value * (1 + 1e-3 * (place == 2)), "initial_state off by 1.0e-03"),
        (lambda value, place: value * float("nan"), "states off by nan"),
    ],
)
def test_a_wrong_backend_of_ours_is_refused_before_anything_is_timed(change, words, monkeypatch):
    monkeypatch.setattr("transductor.bench.latency.take_turns", lambda *_, **__: pytest.fail("timed"))
    with pytest.raises(WrongResult, match=words):
        run_latency(replace(TINY, shapes=()), contenders=[AUTO, altered(change, ours=True)])


def test_a_forward_pass_that_differs_from_the_one_with_gradients_is_refused():
    def bind(operands):
        right = library("chunked")(operands)
        return BoundCall(lambda: right.forward() + 0.01, right.forward_backward)

    with pytest.raises(WrongResult, match="forward alone"):
        Judge("cpu").examine([AUTO, Contender("hasty", bind, ours=True)], 100)


def test_an_auto_that_fails_is_no_skipped_peer():
    with pytest.raises(WrongResult, match=r"auto fails at .*not today"):
        run_latency(TINY, contenders=[Contender("auto", refusing, ours=True)])


def test_peers_that_refuse_fail_or_are_wrong_give_a_reason(without_memory):
    def fails_when_timed(operands):
        right = library("chunked")(operands)
        if operands.case.batch == 3 or operands.case.time > 33:
            return right
        return BoundCall(lambda: torch.ones(2) @ torch.ones(3), right.forward_backward)

    field = [
        AUTO,
        Contender("refuses", refusing),
        Contender("breaks", fails_when_timed),
        altered(lambda value, place: 1.01 * value),
        Contender("short", library("chunked"), longest={"cpu": 25}),
        Contender("vast", library("chunked"), dense=True),
    ]
    huge = Case(1, 20, dim=4096, symbols=1)
    assert field[-1].footprint(replace(huge, time=1 << 20), "forward") > 1 << 40
    first, second = run_latency(replace(TINY, shapes=()), contenders=field).measurements["lengths"]
    for cell in (first, second):
        skipped = {name: acts["forward"].get("skipped", "") for name, acts in cell["contenders"].items()}
        assert skipped["refuses"] == "Unavailable: not today"
        assert skipped["breaks"].startswith("RuntimeError")
        assert "altered is wrong at" in skipped["altered"]
        assert not skipped["auto"]
        assert "seconds" in cell["contenders"]["breaks"]["forward_backward"]
    assert first["contenders"]["short"]["forward"]["seconds"] > 0
    assert second["contenders"]["short"]["forward"]["skipped"] == "limited to T = 25"


def test_slow_peers_are_skipped_for_a_stated_reason(without_memory):
    field = [AUTO, Contender("slow", library("reference")), Contender("spender", library("chunked"))]
    study = replace(TINY, shapes=(), limit=0.0, budget=0.0)
    first, second = run_latency(study, contenders=field).measurements["lengths"]
    assert first["contenders"]["slow"]["forward"]["seconds"] > 0
    assert second["contenders"]["slow"]["forward"]["skipped"] == "has used its 0 s"
    _, second = run_latency(replace(study, budget=99.0), contenders=field).measurements["lengths"]
    assert "the limit is 0 s" in second["contenders"]["slow"]["forward"]["skipped"]
    assert "seconds" in second["contenders"]["auto"]["forward"]  # ours is always measured


def test_missing_libraries_are_a_reason(monkeypatch):
    from transductor.bench import peers

    peers._jax_functions.cache_clear()
    monkeypatch.setitem(sys.modules, "jax", None)
    operands = draw(Case(1, 8), "cpu", 0)
    field = {contender.name: contender for contender in all_contenders("cpu")}
    with pytest.raises(Unavailable, match="jax is not installed"):
        field["jax"].bind(operands)
    with pytest.raises(Unavailable, match="need a GPU"):
        field["delta_rule"].bind(operands)
    for name in ("loop", "kogge_stone", "associative_scan", "jax"):
        with pytest.raises(Unavailable, match="a table and tokens only"):
            field[name].bind(draw(Case(1, 8, symbols=0), "cpu", 0))


def test_floors_count_what_must_be_moved_and_computed():
    machine = Ceilings(bytes_per_second=4.3e12, float32=67e12, float64=60e12)
    case = Case(64, 8192)
    forward = floor_of(case, "forward", machine)
    assert forward.bytes == 64 * 8192 * (8 + 16 * 4) + 8 * 256 * 4
    assert forward.operations == 2 * 64 * 8192 * 256
    assert forward.chunk_operations == 16 * forward.operations
    assert forward.bound_by == "bytes"
    assert forward.seconds == pytest.approx(8.8e-6, rel=0.01)
    both = floor_of(case, "forward_backward", machine)
    assert both.bytes == 64 * 8192 * (2 * 8 + 3 * 16 * 4) + 3 * 8 * 256 * 4
    assert both.operations == 3 * forward.operations
    dense = floor_of(replace(case, symbols=0), "forward", machine)
    assert dense.bytes == 64 * 8192 * (256 + 16) * 4
    assert floor_of(replace(case, symbols=10**6), "forward", machine).bytes < 64 * 8192 * (8 + 64 + 1024) + 1
    slow = Ceilings(bytes_per_second=4.3e12, float32=1e12, float64=60e12)
    assert floor_of(case, "forward", slow).bound_by == "operations"
    assert floor_of(replace(case, dtype="float64"), "forward", slow).bound_by == "bytes"


@pytest.mark.parametrize("case", [Case(2, 5), Case(1, 6, symbols=0), Case(1, 6, symbols=300), Case(1, 6, bias=True)])
def test_operands_are_rotations_and_fresh(case):
    operands, other = draw(case, "cpu", 1), draw(case, "cpu", 2)
    assert torch.allclose(
        operands.matrices.mT @ operands.matrices, torch.eye(16).expand_as(operands.matrices), atol=1e-5
    )
    assert operands.matrices.shape == ((case.symbols, 16, 16) if case.symbols else (case.batch, case.time, 16, 16))
    assert not torch.equal(operands.cotangent, other.cotangent)
    assert torch.equal(operands.cotangent, draw(case, "cpu", 1).cotangent)
    assert (operands.tokens is None) == (case.symbols == 0)
    assert (operands.bias is None) == (not case.bias)


def test_a_case_that_cannot_be_packed_is_refused():
    with pytest.raises(ValueError, match="documents must divide"):
        Case(1, 10, documents=3)
    with pytest.raises(ValueError, match="dtype must be one of"):
        Case(1, 10, dtype="float8")


def test_contenders_take_turns_within_their_box():
    heard = []

    class Watch(Stopwatch):
        timed = "test"

        def __init__(self, name):
            self.name = name

        def sample(self):
            heard.append(self.name)
            if self.name == "c" and heard.count("c") == 2:
                raise RuntimeError("broke")
            return 1.0

    samples = take_turns({name: Watch(name) for name in "abc"}, box=1e9, rounds=3)
    assert "".join(heard) == "abcabcab"
    assert samples["a"] == [1.0] * 3
    assert str(samples["c"]) == "broke"
    heard.clear()
    assert take_turns({"a": Watch("a")}, box=-1.0, rounds=9, fewest=2) == {"a": [1.0, 1.0]}


def test_clocks_go_round_the_operands():
    heard = []
    calls = [lambda n=n: heard.append(n) for n in range(3)]
    watch = stopwatch(calls, "cpu")
    for _ in range(3):
        assert watch.sample() > 0
    assert heard == [0, 1, 2, 0]
    waited = []
    assert HostBurst(calls, waited.append).sample() > 0
    assert len(waited) == 9  # warm-up, estimate, sample: each waits for the last round


def test_memory_is_measured():
    with PeakMemory() as peak:
        block = torch.ones(1 << 26)  # more than any earlier test left behind for reuse
    assert block.nbytes * 0.9 < peak.grown < block.nbytes * 1.5


def test_ceilings_are_plausible():
    ceilings = measured_ceilings("cpu", quick=True)
    assert 1e8 < ceilings.bytes_per_second < 1e13
    assert ceilings.float64 > 1e8
    assert 1e8 < ceilings.float32 < 1e15


@pytest.mark.skipif(not torch.cuda.is_available(), reason="graphs are captured on a GPU")
def test_calls_are_captured_and_those_that_wait_are_timed_with_events():
    values = [torch.randn(1000, device="cuda") for _ in range(4)]
    watch = stopwatch([lambda v=v: v.sin() for v in values], "cuda")
    assert watch.timed == "graph"
    assert watch.sample() > 0
    watch = stopwatch([lambda v=v: v * v.sum().item() for v in values], "cuda")
    assert watch.timed == "events"
    assert "not captured" in watch.note
    assert stopwatch([lambda v=v: v.cos() for v in values], "cuda").timed == "graph"  # nothing is left broken
