"""Searches for a short word on which a model is wrong.

Words are proposed from the head's numbers: all short ones, repetitions whose drift points at a decision boundary, and
the words of a beam search that keeps, for every node of the graph, the largest errors.  The model itself judges them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from transductor.automata.moore import IGNORED
from transductor.certification.ball_arithmetic import Array
from transductor.certification.reachability import Graph
from transductor.certification.subjects import Subject

# Tokens (B, T) to labels (B, T), by the model itself.
Labels = Callable[[Array], Array]
Word = tuple[int, ...]

_SHORT_WORDS: Final = 4096
_PERIODS: Final = 48  # short words that are repeated
_TRIED: Final = 12  # repetitions that the model is asked about
_BEAM: Final = 4  # states kept for each node
_BEAM_STATES: Final = 256
_BEAM_LENGTH: Final = 3000
_CONFIRMED: Final = 64  # wrong answers that are tried for one that is wrong in every order
_WORK: Final = 4e8  # multiplications that one question to the model may cost


def separating_word(
    subject: Subject,
    graph: Graph,
    points: Array,
    labels: Labels,
    confirmed: Callable[[Word], bool],
    *,
    expected: int,
    horizon: int,
) -> Word | None:
    """Return the shortest word in reach of this search on which the model is wrong; None if there is none.

    Args:
        subject: The numbers of the model.
        graph: Where words lead, with the right labels.
        points: ``(D, n)``: the anchor points of the nodes.
        labels: The model.
        confirmed: Whether a word on which the model is wrong is good enough.
        expected: A length up to which nothing can be wrong: the search begins there.
        horizon: The longest word to try.
    """
    judge = _Judge(subject, graph, labels, confirmed)
    short = judge.first_wrong(_all_words(judge.targets, horizon))
    if short is not None:
        return short
    affordable = int(_WORK / (subject.dim**2 + 64))
    repetitions = list(_repetitions(subject, graph, points, judge.targets))
    beam = _beam(subject, graph, points, judge.targets, min(horizon, _BEAM_LENGTH, 4 * expected + 64))
    lengths = {min(length, horizon, affordable) for length in (4 * expected + 64, 32 * expected + 1024, horizon)}
    for length in sorted(lengths):
        batches = [[_repeated(prefix, period, length)] for prefix, period in repetitions]
        batches += [beam] if length <= 4 * expected + 64 else []
        wrong = [word for word in map(judge.first_wrong, batches) if word is not None]
        if wrong:
            return judge.shortened(min(wrong, key=len))
    return None


class _Judge:
    """Compares the model with the graph."""

    def __init__(self, subject: Subject, graph: Graph, labels: Labels, confirmed: Callable[[Word], bool]) -> None:
        self.model_labels, self.confirmed = labels, confirmed
        self.targets = graph.targets(subject.letters)
        self._node_labels = np.append(graph.labels, IGNORED)  # at −1, where no word leads

    def first_wrong(self, words: Sequence[Word]) -> Word | None:
        """Return the shortest prefix of equally long words on which the model is wrong, and its stored numbers too."""
        if not words or not words[0]:
            return None
        tokens = np.array(words, dtype=np.int64)
        right = self._right_labels(tokens)
        wrong = (right != IGNORED) & (self.model_labels(tokens) != right)
        for time, row in np.argwhere(wrong.T)[:_CONFIRMED].tolist():
            word = tuple(tokens[row, : time + 1].tolist())
            if self.confirmed(word):
                return word
        return None

    def _right_labels(self, tokens: Array) -> Array:
        """Return the labels ``(B, T)`` of the graph; outside the domain there are none."""
        nodes = np.zeros(tokens.shape, dtype=np.int64)
        if len(tokens) > 16:
            targets = np.concatenate((self.targets, np.full_like(self.targets[:1], -1)))
            for time, letter in enumerate(tokens.T):
                nodes[:, time] = targets[nodes[:, time - 1] if time else 0, letter]
        else:  # a few long words are faster one by one, without numpy
            rows = self.targets.tolist()
            for walk, word in zip(nodes, tokens.tolist(), strict=True):
                node = 0
                walk[:] = [node := rows[node][letter] if node >= 0 else -1 for letter in word]
        return np.asarray(self._node_labels[nodes])

    def shortened(self, word: Word) -> Word:
        """Leave parts of the word out, while the rest is still wrong."""
        size, tries = max(1, len(word) // 2), 0
        while size and tries < 200:
            smaller = None
            for begin in range(0, len(word) - size + 1, size):
                tries += 1
                smaller = self.first_wrong([word[:begin] + word[begin + size :]])
                if smaller is not None or tries >= 200:
                    break
            if smaller is None:
                size //= 2
            else:
                word = smaller
                size = min(size, len(word) // 2)
        return word


def _all_words(targets: Array, horizon: int) -> list[Word]:
    """Return all words of the greatest length at which they are few; every shorter word is a prefix of one."""
    letters = targets.shape[1]
    length = 1
    while letters > 1 and letters ** (length + 1) <= _SHORT_WORDS and length < horizon:
        length += 1
    if letters == 1:
        length = min(horizon, 64)
    return [] if letters**length > 64 * _SHORT_WORDS else list(itertools.product(range(letters), repeat=length))


def _repeated(prefix: Word, period: Word, length: int) -> Word:
    times = max(0, -(-(length - len(prefix)) // len(period)))
    return (prefix + period * times)[:length]


def _repetitions(subject: Subject, graph: Graph, points: Array, targets: Array) -> Iterator[tuple[Word, Word]]:
    """Yield ``(prefix, period)``, those first that, going on as they begin, would be wrong soonest.

    Once around, a period moves the point of a node by its drift: for a rotation, by its error of phase.
    """
    table = subject.table.astype(np.float64)
    periods = list(itertools.islice(_primitive_words(subject.letters), max(_PERIODS, min(subject.letters, 512))))
    ranked = []
    for period, start in itertools.product(periods, range(min(graph.nodes, 64))):
        state, node, steps = points[:, start], start, 0
        for _ in range(graph.nodes):
            for letter in period:
                if node < 0:
                    break
                state, node = table[letter] @ state, int(targets[node, letter])
            steps += len(period)
            if node in (start, -1):
                break
        if node != start:
            continue
        drift = state - points[:, start]
        rate = float(np.linalg.norm(drift)) / steps
        if np.isfinite(rate) and rate > 0:
            ranked.append((_first_failure(subject, graph, points, start, drift / steps), start, period))
    ranked.sort(key=lambda each: (each[0] + graph.depths[each[1]], each[1], len(each[2]), each[2]))
    tried: set[tuple[Word, int]] = set()
    for _, start, period in ranked:
        rotation = min(period[i:] + period[:i] for i in range(len(period))), int(graph.labels[start])
        if rotation not in tried:
            tried.add(rotation)
            yield graph.word_to(start), period
        if len(tried) >= _TRIED:
            return


def _first_failure(subject: Subject, graph: Graph, points: Array, node: int, drift: Array) -> float:
    """Return after how many letters a steady drift brings a node to the decision boundary of its label."""
    label = int(graph.labels[node])
    if subject.weight is None or label == IGNORED:
        return 1 / float(np.linalg.norm(drift))
    weight, bias = subject.readout()
    weight = weight[:, : subject.dim].astype(np.float64)
    if len(bias) == 1:
        weight, bias, label = np.concatenate((0 * weight, weight)), np.array([0.0, float(bias[0])]), min(label, 1)
    gaps = (weight[label] - weight) @ points[:, node] + bias[label] - bias
    speeds = (weight - weight[label]) @ drift
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(speeds > 0, gaps / speeds, np.inf)
    times[label] = np.inf
    return float(np.maximum(times, 0).min())


def _primitive_words(letters: int) -> Iterator[Word]:
    """Yield words of up to six letters, shortest first, each least among its rotations and no power of another."""
    for length in range(1, 7):
        for word in itertools.product(range(letters), repeat=length):
            turns = [word[i:] + word[:i] for i in range(1, length)]
            if all(word < turn for turn in turns):
                yield word


def _beam(subject: Subject, graph: Graph, points: Array, targets: Array, length: int) -> list[Word]:
    """Return words of one length that lead far from the anchor points, the farthest first."""
    table = subject.table.astype(np.float64)
    keep = max(1, min(_BEAM, _BEAM_STATES // graph.nodes))
    states, nodes = subject.initial.astype(np.float64)[None], np.zeros(1, dtype=np.int64)
    history: list[tuple[Array, Array]] = []
    for _ in range(length if graph.nodes <= _BEAM_STATES else 0):
        row, letter = np.nonzero(targets[nodes] >= 0)
        if len(row) == 0:
            break
        after = (states @ table.transpose(0, 2, 1))[letter, row]
        arrived = targets[nodes[row], letter]
        errors = np.linalg.norm(after - points[:, arrived].T, axis=1)
        if not np.isfinite(errors).all():
            break
        order = np.lexsort((-errors, arrived))
        rank = np.arange(len(order)) - np.searchsorted(arrived[order], arrived[order])
        kept = order[rank < keep]
        states, nodes = after[kept], arrived[kept]
        history.append((row[kept], letter[kept]))
    if not history:
        return []
    errors = np.linalg.norm(states - points[:, nodes].T, axis=1)
    return [_traced(history, int(row)) for row in np.argsort(-errors)[:8]]


def _traced(history: list[tuple[Array, Array]], row: int) -> Word:
    """Return the word that led to a row of the last step."""
    letters = []
    for rows, chosen in reversed(history):
        letters.append(int(chosen[row]))
        row = int(rows[row])
    return tuple(reversed(letters))
