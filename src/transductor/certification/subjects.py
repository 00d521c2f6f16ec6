"""What a certificate is about: the numbers of a head and of what reads it, taken out of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from transductor.certification.balls import Array, gamma
from transductor.checks import working_dtype
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalReadout, RationalTransductor

# Half the distance from 1 to the next number: the relative error of one operation.
UNITS: Final = {"float64": 2.0**-53, "float32": 2.0**-24, "float16": 2.0**-11, "bfloat16": 2.0**-8}
# Up to here, and down to its inverse, no sum or product of a few numbers leaves the range of the format.
RANGES: Final = {"float64": 2.0**900, "float32": 2.0**100, "float16": 2.0**10, "bfloat16": 2.0**100}
# Results smaller than this may be flushed to zero.
_SMALLEST: Final = {"float64": 2.0**-1022, "float32": 2.0**-126}


@dataclass(frozen=True, eq=False)
class Subject:
    """The numbers of a head, and of the linear map or the stream that reads its states.

    Attributes:
        table: ``(V, D, D)``, float32 or float64 as the scan multiplies them.
        initial: ``(D)``, of the same dtype.
        weight: ``(K, D)``, or ``(K, 2D)`` for a head that also shows its previous state; None without a readout.
        bias: ``(K)``.
        precision: The dtype in which the readout or the stream is computed.
        lookback: Whether the head shows ``[h_t ; h_{t−1}]``.
        stream: The tensors of a residual stream without attention, by their names in the model; empty without one.
    """

    table: Array
    initial: Array
    weight: Array | None = None
    bias: Array | None = None
    precision: str = "float32"
    lookback: bool = False
    stream: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        dim = self.initial.shape[-1] if self.initial.ndim else 0
        if self.table.ndim != 3 or self.initial.shape != (dim,) or self.table.shape[1:] != (dim, dim) or dim == 0:
            raise ValueError(f"table must be (V, D, D) and initial (D,); got {self.table.shape}, {self.initial.shape}")
        if self.table.dtype != self.initial.dtype or self.table.dtype.name not in _SMALLEST:
            raise ValueError(
                f"table and initial must both be float32 or float64; got {self.table.dtype}, {self.initial.dtype}"
            )
        if self.precision not in UNITS:
            raise ValueError(f"precision must be one of {', '.join(UNITS)}; got {self.precision!r}")
        if (self.weight is None) != (self.bias is None):
            raise ValueError("weight and bias are given together or not at all")
        if self.weight is not None and self.bias is not None:
            wanted = (*self.bias.shape[-1:], self.shown)
            if self.weight.ndim != 2 or self.bias.ndim != 1 or self.weight.shape != wanted or 0 in wanted:
                raise ValueError(
                    f"weight must be (K, {self.shown}) and bias (K,); got {self.weight.shape}, {self.bias.shape}"
                )
        for name, values in self.tensors().items():
            if not np.isfinite(values).all():
                raise ValueError(f"{name} must hold finite numbers; it has NaN or infinity")

    @property
    def letters(self) -> int:
        """V."""
        return len(self.table)

    @property
    def dim(self) -> int:
        """D."""
        return len(self.initial)

    @property
    def shown(self) -> int:
        """Numbers per position that leave the head."""
        return 2 * self.dim if self.lookback else self.dim

    @property
    def classes(self) -> int | None:
        """How many labels the readout tells apart; one output is a threshold and tells two."""
        bias = self.stream.get("readout.bias", self.bias)
        return None if bias is None else max(2, len(bias))

    @property
    def mantissa(self) -> int:
        """Bits of the scan's arithmetic."""
        return 24 if self.table.dtype == np.float32 else 53

    @property
    def range(self) -> float:
        """How large numbers of the scan may become without danger of overflow."""
        return RANGES[self.table.dtype.name]

    def step_error(self) -> float:
        """The relative error, entry by entry, of a product of two matrices of the scan."""
        smallest = _SMALLEST[self.table.dtype.name] * 2.0**60 * self.dim**2
        return gamma(self.dim, UNITS[self.table.dtype.name]) + smallest

    def tensors(self) -> dict[str, Array]:
        """All arrays by name."""
        out = {"table": self.table, "initial": self.initial}
        if self.weight is not None and self.bias is not None:
            out |= {"weight": self.weight, "bias": self.bias}
        return out | {f"stream.{name}": values for name, values in self.stream.items()}


def subject_of(model_or_head: Any, readout: Any = None) -> tuple[Subject, str]:
    """The numbers of a model, and what a statement about them can be about: ``"labels"``, ``"model"`` or ``"head"``."""
    match model_or_head:
        case RationalReadout():
            if readout is not None:
                raise ValueError("readout must be left out: a RationalReadout has its own")
            return _with_readout(model_or_head.rational_head, model_or_head.readout), "labels"
        case RationalTransductor():
            if readout is not None:
                raise ValueError("readout must be left out: a RationalTransductor has its own")
            return _of_transductor(model_or_head)
        case RationalHead():
            if readout is None:
                return _with_readout(model_or_head, None), "head"
            return _with_readout(model_or_head, readout), "labels"
    raise TypeError(
        "model_or_head must be a RationalReadout, a RationalTransductor or a RationalHead; "
        f"got {type(model_or_head).__name__}"
    )


def _with_readout(head: RationalHead, readout: Any, **more: Any) -> Subject:
    if head.transitions.vocab_size is None:
        raise ValueError("model_or_head must be driven by tokens; it is driven by features")
    with torch.no_grad():
        table = head.transitions.table()
        initial = head.initial_state().to(working_dtype(table.dtype))
    weight = bias = None
    if readout is not None:
        weight, bias = linear_of(readout)
        more["precision"] = str(weight.dtype).removeprefix("torch.")
    return Subject(
        array_of(table),
        array_of(initial).astype(array_of(table).dtype),
        None if weight is None else array_of(weight),
        None if bias is None else array_of(bias),
        lookback=isinstance(head, LookbackHead),
        **more,
    )


def linear_of(readout: Any) -> tuple[Tensor, Tensor]:
    """Weight ``(K, D)`` and bias ``(K)`` of a linear map, a pair or a weight alone."""
    weight, bias = (readout.weight, readout.bias) if isinstance(readout, nn.Linear) else (readout, None)
    if isinstance(readout, (tuple, list)) and len(readout) == 2:
        weight, bias = readout
    if not isinstance(weight, Tensor) or not weight.is_floating_point() or not isinstance(bias, Tensor | None):
        raise TypeError(
            "readout must be an nn.Linear, a weight (K, D) or a pair (weight, bias) of floating-point tensors; "
            f"got {type(readout).__name__}"
        )
    weight = weight if weight.ndim == 2 else weight[None] if weight.ndim == 1 else weight
    return weight, weight.new_zeros(len(weight)) if bias is None else bias.reshape(-1)


def array_of(tensor: Tensor) -> Array:
    """A copy as numpy; half precisions widened, which changes no number."""
    tensor = tensor.detach().cpu()
    return np.array((tensor if tensor.dtype == torch.float64 else tensor.float()).numpy())


def _of_transductor(model: RationalTransductor) -> tuple[Subject, str]:
    from transductor.certification.stream_bounds import stream_tensors

    head = model.rational_head
    stream = stream_tensors(model)
    if stream is None:
        return _with_readout(head, None), "head"
    precision = str(model.backbone.readout.weight.dtype).removeprefix("torch.")
    if precision == "float16":  # squares of a stream may overflow
        return _with_readout(head, None), "head"
    return _with_readout(head, None, stream=stream, precision=precision), "model"
