from __future__ import annotations

import math
import time
from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest

from tests.automata.samples import (
    JFLAP_TEXT,
    RATIONAL_LOOPS,
    assert_same_series,
    one_way,
    random_machine,
    refusal,
    there_and_back,
)
from transductor.automata import formats
from transductor.automata.formats import AutomatonFormatError, att, dot, graph, jflap, native, openfst
from transductor.automata.weighted import WeightedAutomaton


class TestATT:
    def test_openfst_conventions(self):
        text = "0 1 a a 0.5\n1 2 b b\n1 0 a a 1\n2 3.5\n0\n"
        tropical = att.parse(text.encode())
        assert tropical("ab") == 4.0
        assert tropical("") == 0.0
        assert att.parse(text.encode(), weights="log")("ab") == -4.0

    def test_parallel_arcs_are_summed(self):
        text = b"0\t1\ta\ta\t2\n0\t1\ta\ta\t3\n1\n"
        assert att.parse(text)("a") == 2
        assert att.parse(text, weights="rational")("a") == 5
        assert att.parse(text, weights="log")("a") == pytest.approx(np.logaddexp(-2, -3))

    def test_state_numbers_may_have_gaps_and_the_first_line_starts(self):
        machine = att.parse(b"70 5 a\n5\n")
        assert (machine.dim, machine("a"), machine("")) == (2, 0.0, np.inf)

    def test_columns_are_told_apart_or_refused(self):
        assert att.parse(b"0 1 a 2\n1\n")("a") == 2
        assert att.parse(b"0 1 a a\n1\n")("a") == 0
        assert "acceptor" in refusal(att, "0 1 1 1\n1\n").reason
        assert att.parse(b"0 1 1 1\n1\n", acceptor=True)([1]) == 1
        assert att.parse(b"0 1 1 1\n1\n", acceptor=False)([1]) == 0
        assert refusal(att, "0 1 a\n1 0 b b 2\n1\n").line == 1
        transducer = refusal(att, "0 1 a a 1\n0 1 a b 1\n1\n")
        assert (transducer.line, "transducer from 'a' to 'b'" in transducer.reason) == (2, True)
        assert refusal(att, "0 1 a a\n0 1 a b\n1\n").line == 2
        acceptor = att.render(random_machine("rational"), acceptor=True)
        assert_same_series(random_machine("rational"), att.parse(acceptor, weights="rational"))

    def test_labels_are_names_or_numbers(self, tmp_path):
        assert att.parse(b"0 1 7 7 0\n0 2 0 0 1\n2\n1\n").alphabet == (7,)
        binary = one_way("rational")
        binary = WeightedAutomaton(binary.initial, binary.matrices, binary.final, ("0", "1"))
        assert_same_series(binary, there_and_back(binary, "att", labels="names"))
        table = formats.write_symbols(["0", "1", "unread"], tmp_path / "symbols.txt")
        assert formats.read_symbols(tmp_path / "symbols.txt") == table
        for symbols in (table, dict(table.ids), tmp_path / "symbols.txt"):
            for labels in ("names", "numbers"):
                read = there_and_back(binary, "att", symbols=symbols, labels=labels)
                assert read.alphabet == ("0", "1", "unread")
                assert read(["0", "1"]) == 1
        with pytest.raises(ValueError, match="symbols must hold every letter"):
            att.render(one_way("rational"), symbols=table)
        with pytest.raises(ValueError, match="labels must be"):
            att.render(one_way("rational"), labels="ids")

    @pytest.mark.parametrize(
        ("text", "line", "reason"),
        [
            ("", 1, "empty"), ("  \n\t\n", 1, "empty"), ("x 1 a\n", 1, "state"), ("0 -1 a\n", 1, "state"),
            ("0 1 a a nan\n", 1, "nan"), ("0 1 a a -inf\n", 1, "-inf"), ("0 1 a a 1 1\n", 1, "5 fields"),
            ("0\n0\n", 2, "second final"), ("0 1 a a 1\n0 x\n", 2, "number"), ("0 1 a a 1e999999999\n", 1, "exponent"),
            ("0 1 a a " + "1" * 5000, 1, "characters"),
        ],
    )  # fmt: skip
    def test_refusals(self, text, line, reason):
        error = refusal(att, text)
        assert error.line == line
        assert reason in error.reason

    def test_bytes_that_are_no_text(self):
        assert refusal(att, b"0 1 a a 1\n0 1 \xff a 1\n").line == 2

    def test_symbol_tables_are_checked(self, tmp_path):
        path = tmp_path / "symbols.txt"
        for text, line in [("a 1\nb\n", 2), ("a 1\nb 1\n", 2), ("a 1\na 2\n", 2), ("a -1\n", 1), ("", 1)]:
            path.write_text(text)
            with pytest.raises(AutomatonFormatError) as caught:
                att.parse(b"0 1 a a 1\n", symbols=path)
            assert (caught.value.path, caught.value.line) == (str(path), line)
        for symbols in ({"a": 1, "b": 1}, {"a": -1}, {1: 1}, {"a": True}):
            with pytest.raises(ValueError, match="symbols must"):
                att.parse(b"0\n", symbols=symbols)
        assert "'b' is not in" in refusal(att, "0 1 b b 1\n", symbols={"a": 1}).reason


class TestEpsilon:
    """ε arcs are summed exactly where the sum exists."""

    def test_rational_cycles(self):
        # The two cycles at state 1 together weigh 1/3 + 2 · 1/12 = 1/2.
        assert att.parse(RATIONAL_LOOPS, weights="rational")("a") == Fraction(1, 2) * 2 * 2
        assert att.parse(RATIONAL_LOOPS, weights="float")("a") == pytest.approx(2.0)

    def test_log_cycles_are_the_real_ones(self):
        rows = [(0, 1, "a", 1 / 2), (1, 1, "<eps>", 1 / 3), (1, 2, "<eps>", 2), (2, 1, "<eps>", 1 / 12)]
        text = "".join(f"{i}\t{j}\t{x}\t{x}\t{-math.log(w)}\n" for i, j, x, w in rows) + "2\t0\n"
        assert att.parse(text.encode(), weights="log")("a") == pytest.approx(math.log(2))

    def test_costs_and_truth_values_converge_unless_a_cycle_pays(self):
        text = "0 1 <eps> <eps> 2\n1 0 <eps> <eps> {}\n1 2 a a 1\n2\n"
        assert att.parse(text.format(0).encode())("a") == 3
        assert "state" in refusal(att, text.format(-3)).reason
        assert att.parse(text.replace("2\n1 0", "1\n1 0").format(1).encode(), weights="boolean")("a")

    @pytest.mark.parametrize(
        ("ring", "weight"),
        [("rational", "-1"), ("rational", "2"), ("float", "-1.5"), ("float", "1"), ("log", "0"), ("max_plus", "0.5")],
    )
    def test_cycles_that_do_not_converge_name_the_state(self, ring, weight):
        error = refusal(att, f"40 40 <eps> <eps> {weight}\n40 41 a a 1\n41\n", weights=ring)
        assert "through state 40 do not converge" in error.reason

    def test_cycles_that_only_cancel_are_refused(self):
        # 0 → 1 → 0 weighs 1 and 0 → 2 → 0 weighs -1: in another order, their sum is another one.
        cycles = "".join(f"{i} {j} <eps> <eps> {w}\n" for i, j, w in [(0, 1, 1), (1, 0, 1), (0, 2, 1), (2, 0, -1)])
        assert "converge" in refusal(att, cycles + "0 3 a a 1\n3\n", weights="rational").reason

    @pytest.mark.parametrize("ring", ["float", "rational"])
    def test_against_the_inverse(self, ring):
        rng = np.random.default_rng(3)
        weight = rng.integers(-3, 4, size=(4, 4))
        lines = [f"{i} {j} <eps> <eps> {weight[j, i]}/20" for i in range(4) for j in range(4)]
        lines = ["0 0 a a 1", *lines, "1 3 a a 2", "2 1 b b -1", "3 5", "1 1/2"]
        read = att.parse("\n".join(lines).encode(), weights=ring)
        closure = np.linalg.inv(np.eye(4) - weight / 20)
        a, b, final = np.zeros((4, 4)), np.zeros((4, 4)), np.array([0, 0.5, 0, 5])
        a[0, 0], a[3, 1], b[1, 2] = 1, 2, -1
        for word in read.words(4):
            state = closure[:, 0]
            for letter in word:
                state = closure @ {"a": a, "b": b}[letter] @ state
            assert float(read(word)) == pytest.approx(final @ state)

    def test_long_chains_in_any_order_are_fast(self):
        count = 1500
        for step in (1, -1):
            states = list(range(count))[::step]
            lines = [f"{i} {j} <eps> <eps> 1" for i, j in pairwise(states)]
            begun = time.monotonic()
            machine = att.parse("\n".join([*lines, f"{states[-1]} 0"]).encode())
            assert machine("") == count - 1
            assert time.monotonic() - begun < 20

    def test_work_is_bounded(self, monkeypatch):
        monkeypatch.setattr(graph, "MAX_STEPS", 10**8)
        lines = [f"{i} {j} <eps> <eps> 1/{1000003 + 2 * i + 77 * j}" for i in range(40) for j in range(40)]
        assert "too many ε arcs" in refusal(att, "\n".join(lines), weights="rational").reason


class TestOpenFst:
    def test_needs_pynini_for_objects_and_says_so(self, monkeypatch):
        def missing(name):
            raise ImportError(name)

        monkeypatch.setattr(openfst, "import_module", missing)
        with pytest.raises(ImportError, match=r"transductor\[openfst\]"):
            openfst.to_pynini(one_way("log"))

    def test_integer_letters_are_labels(self):
        machine = random_machine("log", letters=(5, 3, 9))
        machine = WeightedAutomaton(machine.initial, machine.matrices, machine.final, (5, 3, 9), weights="log")
        assert_same_series(machine, there_and_back(machine, "openfst"), length=3)
        assert_same_series(machine, there_and_back(machine, "att"), length=3)

    @pytest.mark.parametrize(("ring", "arc_type"), [("min_plus", "standard"), ("log", "log"), ("log", "log64")])
    def test_pynini_reads_what_is_written_and_back(self, ring, arc_type):
        pynini = pytest.importorskip("pynini")
        for seed in range(3):
            machine = random_machine(ring, seed=seed)
            fst = openfst.to_pynini(machine, arc_type=arc_type)
            assert fst.verify()
            assert fst.arc_type() == arc_type
            back = openfst.from_pynini(fst)
            for word in machine.words(4):
                assert back(word) == pytest.approx(machine(word), rel=1e-5, abs=1e-5)
                assert self.shortest(pynini, fst, word) == pytest.approx(
                    machine(word) if ring == "min_plus" else -machine(word), rel=1e-5, abs=1e-4
                )

    @staticmethod
    def shortest(pynini, fst, word):
        """OpenFst's own weight of a word: the sum over all paths of the composition."""
        line = pynini.Fst(fst.arc_type())
        line.add_states(len(word) + 1)
        line.set_start(0)
        line.set_final(len(word))
        for place, letter in enumerate(word):
            label = fst.input_symbols().find(letter)
            line.add_arc(place, pynini.Arc(label, label, pynini.Weight.one(fst.weight_type()), place + 1))
        line.set_input_symbols(fst.input_symbols())
        line.set_output_symbols(fst.input_symbols())
        both = pynini.compose(line, fst)
        if both.start() < 0:
            return np.inf
        return float(pynini.shortestdistance(both, reverse=True)[both.start()])

    @pytest.mark.parametrize(("ring", "arc_type"), [("min_plus", "standard"), ("log", "log64")])
    def test_att_text_both_ways_with_pynini(self, ring, arc_type):
        pywrapfst = pytest.importorskip("pywrapfst")
        machine = random_machine(ring, seed=5)
        symbols = {"<eps>": 0, "a": 1, "b": 2}
        compiler = pywrapfst.Compiler(arc_type=arc_type)
        compiler.write(att.render(machine, symbols=symbols, labels="numbers").decode())
        compiled = compiler.compile()
        assert_close(machine, openfst.from_pynini(compiled, symbols=symbols))
        printed = compiled.print().encode()
        assert_close(machine, att.parse(printed, weights=ring, symbols=symbols, labels="numbers", acceptor=False))

    def test_epsilon_arcs_as_openfst_removes_them(self):
        pywrapfst = pytest.importorskip("pywrapfst")
        compiler = pywrapfst.Compiler(arc_type="log64")
        compiler.write("0 1 1 1 0.5\n0 2 0 0 1.5\n2 1 0 0 0.25\n1 2 0 0 2\n1 1 2 2 1\n2 0.125\n1 3\n")
        fst = compiler.compile()
        mine = openfst.from_pynini(fst)
        assert_close(mine, openfst.from_pynini(fst.copy().rmepsilon()))
        assert mine([1, 2]) > -np.inf

    def test_transducers_and_other_types_are_refused(self):
        pynini = pytest.importorskip("pynini")
        fst = pynini.cross("a", "b")
        assert "transducer" in refusal(openfst, fst.write_to_string()).reason
        data = openfst.render(one_way("log"))
        assert "ends inside" in refusal(openfst, data[:-3]).reason
        assert "after the last state" in refusal(openfst, data + b"\x00").reason
        assert "empty" in refusal(openfst, b"").reason
        assert "no OpenFst file" in refusal(openfst, b"0 1 a a 1\n").reason
        assert "const" in refusal(openfst, data.replace(b"\x06\x00\x00\x00vector", b"\x05\x00\x00\x00const")).reason
        assert "no start" in refusal(openfst, pynini.Fst().write_to_string()).reason


def assert_close(one, other):
    for word in one.words(4):
        assert other(word) == pytest.approx(one(word), rel=1e-5, abs=1e-5)


class TestDot:
    def test_is_readable_and_exact(self):
        text = dot.render(one_way("boolean")).decode()
        assert '0 -> 1 [label="a", weight_0="1"];' in text
        assert dot.parse(("// a comment\n\n" + text).encode()).identical(one_way("boolean"))

    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ("digraph", "graph", "digraph"), ("}\n", "", "cut off"), ("}\n", "}\n}\n", "after the last"),
            ('weights="boolean"', 'weights="quantum"', "quantum"), ('states="2"', 'states="3"', "state 2 of 3"),
            ('states="2"', 'states="1"', "not one of the 1"), ("0 -> 1", "0 -> 7", "state 7"),
            ('weight_0="1"', 'weight_9="1"', "weight_9"), ('weight_0="1"', 'weight_0="2"', "1, 0"),
            ('weight_0="1"', 'weight_0="1", weight_0="1"', "twice"), ("0 -> 1", "1 -> 1", "twice"),
            ("  1 [", "  0 [", "twice"), ('[\\"a\\", \\"b\\"]', '[\\"a\\", \\"a\\"]', "twice"),
            ('[\\"a\\", \\"b\\"]', "[", "JSON"), ('transductor="1"', 'transductor="2"', "version"),
            ("0 -> 1 [", "0 -- 1 [", "statement"), ('label="a"', "label=<b>", "attributes"),
            ('states="2"', 'states="99999"', "dense"), ('label="a"', 'href="a"', "href"),
        ],
    )  # fmt: skip
    def test_refusals(self, old, new, reason):
        text = dot.render(one_way("boolean")).decode()
        assert old in text
        error = refusal(dot, text.replace(old, new, 1))
        assert reason in error.reason
        assert error.line is not None


class TestJFLAP:
    def test_reads_what_jflap_writes(self):
        machine = jflap.parse(JFLAP_TEXT.encode())
        assert machine.weights.name == "boolean"
        assert [machine("a" * count) for count in range(4)] == [False, True, True, True]
        older = JFLAP_TEXT.replace("<automaton>", "").replace("</automaton>", "")
        assert jflap.parse(older.encode()).identical(machine)
        assert jflap.parse(JFLAP_TEXT.encode(), alphabet="ba").alphabet == ("b", "a")

    @pytest.mark.parametrize("kind", ["pda", "turing", "mealy", "moore", "grammar", "nonsense"])
    def test_other_types_are_refused_by_name(self, kind):
        error = refusal(jflap, JFLAP_TEXT.replace(">fa<", f">{kind}<"))
        assert kind in error.reason
        assert error.line == 1

    @pytest.mark.parametrize(
        ("old", "new", "line", "reason"),
        [
            ("<initial/>", "", 1, "initial"), ("<final/>", "<initial/>", 3, "2 are"), ("id='9'", "id='3'", 3, "twice"),
            ("id='9'", "", 3, "whole number"), ("<to>9", "<to>8", 4, "no state 8"), ("<to>9</to>", "", 4, "<to>"),
            ("<read>a", "<read>ab", 4, "one character"), ("</automaton>", "", 6, "well-formed"),
            ("<automaton>", "<automaton><block/>", 1, "block"),
            ("<structure>", "<!DOCTYPE structure [<!ENTITY e 'x'>]><structure>", 1, "DOCTYPE"),
            ("<structure>", "<!DOCTYPE structure SYSTEM 'file:///etc/passwd'><structure>", 1, "DOCTYPE"),
            ("version='1.0'", "version='1.0' encoding='utf-7'", 1, "utf-7"), ("<read>a", "<read>&e;", 4, "well-formed"),
            ("<automaton>", "<automaton>" + "<note>" * 50, 1, "nested"),
        ],
    )  # fmt: skip
    def test_refusals(self, old, new, line, reason):
        assert old in JFLAP_TEXT
        error = refusal(jflap, JFLAP_TEXT.replace(old, new, 1))
        assert reason in error.reason
        assert error.line == line


class TestNative:
    @pytest.mark.parametrize(
        ("old", "new", "reason"),
        [
            ('"version": 1', '"version": 2', "$.version"), ('"states": 2', '"states": -1', "$.states"),
            ('"states": 2', '"states": true', "$.states"), ('"states": 2', '"states": 100000', "dense"),
            ('["a", "b"]', '["a", "a"]', "$.alphabet"), ('["a", "b"]', '["a", [1]]', "$.alphabet[1]"),
            ('[[1, 0, "1"]]', '[[2, 0, "1"]]', "$.matrices[0].sparse[0]"),
            ('[[1, 0, "1"]]', '[[1, 0, "1"], [1, 0, "1"]]', "second time"),
            ('[[1, 0, "1"]]', '[[1, 0, "1/0"]]', "1/0"), ('[[1, 0, "1"]]', "[[1, 0, 1.5]]", "rational"),
            ('[[1, 0, "1"]]', "[[1, 0, NaN]]", "NaN"), ('[[1, 0, "1"]]', '[[1, 0, "1e99999999"]]', "exponent"),
            ('{"sparse": [[0, "1"]]}', '{"dense": ["1"]}', "$.initial.dense"), ('"format"', '"fromat"', "$.format"),
            ('"states": 2', '"states": 2, "states": 2', "twice"), ('"states": 2', '"states": ' + "9" * 5000, "JSON"),
            ('"format"', '"extra": 1, "format"', "$.extra"), ('["a", "b"]', "[" * 100_000, "nested"),
        ],
    )  # fmt: skip
    def test_refusals_name_the_path(self, old, new, reason):
        text = native.render(one_way("rational")).decode()
        assert old in text
        assert reason in refusal(native, text.replace(old, new, 1)).reason

    def test_a_cut_off_file_names_the_line(self):
        assert refusal(native, native.render(one_way("rational"))[:60]).line is not None
        assert refusal(native, "[1]").reason == "$ must be an object"

    def test_letters_keep_their_type(self):
        machine = random_machine("rational", letters=(1, "1"))
        assert there_and_back(machine, "native").alphabet == (1, "1")
