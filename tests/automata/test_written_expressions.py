"""Regular expressions and sentences of logic that are written from machines: read again, they are the same machines."""

from __future__ import annotations

import re
from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from tests.automata.random_machines import rational_automaton
from tests.properties import given, settings, st
from transductor.automata import (
    DFA,
    NFA,
    AutomatonFormatError,
    WeightedAutomaton,
    as_first_order,
    as_mso,
    as_regex,
    as_weighted_mso,
    from_dfa,
    machine,
    mso,
    read,
    regex,
    weighted_mso,
    write,
)
from transductor.automata.decomposition.monoid import is_aperiodic
from transductor.automata.language import language
from transductor.automata.library import machines
from transductor.automata.sources import automaton_from

FINITE = {named.name: named.dfa for named in machines() if named.dfa is not None and named.dfa.states <= 12}
OF_CHARACTERS = {name: dfa for name, dfa in FINITE.items() if all(isinstance(each, str) for each in dfa.alphabet)}
STAR_FREE = ("adder:2", "flip_flop", "tomita:1", "tomita:2", "tomita:4")
# Letters in an expression and its repetitions: what was written when this was made, and no more.
LENGTHS = {1: 8, 2: 5, 3: 32, 4: 16, 5: 31, 6: 23, 7: 11}
ODD = "a]^-[\\|.*(\n\t #é\u2028\x00\ud800{'\"&~"
PATTERNS = ("(ab)*", ".*aa.*", "a*b*", "abb", "", "(?!)", "[ab]*", "a?b?", "(ab|ba)*", "a(ba)*|b", "b[ab]")


def tables(letters, states):
    """DFAs of some letters and at most some states."""
    return st.integers(1, states).flatmap(
        lambda count: st.tuples(
            st.lists(
                st.lists(st.integers(0, count - 1), min_size=len(letters), max_size=len(letters)),
                min_size=count,
                max_size=count,
            ),
            st.frozensets(st.integers(0, count - 1)),
        ).map(lambda drawn: DFA(letters, np.array(drawn[0]).reshape(len(drawn[0]), len(letters)), 0, drawn[1]))
    )


def words(letters, longest):
    return (word for length in range(longest + 1) for word in product(letters, repeat=length))


@pytest.mark.parametrize("name", OF_CHARACTERS)
def test_an_expression_is_read_back_and_python_matches_the_same_words(name):
    dfa = OF_CHARACTERS[name]
    text = as_regex(dfa)
    assert regex(text) == regex(text, dfa.alphabet) == dfa
    for word in words(dfa.alphabet, 5):
        assert bool(re.fullmatch(text, "".join(word))) == dfa(word), word


@pytest.mark.parametrize("number", LENGTHS)
def test_expressions_are_short(number):
    assert len(as_regex(machine(f"tomita:{number}").dfa)) <= LENGTHS[number]
    assert as_regex(machine("counter:6").dfa) == "(0|(10*){5}1)*"


@settings(max_examples=60)
@given(st.data())
def test_letters_of_any_spelling_are_quoted(data):
    letters = tuple(data.draw(st.lists(st.sampled_from(ODD), unique=True, max_size=3)))
    dfa = data.draw(tables(letters, 4))
    text = as_regex(dfa)
    assert "\n" not in text
    assert regex(text) == regex(text, letters) == dfa
    compiled = re.compile(text)
    assert all(bool(compiled.fullmatch("".join(word))) == dfa(word) for word in words(letters, 3))


def test_many_letters_are_written_as_ranges():
    letters = "".join(map(chr, range(ord("a"), ord("z") + 1))) + "-]A"
    dfa = regex("[a-z]*A[-\\]]", letters)
    assert as_regex(dfa) == r"[a-z]*A[\-\]]"
    assert regex(as_regex(dfa)) == dfa


def test_letters_that_are_names(tmp_path):
    names = ("open", "close", "x")
    dfa = DFA(names, np.array([[1, 2, 2], [2, 0, 2], [2, 2, 2]]), 0, frozenset({0, 1}))
    text = as_regex(dfa)
    assert text == "(?#letters: open close x)(open close)* open?|x (?!)"
    for found in (automaton_from(f"regex:{text}"), automaton_from(f"regex:{text}", names)):
        assert language(found) == dfa
    assert language(automaton_from(str(write(dfa, tmp_path / "brackets.regex")))) == dfa
    classes = DFA(("up", "down", "x1"), np.array([[1, 1, 0], [1, 0, 1]]), 0, frozenset({1}))
    assert language(automaton_from(f"regex:{as_regex(classes)}")) == classes
    for bad in ("(0, 0)", "a b", "", "a'b", "a|b", "a\u2028b"):
        with pytest.raises(ValueError, match="letters of one character each, or names"):
            as_regex(DFA((bad, "ab"), np.zeros((1, 2), dtype=int), 0, frozenset({0})))
    with pytest.raises(ValueError, match="distinct spelling"):
        as_regex(DFA((1, "1"), np.zeros((1, 2), dtype=int), 0, frozenset({0})))
    assert as_regex(DFA((0, 1), np.array([[0, 1], [1, 0]]), 0, frozenset({0}))) == "(0|10*1)*"


def test_the_smallest_languages():
    nothing, empty = regex("(?!)", "ab"), regex("", "ab")
    assert as_regex(nothing) == "[ab](?!)"
    assert as_regex(empty) == "|[ab](?!)"
    for dfa in (nothing, empty, ~nothing, regex("", ""), regex("(?!)", "")):
        for written, reader in ((as_regex, regex), (as_mso, mso), (as_first_order, mso)):
            assert reader(written(dfa), dfa.alphabet) == dfa, (written, dfa)
    assert (as_mso(nothing), as_first_order(~nothing)) == ("false", "true")


def test_what_has_a_language():
    nfa = NFA(("a", "b"), 2, frozenset({(0, "a", 0), (0, "b", 0), (0, "a", 1)}), frozenset({0}), frozenset({1}))
    dfa = regex("[ab]*a", "ab")
    # (1 − (−1)ⁿ) / 2 with a matrix that is no machine's: the length is odd.
    odd = WeightedAutomaton([Fraction(1, 2), Fraction(-1, 2)], [[[1, 0], [0, -1]]], [1, 1], "a")
    assert as_regex(nfa) == as_regex(dfa) == as_regex(from_dfa(dfa)) == as_regex(from_dfa(dfa, "rational"))
    assert as_regex(odd) == "a(aa)*"
    with pytest.raises(ValueError, match="gives 2 to 1 0"):
        as_mso(machine("base_value:2").automaton)
    with pytest.raises(ValueError, match="boolean or rational weights to be a language; it has float"):
        as_regex(machine("rotation:6").automaton)
    with pytest.raises(TypeError, match="a DFA, an NFA or a WeightedAutomaton; got str"):
        as_regex("a*")
    with pytest.raises(ValueError, match="at most limit = 1 states"):
        language(odd, limit=1)


@pytest.mark.parametrize("name", [name for name, dfa in FINITE.items() if dfa.states <= 4 or name == "counter:5"])
def test_a_sentence_is_read_back(name):
    dfa = FINITE[name]
    assert mso(as_mso(dfa), dfa.alphabet) == dfa


@settings(max_examples=25)
@given(st.data())
def test_sentences_of_small_machines(data):
    dfa = data.draw(tables(data.draw(st.sampled_from([("a", "b"), ("#",), ("in", "x'")])), 3))
    assert mso(as_mso(dfa), dfa.alphabet) == dfa
    if is_aperiodic(dfa).aperiodic:
        text = as_first_order(dfa)
        assert not re.search(r"\bin\b|\bsub\b", text.replace("in(", ""))
        assert mso(text, dfa.alphabet) == dfa
    else:
        with pytest.raises(ValueError, match="not star-free"):
            as_first_order(dfa)


@pytest.mark.parametrize("source", [*STAR_FREE, *PATTERNS])
def test_star_free_languages_need_no_sets(source):
    dfa = FINITE[source] if source in FINITE else regex(source, "ab")
    text = as_first_order(dfa)
    assert mso(text, dfa.alphabet) == dfa
    assert set(re.findall(r"(?:exists|forall) (\w+)", text)) <= {"x", "y", "z"}


@pytest.mark.parametrize("name", ["parity", "base_value:2", "balance", "occurrences:aba", "bigram", "tomita:2"])
def test_a_weighted_sentence_is_read_back(name):
    series = machine(name).automaton
    assert weighted_mso(as_weighted_mso(series), series.alphabet) == series


@settings(max_examples=8)
@given(st.integers(0, 10_000), st.integers(0, 2), st.integers(1, 2))
def test_weighted_sentences_of_small_series(seed, dim, letters):
    series = rational_automaton(np.random.default_rng(seed), dim, letters)
    text = as_weighted_mso(series)
    assert weighted_mso(text, series.alphabet) == series


def test_what_weighted_logic_cannot_hold():
    for weights, hint in (("float", "over"), ("max_plus", "max_plus"), ("boolean", "boolean")):
        series = (
            WeightedAutomaton([1.0], [[[1.0]]], [1.0], "a", weights=weights)
            if weights != "boolean"
            else (from_dfa(regex("a*")))
        )
        with pytest.raises(ValueError, match=f"rational weights.*{hint}"):
            as_weighted_mso(series)
    with pytest.raises(TypeError, match="automaton must be a WeightedAutomaton; got DFA"):
        as_weighted_mso(regex("a"))


def test_what_would_explode_is_refused():
    symmetric = machine("symmetric:4").dfa
    with pytest.raises(ValueError, match="more than limit = 3000 letters and operators in every order tried"):
        as_regex(symmetric, limit=3000)
    with pytest.raises(ValueError, match="atoms, more than limit = 100"):
        as_mso(symmetric, limit=100)
    with pytest.raises(ValueError, match="atoms, more than limit = 5"):
        as_weighted_mso(machine("bigram").automaton, limit=5)
    with pytest.raises(ValueError, match="more than limit = 2000 atoms"):
        as_first_order(regex(".*ab.*ba.*", "ab"), limit=2000)
    for written in (as_regex, as_mso, as_first_order):
        with pytest.raises(ValueError, match="limit must be a positive integer; got 0"):
            written(regex("a"), limit=0)
    with pytest.raises(ValueError, match="both quotes"):
        as_mso(DFA(("'\"",), np.zeros((1, 1), dtype=int), 0, frozenset({0})))


@pytest.mark.parametrize("suffix", ["regex", "mso", "fo", "wmso"])
def test_files_of_expressions(tmp_path, suffix):
    dfa = DFA(("b", "a", "c"), np.array([[1, 0, 2], [2, 0, 2], [2, 2, 2]]), 0, frozenset({0, 1}))  # c is in no word
    source = from_dfa(dfa, "rational") if suffix == "wmso" else dfa
    path = write(source, tmp_path / f"file.{suffix}")
    assert path.read_text().count("\n") == 1
    assert language(automaton_from(str(path))) == dfa
    assert language(automaton_from(str(path), "abc")) == dfa
    with pytest.raises(AutomatonFormatError, match="expression to be compiled: automaton_from"):
        read(path)
    path.write_text("(((")
    with pytest.raises(AutomatonFormatError, match=f"file.{suffix}:1: "):
        automaton_from(str(path))


def test_an_empty_file_is_the_expression_of_the_empty_word(tmp_path):
    path = write(regex("", ""), tmp_path / "empty.regex")
    assert path.read_text() == "\n"
    assert language(automaton_from(str(path)))("")
