"""Permutation transitions are exact and fixed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from transductor.checks import check_positive, working_dtype
from transductor.transitions.base import FamilySpec, Stepper, TransitionFamily
from transductor.transitions.laws import DoublyStochastic, Law, Orthogonal, Permutation


@final
class PermutationTransitions(TransitionFamily):
    """Fixed permutation matrices: exact at any length, nothing to train.

    Args:
        permutations: ``permutations[v][i]`` is where token v sends state i, shape ``(V, D)``.  Without it,
            random permutations of ``state_dim`` points for ``vocab_size`` tokens.
    """

    name = "permutation"
    images: Tensor

    def __init__(
        self,
        *,
        state_dim: int | None = None,
        vocab_size: int | None = None,
        permutations: Sequence[Sequence[int]] | None = None,
    ) -> None:
        if permutations is not None:
            rows = [[int(image) for image in row] for row in permutations]
            state_dim = len(rows[0]) if state_dim is None and rows else state_dim
            vocab_size = len(rows) if vocab_size is None else vocab_size
            if len(rows) != vocab_size or any(sorted(row) != list(range(state_dim or 0)) for row in rows):
                raise ValueError(
                    f"permutations must hold vocab_size = {vocab_size} rearrangements of 0 … state_dim − 1; got {rows}"
                )
        check_positive("state_dim", state_dim)
        check_positive("vocab_size", vocab_size)
        assert state_dim is not None
        assert vocab_size is not None
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=None)
        if permutations is None:
            images = torch.stack([torch.randperm(state_dim) for _ in range(vocab_size)])
        else:
            images = torch.tensor(rows)
        self.register_buffer("images", images)
        # Only carries the dtype that `.to(dtype)` asks for; integers would not follow it.
        self.register_buffer("unit", torch.ones(()), persistent=False)

    def build(self, features: Tensor | None) -> Tensor:
        """Return matrices with one-hot columns."""
        unit = self.get_buffer("unit")
        one_hot = torch.nn.functional.one_hot(self.images, self.state_dim)
        return one_hot.mT.to(working_dtype(unit.dtype)).contiguous()

    def stepper(self) -> Stepper:
        """Gather the coordinates; no arithmetic is done."""
        return Stepper(
            lambda state, tokens, came_from: state.gather(-1, came_from.index_select(0, tokens)),
            (self.images.argsort(-1),),
            moves=True,
        )

    def step_cost(self) -> int:
        """Count one for each of d moves."""
        return self.state_dim

    def start_matrix(self) -> None:
        """Promise nothing: the matrices are fixed."""

    def laws(self) -> tuple[Law, ...]:
        """Every matrix is a permutation."""
        return (Permutation(), DoublyStochastic(), Orthogonal())

    def spec(self) -> FamilySpec:
        """Return the permutations with the name."""
        return FamilySpec(self.name, {"permutations": tuple(tuple(row) for row in self.images.tolist())})
