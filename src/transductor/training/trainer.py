"""A training run that can be interrupted: every step follows from the state, and the state can be written down."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from transductor.configuration import from_plain, to_plain
from transductor.model import CheckpointError, SequenceModel, build
from transductor.model.bundle import Bundle
from transductor.tasks import Task
from transductor.training.examples import DataError, FileData
from transductor.training.settings import TrainingSettings

_BUNDLE: Final = Bundle(
    "transductor-training", 1, "training.json", "state", ("settings", "source", "model", "step", "length")
)
_IGNORED: Final = -100  # what torch's losses leave out; positions without a label are marked so


class TrainingError(RuntimeError):
    """Training that cannot go on; the message says at which step and why."""


@dataclass(frozen=True)
class TrainingPoint:
    """Loss and accuracy on the batch of one step; where labels are numbers, the accuracy is NaN."""

    step: int
    loss: float
    accuracy: float


class Trainer:
    """Trains ``model`` in place on a label at every position.

    Equal seeds give equal numbers on a CPU, interrupted or not: :meth:`save` writes everything the next step depends
    on, and :meth:`resumed` goes on from there bit for bit.

    Args:
        model: Moved to float64 if the settings say ``double``.
        source: A task, which gives tokens and labels of any length, or data in files, read here.
        settings: The run.  Over files every epoch is a new permutation; ``length`` and ``curriculum`` are for tasks.
    """

    def __init__(self, model: SequenceModel[Any], source: Task | FileData, settings: TrainingSettings) -> None:
        self.model = model.double() if settings.double else model
        self.settings = settings
        self.source: Task | FileData = source
        if isinstance(source, FileData):
            if settings.curriculum is not None:
                raise ValueError("curriculum must be None with data in files: their lengths are what they are")
            self.source, self.examples = source.read()
        self.step = 0
        self.tokens_read = 0  # by this object, padding left out
        self.leads = True  # writes and reports; of several ranks one does
        self.length = settings.curriculum.start if settings.curriculum else settings.length
        self.points: list[TrainingPoint] = []
        self.generator = torch.Generator().manual_seed(settings.seed)
        named = ((name, weight, weight.ndim >= 2) for name, weight in model.named_parameters())
        kind = torch.optim.AdamW if settings.optimiser == "adamw" else torch.optim.Adam
        self.optimiser = kind(parameter_groups(named, settings), lr=settings.learning_rate, fused=True)
        self._peaks = [float(group["lr"]) for group in self.optimiser.param_groups]

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.settings.steps

    @property
    def device(self) -> torch.device:
        """Where the model is."""
        return next(self.model.parameters()).device

    def advance(self) -> TrainingPoint:
        """One step."""
        settings = self.settings
        self.model.train()
        self._set_rates()
        tokens, labels, lengths = (None if each is None else each.to(self.device) for each in self._batch())
        assert tokens is not None
        assert labels is not None
        loss, value, accuracy = self._assessed(tokens, labels, lengths)
        self._check_loss(value)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._clip()
        self.optimiser.step()
        self.step += 1
        self.tokens_read += tokens.numel() if lengths is None else int(lengths.sum())
        point = TrainingPoint(self.step, value, accuracy)
        self.points.append(point)
        curriculum = settings.curriculum
        if curriculum is not None and curriculum.passed(point.loss, point.accuracy):
            self.length = curriculum.longer(self.length, settings.length)
        if self.finished:
            self.model.eval()
        return point

    def _assessed(self, tokens: Tensor, labels: Tensor, lengths: Tensor | None) -> tuple[Tensor, float, float]:
        """The loss to go down on; the value of the loss and the accuracy of the whole batch."""
        logits = self.model(tokens) if lengths is None else self.model(tokens, lengths=lengths)
        loss = labelled_loss(logits, labels, self.settings.label_smoothing, self._unit(labels))
        return loss, loss.item(), accuracy(right_labels(logits, labels), labels)

    def _unit(self, labels: Tensor) -> Tensor | None:
        """What errors of numbers are divided by at every position ``(T)``."""
        unit = None if isinstance(self.source, FileData) else self.source.unit(labels.shape[1])
        return None if unit is None else unit.to(labels.device)

    def run(
        self,
        on_step: Callable[[TrainingPoint], None] | None = None,
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
    ) -> list[TrainingPoint]:
        """All steps that are left; with a ``folder``, the state is written there every so often and at the end."""
        while not self.finished:
            point = self.advance()
            if folder is not None and (self.finished or self.step % checkpoint_every == 0):
                self.save(folder)
            if on_step is not None:
                on_step(point)
        return self.points

    def _batch(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Tokens and labels ``(B, T)``, and lengths ``(B)`` where rows are padded."""
        if isinstance(self.source, FileData):
            size, count = self.settings.batch_size, len(self.examples)
            places: list[int] = []
            for position in range(self.step * size, (self.step + 1) * size):
                epoch, place = divmod(position, count)
                if place == 0 or not places:  # an epoch's order follows from seed and number: nothing to remember
                    order = torch.randperm(count, generator=torch.Generator().manual_seed(self._epoch_seed(epoch)))
                places.append(int(order[place]))
            return self.examples.padded(places)
        tokens = self.source.sample(
            self.settings.batch_size, drawn_length(self.settings, self.length, self.generator), self.generator
        )
        return tokens, counted_labels(self.source.truth(tokens), self.settings), None

    def _epoch_seed(self, epoch: int) -> int:
        return (self.settings.seed * 1_000_003 + epoch) % (1 << 63)

    def _set_rates(self) -> None:
        factor = self.settings.rate_factor(self.step)
        for group, peak in zip(self.optimiser.param_groups, self._peaks, strict=True):
            group["lr"] = peak * factor
        if self.settings.annealing is not None:
            set_temperature(self.model, self.settings.annealing.at(self.step / max(1, self.settings.steps - 1)))

    def _check_loss(self, value: float) -> None:
        kept = f"; the last checkpoint is unharmed (step {self.step} was the last good one)" if self.step else ""
        if not math.isfinite(value):
            raise TrainingError(f"the loss is {value} at step {self.step + 1}; try a smaller learning_rate{kept}")
        if self.points and value > self.settings.explosion * max(1.0, self.points[0].loss):
            raise TrainingError(
                f"the loss is {value:.3g} at step {self.step + 1}, {self.settings.explosion:g} times what it was at "
                f"first; try a smaller learning_rate{kept}"
            )

    def _clip(self) -> None:
        if self.settings.clipping == "global":
            nn.utils.clip_grad_norm_(self.model.parameters(), self.settings.gradient_clip)
        elif self.settings.clipping == "per_tensor":
            for parameter in self.model.parameters():
                nn.utils.clip_grad_norm_(parameter, self.settings.gradient_clip)

    def save(self, folder: str | Path) -> Path:
        """Write the state: weights, moments, random numbers, history.  The old state stays until the new is whole."""
        return self._write(Path(folder), self._tensors())

    def _write(self, folder: Path, tensors: dict[str, Tensor]) -> Path:
        try:
            return _BUNDLE.write(
                folder,
                tensors,
                {
                    "settings": to_plain(self.settings),
                    "source": to_plain(self.source),
                    "model": to_plain(self.model.config),
                    "step": self.step,
                    "length": self.length,
                },
            )
        except OSError as error:
            raise TrainingError(
                f"the state of step {self.step} cannot be written to {folder}: {error.strerror or error}; "
                "what was there is whole"
            ) from error

    def _tensors(self) -> dict[str, Tensor]:
        tensors = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for place, state in self.optimiser.state_dict()["state"].items():
            tensors |= {f"optimiser.{place}.{key}": torch.as_tensor(value) for key, value in state.items()}
        tensors["random.data"] = self.generator.get_state()
        tensors["random.torch"] = torch.get_rng_state()
        if self.device.type == "cuda":
            tensors["random.cuda"] = torch.cuda.get_rng_state(self.device)
        tensors["points.loss"] = torch.tensor([point.loss for point in self.points], dtype=torch.float64)
        tensors["points.accuracy"] = torch.tensor([point.accuracy for point in self.points], dtype=torch.float64)
        # In one order everywhere: ranks that hold parts of a tensor bring them together at the same time.
        return {name: self._whole(tensors[name].detach()).cpu().contiguous().clone() for name in sorted(tensors)}

    def whole_model(self) -> SequenceModel[Any]:
        """The model, with all its weights in this process."""
        return self.model

    def _whole(self, value: Tensor) -> Tensor:
        """A tensor of the state, of which this process may hold only a part."""
        return value

    def _placed(self, value: Tensor, parameter: Tensor) -> Tensor:
        """A whole moment as the optimiser wants it beside its parameter."""
        return value

    @classmethod
    def resumed(cls, folder: str | Path, *, device: str | torch.device = "cpu", **options: Any) -> Self:
        """The run whose state is in ``folder``, ready for its next step.

        Args:
            options: What else the trainer takes, for one on several ranks.

        Raises:
            CheckpointError: If anything is missing, truncated, altered, or of another kind.
        """
        manifest, tensors = _BUNDLE.read(Path(folder))
        try:
            model = build(from_plain(manifest["model"]))
            assert isinstance(model, SequenceModel)
            weights = {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}
            model.load_state_dict(weights, assign=True)
            trainer = cls(model.to(device), from_plain(manifest["source"]), from_plain(manifest["settings"]), **options)
            trainer._restore(manifest, tensors)
        except DataError:
            raise
        except Exception as error:  # whatever an altered manifest breaks, it is the file that is wrong
            raise CheckpointError(f"{Path(folder) / _BUNDLE.manifest} does not describe a run: {error}") from error
        return trainer

    def _restore(self, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        moments: dict[int, dict[str, Tensor]] = {}
        for key, value in tensors.items():
            if key.startswith("optimiser."):
                _, place, name = key.split(".", 2)
                moments.setdefault(int(place), {})[name] = value
        parameters = [each for group in self.optimiser.param_groups for each in group["params"]]
        for number, moment in moments.items():
            beside = parameters[number]
            moment.update({key: self._placed(value, beside) for key, value in moment.items() if key != "step"})
        state = self.optimiser.state_dict()
        self.optimiser.load_state_dict({**state, "state": moments})
        self.generator.set_state(tensors["random.data"])
        torch.set_rng_state(tensors["random.torch"])
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        self.step, self.length = int(manifest["step"]), int(manifest["length"])
        losses, accuracies = (tensors[f"points.{name}"].tolist() for name in ("loss", "accuracy"))
        self.points = [
            TrainingPoint(step, loss, accuracy)
            for step, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True), 1)
        ]
        if len(self.points) != self.step:
            raise ValueError(f"the history has {len(self.points)} steps, the manifest says {self.step}")
        if self.finished:
            self.model.eval()


def labelled_loss(
    logits: Tensor, labels: Tensor, label_smoothing: float, unit: Tensor | None = None, *, count: int | None = None
) -> Tensor:
    """Cross-entropy of the classes, or squared error of the numbers, over the positions that have a label.

    Errors of numbers are divided by ``unit`` ``(T,)`` first.  With a ``count`` the sum is divided by that, and not by
    the number of these labels: the part of a batch that has so many.
    """
    if labels.is_floating_point():
        there = ~labels.isnan()
        errors = torch.where(there, logits[..., 0] - labels.nan_to_num().to(logits.dtype), 0.0)
        if unit is not None:
            errors = errors / unit
        return errors.square().sum() / (there.sum().clamp_min(1) if count is None else count)
    summed = nn.functional.cross_entropy(
        logits.flatten(0, 1),
        labels.flatten(),
        label_smoothing=label_smoothing,
        ignore_index=_IGNORED,
        reduction="mean" if count is None else "sum",
    )
    return summed if count is None else summed / count


def drawn_length(settings: TrainingSettings, length: int, generator: torch.Generator) -> int:
    """The length of the next batch, where the curriculum has reached ``length``."""
    if settings.shortest is None:
        return length
    return int(torch.randint(settings.shortest, length + 1, (), generator=generator))


def counted_labels(labels: Tensor, settings: TrainingSettings) -> Tensor:
    """Labels ``(B, T)`` with those that do not count taken out."""
    if settings.labels == "every" or labels.shape[1] == 0:
        return labels
    last = torch.full_like(labels, math.nan if labels.is_floating_point() else _IGNORED)
    last[:, -1] = labels[:, -1]
    return last


def set_temperature(model: nn.Module, temperature: float) -> None:
    """Set the temperature of every family that has one."""
    for module in model.modules():
        if isinstance(getattr(module, "temperature", None), float | int):
            module.temperature = temperature  # type: ignore[assignment]


def label_count(labels: Tensor) -> Tensor:
    """How many positions have a label."""
    return (~labels.isnan() if labels.is_floating_point() else labels != _IGNORED).sum()


def right_labels(logits: Tensor, labels: Tensor) -> Tensor:
    """How many of the labels the largest logit names; nothing to speak of where labels are numbers."""
    return ((logits.detach().argmax(-1) == labels) & (labels != _IGNORED)).sum()


def accuracy(right: Tensor, labels: Tensor) -> float:
    """The fraction of labels that is right; NaN where labels are numbers."""
    return math.nan if labels.is_floating_point() else (right / label_count(labels).clamp_min(1)).item()


def parameter_groups(named: Iterable[tuple[str, Tensor, bool]], settings: TrainingSettings) -> list[dict[str, Any]]:
    """Decayed weights, others, and the rational head's own group where it has its own learning rate.

    ``named``: name, tensor, and whether one model's part of it is a matrix.
    """
    decayed: list[Tensor] = []
    kept: list[Tensor] = []
    head: list[Tensor] = []
    for name, parameter, matrix in named:
        if not parameter.requires_grad:
            continue
        if "rational_head" in name:
            (kept if settings.head_learning_rate is None else head).append(parameter)
        else:
            (decayed if matrix else kept).append(parameter)
    groups: list[dict[str, Any]] = [
        {"params": decayed, "weight_decay": settings.weight_decay if settings.optimiser == "adamw" else 0.0},
        {"params": kept, "weight_decay": 0.0},
    ]
    if head:
        groups.append({"params": head, "weight_decay": 0.0, "lr": settings.head_learning_rate})
    return groups
