"""The committed results are those of the studies as they are, and their tables are those of the records."""

from __future__ import annotations

from pathlib import Path

import pytest

from transductor.certification import check_certificate
from transductor.report import study_report
from transductor.studies import STUDIES
from transductor.studies.reproduction import pending

RESULTS = Path(__file__).parents[1] / "results"
CERTIFICATES = sorted(RESULTS.glob("certificates/*/*/seed0.json"))


def test_every_run_of_every_study_is_there():
    left, done = pending(list(STUDIES.values()), RESULTS, together=False)
    assert [job.name for job in left] == []
    assert done == sum(len(study.arms) * len(study.seeds) for study in STUDIES.values())


def test_the_tables_are_those_of_the_records(tmp_path):
    study_report(RESULTS, tmp_path)
    for name in STUDIES:
        assert (tmp_path / f"{name}.md").read_bytes() == (RESULTS / f"{name}.md").read_bytes(), name
        assert (RESULTS / f"{name}.png").stat().st_size > 10_000


@pytest.mark.parametrize("path", CERTIFICATES, ids=lambda path: f"{path.parts[-3]}-{path.parts[-2]}")
def test_the_certificates_hold(path):
    assert check_certificate(path).verdict == "proved"


def test_there_are_certificates():
    assert len(CERTIFICATES) >= 12
