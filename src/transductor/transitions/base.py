"""The contract of a family of transition matrices, and the constructor that most families share."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, ClassVar, Required, TypedDict

import torch
from torch import Tensor, nn

from transductor.checks import check_positive, working_dtype
from transductor.configuration import configuration
from transductor.kernels.precise import full_precision
from transductor.transitions.laws import Law


@dataclass(frozen=True)
class Stepper:
    """One step of a stream: state ``(B, D)`` and drive, tokens ``(B)`` or features ``(B, F)``, to the next ``(B, D)``.

    All tensors computed for ``step(state, drive, *kept)`` are in ``kept``, so that a caller who needs them at fixed
    addresses can replace them by copies.  ``by_table`` says that ``kept`` is one table ``(V, D, D)`` and a step is the
    product with the token's matrix.  ``moves`` says that a step does no arithmetic at all.
    """

    step: Callable[..., Tensor]
    kept: tuple[Tensor, ...] = ()
    by_table: bool = False
    moves: bool = False

    @property
    def multiplies_table(self) -> bool:
        """Whether a step computes with the very numbers of the table, and not with factors of them."""
        return self.by_table or self.moves

    def __call__(self, state: Tensor, drive: Tensor) -> Tensor:
        """Return the state after ``drive``."""
        return self.step(state, drive, *self.kept)

    @classmethod
    def by_matrices(cls, table: Tensor) -> Stepper:
        """Return the step that multiplies by the token's matrix of a table ``(V, D, D)``."""
        return cls(lambda state, tokens, table: matvec(table.index_select(0, tokens), state), (table,), by_table=True)

    @classmethod
    def of_parts(cls, parts: Sequence[Stepper], step: Callable[..., Tensor], *own: Tensor) -> Stepper:
        """Return a stepper over the steppers of parts: ``step(state, drive, parts, *own)``."""
        functions, sizes = [part.step for part in parts], [len(part.kept) for part in parts]

        def composed(state: Tensor, drive: Tensor, *kept: Tensor) -> Tensor:
            rest = iter(kept)
            shares = [tuple(itertools.islice(rest, size)) for size in sizes]
            return step(state, drive, [cls(*part) for part in zip(functions, shares, strict=True)], *rest)

        return cls(composed, (*itertools.chain.from_iterable(part.kept for part in parts), *own))


def matvec(matrices: Tensor, states: Tensor) -> Tensor:
    """Apply matrices ``(..., D, E)`` to states ``(..., E)``."""
    if torch.compiler.is_compiling() and not torch.is_grad_enabled():  # one kernel with the gather of the matrices
        return (matrices * states.unsqueeze(-2)).sum(-1)
    if matrices.ndim == 3 and states.ndim == 2:  # the case of decoding, once per token
        return torch.bmm(matrices, states.unsqueeze(-1)).squeeze(-1)
    return (matrices @ states.unsqueeze(-1)).squeeze(-1)


@torch.no_grad()
def only_moves(table: Tensor) -> bool:
    """Tell whether matrices ``(V, D, D)`` hold 0, 1 and −1 alone, at most one that is not 0 in each row or column."""
    entries = table.abs()
    if table.is_meta or not ((entries == 0) | (entries == 1)).all():
        return False
    return bool((entries.sum(-1) <= 1).all()) or bool((entries.sum(-2) <= 1).all())


@configuration
@dataclass(frozen=True)
class FamilySpec:
    """What it takes to build a family again: its name, its arguments, and the specs of its parts."""

    family: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[FamilySpec, ...] = ()


class TransitionFamily(nn.Module, ABC):
    """A family gives one matrix per token, or one per feature vector.  Its subclasses are final.

    A family driven by tokens (``vocab_size``) answers :meth:`table`; one driven by feature vectors
    (``feature_dim``) answers :meth:`matrices`.  The same map builds both, so the same laws hold.
    """

    name: ClassVar[str]
    state_dim: int
    vocab_size: int | None
    feature_dim: int | None

    def __init__(self, *, state_dim: int, vocab_size: int | None, feature_dim: int | None) -> None:
        super().__init__()
        check_positive("state_dim", state_dim)
        if (vocab_size is None) == (feature_dim is None):
            raise ValueError("give exactly one of vocab_size (driven by tokens) and feature_dim (driven by features)")
        name, size = ("vocab_size", vocab_size) if feature_dim is None else ("feature_dim", feature_dim)
        check_positive(name, size)
        self.state_dim, self.vocab_size, self.feature_dim = state_dim, vocab_size, feature_dim

    @abstractmethod
    def build(self, features: Tensor | None) -> Tensor:
        """Build the table ``(V, D, D)`` for None, and ``(..., D, D)`` for features ``(..., F)``."""

    @abstractmethod
    def laws(self) -> tuple[Law, ...]:
        """Return what holds for every matrix of the family, at every parameter value."""

    @abstractmethod
    def spec(self) -> FamilySpec:
        """Return what it takes to build this family again, without its parameter values."""

    def table(self) -> Tensor:
        """Return ``M[v, to, from]``, shape ``(V, D, D)``: computed once per step, read by every position."""
        if self.vocab_size is None:
            raise ValueError(f"this {self.name} family is driven by features: call matrices(features)")
        with self.full_precision():
            return self.build(None)

    def matrices(self, features: Tensor) -> Tensor:
        """Return one matrix per feature vector: ``(..., F)`` to ``(..., D, D)``."""
        if self.feature_dim is None:
            raise ValueError(f"this {self.name} family is driven by tokens: call table()")
        if not isinstance(features, Tensor) or not features.is_floating_point():
            kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
            raise TypeError(f"features must be a floating-point tensor; got {kind}")
        if features.ndim == 0 or features.shape[-1] != self.feature_dim:
            raise ValueError(f"features must end in dimension {self.feature_dim}; got {tuple(features.shape)}")
        with self.full_precision():
            return self.build(features)

    def full_precision(self) -> AbstractContextManager[Any]:
        """Turn autocast off on the family's device."""
        return full_precision(next(itertools.chain(self.parameters(), self.buffers())).device)

    def stepper(self) -> Stepper:
        """Return one step of a stream with the present parameters; what steps can reuse is computed here, once."""
        if self.vocab_size is None:
            return Stepper(lambda state, features: matvec(self.matrices(features), state))
        return Stepper.by_matrices(self.table())

    def scan_backend(self) -> str:
        """Return the backend of the scan that ``auto`` should stand for over these matrices."""
        return "auto"

    def blocks(self) -> tuple[int, ...] | None:
        """Return the sizes of the blocks on the diagonal, if nothing ever stands beside them; None for one block."""
        return None

    def step_cost(self) -> int:
        """Count the multiply–adds of one step for one row, without those that compute its factors from features."""
        return self.state_dim**2

    def start_matrix(self) -> Tensor | None:
        """Return the ``(D, D)`` matrix near which training starts; None where no promise is made."""
        return torch.eye(self.state_dim)

    def start_from(self, raw: Tensor) -> Tensor:
        """Map free numbers ``(D)`` to an initial state that suits the family."""
        return raw

    def parameter_count(self) -> int:
        """Count the trainable numbers."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def lipschitz_bound(self) -> float | None:
        """Return an upper bound of ``‖M(u) − M(u')‖ / ‖u − u'‖`` (Frobenius) over all features, where one is known."""
        return None

    def extra_repr(self) -> str:
        """Describe the state dimension and the drive."""
        drive = f"vocab_size={self.vocab_size}" if self.feature_dim is None else f"feature_dim={self.feature_dim}"
        return f"state_dim={self.state_dim}, {drive}"


class _TokenSource(nn.Module):
    """The raw numbers are a row per token."""

    def __init__(self, vocab_size: int, origin: Tensor, scale: float) -> None:
        super().__init__()
        self.raw = nn.Parameter(origin + scale * torch.randn(vocab_size, origin.numel()))

    def forward(self, features: Tensor | None) -> Tensor:
        """Return the raw numbers ``(V, P)``."""
        return self.raw


class FeatureSource(nn.Module):
    """The raw numbers are an affine map of the features."""

    def __init__(self, feature_dim: int, origin: Tensor, scale: float) -> None:
        super().__init__()
        # Resized by hand: torch warns about a Linear without outputs, and a rotation of d = 1 has no raw numbers.
        self.projection = nn.Linear(feature_dim, 1)
        self.projection.out_features = origin.numel()
        self.projection.weight = nn.Parameter(scale / math.sqrt(feature_dim) * torch.randn(origin.numel(), feature_dim))
        self.projection.bias = nn.Parameter(origin.clone())

    def forward(self, features: Tensor | None) -> Tensor:
        """Return the raw numbers ``(..., P)``."""
        assert features is not None
        out: Tensor = self.projection(features.to(self.projection.weight.dtype))
        return out


class Sizes(TypedDict, total=False):
    """Arguments that every charted family takes, for its constructor to pass on."""

    state_dim: Required[int]
    vocab_size: int | None
    feature_dim: int | None
    init_scale: float | None


class ChartedFamily(TransitionFamily):
    """A family whose matrices are a fixed map, the chart, of P raw numbers.

    The raw numbers come from a row per token or from an affine map of features.  A family with arguments of its own
    names them in ``options`` and sets them before it calls this constructor, because :meth:`origin` may read them.

    Args:
        state_dim: Dimension d of the state.
        vocab_size: Number of tokens, for a family driven by tokens.
        feature_dim: Dimension of the feature vectors, for a family driven by features.
        init_scale: Noise of the raw numbers around their origin at the start.
    """

    options: ClassVar[tuple[str, ...]] = ()

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        init_scale: float | None = None,
    ) -> None:
        super().__init__(state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim)
        scale = self.default_scale() if init_scale is None else init_scale
        if not (isinstance(scale, (int, float)) and math.isfinite(scale) and scale >= 0):
            raise ValueError(f"init_scale must be a finite number ≥ 0; got {init_scale!r}")
        self.init_scale = scale
        self.source: nn.Module
        if vocab_size is not None:
            self.source = _TokenSource(vocab_size, self.origin(), scale)
        else:
            assert feature_dim is not None
            self.source = FeatureSource(feature_dim, self.origin(), scale)
        self.register_structure()

    def register_structure(self) -> None:
        """Register index buffers that the chart needs; most charts need none."""

    @abstractmethod
    def origin(self) -> Tensor:
        """Return where the raw numbers ``(P)`` start, up to noise: its chart is :meth:`start_matrix`."""

    def default_scale(self) -> float:
        """Return the default of ``init_scale``: here ‖M − start‖₂ is about 0.2 for d² free entries."""
        return 0.1 / math.sqrt(self.state_dim)

    @abstractmethod
    def chart(self, raw: Tensor) -> Tensor:
        """Map raw numbers ``(..., P)`` to matrices ``(..., D, D)``."""

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """Return what one step needs of the raw numbers; families with structure return less than the matrix."""
        return (self.chart(raw),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """Take one step with the factors: ``(B, D)`` to ``(B, D)``."""
        return matvec(factors[0], state)

    def raw_numbers(self, features: Tensor | None) -> Tensor:
        """Return the chart's input, in at least float32."""
        raw: Tensor = self.source(features)
        return raw.to(working_dtype(raw.dtype))

    def build(self, features: Tensor | None) -> Tensor:
        """Apply the chart to the raw numbers."""
        return self.chart(self.raw_numbers(features))

    def stepper(self) -> Stepper:
        """Return a step through the factors, which costs less than the matrix where there is structure."""
        if self.vocab_size is None:
            return Stepper(lambda state, features: self.act(state, *self.factors(self.raw_numbers(features))))
        return Stepper(
            lambda state, tokens, *factors: self.act(state, *[each.index_select(0, tokens) for each in factors]),
            self.factors(self.raw_numbers(None)),
            by_table=type(self).act is ChartedFamily.act,
        )

    def lipschitz_of_chart(self) -> float | None:
        """Return the chart's Lipschitz constant in the Frobenius norm, where there is one."""
        return None

    def lipschitz_bound(self) -> float | None:
        """Multiply the chart's constant by the norm of the feature map."""
        constant = self.lipschitz_of_chart()
        if constant is None or not isinstance(self.source, FeatureSource):
            return None
        weight = self.source.projection.weight.detach().double()
        return constant * (float(torch.linalg.matrix_norm(weight, 2)) if weight.numel() else 0.0)

    def spec(self) -> FamilySpec:
        """Return name, sizes and options as they are now."""
        drive = {"vocab_size": self.vocab_size} if self.feature_dim is None else {"feature_dim": self.feature_dim}
        options = {option: getattr(self, option) for option in (*self.options, "init_scale")}
        return FamilySpec(self.name, {"state_dim": self.state_dim, **drive, **options})
