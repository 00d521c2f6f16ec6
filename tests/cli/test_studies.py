"""reproduce and report: the studies on a shell."""

from __future__ import annotations

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from concurrent.futures import BrokenExecutor
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from tests.studies.miniatures import OFTEN, PLAIN, TRAINING, TRANSFORMER, contents, findings
from transductor import results
from transductor.cli import app
from transductor.cli import studies as commands
from transductor.report.study_figures import study_figure
from transductor.report.study_records import read_studies
from transductor.report.style import QUICK, mark_quick
from transductor.studies import STUDIES, Probe, Study, reproduction, running
from transductor.studies.running import record_path

pytestmark = pytest.mark.usefixtures("coarse")

# Under names that the report knows, so that it draws what it would draw.
GAP = Study(
    "regular_gap",
    "Does it run?",
    (
        replace(PLAIN, name="transductor_ours"),
        replace(TRANSFORMER, name="transformer_learned", probes=(Probe(6, 4), Probe(12, 1, family="all ones"))),
    ),
    (0, 1, 2, 3, 4),
)
ODD = Study("odd", "And this?", (PLAIN,), (0, 1, 2, 3, 4))


@pytest.fixture(autouse=True)
def miniature_studies(monkeypatch):
    monkeypatch.setattr("transductor.studies.STUDIES", {study.name: study for study in (GAP, ODD)})


@pytest.fixture
def no_report(monkeypatch):
    """For what is not about tables and figures, which take longer than the runs."""
    monkeypatch.setattr(commands, "report", lambda *_: None)


def invoke(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "200"})


def reproduce(folder, *arguments):
    return invoke("reproduce", *arguments, "--jobs", 1, "--output", folder)


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    """Both studies, two seeds, and their reports."""
    folder = tmp_path_factory.mktemp("done")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("transductor.studies.STUDIES", {study.name: study for study in (GAP, ODD)})
        result = reproduce(folder, "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert "0 runs are there already, 6 are to be done" in result.output
    return folder


@pytest.fixture
def copy(done, tmp_path):
    return shutil.copytree(done, tmp_path / "copy")


def two_seeds(study):
    return replace(study, seeds=(0, 1))


def test_all_runs_and_reports_are_there(done):
    for study in (GAP, ODD):
        findings(done, two_seeds(study))
        assert (done / f"{study.name}.md").read_text().startswith(f"# {study.name}\n")
        assert (done / f"{study.name}.png").read_bytes().startswith(b"\x89PNG")


def test_again_nothing_is_run_and_the_report_is_the_same(copy):
    before = contents(copy)
    result = reproduce(copy, "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert "6 runs are there already, 0 are to be done" in result.output
    assert f"written: {copy / 'regular_gap.md'}, {copy / 'regular_gap.png'}, {copy / 'odd.md'}" in result.output
    after = contents(copy)
    assert {name: data for name, (data, _) in after.items()} == {name: data for name, (data, _) in before.items()}
    records = [name for name in before if name.endswith(".json")]
    assert len(records) >= 6
    assert all(after[name] == before[name] for name in records)


@pytest.mark.usefixtures("no_report")
def test_some_studies_some_seeds(tmp_path):
    result = reproduce(tmp_path, "odd", "odd", "--seeds", 1)  # named twice, run once
    assert result.exit_code == 0, result.output
    assert "0 runs are there already, 1 are to be done" in result.output
    assert [path.name for path in tmp_path.glob("*/*/seed*.json") if path.parts[-3] != "models"] == ["seed0.json"]
    assert "1 runs are there already, 1 are to be done" in reproduce(tmp_path, "odd", "--seeds", 2).output
    findings(tmp_path, two_seeds(ODD))


@pytest.mark.usefixtures("no_report")
def test_quick_is_one_seed_and_short(tmp_path):
    result = reproduce(tmp_path, "odd", "--quick")
    assert result.exit_code == 0, result.output
    assert "0 runs are there already, 1 are to be done" in result.output
    findings(tmp_path, ODD.shortened())
    assert ODD.shortened().arms[0].training.steps == 10
    assert "0 runs are there already, 2 are to be done" in reproduce(tmp_path, "odd", "--seeds", 2).output


def test_what_a_quick_run_writes_says_so(tmp_path):
    assert reproduce(tmp_path, "odd", "--quick").exit_code == 0
    assert not (tmp_path / "odd.png").exists()
    assert "No result." in (tmp_path / "odd_quick.md").read_text()
    assert "(odd_quick.png)" in (tmp_path / "odd_quick.md").read_text()
    assert (tmp_path / "odd_quick.png").stat().st_size
    (study,) = read_studies(tmp_path)
    assert study.quick
    figure = study_figure(study)
    before = len(figure.texts)
    mark_quick(figure)
    assert [text.get_text() for text in figure.texts[before:]] == ["quick check", QUICK]
    # The same records reported again, later, are marked too.
    assert CliRunner().invoke(app, ["report", str(tmp_path), "-o", str(tmp_path / "again")]).exit_code == 0
    assert sorted(path.name for path in (tmp_path / "again").iterdir()) == ["odd_quick.md", "odd_quick.png"]


def test_the_latency_of_the_scan_is_a_study_by_its_name(tmp_path, monkeypatch):
    asked = []
    monkeypatch.setattr(commands, "_latency", lambda *arguments: asked.append(arguments))
    result = reproduce(tmp_path, "latency", "--quick")
    assert result.exit_code == 0, result.output  # without any record of the others
    assert asked == [(tmp_path, "cpu", True)]


@pytest.mark.parametrize(
    ("words", "arguments"),
    [
        ("studies must be among regular_gap, odd, stream_defaults, ", ("odd", "irregular_gap")),
        ("code_models_c, latency; got 'irregular_gap'", ("odd", "irregular_gap")),
        ("backend must be one of 'loky', 'dask', 'ray'; got 'mpi'", ("odd", "--backend", "mpi")),
        ("must be auto, cpu or cuda; got 'tpu'", ("odd", "--device", "tpu")),
        ("--jobs", ("odd", "--jobs", "-1")),
        ("--seeds", ("odd", "--seeds", "0")),
    ],
)
def test_a_wrong_line_is_answered_in_few_words(tmp_path, words, arguments):
    result = invoke("reproduce", *arguments, "--output", tmp_path / "folder")
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output
    assert not (tmp_path / "folder").exists()


def test_an_unknown_study_is_answered_with_the_names_there_are(tmp_path, monkeypatch):
    monkeypatch.setattr("transductor.studies.STUDIES", STUDIES)
    result = reproduce(tmp_path, "nothing")
    assert result.exit_code == 2
    for name in (*STUDIES, "latency"):
        assert name in result.output


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    result = reproduce(tmp_path, "odd", "--backend", "ray")
    assert result.exit_code == 2
    assert "error: backend 'ray' needs the package ray" in result.output


def test_jobs_default_to_the_cores(tmp_path, monkeypatch):
    asked = {}

    def run(studies, folder, **options):
        asked.update(options)
        return reproduction.pending(studies, folder, together=False)[1]

    monkeypatch.setattr(reproduction, "reproduce", run)
    monkeypatch.setattr("joblib.cpu_count", lambda: 7)
    invoke("reproduce", "odd", "--output", tmp_path)
    assert (asked["jobs"], asked["backend"], asked["device"]) == (7, "loky", "cpu")


@pytest.mark.parametrize(
    ("gpus", "words"), [(1, "1 process on the GPU; "), (4, "4 processes, one for each GPU; ")], ids=["one", "four"]
)
def test_jobs_on_gpus_default_to_the_gpus(tmp_path, monkeypatch, gpus, words):
    asked = {}
    monkeypatch.setattr(reproduction, "reproduce", lambda *_, **options: asked.update(options))
    monkeypatch.setattr(commands, "chosen_device", lambda device: device)
    monkeypatch.setattr(commands, "report", lambda *_: None)
    monkeypatch.setattr("torch.cuda.device_count", lambda: gpus)
    result = invoke("reproduce", "odd", "--device", "cuda", "--jobs", 0, "--output", tmp_path)
    assert (asked["jobs"], asked["device"]) == (gpus, "cuda")
    assert f"{words}small models leave room for more: --jobs N" in result.output
    result = invoke("reproduce", "odd", "--device", "cuda", "--jobs", 16, "--output", tmp_path)
    assert (asked["jobs"], words in result.output) == (16, False)


@pytest.mark.usefixtures("no_report")
def test_a_damaged_record_is_named_once_and_made_again(copy, done):
    path = record_path(copy, "odd", "plain", 1)
    path.write_bytes(path.read_bytes()[:100])
    result = reproduce(copy, "odd", "--seeds", 2)
    assert result.exit_code == 0, result.output
    assert result.output.count("is not a record") == 1
    assert f"warning: {path} is not a record" in result.output
    assert "1 runs are there already, 1 are to be done" in result.output
    assert findings(copy, two_seeds(ODD)) == findings(done, two_seeds(ODD))


@pytest.mark.parametrize(
    ("number", "words"),
    [(1, "the state of step 12"), (3, "models/odd/plain/seed0"), (6, "odd/plain/seed0.json")],
)
@pytest.mark.usefixtures("no_report")
def test_a_full_disk_is_one_line_and_the_next_time_goes_on(tmp_path, monkeypatch, number, words):
    """Two files each for state and model, one for its history; the record is the sixth."""
    real, calls = os.fsync, []

    def fsync(handle):
        calls.append(handle)
        if len(calls) >= number:
            raise OSError(errno.ENOSPC, "No space left on device")
        real(handle)

    with monkeypatch.context() as patch:
        patch.setattr(results.os, "fsync", fsync)
        result = reproduce(tmp_path, "odd", "--seeds", 1)
    assert result.exit_code == 2
    assert words in result.output
    assert "No space left on device; what was there is intact" in result.output
    assert "Traceback" not in result.output
    assert "0 runs are there already, 1 are to be done" in reproduce(tmp_path, "odd", "--seeds", 1).output
    findings(tmp_path, replace(ODD, seeds=(0,)))


def test_a_killed_worker_is_one_line(tmp_path, monkeypatch):
    def broken(*_, **__):
        raise BrokenExecutor("A worker process was terminated")

    monkeypatch.setattr(reproduction, "reproduce", broken)
    result = reproduce(tmp_path, "odd")
    assert result.exit_code == 2
    assert "error: A worker process was terminated" in result.output


@pytest.mark.usefixtures("no_report")
def test_an_interrupt_says_that_the_same_command_goes_on(tmp_path, monkeypatch, done):
    run = reproduction.run_arm

    def interrupted(study, arm, seeds, *arguments, **options):
        if seeds == (1,):
            raise KeyboardInterrupt
        return run(study, arm, seeds, *arguments, **options)

    with monkeypatch.context() as patch:
        patch.setattr(reproduction, "run_arm", interrupted)
        result = reproduce(tmp_path, "odd", "--seeds", 2)
    assert result.exit_code == 130
    assert f"interrupted; what was done is in {tmp_path}, and the same command goes on from there" in result.output
    assert "1 runs are there already, 1 are to be done" in reproduce(tmp_path, "odd", "--seeds", 2).output
    assert findings(tmp_path, two_seeds(ODD)) == findings(done, two_seeds(ODD))


ENDLESS = Study("endless", "When?", (replace(PLAIN, training=replace(TRAINING, steps=10**7)),), (0, 1))
COMMAND = """
import transductor.studies
from tests.studies.miniatures import OFTEN
from tests.cli.test_studies import ENDLESS
from transductor.cli import main
from transductor.studies import running
transductor.studies.STUDIES = {"endless": ENDLESS}
running._CHECKPOINT_EVERY = OFTEN
main()
"""


@pytest.mark.slow
@pytest.mark.parametrize("jobs", [1, 2])
def test_control_c_on_a_terminal(tmp_path, jobs):
    """The whole process group is interrupted, as a terminal does it."""
    command = [sys.executable, "-c", COMMAND, "reproduce", "endless", "--jobs", str(jobs), "--seeds", "2"]
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "200"}
    with subprocess.Popen(
        [*command, "--output", str(tmp_path)],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # a shell's background programs ignore it
    ) as process:
        until = time.monotonic() + 120
        while not list(tmp_path.glob(".state/**/training.json")):  # a worker's first is at its step 500
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < until
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGINT)
        said, errors = process.communicate(timeout=60)
    assert process.returncode == 130, (said, errors)
    assert f"interrupted; what was done is in {tmp_path}" in errors
    assert "Traceback" not in said + errors
    assert not list(tmp_path.glob("endless/**/*.json"))
    states = [path.parent for path in tmp_path.glob(".state/**/training.json")]  # another seed may have written none
    assert states
    assert all(running.Trainer.resumed(state).step % OFTEN == 0 for state in states)


# The report.


def test_a_report_is_rebuilt_from_the_records_alone(copy):
    before = {name: (copy / name).read_bytes() for name in ("regular_gap.md", "regular_gap.png", "odd.md", "odd.png")}
    for name in before:
        (copy / name).unlink()
    shutil.rmtree(copy / "models")
    shutil.rmtree(copy / ".state", ignore_errors=True)
    result = invoke("report", copy)
    assert result.exit_code == 0, result.output
    assert {name: (copy / name).read_bytes() for name in before} == before
    assert result.output == "written: " + ", ".join(str(copy / name) for name in before) + "\n"


def test_a_report_elsewhere_leaves_the_records_alone(copy, tmp_path):
    for path in (*copy.glob("*.md"), *copy.glob("*.png")):
        path.unlink()
    before = contents(copy)
    result = invoke("report", copy, "--output", tmp_path / "elsewhere")
    assert result.exit_code == 0, result.output
    assert contents(copy) == before
    assert {path.name for path in (tmp_path / "elsewhere").iterdir()} == {
        "regular_gap.md",
        "regular_gap.png",
        "odd.md",
        "odd.png",
    }


def test_a_report_names_what_is_damaged_and_shows_the_rest(copy):
    record_path(copy, "odd", "plain", 1).write_text("{")
    assert invoke("report", copy).exit_code == 0
    assert "odd/plain/seed1.json is not a record" in (copy / "odd.md").read_text()


@pytest.mark.parametrize("place", ["missing", "empty", "file"])
def test_a_folder_without_records_is_refused(tmp_path, place):
    folder = tmp_path / place
    if place == "empty":
        folder.mkdir()
    elif place == "file":
        folder.write_text("in the way")
    result = invoke("report", folder)
    assert result.exit_code == 2
    assert f"error: {folder}" in result.output
    assert "records" in result.output
    assert len(result.output.splitlines()) == 1
    assert folder.exists() == (place != "missing")
