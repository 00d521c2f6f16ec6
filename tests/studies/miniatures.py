"""Studies small enough to be run, killed and run again in a test."""

from __future__ import annotations

import json
from dataclasses import replace

from transductor.heads import HeadConfig
from transductor.model import BackboneConfig, LearnedPositions, ReadoutConfig
from transductor.results import read_record
from transductor.studies import Arm, Probe, Study
from transductor.studies.running import record_path, run_settings
from transductor.studies.study import LeastSquaresFit
from transductor.tasks import BaseValue, FlipFlop, Parity
from transductor.training import Annealing, Curriculum, TrainingSettings
from transductor.transitions import FamilySpec

OFTEN = 5  # steps between two written states; what the kill tests set in place of the runner's own
TIMES = {"seconds", "judging_seconds"}


def readout(task, family, dim):
    spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": dim})
    return ReadoutConfig(HeadConfig("rational", spec), task.output_size)


TRAINING = TrainingSettings(steps=12, length=6, batch_size=4)
PROBES = (Probe(6, 8), Probe(12, 8, bias=0.9), Probe(12, 1, family="every"))
PLAIN = Arm("plain", "ours", Parity(), readout(Parity(), "orthogonal", 2), TRAINING, PROBES)
# Its temperature changes with every step, and is no parameter.
ANNEALED = Arm(
    "annealed",
    "ours",
    FlipFlop(0.5),
    readout(FlipFlop(0.5), "stochastic", 3),
    replace(TRAINING, annealing=Annealing(), curriculum=Curriculum(2, threshold=0.1)),
    (Probe(6, 8), Probe(12, 4, task=FlipFlop(0.1))),
)
TRANSFORMER = Arm(
    "transformer",
    "baseline",
    Parity(),
    BackboneConfig(2, 2, width=8, layers=1, attention_heads=2, positions=LearnedPositions(12)),
    replace(TRAINING, warmup=3),
    PROBES,
)
# Small as it is, it ends exact: two states, every integer right.
VALUE = Arm(
    "value",
    "ours",
    BaseValue(normalised=False),
    readout(BaseValue(), "affine", 3),
    TrainingSettings(
        steps=60,
        length=12,
        batch_size=16,
        learning_rate=1e-2,
        optimiser="adam",
        schedule="constant",
        clipping="per_tensor",
        double=True,
        curriculum=Curriculum(4),
    ),
    (Probe(8, 8), Probe(32, 8)),
    fit=LeastSquaresFit(12, 32, 40),
    harden=True,
)
COUNTED = Arm(
    "counted",
    "ours",
    Parity(),
    readout(Parity(), "orthogonal", 2),
    TrainingSettings(steps=200, length=8, batch_size=32, learning_rate=2e-2, optimiser="adam", clipping="per_tensor"),
    (Probe(8, 8), Probe(64, 8)),
    harden=True,
)
# Steps are without end: the loss is no number at the second.
DIVERGING = replace(PLAIN, name="diverging", training=replace(TRAINING, learning_rate=1e30))

STUDY = Study("miniature", "Does it run?", (PLAIN, ANNEALED), (0, 1))
SINGLE = Study("miniature", "Does it run?", (PLAIN,), (0,))


def measured(folder, study, arm, seed):
    return read_record(record_path(folder, study.name, arm.name, seed)).measurements


def timeless(value):
    """Measurements without times, and without what tells an interrupted run from another."""
    if isinstance(value, dict):
        return {key: timeless(each) for key, each in value.items() if key not in {*TIMES, "resumed_at"}}
    return [timeless(each) for each in value] if isinstance(value, list) else value


def findings(folder, study):
    """What all records of a study say, times apart; raises where one is missing, damaged or of other settings."""
    measurements_by_run = {}
    for arm in study.arms:
        for seed in study.seeds:
            record = read_record(record_path(folder, study.name, arm.name, seed))
            assert record.settings == json.loads(json.dumps(run_settings(study, arm, seed)))
            measurements_by_run[arm.name, seed] = timeless(record.measurements)
    return measurements_by_run


def contents(folder, pattern="**/*"):
    """Every file below a folder: its bytes and when they were written."""
    return {
        str(path.relative_to(folder)): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in sorted(folder.glob(pattern))
        if path.is_file()
    }
