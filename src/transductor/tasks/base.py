"""The contract of a task: its tokens, its sampler, its truth, and the inputs that random ones hide."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import ClassVar, Literal, final

import torch
from torch import Tensor

from transductor.automata.library import machine
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import check_positive, check_token_ids
from transductor.tasks.sampling import check_probability, coins


@dataclass(frozen=True)
class Task(ABC):
    """Tokens in, a label at every position out.  Subclasses are final, frozen and name no network.

    A label depends on its own token and earlier ones only.  Where a position has none it is ``IGNORED``, which losses
    skip and evaluations must not count; every sampled sequence has at least one label.

    A subclass has ``title``, ``vocab_size`` and ``output_size`` (class attributes, or properties where they depend on
    fields), a sampler ``_sample``, the truth ``_labels``, and named rows of tokens ``_input_kinds``.  Where a finite
    machine gives the truth it also has ``_machine``.

    Attributes:
        output_kind: ``"class"``: labels are int64 in ``[0, output_size)`` or ``IGNORED``.  ``"real"``: labels are
            float64, one number per position.
        coin: What ``bias`` is the probability of, in words; ``None`` where the sampler takes no bias.
    """

    output_kind: ClassVar[Literal["class", "real"]] = "class"
    coin: ClassVar[str | None] = None

    @property
    @final
    def name(self) -> str:
        """The name of the task in records and reports: its title with the values of its fields."""
        return self.title.format(**vars(self))

    @property
    @abstractmethod
    def title(self) -> str:
        """The name with fields in braces, such as ``mod-{modulus} counting``."""

    @property
    @abstractmethod
    def vocab_size(self) -> int:
        """The number of tokens, which are in ``[0, vocab_size)``."""

    @property
    @abstractmethod
    def output_size(self) -> int:
        """The number of classes, which are in ``[0, output_size)``; one where labels are real."""

    @property
    def shortest(self) -> int:
        """The smallest length that has room for a label."""
        return 1

    @property
    def chance(self) -> float:
        """What a guess that ignores the input achieves.

        For classes this is the accuracy of guessing each with the same probability, whatever the sampler and the
        length; :meth:`best_constant` says what always guessing the same label achieves on given tokens.
        """
        return 1 / self.output_size

    def automaton(self) -> MooreMachine | None:
        """Return the finite machine that gives the truth, where one of reasonable size exists."""
        return _cached_machine(self)

    def unit(self, length: int) -> Tensor | None:
        """Return what errors of real labels are divided by, ``(T,)`` float64; ``None`` if it is one everywhere."""
        del length
        return None

    @final
    def sample(self, batch_size: int, length: int, generator: torch.Generator, *, bias: float | None = None) -> Tensor:
        """Draw random tokens ``(B, T)`` int64; equal generators give equal tokens.

        Args:
            batch_size: Number of sequences, at least one.
            length: Tokens per sequence, at least ``shortest``.
            generator: The only source of randomness.
            bias: Probability of what ``coin`` says; ``None`` for the task's own distribution.
        """
        check_positive("batch_size", batch_size)
        self._check_length(length)
        if bias is not None:
            if self.coin is None:
                raise ValueError(f"bias must be None in {self.name}, whose sampler takes none; got {bias!r}")
            check_probability("bias", bias)
        return self._sample(batch_size, length, generator, bias)

    def drawn(self, batch_size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return sampled tokens ``(B, T)`` and the labels that models are trained on, ``(B, T)``: the truth.

        Where the truth is only the likeliest answer, a task gives what really came instead: a model of the smallest
        loss on that gives every answer its probability.
        """
        tokens = self.sample(batch_size, length, generator)
        return tokens, self.truth(tokens)

    @final
    def truth(self, tokens: Tensor) -> Tensor:
        """Return the right label at every position of ``tokens`` ``(B, T)``, same shape; empty where T is zero."""
        self._check_tokens(tokens)
        if tokens.numel() == 0:
            return tokens.to(torch.float64 if self.output_kind == "real" else torch.int64)
        return self._labels(tokens.long())

    @final
    def adversarial(self, length: int) -> dict[str, Tensor]:
        """Return the input kinds: named inputs ``(1, T)`` on which a mistake shows that random inputs hide."""
        self._check_length(length)
        return {kind: torch.tensor([row], dtype=torch.long) for kind, row in self._input_kinds(length).items()}

    @final
    def best_constant(self, tokens: Tensor) -> float:
        """Return the best accuracy of a single label on ``tokens`` ``(B, T)``; its squared error if labels are real."""
        labels = self.truth(tokens)
        labels = labels[labels != IGNORED]
        if labels.numel() == 0:
            raise ValueError("tokens must have at least one position with a label")
        if self.output_kind == "real":
            return float(labels.var(correction=0))
        return float(labels.bincount().max()) / labels.numel()

    @abstractmethod
    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        """Draw tokens ``(B, T)``; the arguments have been checked."""

    @abstractmethod
    def _labels(self, tokens: Tensor) -> Tensor:
        """Return the labels of checked int64 tokens ``(B, T)`` with T at least one."""

    @abstractmethod
    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        """Return one row of tokens for each input kind."""

    def _machine(self) -> MooreMachine | None:
        """Build the machine that :meth:`automaton` returns; it is built once for equal tasks."""
        return None

    @final
    def _check_tokens(self, tokens: Tensor) -> None:
        check_token_ids("tokens", tokens, self.vocab_size)
        if tokens.ndim != 2:
            raise ValueError(f"tokens must have two axes, batch and time; got the shape {tuple(tokens.shape)}")

    def _check_length(self, length: int) -> None:
        check_positive("length", length)
        if length < self.shortest:
            raise ValueError(f"length must be at least {self.shortest} in {self.name}; got {length}")


@cache
def _cached_machine(task: Task) -> MooreMachine | None:
    return task._machine()


@dataclass(frozen=True)
class AutomatonTask(Task):
    """A task whose truth is read off its machine: it gives ``_machine`` in place of ``_labels``."""

    @abstractmethod
    def _machine(self) -> MooreMachine:
        """Build the finite machine that gives the truth."""

    @final
    def automaton(self) -> MooreMachine:
        """Return the finite machine that gives the truth."""
        truth = super().automaton()
        assert truth is not None
        return truth

    @final
    def _labels(self, tokens: Tensor) -> Tensor:
        return self.automaton().labels(tokens)


@dataclass(frozen=True)
class CoinTask(Task):
    """A task over zeros and ones, drawn as coins."""

    coin: ClassVar[str] = "a one"
    vocab_size: ClassVar[int] = 2

    @final
    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return coins(batch_size, length, generator, bias)


def named_machine(name: str) -> MooreMachine:
    """Return the machine of the library that is called ``name``, with the label one where it accepts."""
    dfa = machine(name).dfa
    assert dfa is not None
    return MooreMachine.from_dfa(dfa)
