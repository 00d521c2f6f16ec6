"""Study ``state_tracking``: the tasks on which recurrences are compared, learned on at most 40 or 60 tokens."""

from __future__ import annotations

import math
from typing import Any, Final

from transductor.heads import HeadConfig
from transductor.model import ReadoutConfig
from transductor.studies.study import EVERY_KIND, Arm, Probe, Study
from transductor.tasks import FlipFlop, Task, task_named
from transductor.training import Annealing, Curriculum, TrainingSettings
from transductor.transitions import FamilySpec


def _probes(*lengths: int) -> tuple[Probe, ...]:
    return tuple(
        probe
        for length in lengths
        for probe in (Probe(length, max(4, min(256, 330_000 // length))), Probe(length, 1, family=EVERY_KIND))
    )


def _arm(
    name: str,
    task: Task | str,
    family: str,
    dim: int,
    probes: tuple[Probe, ...],
    *,
    length: int = 40,
    steps: int = 2500,
    **options: Any,
) -> Arm:
    """Return an automaton with a linear readout, which suffices where the label follows from the state.

    Label smoothing, the default, keeps the learned machines right on long inputs: without it a loss that is nearly zero
    leaves the matrices where they first sufficed.
    """
    task = task_named(task) if isinstance(task, str) else task
    spec = FamilySpec(family, {"vocab_size": task.vocab_size, "state_dim": dim, **options})
    training = TrainingSettings(
        steps=steps,
        length=length,
        batch_size=128,
        optimiser="adam",
        clipping="per_tensor",
        curriculum=Curriculum(max(4, task.shortest)),
        annealing=Annealing() if family == "stochastic" else None,
    )
    model = ReadoutConfig(HeadConfig("rational", spec), task.output_size)
    return Arm(name, "ours", task, model, training, probes, harden=True)


def _group(name: str, task: str, family: str, dim: int, *lengths: int) -> Arm:
    """Return an arm wider than the group's smallest representation, started far from the identity to find one."""
    return _arm(name, task, family, dim, _probes(40, *lengths), init_scale=0.3 / math.sqrt(dim))


# A million reads each, where one token in a hundred is a read, and where nearly one in two is.
_READS: Final = (
    Probe(40, 256),
    Probe(8192, 12_288, task=FlipFlop(0.98)),
    Probe(512, 4_500, task=FlipFlop(0.1)),
    Probe(100_000, 1, family=EVERY_KIND),
)

state_tracking: Final = Study(
    "state_tracking",
    "How far do machines learned on 40 tokens (60 for C6 and S3) reach?",
    (
        _arm("parity", "parity", "orthogonal", 8, _probes(40, 256, 1000, 10_000), steps=1500),
        _arm("even_pairs", "even_pairs", "dense", 8, _probes(40, 256, 1000, 10_000), steps=1500),
        _arm("cycle_navigation", "cycle", "orthogonal", 8, _probes(40, 256, 1000, 10_000), steps=1500),
        _arm("modular_arithmetic", "arithmetic", "dense", 32, _probes(39, 255, 999, 9_999)),
        _group("a5_two_generators", "group:A5:named", "squared_cayley", 16, 256, 512, 5_120),
        _group("a5_all_elements", "group:A5:all", "squared_cayley", 16, 256, 512, 5_120),
        _group("s5_two_generators", "group:S5:named", "squared_cayley", 16, 256, 512, 5_120),
        _group("s5_swaps", "group:S5:swaps", "orthogonal", 16, 256, 512, 5_120),
        _group("s5_32_random_generators", "group:S5:32:0", "squared_cayley", 16, 256, 512, 5_120),
        _group("s5_all_elements", "group:S5:all", "exponential", 32, 256, 512, 5_120),
        _arm("c6", "group:Z6:all", "orthogonal", 8, _probes(60, 1000, 100_000), length=60, steps=1500),
        _arm("s3", "group:S3:all", "orthogonal", 8, _probes(60, 1000, 100_000), length=60, steps=1500),
        _arm("flip_flop", FlipFlop(), "stochastic", 4, _READS, steps=1500),
    ),
)
