"""The word problem of a group: which element the letters so far multiply to."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.decomposition.permutation_groups import Permutation, composed, element_order
from transductor.automata.moore import MooreMachine
from transductor.checks import check_positive
from transductor.configuration import configuration
from transductor.tasks.base import AutomatonTask
from transductor.tasks.groups import all_swaps, named_group, random_generators
from transductor.tasks.sampling import repeated


@final
@configuration
@dataclass(frozen=True)
class GroupWordProblem(AutomatonTask):
    """Tokens are elements of a group, ``letters``; the label is the number in ``elements`` of their product so far.

    Earlier letters act first.  The identity is element 0.

    Args:
        group: ``"Z5"``, ``"S5"``, ``"A5"``, ``"D6"``, or a product such as ``"Z2xS3"``; at most 720 elements.
        generators: The letters: ``"all"`` elements; the ``"named"`` generators customary for the group; ``"swaps"``,
            all transpositions of a symmetric group; or a number of random elements that generate the group.
        seed: Seed of random letters; without effect on others.
    """

    group: str = "S5"
    generators: int | str = "all"
    seed: int = 0

    def __post_init__(self) -> None:
        named_group(self.group)
        if isinstance(self.generators, str) and self.generators not in ("all", "named", "swaps"):
            raise ValueError(f"generators must be 'all', 'named', 'swaps' or a number; got {self.generators!r}")
        if not isinstance(self.generators, str):
            check_positive("generators", self.generators)
        if not isinstance(self.seed, int) or isinstance(self.seed, bool):
            raise ValueError(f"seed must be an integer; got {self.seed!r}")
        _ = self.letters  # raises where these letters cannot be

    @property
    def title(self) -> str:
        """``S5 word problem``, with the group's own name, and which letters."""
        letters = self.generators
        if not isinstance(letters, str):
            letters = f"{letters} random, seed {self.seed}"
        return f"{self.group} word problem ({letters})"

    @property
    def elements(self) -> tuple[Permutation, ...]:
        """The elements in the order of labels, as permutations: ``p[point]`` is where the point goes."""
        return named_group(self.group).elements

    @property
    def letters(self) -> tuple[Permutation, ...]:
        """The elements that tokens stand for, in the order of tokens."""
        if self.generators == "all":
            return self.elements
        if self.generators == "named":
            return named_group(self.group).generators
        if isinstance(self.generators, str):
            return all_swaps(self.group)
        return random_generators(self.group, self.generators, self.seed)

    @property
    def vocab_size(self) -> int:
        """The number of letters."""
        return len(self.letters)

    @property
    def output_size(self) -> int:
        """The number of elements."""
        return len(self.elements)

    def _machine(self) -> MooreMachine:
        numbers = {element: number for number, element in enumerate(self.elements)}
        table = [[numbers[composed(element, letter)] for letter in self.letters] for element in self.elements]
        return MooreMachine(np.array(table), np.arange(len(self.elements)))

    def _sample(self, batch_size: int, length: int, generator: torch.Generator, bias: float | None) -> Tensor:
        return torch.randint(0, self.vocab_size, (batch_size, length), generator=generator)

    def _input_kinds(self, length: int) -> dict[str, Sequence[int]]:
        letters = self.letters
        longest = max(range(len(letters)), key=lambda letter: element_order(letters[letter]))
        return {
            "the letter of largest order": [longest] * length,
            "the first letter": [0] * length,
            "first and last letter by turns": repeated((0, len(letters) - 1), length),
            "every letter in turn": repeated(range(len(letters)), length),
        }
