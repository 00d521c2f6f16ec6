"""The statement of one scan, which every backend computes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from transductor.recurrence.grouped import matvec_by_token
from transductor.recurrence.semirings import SEMIRINGS, Semiring


@dataclass(frozen=True)
class Problem:
    """A checked scan.

    ``matrices`` is a table ``(V, D, D)`` when ``tokens (B, T)`` is given, else ``(B, T, D, D)``;
    ``bias (B, T, D)``; ``mask (B, T)``, true where the step is real; ``offsets (N + 1)`` are document
    boundaries of a packed row (then B = 1 and ``initial`` has a row per document, else one per batch row).
    ``start`` is that row where all are the same, ``(D)``, or all of them.
    """

    matrices: Tensor
    tokens: Tensor | None
    bias: Tensor | None
    start: Tensor
    mask: Tensor | None = None
    offsets: Tensor | None = None
    ring: str = "real"

    @property
    def semiring(self) -> Semiring:
        """The semiring; kept by name, because a compiler can follow a string where it cannot follow an object."""
        return SEMIRINGS[self.ring]

    @property
    def initial(self) -> Tensor:
        """The initial state of every row or document, ``(N, D)``."""
        return in_rows(self.start, self.batch if self.offsets is None else self.offsets.numel() - 1)

    @property
    def batch(self) -> int:
        """The batch size B."""
        return (self.matrices if self.tokens is None else self.tokens).shape[0]

    @property
    def time(self) -> int:
        """The number of steps T."""
        return (self.matrices if self.tokens is None else self.tokens).shape[1]

    @property
    def state_dim(self) -> int:
        """The dimension D of the state."""
        return self.matrices.shape[-1]


def in_rows(start: Tensor, rows: int) -> Tensor:
    """Return ``(D)`` or ``(N, D)`` as ``(N, D)``."""
    return start if start.ndim == 2 else start.expand(rows, -1)


def some_rows(problem: Problem, rows: Tensor) -> Problem:
    """Return the scan of these rows alone."""
    return replace(
        problem,
        matrices=problem.matrices[rows] if problem.tokens is None else problem.matrices,
        tokens=None if problem.tokens is None else problem.tokens[rows],
        bias=None if problem.bias is None else problem.bias[rows],
        start=problem.start if problem.offsets is not None else problem.initial[rows],
        mask=None if problem.mask is None else problem.mask[rows],
    )


def rows_side_by_side(
    size: int, in_dims: Sequence[int | None], operands: Sequence[Tensor | None]
) -> list[Tensor | None]:
    """Return the operands of ``size`` scans as those of one: matrices and tokens, then what has rows.

    ``in_dims`` says along which dimension of an operand the scans lie; None for one that all of them share.
    """
    values = [
        None if value is None else value.movedim(dim, 0) if dim is not None else value.expand(size, *value.shape)
        for value, dim in zip(operands, in_dims, strict=False)
    ]
    matrices, tokens = values[:2]
    assert matrices is not None
    if tokens is not None:
        symbols = matrices.shape[1]
        shift = symbols * torch.arange(size, device=tokens.device)[:, None, None]
        # An unknown token must not point to another scan's matrices.
        values[1] = torch.where((tokens >= 0) & (tokens < symbols), tokens + shift, size * symbols)
    return [None if value is None else value.flatten(0, 1) for value in values]


def documents(offsets: Tensor, time: int) -> tuple[Tensor, Tensor]:
    """Return for every position of a packed row its document ``(T)``, and whether the document begins there ``(T)``."""
    position = torch.arange(time, device=offsets.device)
    document = torch.searchsorted(offsets[1:], position, right=True)
    return document, offsets[document] == position


def folded(problem: Problem) -> Problem:
    """Return the same scan without mask and boundaries.

    A padded step becomes the identity without additive term.  At the first step of a document the matrix
    becomes zero and the additive term ``M α + b``, which is exact.  With tokens this costs two more rows of
    the table; with a matrix per position it costs one copy.
    """
    if problem.mask is None and problem.offsets is None:
        return problem
    semiring, dim = problem.semiring, problem.state_dim
    matrices, tokens, bias = problem.matrices, problem.tokens, problem.bias
    eye = semiring.identity(dim, matrices)
    nothing = torch.full_like(eye, semiring.zero)
    symbols = matrices.shape[0]
    if tokens is not None:
        matrices = torch.cat((matrices, eye[None], nothing[None]))
    if problem.mask is not None:
        if tokens is not None:
            tokens = tokens.where(problem.mask, symbols)
        else:
            matrices = matrices.where(problem.mask[..., None, None], eye)
        if bias is not None:
            bias = bias.where(problem.mask[..., None], semiring.zero)
    initial = problem.initial
    if problem.offsets is not None and problem.time:
        document, first_steps = documents(problem.offsets, problem.time)
        begins = first_steps[:, None]
        # The state after the first step of each document; for an empty document it is not used.
        first = problem.offsets[:-1].clamp_max(problem.time - 1)
        if tokens is not None:
            arrived = matvec_by_token(matrices, tokens[0, first], initial, semiring)[document]
            tokens = tokens.where(~first_steps, symbols + 1)
        else:
            arrived = semiring.matvec(matrices[0, first], initial)[document]
            matrices = matrices.where(~begins[..., None], nothing)
        if bias is None:
            bias = arrived.where(begins, semiring.zero)[None]
        else:
            bias = semiring.add(arrived, bias[0]).where(begins, bias[0])[None]
        initial = torch.full((1, dim), semiring.zero, dtype=initial.dtype, device=initial.device)
    return replace(problem, matrices=matrices, tokens=tokens, bias=bias, start=initial, mask=None, offsets=None)
