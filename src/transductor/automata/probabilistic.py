"""Automata that are distributions over strings: random ones, samples of them, and how well they predict strings."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import Array
from transductor.automata.words import Symbol, Word, numbered

_ROUNDS = 1000


def random_probabilistic(
    states: int, alphabet: Iterable[Symbol], seed: int, *, stopping: float = 0.15, concentration: float = 0.1
) -> WeightedAutomaton:
    """Return a probabilistic automaton drawn at random: its series is a distribution over strings.

    Args:
        states: Number of states, at least 1.
        alphabet: The letters.
        seed: The same seed gives the same automaton.
        stopping: Mean probability of stopping in a state, below 2/3; each state's lies within half of it on either
            side, so strings have a mean length of about ``1 / stopping``.
        concentration: Parameter of the Dirichlet distribution that shares out the rest among (letter, next state):
            small is nearly deterministic, large is nearly uniform.
    """
    letters = tuple(alphabet)
    if states < 1:
        raise ValueError(f"states must be at least 1; got {states}")
    if not letters:
        raise ValueError("alphabet must hold at least one letter")
    if not 0 < stopping < 2 / 3:
        raise ValueError(f"stopping must lie between 0 and 2/3; got {stopping}")
    if concentration <= 0:
        raise ValueError(f"concentration must be positive; got {concentration}")
    random = np.random.default_rng(seed)
    initial = random.dirichlet(np.ones(states))
    final = stopping * random.uniform(0.5, 1.5, size=states)
    moves = random.dirichlet(np.full(len(letters) * states, concentration), size=states)
    matrices = ((1 - final)[:, None] * moves).T.reshape(len(letters), states, states)
    return WeightedAutomaton(initial, matrices, final, letters, weights="float")


def is_probabilistic(automaton: WeightedAutomaton, *, tolerance: float = 1e-9) -> bool:
    """Whether the weights are probabilities and the series sums to 1.

    Weights are not negative, ``initial`` sums to 1, in every state stopping and all the moves out of it sum to 1, and
    from every state that can be reached a state that may stop can be reached.  Sums may be off by ``tolerance``.
    """
    if automaton.weights.name not in ("rational", "float"):
        return False
    initial, matrices, final = automaton.initial, automaton.matrices, automaton.final
    if any((values < 0).any() for values in (initial, matrices, final)):
        return False
    if abs(initial.sum() - 1) > tolerance:
        return False
    outgoing = final + matrices.sum(axis=(0, 1))
    if (abs(outgoing - 1) > tolerance).any():
        return False
    edges = np.asarray((matrices > 0).any(axis=0))
    reached, stops = initial > 0, final > 0
    for _ in range(automaton.dim):
        reached = reached | edges[:, reached].any(axis=1)
        stops = stops | edges[stops].any(axis=0)
    return bool(stops[reached].all())


def sampled(automaton: WeightedAutomaton, count: int, seed: int, *, max_length: int = 1000) -> list[tuple[Symbol, ...]]:
    """Return independent strings drawn from a probabilistic automaton.

    A string that is not over after ``max_length`` letters is drawn again: the distribution is the automaton's, given
    that the length is at most ``max_length``.
    """
    if count < 0:
        raise ValueError(f"count must be at least 0; got {count}")
    if max_length < 0:
        raise ValueError(f"max_length must be at least 0; got {max_length}")
    if not is_probabilistic(automaton):
        raise ValueError(f"automaton must be probabilistic (see is_probabilistic); got {automaton!r}")
    machine = automaton.over("float")
    random = np.random.default_rng(seed)
    starts = np.cumsum(machine.initial)
    moves = machine.matrices.transpose(2, 0, 1).reshape(machine.dim, -1)
    # one row per state: the outcomes (letter, next state), then stopping; the last entry is 1 up to rounding
    choices = np.cumsum(np.concatenate([moves, machine.final[:, None]], axis=1), axis=1)
    strings: list[tuple[Symbol, ...]] = []
    for _ in range(_ROUNDS):
        missing = count - len(strings)
        if not missing:
            return strings
        strings.extend(_drawn(machine, starts, choices, missing, random, max_length))
    raise ValueError(f"max_length must leave room for strings to end: after {_ROUNDS} rounds of draws some had not")


def _drawn(
    machine: WeightedAutomaton, starts: Array, choices: Array, count: int, random: np.random.Generator, max_length: int
) -> list[tuple[Symbol, ...]]:
    """Return the strings that ended in time, at most ``count``; all advance together, one letter a step."""
    states = _places(np.broadcast_to(starts, (count, len(starts))), random)
    letters: list[list[Symbol]] = [[] for _ in range(count)]
    running = np.arange(count)
    for length in range(max_length + 1):
        outcomes = _places(choices[states], random)
        going = outcomes < choices.shape[1] - 1
        running, outcomes = running[going], outcomes[going]
        if length == max_length or not len(running):
            break
        states = outcomes % machine.dim
        for string, letter in zip(running.tolist(), (outcomes // machine.dim).tolist(), strict=True):
            letters[string].append(machine.alphabet[letter])
    unfinished = set(running.tolist())
    return [tuple(string) for number, string in enumerate(letters) if number not in unfinished]


def _places(cumulative: Array, random: np.random.Generator) -> Array:
    """Draw a column ``(N)`` for each row of cumulative probabilities ``(N, K)``."""
    thresholds = random.random(len(cumulative)) * cumulative[:, -1]
    return np.asarray((cumulative <= thresholds[:, None]).sum(axis=1))


def log_likelihood(automaton: WeightedAutomaton, strings: Sequence[Word]) -> float:
    """Return the sum over the strings of log ``automaton(string)``; ``-inf`` when one of the values is not positive."""
    return float(log_likelihoods(automaton, strings).sum())


def log_likelihoods(automaton: WeightedAutomaton, strings: Sequence[Word]) -> Array:
    """Return log ``automaton(string)`` for each string ``(N)``; ``-inf`` where the value is not positive.

    All strings are read together, and states are rescaled at every letter, so long strings do not underflow.
    """
    machine = _numeric(automaton)
    logs = np.full(len(strings), -math.inf)
    for read in _running(machine, strings):
        values = read.ended_states @ machine.final
        positive = values > 0
        logs[read.ended[positive]] = np.log(values[positive]) + read.ended_logs[positive]
    return logs


def perplexity(automaton: WeightedAutomaton, strings: Sequence[Word]) -> float:
    """Return the perplexity per symbol, where the end of a string counts as one.

    ``exp(−Σ_w log automaton(w) / Σ_w (|w| + 1))``: the number of equally likely next symbols that would be as hard to
    guess.  ``inf`` when a string has no positive value: see :func:`smoothed`.
    """
    return _perplexity(log_likelihood(automaton, strings), strings)


def unigram(alphabet: Sequence[Symbol], strings: Sequence[Word]) -> Array:
    """Return the frequencies ``(V + 1)`` of letters and, last, of ends of strings; each count is raised by one."""
    numbers = numbered(alphabet)
    counts = np.ones(len(numbers) + 1)
    counts[-1] += len(strings)
    for string in strings:
        for letter in string:
            counts[numbers[letter]] += 1
    return np.asarray(counts / counts.sum())


@dataclass(frozen=True, eq=False)
class SmoothedModel:
    """A next-symbol model made from a machine whose values need not be probabilities; see :func:`smoothed`.

    Args:
        automaton: The machine, in float64.
        weight: Weight of ``background`` in every prediction.
        background: Probabilities ``(V + 1)`` of the letters and, last, of the end.
        outputs: ``(V + 1, D)``, from a state to the weight of going on with each letter, and of ending.
    """

    automaton: WeightedAutomaton
    weight: float
    background: Array
    outputs: Array

    def next_symbol(self, prefix: Word) -> Array:
        """Return the probabilities ``(V + 1)`` of the letters after ``prefix`` and, last, of the end of the string."""
        state = self.automaton.initial
        for letter in self.automaton.indices(prefix):
            state = _rescaled(self.automaton.matrices[letter] @ state)[0]
        return np.asarray(self.predicted(state[None, :])[0])

    def __call__(self, word: Word) -> float:
        """Return the probability of a string; over all strings these sum to 1 when strings end with probability 1."""
        return math.exp(self.log_likelihood([word]))

    def log_likelihood(self, strings: Sequence[Word]) -> float:
        """Return the sum over the strings of the log of their probabilities: finite when ``weight`` is positive."""
        return float(self.log_likelihoods(strings).sum())

    def log_likelihoods(self, strings: Sequence[Word]) -> Array:
        """Return the log of the probability of each string ``(N)``; all are read together."""
        logs = np.zeros(len(strings))
        with np.errstate(divide="ignore"):
            for read in _running(self.automaton, strings):
                logs[read.ended] += np.log(self.predicted(read.ended_states)[:, -1])
                predicted = self.predicted(read.states)
                logs[read.going] += np.log(predicted[np.arange(len(predicted)), read.letters])
        return logs

    def perplexity(self, strings: Sequence[Word]) -> float:
        """Return the perplexity per symbol, ends included, as :func:`perplexity` does."""
        return _perplexity(self.log_likelihood(strings), strings)

    def predicted(self, states: Array) -> Array:
        """Return the probabilities ``(N, V + 1)`` in states ``(N, D)``."""
        clipped = np.maximum(states @ self.outputs.T, 0.0)
        totals = clipped.sum(axis=1, keepdims=True)
        lost = totals[:, 0] <= 0
        conditional = np.divide(clipped, totals, out=np.zeros_like(clipped), where=~lost[:, None])
        conditional[lost] = self.background
        return np.asarray((1 - self.weight) * conditional + self.weight * self.background)


def smoothed(
    automaton: WeightedAutomaton, *, weight: float = 0.01, background: Sequence[float] | Array | None = None
) -> SmoothedModel:
    """Return a proper next-symbol model of a machine that was learned, whose values may be negative or not sum to 1.

    With M = Σ_a M_a, the weight of all the strings that begin with w is ``final · (I − M)⁻¹ · state(w)``.  So after w
    the machine gives letter a the weight ``final · (I − M)⁻¹ · M_a · state(w)`` and the end ``final · state(w)``.
    Negative weights are set to 0, the rest is divided by its sum (``background`` where nothing is left), and the
    prediction is ``(1 − weight) · that + weight · background``.  A probabilistic automaton with ``weight=0`` gets its
    own conditional probabilities back.

    Args:
        automaton: Weights must be numbers: ``"float"`` or ``"rational"``.
        weight: Between 0 and 1; perplexity is finite when it is positive.
        background: Probabilities ``(V + 1)`` of the letters and, last, of the end; uniform by default
            (:func:`unigram` counts one from a sample).
    """
    machine = _numeric(automaton)
    if not 0 <= weight <= 1:
        raise ValueError(f"weight must lie between 0 and 1; got {weight}")
    size = len(machine.alphabet) + 1
    shares = np.full(size, 1 / size) if background is None else np.array(background, dtype=np.float64)
    if shares.shape != (size,) or not (shares > 0).all() or abs(shares.sum() - 1) > 1e-6:
        raise ValueError(f"background must be {size} positive numbers that sum to 1; got {background!r}")
    step = np.eye(machine.dim) - machine.matrices.sum(axis=0)
    try:
        onward = np.linalg.solve(step.T, machine.final)
    except np.linalg.LinAlgError:  # the sum over all strings diverges: the nearest solution still ranks the letters
        onward = np.linalg.lstsq(step.T, machine.final, rcond=None)[0]
    outputs = np.concatenate([np.einsum("i,vij->vj", onward, machine.matrices), machine.final[None, :]])
    return SmoothedModel(machine, float(weight), shares, outputs)


class _Running(NamedTuple):
    """Strings read up to one length: those that end there, and those that go on.

    States are rescaled; the log of what the state of an ended string was divided by is kept.
    """

    ended: Array  # (N), places of the strings
    ended_states: Array  # (N, D)
    ended_logs: Array  # (N)
    going: Array  # (M), places of the strings
    states: Array  # (M, D)
    letters: Array  # (M), those that come next


def _running(machine: WeightedAutomaton, strings: Sequence[Word]) -> Iterator[_Running]:
    """Read all strings together, one letter a step."""
    places = np.array(sorted(range(len(strings)), key=lambda place: len(strings[place])), dtype=np.int64)
    order = [np.array(machine.indices(strings[place]), dtype=np.int64) for place in places.tolist()]
    lengths = np.array([len(letters) for letters in order], dtype=np.int64)
    states = np.tile(machine.initial, (len(order), 1))
    logs = np.zeros(len(order))
    for length in itertools.count():
        if not order:
            return
        over = int(np.searchsorted(lengths, length, side="right"))
        ended, ended_states, ended_logs = places[:over], states[:over], logs[:over]
        places, order, lengths, states, logs = places[over:], order[over:], lengths[over:], states[over:], logs[over:]
        letters = np.array([string[length] for string in order], dtype=np.int64)
        yield _Running(ended, ended_states, ended_logs, places, states, letters)
        moved = np.empty_like(states)
        for letter in np.unique(letters):
            chosen = letters == letter
            moved[chosen] = states[chosen] @ machine.matrices[letter].T
        states, scales = _rescaled(moved)
        logs = logs + np.log(scales)


def _rescaled(states: Array) -> tuple[Array, Array]:
    """Return states ``(..., D)`` divided by their largest entry, and that entry; zero states stay as they are."""
    scales = np.abs(states).max(axis=-1, initial=0.0)
    scales = np.where(scales > 0, scales, 1.0)
    return np.asarray(states / scales[..., None]), np.asarray(scales)


def _perplexity(total: float, strings: Sequence[Word]) -> float:
    if not len(strings):
        raise ValueError("strings must hold at least one string")
    symbols = sum(len(string) + 1 for string in strings)
    exponent = -total / symbols
    return math.exp(exponent) if exponent < 709 else math.inf


def _numeric(automaton: WeightedAutomaton) -> WeightedAutomaton:
    if automaton.weights.name not in ("rational", "float"):
        raise ValueError(f"automaton must have weights 'rational' or 'float'; got {automaton.weights.name!r}")
    return automaton.over("float")
