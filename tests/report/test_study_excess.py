"""Tables and figure of the studies of beliefs, computed again from the files."""

from __future__ import annotations

import json
import statistics

import pytest
from matplotlib.colors import to_hex

from tests.report.made_records import write_study
from transductor.report import read_studies
from transductor.report.study_excess import (
    GOAL,
    by_process,
    excess_sheets,
    excess_words,
    process_label,
    reached,
    within_goal,
)
from transductor.report.study_figures import study_figure
from transductor.report.study_predictions import excess_outcomes, excess_rows
from transductor.report.style import COLOURS
from transductor.study_names import TRACKED, TRACKERS

ODD = {"filter_on_5_slow": {1: "failed"}, "lstm_on_8_fast": {0: "missing"}}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    write_study(folder, "tracking", (0, 1, 2), odd=ODD)
    write_study(folder, "tracking_wide", (0, 1, 2), arms={"filter_on_16_slow", "filter_on_8_slow_vague"})
    return folder


@pytest.fixture(scope="module")
def studies(folder):
    return read_studies(folder)


def excesses(folder, arm, length, seeds=(0, 1, 2)):
    records = [json.loads((folder / "tracking" / arm / f"seed{seed}.json").read_text()) for seed in seeds]
    entries = [record["measurements"]["learned"] for record in records]
    return [next(one["excess"] for one in each if one["length"] == length) for each in entries]


def test_every_cell_is_that_of_the_files(folder, studies):
    table, searches = excess_sheets(studies[0])
    assert len(table.rows) == len(searches.rows) == len(TRACKED) * len(TRACKERS)
    row = next(row for row in table.rows if row[:2] == ("8 states, slow", "LSTM"))
    for place, length in enumerate((40, 160, 640, 2560), 3):
        values = excesses(folder, "lstm_on_8_slow", length)
        mean, least, most = (excess_words(each) for each in (statistics.fmean(values), min(values), max(values)))
        assert row[place] == f"{mean} ({least}–{most}) ×3"
    near = [excesses(folder, "lstm_on_8_slow", length) for length in (640, 2560)]
    assert row[-1] == f"{sum(max(pair) <= GOAL for pair in zip(*near, strict=True))} of 3"


def test_a_seed_that_failed_is_not_within_the_goal_and_one_that_is_missing_is_named(studies):
    arms = by_process(studies[0])
    assert within_goal(arms["5_slow"]["filter"]).values[1] == 0
    assert reached(arms["5_slow"]["filter"]).endswith(" of 3")
    assert reached(arms["8_fast"]["lstm"]).endswith(" of 2; seed 0 missing")


def test_what_was_searched_is_said(folder, studies):
    search = json.loads((folder / "tracking" / "dense_on_5_fast" / "seed0.json").read_text())["measurements"]["search"]
    row = next(row for row in excess_sheets(studies[0])[1].rows if row[:2] == ("5 states, fast", "dense"))
    assert row[3] == f"{search['chosen']:g}"
    assert [part.split(":")[0] for part in row[2].split(", ")] == [f"{one['rate']:g}" for one in search["tried"]]


def test_the_figure_has_a_panel_for_each_automaton(studies):
    figure = study_figure(studies[0])
    assert [axis.get_title() for axis in figure.axes] == [process_label(process) for process in TRACKED]
    for axis, arms in zip(figure.axes, by_process(studies[0]).values(), strict=True):
        lines = {to_hex(line.get_color()): line for line in axis.lines}
        for tracker in arms:
            assert list(lines[COLOURS[tracker]].get_xdata()) == [40, 160, 640, 2560]
    (legend,) = figure.legends
    assert [text.get_text() for text in legend.get_texts()][:1] == ["filter (2 of 3 seeds)"]


@pytest.mark.parametrize(
    ("value", "words"),
    [(0.0, "0.00%"), (0.00123, "0.12%"), (0.5, "50.0%"), (12.0, "1,200%"), (1.5e9, "10^11%"), (1e308, "overflow")],
)
def test_excesses_in_words(value, words):
    assert excess_words(value) == words


def test_every_prediction_has_an_outcome_and_what_was_not_run_is_said(studies):
    lines = excess_outcomes(*studies)
    assert len(lines) == 7
    assert all("**confirmed**" in line or "**refuted**" in line for line in lines)
    assert "8 states, slow, revealed: not run" in lines[-1]
    heads, rows = excess_rows(studies[1])
    assert [row[:2] for row in rows] == [["16 states, slow", "filter"], ["8 states, slow, vague", "filter"]]
    assert all(len(row) == len(heads) for row in rows)
    with pytest.raises(ValueError, match="must have records of 5_slow"):
        excess_outcomes(studies[1], studies[1])
