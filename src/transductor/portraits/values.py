"""What a portrait holds: plain numbers, so that figures can be drawn from a file where torch is not installed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from transductor.json_reading import read_json
from transductor.results import write_atomically
from transductor.typed_values import from_fields

_LARGEST: Final = 1e100  # what states may grow to; beyond, there is no axis to draw


@dataclass(frozen=True)
class Drawn:
    """A finite machine to draw.

    Attributes:
        transitions: ``[state][letter]`` is the next state.
        labels: The label of each state, or its name, None where it has none; None instead of a list where no state is
            labelled.
        start: The state before the first letter.
        sink: The state that stands for what never occurs, which is not drawn.
    """

    transitions: list[list[int]]
    labels: Sequence[int | str | None] | None
    start: int = 0
    sink: int | None = None

    @property
    def states(self) -> int:
        """How many states there are."""
        return len(self.transitions)

    @property
    def shown(self) -> int:
        """How many states are drawn: all but the sink."""
        return self.states - (self.sink is not None)


@dataclass(frozen=True)
class Trajectory:
    """Where the head's state goes on one word, in the coordinates that are read off it.

    Attributes:
        word: The letters of the word.
        points: ``[time] = [x, y]``, the two principal coordinates, before the first letter and after each; None where
            the state is not finite.
        states: For each point the state of the machine, the learned one or else the target; None without either.
        centres: ``[x, y]`` of the representatives.
        share: The share of the variance that the two coordinates show.
    """

    word: list[int]
    points: list[list[float] | None]
    states: list[int] | None
    centres: list[list[float]]
    share: float


@dataclass(frozen=True)
class Drift:
    """How far the state is from the representative of the state it should be in, in units of a typical state.

    Attributes:
        lengths: After how many letters drift was measured.
        median: The median over random words.
        worst: The largest drift of the random words.
        powers: For each letter, by its number, the drift of its powers.
        words: How many random words there were.
        limit: Half the distance of two representatives: farther than this, another one may be nearer.
        precision: The precision in which the states were computed.
    """

    lengths: list[int]
    median: list[float | None]
    worst: list[float | None]
    powers: dict[str, list[float | None]]
    words: int
    limit: float
    precision: str


@dataclass(frozen=True)
class Leak:
    """For each letter, how far it leads representatives from representatives: ``|M r_q − r_δ(q)|``.

    None for letters that no representative reads.
    """

    mean: list[float | None]
    worst: list[float | None]


@dataclass(frozen=True)
class Portrait:
    """Everything that is drawn of a head.

    Attributes:
        title: What kind of head it is.
        letters: Names of the letters.
        eigenvalues: ``[letter][k] = [real, imaginary]``.
        trajectory: Where the state goes on one word.
        learned: The machine that the head is near to.
        refusal: Why there is none.
        target: The machine the head should be.
        separating_word: A shortest word on which the two differ; None where there is none, or nothing to compare.
        compared: Whether there are two labelled machines to compare.
        words_like_given: Whether only words in which letters follow each other as in those given were compared.
        drift: How far states drift; None without a learned machine.
        leak: How much each letter leaks; None without a learned machine.
        summary: How near the machine is, in words.
    """

    title: str
    letters: list[str]
    eigenvalues: list[list[list[float]]]
    trajectory: Trajectory
    learned: Drawn | None
    refusal: str
    target: Drawn | None
    separating_word: list[int] | None
    compared: bool
    drift: Drift | None
    leak: Leak | None
    summary: str = ""
    words_like_given: bool = False

    def write(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        plain = asdict(self)
        for machine in (plain["learned"], plain["target"]):
            if machine is not None and machine["sink"] is None:
                del machine["sink"]
        if not plain["words_like_given"]:
            del plain["words_like_given"]
        return write_atomically(path, (json.dumps(plain, allow_nan=False) + "\n").encode())


def read_portrait(path: str | Path) -> Portrait:
    """Read what :meth:`Portrait.write` wrote; an error names a file that is no portrait."""
    try:
        portrait = from_fields(Portrait, read_json(path))
        _check_consistent(portrait)
        return portrait
    except ValueError as error:
        raise ValueError(f"{path} is no portrait: {error}") from error


def _check_consistent(portrait: Portrait) -> None:
    """Refuse numbers of states and letters that are not there, and lists of other lengths than those beside them."""
    letters, trajectory = len(portrait.letters), portrait.trajectory
    machines = {"learned": portrait.learned, "target": portrait.target}
    for name, machine in machines.items():
        if machine is not None:
            _check_machine(name, machine, letters)
    shown = portrait.learned or portrait.target
    states = 0 if shown is None else shown.states
    _check_range("trajectory.word", trajectory.word, letters)
    _check_range("separating_word", portrait.separating_word or [], letters)
    _check_range("trajectory.states", trajectory.states or [], states)
    points = len(trajectory.points)
    _check_lengths("trajectory.states", [trajectory.states or [None] * points], points)
    _check_lengths("trajectory.points", [point for point in trajectory.points if point is not None], 2)
    _check_lengths("trajectory.centres", trajectory.centres, 2)
    _check_lengths("eigenvalues", [portrait.eigenvalues], letters)
    _check_lengths("eigenvalues", [value for row in portrait.eigenvalues for value in row], 2)
    if any(not row for row in portrait.eigenvalues):
        raise ValueError("eigenvalues must hold some of every letter")
    _check_sizes("eigenvalues", [part for row in portrait.eigenvalues for value in row for part in map(abs, value)])
    coordinates = [point for point in trajectory.points if point is not None] + trajectory.centres
    _check_sizes("trajectory", [abs(part) for point in coordinates for part in point])
    if portrait.leak is not None:
        _check_sizes("leak", [value for value in (*portrait.leak.mean, *portrait.leak.worst) if value is not None])
        _check_lengths("leak", [portrait.leak.mean, portrait.leak.worst], letters)
    if portrait.drift is not None:
        drift = portrait.drift
        curves = [drift.median, drift.worst, *drift.powers.values()]
        _check_sizes("drift", [drift.limit, *(value for curve in curves for value in curve if value is not None)])
        _check_lengths("drift", curves, len(drift.lengths))
        if not drift.lengths or not all(name in map(str, range(letters)) for name in drift.powers):
            raise ValueError("drift must have lengths, and powers of letters by their numbers")


def _check_sizes(name: str, values: Sequence[float]) -> None:
    if any(not 0 <= value <= _LARGEST for value in values):
        raise ValueError(f"{name} must hold distances between 0 and {_LARGEST:g}, or coordinates of that size")


def _check_machine(name: str, machine: Drawn, letters: int) -> None:
    _check_lengths(f"{name}.transitions", machine.transitions, letters)
    for row in machine.transitions:
        _check_range(f"{name}.transitions", row, machine.states)
    _check_range(f"{name}.start", [machine.start], machine.states)
    _check_range(f"{name}.sink", [] if machine.sink is None else [machine.sink], machine.states)
    if machine.start == machine.sink:
        raise ValueError(f"{name}.start must not be its sink, which is not drawn")
    if machine.labels is not None:
        _check_lengths(f"{name}.labels", [machine.labels], machine.states)


def _check_range(name: str, numbers: Sequence[int], count: int) -> None:
    if any(not 0 <= number < count for number in numbers):
        raise ValueError(f"{name} must lie in [0, {count})")


def _check_lengths(name: str, lists: Sequence[Sequence[object]], length: int) -> None:
    if any(len(each) != length for each in lists):
        raise ValueError(f"{name} must have {length} entries, as what stands beside it has")
