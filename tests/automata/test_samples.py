"""Samples and models in the formats of the PAutomaC and Abbadingo competitions."""

from __future__ import annotations

import contextlib
import random

import numpy as np
import pytest

from transductor.automata.formats.errors import AutomatonFormatError
from transductor.automata.probabilistic import is_probabilistic
from transductor.automata.samples import read_abbadingo, read_pautomac, read_pautomac_model, read_pautomac_solution

PAUTOMAC = "3 4\n2 0 3\n0\n3 1 1 2\n"
ABBADINGO = "4 2\n1 3 a b a\n0 0\n-1 1 b\n1 2 b b\n"
MODEL = """I: (state)
\t(0) 0.25
\t(1) 0.75
F: (state)
\t(0) 0.5
S: (state,symbol)
\t(0,0) 1.0
\t(1,0) 0.5
\t(1,1) 0.5
T: (state,symbol,state)
\t(0,0,1) 1.0
\t(1,0,0) 1.0
\t(1,1,0) 0.5
\t(1,1,1) 0.5
"""
READERS = {
    "pautomac": (read_pautomac, PAUTOMAC),
    "abbadingo": (read_abbadingo, ABBADINGO),
    "model": (read_pautomac_model, MODEL),
    "solution": (read_pautomac_solution, "2\n0.5\n1e-12\n"),
}


@pytest.fixture
def file(tmp_path):
    def written(text):
        path = tmp_path / "sample.txt"
        path.write_bytes(text if isinstance(text, bytes) else text.encode())
        return path

    return written


def test_strings_of_pautomac(file):
    assert read_pautomac(file(PAUTOMAC)) == ([(0, 3), (), (1, 1, 2)], 4)


def test_labelled_strings_of_abbadingo(file):
    sample = read_abbadingo(file(ABBADINGO))
    assert sample.strings == [("a", "b", "a"), (), ("b",), ("b", "b")]
    assert sample.labels == [1, 0, -1, 1]
    assert sample.letters == 2


def test_a_model_of_pautomac(file):
    automaton = read_pautomac_model(file(MODEL))
    assert is_probabilistic(automaton)
    assert automaton([]) == pytest.approx(0.25 * 0.5)
    assert automaton([0]) == pytest.approx(0.75 * 0.5 * 0.5)  # from state 1 by letter 0 to state 0, which stops
    assert automaton([1, 1]) == pytest.approx(0.75 * 0.25 * 0.25 * 0.5)


def test_a_solution_of_pautomac(file):
    np.testing.assert_array_equal(read_pautomac_solution(file("2\n0.5\n1e-12\n")), [0.5, 1e-12])


@pytest.mark.parametrize(
    ("reader", "text", "message"),
    [
        ("pautomac", "", "the file is empty"),
        ("pautomac", "3\n", ":1: the first line must hold the numbers of strings and of letters"),
        ("pautomac", "1 2\n1 2\n", ":2: a letter must be a whole number below 2; got '2'"),
        ("pautomac", "1 2\n3 1\n", ":2: the length 3 is given, but 1 letters follow"),
        ("pautomac", "2 2\n1 1\n", ":1: the first line promises 2 strings, but 1 follow"),
        ("abbadingo", "1 1\n2 1 a\n", ":2: a label must be 1, 0 or -1; got '2'"),
        ("abbadingo", "1 1\n1 2 a b\n", ":2: more than the 1 letters"),
        ("abbadingo", "1 1\n1\n", ":2: a line must begin with 2 numbers"),
        ("model", "I: (state)\n(0) 1.5\n", ":2: a probability must lie between 0 and 1; got '1.5'"),
        ("model", "(0) 1\n", ":1: a line must be a section"),
        ("model", "I: (state)\n(0,1) 1\n", ":2: an entry of I has 1 numbers; got 2"),
        ("model", "I: (state)\n(0) 0.5\n(0) 0.5\n", r":3: the entry \(0,\) of I is there twice"),
        ("model", "I: (state)\n(0) 1\n", "a model needs the sections I and S"),
        ("model", "I: (state)\n(0) 1\nS: (state,symbol)\n(0,4000) 1\n(4000,0) 1\n", "do not fit"),
        ("solution", "1\nnan\n", ":2: a probability must lie between 0 and 1; got 'nan'"),
    ],
)
def test_what_is_no_sample_is_refused_with_its_line(file, reader, text, message):
    with pytest.raises(AutomatonFormatError, match=message):
        READERS[reader][0](file(text))


@pytest.mark.parametrize("name", READERS)
def test_damaged_files_give_our_error_or_a_value(file, name):
    reader, text = READERS[name]
    dice = random.Random(0)
    for _ in range(250):
        damaged = bytearray(text.encode())
        for _ in range(dice.randint(1, 4)):
            place = dice.randrange(len(damaged))
            damaged[place : place + dice.randint(0, 2)] = dice.choice(
                [b"\n", b"-", b"9" * 30, b"\xff", b" ", b"0", b"(", b""]
            )
        with contextlib.suppress(AutomatonFormatError):  # any other error fails
            reader(file(bytes(damaged)))
