"""Every number of the tables, computed again from the files."""

from __future__ import annotations

import io
import json
import math
import re
import shutil
import statistics

import pytest
from rich.console import Console

from tests.report.made_records import FAILURE, REASON, made_record, write_study
from transductor.report import read_studies, study_report, study_tables
from transductor.report.study_claims import CLAIMS, NOT_SPECIFIED
from transductor.report.style import label, percent
from transductor.studies import STUDIES
from transductor.study_names import ARMS

pytestmark = pytest.mark.usefixtures("coarse")

SEEDS = (0, 1, 2, 3)
ODD = {
    "transductor_ours": {1: "refused", 3: "failed"},
    "transformer_rotary": {2: "missing"},
    "transductor_paper": {0: "damaged"},
    "parity": dict.fromkeys(SEEDS, "refused"),
    "s3": {2: "failed"},
    "family_dense_on_parity": dict.fromkeys(SEEDS, "failed"),
}
NUMBER = r"-?[\d.,]+(?:e[+-]\d+)?%?"
CELL = re.compile(rf"(?P<mean>{NUMBER})(?: \((?P<least>{NUMBER})–(?P<largest>{NUMBER})\))? ×(?P<count>\d+)(?P<rest>.*)")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    folder = tmp_path_factory.mktemp("records")
    for name in STUDIES:
        write_study(folder, name, SEEDS, odd=ODD)
    return folder


@pytest.fixture(scope="module")
def written(folder, tmp_path_factory):
    written = study_report(folder, tmp_path_factory.mktemp("report"))
    assert [path.name for path in written] == [f"{name}.{kind}" for name in STUDIES for kind in ("md", "png")]
    return written


@pytest.fixture(scope="module")
def reports(written):
    return {path.stem: path.read_text() for path in written if path.suffix == ".md"}


def tables(text):
    """By title, a list of rows, each from column to cell."""
    sheets = {}
    for part in text.split("\n## ")[1:]:
        title, _, body = part.partition("\n")
        lines = [re.split(r"(?<!\\)\|", line)[1:-1] for line in body.splitlines() if line.startswith("|")]
        header, _, *rows = [[words.strip() for words in line] for line in lines]
        assert all(len(row) == len(header) for row in rows), title
        sheets[title.split(" (trained to")[0]] = [dict(zip(header, row, strict=True)) for row in rows]
    return sheets


def runs(folder, study, arm, form="learned"):
    """Entries of each seed that has some, straight from the files."""
    entries_by_seed = {}
    for path in sorted((folder / study / arm).glob("seed*.json")):
        try:
            measured = json.loads(path.read_text())["measurements"]
        except json.JSONDecodeError:
            continue
        if measured[form] is not None:
            entries_by_seed[int(path.stem.removeprefix("seed"))] = measured[form]
    return entries_by_seed


def asked(folder, study, arm, form, key, length, given="random", task=None):
    values = {}
    for seed, entries in runs(folder, study, arm, form).items():
        for entry in entries:
            if (entry["input"], entry["length"]) == (given, length) and task in (None, entry["task"]):
                values[seed] = entry[key]
    return values


def worst(folder, study, arm, form, key, length):
    values = {}
    for seed, entries in runs(folder, study, arm, form).items():
        adversarial = [
            e for e in entries if e["length"] == length and e["input"] not in ("random", "p = 0.1", "p = 0.9")
        ]
        if adversarial:
            values[seed] = min(entry[key] for entry in adversarial)
    return values


def number(text):
    value = float(text.replace(",", "").removesuffix("%"))
    return value / 100 if text.endswith("%") else value


def check(cell, values, close=0.0006):
    """That a cell says the mean, the least, the largest and the number of ``values``."""
    values = list(values.values()) if isinstance(values, dict) else values
    if not values:
        assert cell == "–" or cell.startswith("none of"), cell
        return
    match = CELL.fullmatch(cell)
    assert match, cell
    least, largest = match["least"] or match["mean"], match["largest"] or match["mean"]
    for text, value in ((match["mean"], statistics.fmean(values)), (least, min(values)), (largest, max(values))):
        tolerance = 0.051 * abs(value) if "e" in text else close
        assert abs(number(text) - value) <= tolerance, (cell, values)
        assert (text == "100%") == (value == 1) or not text.endswith("%"), (cell, values)
    assert int(match["count"]) == len(values), cell


HEADINGS = {
    "paper": ("transductor_paper", "learned"),
    "ours, learned": ("transductor_ours", "learned"),
    "ours, hardened": ("transductor_ours", "hardened"),
    "paper: LSTM": ("lstm_paper", "learned"),
    "paper: Transformer": ("transformer_paper", "learned"),
    "LSTM": ("lstm", "learned"),
    "Transformer, learned positions": ("transformer_learned", "learned"),
    "Transformer, rotary positions": ("transformer_rotary", "learned"),
    "Transformer, relative positions": ("transformer_relative", "learned"),
    "Transformer, no positions": ("transformer_none", "learned"),
}


def columns_of(row):
    return [(heading, *HEADINGS[heading]) for heading in row if heading in HEADINGS]


def length_of(text):
    return int(text.replace(",", ""))


@pytest.mark.parametrize("name", ["regular_gap", "length_generalization"])
def test_accuracy_by_input_and_length(folder, reports, name):
    rows = tables(reports[name])["Accuracy over every position"]
    study = STUDIES[name]
    probes = {(p.length, p.bias, p.family) for arm in study.arms for p in arm.probes}
    assert len(rows) == len(probes)
    assert list(rows[0])[2:5] == ["paper", "ours, learned", "ours, hardened"]
    for row in rows:
        assert len(columns_of(row)) == len(study.arms) + 1
        for heading, arm, form in columns_of(row):
            check(row[heading], asked(folder, name, arm, form, "positions", length_of(row["length"]), row["input"]))


@pytest.mark.parametrize("name", list(CLAIMS))
def test_the_papers_claims_stand_beside_what_came_out(folder, reports, name):
    rows = tables(reports[name])["What the paper says, and what came out on random inputs"]
    for row, claim in zip(rows, CLAIMS[name], strict=True):
        assert (row["section of the paper"], row["the paper says"]) == (claim.section, claim.says)
        check(row["our reading of its recipe"], asked(folder, name, claim.arm, "learned", claim.key, claim.length))
        for heading, form in (("ours, learned", "learned"), ("ours, hardened", "hardened")):
            if not claim.automaton or (form == "hardened" and name == "base_two_value"):
                assert row[heading] == "–"
            else:
                check(row[heading], asked(folder, name, "transductor_ours", form, claim.key, claim.length))


def test_what_the_paper_leaves_open_stands_below_its_claims_and_nowhere_else(reports):
    assert set(NOT_SPECIFIED) == set(CLAIMS)
    for name, text in reports.items():
        listed = re.findall(r"^\* (.+)$", text, re.MULTILINE)
        assert listed == list(NOT_SPECIFIED.get(name, ())), name
        if listed:
            assert (
                text.index("## What the paper says") < text.index(listed[0]) < text.index("## ", text.index(listed[0]))
            )


def test_long_addition_counts_whole_sums_and_names_the_families_that_fail(folder, reports):
    sheets = tables(reports["long_addition"])
    exact = sheets["Exact match of the whole sum, by number of digits"]
    assert {row["input"] for row in exact} == {"random", "p = 0.9", "worst family"}
    for row in exact:
        length = length_of(row["digits"])
        for heading, arm, form in columns_of(row):
            if row["input"] != "worst family":
                check(row[heading], asked(folder, "long_addition", arm, form, "exact", length, row["input"]))
                continue
            check(row[heading].split("; fails")[0], worst(folder, "long_addition", arm, form, "exact", length))
            named = set(re.findall("“(.*?)”", row[heading]))
            for family in named:
                assert min(asked(folder, "long_addition", arm, form, "exact", length, family).values()) < 1
    for row in sheets["Where each adversarial family first fails"]:
        for heading, arm, form in columns_of(row):
            entries = runs(folder, "long_addition", arm, form)
            wrong = {
                (entry["length"], seed)
                for seed, judged in entries.items()
                for entry in judged
                if entry["input"] == row["family"] and entry["exact"] < 1
            }
            seeds = len({seed for _, seed in wrong})
            says = f"{seeds} of {len(entries)} seed" if wrong else f"never ×{len(entries)}"
            assert row[heading].startswith(says)
            assert not wrong or f"first at {min(wrong)[0]:,} digits" in row[heading]


def test_base_two_value_in_both_orders(folder, reports):
    sheets = tables(reports["base_two_value"])

    def each(title):
        assert {row["digits"] for row in sheets[title]} == {"first digit first", "last digit first"}
        for row in sheets[title]:
            suffix = "" if row["digits"].startswith("first") else "_last_digit_first"
            for heading, arm, form in columns_of(row):
                yield row[heading], f"{arm}{suffix}", form, length_of(row["length"])

    for cell, arm, form, length in each("Mean squared error of the value divided by 2^L, at the last digit"):
        check(cell, asked(folder, "base_two_value", arm, form, "mse", length) if form == "learned" else {})
    for cell, arm, form, length in each("Bits: −½ log₂ of the mean squared error"):
        errors = asked(folder, "base_two_value", arm, form, "mse", length) if form == "learned" else {}
        check(cell, [-math.log2(error) / 2 for error in errors.values()], close=0.0501)
    for cell, arm, form, length in each("Relative error at the last digit"):
        assert length == 128
        check(cell, asked(folder, "base_two_value", arm, form, "relative_error", 128) if form == "learned" else {})
    for cell, arm, form, length in each("Exact integers, random and adversarial"):
        assert length == 1000
        given = "random and adversarial"
        check(cell, asked(folder, "base_two_value", arm, form, "exact", 1000, given) if form == "hardened" else {})


def test_state_tracking_beside_the_published(folder, reports):
    rows = tables(reports["state_tracking"])[
        "Beside the best published, quoted and not run here (in percent, or as they say)"
    ]
    arms = list(ARMS["state_tracking"])
    arms.insert(4, None)  # the average
    four = arms[:4]
    for row, arm in zip(rows, arms, strict=True):
        for heading, form in (("41–256, ours learned", "learned"), ("41–256, ours hardened", "hardened")):
            names = four if arm is None else [arm]
            each = [
                asked(folder, "state_tracking", n, form, "beyond", 255 if n == "modular_arithmetic" else 256)
                for n in names
            ]
            whole = set.intersection(*(set(values) for values in each))
            check(row[heading], [statistics.fmean(values[seed] for values in each) for seed in sorted(whole)])
        if arm is not None:
            trained = {"modular_arithmetic": 39, "c6": 60, "s3": 60}.get(arm, 40)
            check(row["accuracy there"], asked(folder, "state_tracking", arm, "learned", "positions", trained))
    assert rows[0]["41–256, ours hardened"] == "none of 4; seeds 0, 1, 2, 3 refused"
    assert rows[0]["states found"] == "none"
    assert rows[3]["best published, parallel"] == "98.4 ± 0.7 (D-DE-SLiCE), 96.2 (PD-SSM)"
    assert rows[4]["best published, parallel"] == "98.8 (PD-SSM)"


def test_state_tracking_by_length(folder, reports):
    sheets = tables(reports["state_tracking"])
    arms = {label(arm): arm for arm in ARMS["state_tracking"]}
    rows = sheets["By length: random inputs, and the worst adversarial family"]
    assert len(rows) == 4 * 4 + 6 * 4 + 2 * 3 + 4
    for row in rows:
        name, _, task = row["task"].removesuffix(")").partition(" (")
        length, where = length_of(row["length"]), ("state_tracking", arms[name])
        for form in ("learned", "hardened"):
            for heading, key in (("every position", "positions"), ("whole sequences", "exact")):
                check(row[f"{heading}, {form}"], asked(folder, *where, form, key, length, task=task or None))
            cell = row[f"worst family, {form}"].split("; fails")[0]
            check(cell, worst(folder, *where, form, "positions", length))
    for row in sheets["What a flip-flop reads wrong"]:
        for heading, form in (("mistakes in a million, learned", "learned"), ("hardened", "hardened")):
            rates = []
            for entries in runs(folder, "state_tracking", "flip_flop", form).values():
                for entry in entries:
                    if (entry["input"], entry["task"]) == ("random", row["input"]):
                        assert f"{entry['labels']:,}" == row["reads a seed"]
                        rates.append(1e6 * entry["mistakes"] / entry["labels"])
            check(row[heading], rates, close=0.0501)


def test_two_tasks_of_one_length_are_told_apart(tmp_path):
    study = STUDIES["state_tracking"].shortened()
    arm = next(arm for arm in study.arms if arm.name == "flip_flop")
    made_record(study, arm, 0).write(tmp_path / "state_tracking" / "flip_flop" / "seed0.json")
    rows = tables(study_report(tmp_path)[0].read_text())["What a flip-flop reads wrong"]
    assert [row["length"] for row in rows].count("200") == 2
    (entries,) = runs(tmp_path, "state_tracking", "flip_flop").values()
    for row in rows:
        (entry,) = [entry for entry in entries if (entry["input"], entry["task"]) == ("random", row["input"])]
        check(row["mistakes in a million, learned"], [1e6 * entry["mistakes"] / entry["labels"]], close=0.0501)


def test_ablations_by_group(folder, reports):
    sheets = tables(reports["ablations"])
    groups = {
        "Where the state enters": "injection_{}",
        "Families on counting": "family_{}_on_counting",
        "Families on parity": "family_{}_on_parity",
        "Families on flip-flop": "family_{}_on_flip_flop",
        "Label smoothing on parity": "smoothing_{}_on_parity",
        "Label smoothing on arithmetic": "smoothing_{}_on_arithmetic",
        "How far from the identity the matrices start": "start_{}",
        "Positions of the backbone": "positions_{}",
        "Frozen random features beside a learned state": "{}",
    }
    assert set(sheets) == {*groups, "Runs"}
    shown = 0
    for title, pattern in groups.items():
        for row in sheets[title]:
            arm = pattern.format(row["arm"].replace(", width", "").replace(" ", "_"))
            assert arm in ARMS["ablations"]
            shown += 1
            for heading, cell in list(row.items())[1:]:
                what, length = heading.rsplit(", ", 1)
                if what == "random":
                    check(cell, asked(folder, "ablations", arm, "learned", "positions", length_of(length)))
                else:
                    values = worst(folder, "ablations", arm, "learned", "positions", length_of(length))
                    check(cell.split("; fails")[0], values)
    assert shown == len(ARMS["ablations"])


def test_runs_and_machines_name_who_failed_and_why(folder, reports):
    sheets = tables(reports["regular_gap"])
    runs_of = {row["model"]: row for row in sheets["Runs"]}
    ours = runs_of["Rational Transductor, ours"]
    assert ours["runs"] == f"3 of 4 seeds; seed 3 failed: {FAILURE}"
    assert runs_of["Rational Transductor, our reading of the paper"]["runs"] == "3 of 4 seeds; seed 0 damaged"
    assert runs_of["Transformer, rotary positions"]["runs"] == "3 of 4 seeds; seed 2 missing"
    files = [folder / "regular_gap" / "transductor_ours" / f"seed{seed}.json" for seed in (0, 1, 2)]
    measured = [json.loads(file.read_text())["measurements"] for file in files]
    seconds = statistics.fmean(m["training"]["seconds"] / m["training"]["together"] for m in measured)
    assert float(ours["seconds of training a seed"]) == pytest.approx(seconds, abs=0.051)
    assert ours["parameters"] == f"{measured[0]['parameters']:,}"
    (machine,) = sheets["The exact machines found"]
    assert machine["refused"] == f"seed 1 refused: {REASON}".replace("|", "\\|")
    hardened = [measured[0]["hardening"], measured[2]["hardening"]]
    check(
        machine["what was learned agrees, on short inputs"].removesuffix(" of the labels"),
        [how["agreement"] for how in hardened],
    )
    for states in {how["states"] for how in hardened}:
        assert f"{states} ×{sum(how['states'] == states for how in hardened)}" in machine["states"]
    row = sheets["Accuracy over every position"][0]
    assert row["ours, hardened"].endswith("×2 of 4; seed 1 refused; seed 3 failed")
    assert row["ours, learned"].endswith("×3 of 4; seed 3 failed")
    assert row["paper"].endswith("×3 of 4; seed 0 damaged")
    assert "regular_gap/transductor_paper/seed0.json is not a record" in reports["regular_gap"]


def test_the_terminal_shows_the_same_cells(folder, reports):
    for study in read_studies(folder):
        console = Console(width=3000, record=True, file=io.StringIO())
        console.print(study_tables(study))
        text = console.export_text()
        for rows in tables(reports[study.name]).values():
            for cell in (cell for row in rows for cell in row.values()):
                assert cell.replace("\\|", "|") in text


def test_twice_the_same_bytes_wherever_the_records_lie(folder, written, tmp_path):
    names = ("regular_gap", "state_tracking")
    for name in names:
        shutil.copytree(folder / name, tmp_path / name)
    first = [path for path in written if path.stem in names]
    for one, other in zip(first, study_report(tmp_path), strict=True):
        assert one.read_bytes() == other.read_bytes(), one.name


def test_what_is_not_quite_everything_is_not_written_so():
    assert percent(1.0) == "100%"
    assert percent(0.0) == "0%"
    assert percent(0.9996) == "99.96%"
    assert percent(1 - 1e-12) == "<100%"
    assert percent(1e-12) == ">0%"
    assert percent(0.123456) == "12.3%"


def test_the_arms_that_reports_know_are_those_of_the_studies():
    """A study need not be among them: then its arms stand in natural order."""
    paper = ["regular_gap", "length_generalization", "long_addition", "base_two_value"]
    ours = ["state_tracking", "ablations", "deep_injection", "tracking", "tracking_wide", "tracking_more"]
    beliefs = ["tracking_inside", "hidden_swaps", "repl_traces"]
    assert list(ARMS) == [*paper, *ours, *beliefs] == list(STUDIES)[: len(ARMS)]
    for name, arms in ARMS.items():
        assert set(arms) == {arm.name for arm in STUDIES[name].arms}
        assert len(set(arms)) == len(arms)
