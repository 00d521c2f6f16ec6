"""The pages on theory are those of the records, and their figures show what the records hold."""

from __future__ import annotations

import importlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.records import records_folder
from transductor.report.theory_figures import statement_figure, statement_figure_name, study_figure_of_theory
from transductor.results import read_record

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "make_theory.py"
sys.path.insert(0, str(SCRIPT.parent))  # as it is when the script runs
try:
    make_theory, page, studies = map(importlib.import_module, ("make_theory", "theory_statements", "theory_studies"))
finally:
    sys.path.remove(str(SCRIPT.parent))

records_folder()
ENTRIES = page.entries(read_record(make_theory.RECORD).measurements)
PAGE = make_theory.PAGE.read_text()
RANKS = {"gated": {"2,2": 4, "2,3": 6}, "additive": {"2,2": 4, "2,3": 5}}
DYCK = {"word": "([])", "scores": [[-3, 1, None, None], [0, -4, None, None]], "matches": [1, 0]}


def test_both_pages_are_those_of_the_records():
    subprocess.run([sys.executable, SCRIPT, "--check"], check=True)


def test_every_statement_of_the_record_is_on_the_page_in_the_order_of_the_paper():
    headings = re.findall(r"^### ([\d, ]+) (.+)$", PAGE, re.MULTILINE)
    assert headings == [(", ".join(map(str, entry["numbers"])), entry["title"]) for entry in ENTRIES]
    firsts = [min(entry["numbers"]) for entry in ENTRIES]
    assert firsts == sorted(set(firsts))
    assert sorted(page.SAYS) == list(range(1, 33))
    assert {number for entry in ENTRIES for number in entry["numbers"]} == set(page.SAYS)


def test_a_statement_that_is_not_confirmed_is_not_said_to_hold():
    entry = dict(ENTRIES[0])
    assert "Not confirmed" not in page.section(entry)
    assert "Not confirmed" in page.section(entry | {"holds": False})
    assert "not confirmed" in page.overview([entry | {"holds": False}])


def test_every_statement_that_is_false_as_written_has_its_counterexample_in_a_line():
    """The lines are run with all other blocks of the page."""
    wrong = {min(entry["numbers"]): entry["name"] for entry in ENTRIES if entry["finding"] == "false as written"}
    assert page.IN_A_LINE.keys() == wrong.keys()
    for number, line in page.IN_A_LINE.items():
        assert wrong[number] in line
        assert f"\n```python\n{line}\n```\n" in PAGE
        assert line.endswith(".shown)")  # which says so if the counterexample is none


def test_a_changed_number_of_the_record_changes_the_page():
    for entry in ENTRIES:
        assert page.section(entry) in PAGE
        assert page.section({**entry, "measured": 123456789}) not in PAGE


def test_every_figure_on_the_pages_is_there_and_named():
    named = {name for text in (make_theory.PAGE, make_theory.BEYOND) for name in pictures(text.read_text())}
    expected = {
        statement_figure_name(number, entry["measurements"]) for entry in ENTRIES for number in entry["numbers"]
    }
    assert named == {name for name in expected if name} | set(make_theory.DRAWN.values())
    for name in named:
        assert (make_theory.FIGURES / f"{name}.png").stat().st_size > 10_000, name


def pictures(text):
    return re.findall(r"\]\(figures/(\w+)\.png\)", text)


def legend(figure):
    return {text.get_text() for axes in figure.axes if axes.get_legend() for text in axes.get_legend().get_texts()}


def test_figures_show_what_the_records_hold():
    drawn = 0
    for entry in ENTRIES:
        for number in entry["numbers"]:
            if statement_figure_name(number, entry["measurements"]):
                figure = statement_figure(number, entry["measurements"])
                assert sum(len(axes.lines) + len(axes.images) for axes in figure.axes) >= 3
                drawn += 1
    assert drawn == 7
    figure = statement_figure(3, {"rank": RANKS})
    assert legend(figure) == {"d₁ · d₂", "d₁ + d₂", "gated", "additive"}
    figure = statement_figure(8, {"dyck": DYCK})
    assert [tuple(line.get_xydata()[0]) for line in figure.axes[0].lines] == [(1, 0), (0, 1)]


def test_studies_have_figures():
    for name, path in make_theory.STUDIES.items():
        record = read_record(path)
        plain = {"measurements": record.measurements, "settings": record.settings}
        assert legend(study_figure_of_theory(name, plain))
    with pytest.raises(ValueError, match="name must be"):
        study_figure_of_theory("tea", plain)


def test_statements_without_a_figure_say_so():
    assert statement_figure_name(5, {}) is None
    assert statement_figure_name(3, {}) is None
    with pytest.raises(ValueError, match="number must be one of 3, 4, 8"):
        statement_figure(5, {})


def test_numbers_are_written_as_people_read_them():
    assert [page.number(value) for value in (1234567, 0.5, 2.0, "1/2", 1e-9)] == [
        "1\u2009234\u2009567", "0.5", "2", "1/2", "1e-09",
    ]  # fmt: skip


def test_a_crossing_lies_on_the_line_between_points():
    assert studies.crossing([(0, 0.0), (1, 0.0), (3, 1.0)], 0.5) == 2
    assert studies.crossing([(0, 0.0), (1, 0.2)], 0.5) is None
