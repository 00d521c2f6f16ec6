"""Every study of the library: a frozen value, whose arms can be built, trained on and judged as they say."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import replace

import pytest
import torch

from tests.studies.miniatures import PLAIN, STUDY, VALUE
from transductor.configuration import from_plain, to_plain
from transductor.model import (
    BackboneConfig,
    LearnedPositions,
    NoPositions,
    RelativePositions,
    RotaryPositions,
    build,
)
from transductor.studies import STUDIES, Arm, Probe, Study
from transductor.studies.running import run_settings
from transductor.studies.study import COLUMNS, EVERY_KIND, LeastSquaresFit
from transductor.tasks import FlipFlop, ModularArithmetic

NAMES = ["regular_gap", "length_generalization", "long_addition", "base_two_value", "state_tracking", "ablations"]
ARMS = [pytest.param(study, arm, id=f"{name}-{arm.name}") for name, study in STUDIES.items() for arm in study.arms]


def learned_positions(config):
    """How many positions the model has learned vectors for; None where it has none."""
    positions = getattr(getattr(config, "backbone", config), "positions", None)
    return positions.max_length if isinstance(positions, LearnedPositions) else None


def test_the_studies_are_those_asked_for():
    assert list(STUDIES)[: len(NAMES)] == NAMES
    assert all(study.name == name for name, study in STUDIES.items())
    assert all(study.question.endswith("?") for study in STUDIES.values())
    assert all(study.seeds == (0, 1, 2, 3, 4) for study in STUDIES.values())


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_study_is_frozen_and_round_trips(name):
    study = STUDIES[name]
    for value in (study, study.arms[0], study.arms[0].probes[0], study.arms[0].training):
        field = dataclasses.fields(value)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(value, field, getattr(value, field))
    assert from_plain(json.loads(json.dumps(to_plain(study), allow_nan=False))) == study
    assert from_plain(json.loads(json.dumps(to_plain(study.shortened())))) == study.shortened() != study


@pytest.mark.parametrize("name", list(STUDIES))
def test_settings_of_a_run_read_back_are_the_same(name):
    """A run is done again where they differ, so they must survive a file."""
    study = STUDIES[name]
    for arm in study.arms:
        settings = run_settings(study, arm, 3)
        assert json.loads(json.dumps(settings, allow_nan=False)) == settings
        assert from_plain(settings["arm"]) == arm


def test_the_columns_are_there():
    """Our reading of the paper's recipe stands beside our own, and the baselines have four kinds of positions."""
    for name in NAMES[:4]:
        assert {arm.column for arm in STUDIES[name].arms} == set(COLUMNS)
    for name in ("regular_gap", "length_generalization"):
        schemes = {arm.name: arm.model.positions for arm in STUDIES[name].arms if arm.column == "baseline"}
        assert {type(scheme) for scheme in schemes.values()} == {
            LearnedPositions,
            RotaryPositions,
            RelativePositions,
            NoPositions,
        }
    ours = [arm for name in NAMES[:5] for arm in STUDIES[name].arms if arm.column == "ours"]
    assert all(arm.harden for arm in ours)
    assert not any(arm.harden or arm.fit for name in NAMES for arm in STUDIES[name].arms if arm not in ours)


def test_what_the_studies_must_reach():
    """Lengths and inputs that the claims speak of are among the probes."""

    def probes(study, arm):
        return next(each for each in STUDIES[study].arms if each.name == arm).probes

    for study, longest in (("regular_gap", 10_000), ("length_generalization", 100_000)):
        asked = {(probe.bias, probe.family) for probe in probes(study, "transductor_ours") if probe.length == longest}
        assert asked == {(None, None), (0.1, None), (0.9, None), (None, "all ones")}
        assert {probe.length for probe in probes(study, "transductor_paper")} >= {1000, 10_000}
    for arm in ("transductor_paper", "transductor_ours"):
        for length in (1000, 10_000):
            asked = {probe.family for probe in probes("long_addition", arm) if probe.length == length}
            assert asked == {None, EVERY_KIND}
    assert {probe.length for probe in probes("base_two_value", "transductor_ours")} >= {64, 128}
    for arm, longest in (("parity", 256), ("modular_arithmetic", 255), ("a5_all_elements", 5120), ("c6", 100_000)):
        assert longest in {probe.length for probe in probes("state_tracking", arm)}
    reads = [
        probe.sequences * probe.length * (1 - probe.task.ignore_probability) / 2
        for probe in probes("state_tracking", "flip_flop")
        if probe.task is not None
    ]
    assert len(reads) == 2
    assert min(reads) >= 1e6


@pytest.mark.parametrize(("study", "arm"), ARMS)
def test_an_arm_can_be_run(study, arm):
    """Its model takes what its tasks give; probes ask for what their tasks have, and no farther than the model sees."""
    task, training = arm.task, arm.training
    assert training.length >= task.shortest
    assert (training.shortest or task.shortest) >= task.shortest
    assert training.curriculum is None or training.curriculum.start >= task.shortest
    assert len(set(arm.probes)) == len(arm.probes)
    torch.manual_seed(0)
    model = build(arm.model).eval()
    if training.double:
        model.double()
    for asked in {probe.task or task: None for probe in arm.probes}:
        assert (asked.vocab_size, asked.output_size) == (task.vocab_size, task.output_size)
        tokens = asked.sample(2, max(9, asked.shortest), torch.Generator().manual_seed(0))
        with torch.no_grad():
            outputs = model(tokens)
        assert outputs.shape == (*tokens.shape, asked.output_size)
        assert outputs.isfinite().all()
    for probe in arm.probes:
        asked = probe.task or task
        assert probe.length >= asked.shortest
        assert probe.bias is None or asked.coin is not None
        if isinstance(asked, ModularArithmetic):
            assert probe.length % 2 == 1  # the last token is a digit, and has a label
    for probe in (probe for probe in arm.probes if probe.family is not None):
        kinds = (probe.task or task).adversarial(probe.length)
        assert kinds
        assert probe.family == EVERY_KIND or probe.family in kinds


@pytest.mark.parametrize(("study", "arm"), [each for each in ARMS if learned_positions(each.values[1].model)])
def test_learned_positions_reach_as_far_as_the_probes(study, arm):
    longest = max(probe.length for probe in arm.probes)
    assert arm.training.length <= longest <= learned_positions(arm.model)
    with torch.no_grad():
        assert build(arm.model)(arm.task.sample(1, longest, torch.Generator())).isfinite().all()


def test_there_are_learned_positions():
    assert len([each for each in ARMS if learned_positions(each.values[1].model)]) >= 4
    model = build(BackboneConfig(2, 2, positions=LearnedPositions(8)))
    with pytest.raises(ValueError, match="learned positions end"):
        model(torch.zeros(1, 9, dtype=torch.long))


@pytest.mark.parametrize("name", list(STUDIES))
def test_a_shortened_study_is_the_same_in_miniature(name):
    study = STUDIES[name]
    short = study.shortened()
    assert (short.name, short.question, short.seeds) == (study.name, study.question, (0,))
    assert [arm.name for arm in short.arms] == [arm.name for arm in study.arms]
    for arm, small in zip(study.arms, short.arms, strict=True):
        assert small.quick  # so that no figure of it is taken for the real one
        assert replace(small, training=arm.training, probes=arm.probes, quick=False) == arm
        assert small.training.steps == max(10, math.ceil(arm.training.steps / 20))
        assert small.training.warmup <= small.training.steps
        longest = max(200, arm.training.length)
        assert all(probe.length <= longest and probe.sequences <= 8 for probe in small.probes)
        assert {(p.bias, p.family, p.task, p.length % 2) for p in small.probes} == {
            (p.bias, p.family, p.task, p.length % 2) for p in arm.probes
        }
        assert {p.length for p in arm.probes if p.length <= 200} <= {p.length for p in small.probes}
        assert len(set(small.probes)) == len(small.probes)


@pytest.mark.parametrize(
    ("words", "act"),
    [
        ("column must be one of 'paper', 'ours', 'baseline'", lambda: replace(PLAIN, column="theirs")),
        ("name must be letters, digits and underscores; got 'a/b'", lambda: replace(PLAIN, name="a/b")),
        ("name must be letters", lambda: replace(PLAIN, name="")),
        ("probes must not be empty", lambda: replace(PLAIN, probes=())),
        ("fit must be None where labels are classes, as in parity", lambda: replace(PLAIN, fit=LeastSquaresFit(6))),
        ("arms must have distinct names", lambda: replace(STUDY, arms=(PLAIN, PLAIN))),
        ("arms must have distinct names, at least one", lambda: replace(STUDY, arms=())),
        ("seeds must be distinct", lambda: replace(STUDY, seeds=(1, 1))),
        ("seeds must be distinct, at least one", lambda: replace(STUDY, seeds=())),
        ("length must be a positive integer", lambda: Probe(0)),
        ("sequences must be a positive integer", lambda: Probe(5, 0)),
        ("bias must be None where an input kind is given", lambda: Probe(5, 1, 0.5, "all ones")),
    ],
)
def test_what_makes_no_sense_is_refused_by_name(words, act):
    with pytest.raises(ValueError, match=words):
        act()


def test_an_odd_length_stays_odd_and_is_not_longer_than_it_was():
    arm = replace(VALUE, probes=(Probe(5, 99), Probe(255), Probe(256), Probe(1000), Probe(300, task=FlipFlop())))
    lengths = [(probe.length, probe.sequences) for probe in arm.shortened().probes]
    assert lengths == [(5, 8), (199, 8), (200, 8), (200, 8)]  # 256 and 1000 have become one
    assert isinstance(arm.shortened(), Arm)
    assert Study("s", "q?", (arm,)).shortened().arms == (arm.shortened(),)
