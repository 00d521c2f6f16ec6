"""Walking through a head's states, near ones being one: a finite machine, if the walk ends."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from transductor.extraction.observable_distance import (
    JUDGED_LENGTH,
    JUDGED_WORDS,
    Contexts,
    SeenHead,
    futures,
    prefixes,
    sample_words,
    stepped,
)

_AT_ONCE = 4096  # successors, of which new states are chosen one by one
_APART = 1e3  # between states that have no continuation in common, in units of a typical state
_NOTHING = 1e-9  # a state shorter than this has no direction


class DidNotClose(Exception):
    """The walk was given up; the message says why."""


@dataclass(frozen=True)
class Walk:
    """States that were met, and where letters lead.

    Attributes:
        transitions: ``(states, letters)``; −1 where the walk did not go.
        representatives: ``(states, D)``, the first head state of each.
        spread: The largest distance of a successor to the representative it was taken for.
        separation: The smallest distance of two representatives; 1, the size of a typical state, if there are none.
        radius: Within which states were taken for one.
        up_to_scale: Whether states on one ray from the origin were.
        points: ``(states, R)``: where the representatives are.
    """

    transitions: Tensor
    representatives: Tensor
    spread: float
    separation: float
    radius: float
    up_to_scale: bool
    points: Tensor

    @property
    def ratio(self) -> float:
        """Separation over spread: how clear the states are."""
        return self.separation / self.spread if self.spread else float("inf")


class Search:
    """Walks through one head with several radii; ``notes`` say why others did not end.

    Args:
        head: Table, start, and what is read.
        words: ``(B, T)``: letters follow each other as in these; ``None`` for all as they like.
        max_states: A walk that needs more is given up.
        tolerances: The radii.
    """

    def __init__(self, head: SeenHead, words: Tensor | None, max_states: int, tolerances: Sequence[float]) -> None:
        self.head, self.words, self.max_states = head, words, max_states
        self.tolerances = sorted(tolerances, reverse=True)
        self.notes: list[str] = []
        letters = len(head.table)
        self.contexts = Contexts.free(letters) if words is None else Contexts.of(words, letters)
        self.metric = torch.zeros(1, len(head.start), 0)
        if not (head.table.isfinite().all() and head.start.isfinite().all()):
            self.notes.append("its matrices or its initial state are not finite")
            return
        self.metric = futures(head, self.contexts, words)
        if self.blind:
            self.notes.append("nothing that is read off its states depends on them")

    @property
    def blind(self) -> bool:
        """Whether there is nothing to see, or no numbers to see it with."""
        return not self.metric.any()

    def walks(self, *, up_to_scale: bool) -> list[Walk]:
        """Those that end."""
        return [] if self.blind else list(self._by_radius(up_to_scale))

    def followed(self, walk: Walk) -> float:
        """Share of positions of the words, or random ones, where the head is nearest to the state the walk is in."""
        words = (
            self.words if self.words is not None else sample_words(len(self.head.table), JUDGED_WORDS, JUDGED_LENGTH)
        )
        words = words[:JUDGED_WORDS, :JUDGED_LENGTH]
        states, contexts = prefixes(self.head, self.contexts, words)
        points = _points(states[:, 1:].flatten(0, 1), contexts[:, 1:].flatten(), self.metric, walk.up_to_scale)[1]
        numbers = torch.zeros(len(words), dtype=torch.long)
        path = [numbers := walk.transitions[numbers, letter] for letter in words.T]
        return float((_nearest(points, walk.points) == torch.stack(path, 1).flatten()).double().mean())

    def _by_radius(self, up_to_scale: bool) -> Iterator[Walk]:
        redundant = float("inf")
        for radius in self.tolerances:
            if radius >= redundant:  # between spread and separation of a walk, every radius gives the same one
                continue
            try:
                walk = walked(
                    self.head,
                    self.contexts,
                    self.metric,
                    radius=radius,
                    max_states=self.max_states,
                    up_to_scale=up_to_scale,
                )
            except DidNotClose as reason:  # smaller radii need more states
                self.notes.append(f"taking {'rays' if up_to_scale else 'states'} within {radius:g} for one, {reason}")
                return
            redundant = walk.spread
            yield walk


def walked(
    head: SeenHead,
    contexts: Contexts,
    metric: Tensor,
    *,
    radius: float,
    max_states: int,
    up_to_scale: bool = False,
) -> Walk:
    """Explore from the start, breadth-first, so that every representative is the state of a shortest word.

    Args:
        head: Table and start.
        contexts: Which letters may follow each other.  States in different contexts are never one.
        metric: ``(C, D, R)``; see :func:`~transductor.extraction.observable_distance.futures`.
        radius: States that are no farther than this from a representative are taken for it.
        max_states: The walk is given up when it needs more.
        up_to_scale: States on one ray from the origin are one.

    Raises:
        DidNotClose: Past ``max_states``, or at a state that is not finite.
    """
    collection = _Collection(head.start, contexts.first, metric, radius, max_states, up_to_scale)
    table = _explored(head, contexts, collection)
    return Walk(
        table,
        collection.states.clone(),
        collection.spread,
        collection.separation(),
        radius,
        up_to_scale,
        collection.points.clone(),
    )


def _explored(head: SeenHead, contexts: Contexts, collection: _Collection) -> Tensor:
    """From every state with every letter that may follow one that led there, until nothing new comes."""
    letters = len(head.table)
    table = torch.full((1, letters), -1)
    # Which letters lead to a state; one more stands for the beginning.
    led = torch.zeros(1, letters + 1, dtype=torch.bool)
    led[0, letters] = True
    while True:
        allowed = led.double() @ contexts.follows.double() > 0
        pairs = torch.nonzero(allowed & (table < 0))
        if not len(pairs):
            return table
        for sources, steps in (part.T for part in pairs.split(_AT_ONCE)):
            numbers = collection.numbers(stepped(head.table, collection.states[sources], steps), contexts.after[steps])
            more = collection.count - len(table)
            table = torch.cat([table, table.new_full((more, letters), -1)])
            led = torch.cat([led, led.new_zeros(more, letters + 1)])
            table[sources, steps] = numbers
            led[numbers, steps] = True


class _Collection:
    """Representatives ``(n, D)`` so far, and their points ``(n, R)``."""

    def __init__(
        self, start: Tensor, context: int, metric: Tensor, radius: float, max_states: int, up_to_scale: bool
    ) -> None:
        self.metric, self.radius, self.max_states, self.up_to_scale = metric, radius, max_states, up_to_scale
        self.count, self.spread = 0, 0.0
        states, points = self._placed(start.unsqueeze(0), torch.tensor([context]))
        self._states, self._points = torch.empty_like(states), torch.empty_like(points)
        self._keep(states[0], points[0])

    @property
    def states(self) -> Tensor:
        return self._states[: self.count]

    @property
    def points(self) -> Tensor:
        return self._points[: self.count]

    def numbers(self, states: Tensor, contexts: Tensor) -> Tensor:
        """For each of ``(m, D)`` states the number of its representative ``(m)``; some become new ones."""
        states, points = self._placed(states, contexts)
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
        least = _APART
        for number in range(1, self.count):
            least = min(least, float((self.points[:number] - self.points[number]).norm(dim=1).min()))
        return least if least < _APART / 2 else 1.0

    def _placed(self, states: Tensor, contexts: Tensor) -> tuple[Tensor, Tensor]:
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
    """States ``(m, D)``, brought to the size of a typical one where size does not count, and their points ``(m, R)``.

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
    """For each of ``(m, R)`` points the number of the nearest of ``(n, R)``, to the rounding of a matrix product."""
    numbers: Tensor = (known.square().sum(1) - 2 * points @ known.T).argmin(1)
    return numbers
