"""Expectation maximisation for probabilistic automata, on the prefix tree of a sample.

Strings that begin alike share the work on their beginning, forwards and backwards: the backward vectors of all strings
through a node add up, each divided by the probability of its string, and the sum obeys the same linear recursion.
Vectors are rescaled at every node, so long strings do not underflow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol, Word, numbered, spelled

_TINY = 1e-300
_LARGEST_RATIO = 1e6


@dataclass(frozen=True, eq=False)
class PrefixTree:
    """The distinct prefixes of a sample, ordered by length, then letter; node 0 is the empty one.

    Attributes:
        alphabet: The letters.
        parents: ``(N)``, the prefix without its last letter.
        letters: ``(N)``, the number of the last letter; −1 for node 0.
        ends: ``(N)``, how many strings end there.
        passes: ``(N)``, how many strings begin so.
        runs: Nodes ``begin … end − 1`` of one length and one letter, shortest first.
        by_letter: For each letter, its nodes.
    """

    alphabet: tuple[Symbol, ...]
    parents: Array
    letters: Array
    ends: Array
    passes: Array
    runs: tuple[tuple[int, int, int], ...]
    by_letter: tuple[Array, ...]

    @classmethod
    def of(cls, strings: Sequence[Word], alphabet: Sequence[Symbol]) -> PrefixTree:
        """Return the prefix tree of strings over the alphabet."""
        numbers, count = numbered(alphabet), len(alphabet)
        read = [np.array(spelled(string, numbers), dtype=np.int64) for string in strings]
        nodes = np.zeros(len(read), dtype=np.int64)
        lengths = np.array([len(word) for word in read], dtype=np.int64)
        parents, letters, ends = [np.array([-1])], [np.array([-1])], np.bincount(nodes[lengths == 0], minlength=1)
        total, length = 1, 0
        counts = [ends]
        alive = np.flatnonzero(lengths > 0)
        while len(alive):
            following = np.array([read[place][length] for place in alive.tolist()])
            length += 1
            # Letter first: nodes of one letter stand side by side, so that a matrix moves them together.
            keys, inverse = np.unique(following * total + nodes[alive], return_inverse=True)
            parents.append(keys % total)
            letters.append(keys // total)
            nodes[alive] = total + inverse
            over = lengths[alive] == length
            counts.append(np.bincount(inverse[over], minlength=len(keys)))
            total += len(keys)
            alive = alive[~over]
        parent, letter, end = (np.concatenate(parts).astype(np.int64) for parts in (parents, letters, counts))
        passes = end.copy()
        begin = total
        runs: list[tuple[int, int, int]] = []
        for level in reversed(letters[1:]):
            begin -= len(level)
            np.add.at(passes, parent[begin : begin + len(level)], passes[begin : begin + len(level)])
            values, firsts = np.unique(level, return_index=True)
            bounds = [*(begin + firsts).tolist(), begin + len(level)]
            runs.extend(
                (int(value), bounds[place], bounds[place + 1]) for place, value in reversed(list(enumerate(values)))
            )
        places = tuple(np.flatnonzero(letter == number) for number in range(count))
        return cls(tuple(alphabet), parent, letter, end, passes, tuple(reversed(runs)), places)

    @property
    def symbols(self) -> int:
        """How many letters and ends of strings there are."""
        return int(self.passes.sum())


@dataclass(frozen=True, eq=False)
class Forward:
    """States after every prefix, rescaled, and the factors by which each was divided."""

    states: Array  # (N, D)
    scales: Array  # (N)

    @classmethod
    def of(cls, machine: WeightedAutomaton, tree: PrefixTree) -> Forward:
        """Read all prefixes of a tree."""
        states, scales = np.empty((len(tree.parents), machine.dim)), np.ones(len(tree.parents))
        scales[0] = max(float(np.abs(machine.initial).sum()), _TINY)
        states[0] = machine.initial / scales[0]
        for letter, begin, end in tree.runs:
            moved = states[tree.parents[begin:end]] @ machine.matrices[letter].T
            sizes = np.maximum(np.abs(moved).sum(axis=1), _TINY)
            states[begin:end], scales[begin:end] = moved / sizes[:, None], sizes
        return cls(states, scales)

    def log_likelihood(self, machine: WeightedAutomaton, tree: PrefixTree) -> float:
        """Return the sum of the logarithms of the strings' values; −inf where one is not positive."""
        ending = np.flatnonzero(tree.ends)
        values = self.states[ending] @ machine.final
        if (values <= 0).any():
            return -math.inf
        return float(tree.ends[ending] @ np.log(values) + tree.passes @ np.log(self.scales))


def em_step(
    machine: WeightedAutomaton, tree: PrefixTree, *, relaxation: float = 1.0
) -> tuple[WeightedAutomaton, float]:
    """Return the machine after one step of EM, and the log-likelihood of the machine before it.

    Args:
        machine: A probabilistic automaton.
        tree: The strings.
        relaxation: Above 1 it goes further in the same direction: every weight is multiplied by the ratio that EM gives
            it to this power.  Up to 2 it converges in fewer steps; a step may then lose likelihood.
    """
    forward = Forward.of(machine, tree)
    states, dim = forward.states, machine.dim
    likelihood = forward.log_likelihood(machine, tree)
    ending = np.flatnonzero(tree.ends)
    shares = tree.ends[ending] / np.maximum(states[ending] @ machine.final, _TINY)
    behind = np.zeros((len(tree.parents), dim))  # sums over strings of backward vectors, divided by probabilities
    behind[ending] = shares[:, None] * machine.final
    for letter, begin, end in reversed(tree.runs):
        behind[begin:end] /= forward.scales[begin:end, None]
        parents = tree.parents[begin:end]  # distinct: one letter leads a node to one child
        behind[parents] += behind[begin:end] @ machine.matrices[letter]
    counts = np.empty_like(machine.matrices)
    for letter, nodes in enumerate(tree.by_letter):
        counts[letter] = machine.matrices[letter] * (behind[nodes].T @ states[tree.parents[nodes]])
    initial, matrices, final = _normalised(
        machine.initial * behind[0], counts, machine.final * (shares @ states[ending])
    )
    if relaxation != 1.0:
        initial, matrices, final = _normalised(
            *(
                old * np.minimum(new / np.maximum(old, _TINY), _LARGEST_RATIO) ** relaxation
                for old, new in ((machine.initial, initial), (machine.matrices, matrices), (machine.final, final))
            )
        )
    return WeightedAutomaton(initial, matrices, final, machine.alphabet, weights="float"), likelihood


def _normalised(initial: Array, matrices: Array, final: Array) -> tuple[Array, Array, Array]:
    """Return the weights divided so that every state's outcomes sum to 1; a state that is never left stops."""
    outgoing = final + matrices.sum(axis=(0, 1))
    left = outgoing > _TINY
    outgoing = np.where(left, outgoing, 1.0)
    return initial / max(float(initial.sum()), _TINY), matrices / outgoing, np.where(left, final / outgoing, 1.0)


def random_start(alphabet: Sequence[Symbol], states: int, seed: int, mean_length: float) -> WeightedAutomaton:
    """Return a dense probabilistic automaton near the uniform one, for EM to begin with."""
    random = np.random.default_rng(seed)
    final = np.full(states, 1 / (1 + mean_length))
    moves = random.dirichlet(np.ones(len(alphabet) * states), size=states)
    matrices = ((1 - final)[:, None] * moves).T.reshape(len(alphabet), states, states)
    return WeightedAutomaton(random.dirichlet(np.full(states, 5.0)), matrices, final, tuple(alphabet), weights="float")
