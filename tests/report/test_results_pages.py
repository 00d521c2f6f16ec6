"""README.md and the pages of results say what the records say, and refuse what records do not support."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections import Counter
from copy import deepcopy
from pathlib import Path

import pytest

from tests.records import records_folder
from transductor.report.study_claims import CLAIMS, NOT_SPECIFIED
from transductor.report.study_records import at, worst_kind

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "docs" / "make_results.py"
README, PAGE = (ROOT / "README.md").read_text(), (ROOT / "docs" / "results.md").read_text()
PAPER = (ROOT / "docs" / "paper.md").read_text()
RECORDS = records_folder()
STATEMENTS = json.loads((RECORDS / "theory.json").read_text())["measurements"]["statements"]


@pytest.fixture(scope="module")
def maker():
    sys.path.insert(0, str(SCRIPT.parent))  # as it is when the script runs
    try:
        spec = importlib.util.spec_from_file_location("make_results", SCRIPT)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    finally:
        sys.path.remove(str(SCRIPT.parent))
    return module


def test_all_pages_are_those_of_the_records():
    subprocess.run([sys.executable, SCRIPT, "--check"], check=True)


def test_a_page_that_is_old_is_named(maker, monkeypatch):
    monkeypatch.setattr(sys, "argv", ["make_results.py", "--check"])
    with pytest.raises(SystemExit, match=r"old: README\.md; run python docs/make_results\.py"):
        maker.written({maker.README: README.replace("47.6%", "100%"), maker.RESULTS: PAGE}, "make_results")


def test_the_readme_counts_the_findings_of_the_record():
    findings = Counter(one["finding"] for one in STATEMENTS.values() for _ in one["numbers"])
    said = re.search(
        r"its (\d+) numbered statements .*?: (\d+) hold, (\d+) hold with care, and (\d+) are false", README
    )
    counts = [findings[finding] for finding in ("holds", "holds with care", "false as written")]
    assert list(map(int, said.groups())) == [sum(counts), *counts]
    assert sum(counts) == findings.total() == 32


def test_findings_that_are_not_confirmed_are_not_counted(maker):
    changed = deepcopy(STATEMENTS)
    name = next(iter(changed))
    changed[name]["holds"] = False
    with pytest.raises(ValueError, match="every statement has a certificate that holds"):
        maker.findings(changed)
    changed[name] |= {"holds": True, "finding": "perhaps"}
    with pytest.raises(ValueError, match="no other finding"):
        maker.findings(changed)


def accuracies(study, arm, length):
    """The mean over the seeds on random inputs, and on each seed's worst adversarial kind, from the files."""
    random, worst = [], []
    for seed in range(5):
        record = json.loads((RECORDS / study / arm / f"seed{seed}.json").read_text())
        entries = [entry for entry in record["measurements"]["learned"] if entry["length"] == length]
        random.append(next(entry["positions"] for entry in entries if entry["input"] == "random"))
        kinds = [entry for entry in entries if entry["input"] != "random" and not entry["input"].startswith("p = ")]
        worst.append(min(entry["positions"] for entry in kinds))
    return sum(random) / 5, sum(worst) / 5


@pytest.mark.parametrize(
    ("row", "arm", "length"),
    [("even pairs", "even_pairs", 256), ("S5, all 120 elements", "s5_all_elements", 512), ("parity", "parity", 256)],
)
def test_random_inputs_and_the_worst_kind_stand_side_by_side(row, arm, length):
    for page, first in ((PAPER, f"| {row}, ≤ 40 tokens | {length} |"), (PAGE, f"| {row} | {length} |")):
        (line,) = (line for line in page.splitlines() if line.startswith(first))
        cells = [cell.strip() for cell in line.removeprefix(first).split("|")]
        shown = cells[0], cells[1 if page is PAPER else 2]
        for cell, value in zip(shown, accuracies("state_tracking", arm, length), strict=True):
            assert float(cell.split("%")[0]) / 100 == pytest.approx(value, abs=6e-4), line


@pytest.mark.parametrize(("first", "study", "arm", "length"), [("S5: at 40", "state_tracking", "s5_all_elements", 512)])
def test_the_front_table_shows_random_and_worst_inputs(first, study, arm, length):
    lines = README.splitlines()
    (place,) = (number for number, line in enumerate(lines) if line.startswith(f"| {first}"))
    shown = [[cell.strip() for cell in lines[place + row].split("|")[1:-1]] for row in (0, 1)]
    assert [cells[1] for cells in shown] == ["random", "worst"]
    for cells, value in zip(shown, accuracies(study, arm, length), strict=True):
        assert float(cells[4].split("%")[0]) / 100 == pytest.approx(value, abs=6e-4)
        assert cells[5] == "100%"


def test_the_best_peer_is_the_best_of_the_arms_that_were_run(maker):
    records = maker.Records()
    arms = [path.name for path in (RECORDS / "regular_gap").iterdir() if path.name.startswith("transformer")]
    means = [accuracies("regular_gap", arm, 500)[0] for arm in arms]
    shown = maker.best_peer(records, "regular_gap", at(500))
    assert float(shown.split("%")[0]) / 100 == pytest.approx(max(means), abs=6e-4)
    assert maker.best_peer(records, "state_tracking", at(256)) == maker.NOTHING


def test_the_readme_is_short():
    assert len(README.split()) <= 900


def test_a_sentence_that_the_records_do_not_support_is_refused(maker):
    records = maker.Records()
    with pytest.raises(ValueError, match="do not support: addition is exact"):
        maker.supported("addition is exact", records.mean("long_addition", "transductor_paper", worst_kind(40)) == 1)
    records.studies["long_addition"].arm("transductor_ours").runs[0].record.measurements["learned"].clear()
    with pytest.raises(ValueError, match="not five seeds"):
        records.tally("long_addition", "transductor_ours", at(40))


def test_what_is_open_stands_on_the_page_for_each_study_with_claims():
    for study in CLAIMS:
        for line in NOT_SPECIFIED[study]:
            assert PAGE.count(f"* {line}\n") >= 1, line
    conclusions = PAGE.split("## What reproduces")[1].split("\n!")[0]
    bullets = conclusions.split("\n* **")[1:]
    assert len(bullets) == 7
    assert all("*Open:" in bullet for bullet in bullets)
    assert "the paper's recipe" not in README + PAPER + conclusions.replace("about the paper's recipe is about", "")
