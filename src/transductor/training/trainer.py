"""A training run that can be interrupted: every step follows from its state, and the state can be saved."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import torch
from torch import Tensor, nn

from transductor.configuration import from_plain, to_plain
from transductor.endings import EndedBySignal, postponed
from transductor.json_reading import brief
from transductor.model import CheckpointError, SequenceModel, build
from transductor.model.bundle import Bundle
from transductor.model.storage import rebuilt
from transductor.one_writer import FolderLostError, only_writer
from transductor.tasks import Task
from transductor.training.examples import FileData
from transductor.training.files import DataError
from transductor.training.settings import TrainingSettings
from transductor.training.steps import (
    build_optimiser,
    draw_batch,
    label_accuracy,
    labelled_loss,
    no_label,
    right_labels,
    set_schedule,
    working_precision,
)
from transductor.typed_values import check_kind

_BUNDLE: Final = Bundle(
    "transductor-training", 1, "training.json", "state", ("settings", "source", "model", "step", "length")
)


_STATES: Final = ("random.data", "random.torch", "random.cuda", "points.loss", "points.accuracy")


def _described_model(config: Any) -> SequenceModel[Any]:
    """Return a fresh model as a manifest describes it."""
    model = build(from_plain(config))
    if not isinstance(model, SequenceModel):
        raise TypeError(f"a run trains a model; got {type(model).__name__}")
    return model


def _never() -> None:
    """Answer that no signal has arrived."""


class TrainingError(RuntimeError):
    """Training cannot continue; the message says at which step and why."""


@dataclass(frozen=True)
class TrainingPoint:
    """The loss and accuracy on the batch of one step; where labels are numbers, the accuracy is NaN."""

    step: int
    loss: float
    accuracy: float


class Trainer:
    """Trains ``model`` in place on a label at every position.

    Equal seeds give equal numbers on a CPU, interrupted or not: :meth:`save` writes everything the next step depends
    on, and :meth:`resumed` continues from there bit for bit.

    Args:
        model: The model, converted to float64 if the settings say ``double``.
        source: A task, which gives tokens and labels of any length, or data in files, which are read here.
        settings: How to train.  Files are shuffled again every epoch; ``length`` and ``shortest`` are for tasks.  With
            a curriculum, sequences of a file that are longer than it has reached wait.
    """

    def __init__(self, model: SequenceModel[Any], source: Task | FileData, settings: TrainingSettings) -> None:
        self.model = model.double() if settings.double else model
        self.settings = settings
        self.source: Task | FileData = source
        if isinstance(source, FileData):
            self.source, self.examples = source.read()
            self._by_length = sorted(range(len(self.examples)), key=self.examples.lengths.__getitem__)
        self.step = 0
        self.tokens_read = 0  # by this object, without padding
        self.leads = True  # whether this process writes and reports; one of several ranks does
        self.alone = True  # whether this process can save without asking other ranks
        self.length = settings.first_length
        self.points: list[TrainingPoint] = []
        self.generator = torch.Generator().manual_seed(settings.seed)
        named = ((name, weight, weight.ndim >= 2) for name, weight in model.named_parameters())
        self.optimiser = build_optimiser(named, settings)

    @property
    def finished(self) -> bool:
        """Whether all steps are done."""
        return self.step >= self.settings.steps

    @property
    def device(self) -> torch.device:
        """The device that holds the model."""
        return next(self.model.parameters()).device

    def advance(self) -> TrainingPoint:
        """Do one step."""
        self.model.train()
        set_schedule(self.optimiser, self.model, self.settings, self.step)
        tokens, labels, lengths = (None if each is None else each.to(self.device) for each in self._batch())
        assert tokens is not None
        assert labels is not None
        loss, value, accuracy = self._measured(tokens, labels, lengths)
        self._check_loss(value)
        self.optimiser.zero_grad(set_to_none=True)
        loss.backward()
        self._clip()
        self.optimiser.step()
        self.step += 1
        self.tokens_read += tokens.numel() if lengths is None else int(lengths.sum())
        point = TrainingPoint(self.step, value, accuracy)
        self.points.append(point)
        self.length = self.settings.next_length(self.length, value, accuracy, self._longest)
        if self.finished:
            self.model.eval()
        return point

    @property
    def _longest(self) -> int:
        """The length at which a curriculum ends."""
        return max(self.examples.lengths) if isinstance(self.source, FileData) else self.settings.length

    def _measured(self, tokens: Tensor, labels: Tensor, lengths: Tensor | None) -> tuple[Tensor, float, float]:
        """Return the loss to differentiate, and the values of loss and accuracy on the complete batch."""
        with working_precision(self.device, self.settings):
            logits = self.model(tokens) if lengths is None else self.model(tokens, lengths=lengths)
        loss = labelled_loss(logits, labels, self.settings.label_smoothing, self._unit(labels))
        return loss, loss.item(), label_accuracy(right_labels(logits, labels), labels).item()

    def _unit(self, labels: Tensor) -> Tensor | None:
        """Return what errors of numbers are divided by at every position, ``(T)``."""
        unit = None if isinstance(self.source, FileData) else self.source.unit(labels.shape[1])
        return None if unit is None else unit.to(labels.device)

    def run(
        self,
        on_step: Callable[[TrainingPoint], None] | None = None,
        *,
        folder: str | Path | None = None,
        checkpoint_every: int = 200,
    ) -> list[TrainingPoint]:
        """Do all steps that are left; with a ``folder``, the state is saved there regularly and at the end.

        No other process may write to the folder meanwhile.  Where signals are answered (as all commands do), SIGTERM
        and SIGHUP let the step end, save the state and raise :class:`~transductor.endings.EndedBySignal`.
        """
        with ExitStack() as stack:
            ended: Callable[[], int | None] = _never
            if folder is not None and self.leads:
                stack.enter_context(only_writer(folder))
            if folder is not None and self.alone:
                ended = stack.enter_context(postponed())
            while not self.finished:
                point = self.advance()
                number = ended()
                if folder is not None and (self.finished or number or self.step % checkpoint_every == 0):
                    self.save(folder)
                if on_step is not None:
                    on_step(point)
                if number is not None:
                    assert folder is not None
                    raise EndedBySignal(number, Path(folder), self.step)
        return self.points

    def _batch(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return tokens and labels ``(B, T)``, and lengths ``(B)`` where rows are padded."""
        if not isinstance(self.source, FileData):
            return *draw_batch(self.source, self.settings, self.length, self.generator), None
        size, rows = self.settings.batch_size, list[int]()
        allowed = self._allowed_rows()
        count = len(allowed)
        for number in range(self.step * size, (self.step + 1) * size):
            epoch, place = divmod(number, count)
            if place == 0 or not rows:  # an epoch's order follows from seed and number, so it need not be saved
                seed = (self.settings.seed * 1_000_003 + epoch) % (1 << 63)
                order = torch.randperm(count, generator=torch.Generator().manual_seed(seed))
            rows.append(allowed[int(order[place])])
        tokens, labels, lengths = self.examples.padded(rows)
        if self.settings.labels == "last":
            earlier = torch.arange(labels.shape[1]) < lengths[:, None] - 1
            labels = labels.masked_fill(earlier, no_label(labels))
        return tokens, labels, lengths

    def _allowed_rows(self) -> Sequence[int]:
        """Return the sequences of the file that may be drawn: all, or those as short as the curriculum asks."""
        if self.settings.curriculum is None:
            return range(len(self.examples))
        lengths = self.examples.lengths
        reached = max(self.length, lengths[self._by_length[0]])  # there is always something to draw
        return self._by_length[: bisect_right(self._by_length, reached, key=lengths.__getitem__)]

    def _check_loss(self, value: float) -> None:
        kept = f"; the last checkpoint is intact (step {self.step} was the last good one)" if self.step else ""
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
        """Save weights, moments, random numbers and history; the old state stays until the new one is complete."""
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
            lost = isinstance(error, FolderLostError)
            left = "no state of this run is left there" if lost else "what was there is intact"
            raise TrainingError(
                f"the state of step {self.step} cannot be written to {folder}: {error.strerror or error}; {left}"
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
        # In one order everywhere: ranks that hold parts of a tensor gather them at the same time.
        return {name: self._gathered(tensors[name].detach()).cpu().contiguous().clone() for name in sorted(tensors)}

    def whole_model(self) -> SequenceModel[Any]:
        """Return the model with all its weights in this process."""
        return self.model

    def _gathered(self, value: Tensor) -> Tensor:
        """Return all of a tensor of the state, of which this process may hold only a part."""
        return value

    def _placed(self, value: Tensor, parameter: Tensor) -> Tensor:
        """Return all of a moment as the optimiser needs it beside its parameter."""
        return value

    @classmethod
    def resumed(cls, folder: str | Path, *, device: str | torch.device = "cpu", **options: Any) -> Self:
        """Return the run whose state is in ``folder``, ready for its next step.

        Args:
            options: Further arguments of a trainer on several ranks.

        Raises:
            CheckpointError: If anything is missing, truncated, altered, or of another kind.
        """
        manifest, tensors = _BUNDLE.read(Path(folder))
        file, state = Path(folder) / _BUNDLE.manifest, Path(folder) / manifest["weights"]
        weights = {key.removeprefix("model."): value for key, value in tensors.items() if key.startswith("model.")}
        model = rebuilt(lambda: _described_model(manifest["model"]), manifest["model"], weights, file, state, "run")
        try:
            source, settings = from_plain(manifest["source"]), from_plain(manifest["settings"])
            check_kind("source", source, Task | FileData)
            check_kind("settings", settings, TrainingSettings)
            if isinstance(source, FileData) and not source.sha256:  # by which the data it was begun with are known
                raise ValueError("source.sha256 must be the hash of the data")
            for name in ("step", "length"):
                check_kind(name, manifest[name], int)
            trainer = cls(model.to(device), source, settings, **options)
            trainer._restore(manifest, tensors)
        except DataError:  # the data have changed, not the state
            raise
        except Exception as error:  # whatever an altered manifest breaks, the file is what is wrong
            raise CheckpointError(f"{file} does not describe a run: {brief(error)}") from error
        return trainer

    def _restore(self, manifest: dict[str, Any], tensors: dict[str, Tensor]) -> None:
        moments: dict[int, dict[str, Tensor]] = {}
        parameters = [each for group in self.optimiser.param_groups for each in group["params"]]
        for key, value in tensors.items():
            if key.startswith("optimiser."):
                _, place, name = key.split(".", 2)
                if not place.isdecimal() or int(place) >= len(parameters):
                    raise ValueError(f"{key[:40]} is of none of the {len(parameters)} parameters")
                if value.shape != (torch.Size() if name == "step" else parameters[int(place)].shape):
                    raise ValueError(f"{key[:40]} has shape {tuple(value.shape)}, which is not its parameter's")
                moments.setdefault(int(place), {})[name] = value
            elif not key.startswith("model.") and key not in _STATES:
                raise ValueError(f"{key[:40]} is no part of a run")
        for number, moment in moments.items():
            beside = parameters[number]
            moment.update({key: self._placed(value, beside) for key, value in moment.items() if key != "step"})
        state = self.optimiser.state_dict()
        self.optimiser.load_state_dict({**state, "state": moments})
        self.generator.set_state(tensors["random.data"])
        torch.set_rng_state(tensors["random.torch"])
        if "random.cuda" in tensors and self.device.type == "cuda":
            torch.cuda.set_rng_state(tensors["random.cuda"], self.device)
        self.step, self.length = manifest["step"], manifest["length"]
        longest = max(self.settings.length, self._longest)
        if not 1 <= self.length <= longest:
            raise ValueError(f"length must lie between 1 and {longest}; got {self.length}")
        losses, accuracies = (tensors[f"points.{name}"].tolist() for name in ("loss", "accuracy"))
        self.points = [
            TrainingPoint(step, loss, accuracy)
            for step, (loss, accuracy) in enumerate(zip(losses, accuracies, strict=True), 1)
        ]
        if len(self.points) != self.step:
            raise ValueError(f"the history has {len(self.points)} steps, the manifest says {self.step}")
        if self.finished:
            self.model.eval()


def train(
    model: SequenceModel[Any],
    task: Task,
    settings: TrainingSettings,
    on_step: Callable[[TrainingPoint], None] | None = None,
) -> list[TrainingPoint]:
    """Train ``model`` in place and return one point per step.  To be able to resume, use :class:`Trainer`."""
    return Trainer(model, task, settings).run(on_step)
