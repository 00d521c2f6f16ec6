"""Partly observed automata: letters are sometimes hidden, states sometimes read through noise, sometimes revealed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar, final

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.hidden_process import HiddenProcess
from transductor.tasks.sampling import check_probability


@final
@configuration
@dataclass(frozen=True)
class PartlyObserved(HiddenProcess):
    """An automaton of ``states`` states moves by letters that permute them; the label is the likeliest state.

    At every step a letter acts, each as likely as the others, and with probability ``slip`` the state goes anywhere
    instead.  A token is what is seen: the letter, or that one was hidden; and nothing else, a noisy reading of the
    state, or the state itself.  It starts in state 0.

    Token ``(1 + 2·states)·letter + seen``: letter ``letters`` is a hidden one; ``seen`` is 0 for nothing, ``1 + s`` for
    a reading s, ``1 + states + s`` for the state s.

    Args:
        states: Number of states K, at least 2.
        letters: Number of letters; the first is a cycle, the others are permutations drawn with ``seed``.
        slip: Probability that the state goes anywhere.
        hidden: Probability that the letter is not shown.
        read: Probability of a reading.
        noise: Probability that a reading is that of any state.
        reveal: Probability that the state is shown.
        seed: Of the permutations.
    """

    states: int = 5
    letters: int = 2
    slip: float = 0.005
    hidden: float = 0.05
    read: float = 0.1
    noise: float = 0.3
    reveal: float = 0.01
    seed: int = 0
    title: ClassVar[str] = (
        "partly observed automaton of {states} states, {letters} letters, slip {slip:g}, hidden {hidden:g}, "
        "read {read:g}, noise {noise:g}, revealed {reveal:g}, seed {seed}"
    )

    def __post_init__(self) -> None:
        check_positive("letters", self.letters)
        if not isinstance(self.states, int) or self.states < 2:
            raise ValueError(f"states must be an integer of at least 2; got {self.states!r}")
        for name in ("slip", "hidden", "read", "noise", "reveal"):
            check_probability(name, getattr(self, name))
        if self.read + self.reveal > 1:
            raise ValueError(f"read and reveal must sum to at most 1; got {self.read} and {self.reveal}")
        # Otherwise some words would be impossible, and have no answer.
        if not (self.slip > 0 and self.noise > 0 and 0 < self.hidden < 1 and self.read > 0 and self.reveal > 0):
            raise ValueError("slip, hidden, read, noise and reveal must be positive: every word must be possible")
        if self.read + self.reveal == 1:
            raise ValueError("read and reveal must leave room for steps that show nothing")

    @property
    def vocab_size(self) -> int:
        """Every letter, or a hidden one, with everything that may be seen."""
        return (self.letters + 1) * (1 + 2 * self.states)

    @property
    def output_size(self) -> int:
        """The number of states."""
        return self.states

    def permutations(self) -> Tensor:
        """Return where each letter sends each state, ``(letters, K)``."""
        generator = torch.Generator().manual_seed(self.seed)
        cycle = torch.arange(self.states).roll(-1)
        drawn = [torch.randperm(self.states, generator=generator) for _ in range(self.letters - 1)]
        return torch.stack([cycle, *drawn])

    def _process(self) -> tuple[Tensor, Tensor]:
        count, images = self.states, self.permutations()
        eye = torch.eye(count, dtype=torch.float64)
        moves = (1 - self.slip) * eye[images].mT + self.slip / count  # (letters, to, from)
        shown = torch.cat(((1 - self.hidden) * moves, self.hidden * moves.sum(0, keepdim=True))) / self.letters
        readings = self.read * ((1 - self.noise) * eye + self.noise / count)  # (reading, state)
        nothing = torch.full((1, count), 1 - self.read - self.reveal, dtype=torch.float64)
        seen = torch.cat((nothing, readings, self.reveal * eye))  # (1 + 2K, state)
        matrices = seen[None, :, :, None] * shown[:, None]
        start = eye[0]
        return start, matrices.flatten(0, 1)

    def drawn(self, batch_size: int, length: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
        """Return tokens ``(B, T)`` and the hidden states after them ``(B, T)``."""
        shape, count = (batch_size, length), self.states

        def happens(probability: float) -> Tensor:
            return torch.rand(shape, generator=generator) < probability

        def anything(number: int) -> Tensor:
            return torch.randint(0, number, shape, generator=generator)

        letters, slips, places = anything(self.letters), happens(self.slip), anything(count)
        images, state = self.permutations(), torch.zeros(batch_size, dtype=torch.long)
        states = torch.empty(shape, dtype=torch.long)
        for t in range(length):
            state = torch.where(slips[:, t], places[:, t], images[letters[:, t], state])
            states[:, t] = state
        readings = torch.where(happens(self.noise), anything(count), states)
        luck = torch.rand(shape, generator=generator)
        seen = torch.where(luck < self.read, 1 + readings, 0)
        seen = torch.where(luck >= 1 - self.reveal, 1 + count + states, seen)
        letters = torch.where(happens(self.hidden), self.letters, letters)
        return letters * (1 + 2 * count) + seen, states

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        width, unknown = 1 + 2 * self.states, self.letters * (1 + 2 * self.states)
        readings = [1 + place % 2 for place in range(length)]
        return {
            "never a reading": [0] * length,
            "one hidden letter, then none": [unknown, *[0] * (length - 1)],
            "all letters hidden, states read": [unknown + 1 + (place % self.states) for place in range(length)],
            "readings that contradict one another": readings,
            "one state revealed, then nothing": [1 + self.states + 1, *[0] * (length - 1)],
            "last letters alone": [width * (place % self.letters) for place in range(length)],
        }
