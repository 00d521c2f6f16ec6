"""Writes four data sets to try ``transductor fit`` on: ``python examples/data/make_examples.py FOLDER``.

Each is drawn from a small machine that is written out below, so what ``fit`` answers can be compared with the truth:

* ``doors.txt`` and ``doors.labels``: the log of a door with an alarm, and whether the alarm rings at the end;
* ``vending.jsonl``: coins in a vending machine, and what it does after every one of them;
* ``tcp.csv``: events of a TCP connection, and after each of them whether it is closed, opening, open or closing;
* ``editor.jsonl``: keys pressed in an editor with modes, and its mode at the end.
"""

from __future__ import annotations

import argparse
import csv
import json
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Machine:
    """A finite machine written in words; an event that a state does not list leaves the state as it is.

    Attributes:
        start: The first state.
        events: All words that can be read.
        moves: For every state, the next state after the events that change it.
        labels: The label of every state.
        rare: Events that a log has seldom.
    """

    start: str
    events: tuple[str, ...]
    moves: Mapping[str, Mapping[str, str]]
    labels: Mapping[str, str]
    rare: frozenset[str] = frozenset()

    def after(self, state: str, event: str) -> str:
        """Return the state after an event."""
        return self.moves[state].get(event, state)

    def label(self, events: list[str]) -> str:
        """Return the label after these events."""
        return self.each_label(events)[-1] if events else self.labels[self.start]

    def each_label(self, events: list[str]) -> list[str]:
        """Return the label after every one of these events."""
        state, labels = self.start, []
        for event in events:
            state = self.after(state, event)
            labels.append(self.labels[state])
        return labels

    def drawn(self, generator: random.Random, shortest: int, longest: int, quiet: float) -> list[str]:
        """Draw events; one that changes nothing is kept with probability ``quiet``, so that logs are lively."""
        events: list[str] = []
        state, length = self.start, generator.randint(shortest, longest)
        while len(events) < length:
            event = generator.choice(self.events)
            kept = quiet if self.after(state, event) == state else 0.15 if event in self.rare else 1.0
            if generator.random() < kept:
                events.append(event)
                state = self.after(state, event)
        return events


DOORS = Machine(
    start="closed",
    events=("open", "close", "arm", "disarm", "wait"),
    moves={
        "closed": {"open": "opened", "arm": "armed"},
        "opened": {"close": "closed", "arm": "leaving"},
        "leaving": {"close": "armed", "disarm": "opened", "wait": "ringing"},
        "armed": {"open": "ringing", "disarm": "closed"},
        "ringing": {"close": "ringing shut", "disarm": "opened"},
        "ringing shut": {"open": "ringing", "disarm": "closed"},
    },
    labels={
        "closed": "quiet",
        "opened": "quiet",
        "leaving": "quiet",
        "armed": "quiet",
        "ringing": "alarm",
        "ringing shut": "alarm",
    },
)

_CREDITS = {0: "0", 5: "5", 10: "10"}


def _vending() -> Machine:
    """Return a machine that sells for 15: nickels and dimes go in, a drink and perhaps a nickel come out."""
    paid = {"drink": 0, "drink and change": 0, "coins back": 0}
    credit = {**{name: number for number, name in _CREDITS.items()}, **paid}
    moves: dict[str, dict[str, str]] = {}
    for state, held in credit.items():
        step = {}
        for coin, value in (("nickel", 5), ("dime", 10)):
            total = held + value
            step[coin] = _CREDITS.get(total, "drink" if total == 15 else "drink and change")
        step["cancel"] = "coins back" if held else "0"
        moves[state] = step
    labels = {state: state if state in paid else "waits" for state in credit}
    return Machine("0", ("nickel", "dime", "cancel"), moves, labels)


VENDING = _vending()

TCP = Machine(
    start="closed",
    events=("listen", "connect", "syn", "synack", "ack", "close", "fin", "reset", "timeout"),
    moves={
        "closed": {"listen": "listening", "connect": "syn sent"},
        "listening": {"syn": "syn received", "connect": "syn sent", "close": "closed"},
        "syn sent": {"synack": "established", "syn": "syn received", "close": "closed", "reset": "closed"},
        "syn received": {"ack": "established", "close": "fin wait 1", "reset": "listening"},
        "established": {"close": "fin wait 1", "fin": "close wait", "reset": "closed"},
        "fin wait 1": {"ack": "fin wait 2", "fin": "closing", "reset": "closed"},
        "fin wait 2": {"fin": "time wait", "reset": "closed"},
        "closing": {"ack": "time wait", "reset": "closed"},
        "time wait": {"timeout": "closed"},
        "close wait": {"close": "last ack", "reset": "closed"},
        "last ack": {"ack": "closed", "reset": "closed"},
    },
    labels={
        "closed": "closed",
        "listening": "closed",
        "syn sent": "opening",
        "syn received": "opening",
        "established": "open",
        "fin wait 1": "closing",
        "fin wait 2": "closing",
        "closing": "closing",
        "time wait": "closing",
        "close wait": "open",
        "last ack": "closing",
    },
    rare=frozenset({"reset"}),
)

EDITOR = Machine(
    start="normal",
    events=("i", "v", ":", "x", "escape", "enter"),
    moves={
        "normal": {"i": "insert", "v": "visual", ":": "command"},
        "insert": {"escape": "normal"},
        "visual": {"escape": "normal", "v": "normal", "x": "normal", ":": "command"},
        "command": {"escape": "normal", "enter": "normal"},
    },
    labels={"normal": "normal", "insert": "insert", "visual": "visual", "command": "command"},
)


def write_doors(folder: Path, count: int, generator: random.Random) -> list[Path]:
    """Write the log of the door: plain text with a parallel file of labels."""
    rows = [DOORS.drawn(generator, 3, 39, quiet=0.5) for _ in range(count)]
    paths = folder / "doors.txt", folder / "doors.labels"
    paths[0].write_text("".join(" ".join(row) + "\n" for row in rows))
    paths[1].write_text("".join(DOORS.label(row) + "\n" for row in rows))
    return list(paths)


def write_vending(folder: Path, count: int, generator: random.Random) -> list[Path]:
    """Write the coins: JSONL with a label after every token."""
    rows = [VENDING.drawn(generator, 1, 30, quiet=1.0) for _ in range(count)]
    path = folder / "vending.jsonl"
    path.write_text(
        "".join(json.dumps({"tokens": row, "labels": VENDING.each_label(row)}) + "\n" for row in rows),
    )
    return [path]


def write_tcp(folder: Path, count: int, generator: random.Random) -> list[Path]:
    """Write the connections: CSV with the columns ``events`` and ``connection``, a label after every event."""
    rows = [TCP.drawn(generator, 1, 40, quiet=0.3) for _ in range(count)]
    path = folder / "tcp.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("events", "connection"))
        writer.writerows((" ".join(row), " ".join(TCP.each_label(row))) for row in rows)
    return [path]


def write_editor(folder: Path, count: int, generator: random.Random) -> list[Path]:
    """Write the keys: JSONL with one label for each sequence."""
    rows = [EDITOR.drawn(generator, 0, 30, quiet=0.5) for _ in range(count)]
    path = folder / "editor.jsonl"
    path.write_text("".join(json.dumps({"tokens": row, "label": EDITOR.label(row)}) + "\n" for row in rows))
    return [path]


EXAMPLES: Mapping[str, tuple[Callable[[Path, int, random.Random], list[Path]], int]] = {
    "doors": (write_doors, 1500),
    "vending": (write_vending, 500),
    "tcp": (write_tcp, 1500),
    "editor": (write_editor, 1000),
}


def make(folder: Path, names: list[str] | None = None, *, seed: int = 0, count: int | None = None) -> list[Path]:
    """Write these data sets, all if none is named; the same seed writes the same files."""
    folder.mkdir(parents=True, exist_ok=True)
    written = []
    for name in names or list(EXAMPLES):
        write, usual = EXAMPLES[name]
        written += write(folder, count or usual, random.Random(f"{name} {seed}"))
    return written


def main() -> None:
    """Read the command line and write the files."""
    parser = argparse.ArgumentParser(description="Write the example data sets of transductor fit.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *EXAMPLES], help="All of them if none is named.")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--count", type=int, default=None, help="How many sequences each has.")
    arguments = parser.parse_args()
    for path in make(arguments.folder, arguments.names, seed=arguments.seed, count=arguments.count):
        print(path)


if __name__ == "__main__":
    main()
