"""What was promised of the workbench is what its committed records hold, and what the page says."""

from __future__ import annotations

from pathlib import Path
from statistics import median

import pytest

from tests.records import ROOT, records_folder
from transductor.results import read_record

RECORDS = records_folder("benchmarks/results")
PAGE = (Path(ROOT) / "docs" / "automata.md").read_text()


def measured(name):
    return read_record(RECORDS / f"{name}.json").measurements


@pytest.mark.parametrize("name", ["default", "em", "trigram", "letters_alone"])
def test_the_default_learner_beside_others(name):
    record = measured("spectral_defaults")
    above = [each[f"{name}_above"] for each in record["machines"]]
    assert len(above) == 24
    assert record["summary"][name] == {"median": median(above), "worst": max(above)}
    if name == "default":
        assert median(above) < 0.01
        assert max(above) < 0.1
    assert f"| {100 * median(above):.2f} % | {100 * max(above):.2f} % |" in PAGE


def test_every_exact_machine_is_proved_equal_to_its_minimisation():
    record = measured("exact_equivalence")
    spectral = measured("spectral_defaults")["machines"]
    assert len(record["machines"]) == record["proved"] == 24
    for row, same in zip(record["machines"], spectral, strict=True):
        assert (row["machine"], row["states"], row["letters"]) == (same["machine"], same["states"], same["letters"])
        assert row["minimal"] == row["states"] < row["split"]
    assert max(record["slowest_seconds"].values()) < 0.5  # as the page says
    assert "in less than half a second each ([record](../benchmarks/results/exact_equivalence.json)" in PAGE


def test_large_machines_beside_openfst():
    record = measured("automata_scale")
    rows = {(name, row["states"]): row for name in record for row in record[name]}
    assert rows["equivalent", 100_000]["ours"] < 2
    compared = [row for name in ("minimise", "determinise", "dictionary") for row in record[name]]
    assert len(compared) == 9
    assert all(row["ours"] < 2 * row["openfst"] for row in compared)
