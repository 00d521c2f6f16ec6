"""The tasks that every law is tried on: the registry, and parameters that change what a task is like."""

from __future__ import annotations

from itertools import permutations, product

import torch

from transductor.tasks import TASKS

NAMES = [
    *(name for name in TASKS if name != "hidden_swaps"),
    "hidden_swaps:3",  # five things have 120 orders, which takes plain Python minutes
    "counting:1",
    "counting:2",
    "arithmetic:2",
    "arithmetic_left_to_right:3",
    "addition:2",
    "addition_carry_letter:2",
    "value:10",
    "value_last_digit_first:3",
    *(f"tomita:{number}" for number in range(2, 8)),
    "boolean:1",
    "copying:2",
    "group:Z6:named",
    "group:S4:swaps",
    "group:A5:2:3",
    "group:D4:named",
    "group:Z2xS3:named",
    "group:Z2xZ2:all",
    "repl_traces:2",
    "repl_traces_observed:3",
]


def all_words(letters: int, length: int) -> torch.Tensor:
    """Every word of one length, ``(letters**length, length)``."""
    return torch.tensor(list(product(range(letters), repeat=length)))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)


def values_to_print(task, word: list[int]) -> dict[int, int] | None:
    """How likely each value is to be printed after a trace that ends with ``print`` and a variable, as whole numbers.

    Every order of values is followed on its own.  ``None`` where the trace asks for none or could not have been drawn.
    """
    count, hidden = task.variables, 2 * task.variables
    assign, swap, reveal = hidden + 1, hidden + 2, hidden + 3
    weights = dict.fromkeys(permutations(range(count)), 1)
    names = {*range(count), *([hidden] if task.hidden else [])}
    for line in range(0, len(word), 3):
        statement, *rest = word[line : line + 3]
        number = line // 3
        if statement not in ((assign,) if number < count else (reveal,) if number == count else (swap, reveal)):
            return None
        if not rest:
            return None
        if statement == swap:
            if not set(rest) <= names or (len(rest) == 2 and rest[0] == rest[1] != hidden):
                return None
            if len(rest) < 2:
                return None
            after: dict[tuple[int, ...], int] = {}
            for order, weight in weights.items():
                for x, y in permutations(range(count), 2):
                    if rest[0] in (x, hidden) and rest[1] in (y, hidden):
                        other = list(order)
                        other[x], other[y] = order[y], order[x]
                        after[tuple(other)] = after.get(tuple(other), 0) + weight
            weights = after
            continue
        if rest[0] not in range(count) or (statement == assign and rest[0] != number):
            return None
        if len(rest) < 2:
            if statement == assign:
                return None
            told = dict.fromkeys(range(count), 0)
            for order, weight in weights.items():
                told[order[rest[0]]] += weight
            return told
        weights = {order: weight for order, weight in weights.items() if order[rest[0]] == rest[1] - count}
        if not weights:
            return None
    return None
