"""Every measured number that a reader meets comes from a committed record, and is what the record holds."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

from tests.records import records_folder

ROOT = Path(__file__).parents[2]
records_folder()
records_folder("benchmarks/results")
RECORD = "benchmarks/results/demo.json"


@pytest.fixture(scope="module")
def cited():
    spec = importlib.util.spec_from_file_location("cited_numbers", ROOT / "docs" / "cited_numbers.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_no_page_has_a_number_of_its_own(cited):
    assert len(cited.pages()) > 45
    lines = [line for name, page in cited.pages().items() for line in cited.uncovered(name, page.read_text())]
    assert lines == []


def test_every_cited_number_is_that_of_its_record(cited):
    texts = {name: page.read_text() for name, page in cited.pages().items()}
    assert sum(text.count("<!-- from: ") for text in texts.values()) > 60
    assert [line for name, text in texts.items() for line in cited.wrong(name, text)] == []


def test_no_constant_is_named_in_vain(cited):
    pages = {name: page.read_text() for name, page in cited.pages().items()}
    unused = [(name, text) for name, texts in cited.CONSTANTS.items() for text in texts if text not in pages[name]]
    assert unused == []


def test_every_measured_table_is_made_from_its_record():
    subprocess.run([sys.executable, ROOT / "docs" / "make_measured.py", "--check"], check=True)


@pytest.mark.parametrize(
    "sentence",
    ["It takes 12 s.", "It is 3.5 % faster.", "It was right on 7 of 10.", "An error of 2e-7.", "1.4 times as long"],
)
def test_a_number_by_hand_is_noticed(cited, sentence):
    assert len(cited.uncovered("docs/new.md", sentence)) == 1
    assert cited.uncovered("docs/new.md", f"`{sentence}`") == []
    assert (
        cited.uncovered("docs/new.md", f"<!-- part: made by docs/make.py -->\n{sentence}\n<!-- end of part -->") == []
    )


def comment(pointer, reducer=""):
    return f"<!-- from: {reducer}{RECORD}#{pointer} -->"


def test_a_cited_number_is_compared_as_it_is_rounded(cited):
    chance = "/measurements/chance"  # 0.2
    for right in (
        f"20{comment(chance)} %",
        f"20 %{comment(chance)}",
        f"0.20{comment(chance)}",
        f"200{comment(chance)} ms",
    ):
        assert cited.wrong("page", right) == []
        assert cited.uncovered("page", right) == []
    for false in (f"21{comment(chance)} %", f"0.21{comment(chance)}"):
        (line,) = cited.wrong("page", false)
        assert "the record holds" in line


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (f"5{comment('/measurements/nothing')} s", "KeyError"),
        (f"5{comment('/measurements/models/*/parameters')}", "different numbers: say mean"),
        (f"five {comment('/measurements/chance')}", "no number stands before it"),
        ("5<!-- from: benchmarks/results/demo.json --> s", "no number stands before it"),
        ("5<!-- from: benchmarks/results/none.json#/x --> s", "there is no benchmarks/results/none.json"),
    ],
)
def test_a_citation_that_leads_nowhere_is_named(cited, text, said):
    (line,) = cited.wrong("page", text)
    assert said in line
