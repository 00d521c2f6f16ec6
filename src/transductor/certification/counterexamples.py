"""Looking for a short word on which a model is wrong.

Words are proposed from the head's numbers: all short ones, repetitions whose drift points at a decision boundary, and
those a beam finds that keeps, for every state of the machine, the largest errors.  The model itself judges them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Final

import numpy as np

from transductor.automata.moore import IGNORED
from transductor.certification.balls import Array
from transductor.certification.reachability import Graph
from transductor.certification.subjects import Subject

# Tokens (B, T) to labels (B, T), by the model itself.
Answers = Callable[[Array], Array]
Word = tuple[int, ...]

_SHORT_WORDS: Final = 4096
_PERIODS: Final = 48  # short words that are repeated
_TRIED: Final = 12  # repetitions that the model is asked about
_BEAM: Final = 4  # states kept for each node
_BEAM_STATES: Final = 256
_BEAM_LENGTH: Final = 3000
_CONFIRMED: Final = 64  # wrong answers that are looked at for one that is wrong in every order
_WORK: Final = 4e8  # multiplications that one question to the model may cost


def separating_word(
    subject: Subject,
    graph: Graph,
    places: Array,
    answers: Answers,
    confirmed: Callable[[Word], bool],
    *,
    expected: int,
    horizon: int,
) -> Word | None:
    """The shortest word found on which the model is wrong; None if none was.

    Args:
        places: ``(D, n)`` of the nodes.
        answers: The model.
        confirmed: Whether a word on which the model is wrong is good enough.
        expected: A length up to which nothing can be wrong: where to begin looking.
        horizon: The longest word to try.
    """
    judge = _Judge(subject, graph, answers, confirmed)
    short = judge.first_wrong(_all_words(judge.targets, horizon))
    if short is not None:
        return short
    found: list[Word] = []
    affordable = int(_WORK / (subject.dim**2 + 64))
    words = list(_repetitions(subject, graph, places, judge.targets))
    beam = _beam(subject, graph, places, judge.targets, min(horizon, _BEAM_LENGTH, 4 * expected + 64))
    lengths = {min(length, horizon, affordable) for length in (4 * expected + 64, 32 * expected + 1024, horizon)}
    for length in sorted(lengths):
        for prefix, period in words:
            word = judge.first_wrong([_stretched(prefix, period, length)])
            found += [word] if word is not None else []
        if length <= 4 * expected + 64:
            word = judge.first_wrong(beam)
            found += [word] if word is not None else []
        if found:
            break
    if not found:
        return None
    return judge.shortened(min(found, key=len))


class _Judge:
    """The model against the graph."""

    def __init__(self, subject: Subject, graph: Graph, answers: Answers, confirmed: Callable[[Word], bool]) -> None:
        self.labels, self.answers, self.letters = graph.labels, answers, subject.letters
        self.confirmed = confirmed
        self.targets = graph.targets(subject.letters)

    def first_wrong(self, words: Sequence[Word]) -> Word | None:
        """The shortest prefix of equally long words on which the model is wrong, and its stored numbers too."""
        if not words or not words[0]:
            return None
        tokens = np.array(words, dtype=np.int64)
        wanted = self._wanted(tokens)
        wrong = (wanted != IGNORED) & (self.answers(tokens) != wanted)
        for time, row in np.argwhere(wrong.T)[:_CONFIRMED].tolist():
            word = tuple(tokens[row, : time + 1].tolist())
            if self.confirmed(word):
                return word
        return None

    def _wanted(self, tokens: Array) -> Array:
        """The machine's labels ``(B, T)``, none outside the domain."""
        labels = np.append(self.labels, IGNORED)  # at −1, where no word leads
        if len(tokens) > 16:
            targets = np.concatenate((self.targets, np.full((1, self.letters), -1)))
            nodes, wanted = np.zeros(len(tokens), dtype=np.int64), np.empty(tokens.shape, dtype=np.int64)
            for time in range(tokens.shape[1]):
                nodes = targets[nodes, tokens[:, time]]
                wanted[:, time] = labels[nodes]
            return wanted
        rows = self.targets.tolist()
        walks = []
        for word in tokens.tolist():
            node, walk = 0, []
            for letter in word:
                node = rows[node][letter] if node >= 0 else -1
                walk.append(node)
            walks.append(walk)
        return np.asarray(labels[np.array(walks)])

    def shortened(self, word: Word) -> Word:
        """With parts left out, while what is left is still wrong."""
        size, tries = max(1, len(word) // 2), 0
        while size and tries < 200:
            smaller = None
            for place in range(0, len(word) - size + 1, size):
                tries += 1
                candidate = self.first_wrong([word[:place] + word[place + size :]])
                if candidate is not None:
                    smaller = candidate
                    break
                if tries >= 200:
                    break
            if smaller is None:
                size //= 2
            else:
                word = smaller
                size = min(size, len(word) // 2)
        return word


def _all_words(targets: Array, horizon: int) -> list[Word]:
    """All words of the greatest length at which they are few; what is shorter is a prefix of them."""
    letters = targets.shape[1]
    length = 1
    while letters > 1 and letters ** (length + 1) <= _SHORT_WORDS and length < horizon:
        length += 1
    if letters == 1:
        length = min(horizon, 64)
    return [] if letters**length > 64 * _SHORT_WORDS else list(itertools.product(range(letters), repeat=length))


def _stretched(prefix: Word, period: Word, length: int) -> Word:
    times = max(0, -(-(length - len(prefix)) // len(period)))
    return (prefix + period * times)[:length]


def _repetitions(subject: Subject, graph: Graph, places: Array, targets: Array) -> Iterator[tuple[Word, Word]]:
    """``(prefix, period)``, those first that, going on as they begin, would be wrong soonest.

    Once around, a period takes the place of a node to where it drifts: for a rotation, by its error of phase.
    """
    table = subject.table.astype(np.float64)
    periods = list(itertools.islice(_primitive_words(subject.letters), max(_PERIODS, min(subject.letters, 512))))
    ranked = []
    for period, node in itertools.product(periods, range(min(graph.nodes, 64))):
        state, place, steps = places[:, node], node, 0
        for _ in range(graph.nodes):
            for letter in period:
                if place < 0:
                    break
                state, place = table[letter] @ state, int(targets[place, letter])
            steps += len(period)
            if place in (node, -1):
                break
        if place != node:
            continue
        rate = float(np.linalg.norm(state - places[:, node])) / steps
        if np.isfinite(rate) and rate > 0:
            ranked.append(
                (_first_failure(subject, graph, places, node, (state - places[:, node]) / steps), node, period)
            )
    ranked.sort(key=lambda each: (each[0] + graph.depths[each[1]], each[1], len(each[2]), each[2]))
    seen: set[tuple[Word, int]] = set()
    for _, node, period in ranked:
        turned = min(period[i:] + period[:i] for i in range(len(period)))
        if (turned, int(graph.labels[node])) not in seen:
            seen.add((turned, int(graph.labels[node])))
            yield graph.word_to(node), period
        if len(seen) >= _TRIED:
            return


def _first_failure(subject: Subject, graph: Graph, places: Array, node: int, drift: Array) -> float:
    """After how many letters a drift, kept up, brings a node to the decision boundary of its label."""
    label = int(graph.labels[node])
    if subject.weight is None or label == IGNORED:
        return 1 / float(np.linalg.norm(drift))
    weight, bias = subject.weight[:, : subject.dim].astype(np.float64), subject.bias
    assert bias is not None
    if len(bias) == 1:
        weight, bias, label = np.concatenate((0 * weight, weight)), np.array([0.0, float(bias[0])]), min(label, 1)
    gaps = (weight[label] - weight) @ places[:, node] + bias[label] - bias
    speeds = (weight - weight[label]) @ drift
    with np.errstate(divide="ignore", invalid="ignore"):
        times = np.where(speeds > 0, gaps / speeds, np.inf)
    times[label] = np.inf
    return float(np.maximum(times, 0).min())


def _primitive_words(letters: int) -> Iterator[Word]:
    """Shortest first, each least among its rotations and no power of another."""
    for length in itertools.count(1):
        if length > 6:
            return
        for word in itertools.product(range(letters), repeat=length):
            turns = [word[i:] + word[:i] for i in range(1, length)]
            if all(word < turn for turn in turns):
                yield word


def _beam(subject: Subject, graph: Graph, places: Array, targets: Array, length: int) -> list[Word]:
    """Words that lead furthest from the places."""
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
        errors = np.linalg.norm(after - places[:, arrived].T, axis=1)
        if not np.isfinite(errors).all():
            break
        order = np.lexsort((-errors, arrived))
        rank = np.arange(len(order)) - np.searchsorted(arrived[order], arrived[order])
        kept = order[rank < keep]
        states, nodes = after[kept], arrived[kept]
        history.append((row[kept], letter[kept]))
    if not history:
        return []
    errors = np.linalg.norm(states - places[:, nodes].T, axis=1)
    return [_traced(history, int(row)) for row in np.argsort(-errors)[:8]]


def _traced(history: list[tuple[Array, Array]], row: int) -> Word:
    letters = []
    for rows, chosen in reversed(history):
        letters.append(int(chosen[row]))
        row = int(rows[row])
    return tuple(reversed(letters))
