"""What a portrait holds: plain numbers, so that figures can be drawn from a file where torch is not installed."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transductor.json_reading import read_json
from transductor.results import write_atomically


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

    def write(self, path: str | Path) -> Path:
        """Write as JSON, atomically."""
        plain = asdict(self)
        for machine in (plain["learned"], plain["target"]):
            if machine is not None and machine["sink"] is None:
                del machine["sink"]
        return write_atomically(path, (json.dumps(plain, allow_nan=False) + "\n").encode())


def read_portrait(path: str | Path) -> Portrait:
    """Read what :meth:`Portrait.write` wrote; an error names a file that is no portrait."""
    parts: dict[str, Any] = {
        "trajectory": Trajectory, "learned": Drawn, "target": Drawn, "drift": Drift, "leak": Leak,
    }  # fmt: skip
    try:
        plain = read_json(path)
        for name, kind in parts.items():
            plain[name] = None if plain[name] is None else kind(**plain[name])
        return Portrait(**plain)
    except (ValueError, TypeError, KeyError) as error:
        raise ValueError(f"{path} is no portrait: {error}") from error
