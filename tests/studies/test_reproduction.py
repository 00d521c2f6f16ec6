"""Runs and their records: what is there is skipped; what is missing, or of other settings, is done."""

from __future__ import annotations

import json
import os
import shutil
import signal
from concurrent.futures import BrokenExecutor
from dataclasses import replace

import pytest
import torch
from joblib.externals.loky import get_reusable_executor

from tests.studies.miniatures import (
    ANNEALED,
    COUNTED,
    DIVERGING,
    PLAIN,
    PROBES,
    SINGLE,
    STUDY,
    TRAINING,
    TRANSFORMER,
    VALUE,
    contents,
    findings,
    measured,
    readout,
    timeless,
)
from transductor.certification import check_certificate
from transductor.json_reading import read_json
from transductor.model import LSTMConfig, load
from transductor.results import read_record
from transductor.studies import Probe, Study, reproduce, reproduction, run_arm, running
from transductor.studies.judging import judge
from transductor.studies.reproduction import pending
from transductor.studies.running import (
    DamagedRecordWarning,
    certificate_path,
    hardened_path,
    model_path,
    record_path,
    run_settings,
)
from transductor.studies.study import LeastSquaresFit
from transductor.tasks import Parity
from transductor.training import TrainingError


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The miniature study, run once without any trouble."""
    folder = tmp_path_factory.mktemp("whole")
    assert reproduce([STUDY], folder) == 4
    return folder


def one_arm(*arms, seeds=(0,)):
    return Study("single", "Does it run?", arms, seeds)


# One run.


def test_a_record_holds_what_it_promises(tmp_path):
    steps = []
    (path,) = run_arm(SINGLE, PLAIN, (3,), tmp_path, on_step=lambda *step: steps.append(step))
    assert path == record_path(tmp_path, "miniature", "plain", 3)
    record = read_record(path)
    assert record.name == "miniature/plain"
    assert record.settings == run_settings(SINGLE, PLAIN, 3)
    measurements = record.measurements
    assert measurements.keys() == {"parameters", "chance", "training", "learned", "hardened", "judging_seconds"}
    assert (measurements["chance"], measurements["hardened"]) == (0.5, None)
    training = measurements["training"]
    assert training.keys() == {"device", "seconds", "together", "failure", "curve"}
    assert (training["device"], training["together"], training["failure"]) == ("cpu", 1, None)
    assert training["seconds"] > 0
    assert [point[0] for point in training["curve"]] == list(range(1, 13))
    kinds = list(Parity().adversarial(12))
    asked = [(entry["input"], entry["length"], entry["sequences"]) for entry in measurements["learned"]]
    assert asked == [("random", 6, 8), ("p = 0.9", 12, 8), *((kind, 12, 1) for kind in kinds)]
    assert {"python", "processor", "versions", "date", "device"} <= record.environment.keys()
    assert record.environment["device"] == "cpu"
    assert steps == [(step, 12) for step in range(1, 13)]
    model = load(model_path(tmp_path, "miniature", "plain", 3))
    assert measurements["parameters"] == model.parameter_count()
    again = [entry for probe in PROBES for entry in judge(model, Parity(), probe, trained_length=6, seed=3)]
    assert measurements["learned"] == again
    assert not [name for name in contents(tmp_path) if name.startswith(".state")]


def test_equal_seeds_give_equal_measurements_and_others_do_not(tmp_path, whole):
    torch.manual_seed(99)  # nothing hangs on where the process stood
    run_arm(STUDY, ANNEALED, (1,), tmp_path)
    again = timeless(measured(tmp_path, STUDY, ANNEALED, 1))
    assert again == findings(whole, STUDY)["annealed", 1] != findings(whole, STUDY)["annealed", 0]


@pytest.mark.parametrize("arm", [TRANSFORMER, replace(PLAIN, name="lstm", model=LSTMConfig(2, 2, width=4))])
def test_other_models_run_too(tmp_path, arm):
    run_arm(one_arm(arm), arm, (0,), tmp_path)
    assert measured(tmp_path, one_arm(arm), arm, 0)["learned"][0]["labels"] == 48


def test_a_long_history_is_thinned_and_keeps_its_end(tmp_path):
    arm = replace(PLAIN, training=replace(TRAINING, steps=251, length=2, batch_size=1), probes=(Probe(2, 1),))
    run_arm(one_arm(arm), arm, (0,), tmp_path)
    steps = [point[0] for point in measured(tmp_path, one_arm(arm), arm, 0)["training"]["curve"]]
    assert steps == [*range(2, 251, 2), 251]


def test_numbers_are_fitted_hardened_and_exact(tmp_path):
    study = one_arm(VALUE)
    run_arm(study, VALUE, (0,), tmp_path)
    measurements = measured(tmp_path, study, VALUE, 0)
    assert measurements["fit"].keys() == {"before", "after", "steps"}
    assert measurements["fit"]["after"] < 1e-20 < measurements["fit"]["before"]
    assert all(point[2] is None for point in measurements["training"]["curve"])  # no accuracy of numbers
    assert [entry["mse"] < 1e-20 for entry in measurements["learned"]] == [True, True]
    assert (measurements["hardening"]["refused"], measurements["hardening"]["states"]) == (None, 2)
    (entry,) = measurements["hardened"]
    assert (entry["length"], entry["exact"]) == (1000, 1.0)
    assert entry["sequences"] == 64 + len(VALUE.task.adversarial(1000))


def test_classes_are_hardened_and_judged_on_the_same_inputs(tmp_path):
    study = one_arm(COUNTED)
    run_arm(study, COUNTED, (0,), tmp_path)
    measurements = measured(tmp_path, study, COUNTED, 0)
    assert measurements["hardening"]["refused"] is None
    assert measurements["hardening"]["states"] == measurements["hardening"]["states_of_the_task"] == 2
    assert measurements["hardening"]["certificate"]["verdict"] == "proved"
    model, certificate = (place(tmp_path, "single", "counted", 0) for place in (hardened_path, certificate_path))
    assert measurements["hardening"]["certificate"]["bytes"] == certificate.stat().st_size
    assert check_certificate(certificate, load(model), COUNTED.task.automaton()).verdict == "proved"
    assert read_json(certificate)["invariant"]["of"] == "node"  # the proof object, for the independent checker
    for learned, hardened in zip(measurements["learned"], measurements["hardened"], strict=True):
        assert {key: learned[key] for key in ("input", "length", "labels")} == {
            key: hardened[key] for key in ("input", "length", "labels")
        }
        assert hardened["positions"] == hardened["exact"] == 1.0


def test_a_model_without_a_machine_says_why(tmp_path):
    arm = replace(TRANSFORMER, harden=True)
    run_arm(one_arm(arm), arm, (0,), tmp_path)
    measurements = measured(tmp_path, one_arm(arm), arm, 0)
    assert (measurements["hardening"]["refused"], measurements["hardened"]) == ("the model has no rational head", None)


FAILING = {
    "the loss is nan at step 2": DIVERGING,
    "transitions must hold finite numbers; got nan": replace(
        DIVERGING, model=readout(Parity(), "exponential", 2), training=replace(TRAINING, learning_rate=1e18)
    ),
    "the last step left weights or matrices that are not finite": replace(
        DIVERGING, model=readout(Parity(), "exponential", 2), training=replace(DIVERGING.training, steps=1)
    ),
    "least squares failed": replace(
        VALUE, name="diverging", training=replace(VALUE.training, steps=1, learning_rate=1e100, curriculum=None)
    ),
}


@pytest.mark.parametrize("words", FAILING)
def test_an_arm_that_diverges_says_so_and_does_not_stop_the_others(tmp_path, words):
    study = one_arm(FAILING[words], PLAIN)
    assert reproduce([study], tmp_path) == 2
    measurements = measured(tmp_path, study, FAILING[words], 0)
    assert words in measurements["training"]["failure"]
    assert (measurements["learned"], measurements["hardened"]) == (None, None)
    other = measured(tmp_path, study, PLAIN, 0)
    assert other["training"]["failure"] is None
    assert other["learned"]
    assert reproduce([study], tmp_path) == 0  # it would diverge again
    assert not [name for name in contents(tmp_path) if name.startswith(".state")]


def test_a_machine_of_huge_numbers_is_refused_not_raised(tmp_path):
    """What is far from an integer may be no number at all."""
    arm = replace(
        VALUE, fit=None, training=replace(VALUE.training, steps=1, learning_rate=1e100, length=2, curriculum=None)
    )
    run_arm(one_arm(arm), arm, (0,), tmp_path)
    measurements = measured(tmp_path, one_arm(arm), arm, 0)
    assert "is not near an integer" in measurements["hardening"]["refused"]
    assert measurements["learned"][0]["mse"] == 1e308


def test_a_wrong_arm_is_an_error_and_no_failed_run(tmp_path):
    arm = replace(TRANSFORMER, training=replace(TRAINING, length=13))  # positions end at 12
    with pytest.raises(ValueError, match="learned positions end"):
        run_arm(one_arm(arm), arm, (0,), tmp_path)
    assert not list(tmp_path.glob("single/**/*.json"))


# Several seeds as one job.


def test_seeds_trained_together_leave_a_record_each(tmp_path, whole):
    paths = run_arm(STUDY, PLAIN, (0, 1), tmp_path)
    assert paths == [record_path(tmp_path, "miniature", "plain", seed) for seed in (0, 1)]
    for seed in (0, 1):
        together, alone = (measured(folder, STUDY, PLAIN, seed) for folder in (tmp_path, whole))
        assert together.keys() == alone.keys()
        assert together["training"].keys() == alone["training"].keys()
        assert together["training"]["together"] == 2
        for one, other in zip(together["training"]["curve"], alone["training"]["curve"], strict=True):
            assert one == pytest.approx(other, abs=1e-4)  # each ends where it would have ended alone
        assert [entry.keys() for entry in together["learned"]] == [entry.keys() for entry in alone["learned"]]
        load(model_path(tmp_path, "miniature", "plain", seed))
    replaced = replace(STUDY, arms=(PLAIN,))
    assert pending([replaced], tmp_path, together=True) == ([], 2)


def test_seeds_are_trained_together_on_a_cpu_where_that_is_asked_for(tmp_path):
    names = []
    study = replace(STUDY, arms=(PLAIN,))
    assert reproduce([study], tmp_path, together=True, on_job=lambda job, *_: names.append(job.seeds)) == 1
    assert names == [study.seeds]


def test_one_seed_that_diverges_does_not_harm_those_trained_with_it(tmp_path, monkeypatch, whole):
    built = running.seeded_model

    def broken(arm, seed, device):
        model = built(arm, seed, device)
        if seed == 1:
            with torch.no_grad():
                next(model.parameters()).fill_(torch.nan)
        return model

    monkeypatch.setattr(running, "seeded_model", broken)
    study = replace(STUDY, seeds=(0, 1, 2))
    run_arm(study, PLAIN, study.seeds, tmp_path)
    records = [measured(tmp_path, study, PLAIN, seed) for seed in study.seeds]
    assert [measurements["training"]["together"] for measurements in records] == [1, 1, 1]
    assert [measurements["training"]["failure"] is None for measurements in records] == [True, False, True]
    assert timeless(records[0]) == findings(whole, STUDY)["plain", 0]


# A model that is there already is only judged.


def not_trained(*_, **__):
    raise AssertionError("nothing was to be trained")


def test_a_lost_record_is_made_again_from_the_model(tmp_path, whole):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    record_path(folder, "miniature", "annealed", 0).unlink()
    run_arm(STUDY, ANNEALED, (0,), folder, on_step=not_trained)
    assert findings(folder, STUDY) == findings(whole, STUDY)


def test_other_probes_need_no_other_training(tmp_path):
    run_arm(SINGLE, PLAIN, (0,), tmp_path)
    asked = replace(PLAIN, probes=(Probe(20, 4),))
    study = replace(SINGLE, arms=(asked,))
    assert len(pending([study], tmp_path, together=False)[0]) == 1
    before = measured(tmp_path, SINGLE, PLAIN, 0)["training"]
    run_arm(study, asked, (0,), tmp_path, on_step=not_trained)
    measurements = measured(tmp_path, study, asked, 0)
    assert measurements["training"] == before
    assert [entry["length"] for entry in measurements["learned"]] == [20]


def test_other_training_is_training(tmp_path):
    run_arm(SINGLE, PLAIN, (0,), tmp_path)
    other = replace(PLAIN, training=replace(TRAINING, steps=13))
    steps = []
    run_arm(replace(SINGLE, arms=(other,)), other, (0,), tmp_path, on_step=lambda *step: steps.append(step))
    assert steps[-1] == (13, 13)
    fitted = replace(VALUE, fit=LeastSquaresFit(12, 32, 1), harden=False)
    run_arm(one_arm(VALUE), replace(VALUE, harden=False), (0,), tmp_path)
    run_arm(one_arm(fitted), fitted, (0,), tmp_path)
    assert measured(tmp_path, one_arm(fitted), fitted, 0)["fit"]["steps"] == 1


@pytest.mark.parametrize("damaged", ["weights", "config", "history", "missing"])
def test_a_damaged_model_is_trained_again(tmp_path, whole, damaged):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    record_path(folder, "miniature", "plain", 0).unlink()
    model = model_path(folder, "miniature", "plain", 0)
    weights = next(model.glob("*.safetensors"))
    if damaged == "missing":
        shutil.rmtree(model)
    else:
        path = {"weights": weights, "config": model / "config.json", "history": model.with_name("seed0.json")}[damaged]
        path.write_bytes(path.read_bytes()[:-7])
    with pytest.warns(DamagedRecordWarning, match=r"seed0.*the model is trained again"):
        run_arm(STUDY, PLAIN, (0,), folder)
    assert findings(folder, STUDY) == findings(whole, STUDY)
    load(model)


# All runs of several studies.


def test_what_is_done_is_skipped_and_not_touched(whole):
    before = contents(whole)
    jobs, done = pending([STUDY], whole, together=False)
    assert (jobs, done) == ([], 4)
    assert reproduce([STUDY], whole, on_job=not_trained) == 0
    assert contents(whole) == before


def test_jobs_are_reported_as_they_end(tmp_path):
    seen = []
    assert reproduce([STUDY], tmp_path, on_job=lambda *job: seen.append(job)) == 4
    assert [(count, total) for _, count, total in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert {job.name for job, _, _ in seen} == {
        f"miniature · {arm} · seed {seed}" for arm in ("plain", "annealed") for seed in (0, 1)
    }
    more = replace(STUDY, seeds=(0, 1, 2))
    before = contents(tmp_path, "miniature/**/seed[01].json")
    seen.clear()
    assert reproduce([more], tmp_path, on_job=lambda *job: seen.append(job)) == 2
    assert {job.seeds for job, _, _ in seen} == {(2,)}
    assert contents(tmp_path, "miniature/**/seed[01].json") == before


@pytest.mark.parametrize(
    "change",
    [
        {"training": replace(TRAINING, learning_rate=6e-3)},
        {"probes": (*PROBES, Probe(7, 1))},
        {"column": "paper"},
        {"model": readout(Parity(), "orthogonal", 3)},
    ],
    ids=lambda change: next(iter(change)),
)
def test_other_settings_are_another_run(tmp_path, change):
    study = Study("miniature", "Does it run?", (PLAIN, TRANSFORMER), (0,))
    reproduce([study], tmp_path)
    before = contents(tmp_path, "miniature/transformer/*")
    changed = replace(study, arms=(replace(PLAIN, **change), TRANSFORMER))
    jobs, done = pending([changed], tmp_path, together=False)
    assert ([job.arm for job in jobs], done) == ([changed.arms[0]], 1)
    assert reproduce([changed], tmp_path) == 1
    findings(tmp_path, changed)
    assert contents(tmp_path, "miniature/transformer/*") == before


def test_a_record_of_another_study_or_question_is_another_run(tmp_path):
    reproduce([SINGLE], tmp_path)
    for other in (replace(SINGLE, question="And now?"), replace(SINGLE, name="other"), replace(SINGLE, seeds=(1,))):
        assert len(pending([other], tmp_path, together=False)[0]) == 1


DAMAGE = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "no JSON": lambda data: b"{]" + data,
    "no object": lambda data: b"[1, 2]",
    "a number": lambda data: b"3",
    "without settings": lambda data: json.dumps({"name": "miniature/plain"}).encode(),
    "no text": lambda data: b"\xff\xfe\x00" + data,
}


@pytest.mark.parametrize("damage", DAMAGE)
def test_a_damaged_record_is_named_and_its_run_done_again(tmp_path, whole, damage):
    folder = tmp_path / "copy"
    shutil.copytree(whole, folder)
    path = record_path(folder, "miniature", "plain", 1)
    path.write_bytes(DAMAGE[damage](path.read_bytes()))
    others = {
        name: each for name, each in contents(folder, "miniature/**/*").items() if name != "miniature/plain/seed1.json"
    }
    assert len(others) == 3
    with pytest.warns(DamagedRecordWarning, match=r"plain/seed1\.json is not a record.*the run is done again"):
        assert reproduce([STUDY], folder) == 1
    assert findings(folder, STUDY) == findings(whole, STUDY)
    after = contents(folder, "miniature/**/*")
    assert {name: after[name] for name in others} == others


def test_long_jobs_come_first():
    long = replace(PLAIN, name="long", training=replace(TRAINING, steps=500))
    far = replace(PLAIN, name="far", probes=(Probe(100_000, 4),))
    deep = replace(TRANSFORMER, name="deep", training=long.training)
    study = Study("miniature", "Does it run?", (PLAIN, long, far, deep), (0, 1))
    jobs, done = pending([study], "nowhere", together=False)
    assert done == 0
    assert [job.arm.name for job in jobs] == ["far", "far", "deep", "deep", "long", "long", "plain", "plain"]
    assert [job.seeds for job in jobs] == [(0,), (1,)] * 4


def test_on_a_gpu_all_seeds_of_an_arm_are_one_job_but_an_lstms(tmp_path):
    lstm = replace(PLAIN, name="lstm", model=LSTMConfig(2, 2, width=4))
    study = Study("miniature", "Does it run?", (PLAIN, lstm), (0, 1, 2))
    run_arm(study, PLAIN, (1,), tmp_path)
    jobs, done = pending([study], tmp_path, together=True)
    assert done == 1
    assert {(job.arm.name, job.seeds) for job in jobs} == {
        ("plain", (0, 2)),
        ("lstm", (0,)),
        ("lstm", (1,)),
        ("lstm", (2,)),
    }
    assert next(job.name for job in jobs if job.arm is PLAIN) == "miniature · plain · seeds 0, 2"


@pytest.fixture
def only_elsewhere(monkeypatch):
    """Nothing is run in this process; others import the runner again."""
    monkeypatch.setattr(reproduction, "run_arm", not_trained)


@pytest.mark.usefixtures("only_elsewhere")
def test_two_processes_find_the_same(tmp_path, whole):
    seen = []
    assert reproduce([STUDY], tmp_path, jobs=2, on_job=lambda *job: seen.append(job)) == 4
    assert findings(tmp_path, STUDY) == findings(whole, STUDY)
    assert [(count, total) for _, count, total in seen] == [(1, 4), (2, 4), (3, 4), (4, 4)]
    assert reproduce([STUDY], tmp_path, jobs=2, on_job=not_trained) == 0


def test_a_killed_worker_is_said_and_its_run_goes_on(tmp_path):
    """As when memory runs out: the others' records are whole, and the same call does what is left."""
    endless = replace(PLAIN, name="endless", training=replace(TRAINING, steps=10**7))
    study = Study("miniature", "Does it run?", (PLAIN, endless), (0,))
    ended = []

    def kill_all(job, count, total):
        ended.append(job.arm)
        for process in get_reusable_executor(reuse=True)._processes.values():
            os.kill(process.pid, signal.SIGKILL)

    with pytest.raises(BrokenExecutor, match="terminated"):
        reproduce([study], tmp_path, jobs=2, on_job=kill_all)
    assert ended == [PLAIN]
    findings(tmp_path, replace(study, arms=(PLAIN,)))
    jobs, done = pending([study], tmp_path, together=False)
    assert ([job.arm for job in jobs], done) == ([endless], 1)


def test_an_error_is_said_and_what_was_done_stays(tmp_path):
    training = replace(TRAINING, length=13, steps=1)  # positions end at 12
    wrong = replace(TRANSFORMER, name="wrong", training=training, probes=(Probe(1, 1),))
    study = Study("miniature", "Does it run?", (PLAIN, wrong), (0,))
    with pytest.raises(ValueError, match="learned positions end"):
        reproduce([study], tmp_path)
    findings(tmp_path, replace(study, arms=(PLAIN,)))
    assert pending([study], tmp_path, together=False)[1] == 1


@pytest.mark.parametrize("jobs", [1, 2])
def test_an_interrupt_leaves_whole_records(tmp_path, whole, jobs):
    def interrupt(job, count, total):
        if count == 2:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        reproduce([STUDY], tmp_path, jobs=jobs, on_job=interrupt)
    get_reusable_executor(reuse=True).shutdown(wait=True)
    records = list(tmp_path.glob("miniature/*/seed*.json"))
    assert len(records) >= 2
    for path in records:
        read_record(path)
    before = contents(tmp_path, "miniature/**/*")
    assert reproduce([STUDY], tmp_path) == 4 - len(records)
    assert findings(tmp_path, STUDY) == findings(whole, STUDY)
    after = contents(tmp_path, "miniature/**/*")
    assert {name: after[name] for name in before} == before


@pytest.mark.parametrize(
    ("words", "options"),
    [
        ("jobs must be a positive integer; got 0", {"jobs": 0}),
        ("jobs must be a positive integer; got -1", {"jobs": -1}),
        ("backend must be one of 'loky', 'dask', 'ray'; got 'mpi'", {"backend": "mpi"}),
    ],
)
def test_wrong_options_are_refused_by_name(tmp_path, words, options):
    with pytest.raises(ValueError, match=words):
        reproduce([STUDY], tmp_path / "folder", **options)
    assert not (tmp_path / "folder").exists()


def test_a_training_error_of_the_disk_is_no_failure_of_the_model(tmp_path, monkeypatch):
    def full(self, folder):
        raise TrainingError("the state of step 12 cannot be written") from OSError(28, "No space left on device")

    monkeypatch.setattr(running.Trainer, "save", full)
    with pytest.raises(TrainingError, match="cannot be written"):
        run_arm(SINGLE, PLAIN, (0,), tmp_path)
    assert not list(tmp_path.glob("miniature/**/*.json"))
