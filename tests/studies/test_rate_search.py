"""An arm that seeks its learning rate: on other seeds, on the trained length alone, once for all its seeds."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from tests.studies.miniatures import PLAIN, contents, measured, readout
from transductor.configuration import from_plain, to_plain
from transductor.heads import HeadConfig
from transductor.model import FilterReadoutConfig, LSTMConfig
from transductor.results import read_record
from transductor.studies import Arm, Probe, Study, reproduce, running
from transductor.studies.rate_search import FAILED, SEEDS, rate_search
from transductor.studies.reproduction import pending
from transductor.studies.running import model_path, record_path, run_arm
from transductor.tasks import PartlyObserved
from transductor.training import TrainingSettings
from transductor.transitions import FamilySpec

TASK = PartlyObserved(states=2)
TRAINING = TrainingSettings(steps=15, length=6, batch_size=8, label_smoothing=0.0, optimiser="adam", betas=(0.9, 0.99))
FILTER = FilterReadoutConfig(HeadConfig("filter", FamilySpec("positive", {"vocab_size": 15, "state_dim": 2})), 2)
ARM = Arm("filter", "ours", TASK, FILTER, TRAINING, (Probe(6, 8), Probe(12, 8)), rates=(1e-5, 0.1))
STUDY = Study("sought", "Which rate?", (ARM,), (0, 1))


@pytest.fixture(scope="module")
def done(tmp_path_factory):
    folder = tmp_path_factory.mktemp("done")
    names = []
    assert reproduce([STUDY], folder, on_job=lambda job, *_: names.append(job.seeds)) == 1
    assert names == [(0, 1)]  # one job, although nobody asked for seeds together
    return folder


def tried(folder, place, seed):
    path = record_path(folder / "searches", "sought", f"filter_rate_{place}", seed)
    return read_record(path)


def test_the_best_rate_at_the_trained_length_is_taken(done):
    for seed in STUDY.seeds:
        search = measured(done, STUDY, ARM, seed)["search"]
        assert search["seeds"] == list(SEEDS)
        assert not set(SEEDS) & set(STUDY.seeds)
        means = {one["rate"]: sum(one["excess"]) for one in search["tried"]}
        assert list(means) == list(ARM.rates)
        assert search["chosen"] == min(means, key=means.get) == 0.1
        history = read_record(model_path(done, "sought", "filter", seed).with_name(f"seed{seed}.json"))
        assert history.settings["training"]["learning_rate"] == 0.1
    for place, one in enumerate(search["tried"]):
        for seed, excess in zip(SEEDS, one["excess"], strict=True):
            record = tried(done, place, seed)
            (entry,) = record.measurements["learned"]  # nothing longer was looked at
            assert (entry["length"], entry["excess"]) == (TRAINING.length, excess)
            assert record.settings["arm"]["training"]["learning_rate"] == one["rate"]


def test_the_seeds_end_where_a_fixed_rate_would_have_led(done, tmp_path):
    fixed = ARM.at_rate(0.1)
    assert fixed.rates == ()
    run_arm(replace(STUDY, arms=(fixed,)), fixed, (0, 1), tmp_path)
    for seed in (0, 1):
        assert measured(tmp_path, STUDY, fixed, seed)["learned"] == measured(done, STUDY, ARM, seed)["learned"]


def test_what_was_searched_is_not_searched_again(done, monkeypatch):
    before = contents(done / "searches")
    assert pending([STUDY], done, together=False) == ([], 2)
    more = replace(STUDY, seeds=(0, 1, 2))
    trained = []
    train = running._trained
    monkeypatch.setattr(
        running, "_trained", lambda arm, runs, on_step: trained.append(len(runs)) or train(arm, runs, on_step)
    )
    assert reproduce([more], done) == 1
    assert [count for count in trained if count] == [1]
    assert contents(done / "searches") == before
    assert measured(done, STUDY, ARM, 2)["search"] == measured(done, STUDY, ARM, 0)["search"]


def test_an_interrupted_search_goes_on(done):
    kept = contents(done / "searches" / "sought" / "filter_rate_0")
    path = record_path(done / "searches", "sought", "filter_rate_1", SEEDS[1])
    lost = read_record(path)
    path.unlink()
    record_path(done, "sought", "filter", 0).unlink()
    assert reproduce([STUDY], done) == 1
    assert contents(done / "searches" / "sought" / "filter_rate_0") == kept
    assert read_record(path).measurements["learned"] == lost.measurements["learned"]


def test_a_rate_that_diverges_is_not_taken(tmp_path):
    arm = replace(ARM, model=readout(TASK, "dense", 2), rates=(1e30, 1e-3))
    run_arm(replace(STUDY, arms=(arm,)), arm, (0,), tmp_path)
    search = measured(tmp_path, STUDY, arm, 0)["search"]
    assert search["tried"][0]["excess"] == [FAILED, FAILED]
    assert search["chosen"] == 1e-3


def test_seeds_that_cannot_be_stacked_are_trained_one_after_the_other(tmp_path):
    arm = replace(ARM, name="lstm", model=LSTMConfig(15, 2, width=4))
    study = replace(STUDY, arms=(arm,))
    assert reproduce([study], tmp_path) == 1
    assert [measured(tmp_path, study, arm, seed)["training"]["together"] for seed in (0, 1)] == [1, 1]


def test_a_quick_check_searches_on_one_seed_and_few_words():
    search = rate_search(STUDY, ARM.shortened())
    assert search.seeds == SEEDS[:1]
    assert all(arm.quick and arm.probes == (Probe(6, 8),) for arm in search.arms)


def test_rates_are_written_only_where_there_are_some():
    assert from_plain(json.loads(json.dumps(to_plain(ARM)))) == ARM
    assert "rates" not in to_plain(PLAIN)
    assert "betas" not in to_plain(PLAIN.training)


@pytest.mark.parametrize(
    ("arm", "rates", "words"),
    [
        (PLAIN, (0.1,), "rates must be empty where Bayes' answer is not known"),
        (ARM, (0.1, 0.1), "rates must be distinct positive numbers"),
        (ARM, (0.0,), "rates must be distinct positive numbers"),
    ],
)
def test_wrong_rates_are_refused(arm, rates, words):
    with pytest.raises(ValueError, match=words):
        replace(arm, rates=rates)


@pytest.mark.parametrize("betas", [(0.9, 1.0), (-0.1, 0.9), (0.9,)])
def test_wrong_betas_are_refused(betas):
    with pytest.raises(ValueError, match="betas must be two numbers"):
        replace(TRAINING, betas=betas)
