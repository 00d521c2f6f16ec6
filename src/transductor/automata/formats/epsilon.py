"""Removal of ε arcs: linear equations are solved for what they add up to.

With columns as states, ``E[to, from]`` the ε weights and ``E* = 1 + E + E² + …``, the automaton without ε arcs has
``E* M`` for every matrix and ``E* initial``; both solve ``X = E X + B``, one state eliminated after the other.
"""

from __future__ import annotations

import math
from typing import Any

import networkx
import numpy as np

from transductor.automata.formats.limits import Budget
from transductor.automata.weights import Array, Weights


class EpsilonCycleError(ValueError):
    """The ε cycles through ``state`` have no sum."""

    def __init__(self, state: int, cycle: Any) -> None:
        super().__init__(f"ε cycles of weight {cycle} through state {state} do not converge")
        self.state = state


def without_epsilon(
    weights: Weights, epsilon: dict[tuple[int, int], Any], initial: Array, matrices: Array, budget: Budget
) -> tuple[Array, Array]:
    """Return ``initial`` and ``matrices`` with the ε arcs ``{(to, from): weight}`` summed into them.

    The sum over paths must converge whatever their order, so for numbers of both signs the absolute values must
    converge.  EpsilonCycleError names a state where they do not.
    """
    arcs = networkx.DiGraph((source, to) for to, source in epsilon)
    # Where ε arcs form no cycle, each state comes after those it is reached from, and elimination is cheap.
    touched = list(networkx.dfs_postorder_nodes(arcs))[::-1]
    place = {state: number for number, state in enumerate(touched)}
    count, letters, dim = len(touched), len(matrices), len(initial)
    rows = weights.zeros(count, count + 1 + letters * dim)  # E, initial, matrices side by side
    for (to, source), weight in epsilon.items():
        rows[place[to], place[source]] = weight
    rows[:, count] = initial[touched]
    rows[:, count + 1 :] = matrices[:, touched, :].transpose(1, 0, 2).reshape(count, letters * dim)
    sizes = np.abs(rows[:, :count]) if weights.field else None
    with np.errstate(over="ignore", invalid="ignore"):
        for pivot in range(count):
            _eliminate(weights, rows, sizes, pivot, touched[pivot], budget)
    new_initial, new_matrices = initial.copy(), matrices.copy()
    new_initial[touched] = rows[:, count]
    new_matrices[:, touched, :] = rows[:, count + 1 :].reshape(count, letters, dim).transpose(1, 0, 2)
    return new_initial, new_matrices


def _eliminate(weights: Weights, rows: Array, sizes: Array | None, pivot: int, state: int, budget: Budget) -> None:
    """Substitute ``X_pivot`` in every equation, and likewise in ``sizes``, the absolute values, to see convergence."""
    cycle = rows[pivot, pivot]
    if not weights.is_zero(np.asarray(cycle)):
        size = cycle if sizes is None else sizes[pivot, pivot]
        factor = _star(weights, state, cycle, size)
        rows[pivot, pivot] = weights.zero
        rows[pivot] = weights.times(factor, rows[pivot])
    if sizes is not None and sizes[pivot, pivot]:
        star = _star(weights, state, sizes[pivot, pivot], sizes[pivot, pivot])
        sizes[pivot, pivot] = weights.zero
        sizes[pivot] = star * sizes[pivot]
    used = np.flatnonzero(~weights.is_zero(rows[pivot]))
    arrivals = ~weights.is_zero(rows[:, pivot]) if sizes is None else ~weights.is_zero(sizes[:, pivot])
    for other in np.flatnonzero(arrivals).tolist():
        weight = rows[other, pivot]
        rows[other, pivot] = weights.zero
        updated = weights.plus(rows[other, used], weights.times(weight, rows[pivot, used]))
        rows[other, used] = updated
        if sizes is not None:
            size = sizes[other, pivot]
            sizes[other, pivot] = weights.zero
            sizes[other] = sizes[other] + size * sizes[pivot]
        if weights.name == "rational":
            budget.spend_on(updated.tolist())
            budget.spend_on(sizes[other].tolist() if sizes is not None else [])
        else:
            budget.spend(10_000 + 10 * len(used))


def _star(weights: Weights, state: int, cycle: Any, size: Any) -> Any:
    """Return ``1 + cycle + cycle² + …``, or raise the error that names the state."""
    if weights.name == "boolean":
        return True
    if weights.field and size < 1:
        return 1 / (1 - cycle)
    if weights.name == "log" and cycle < 0:
        return -math.log(-math.expm1(cycle))
    if (weights.name == "min_plus" and cycle >= 0) or (weights.name == "max_plus" and cycle <= 0):
        return 0.0
    raise EpsilonCycleError(state, size)
