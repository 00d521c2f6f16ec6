from __future__ import annotations

import random
import time
from types import SimpleNamespace

import numpy as np
import pytest

from tests.automata.samples import (
    CASES,
    JFLAP_TEXT,
    RATIONAL_LOOPS,
    SEMIRINGS,
    assert_same_series,
    one_way,
    random_machine,
    there_and_back,
)
from tests.fuzzing.damage import mutated
from transductor.automata import formats, from_dfa, regex
from transductor.automata.finite_algebra import minimised
from transductor.automata.finite_automata import DFA, NFA, determinised
from transductor.automata.formats import AutomatonFormatError, jflap, limits, native, openfst, read, read_dfa, write
from transductor.automata.formats.graph import as_weighted, with_one_start
from transductor.automata.library import LIBRARY
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS


@pytest.mark.parametrize(("name", "ring"), CASES)
class TestRoundTrip:
    def test_series_of_random_machines(self, name, ring):
        for seed in range(4):
            machine = random_machine(ring, seed=seed)
            assert_same_series(machine, there_and_back(machine, name))

    def test_direction_of_arcs(self, name, ring):
        machine = one_way(ring)
        read = there_and_back(machine, name)
        assert_same_series(machine, read)
        assert read("abb") == machine.weights.one
        assert read("bba") == machine.weights.zero
        assert read.identical(machine), "one start of weight one needs no new state"

    def test_empty_word(self, name, ring):
        ones = WEIGHTS[ring]
        machine = WeightedAutomaton([ones.one], {"a": [[ones.zero]]}, [ones.one], weights=ring)
        read = there_and_back(machine, name)
        assert read("") == ones.one
        assert read("a") == ones.zero

    def test_no_states_one_state_no_letters(self, name, ring):
        ones = WEIGHTS[ring]
        empty = WeightedAutomaton([], {"a": np.zeros((0, 0))}, [], weights=ring)
        assert_same_series(empty, there_and_back(empty, name))
        dead = WeightedAutomaton([ones.zero], {"a": [[ones.one]]}, [ones.one], weights=ring)
        assert_same_series(dead, there_and_back(dead, name))
        silent = WeightedAutomaton([ones.one], {}, [ones.one], weights=ring)
        assert there_and_back(silent, name)("") == ones.one

    def test_letters_beyond_ascii(self, name, ring):
        machine = random_machine(ring, letters=('"', "ε", "→", "\\", "<", "&", "'", "\u2028", "\u00a0", "🦉"))
        assert_same_series(machine, there_and_back(machine, name), length=2)

    def test_a_letter_no_arc_reads_is_kept(self, name, ring):
        ones = WEIGHTS[ring]
        machine = WeightedAutomaton([ones.one], {"a": [[ones.one]], "z": [[ones.zero]]}, [ones.one], weights=ring)
        assert_same_series(machine, there_and_back(machine, name))

    def test_through_a_file(self, name, ring, tmp_path):
        machine = random_machine(ring)
        suffix = next(suffix for suffix, format in formats.SUFFIXES.items() if format == name)
        path = formats.write(machine, tmp_path / f"machine{suffix}")
        options = {"weights": ring} if name == "att" else {}
        assert_same_series(machine, formats.read(path, **options))
        assert_same_series(machine, formats.read(path, format=name, **options))
        assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize("name", ["dot", "native"])
@pytest.mark.parametrize("ring", list(WEIGHTS))
def test_exact_formats_keep_every_number(name, ring):
    machine = random_machine(ring, dim=4, letters=("a b", "", "\x00\n", "\ud800", '"]', 3, -1), seed=9)
    assert there_and_back(machine, name).identical(machine)


@pytest.mark.parametrize("name", ["dot", "native", "att"])
def test_floats_keep_every_digit(name):
    machine = WeightedAutomaton([1.0], {"a": [[0.1 + 0.2]]}, [1e-300], weights="float")
    assert there_and_back(machine, name).identical(machine)


@pytest.mark.parametrize("name", ["att", "dot", "jflap", "native"])
def test_finite_automata_are_written(name):
    even = DFA(("a", "b"), np.array([[1, 0], [0, 1]]), 0, frozenset({0}))
    assert_same_series(as_weighted(even), there_and_back(even, name))
    assert [there_and_back(even, name)(word) for word in ("", "a", "aba")] == [True, False, True]
    loops = NFA(("a", "b"), 3, frozenset({(0, None, 1), (1, "a", 1), (1, None, 2), (2, None, 1)}), {0, 2}, {2})
    read = there_and_back(loops, name)
    assert [read(word) for word in ("", "aa", "b", "ab")] == [loops(word) for word in ("", "aa", "b", "ab")]


def test_letters_a_format_cannot_hold_are_refused_by_name():
    def over(*letters):
        return random_machine("boolean", letters=letters)

    for machine, name, shown in [
        (over("a b"), "att", "'a b'"), (over(""), "att", "''"), (over("<eps>"), "att", "'<eps>'"),
        (over("a", 3), "att", "all integers"), (over("0", "1"), "att", "labels='names'"), (over(0), "att", "got 0"),
        (over("\ud800"), "att", "ud800"), (over((1, 2)), "att", r"\(1, 2\)"),
        (over("ab"), "jflap", "'ab'"), (over(1), "jflap", "got 1"), (over("\x00"), "jflap", "x00"),
        (over((1, 2)), "native", r"\(1, 2\)"), (over(True), "native", "True"), (over((1, 2)), "dot", r"\(1, 2\)"),
    ]:  # fmt: skip
        with pytest.raises(ValueError, match=shown):
            formats.FORMATS[name].render(machine)
    for letters, shown in [(("a", 3), "got 3"), (("<eps>",), "<eps>"), ((0,), "got 0"), (("\ud800",), "ud800")]:
        with pytest.raises(ValueError, match=shown):
            openfst.render(random_machine("log", letters=letters))


def test_weights_a_format_cannot_hold_are_refused_by_name():
    with pytest.raises(ValueError, match="'boolean' for JFLAP"):
        jflap.render(random_machine("rational"))
    with pytest.raises(ValueError, match="'rational'"):
        openfst.render(random_machine("rational"))
    with pytest.raises(ValueError, match="arc_type must be one of 'standard'"):
        openfst.render(random_machine("min_plus"), arc_type="log")
    with pytest.raises(ValueError, match="too large for the float32"):
        openfst.render(WeightedAutomaton([0.0], {"a": [[1e300]]}, [0.0], weights="min_plus"))
    with pytest.raises(ValueError, match="bits"):
        native.render(WeightedAutomaton([2**20000], {}, [1]))
    with pytest.raises(TypeError, match="got SimpleNamespace"):
        native.render(SimpleNamespace())


def test_one_start_makes_no_state_without_need():
    assert with_one_start(one_way("float"))[1].dim == 2
    start, machine = with_one_start(random_machine("rational"))
    assert (start, machine.dim) == (3, 4)
    assert_same_series(machine, random_machine("rational"))


def test_formats_are_chosen_by_suffix_or_name(tmp_path):
    with pytest.raises(ValueError, match=r"path must end in one of \.att"):
        formats.read(tmp_path / "machine.xyz")
    with pytest.raises(ValueError, match="format must be one of 'att'"):
        formats.write(one_way("log"), tmp_path / "machine.json", format="xml")
    with pytest.raises(FileNotFoundError):
        formats.read(tmp_path / "machine.json")
    with pytest.raises(ValueError, match="'boolean' for JFLAP"):
        formats.write(one_way("log"), tmp_path / "machine.jff")
    assert list(tmp_path.iterdir()) == []


def test_large_files_are_refused_before_they_are_read(tmp_path, monkeypatch):
    monkeypatch.setattr(limits, "MAX_BYTES", 2**20)
    path = tmp_path / "machine.json"
    path.write_bytes(b" " * (2**20 + 1))
    with pytest.raises(AutomatonFormatError, match="larger than 1 MiB"):
        formats.read(path)


def seeds_of(name: str) -> list[tuple[bytes, dict]]:
    """Files to damage, and how to read them."""
    module, inputs = formats.FORMATS[name], []
    for ring in SEMIRINGS[name]:
        data = module.render(random_machine(ring))
        inputs.append((data, {"weights": ring} if name == "att" else {}))
    if name == "att":
        inputs.append((RATIONAL_LOOPS, {"weights": "rational"}))
        inputs.append((b"0 1 2\n1 0 0 .5\n1 2\n", {"weights": "log"}))
    if name == "jflap":
        inputs.append((JFLAP_TEXT.encode(), {}))
    return inputs


def survive(name: str, count: int) -> tuple[int, int]:
    rng, inputs = random.Random(f"{name} {count}"), seeds_of(name)
    read = refused = 0
    for _ in range(count):
        data, options = rng.choice(inputs)
        damaged = mutated(data, rng)
        begun = time.monotonic()
        try:
            assert isinstance(formats.FORMATS[name].parse(damaged, "damaged", **options), WeightedAutomaton)
            read += 1
        except AutomatonFormatError:
            refused += 1
        assert time.monotonic() - begun < 10, damaged
    return read, refused


@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_damaged_files(name):
    read, refused = survive(name, 500)
    assert refused > read * 0.1


@pytest.mark.slow
@pytest.mark.parametrize("name", list(formats.FORMATS))
def test_many_damaged_files(name):
    read, refused = survive(name, 10_000)
    print(f"{name}: {read} read, {refused} refused")
    assert read + refused == 10_000


class TestMachinesWithoutWeights:
    """``read_dfa``: one call, and no matrices."""

    def test_a_sparse_machine_of_612_states_and_64_letters(self, tmp_path):
        edges = [(state, letter, (state * 7 + letter) % 612) for state in range(612) for letter in (1, 1 + state % 64)]
        path = tmp_path / "sparse.att"
        path.write_text("".join(f"{source}\t{to}\t{letter}\n" for source, letter, to in edges) + "5\n")
        weighted = read(path, weights="boolean", labels="numbers")
        assert (weighted.dim, len(weighted.alphabet)) == (612, 64)
        assert read(path, labels="numbers").weights.name == "min_plus"
        dfa = read_dfa(path, labels="numbers")
        nfa = NFA(tuple(range(1, 65)), 612, frozenset(edges), frozenset({0}), frozenset({5}))
        assert dfa == determinised(nfa)
        assert dfa.states == minimised(dfa).states

    def test_it_reads_what_openfst_prints_and_writes(self, tmp_path):
        path = tmp_path / "a.att"
        path.write_text("0 1 a a\n1 0 <eps> <eps>\n1 2 b b\n2\n")
        assert read_dfa(path) == regex("a+b", "ab")
        path.write_text("0 1 a a 0\n1 1 b b Infinity\n1 0\n")
        assert read_dfa(path) == regex("a", "ab")
        write(read(path), tmp_path / "m.fst")
        assert read_dfa(tmp_path / "m.fst") == regex("a", "ab")
        for suffix in ("json", "jff"):
            write(from_dfa(regex("(ab)*")), tmp_path / f"m.{suffix}")
            assert read_dfa(tmp_path / f"m.{suffix}") == regex("(ab)*")

    def test_weights_are_refused_by_name(self, tmp_path):
        path = tmp_path / "a.att"
        path.write_text("0 1 a a 2.5\n1\n")
        with pytest.raises(AutomatonFormatError, match=r"the weight 2\.5 is neither one nor zero of 'min_plus'"):
            read_dfa(path)
        write(LIBRARY["base_value"](2).automaton, tmp_path / "m.json")
        with pytest.raises(AutomatonFormatError, match="'rational' weights: use read"):
            read_dfa(tmp_path / "m.json")

    def test_a_language_with_too_many_states_is_refused(self, tmp_path):
        path = tmp_path / "a.att"
        chain = "".join(f"{n} {n + 1} {letter} {letter}\n" for n in range(1, 9) for letter in "ab")
        path.write_text(f"0 0 a a\n0 0 b b\n0 1 a a\n{chain}9\n")
        assert read_dfa(path).states == 512
        with pytest.raises(AutomatonFormatError, match="more than limit = 100"):
            read_dfa(path, limit=100)
