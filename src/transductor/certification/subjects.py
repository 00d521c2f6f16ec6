"""What a certificate is about: the numbers of a head and of the layers that read it, taken out of the model."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor, nn

from transductor.certification.attention_tensors import NotAnalysed, attention_tensors
from transductor.certification.ball_arithmetic import Array, gamma
from transductor.certification.formats import FORMATS, Format
from transductor.certification.unaltered import check_unaltered
from transductor.checks import working_dtype
from transductor.heads import RationalHead
from transductor.model import NoAttention, NoPositions, RationalReadout, RationalTransductor

# Up to here, and down to its inverse, no sum or product of a few numbers leaves the range of the format.
SAFE_RANGE: Final = {"float64": 2.0**900, "float32": 2.0**100, "float16": 2.0**10, "bfloat16": 2.0**100}
_SCANNED: Final = ("float64", "float32")


@dataclass(frozen=True)
class Attention:
    """How the layers of a stream attend: with so many heads, to all positions or to a window of them."""

    heads: int
    window: int | None = None

    def __post_init__(self) -> None:
        for name, value in vars(self).items():
            if not (type(value) is int and value > 0) and not (name == "window" and value is None):
                raise ValueError(f"attention.{name} must be a positive integer; got {value!r}")


@dataclass(frozen=True, eq=False)
class Subject:
    """The numbers of a head, and of the linear map or the residual stream that reads its states.

    Attributes:
        table: ``(V, D, D)``, float32 or float64 as the scan multiplies them.
        initial: ``(D)``, of the same dtype.
        weight: ``(K, D)``, or ``(K, 2D)`` for a head that also shows its previous state; None without a readout.
        bias: ``(K)``.
        precision: The dtype in which the readout or the stream is computed.
        lookback: Whether the head shows ``[h_t ; h_{t−1}]``.
        stream: The tensors of a residual stream, by their names in the model; empty without one.
        attention: How that stream attends; None if its logits depend on token and state alone.
        streamed: Whether single steps of a stream multiply the numbers of the table too, and not factors of them.
    """

    table: Array
    initial: Array
    weight: Array | None = None
    bias: Array | None = None
    precision: str = "float32"
    lookback: bool = False
    stream: Mapping[str, Array] = field(default_factory=dict)
    streamed: bool = True
    attention: Attention | None = None

    def __post_init__(self) -> None:
        dim = self.initial.shape[-1] if self.initial.ndim else 0
        if self.table.ndim != 3 or self.initial.shape != (dim,) or self.table.shape[1:] != (dim, dim) or dim == 0:
            raise ValueError(f"table must be (V, D, D) and initial (D,); got {self.table.shape}, {self.initial.shape}")
        if self.table.dtype != self.initial.dtype or self.table.dtype.name not in _SCANNED:
            raise ValueError(
                f"table and initial must both be float32 or float64; got {self.table.dtype}, {self.initial.dtype}"
            )
        if self.precision not in FORMATS:
            raise ValueError(f"precision must be one of {', '.join(FORMATS)}; got {self.precision!r}")
        if (self.weight is None) != (self.bias is None):
            raise ValueError("weight and bias are given together or not at all")
        if self.weight is not None and self.bias is not None:
            shape = (*self.bias.shape[-1:], self.output_dim)
            if self.weight.ndim != 2 or self.bias.ndim != 1 or self.weight.shape != shape or 0 in shape:
                raise ValueError(
                    f"weight must be (K, {self.output_dim}) and bias (K,); got {self.weight.shape}, {self.bias.shape}"
                )
        for name, values in self.tensors().items():
            if not np.isfinite(values).all():
                raise ValueError(f"{name} must hold finite numbers; it has NaN or infinity")

    @property
    def dim(self) -> int:
        """The dimension D of a state."""
        return len(self.initial)

    @property
    def output_dim(self) -> int:
        """How many numbers leave the head at a position: D, or 2D where it looks back."""
        return 2 * self.dim if self.lookback else self.dim

    @property
    def letters(self) -> int:
        """The number V of letters, one for each token."""
        return len(self.table)

    @property
    def classes(self) -> int | None:
        """How many labels the readout tells apart; one output is a threshold and tells two."""
        bias = self.stream.get("readout.bias", self.bias)
        return None if bias is None else max(2, len(bias))

    @property
    def gives_labels(self) -> bool:
        """Whether anything here turns states into labels."""
        return self.weight is not None or bool(self.stream)

    @property
    def mantissa(self) -> int:
        """How many bits the scan's arithmetic has."""
        return self.scanned.bits

    @property
    def scanned(self) -> Format:
        """The format of the scan."""
        return FORMATS[self.table.dtype.name]

    @property
    def read(self) -> Format:
        """The format in which states are read."""
        return FORMATS[self.precision]

    @property
    def range(self) -> float:
        """How large numbers of the scan may become without danger of overflow."""
        return SAFE_RANGE[self.table.dtype.name]

    def readout(self) -> tuple[Array, Array]:
        """Return weight and bias as they are stored; there must be a readout."""
        assert self.weight is not None
        assert self.bias is not None
        return self.weight, self.bias

    def readout_error(self) -> float:
        """Return the relative error of a logit, in units of the sum of the absolute values of its terms."""
        return gamma(self.output_dim + 4, self.read.unit)

    def step_error(self) -> float:
        """Return the relative error, entry by entry, of a product of two matrices of the scan."""
        smallest = self.scanned.lost * 2.0**60 * self.dim**2
        return gamma(self.dim, self.scanned.unit) + smallest

    def tensors(self) -> dict[str, Array]:
        """Return all arrays by name."""
        out = {"table": self.table, "initial": self.initial}
        if self.weight is not None and self.bias is not None:
            out |= {"weight": self.weight, "bias": self.bias}
        return out | {f"stream.{name}": values for name, values in self.stream.items()}


def subject_of(model_or_head: Any, readout: Any = None) -> tuple[Subject, str]:
    """Return the numbers of a model, and what a statement can be about: ``"labels"``, ``"model"`` or ``"head"``."""
    if not isinstance(model_or_head, RationalReadout | RationalTransductor | RationalHead):
        raise TypeError(
            "model_or_head must be a RationalReadout, a RationalTransductor or a RationalHead; "
            f"got {type(model_or_head).__name__}"
        )
    check_unaltered(model_or_head)
    if isinstance(model_or_head, RationalHead):
        return _with_readout(model_or_head, readout), "head" if readout is None else "labels"
    if readout is not None:
        raise ValueError(f"readout must be left out: a {type(model_or_head).__name__} has its own")
    if isinstance(model_or_head, RationalReadout):
        return _with_readout(model_or_head.rational_head, model_or_head.readout), "labels"
    head, stream = model_or_head.rational_head, _stream_tensors(model_or_head)
    if stream is not None:
        precision = _dtype_name(model_or_head.backbone.readout.weight)
        _check_one_precision(model_or_head, precision)
        return _with_readout(head, None, stream=stream, precision=precision), "model"
    attended = _attended(model_or_head)
    return _with_readout(head, None, **attended), "model" if attended else "head"


def _attended(model: RationalTransductor) -> dict[str, Any]:
    """Return stream, attention and precision of a model whose labels can be analysed; nothing for another."""
    kind = model.backbone.config.attention
    precision = _dtype_name(model.backbone.readout.weight)
    if isinstance(kind, NoAttention) or model.output_size < 2 or precision not in _SCANNED:
        return {}
    try:
        stream = attention_tensors(model)
    except NotAnalysed:
        return {}
    attention = Attention(model.backbone.config.attention_heads, getattr(kind, "window", None))
    return {"stream": stream, "attention": attention, "precision": precision}


def _with_readout(head: RationalHead, readout: Any, **more: Any) -> Subject:
    if head.transitions.vocab_size is None:
        raise ValueError("model_or_head must be driven by tokens; it is driven by features")
    if not head.linear:
        raise ValueError("model_or_head must have a linear head; a filter is compared by certify_filter")
    with torch.no_grad():
        table = head.transitions.table()
        initial = head.initial_state().to(working_dtype(table.dtype))
        streamed = head.stepper(table).multiplies_table
    if readout is not None:
        if isinstance(readout, nn.Module):
            check_unaltered(readout)
        weight, bias = linear_of(readout)
        if weight.dtype != bias.dtype:
            raise ValueError(f"readout must have weight and bias of one dtype; got {weight.dtype} and {bias.dtype}")
        more |= {"precision": _dtype_name(weight), "weight": _array(weight), "bias": _array(bias)}
    initial_array = _array(initial).astype(_array(table).dtype)
    return Subject(_array(table), initial_array, lookback=head.shows_previous, streamed=streamed, **more)


def _check_one_precision(model: RationalTransductor, precision: str) -> None:
    """Refuse a stream in several precisions, whose additions would widen or narrow what was analysed."""
    for name, parameter in (*model.backbone.named_parameters(), *model.injection.named_parameters()):
        if _dtype_name(parameter) != precision:
            raise ValueError(
                f"model_or_head must have a stream of one precision; its readout is {precision} and {name} is "
                f"{_dtype_name(parameter)}"
            )


def _dtype_name(tensor: Tensor) -> str:
    return str(tensor.dtype).removeprefix("torch.")


def linear_of(readout: Any) -> tuple[Tensor, Tensor]:
    """Return weight ``(K, D)`` and bias ``(K)`` of a linear map, a pair or a weight alone."""
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


def _array(tensor: Tensor) -> Array:
    """Return a copy as numpy; half precisions are widened, which changes no number."""
    tensor = tensor.detach().cpu()
    return np.array((tensor if tensor.dtype == torch.float64 else tensor.float()).numpy())


def _stream_tensors(model: RationalTransductor) -> dict[str, Array] | None:
    """Return the arrays of a stream whose logits depend on token and state alone; None where they depend on more."""
    config, backbone = model.backbone.config, model.backbone
    if not isinstance(config.attention, NoAttention) or not isinstance(config.positions, NoPositions):
        return None
    if model.training and config.dropout > 0:
        raise ValueError("model_or_head must be in evaluation mode: call model.eval(), or dropout makes it random")
    out = {"embedding": _array(backbone.embedding.weight)}
    if model.injection.projections is not None:
        out["projections"] = _parameters("", model.injection.projections, nn.Linear)[".weight"]
    for number, block in enumerate(backbone.blocks):
        name = f"block{number}"
        out |= _parameters(f"{name}.norm", block.get_submodule("feedforward_norm"), nn.LayerNorm)
        into, gelu, back = block.get_submodule("feedforward").children()
        if type(gelu) is not nn.GELU or gelu.approximate != "none":
            raise ValueError(f"model_or_head must have exact GELU between its linear maps; got {gelu}")
        out |= _parameters(f"{name}.into", into, nn.Linear) | _parameters(f"{name}.back", back, nn.Linear)
    out |= _parameters("norm", backbone.final_norm, nn.LayerNorm)
    return out | _parameters("readout", backbone.readout, nn.Linear)


def _parameters(name: str, module: nn.Module, kind: type[nn.Module]) -> dict[str, Array]:
    """Return the arrays of a linear map or a layer norm that is exactly of the given kind: wrappers change results."""
    if type(module) is not kind:
        wanted = "linear maps" if kind is nn.Linear else "layer norms"
        raise ValueError(f"model_or_head must have plain {wanted}; got a {type(module).__name__}")
    values = {f"{name}.{part}": _array(parameter) for part, parameter in module.named_parameters()}
    return values | ({f"{name}.eps": np.array([module.eps])} if isinstance(module, nn.LayerNorm) else {})
