"""The compiled loops of moves with gains: each column has one entry.  Importing this imports numba."""

from __future__ import annotations

from transductor.kernels.cpu.vectors import Array, kernel


@kernel
def advance(
    images: Array,
    gains: Array,
    tokens: Array,
    bias: Array,
    initial: Array,
    states: Array,
    row: int,
    count: int,
    start: int,
    stride: int,
    steps: int,
    dim: int,
) -> None:
    """Compute the states of ``count`` rows from their initial states."""
    biased = bias.size > 0
    for n in range(count):
        for s in range(steps):
            p = start + n * stride + s
            at, to = tokens[p] * dim, p * dim
            for i in range(dim):
                states[to + i] = bias[to + i] if biased else 0
            if s == 0:
                for j in range(dim):
                    states[to + images[at + j]] += gains[at + j] * initial[(row + n) * dim + j]
            else:
                for j in range(dim):
                    states[to + images[at + j]] += gains[at + j] * states[to - dim + j]


@kernel
def retreat(
    images: Array,
    gains: Array,
    tokens: Array,
    grad: Array,
    adjoints: Array,
    outgoing: Array,
    row: int,
    count: int,
    start: int,
    stride: int,
    steps: int,
    dim: int,
) -> None:
    """Compute the adjoints of the same rows, and what they send back to the initial states."""
    for n in range(count):
        last = (start + n * stride + steps - 1) * dim
        for i in range(dim):
            adjoints[last + i] = grad[last + i]
        for s in range(steps - 1, 0, -1):
            p = start + n * stride + s
            at, to = tokens[p] * dim, p * dim
            for j in range(dim):
                adjoints[to - dim + j] = grad[to - dim + j] + gains[at + j] * adjoints[to + images[at + j]]
        p = start + n * stride
        at, to = tokens[p] * dim, p * dim
        for j in range(dim):
            outgoing[(row + n) * dim + j] = gains[at + j] * adjoints[to + images[at + j]]
