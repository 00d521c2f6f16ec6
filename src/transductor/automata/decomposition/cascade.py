"""Cascades: machines in levels, each moved by a letter and by the coordinates of the levels above it.

A cascade is a value with its tables spelled out, so that it can be checked against its machine without trusting how it
was computed (:mod:`transductor.automata.decomposition.krohn_rhodes`).
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import contains
from typing import Any, TypeAlias, final

import numpy as np
from numpy.typing import ArrayLike, NDArray

from transductor.automata.decomposition.permutation_groups import PermutationGroup
from transductor.automata.finite_automata import DFA, checked_table

Coordinates: TypeAlias = tuple[int, ...]
Action: TypeAlias = tuple[int, ...]


@final
@dataclass(frozen=True)
class Component:
    """A class of equivalent image sets: one of them, its tiles, and the group that permutes them."""

    representative: tuple[int, ...]
    tiles: tuple[tuple[int, ...], ...]
    group: PermutationGroup


@final
@dataclass(frozen=True)
class Level:
    """The classes of one height, side by side; views are numbered as in :attr:`Cascade.views`.

    ``narrowed[view][coordinate]`` is the view of the level below, −1 where the coordinate belongs to another class.
    ``moves[before, after, letter]`` is the action on the coordinate: where each point goes.
    """

    components: tuple[Component, ...]
    narrowed: Mapping[int, tuple[int, ...]] = field(repr=False, hash=False)
    moves: Mapping[tuple[int, int, int], Action] = field(repr=False, hash=False)

    @cached_property
    def points(self) -> int:
        """How many values the coordinate has."""
        return sum(len(component.tiles) for component in self.components)

    @cached_property
    def groups(self) -> tuple[PermutationGroup, ...]:
        """The holonomy groups of the components."""
        return tuple(component.group for component in self.components)

    def permits(self, action: Action) -> bool:
        """Whether ``action`` is a reset, or on every component a permutation of its group."""
        if len(action) != self.points or not set(action) <= set(range(self.points)):
            return False
        if len(set(action)) == 1:
            return True
        first = 0
        for group in self.groups:
            block = action[first : first + group.degree]
            if tuple(point - first for point in block) not in group:
                return False
            first += group.degree
        return True


@final
@dataclass(frozen=True)
class Cascade:
    """Levels from top to bottom; each moves by a letter and by the coordinates of the levels above.

    ``views[0]`` holds all states.  Letters are numbers, and ``initial`` is the state where :meth:`run` begins.
    """

    levels: tuple[Level, ...]
    views: tuple[tuple[int, ...], ...] = field(repr=False)
    alphabet: tuple[Hashable, ...]
    initial: int = 0

    @property
    def states(self) -> int:
        """How many states the machine has."""
        return len(self.views[0])

    def start(self, state: int) -> Coordinates:
        """Return the coordinates of ``state``: on every level the first tile that holds it."""
        if state not in self.views[0]:
            raise ValueError(f"state must lie in [0, {self.states}); got {state!r}")
        view, coordinates = 0, list[int]()
        for level in self.levels:
            narrowed = level.narrowed[view]
            holds = [below >= 0 and state in self.views[below] for below in narrowed]
            coordinates.append(holds.index(True))
            view = narrowed[coordinates[-1]]
        return tuple(coordinates)

    def state(self, coordinates: Coordinates) -> int:
        """Return the state of the coordinates; refuse one that picks a tile of a class that is not in view."""
        self._check_coordinates(coordinates)
        view = 0
        for depth, (level, point) in enumerate(zip(self.levels, coordinates, strict=True)):
            view = self._narrowed(depth, level, view, point)
        (state,) = self.views[view]
        return state

    def actions(self, coordinates: Coordinates, letter: int) -> tuple[Action, ...]:
        """Return how each level moves all of its points, which depends on the coordinates above it only."""
        self._check_coordinates(coordinates)
        if letter not in range(len(self.alphabet)):
            raise ValueError(f"letter must be an index in [0, {len(self.alphabet)}); got {letter!r}")
        before = after = 0
        actions = []
        for depth, (level, point) in enumerate(zip(self.levels, coordinates, strict=True)):
            action = level.moves[before, after, letter]
            before = self._narrowed(depth, level, before, point)
            after = self._narrowed(depth, level, after, action[point])
            actions.append(action)
        return tuple(actions)

    def step(self, coordinates: Coordinates, letter: int) -> Coordinates:
        """Return the coordinates after reading the letter of index ``letter``."""
        actions = self.actions(coordinates, letter)
        return tuple(action[point] for action, point in zip(actions, coordinates, strict=True))

    def run(self, word: Iterable[int], state: int | None = None) -> Coordinates:
        """Return the coordinates reached by the letters of ``word`` from ``state``, by default the initial one."""
        coordinates = self.start(self.initial if state is None else state)
        for letter in word:
            coordinates = self.step(coordinates, letter)
        return coordinates

    def _check_coordinates(self, coordinates: Coordinates) -> None:
        bounds = tuple(level.points for level in self.levels)
        if len(coordinates) != len(bounds) or not all(map(contains, map(range, bounds), coordinates)):
            raise ValueError(f"coordinates must be {len(bounds)} integers below {bounds}; got {coordinates!r}")

    def _narrowed(self, depth: int, level: Level, view: int, point: int) -> int:
        below = level.narrowed[view][point]
        if below < 0:
            inside = set(self.views[view])
            raise ValueError(f"coordinates must pick a tile of {inside} at level {depth + 1}; got {point}")
        return below


def machine_parts(transitions: Any) -> tuple[NDArray[np.int64], tuple[Hashable, ...], int]:
    """Return the table, the alphabet and the initial state of a machine; refuse what is none."""
    try:
        table = np.asarray(getattr(transitions, "transitions", transitions))
    except ValueError as error:
        raise ValueError("transitions must be a rectangular table (states, letters); its rows differ") from error
    if table.ndim != 2 or 0 in table.shape:
        raise ValueError(f"transitions must have the shape (states, letters), both ≥ 1; got {table.shape}")
    checked, letters = checked_table(table), table.shape[1]
    alphabet = tuple(getattr(transitions, "alphabet", range(letters)))
    if len(alphabet) != letters:
        raise ValueError(f"alphabet must name the {letters} letters of transitions; got {len(alphabet)}")
    return checked, alphabet, int(getattr(transitions, "start", 0))


@final
@dataclass(frozen=True)
class CascadeCertificate:
    """Whether a cascade does what its machine does, and a shortest counterexample if not.

    ``checked`` counts pairs of coordinates and a letter.  ``witness`` is the word, as letter indices, that leads from
    ``state`` to the fault that ``reason`` describes.
    """

    claim: str
    checked: int
    state: int | None = None
    witness: tuple[int, ...] | None = None
    reason: str = ""

    @property
    def holds(self) -> bool:
        """Whether no fault was found."""
        return self.witness is None

    def __bool__(self) -> bool:
        return self.holds

    def __str__(self) -> str:
        if self.holds:
            return f"{self.claim}: holds ({self.checked} pairs checked)"
        return f"{self.claim}: FAILS from state {self.state} at {self.witness}: {self.reason}"


def verify(cascade: Cascade, transitions: ArrayLike | DFA, *, limit: int = 1_000_000) -> CascadeCertificate:
    """Follow all letters from the coordinates of every state, exhaustively, and compare with the machine.

    Also checks that every action met is a permutation of the level's groups or a reset.  ``limit`` bounds the number of
    coordinate tuples.
    """
    table, alphabet, _ = machine_parts(transitions)
    shape = cascade.states, len(cascade.alphabet)
    if table.shape != shape:
        raise ValueError(f"transitions must be {shape} (states, letters) like the cascade; got {table.shape}")
    claim = "the cascade covers the machine by permutations and resets"
    origins: dict[Coordinates, tuple[Coordinates, int] | None] = {}  # the step that first led there
    for state in range(cascade.states):
        if fault := _lift_fault(cascade, state):
            return CascadeCertificate(claim, 0, state, (), fault)
        origins[cascade.start(state)] = None
    permitted: set[tuple[int, Action]] = set()
    pending, checked = list(origins), 0
    for coordinates in pending:
        for letter in range(len(alphabet)):
            checked += 1
            expected = int(table[cascade.state(coordinates), letter])
            reached, fault = _checked_step(cascade, coordinates, letter, expected, permitted)
            if fault:
                begin, word = _traced(origins, coordinates)
                return CascadeCertificate(claim, checked, cascade.state(begin), (*word, letter), fault)
            if reached not in origins:
                origins[reached] = (coordinates, letter)
                pending.append(reached)
        if len(pending) > limit:
            raise ValueError(f"limit allows {limit} coordinate tuples and {len(pending)} were reached; raise limit")
    return CascadeCertificate(claim, checked)


def _traced(
    origins: Mapping[Coordinates, tuple[Coordinates, int] | None], coordinates: Coordinates
) -> tuple[Coordinates, tuple[int, ...]]:
    """Return where the walk that led here began, and its letters."""
    word: list[int] = []
    while (origin := origins[coordinates]) is not None:
        coordinates, letter = origin
        word.append(letter)
    return coordinates, tuple(reversed(word))


def _lift_fault(cascade: Cascade, state: int) -> str:
    try:
        decoded = cascade.state(cascade.start(state))
    except (LookupError, ValueError) as error:
        return f"the state has no coordinates: {error!r}"
    return "" if decoded == state else f"the coordinates of the state decode to state {decoded}"


def _checked_step(
    cascade: Cascade, coordinates: Coordinates, letter: int, expected: int, permitted: set[tuple[int, Action]]
) -> tuple[Coordinates, str]:
    """Return the next coordinates, and what is wrong with them if anything is."""
    try:
        actions = cascade.actions(coordinates, letter)
        reached = tuple(action[point] for action, point in zip(actions, coordinates, strict=True))
        state = cascade.state(reached)
    except (LookupError, ValueError) as error:
        return coordinates, f"the step from {coordinates} is undefined: {error!r}"
    for depth, (level, action) in enumerate(zip(cascade.levels, actions, strict=True)):
        if (depth, action) not in permitted:
            if not level.permits(action):
                return reached, f"level {depth + 1} moves by {action}, neither in its groups nor a reset"
            permitted.add((depth, action))
    return reached, "" if state == expected else f"{reached} decodes to state {state}, the machine is in {expected}"


def walk(cascade: Cascade) -> Iterator[Coordinates]:
    """Yield each coordinate tuple that words reach from the coordinates of all states, once."""
    pending = list(dict.fromkeys(map(cascade.start, range(cascade.states))))
    seen = set(pending)
    for coordinates in pending:
        yield coordinates
        for letter in range(len(cascade.alphabet)):
            reached = cascade.step(coordinates, letter)
            if reached not in seen:
                seen.add(reached)
                pending.append(reached)
