"""Hard attention over exact states: every position looks at the one position of largest score ``h_tᵀ Ω h_s``.

States are those of a head over the integers, so scores are integers and no rounding decides between two of them.  One
such look computes what no head alone can: :func:`dyck_matcher` finds the opening bracket of every closing one at any
depth, :func:`positive_part` is ``max(0, #a − #b)``, whose Hankel matrix has no finite rank.  In floating point a score
is exact while every number on the way is at most ``2^p``; :meth:`HardAttention.exact_horizon` says how long that is.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol, Word
from transductor.checks import one_of
from transductor.recurrence import scan

# Integers up to 2^p have no rounding in these dtypes.
MANTISSAS: Final = {torch.float64: 53, torch.float32: 24, torch.float16: 11, torch.bfloat16: 8}
_QUERIES: Final = 1 << 22  # scores that are held at a time


@dataclass(frozen=True, eq=False)
class HardAttention:
    """One hard look over the states of an integer automaton; position 0 stands before the first letter.

    Attributes:
        automaton: Its states, over the integers; its final weights read the value of the position looked at.
        scores: ``(D, D)`` integers Ω: position t looks at ``argmax_s h_tᵀ Ω h_s`` over ``s ≤ t``, the last of equals.
        keys: Letters whose positions can be looked at; None stands for position 0.
    """

    automaton: WeightedAutomaton
    scores: Array
    keys: frozenset[Symbol | None]

    def __post_init__(self) -> None:
        parts = self.automaton.initial, self.automaton.matrices, np.asarray(self.scores)
        for name, part in zip(("initial", "matrices", "scores"), parts, strict=True):
            if any(Fraction(value).denominator != 1 for value in part.reshape(-1)):
                raise ValueError(f"{name} must be integers: states that are rounded have scores that are rounded")
        dim = self.automaton.dim
        if parts[2].shape != (dim, dim):
            raise ValueError(f"scores must have shape {(dim, dim)}, states times states; got {parts[2].shape}")
        unknown = [key for key in self.keys if key is not None and key not in self.automaton.alphabet]
        if unknown or not self.keys:
            raise ValueError(f"keys must be letters of the automaton, or None for position 0; got {list(self.keys)!r}")
        object.__setattr__(self, "scores", _integers(parts[2]))

    def looks(self, word: Word) -> list[int | None]:
        """Return where each position 0 … n looks, over the integers; None where there is nothing to look at."""
        rows = self.score_rows(word)
        return [max((score, place) for place, score in row.items())[1] if row else None for row in rows]

    def score_rows(self, word: Word) -> list[dict[int, int]]:
        """Return for each position the score of every position that it can look at, over the integers."""
        marks: list[Symbol | None] = [None, *word]
        visible = [place for place, mark in enumerate(marks) if mark in self.keys]
        states = self._states(word)
        rows = []
        for time, state in enumerate(states):
            seen = [place for place in visible if place <= time]
            rows.append(dict(zip(seen, states[seen] @ (state @ self.scores), strict=True)) if seen else {})
        return rows

    def values(self, word: Word) -> list[Fraction | None]:
        """Return the value of the position that each position looks at: the automaton's weight of that prefix."""
        weights = self._states(word) @ self.automaton.final
        return [None if place is None else Fraction(weights[place]) for place in self.looks(word)]

    def _states(self, word: Word) -> Array:
        matrices, states = _integers(self.automaton.matrices), [_integers(self.automaton.initial)]
        for letter in self.automaton.indices(word):
            states.append(matrices[letter] @ states[-1])
        return np.stack(states)

    def compiled(self, dtype: torch.dtype = torch.float32) -> HardAttentionModel:
        """Return the same in floating point, as a module over tokens."""
        return HardAttentionModel(self, dtype)

    def largest_term(self, length: int) -> int:
        """Return a bound on every number that appears on the way to a score of a word of this length.

        It holds for any order of the products and sums: it is computed from absolute values.
        """
        matrices, scores = np.abs(_integers(self.automaton.matrices)), np.abs(self.scores)
        # With the identity below it, so that the powers grow; a parallel scan multiplies the matrices first.
        step = np.maximum(matrices.max(0, initial=0), np.eye(self.automaton.dim, dtype=object))
        power = _power(step, length)
        state = power @ np.abs(_integers(self.automaton.initial))
        return int(max(state @ scores @ state, (state @ scores).max(initial=0), power.max(initial=0)))

    def exact_horizon(self, dtype: torch.dtype) -> int:
        """Return the length up to which no number is rounded in a dtype, so that every look is right on every word."""
        one_of("dtype", dtype, MANTISSAS)
        limit = 1 << MANTISSAS[dtype]
        if self.largest_term(0) > limit:
            return -1
        high = next(1 << power for power in itertools.count() if self.largest_term(1 << power) > limit or power > 60)
        low = 0
        while high - low > 1:
            middle = (low + high) // 2
            low, high = (middle, high) if self.largest_term(middle) <= limit else (low, middle)
        return low


class HardAttentionModel(nn.Module):
    """A :class:`HardAttention` in floating point: a scan, a bilinear score, an argmax.

    Tokens are the places of letters in the automaton's alphabet.  Numbers are exact up to the length that
    :meth:`HardAttention.exact_horizon` gives; beyond it they round, and sooner or later a look goes elsewhere.
    """

    table: Tensor
    initial: Tensor
    scores: Tensor
    final: Tensor
    visible: Tensor

    def __init__(self, attention: HardAttention, dtype: torch.dtype) -> None:
        super().__init__()
        one_of("dtype", dtype, MANTISSAS)
        machine = attention.automaton
        parts = {"table": machine.matrices, "initial": machine.initial, "scores": attention.scores}
        for name, part in (*parts.items(), ("final", machine.final)):
            self.register_buffer(name, torch.from_numpy(np.asarray(part, dtype=np.float64)).to(dtype))
        keys = [mark in attention.keys for mark in (*machine.alphabet, None)]
        self.register_buffer("visible", torch.tensor(keys))

    def states(self, tokens: Tensor) -> Tensor:
        """Return the states ``(B, T + 1, D)``, position 0 first."""
        start = self.initial.expand(len(tokens), 1, -1)
        return torch.cat((start, scan(self.table, tokens, initial_state=self.initial).to(start.dtype)), 1)

    def forward(self, tokens: Tensor, queries: Tensor | None = None) -> Tensor:
        """Return where positions of ``tokens (B, T)`` look, ``(B, T + 1)``; −1 where there is nothing to look at.

        Args:
            tokens: Letters by number.
            queries: Positions ``(Q)`` that are asked, all of them when left out.
        """
        states = self.states(tokens)
        positions = torch.arange(states.shape[1], device=tokens.device)
        queries = positions if queries is None else queries
        marks = torch.cat((tokens.new_full((len(tokens), 1), len(self.visible) - 1), tokens), 1)
        allowed = self.visible[marks]
        looks = []
        for asked in queries.split(max(1, _QUERIES // max(1, states.shape[0] * states.shape[1]))):
            scores = (states[:, asked] @ self.scores) @ states.mT
            seen = allowed[:, None, :] & (positions <= asked[:, None])
            scores = scores.masked_fill(~seen, -torch.inf)
            # The last of equal scores, as over the integers.
            latest = scores.shape[-1] - 1 - scores.flip(-1).argmax(-1)
            looks.append(latest.masked_fill(~seen.any(-1), -1))
        return torch.cat(looks, 1)

    def values(self, tokens: Tensor) -> Tensor:
        """Return the value of the position that each position looks at, ``(B, T + 1)``; NaN where there is none."""
        looks = self(tokens)
        values = (self.states(tokens) @ self.final).gather(1, looks.clamp_min(0))
        return values.masked_fill(looks < 0, torch.nan)


def positive_part() -> HardAttention:
    """Return ``max(0, #a − #b)``: states (1, D, t), score ``(2 D_t − 1) s``, which is never a tie.

    Where D_t > 0 the largest s wins, position t itself with the value D_t; elsewhere position 0 with the value 0.
    """
    machine = WeightedAutomaton(
        [1, 0, 0], {"a": [[1, 0, 0], [1, 1, 0], [1, 0, 1]], "b": [[1, 0, 0], [-1, 1, 0], [1, 0, 1]]}, [0, 1, 0]
    )
    scores = np.zeros((3, 3), dtype=object)
    scores[1, 2], scores[0, 2] = 2, -1
    return HardAttention(machine, scores, frozenset(("a", "b", None)))


def dyck_matcher(kinds: int = 2) -> HardAttention:
    """Return the look of every closing bracket at the opening one that it closes, at any depth.

    States (1, D, t, D², tD) with D the depth, and the score ``−(t + 1)(D_s − D_t − 1)² + s`` over the openings, up to a
    term that is the same for all s: an opening at another depth loses t + 1, more than any s gains.  Letters are
    ``"(0"``, ``")0"``, ``"(1"``, …; the value of a look is its position.
    """
    if not isinstance(kinds, int) or isinstance(kinds, bool) or kinds < 1:
        raise ValueError(f"kinds must be a positive integer; got {kinds!r}")
    matrices: dict[Symbol, Any] = {}
    for kind in range(kinds):
        for bracket, up in (("(", 1), (")", -1)):
            matrices[f"{bracket}{kind}"] = [
                [1, 0, 0, 0, 0],
                [up, 1, 0, 0, 0],
                [1, 0, 1, 0, 0],
                [1, 2 * up, 0, 1, 0],
                [up, 1, up, 0, 1],
            ]
    machine = WeightedAutomaton([1, 0, 0, 0, 0], matrices, [0, 0, 1, 0, 0])
    one, depth, time, square, both = range(5)
    scores = np.zeros((5, 5), dtype=object)
    scores[time, square] = scores[one, square] = -1  # −(t + 1) D_s²
    scores[[both, time, depth, one], depth] = 2  # 2 (t + 1)(D_t + 1) D_s
    scores[one, time] = 1  # s
    return HardAttention(machine, scores, frozenset(f"({kind}" for kind in range(kinds)))


def is_dyck(looks: Tensor, tokens: Tensor) -> Tensor:
    """Return which words ``tokens (B, T)`` are balanced, ``(B)``, from the looks of a :func:`dyck_matcher` alone.

    Each closing bracket must look at an opening one of its kind, and the depth must stay above −1 and end at 0.
    """
    kinds, closing = tokens // 2, tokens % 2 == 1
    steps = 1 - 2 * closing.long()
    depth = torch.cat((steps.new_zeros(len(steps), 1), steps.cumsum(1)), 1)
    places = looks[:, 1:] - 1
    opened = kinds.gather(1, places.clamp_min(0)) if tokens.shape[1] else kinds
    matched = ~closing | ((places >= 0) & (opened == kinds))
    return matched.all(1) & (depth >= 0).all(1) & (depth[:, -1] == 0)


def _integers(values: Array) -> Array:
    """Return the same numbers as Python's integers."""
    out = np.empty(values.shape, dtype=object)
    out.reshape(-1)[:] = [int(value) for value in values.reshape(-1)]
    return out


def _power(matrix: Array, exponent: int) -> Array:
    result, square = np.eye(len(matrix), dtype=int).astype(object), matrix
    while exponent:
        if exponent & 1:
            result = result @ square
        square, exponent = square @ square, exponent >> 1
    return np.asarray(result)
