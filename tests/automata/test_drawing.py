from __future__ import annotations

import math
import shutil
import subprocess
from xml.etree import ElementTree

import numpy as np
import pytest

from tests.automata.samples import one_way, random_machine
from transductor.automata import drawing, formats, zero_series
from transductor.automata.finite_automata import DFA, NFA
from transductor.automata.formats.labels import arc_label, letter_label, weight_label
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS

MAGIC = {".png": b"\x89PNG", ".pdf": b"%PDF", ".svg": b"<?xml"}


@pytest.fixture(params=["graphviz", "matplotlib"])
def engine(request, monkeypatch):
    if request.param == "matplotlib":
        monkeypatch.setattr(drawing.shutil, "which", lambda program: None)
    elif shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    return request.param


def written_in(text: str) -> str:
    """All text in a picture."""
    return "".join(ElementTree.fromstring(text).itertext())


def test_every_suffix(engine, tmp_path):
    for suffix, magic in MAGIC.items():
        path = drawing.draw(random_machine("rational"), tmp_path / f"machine{suffix}")
        assert path.read_bytes().startswith(magic)
    path = drawing.draw(random_machine("rational"), tmp_path / "machine.dot")
    assert formats.read(path).identical(random_machine("rational"))
    with pytest.raises(ValueError, match=r"path must end in one of \.svg"):
        drawing.draw(random_machine("rational"), tmp_path / "machine.gif")


@pytest.mark.parametrize("ring", list(WEIGHTS))
def test_every_semiring(engine, ring):
    assert ElementTree.fromstring(drawing.svg(random_machine(ring))).tag.endswith("svg")


def test_awkward_machines(engine):
    empty = WeightedAutomaton([], {"a": np.zeros((0, 0))}, [], weights="float")
    lonely = WeightedAutomaton([1], {}, [3])
    strange = random_machine("rational", letters=("$x$", "&lt;", "<b>", '"', "\\n", " ", "", "\n", "\ud800", "🦉", 7))
    for machine in (empty, lonely, strange):
        assert ElementTree.fromstring(drawing.svg(machine)).tag.endswith("svg")


def test_finite_automata_are_drawn(engine):
    assert "<svg" in drawing.svg(DFA(("a", "b"), np.array([[1, 0], [0, 1]]), 0, frozenset({0})))
    assert "<svg" in drawing.svg(NFA(("a",), 2, frozenset({(0, None, 1), (1, "a", 0)}), {0}, {1}))
    with pytest.raises(TypeError, match="automaton must be"):
        drawing.svg("abc")


def test_weights_are_on_the_arcs():
    if shutil.which("dot") is None:
        pytest.skip("Graphviz is not installed")
    machine = WeightedAutomaton(["1/2", 0], {"a": [[0, 0], ["2/3", 0]], "b": [[0, 0], ["2/3", 1]]}, [0, 5])
    shown = written_in(drawing.svg(machine))
    assert "a, b : 2/3" in shown
    assert "1/2" in shown
    assert "→ 5" in shown
    assert shown.count(" : ") == 1, "the weight one is not written"


def test_large_machines_are_refused_politely(monkeypatch):
    big = WeightedAutomaton(np.ones(61), {"a": np.eye(61)}, np.ones(61), weights="float")
    with pytest.raises(ValueError, match="at most 60 states to be drawn; it has 61; force=True"):
        drawing.svg(big)
    with pytest.raises(NotImplementedError):
        big._repr_svg_()
    assert "<svg" in drawing.svg(big, force=True)


def test_dense_machines_do_not_wait_for_graphviz(monkeypatch):
    monkeypatch.setattr(drawing, "_by_graphviz", lambda *_: pytest.fail("too many arrows for Graphviz"))
    rng = np.random.default_rng(0)
    dense = WeightedAutomaton(np.ones(17), {"a": rng.normal(size=(17, 17))}, np.ones(17), weights="float")
    assert "<svg" in drawing.svg(dense)


def test_a_graphviz_that_fails_is_replaced(monkeypatch):
    def failing(*arguments, **options):
        raise subprocess.TimeoutExpired("dot", 1)

    monkeypatch.setattr(drawing.shutil, "which", lambda program: "/no/such/dot")
    assert "<svg" in drawing.svg(one_way("boolean"))
    monkeypatch.setattr(drawing.subprocess, "run", failing)
    assert "<svg" in drawing.svg(one_way("boolean"))


def test_notebooks_show_a_picture():
    assert "<svg" in one_way("float")._repr_svg_()


def test_labels():
    real = WEIGHTS["float"]
    assert arc_label(zero_series("abc", real), [(0, 1.0), (1, 0.5), (2, 1.0)]) == "a, c\nb : 0.5"
    assert weight_label(real, -1 / 3) == "−0.3333"
    assert weight_label(WEIGHTS["min_plus"], 0.0) == ""
    assert weight_label(WEIGHTS["rational"], WEIGHTS["rational"].parse("1/" + "3" * 40)).startswith("≈")
    assert weight_label(WEIGHTS["rational"], WEIGHTS["rational"].number(10**400)) == "≈huge"
    many = zero_series([f"letter{i}" for i in range(100)], real)
    assert len(arc_label(many, [(i, 1.0) for i in range(100)]).splitlines()) <= 8
    assert len(arc_label(many, [(i, math.sqrt(i + 2)) for i in range(100)]).splitlines()) == 6
    assert [letter_label(letter) for letter in (" ", "", "a b", "\n", 3)] == ["' '", "''", "a b", "'\\n'", "3"]


def test_finite_automata_show_in_a_notebook():
    dfa = DFA(("a", "b"), np.array([[1, 0], [0, 1]]), 0, frozenset({0}))
    nfa = NFA(("a",), 2, frozenset({(0, "a", 1), (0, None, 1)}), frozenset({0}), frozenset({1}))
    assert all("<svg" in machine._repr_svg_() for machine in (dfa, nfa))
