"""A workload is a case to scan, with operands drawn for it and the least that any scan must move and compute."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import torch
from torch import Tensor

from transductor.checks import check_positive, one_of
from transductor.configuration import LATER, configuration

DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float64": torch.float64}
ACTS = ("forward", "forward_backward")

# Matrices are drawn from this many rotations: a QR of every position would take longer than the study.
_POOL = 256


@configuration
@dataclass(frozen=True)
class Case:
    """One scan: its sizes, and its options.

    ``symbols`` is V; 0 stands for one dense matrix per position.  ``documents`` > 0 packs that many into the row.
    ``padded`` masks steps: a third at the start of even rows, a third at the end of odd ones, and some in between.
    ``blocks`` > 1 makes the matrices direct sums of so many of equal size.
    """

    batch: int
    time: int
    dim: int = 16
    symbols: int = 8
    dtype: str = "float32"
    bias: bool = False
    documents: int = 0
    padded: bool = False
    blocks: int = field(default=1, metadata=LATER)

    def __post_init__(self) -> None:
        for name in ("batch", "time", "dim"):
            check_positive(name, getattr(self, name))
        one_of("dtype", self.dtype, DTYPES)
        if self.documents and (self.batch != 1 or self.time % self.documents):
            raise ValueError(f"documents must divide the time of one row; got {self}")
        if self.blocks < 1 or self.dim % self.blocks:
            raise ValueError(f"blocks must divide the dimension; got {self}")

    @property
    def label(self) -> str:
        """The state dimension, the matrices, and every option that is not the default."""
        options = {
            self.dtype: self.dtype != "float32",
            "bias": self.bias,
            f"{self.documents} documents": self.documents,
            "mask": self.padded,
            f"{self.blocks} blocks": self.blocks > 1,
        }
        matrices = f"V={self.symbols}" if self.symbols else "dense"
        return ", ".join([f"d={self.dim}", matrices, *(name for name, chosen in options.items() if chosen)])

    def __str__(self) -> str:
        return f"B={self.batch}, T={self.time}, {self.label}"


@dataclass(frozen=True)
class Operands:
    """The tensors of one case; ``cotangent`` is the gradient that arrives at the states."""

    case: Case
    matrices: Tensor
    tokens: Tensor | None
    start: Tensor
    cotangent: Tensor
    bias: Tensor | None = None
    cu_seqlens: Tensor | None = None
    mask: Tensor | None = None

    @property
    def plain(self) -> bool:
        """Whether these are a table and tokens and nothing else."""
        return self.tokens is not None and self.bias is None and self.cu_seqlens is None and self.mask is None

    def to(self, device: str | torch.device, dtype: torch.dtype) -> Operands:
        """Move the numbers to a device, in another precision."""

        def moved(value: Tensor | None) -> Any:
            return value if value is None else value.to(device, dtype if value.is_floating_point() else value.dtype)

        return replace(self, **{name: moved(value) for name, value in vars(self).items() if name != "case"})


def draw(case: Case, device: str, seed: int) -> Operands:
    """Draw rotations, tokens, start and cotangent; no two seeds give the same, and nothing is zero."""
    source = torch.Generator().manual_seed(seed)
    dtype, rows = DTYPES[case.dtype], (case.batch, case.time)
    count = min(case.symbols or _POOL, _POOL)
    size = case.dim // case.blocks
    pool = torch.linalg.qr(torch.randn(case.blocks, count, size, size, generator=source))[0].contiguous()
    if case.blocks > 1:
        pool = torch.stack([torch.block_diag(*pool[:, number]) for number in range(count)])
    pool = pool.view(count, case.dim, case.dim).to(device, dtype)
    tokens = torch.randint(0, case.symbols or count, rows, generator=source).to(device)
    matrices = pool
    if not case.symbols:
        matrices = pool[tokens]
    elif case.symbols > count:
        matrices = pool[torch.randint(0, count, (case.symbols,), generator=source).to(device)]

    def noise(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=source).to(device, dtype)

    return Operands(
        case,
        matrices,
        tokens if case.symbols else None,
        noise(case.dim),
        noise(*rows, case.dim),
        noise(*rows, case.dim) / case.time**0.5 if case.bias else None,
        torch.arange(0, case.time + 1, case.time // case.documents, device=device) if case.documents else None,
        _mask(rows, source).to(device) if case.padded else None,
    )


def _mask(rows: tuple[int, int], source: torch.Generator) -> Tensor:
    """Return ``(B, T)``, true where a step is real; every row has at least one real step."""
    batch, time = rows
    index, padding = torch.arange(time), time // 3
    mask = torch.rand(rows, generator=source) < 0.8
    for row in range(batch):
        kept = index < time - padding if row % 2 else index >= padding
        mask[row] = (mask[row] & kept) | (index == (0 if row % 2 else padding))
    return mask


@dataclass(frozen=True)
class Ceilings:
    """What this computer was measured to do per second: bytes of a large copy, operations of large matrix products."""

    bytes_per_second: float
    float32: float
    float64: float


@dataclass(frozen=True)
class Floor:
    """The least a scan can cost; ``chunk_operations`` are the products a parallel scan adds, outside the floor."""

    bytes: int
    operations: int
    chunk_operations: int
    seconds: float
    chunk_seconds: float
    bound_by: str


def floor_of(case: Case, act: str, ceilings: Ceilings) -> Floor:
    """Count every operand read once, every result written once in each pass, and the recurrence on vectors alone.

    Backward reads tokens, matrices, states and cotangent, and writes the gradients of matrices and additive term;
    it takes one adjoint step and one outer product per position.
    """
    positions, size = case.batch * case.time, DTYPES[case.dtype].itemsize
    states = positions * case.dim * size
    used = min(case.symbols, positions) if case.symbols else positions
    tokens = 8 * positions if case.symbols else 0
    inputs = tokens + used * case.dim**2 * size + (states if case.bias else 0)
    moved, operations = inputs + states, 2 * positions * case.dim**2
    if act == "forward_backward":
        gradients = (case.symbols or positions) * case.dim**2 * size + (states if case.bias else 0)
        moved += tokens + used * case.dim**2 * size + 2 * states + gradients
        operations *= 3
    rate = ceilings.float64 if case.dtype == "float64" else ceilings.float32
    by_bytes, by_operations = moved / ceilings.bytes_per_second, operations / rate
    chunk_operations = 2 * positions * case.dim**3
    return Floor(
        bytes=moved,
        operations=operations,
        chunk_operations=chunk_operations,
        seconds=max(by_bytes, by_operations),
        chunk_seconds=chunk_operations / rate,
        bound_by="bytes" if by_bytes >= by_operations else "operations",
    )
