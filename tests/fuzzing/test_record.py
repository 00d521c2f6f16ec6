"""The page about files from strangers gives the numbers of the committed run."""

from __future__ import annotations

from pathlib import Path

from tests.fuzzing.running import KINDS, table_rows
from tests.records import records_folder
from transductor.results import read_record

ROOT = Path(__file__).parents[2]


def test_the_page_gives_the_numbers_of_the_record():
    record = read_record(records_folder("benchmarks/results") / "fuzz_readers.json")
    page = (ROOT / "docs" / "files.md").read_text()
    assert "\n".join(table_rows(record)) in page
    counts = [row[kind] for row in record.measurements["table"] for kind in KINDS]
    assert sum(counts) == record.settings["inputs"]
