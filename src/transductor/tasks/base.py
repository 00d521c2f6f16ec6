"""What a task owns: its alphabet, its sampler, its truth, and the inputs an enemy would choose."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import check_positive, check_token_ids
from transductor.tasks.sampling import check_probability, coins


@dataclass(frozen=True)
class Task(ABC):
    """Tokens in, a label at every position out.  Subclasses are final, frozen and name no network.

    A label depends on its own token and earlier ones only.  Where a position has none it is ``IGNORED``, which losses
    skip and evaluations must not count; every sampled sequence has at least one label.

    Attributes:
        output_kind: ``"class"``: labels are int64 in ``[0, output_size)`` or ``IGNORED``.  ``"real"``: labels are
            float64, one number per position.
        coin: What ``bias`` is the probability of, as words; ``None`` where letters are nothing like coins.
    """

    output_kind: ClassVar[Literal["class", "real"]] = "class"
    coin: ClassVar[str | None] = None

    @property
    @abstractmethod
    def name(self) -> str:
        """The name of the task everywhere: command, file, figure."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """Tokens are in ``[0, vocab_size)``."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """Labels are in ``[0, output_size)``; one where they are real."""

    @property
    def shortest(self) -> int:
        """The least length that has room for a label."""
        return 1

    @property
    def chance(self) -> float:
        """What a guess that never looks achieves.

        Of classes, the accuracy of guessing each with the same probability, whatever the sampler and the length;
        :meth:`best_constant` says what always guessing the same label gets on given tokens.
        """
        return 1 / self.output_size

    @abstractmethod
    def automaton(self) -> MooreMachine | None:
        """The finite machine that gives the truth, where one of reasonable size exists."""

    def unit(self, length: int) -> Tensor | None:
        """What errors of real labels are divided by, ``(T,)`` float64; ``None`` where that is one everywhere."""
        del length
        return None

    @final
    def sample(self, batch_size: int, length: int, generator: torch.Generator, *, bias: float | None = None) -> Tensor:
        """Random tokens ``(B, T)`` int64; equal generators give equal tokens.

        Args:
            batch_size: Sequences, at least one.
            length: Tokens per sequence, at least ``shortest``.
            generator: The only source of chance.
            bias: Probability of what ``coin`` says; ``None`` for the task's own.
        """
        check_positive("batch_size", batch_size)
        self._check_length(length)
        if bias is not None:
            if self.coin is None:
                raise ValueError(f"bias must be None in {self.name}, whose letters are not coins; got {bias!r}")
            check_probability("bias", bias)
        return self._drawn(batch_size, length, generator, bias)

    @final
    def truth(self, tokens: Tensor) -> Tensor:
        """The right label at every position of ``tokens`` ``(B, T)``, same shape; empty where T is zero."""
        check_token_ids("tokens", tokens, self.vocab_size)
        if tokens.ndim != 2:
            raise ValueError(f"tokens must have two axes, batch and time; got the shape {tuple(tokens.shape)}")
        if tokens.numel() == 0:
            return tokens.to(torch.float64 if self.output_kind == "real" else torch.int64)
        return self._labels(tokens.long())

    @final
    def adversarial(self, length: int) -> dict[str, Tensor]:
        """Named inputs ``(1, T)`` that random ones hide."""
        self._check_length(length)
        return {family: torch.tensor([row], dtype=torch.long) for family, row in self._families(length).items()}

    @final
    def best_constant(self, tokens: Tensor) -> float:
        """Accuracy of the best single label on ``tokens`` ``(B, T)``; of real labels, its mean squared error."""
        labels = self.truth(tokens)
        labels = labels[labels != IGNORED]
        if labels.numel() == 0:
            raise ValueError("tokens must have at least one position with a label")
        if self.output_kind == "real":
            return float(labels.var(correction=0))
        return float(labels.bincount().max()) / labels.numel()

    @abstractmethod
    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        """Tokens of a checked request."""

    @abstractmethod
    def _labels(self, tokens: Tensor) -> Tensor:
        """Labels of checked int64 tokens ``(B, T)`` with T at least one."""

    @abstractmethod
    def _families(self, length: int) -> dict[str, Sequence[int]]:
        """One row of tokens per adversarial family."""

    def _check_length(self, length: int) -> None:
        check_positive("length", length)
        if length < self.shortest:
            raise ValueError(f"length must be at least {self.shortest} in {self.name}; got {length}")


@dataclass(frozen=True)
class AutomatonTask(Task):
    """A task whose truth is read off its machine."""

    @abstractmethod
    def automaton(self) -> MooreMachine:
        """The finite machine that gives the truth."""

    @final
    def _labels(self, tokens: Tensor) -> Tensor:
        return self.automaton().labels(tokens)


class CoinTask(Task):
    """A task over zeros and ones, drawn as coins."""

    coin: ClassVar[str] = "a one"

    @property
    @final
    def vocab_size(self) -> int:
        """Zero and one."""
        return 2

    @final
    def _drawn(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return coins(batch_size, length, generator, bias)
