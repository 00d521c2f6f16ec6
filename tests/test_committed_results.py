"""The committed results are those of the studies as they are, and their tables are those of the records."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from tests.records import records_folder
from transductor.automata import series_of_labels, write
from transductor.certification import check_certificate
from transductor.certification.checker import check
from transductor.model import load
from transductor.report import study_report
from transductor.results import read_record
from transductor.studies import OF_CODE, STUDIES
from transductor.studies.reproduction import pending
from transductor.studies.running import is_done

RESULTS = records_folder()
# The models that they are about are in results/hardened.
PROOFS = sorted(RESULTS.glob("certificates/*/*/seed*.json.gz"))
# The study of source code that has been run in part: docs/language_models.md says what has not.
OF_CODE_THAT_WERE_RUN = ("stream_defaults",)
# The arms of tracking_wide that have been run; docs/results.md names those that have not.
RUN = {"16_slow": ["filter", "lstm"], "8_slow_revealed": ["filter", "lstm"], "8_slow_vague": ["filter", "lstm"]}

# Likewise of the studies whose plans stand on that page and whose runs are not complete.
RUN_INSIDE = {
    *(f"{one}_on_8_slow" for one in ("filter", "orthogonal", "dense", "transformer")),
    "transformer_on_8_fast",
}
PLANNED = {"tracking_inside": RUN_INSIDE, **{key: set() for key in ("tracking_more", "hidden_swaps", "repl_traces")}}


def test_every_run_of_every_study_is_there():
    left, done = pending(list(STUDIES.values()), RESULTS, together=False)
    wide = {f"{tracker}_on_{process}" for process, trackers in RUN.items() for tracker in trackers}
    there = {"tracking_wide": wide, **PLANNED}
    assert {(job.study.name, job.arm.name) for job in left} == {
        (study, arm.name) for study, run in there.items() for arm in STUDIES[study].arms if arm.name not in run
    }
    runs = sum(len(study.arms) * len(study.seeds) for study in STUDIES.values())
    assert done == runs - sum(len(job.seeds) for job in left)


def test_records_of_source_code_are_those_of_the_study_as_it_is():
    for name in OF_CODE_THAT_WERE_RUN:
        study = OF_CODE[name]
        kept = {path.relative_to(RESULTS / name) for path in RESULTS.glob(f"{name}/*/seed*.json")}
        runs = [(arm, seed) for arm in study.arms for seed in study.seeds if is_done(study, arm, seed, RESULTS)]
        assert {Path(arm.name, f"seed{seed}.json") for arm, seed in runs} == kept


@pytest.mark.usefixtures("coarse")
def test_the_tables_are_those_of_the_records(tmp_path):
    """Every committed table is rebuilt byte for byte, and every figure has its records."""
    written = {path.relative_to(tmp_path) for path in study_report(RESULTS, tmp_path)}
    committed = {path.relative_to(RESULTS) for kind in ("md", "png") for path in RESULTS.rglob(f"*.{kind}")}
    assert written == committed
    not_yet = {name for name, run in PLANNED.items() if not run}
    assert {path.stem for path in committed if path.suffix == ".md"} == {*STUDIES, *OF_CODE_THAT_WERE_RUN} - not_yet
    for path in committed:
        if path.suffix == ".md":
            assert (tmp_path / path).read_bytes() == (RESULTS / path).read_bytes(), path
        else:
            assert (RESULTS / path).stat().st_size > 10_000, path


@pytest.fixture(scope="module")
def specified(tmp_path_factory):
    """What gives the machine of an arm's task, and the file that specifies it, once for all seeds."""

    @cache
    def machine_and_file(study, arm_name):
        (arm,) = (arm for arm in STUDIES[study].arms if arm.name == arm_name)
        machine = arm.task.automaton()
        series = series_of_labels(machine, [*map(str, range(machine.letters))])
        return machine, write(series, tmp_path_factory.mktemp(arm_name) / "task.json")

    return machine_and_file


@pytest.mark.parametrize("path", PROOFS, ids=lambda path: "-".join(path.parts[-3:]).removesuffix(".json.gz"))
def test_the_independent_checker_accepts_every_proof(path, specified):
    study, arm_name, seed = path.parts[-3], path.parts[-2], path.name.removesuffix(".json.gz")
    machine, specification = specified(study, arm_name)
    said = check(path, RESULTS / "hardened" / study / arm_name / seed, specification)
    assert "proved" in said
    if seed == "seed0" and path.stat().st_size < 200_000:  # the large ones take seconds, and show nothing else
        model = load(RESULTS / "hardened" / study / arm_name / seed)
        assert check_certificate(path, model, machine).verdict == "proved"


def test_every_proof_of_the_records_is_there():
    """Each run whose record says proved has its hardened model and its certificate in the repository."""
    proved = set()
    for path in RESULTS.glob("*/*/seed*.json"):
        hardening = read_record(path).measurements.get("hardening") or {}
        if (hardening.get("certificate") or {}).get("verdict") == "proved":
            proved.add("/".join(path.parts[-3:]))
    there = {"/".join(path.parts[-3:]).removesuffix(".gz") for path in PROOFS}
    models = {"/".join(path.parts[-4:-1]) + ".json" for path in RESULTS.glob("hardened/*/*/seed*/config.json")}
    assert there == models == proved
    assert len(proved) == 80
