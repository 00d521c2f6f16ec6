"""The figure, the table and the outcomes of the map of groups say what its record holds."""

from __future__ import annotations

import copy

import pytest

from tests.records import records_folder
from transductor.report.groups_map import (
    accuracy_rows,
    faster_outcome,
    is_group,
    learned,
    map_figure,
    map_rows,
    outcomes,
)
from transductor.results import read_record

KEPT = read_record(records_folder("benchmarks/results") / "groups_map.json")
SETTINGS = {"seeds": 2, "lengths": [40, 160, 640]}


def run(family, monoid, seed, *shares):
    pairs = zip((40, 160, 640), shares, strict=True)
    return {
        "family": family,
        "monoid": monoid,
        "seed": seed,
        "lengths": {str(at): {"random": random, "worst": worst, "worst_kind": "a"} for at, (random, worst) in pairs},
    }


def cell(family, monoid, verdict, least=None, reason=None, reflections=None):
    return {"family": family, "monoid": monoid, "verdict": verdict, "least": least, "reason": reason,
            "reflections": reflections}  # fmt: skip


MADE = {
    "answers": [
        cell("diagonal", "S3", "impossible", reason="letters that do not commute"),
        cell("Householder", "S3", "d = 2", 2, "faithful representation", 2),
        cell("dense", "S3", "2 ≤ d ≤ 3"),
        cell("diagonal", "seen", "d = 2", 2),
        cell("Householder", "seen", "impossible", reason="no reset"),
        cell("dense", "seen", "d = 2", 2),
    ],
    "runs": [
        run("diagonal", "S3", 0, (0.5, 0.1), (0.2, 0), (0.2, 0)),
        {"family": "diagonal", "monoid": "S3", "seed": 1, "failed": "the loss is nan"},
        run("Householder", "S3", 0, (1, 1), (1, 1), (0.9, 0.5)),
        run("Householder", "S3", 1, (1, 1), (1, 0.99999), (1, 1)),
        run("diagonal", "seen", 0, (1, 0.5), (1, 1), (1, 1)),
        run("diagonal", "seen", 1, (0.99999, 1), (1, 1), (1, 1)),
    ],
}


def test_a_seed_counts_if_it_makes_no_mistake_up_to_a_length():
    strict, random = learned(MADE, 160, kinds=True), learned(MADE, 160, kinds=False)
    assert strict == {("diagonal", "S3"): 0, ("Householder", "S3"): 1, ("diagonal", "seen"): 0}
    assert random == {("diagonal", "S3"): 0, ("Householder", "S3"): 2, ("diagonal", "seen"): 1}
    assert learned(MADE, 640, kinds=True)["Householder", "S3"] == 0
    assert [is_group(name) for name in ("Z2", "Q8", "seen", "T3")] == [True, True, False, False]


def test_the_table_has_every_cell():
    heads, rows = map_rows(MADE, SETTINGS)
    assert heads == ["", "diagonal", "Householder", "dense"]
    assert rows[0] == ["S3", "**— c**<br>0 · 0", "**2, k 2**<br>2 · 1", "**2 ≤ d ≤ 3**<br>–"]
    assert rows[1] == ["seen", "**2**<br>1 · 0", "**— i**<br>–", "**2**<br>–"]


def test_shares_are_never_rounded_to_all_or_none():
    heads, rows = accuracy_rows(MADE, SETTINGS)
    assert len(heads) == 8
    by_cell = {(row[0], row[1]): row[2:] for row in rows}
    assert by_cell["S3", "diagonal"] == ["diverged"] * 6
    assert by_cell["S3", "Householder"][3] == "99.9 (99.9–100)"
    assert by_cell["S3", "Householder"][4] == "95.0 (90.0–100)"
    assert by_cell["seen", "diagonal"][2:4] == ["100", "100"]


def test_the_figure_shows_verdicts_and_seeds():
    figure = map_figure(MADE, SETTINGS)
    (axes,) = figure.axes
    texts = [text.get_text() for text in axes.texts]
    assert texts.count("—") == 2
    for text in ("2, k 2", "2 · 1", "1 · 0", "2 ≤ d ≤ 3"):
        assert text in texts
    assert [label.get_text() for label in axes.get_xticklabels()] == ["S3", "seen"]
    assert len(axes.lines) == 1  # between groups and other monoids
    hatched = [patch for patch in axes.patches if patch.get_hatch()]
    assert len(hatched) == 3  # not trained


def test_outcomes_follow_the_record():
    lines = outcomes(KEPT.measurements, KEPT.settings)
    assert len(lines) == 10
    assert all(line.endswith(("**Confirmed.**", "**Refuted.**")) for line in lines)
    perfect = {str(length): {"random": 1, "worst": 1, "worst_kind": "a"} for length in KEPT.settings["lengths"]}
    nothing = {str(length): {"random": 0, "worst": 0, "worst_kind": "a"} for length in KEPT.settings["lengths"]}
    # If every seed were right everywhere, or none anywhere: planes (3) and T3 (9) tell the two apart.
    for lengths, expected in ((perfect, "RRCCCRRRRR"), (nothing, "CRRRCRRRCR")):
        changed = copy.deepcopy(dict(KEPT.measurements))
        for one in changed["runs"]:
            one["lengths"] = lengths
        verdicts = "".join("C" if "Confirmed" in line else "R" for line in outcomes(changed, KEPT.settings))
        assert verdicts == expected


@pytest.mark.parametrize(("right", "verdict"), [(1, "confirmed"), (0.5, "refuted")])
def test_the_second_run_is_judged_by_the_same_rule(right, verdict):
    shares = [(right, right)] * 3
    cells = [("rotating planes", name) for name in ("Z2", "Z3", "Z5", "Z6")]
    cells += [("column-stochastic", name) for name in ("seen", "flip-flop")]
    cells += [("permutation × diagonal", name) for name in ("seen", "flip-flop", "Z2")]
    runs = [run(*each, seed, *shares) for each in cells for seed in range(2)]
    faster = {"runs": runs, "training": {"head_learning_rate": 0.05, "learning_rate": 0.005}}
    text = faster_outcome({"faster": faster}, SETTINGS)
    assert f"seen and flip-flop: **{verdict}.**" in text
    assert f"with all seeds: **{verdict}**; and S5 with none: **confirmed.**" in text
    assert "0.05 in place of 0.005" in text
    assert ("Z5 2 · 2" in text) == (right == 1)
