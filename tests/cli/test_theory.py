"""``transductor theory``: all statements, one with its arguments, and what is refused."""

from __future__ import annotations

from collections.abc import Sequence
from fractions import Fraction

import pytest
from typer.testing import CliRunner

from transductor.cli import app
from transductor.cli.theory import _arguments, _parsed
from transductor.results import read_record
from transductor.theory import STATEMENTS, Statement, StatementCertificate, circuits


def invoke(*arguments):
    return CliRunner().invoke(app, ["theory", *map(str, arguments)], env={"COLUMNS": "200", "TERM": "dumb"})


def answer(
    dims: tuple[int, ...] = (1, 2),
    gamma: float = 0.5,
    ratio: Fraction = Fraction(1, 2),
    words: Sequence[str] = ("a",),
    normed: bool = False,
    norm: float | None = None,
    family: str = "dense",
    table: Sequence[Sequence[int]] = ((1,),),
) -> StatementCertificate:
    """Answer as the arguments say."""
    return StatementCertificate(
        "A Title", (40,), "It is.", "≤", 1, float(gamma), "here", "holds", measurements={"dims": dims}
    )


ANSWER = Statement("a_title", "A Title", (40,), answer, True)


@pytest.fixture
def few(monkeypatch):
    """Two statements, so that all are run at once."""
    monkeypatch.setattr("transductor.theory.STATEMENTS", {"fliess": STATEMENTS["fliess"], "a_title": ANSWER})
    monkeypatch.setattr("transductor.theory.recording.STATEMENTS", {"fliess": STATEMENTS["fliess"], "a_title": ANSWER})


def test_all_of_them_in_one_table_and_a_record(few, tmp_path):
    result = invoke("--json", tmp_path / "theory.json")
    assert result.exit_code == 0, result.output
    for words in ("Fliess", "A Title", "4 = 4", "0.5 ≤ 1"):
        assert words in result.output
    record = read_record(tmp_path / "theory.json")
    assert list(record.measurements["statements"]) == ["fliess", "a_title"]
    assert record.measurements["statements"]["fliess"]["holds"]
    assert record.measurements["statements"]["a_title"]["measurements"] == {"dims": [1, 2]}


def test_one_with_its_arguments():
    result = invoke("cascade_reduction", "--dims", "3,2")
    assert result.exit_code == 0, result.output
    assert "Reducibility of Cascaded WFAs" in result.output
    assert "care" in result.output
    assert "'coupled to the previous state': 5" in result.output
    assert "4 = 4" in invoke("--dims=2,1", "Cascaded WFAs").output
    assert "Fliess" in invoke("32", "--dim", "2", "--block", "4").output


def test_status_1_when_one_is_not_confirmed(monkeypatch, tmp_path):
    monkeypatch.setattr(circuits, "_prime_implicants", lambda dfa, length: 1)
    result = invoke("18", "--longest", 3, "--json", tmp_path / "theory.json")
    assert result.exit_code == 1
    assert "NOT CONFIRMED" in result.output
    assert "terms of depth two is [1, 1, 1]" in result.output
    statements = read_record(tmp_path / "theory.json").measurements["statements"]
    assert statements["circuit_lower_bound_for_transductors"]["measured"] == "nan"


REFUSED = [
    (("nothing_of_the_kind",), "NAME must be one of cascade_reduction"),
    (("circuit",), "part of several names: circuit_upper_bound_for_transductors"),
    (("99",), "NAME must be one of"),
    (("--dims", "3,2"), "--dims is an argument of one statement"),
    (("fliess", "linear_representation"), "one statement or all"),
    (("fliess", "--dim"), "--dim needs a value"),
    (("fliess", "--dim", "2", "--dim", "3"), "--dim is there twice"),
    (("fliess", "--depth", "3"), "fliess has no argument --depth; it has --dim, --letters, --seed, --longest, --block"),
    (("fliess", "--dim", "x"), "--dim must be an integer; got 'x'"),
    (("cascade_reduction", "--dims", "3,"), "--dims must be values with commas between them, each an integer"),
    (("fliess", "--dim", "0"), "dim must be an integer of at least 1"),
]


@pytest.mark.parametrize(("arguments", "words"), REFUSED)
def test_what_cannot_be_used_is_refused_in_one_line(arguments, words):
    result = invoke(*arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert result.output.strip().count("\n") == 0


def test_arguments_are_read_by_their_types():
    texts = {"dims": "4,5", "gamma": "1e-3", "ratio": "2/3", "words": "ab,c", "normed": "true", "norm": "none"}
    read = _arguments(ANSWER, texts)
    assert read == {
        "dims": (4, 5), "gamma": 1e-3, "ratio": Fraction(2, 3), "words": ("ab", "c"), "normed": True, "norm": None,
    }  # fmt: skip
    assert _arguments(ANSWER, {"norm": "2"}) == {"norm": 2.0}
    for option, value, words in (
        ("normed", "maybe", "true or false"),
        ("ratio", "1/0", "a fraction such as 1/2"),
        ("norm", "x", "a number or none"),
        ("table", "1", "it has --dims"),
    ):
        with pytest.raises(ValueError, match=words):
            _arguments(ANSWER, {option: value})


def test_options_may_stand_anywhere():
    assert _parsed(["--a", "1", "name", "--b=-2"]) == ("name", {"a": "1", "b": "-2"})
    assert _parsed([]) == (None, {})
