"""Walks through a head's states that take near ones for one: a finite machine, if the walk ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import torch
from torch import Tensor

from transductor.extraction.observable_distance import (
    Contexts,
    ObservedHead,
    observable_coordinates,
    states_along,
    stepped,
)
from transductor.extraction.probing import Words, words_or_random

_AT_ONCE = 4096  # successors that are compared together; new states are then chosen one by one
_APART = 1e3  # distance of states that have no continuation in common, in units of a typical state
_NOTHING = 1e-9  # a state shorter than this has no direction


class DidNotClose(Exception):
    """A walk was given up; the message says why."""


class Search:
    """Walks through one head with several radii; ``notes`` say why others did not end.

    Args:
        head: Table, start, and what is read.
        words: Letters follow each other as in these; ``None`` for any order.
        max_states: A walk that needs more is given up.
        tolerances: The radii.
    """

    def __init__(self, head: ObservedHead, words: Words | None, max_states: int, tolerances: Sequence[float]) -> None:
        self.head, self.words, self.max_states = head, words, max_states
        self.tolerances = sorted(tolerances, reverse=True)
        self.notes: list[str] = []
        self.contexts = Contexts.of(words, len(head.table))
        self.metric = torch.zeros(1, len(head.start), 0)
        if not head.finite:
            self.notes.append("its matrices or its initial state are not finite")
            return
        self.metric = observable_coordinates(head, self.contexts, words)
        if self.blind:
            self.notes.append("nothing that is read off its states depends on them")

    @property
    def blind(self) -> bool:
        """Whether nothing can be told apart: nothing is read, or the numbers are not finite."""
        return not self.metric.any()

    def walks(self, *, up_to_scale: bool) -> list[Walk]:
        """Return the walks that end."""
        return [] if self.blind else list(self._by_radius(up_to_scale))

    def followed(self, walk: Walk) -> float:
        """Return the share of positions of the words, or random ones, where the head is nearest to the walk's state."""
        words = words_or_random(self.words, len(self.head.table))
        states, contexts = (each[:, 1:][words.inside] for each in states_along(self.head, self.contexts, words.letters))
        points = _points(states, contexts, self.metric, walk.up_to_scale)[1]
        numbers = torch.zeros(len(words), dtype=torch.long)
        path = [numbers := walk.transitions[numbers, letter] for letter in words.letters.T]
        return float((_nearest(points, walk.points) == torch.stack(path, 1)[words.inside]).double().mean())

    def _by_radius(self, up_to_scale: bool) -> Iterator[Walk]:
        redundant = float("inf")
        for radius in self.tolerances:
            if radius >= redundant:  # between spread and separation of a walk, every radius gives the same one
                continue
            try:
                walk = Walk(self, radius, up_to_scale)
            except DidNotClose as reason:  # smaller radii need more states
                self.notes.append(f"taking {'rays' if up_to_scale else 'states'} within {radius:g} for one, {reason}")
                return
            redundant = walk.spread
            yield walk


class Walk:
    """The states that words lead to, near ones taken for one, each represented by the first state that was met.

    The walk is breadth-first, so that every representative is the state of a shortest word.  States in different
    contexts are never taken for one.

    Args:
        search: The head, what is read off its states, and which letters may follow each other.
        radius: The distance within which states are taken for one.
        up_to_scale: Whether states on one ray from the origin are taken for one too.

    Attributes:
        transitions: ``(states, letters)``; −1 where the walk did not go.
        spread: The largest distance of a successor to the representative it was taken for.

    Raises:
        DidNotClose: Past ``max_states``, or at a state that is not finite.
    """

    def __init__(self, search: Search, radius: float, up_to_scale: bool) -> None:
        self.metric, self.max_states = search.metric, search.max_states
        self.radius, self.up_to_scale = radius, up_to_scale
        self.count, self.spread = 0, 0.0
        states, points = self._located(search.head.start.unsqueeze(0), torch.tensor([search.contexts.first]))
        self._states, self._points = torch.empty_like(states), torch.empty_like(points)
        self._keep(states[0], points[0])
        self.transitions = self._explored(search.head.table, search.contexts)

    def _explored(self, table: Tensor, contexts: Contexts) -> Tensor:
        """Go from every state with every letter that may follow one that led there, until no new state comes."""
        letters = len(table)
        transitions = torch.full((1, letters), -1)
        # Which letters lead to a state; the last column stands for the beginning.
        led = torch.zeros(1, letters + 1, dtype=torch.bool)
        led[0, letters] = True
        while True:
            allowed = led.double() @ contexts.follows.double() > 0
            pairs = torch.nonzero(allowed & (transitions < 0))
            if not len(pairs):
                return transitions
            for sources, steps in (part.T for part in pairs.split(_AT_ONCE)):
                numbers = self._numbers(stepped(table, self.states[sources], steps), contexts.after[steps])
                more = self.count - len(transitions)
                transitions = torch.cat([transitions, transitions.new_full((more, letters), -1)])
                led = torch.cat([led, led.new_zeros(more, letters + 1)])
                transitions[sources, steps] = numbers
                led[numbers, steps] = True

    @property
    def states(self) -> Tensor:
        """The representatives ``(states, D)``."""
        return self._states[: self.count]

    @property
    def points(self) -> Tensor:
        """The observable coordinates ``(states, R)`` of the representatives."""
        return self._points[: self.count]

    def _numbers(self, states: Tensor, contexts: Tensor) -> Tensor:
        """Return for each of ``(m, D)`` states the number of its representative ``(m)``; some become new ones."""
        states, points = self._located(states, contexts)
        nearest = _nearest(points, self.points)
        distances = (points - self.points[nearest]).norm(dim=1)
        far = torch.nonzero(distances > self.radius).flatten()
        while len(far):
            if self.count >= self.max_states:
                raise DidNotClose(f"it has more than max_states = {self.max_states} states")
            self._keep(states[far[0]], points[far[0]])
            gap = (points[far] - points[far[0]]).norm(dim=1)
            closer = gap < distances[far]
            distances[far[closer]], nearest[far[closer]] = gap[closer], self.count - 1
            far = far[distances[far] > self.radius]
        self.spread = max(self.spread, float(distances.max()))
        return nearest

    def separation(self) -> float:
        """Return the smallest distance of two representatives; 1, the size of a typical state, if there is only one."""
        least = _APART
        for number in range(1, self.count):
            least = min(least, float((self.points[:number] - self.points[number]).norm(dim=1).min()))
        return least if least < _APART / 2 else 1.0

    def _located(self, states: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
        states, points = _points(states, contexts, self.metric, self.up_to_scale)
        if not points.isfinite().all():
            raise DidNotClose("its states grow beyond all numbers")
        return states, points

    def _keep(self, state: Tensor, point: Tensor) -> None:
        if self.count == len(self._states):
            self._states = torch.cat([self._states, torch.empty_like(self._states)])
            self._points = torch.cat([self._points, torch.empty_like(self._points)])
        self._states[self.count], self._points[self.count] = state, point
        self.count += 1


def _points(states: Tensor, contexts: Tensor, metric: Tensor, up_to_scale: bool) -> tuple[Tensor, Tensor]:
    """Return states ``(m, D)``, scaled to a typical size where size does not count, and their points ``(m, R)``.

    A last coordinate keeps contexts ``(m)`` apart.
    """
    points = states.new_empty(len(states), metric.shape[-1])
    for context, directions in enumerate(metric):
        points[contexts == context] = states[contexts == context] @ directions
    if up_to_scale:
        length = points.norm(dim=1, keepdim=True).clamp_min(_NOTHING)
        states, points = states / length, points / length
    return states, torch.cat([points, _APART * contexts.unsqueeze(1)], 1)


def _nearest(points: Tensor, known: Tensor) -> Tensor:
    """Return for each of ``(m, R)`` points the number of the nearest of ``(n, R)``, up to rounding."""
    numbers: Tensor = (known.square().sum(1) - 2 * points @ known.T).argmin(1)
    return numbers
