"""Predictions about a study are judged by its records, part by part."""

from __future__ import annotations

import pytest

from tests.report.made_records import write_study
from transductor.report.study_predictions import injection_outcomes, injection_rows
from transductor.report.study_records import ArmRuns, Run, StudyRecords, read_studies
from transductor.results import Record

TASKS, INJECTIONS = ("counting", "held_count", "flip_flop"), ("deep", "input", "none")


def entry(length, share):
    return {"input": "random", "task": "a task", "length": length, "positions": share}


def study_of(shares):
    """A study of two seeds from shares at 20 and 160 of each task and injection."""
    arms = []
    for (task, injection), (near, far) in shares.items():
        name = f"injection_{injection}_on_{task}"
        entries = [entry(20, near), entry(40, near), entry(160, far)]
        record = Record(name, {}, {"learned": entries, "training": {"failure": None}})
        arms.append(ArmRuns(name, (Run(0, record), Run(1, record)), {}))
    return StudyRecords("deep_injection", "?", tuple(arms), (), (0, 1), ())


AS_PREDICTED = {
    **dict.fromkeys([("held_count", "deep"), ("held_count", "input")], (0.97, 0.7)),
    ("held_count", "none"): (0.7, 0.4),
    ("counting", "deep"): (1.0, 0.95),
    ("counting", "input"): (1.0, 0.85),
    ("counting", "none"): (0.3, 0.2),
    **{("flip_flop", injection): (0.99, 0.8) for injection in INJECTIONS},
}
CHANGES = [
    ("held_count", "input", (0.94, 0.7), 0),
    ("held_count", "none", (0.85, 0.4), 0),
    ("held_count", "deep", (0.97, 0.801), 0),
    ("counting", "deep", (0.999, 0.95), 1),
    ("counting", "deep", (1.0, 0.89), 1),
    ("counting", "input", (1.0, 0.91), 1),
    ("counting", "none", (0.41, 0.2), 1),
    ("flip_flop", "none", (0.96, 0.8), 2),
    ("flip_flop", "none", (0.99, 0.79), 2),
]


def test_what_was_predicted_is_confirmed():
    lines = injection_outcomes(study_of(AS_PREDICTED))
    assert len(lines) == 3
    assert sum(line.count("confirmed") for line in lines) == 10
    assert not any("refuted" in line for line in lines)


@pytest.mark.parametrize(("task", "injection", "shares", "line"), CHANGES)
def test_and_refuted_where_the_records_say_otherwise(task, injection, shares, line):
    lines = injection_outcomes(study_of({**AS_PREDICTED, (task, injection): shares}))
    assert [place for place, text in enumerate(lines) if "refuted" in text] == [line]


def test_the_table_has_a_row_for_every_task_and_injection(tmp_path):
    write_study(tmp_path, "deep_injection")
    (study,) = read_studies(tmp_path)
    heads, rows = injection_rows(study)
    assert heads[2:4] == ["random, 20", "worst, 20"]
    assert [row[:2] for row in rows[:4]] == [["mod-5 counting", "deep"], ["", "input"], ["", "none"],
                                             ["held count", "deep"]]  # fmt: skip
    assert all("×" not in cell for row in rows for cell in row)
    assert len(rows) == len(TASKS) * len(INJECTIONS)


def test_an_arm_without_records_is_named():
    shares = {key: value for key, value in AS_PREDICTED.items() if key != ("counting", "none")}
    with pytest.raises(ValueError, match="no record of none injection on counting"):
        injection_outcomes(study_of(shares))
