"""Hidden Markov models as values: the forward algorithm, samples, conversions, and learning from sequences.

State i shows letter v with probability ``emissions[i, v]`` and then moves to j with ``transitions[i, j]``: rows are
distributions, as in hmmlearn.  The belief after some letters is about the *next* state, the one that shows the next
letter; a belief before any letter is ``start``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol

_TOLERANCE = 1e-6


@dataclass(frozen=True, eq=False)
class HiddenMarkovModel:
    """A hidden Markov model with D states and V letters.

    Args:
        start: Probabilities ``(D)`` of the first state; hmmlearn's ``startprob_``.
        transitions: ``(D, D)``, a row for each state that is left; hmmlearn's ``transmat_``.
        emissions: ``(D, V)``, a row for each state; hmmlearn's ``emissionprob_``.
    """

    start: Array
    transitions: Array
    emissions: Array

    def __post_init__(self) -> None:
        shapes = {"start": (len(self.start),), "transitions": (len(self.start),) * 2}
        for name in ("start", "transitions", "emissions"):
            values = np.array(getattr(self, name), dtype=np.float64)
            expected = shapes.get(name, (len(self.start), values.shape[-1] if values.ndim == 2 else 0))
            if values.shape != expected or not values.size:
                raise ValueError(f"{name} must have shape {expected}; got {values.shape}")
            if not (values >= 0).all() or np.abs(values.sum(-1) - 1).max() > _TOLERANCE:
                raise ValueError(f"{name} must hold distributions: at least 0, each sums to 1")
            values.flags.writeable = False
            object.__setattr__(self, name, values)

    @classmethod
    def of_hmmlearn(cls, model: Any) -> Self:
        """Return the model that a fitted ``hmmlearn.hmm.CategoricalHMM`` holds."""
        return cls(model.startprob_, model.transmat_, model.emissionprob_)

    @classmethod
    def of_automaton(cls, automaton: WeightedAutomaton) -> HiddenMarkovModel:
        """Return the model of an automaton whose matrices sum to a stochastic one, and whose final weights are 1.

        An automaton shows letters on its arcs.  Where the letter and the next state do not depend on one another given
        the state, the states stay; otherwise there is one for each (state, letter).
        """
        machine = automaton.over("float")
        matrices, initial, count = machine.matrices, machine.initial, machine.dim
        columns = matrices.sum((0, 1))
        fine = (matrices >= 0).all() and (initial >= 0).all() and np.abs(machine.final - 1).max() < _TOLERANCE
        if not fine or np.abs(columns - 1).max() > _TOLERANCE or abs(initial.sum() - 1) > _TOLERANCE:
            raise ValueError(
                "automaton must be a process without an end: weights at least 0, final weights 1, and the matrices of "
                "all letters together with columns that sum to 1"
            )
        shown = matrices.sum(1).T  # (D, V)
        moves = matrices.sum(0).T
        if np.abs(matrices - np.einsum("iv,ij->vji", shown, moves)).max() < 1e-12:
            return cls(initial, moves, shown)
        letters = len(matrices)
        start = (initial[:, None] * shown).reshape(-1)
        share = np.divide(matrices, shown.T[:, None, :], out=np.zeros_like(matrices), where=shown.T[:, None, :] > 0)
        onward = np.einsum("vji,jw->ivjw", share, shown).reshape(count * letters, -1)
        idle = onward.sum(1) == 0  # a letter that its state never shows
        onward[idle, 0] = 1.0
        return cls(start, onward, np.tile(np.eye(letters), (count, 1)))

    @property
    def states(self) -> int:
        """How many hidden states there are."""
        return len(self.start)

    @property
    def letters(self) -> int:
        """How many letters there are."""
        return int(self.emissions.shape[1])

    def matrices(self) -> Array:
        """Return ``M[v, to, from] (V, D, D)``: showing letter v, then moving."""
        return np.asarray(np.einsum("iv,ij->vji", self.emissions, self.transitions))

    def automaton(self, alphabet: Sequence[Symbol] | None = None) -> WeightedAutomaton:
        """Return the automaton whose value at a word is the probability that the letters begin so."""
        names = range(self.letters) if alphabet is None else alphabet
        return WeightedAutomaton(self.start, self.matrices(), np.ones(self.states), tuple(names), weights="float")

    def beliefs(self, tokens: Any) -> tuple[Array, Array]:
        """Return beliefs ``(B, T, D)`` after each of the tokens ``(B, T)``, and their log-likelihoods ``(B, T)``."""
        words = self._checked(tokens)
        table = self.matrices()
        belief = np.broadcast_to(self.start, (len(words), self.states))
        beliefs, logs = np.empty((*words.shape, self.states)), np.empty(words.shape)
        with np.errstate(divide="ignore"):
            for t, letters in enumerate(words.T):
                weights = np.einsum("nij,nj->ni", table[letters], belief)
                total = weights.sum(1)
                belief = weights / np.where(total > 0, total, 1.0)[:, None]
                beliefs[:, t], logs[:, t] = belief, np.log(total)
        return beliefs, logs.cumsum(1)

    def next_letters(self, tokens: Any) -> Array:
        """Return the probabilities ``(B, T, V)`` of the letter after each position: no prediction is better."""
        return np.asarray(self.beliefs(tokens)[0] @ self.emissions)

    def log_likelihood(self, tokens: Any) -> Array:
        """Return the log-likelihood ``(B)`` of complete rows."""
        words = self._checked(tokens)
        return np.asarray(self.beliefs(words)[1][:, -1]) if words.shape[1] else np.zeros(len(words))

    def sampled(self, count: int, length: int, seed: int) -> tuple[Array, Array]:
        """Return letters and hidden states ``(count, length)``."""
        random = np.random.default_rng(seed)

        def drawn(rows: Array) -> Array:
            sums = rows.cumsum(-1)
            picks = (sums <= random.random(len(rows))[:, None] * sums[:, -1:]).sum(-1)
            return np.asarray(np.minimum(picks, rows.shape[1] - 1))

        state = drawn(np.broadcast_to(self.start, (count, self.states)))
        letters, states = np.empty((count, length), np.int64), np.empty((count, length), np.int64)
        for t in range(length):
            states[:, t], letters[:, t] = state, drawn(self.emissions[state])
            state = drawn(self.transitions[state])
        return letters, states

    def _checked(self, tokens: Any) -> Array:
        words: Array = np.asarray(tokens)
        if words.ndim != 2 or not np.issubdtype(words.dtype, np.integer):
            raise ValueError(f"tokens must be integers of shape (B, T); got {words.dtype} of shape {words.shape}")
        if words.size and not (words.min() >= 0 and words.max() < self.letters):
            raise ValueError(f"tokens must lie in [0, {self.letters})")
        return words


def fitted_hidden_markov(
    tokens: Any, states: int, *, letters: int | None = None, seed: int = 0, rounds: int = 50, tolerance: float = 1e-6
) -> HiddenMarkovModel:
    """Return a model that expectation maximisation finds for sequences of one length ``(B, T)``, from a random start.

    Args:
        tokens: Letters ``(B, T)``.
        states: How many hidden states.
        letters: How many letters; one more than the largest by default.
        seed: Seed of the start.
        rounds: The largest number of rounds.
        tolerance: A round that gains less than this a letter is the last one.
    """
    words = np.asarray(tokens)
    size = int(words.max()) + 1 if letters is None else letters
    random = np.random.default_rng(seed)
    moves = 0.8 * np.eye(states) + 0.2 * random.dirichlet(np.ones(states), states)
    model = HiddenMarkovModel(np.full(states, 1 / states), moves, random.dirichlet(np.ones(size), states))
    before = -math.inf
    for _ in range(rounds):
        model, total = _maximised(model, words)
        if total - before < tolerance * words.size:
            break
        before = total
    return model


def _maximised(model: HiddenMarkovModel, words: Array) -> tuple[HiddenMarkovModel, float]:
    """Take one round of Baum and Welch; return the new model and the log-likelihood of the old one."""
    time, count = words.shape[1], model.states
    shows = model.emissions.T  # (V, D)
    forward, scales = np.empty((*words.shape, count)), np.empty(words.shape)
    belief = np.broadcast_to(model.start, (len(words), count))
    for t in range(time):
        weights = belief * shows[words[:, t]]
        scales[:, t] = np.maximum(weights.sum(1), 1e-300)
        forward[:, t] = weights / scales[:, t, None]
        belief = forward[:, t] @ model.transitions
    moved, shown = np.full((count, count), 1e-9), np.full((model.letters, count), 1e-9)
    ahead = np.ones((len(words), count))
    for t in range(time - 1, -1, -1):
        posterior = forward[:, t] * ahead
        np.add.at(shown, words[:, t], posterior)
        if t:
            onward = shows[words[:, t]] * ahead / scales[:, t, None]
            moved += forward[:, t - 1].T @ onward * model.transitions
            ahead = onward @ model.transitions.T
    start = (forward[:, 0] * ahead).sum(0)
    fitted = HiddenMarkovModel(start / start.sum(), moved / moved.sum(1, keepdims=True), (shown / shown.sum(0)).T)
    return fitted, float(np.log(scales).sum())


def spectral_hidden_markov(tokens: Any, states: int, *, letters: int | None = None) -> WeightedAutomaton:
    """Return the observable-operator machine of sequences ``(B, T)``, from the counts of one, two and three letters.

    Its value at a word estimates the probability that a sequence begins so, without iteration and consistently where
    emissions have rank ``states``.  Weights may be negative: it predicts, and it is no hidden Markov model.
    """
    words = np.asarray(tokens)
    size = int(words.max()) + 1 if letters is None else letters
    if not 0 < states <= size:
        raise ValueError(f"states must lie between 1 and the number of letters, {size}; got {states}")
    ones, pairs, triples = np.zeros(size), np.zeros((size, size)), np.zeros((size, size, size))
    first, second, third = words[:, :-2], words[:, 1:-1], words[:, 2:]
    np.add.at(ones, first, 1.0)
    np.add.at(pairs, (second, first), 1.0)
    np.add.at(triples, (second, third, first), 1.0)
    ones, pairs, triples = (counts / counts.sum() for counts in (ones, pairs, triples))
    basis = np.linalg.svd(pairs)[0][:, :states]
    inverse = np.linalg.pinv(basis.T @ pairs)
    matrices = np.einsum("ka,vab,bm->vkm", basis.T, triples, inverse)
    final = np.linalg.lstsq(pairs.T @ basis, ones, rcond=None)[0]
    return WeightedAutomaton(basis.T @ ones, matrices, final, tuple(range(size)), weights="float")
