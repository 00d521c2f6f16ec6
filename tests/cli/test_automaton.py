"""The workbench on a shell: every command, on files and expressions, and what a wrong line is answered."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest
from typer.testing import CliRunner

from transductor.automata.formats import read
from transductor.automata.library import machine
from transductor.automata.probabilistic import random_probabilistic, sampled
from transductor.automata.sources import automaton_from, language_of
from transductor.cli import app


def invoke(*arguments):
    return CliRunner().invoke(app, ["automaton", *map(str, arguments)], env={"COLUMNS": "200"})


def test_show_weighs_words_and_says_what_is_known():
    result = invoke("show", "counter:3", "0110", "1")
    assert result.exit_code == 0, result.output
    for words in ("3 states, 2 letters, rational", "rank of the Hankel matrix: 3 (proved", "'0110': 2", "1 → 2"):
        assert words in result.output
    assert "not star-free" in invoke("show", "regex:(aa)*").output
    assert "star-free" in invoke("show", "regex:(ab)*", "abab").output
    assert "the empty language" in invoke("show", "regex:a(?!)").output
    assert "'a a b': 2" in invoke("show", "wmso:sum x. [a(x)]", "a a b", "-a", "a b").output
    assert "120 states" in invoke("show", "symmetric:5").output


def test_a_rank_is_said_to_be_proved_only_where_it_is(monkeypatch):
    """Modulo primes that divide something it is too small; what was asked of primes alone says so."""
    source, said = "a_n_b_n", "modulo three random primes: never too large; minimise proves it"
    assert f"rank of the Hankel matrix: 5 ({said})" in invoke("show", source).output
    monkeypatch.setattr("transductor.automata.reduction.rank_by_primes", lambda machine: 4)
    assert f"rank of the Hankel matrix: 4 ({said})" in invoke("show", source).output
    assert invoke("show", "rotation:7").output.rstrip().endswith("rank of the Hankel matrix: 2")


def test_list_names_every_machine():
    result = invoke("list").output
    for name in ("parity", "tomita:7", "alternating:5"):
        assert name in result


@pytest.mark.parametrize("suffix", ["json", "att", "dot", "jff"])
def test_convert_and_back(tmp_path, suffix):
    path = tmp_path / f"machine.{suffix}"
    source = ("regex:(ab|b)*a", "-a", "ab")
    result = invoke("convert", source[0], path, *source[1:])
    assert result.exit_code == 0, result.output
    written = read(path, **({"weights": "boolean"} if suffix == "att" else {}))
    assert written == automaton_from(source[0], "ab").with_alphabet(written.alphabet)


def test_minimise_prints_or_writes(tmp_path):
    result = invoke("minimise", "a_n_b_n", "-o", tmp_path / "small.json")
    assert "7 states before, 5 after (exact)" in result.output
    assert read(tmp_path / "small.json") == machine("a_n_b_n").automaton
    assert "tolerance" in invoke("minimise", "rotation:7").output


def test_equivalent_answers_by_its_exit_status():
    same = invoke("equivalent", "regex:(ab)*", "regex:(ab)*(ab)?")
    assert (same.exit_code, "proved" in same.output) == (0, True)
    other = invoke("equivalent", "balance", "occurrences:a")
    assert other.exit_code == 1
    assert "a shortest word: b: -1 and 0" in other.output
    assert "ε, the empty word" in invoke("equivalent", "regex:a*", "regex:a+").output


def test_learn_from_a_file_of_strings(tmp_path):
    true = random_probabilistic(2, "ab", 0)
    sample = tmp_path / "sample.txt"
    sample.write_text("\n".join("".join(word) for word in sampled(true, 3000, 1)))
    result = invoke("learn", sample, "--rank", 2, "-o", tmp_path / "learned.json")
    assert result.exit_code == 0, result.output
    assert "3,000 strings; rank 2" in result.output
    shares = re.search(r"held-out perplexity: ([\d.]+) on 600 strings.*letters alone ([\d.]+)", result.output)
    assert 1 < float(shares[1]) < float(shares[2])
    few = tmp_path / "few.txt"
    few.write_text("ab\na\n")
    assert "fewer than five strings" in invoke("learn", few, "--rank", 1).output
    learned = read(tmp_path / "learned.json")
    assert max(abs(learned(word) - true(word)) for word in ("", "a", "b", "ab", "ba")) < 0.05


def test_a_level_without_a_group_has_resets():
    result = invoke("decompose", "regex:(a|b)*a")
    assert result.exit_code == 0, result.output
    assert "resets on 2 points" in result.output
    assert "order 1" not in result.output


def test_every_file_can_be_named_by_an_option(tmp_path):
    assert invoke("convert", "parity", "-o", tmp_path / "parity.json").exit_code == 0
    assert invoke("draw", "parity", "-o", tmp_path / "parity.svg").exit_code == 0
    assert invoke("decompose", "symmetric:3", "-o", tmp_path / "levels.png").exit_code == 0
    for name in ("parity.json", "parity.svg", "levels.png"):
        assert (tmp_path / name).stat().st_size
    for arguments in (("convert", "parity"), ("draw", "parity", "a.svg", "-o", "b.svg")):
        result = invoke(*arguments)
        assert result.exit_code == 2
        assert "OUTPUT must be given once" in result.output


def test_decompose_reports_and_verifies(tmp_path):
    result = invoke("decompose", "symmetric:3", "--picture", tmp_path / "levels.png")
    assert result.exit_code == 0, result.output
    for words in ("S3", "holds"):
        assert words in result.output
    assert (tmp_path / "levels.png").stat().st_size > 1000


def test_draw(tmp_path):
    assert invoke("draw", "bigram", tmp_path / "bigram.svg").exit_code == 0
    assert "<svg" in (tmp_path / "bigram.svg").read_text()


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("there is no file 'nothing.json'", ("show", "nothing.json")),
        ("alphabet must be given with mso", ("show", "mso:exists x. a(x)")),
        ("got 'c' at position 1", ("show", "parity", "0c")),
        ("look-ahead", ("show", "regex:a(?=b)")),
        ("must be a finite machine", ("decompose", "base_value")),
        ("from 1 to 1000", ("show", "counter:many")),
        ("No such file", ("learn", "nowhere.txt")),
        ("Krohn", ("--help",)),
    ],
)
def test_a_wrong_line_is_answered_in_one_line(words, arguments):
    result = invoke(*arguments)
    assert words in result.output
    assert "Traceback" not in result.output
    assert result.exit_code == (0 if arguments == ("--help",) else 2)


def test_a_malformed_file_is_refused_with_its_line(tmp_path):
    path = tmp_path / "broken.att"
    path.write_text("0 1 a\n1 zwei b\n")
    result = invoke("show", path)
    assert result.exit_code == 2
    assert "broken.att:2:" in result.output


def test_languages_of_finite_machines():
    assert language_of(machine("counter:4").automaton).states == 4
    assert language_of(machine("parity").automaton)("10")
    with pytest.raises(ValueError, match="finite machine"):
        language_of(machine("balance").automaton)


def test_the_workbench_does_not_wait_for_torch():
    code = """
import sys
from transductor.automata.sources import automaton_from
from transductor.automata.reduction import minimised
assert minimised(automaton_from("a_n_b_n")).dim == 5
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)
