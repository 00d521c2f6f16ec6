"""What each letter does to a head's state: nothing, a turn of some order, or forgetting; and what of it is read."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transductor.checks import check_positive
from transductor.heads import RationalHead
from transductor.model import RationalTransductor


@dataclass(frozen=True)
class LetterFact:
    """What one letter's matrix does.

    Attributes:
        letter: The token.
        moves: How far the matrix is from doing nothing, ``‖M − I‖ / √D`` in the Frobenius norm.
        keeps: The mean of the singular values: 1 where nothing is forgotten.
        order: The least power that does nothing, within the tolerance; None where there is none up to the longest.
        residue: How far that power, or the nearest one, is from doing nothing, in the units of ``moves``.
    """

    letter: int
    moves: float
    keeps: float
    order: int | None
    residue: float


@torch.no_grad()
def letter_facts(
    head: RationalHead, letters: Sequence[int] | None = None, *, longest_order: int = 24, tolerance: float = 0.1
) -> list[LetterFact]:
    """Return what each letter of a head that is driven by tokens does, those that move most first.

    A counter modulo n shows as letters of order n that keep everything; a letter that resets keeps little; one that the
    head does not look at moves nothing, and has order 1.

    Args:
        head: A head over tokens.
        letters: Which tokens; all without it.
        longest_order: Powers up to this one are compared with doing nothing.
        tolerance: How near counts as nothing.
    """
    check_positive("longest_order", longest_order)
    if head.transitions.vocab_size is None:
        raise ValueError("head must be driven by tokens: one that is driven by features has no letters")
    table = head.transitions.table().double().cpu()
    chosen = range(len(table)) if letters is None else letters
    facts = [_fact(int(letter), table[letter], longest_order, tolerance) for letter in chosen]
    return sorted(facts, key=lambda fact: -fact.moves)


def _fact(letter: int, matrix: Tensor, longest: int, tolerance: float) -> LetterFact:
    nothing = torch.eye(len(matrix), dtype=matrix.dtype)
    scale = math.sqrt(len(matrix))
    power, distances = nothing, []
    for _ in range(longest):
        power = matrix @ power
        distances.append(float((power - nothing).norm()) / scale)
    near = [place for place, distance in enumerate(distances) if distance <= tolerance]
    order = near[0] + 1 if near else None
    residue = distances[near[0]] if near else min(distances)
    keeps = float(torch.linalg.svdvals(matrix).mean())
    return LetterFact(letter, distances[0], keeps, order, residue)


@torch.no_grad()
def directions_read(model: RationalTransductor) -> float:
    """Return how many directions of the state the layers read, by the participation ratio of their projections.

    It lies between 1 and the state's dimension; 0 where no state enters.
    """
    projections = model.injection.projections
    if projections is None:
        return 0.0
    shares = torch.linalg.svdvals(projections.get_parameter("weight").double()).square()
    return float(shares.sum().square() / shares.square().sum()) if shares.sum() > 0 else 0.0


@torch.no_grad()
def readable_from(states: Tensor, facts: Tensor, *, ridge: float = 1e-3) -> Tensor:
    """Return how much of each fact a linear map reads from states, as R² on the half that it was not fitted to.

    Args:
        states: ``(N, D)``.
        facts: Numbers to be read, ``(N, F)``; R² is NaN where one of them does not vary.
        ridge: Relative to the mean square of the states.
    """
    if len(states) != len(facts) or len(states) < 4:
        raise ValueError(f"states and facts must have equally many rows, at least 4; got {len(states)}, {len(facts)}")
    inputs = torch.cat((states.double(), torch.ones(len(states), 1, dtype=torch.float64)), 1)
    targets, half = facts.double(), len(states) // 2
    fitted, judged = slice(0, half), slice(half, None)
    gram = inputs[fitted].T @ inputs[fitted]
    gram += ridge * gram.diagonal().mean() * torch.eye(len(gram), dtype=gram.dtype)
    weights = torch.linalg.solve(gram, inputs[fitted].T @ targets[fitted])
    errors = (inputs[judged] @ weights - targets[judged]).square().mean(0)
    variance = targets[judged].var(0, correction=0)
    return torch.where(variance > 0, 1 - errors / variance, torch.nan)
