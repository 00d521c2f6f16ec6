"""Studies as frozen values: arms that are trained, and the inputs that each of them is judged on."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Any, Final

from transductor.checks import check_positive, one_of
from transductor.configuration import LATER, configuration
from transductor.tasks import HiddenProcess, Task
from transductor.training import TrainingSettings

COLUMNS: Final = ("paper", "ours", "baseline")
EVERY_KIND: Final = "every"  # stands for all input kinds of a task


@configuration
@dataclass(frozen=True)
class Probe:
    """Inputs a trained model is judged on.

    Args:
        length: Tokens per sequence.
        sequences: Number of random sequences; an input kind is a single sequence.
        bias: Bias of random inputs, see :meth:`~transductor.tasks.Task.sample`.
        family: Name of the task's input kind in place of random inputs, or ``"every"`` for all of them.
        task: The task that gives the inputs, if it is not the one that the model was trained on.
    """

    length: int
    sequences: int = 64
    bias: float | None = None
    family: str | None = None
    task: Task | None = None

    def __post_init__(self) -> None:
        check_positive("length", self.length)
        check_positive("sequences", self.sequences)
        if self.bias is not None and self.family is not None:
            raise ValueError("bias must be None where an input kind is given")


@configuration
@dataclass(frozen=True)
class LeastSquaresFit:
    """A fit to one batch after training; see :func:`~transductor.training.fit_least_squares`."""

    length: int
    batch_size: int = 64
    steps: int = 40


@configuration
@dataclass(frozen=True)
class Arm:
    """One model, trained one way, judged on several inputs.

    Args:
        name: Name of the arm within the study, and of its folder.
        column: ``"paper"`` (our reading of its recipe), ``"ours"`` or ``"baseline"``.
        task: The task that the model learns.
        model: A configuration that :func:`transductor.model.build` builds.
        training: How the model is trained.
        probes: The inputs that it is judged on.
        fit: A least-squares fit after training, where labels are numbers.
        harden: Whether the exact machine that the model approximates is judged too.
        quick: Whether this is only a check that everything runs, which tables and figures must say.
        rates: If given, peak learning rates that are tried on seeds that are not judged; the one that is nearest to
            Bayes on new inputs of the trained length takes the place of ``training.learning_rate``.
    """

    name: str
    column: str
    task: Task
    model: Any
    training: TrainingSettings
    probes: tuple[Probe, ...]
    fit: LeastSquaresFit | None = None
    harden: bool = False
    quick: bool = field(default=False, metadata=LATER)
    rates: tuple[float, ...] = field(default=(), metadata=LATER)

    def __post_init__(self) -> None:
        one_of("column", self.column, COLUMNS)
        if not self.name or not self.name.replace("_", "").isalnum():
            raise ValueError(f"name must be letters, digits and underscores; got {self.name!r}")
        if not self.probes:
            raise ValueError("probes must not be empty")
        if self.fit is not None and self.task.output_kind != "real":
            raise ValueError(f"fit must be None where labels are classes, as in {self.task.name}")
        if self.rates and not isinstance(self.task, HiddenProcess):
            raise ValueError(f"rates must be empty where Bayes' answer is not known, as in {self.task.name}")
        if not all(0 < rate < math.inf for rate in self.rates) or len(set(self.rates)) != len(self.rates):
            raise ValueError(f"rates must be distinct positive numbers; got {self.rates}")

    def at_rate(self, rate: float) -> Arm:
        """Return the arm with this peak learning rate, and nothing to seek."""
        return replace(self, training=replace(self.training, learning_rate=rate), rates=())

    def shortened(self) -> Arm:
        """Return a quick check that everything runs: a twentieth of the steps, inputs of at most 200 tokens.

        Where training inputs are longer, inputs are as long as those; an odd length stays odd.
        """
        longest = max(200, self.training.length)
        probes = [
            replace(probe, length=min(probe.length, longest - (longest - probe.length) % 2), sequences=8)
            for probe in self.probes
        ]
        steps = max(10, math.ceil(self.training.steps / 20))
        training = replace(self.training, steps=steps, warmup=min(self.training.warmup, steps))
        return replace(self, probes=tuple(dict.fromkeys(probes)), training=training, quick=True)


@configuration
@dataclass(frozen=True)
class Study:
    """A comparison of arms.

    Args:
        name: The study's name everywhere: command, folder, figure.
        question: What it asks, in one sentence.
        arms: What is compared; their names are distinct.
        seeds: Each arm is trained once for each seed.
    """

    name: str
    question: str
    arms: tuple[Arm, ...]
    seeds: tuple[int, ...] = (0, 1, 2, 3, 4)

    def __post_init__(self) -> None:
        names = [arm.name for arm in self.arms]
        if not names or len(set(names)) != len(names):
            raise ValueError(f"arms must have distinct names, at least one; got {names}")
        if not self.seeds or len(set(self.seeds)) != len(self.seeds):
            raise ValueError(f"seeds must be distinct, at least one; got {self.seeds}")

    def shortened(self) -> Study:
        """Return the study with one seed and every arm shortened."""
        return replace(self, arms=tuple(arm.shortened() for arm in self.arms), seeds=self.seeds[:1])
