"""Regular languages to learn from labelled strings, and samples of them.

Four groups: Tomita's seven, the library's machines of at most twelve states, sixty random minimal machines of 2 to 10
states over 2 to 6 letters, and twenty languages of bracket, counter, ordering and arithmetic kind.  Beside them are
three languages that are not regular.

A sample has as many words of every class (where a length has any), lengths drawn evenly, and words drawn evenly from
those of their class and length.  Half of the words outside a language are near misses: words of the language with one
or two letters changed, dropped, doubled or exchanged.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache

import numpy as np
from numpy.typing import NDArray

from transductor.automata import MooreMachine
from transductor.automata.library import LIBRARY

LONGEST = 40
MOST_LIBRARY_STATES = 12
RANDOM_MACHINES = 60


@dataclass(frozen=True)
class Language:
    """A finite machine whose start carries the label of the empty word."""

    name: str
    group: str
    machine: MooreMachine

    @property
    def classes(self) -> int:
        return int(self.machine.outputs.max()) + 1


@dataclass(frozen=True)
class Sample:
    """Words with one label each; ``clean`` are the labels before some were made wrong."""

    words: list[list[int]]
    labels: list[int]
    clean: list[int]


def same_language(first: MooreMachine, second: MooreMachine) -> bool:
    """Whether two machines label every word alike, the empty one included."""
    alike_at_start = first.outputs[first.start] == second.outputs[second.start]
    return bool(alike_at_start) and first.letters == second.letters and first.separating_word(second) is None


def explored(
    start: Hashable, letters: int, step: Callable[..., Hashable], label: Callable[..., int | bool]
) -> MooreMachine:
    """The smallest machine of a step and a label written as Python functions."""
    return minimal(MooreMachine.explored(start, letters, step, lambda state: int(label(state))))


def minimal(machine: MooreMachine) -> MooreMachine:
    """The smallest machine with the same labels, that of the empty word included."""
    # One more letter leads from every state back to the start, so that the start's label is shown.
    back = np.full((machine.states, 1), machine.start)
    shown = MooreMachine(np.hstack([machine.transitions, back]), machine.outputs, machine.start).minimised()
    reduced = MooreMachine(shown.transitions[:, :-1], shown.outputs, shown.start)
    assert same_language(reduced, machine)
    return reduced


def languages() -> list[Language]:
    """All regular languages of the study."""
    return [*tomita(), *library(), *random_machines(), *crafted()]


def tomita() -> list[Language]:
    return [_of_library("tomita", number) for number in range(1, 8)]


def library() -> list[Language]:
    """The library's finite machines that have at most twelve states, at their default sizes and two others."""
    arguments = {"counter": (3, 5, 7), "cyclic": (4, 5, 6), "symmetric": (3,), "alternating": (4,), "adder": (2,)}
    machines = [
        _of_library(name, *([] if argument is None else [argument]))
        for name in LIBRARY
        if name != "tomita"
        for argument in arguments.get(name, (None,))
        if LIBRARY[name]().dfa is not None
    ]
    return [each for each in machines if each.machine.states <= MOST_LIBRARY_STATES]


def _of_library(name: str, *arguments: int) -> Language:
    named = LIBRARY[name](*arguments)
    assert named.dfa is not None
    group = "tomita" if name == "tomita" else "library"
    return Language(named.name, group, minimal(MooreMachine.from_dfa(named.dfa)))


@cache
def _random_tables() -> tuple[MooreMachine, ...]:
    random = np.random.default_rng(20)
    machines: list[MooreMachine] = []
    while len(machines) < RANDOM_MACHINES:
        states, letters = int(random.integers(2, 11)), int(random.integers(2, 7))
        table = random.integers(0, states, (states, letters))
        drawn = MooreMachine(table, random.integers(0, 2, states))
        if minimal(drawn).states == states:
            machines.append(minimal(drawn))
    return tuple(machines)


def random_machines() -> list[Language]:
    return [
        Language(f"random {number}: {each.states} states, {each.letters} letters", "random", each)
        for number, each in enumerate(_random_tables())
    ]


def crafted() -> list[Language]:
    """Twenty languages that a person would write down."""
    machines: dict[str, MooreMachine] = {
        "brackets to depth 2": _brackets(1, 2),
        "brackets to depth 4": _brackets(1, 4),
        "brackets to depth 3 with a filler": _brackets(1, 3, filler=True),
        "two kinds of brackets to depth 2": _brackets(2, 2),
        "two kinds of brackets to depth 3": _brackets(2, 3),
        "#a mod 4 = #b mod 4": explored(0, 2, lambda q, x: (q + (1, -1)[x]) % 4, lambda q: q == 0),
        "#a even and #b a multiple of 3": explored(
            (0, 0), 2, lambda q, x: ((q[0] + (x == 0)) % 2, (q[1] + (x == 1)) % 3), lambda q: q == (0, 0)
        ),
        "at least five a": explored(0, 3, lambda q, x: min(5, q + (x == 0)), lambda q: q == 5),
        "exactly three a": explored(0, 2, lambda q, x: min(4, q + (x == 0)), lambda q: q == 3),
        "count mod 5 with a reset": explored(0, 3, lambda q, x: 0 if x == 2 else (q + x) % 5, lambda q: q == 0),
        "a*b*c*": explored(0, 3, lambda q, x: x if x >= q and q < 3 else 3, lambda q: q < 3),
        "a*b*c*d*": explored(0, 4, lambda q, x: x if x >= q and q < 4 else 4, lambda q: q < 4),
        "every request is granted": explored(0, 3, lambda q, x: (1, 0, q)[x], lambda q: q == 0),
        "requests and grants alternate": explored(
            0, 3, lambda q, x: q if x == 2 else {(0, 0): 1, (1, 1): 0}.get((q, x), 2), lambda q: q < 2
        ),
        "third letter from the end is b": explored((0, 0, 0), 2, lambda q, x: (*q[1:], x), lambda q: q[0] == 1),
        "no factor abcab": _without_factor((0, 1, 2, 0, 1), 3),
        "binary multiples of 5": explored(0, 2, lambda q, x: (2 * q + x) % 5, lambda q: q == 0),
        "decimal multiples of 7": explored(0, 10, lambda q, x: (10 * q + x) % 7, lambda q: q == 0),
        "binary addition, column by column": explored(
            0, 8, lambda q, x: _column(q, x & 1, x >> 1 & 1, x >> 2), lambda q: q == 0
        ),
        "left-to-right arithmetic mod 3": explored(("", 0), 6, _calculated, lambda q: q == ("number", 0)),
    }
    return [Language(name, "crafted", each) for name, each in machines.items()]


def _brackets(kinds: int, depth: int, *, filler: bool = False) -> MooreMachine:
    """Balanced brackets: letters 0 … kinds − 1 open, the next ones close, then perhaps a letter without effect."""

    def step(stack: tuple[int, ...] | None, letter: int) -> tuple[int, ...] | None:
        if stack is None or letter == 2 * kinds:
            return stack
        if letter < kinds:
            return (*stack, letter) if len(stack) < depth else None
        return stack[:-1] if stack and stack[-1] == letter - kinds else None

    return explored((), 2 * kinds + filler, step, lambda stack: stack == ())


def _without_factor(factor: tuple[int, ...], letters: int) -> MooreMachine:
    def step(recent: tuple[int, ...], letter: int) -> tuple[int, ...]:
        return recent if recent == factor else (*recent, letter)[-len(factor) :]

    return explored((), letters, step, lambda recent: recent != factor)


def _column(carry: int, first: int, second: int, total: int) -> int:
    """Carry after a column of an addition, least significant first; 2 once a column was wrong."""
    return 2 if carry == 2 or (carry + first + second) % 2 != total else (carry + first + second) // 2


def _calculated(state: tuple[str, int], letter: int) -> tuple[str, int]:
    """Read digits 0 to 2 and the operators + (3), − (4), × (5) in turn, from left to right."""
    kind, value = state
    if kind in ("", "+", "-", "*") and letter < 3:
        result = {"": letter, "+": value + letter, "-": value - letter, "*": value * letter}[kind]
        return "number", result % 3
    return ("+-*"[letter - 3], value) if kind == "number" and letter >= 3 else ("wrong", 0)


def drawn(language: Language, count: int, seed: int, noise: float = 0.0, *, longest: int = LONGEST) -> Sample:
    """Draw labelled words; each label is replaced by another class with probability ``noise``."""
    random = np.random.default_rng(seed)
    machine, classes = language.machine, language.classes
    chances = _chances(machine, classes, longest)
    wanted = np.arange(count) % classes
    near_misses = (wanted == 0) & (np.arange(count) // classes % 2 == 1) & (classes == 2)
    words = _near_misses(machine, chances, int(near_misses.sum()), longest, random)
    for label in range(classes):
        missing = int((wanted == label).sum()) - (len(words) if label == 0 else 0)
        words += _words(machine, chances, label, missing, random)
    words = [words[each] for each in random.permutation(len(words))]
    clean = labels_of(machine, words)
    wrong = random.random(len(words)) < noise
    shifts = random.integers(1, classes, len(words)) if classes > 1 else np.zeros(len(words))
    labels = [(label + int(w) * int(shift)) % classes for label, w, shift in zip(clean, wrong, shifts, strict=True)]
    return Sample(words, labels, clean)


def drawn_irregular(name: str, count: int, seed: int, *, longest: int = LONGEST) -> Sample:
    """Draw labelled words of a language that no finite machine has, half of them in it, near misses included."""
    random = np.random.default_rng(seed)
    inside, member = IRREGULAR[name]
    words = []
    for number in range(count):
        word = inside(int(random.integers(0, longest + 1)), random)
        if number % 2:
            word = list(random.integers(0, 2, random.integers(0, longest + 1))) if number % 4 == 1 else word
            while member(word):
                word = _edited(word, 2, longest, random)
        words.append([int(letter) for letter in word])
    labels = [int(member(word)) for word in words]
    return Sample(words, labels, labels)


def _majority(length: int, random: np.random.Generator) -> list[int]:
    word = list(random.integers(0, 2, max(1, length)))
    return word if 2 * sum(word) > len(word) else _majority(length, random)


def _palindrome(length: int, random: np.random.Generator) -> list[int]:
    half = list(random.integers(0, 2, (length + 1) // 2))
    return half + half[: length // 2][::-1]


IRREGULAR: dict[str, tuple[Callable[..., list[int]], Callable[[Sequence[int]], bool]]] = {
    "majority": (_majority, lambda word: 2 * sum(word) > len(word)),
    "a^n b^n": (
        lambda length, random: [0] * (length // 2) + [1] * (length // 2),
        lambda word: list(word) == [0] * (len(word) // 2) + [1] * (len(word) // 2),
    ),
    "palindromes": (_palindrome, lambda word: list(word) == list(word)[::-1]),
}


def _chances(machine: MooreMachine, classes: int, longest: int) -> NDArray[np.float64]:
    """``[label, n, state]``: the share of words of n letters that lead from a state to the label, up to a factor."""
    chances = np.zeros((classes, longest + 1, machine.states))
    chances[:, 0] = machine.outputs == np.arange(classes)[:, None]
    for length in range(1, longest + 1):
        chances[:, length] = chances[:, length - 1][:, machine.transitions].mean(-1)
    return chances


def _words(
    machine: MooreMachine, chances: NDArray[np.float64], label: int, count: int, random: np.random.Generator
) -> list[list[int]]:
    """Draw words of a label, lengths evenly from those that have any; none where no length has."""
    lengths = np.flatnonzero(chances[label, :, machine.start])
    if not len(lengths) or not count:
        return []
    length_B = random.choice(lengths, count)
    word_BT = np.zeros((count, int(length_B.max())), dtype=np.int64)
    state_B = np.full(count, machine.start)
    for time in range(word_BT.shape[1]):
        left_B = np.maximum(length_B - time - 1, 0)
        weight_BL = chances[label, left_B[:, None], machine.transitions[state_B]]
        weight_BL[length_B <= time] = 1.0
        total_BL = np.cumsum(weight_BL, axis=1)
        letter_B = (total_BL <= random.random(count)[:, None] * total_BL[:, -1:]).sum(1)
        word_BT[:, time] = letter_B
        state_B = machine.transitions[state_B, letter_B]
    return [word[:length].tolist() for word, length in zip(word_BT, length_B, strict=True)]


def _near_misses(
    machine: MooreMachine, chances: NDArray[np.float64], count: int, longest: int, random: np.random.Generator
) -> list[list[int]]:
    """Words outside a language, one or two edits from one inside; fewer where twenty rounds do not give so many."""
    words: list[list[int]] = []
    for _ in range(20 if count else 0):
        inside = _words(machine, chances, 1, 2 * (count - len(words)) + 50, random)
        edited = [_edited(word, machine.letters, longest, random) for word in inside]
        labels = labels_of(machine, edited)
        words += [word for word, label in zip(edited, labels, strict=True) if label == 0][: count - len(words)]
    return words


def _edited(word: Sequence[int], letters: int, longest: int, random: np.random.Generator) -> list[int]:
    edited = [int(letter) for letter in word]
    for _ in range(int(random.integers(1, 3))):
        kind, at = int(random.integers(0, 4)), int(random.integers(0, len(edited) + 1))
        if kind == 0 and at < len(edited):
            edited[at] = int(random.integers(0, letters))
        elif kind == 1 and at < len(edited):
            del edited[at]
        elif kind == 2 and len(edited) < longest:
            edited.insert(at, int(random.integers(0, letters)))
        elif kind == 3 and at + 1 < len(edited):
            edited[at], edited[at + 1] = edited[at + 1], edited[at]
    return edited


def labels_of(machine: MooreMachine, words: Sequence[Sequence[int]]) -> list[int]:
    """The label of each word; lists are read several times as fast as arrays here."""
    rows, outputs, labels = machine.transitions.tolist(), machine.outputs.tolist(), []
    for word in words:
        state = machine.start
        for letter in word:
            state = rows[state][letter]
        labels.append(outputs[state])
    return labels


def labels_per_position(machine: MooreMachine, words: Sequence[Sequence[int]]) -> Iterator[list[int]]:
    """The label after every letter of each word."""
    for word in words:
        state, labels = machine.start, []
        for letter in word:
            state = int(machine.transitions[state, letter])
            labels.append(int(machine.outputs[state]))
        yield labels
