"""The tasks that every law is tried on: the registry, and parameters that change what a task is like."""

from __future__ import annotations

from itertools import product

import torch

from transductor.tasks import TASKS

NAMES = [
    *TASKS,
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
]


def all_words(letters: int, length: int) -> torch.Tensor:
    """Every word of one length, ``(letters**length, length)``."""
    return torch.tensor(list(product(range(letters), repeat=length)))


def generator(seed: int = 0) -> torch.Generator:
    return torch.Generator().manual_seed(seed)
