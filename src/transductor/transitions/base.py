"""What a family of transition matrices answers."""

from __future__ import annotations

import itertools
import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import torch
from torch import Tensor, nn

from transductor.checks import check_positive, working_dtype
from transductor.configuration import configuration
from transductor.kernels.precise import full_precision
from transductor.transitions.laws import Law


@dataclass(frozen=True)
class Stepper:
    """One step of a stream: state ``(B, D)`` and drive, tokens ``(B)`` or features ``(B, F)``, to the next ``(B, D)``.

    ``step(state, drive, *kept)`` closes over no tensor that was computed for it: whoever must have these at a certain
    address replaces ``kept`` by copies.  ``by_table`` says that ``kept`` is one table ``(V, D, D)``, and a step the
    product with the token's matrix.
    """

    step: Callable[..., Tensor]
    kept: tuple[Tensor, ...] = ()
    by_table: bool = False

    def __call__(self, state: Tensor, drive: Tensor) -> Tensor:
        """The state after ``drive``."""
        return self.step(state, drive, *self.kept)

    @classmethod
    def of_parts(cls, parts: Sequence[Stepper], step: Callable[..., Tensor], *own: Tensor) -> Stepper:
        """A step that takes the steps of parts: ``step(state, drive, advances, *own)``, each part an ``advance``."""
        functions, sizes = [part.step for part in parts], [len(part.kept) for part in parts]

        def whole(state: Tensor, drive: Tensor, *kept: Tensor) -> Tensor:
            given = iter(kept)
            theirs = [tuple(itertools.islice(given, size)) for size in sizes]
            return step(state, drive, [cls(*part) for part in zip(functions, theirs, strict=True)], *given)

        return cls(whole, (*itertools.chain.from_iterable(part.kept for part in parts), *own))


def matvec(matrices: Tensor, states: Tensor) -> Tensor:
    """``(..., D, E)`` applied to ``(..., E)``."""
    if torch.compiler.is_compiling() and not torch.is_grad_enabled():  # one kernel with the gather of the matrices
        return (matrices * states.unsqueeze(-2)).sum(-1)
    if matrices.ndim == 3 and states.ndim == 2:  # what decoding does for every token
        return torch.bmm(matrices, states.unsqueeze(-1)).squeeze(-1)
    return (matrices @ states.unsqueeze(-1)).squeeze(-1)


@configuration
@dataclass(frozen=True)
class FamilySpec:
    """How to build a family again: its name, its arguments, and the specs of its parts."""

    family: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    parts: tuple[FamilySpec, ...] = ()


class TransitionFamily(nn.Module, ABC):
    """One matrix per symbol, or one per feature vector.  Subclasses are final.

    A family driven by tokens (``vocab_size``) answers :meth:`table`; one driven by feature vectors
    (``feature_dim``) answers :meth:`matrices`.  Both are built by the same map, so the laws are the same.
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
        if vocab_size is not None:
            check_positive("vocab_size", vocab_size)
        if feature_dim is not None:
            check_positive("feature_dim", feature_dim)
        self.state_dim, self.vocab_size, self.feature_dim = state_dim, vocab_size, feature_dim

    @abstractmethod
    def build(self, features: Tensor | None) -> Tensor:
        """The table ``(V, D, D)`` for None, else ``(..., D, D)`` for features ``(..., F)``."""

    @abstractmethod
    def laws(self) -> tuple[Law, ...]:
        """What holds for every matrix of the family, at every parameter value."""

    @abstractmethod
    def spec(self) -> FamilySpec:
        """How to build this family again, without its parameter values."""

    def table(self) -> Tensor:
        """``M[v, to, from]``, shape ``(V, D, D)``: computed once per step, read by every position."""
        if self.vocab_size is None:
            raise ValueError(f"this {self.name} family is driven by features: call matrices(features)")
        with self.full_precision():
            return self.build(None)

    def matrices(self, features: Tensor) -> Tensor:
        """One matrix per feature vector: ``(..., F)`` to ``(..., D, D)``."""
        if self.feature_dim is None:
            raise ValueError(f"this {self.name} family is driven by tokens: call table()")
        if not isinstance(features, Tensor) or not features.is_floating_point():
            kind = features.dtype if isinstance(features, Tensor) else type(features).__name__
            raise TypeError(f"features must be a floating-point tensor; got {kind}")
        if features.ndim == 0 or features.shape[-1] != self.feature_dim:
            raise ValueError(f"features must end in dimension {self.feature_dim}; got {tuple(features.shape)}")
        with self.full_precision():
            return self.build(features)

    def full_precision(self) -> torch.autocast:
        """Autocast off, on the family's device."""
        return full_precision(next(itertools.chain(self.parameters(), self.buffers())).device)

    def stepper(self) -> Stepper:
        """One step of a stream with the parameters of now; anything reusable is computed once, here."""
        if self.vocab_size is None:
            return Stepper(lambda state, features: matvec(self.matrices(features), state))
        return Stepper(lambda state, tokens, table: matvec(table.index_select(0, tokens), state), (self.table(),), True)

    def step_cost(self) -> int:
        """Multiply–adds of one step for one row, given its factors; a family driven by features computes those too."""
        return self.state_dim**2

    def start_matrix(self) -> Tensor | None:
        """The ``(D, D)`` matrix near which training starts; None where no promise is made."""
        return torch.eye(self.state_dim)

    def start_from(self, raw: Tensor) -> Tensor:
        """Map free numbers ``(D)`` to an initial state that suits the family."""
        return raw

    def parameter_count(self) -> int:
        """Trainable numbers."""
        return sum(parameter.numel() for parameter in self.parameters() if parameter.requires_grad)

    def lipschitz_bound(self) -> float | None:
        """An upper bound of ``‖M(u) − M(u')‖ / ‖u − u'‖`` (Frobenius) over all features, where one is known."""
        return None

    def extra_repr(self) -> str:
        """State dimension and drive."""
        drive = f"vocab_size={self.vocab_size}" if self.feature_dim is None else f"feature_dim={self.feature_dim}"
        return f"state_dim={self.state_dim}, {drive}"


class _TokenSource(nn.Module):
    """A row of raw numbers per token."""

    def __init__(self, vocab_size: int, origin: Tensor, scale: float) -> None:
        super().__init__()
        self.raw = nn.Parameter(origin + scale * torch.randn(vocab_size, origin.numel()))

    def forward(self, features: Tensor | None) -> Tensor:
        """``(V, P)``."""
        return self.raw


class FeatureSource(nn.Module):
    """Raw numbers as an affine map of the features."""

    def __init__(self, feature_dim: int, origin: Tensor, scale: float) -> None:
        super().__init__()
        # Resized by hand: torch warns about a Linear without outputs, and a rotation of d = 1 has no raw numbers.
        self.projection = nn.Linear(feature_dim, 1)
        self.projection.out_features = origin.numel()
        self.projection.weight = nn.Parameter(scale / math.sqrt(feature_dim) * torch.randn(origin.numel(), feature_dim))
        self.projection.bias = nn.Parameter(origin.clone())

    def forward(self, features: Tensor | None) -> Tensor:
        """``(..., P)``."""
        assert features is not None
        out: Tensor = self.projection(features.to(self.projection.weight.dtype))
        return out


class ChartedFamily(TransitionFamily):
    """A family whose matrices are a fixed map, the chart, of P raw numbers.

    The raw numbers come from a row per token or from an affine map of features.  A family with options of its
    own sets them before it calls this constructor, because :meth:`origin` may read them.

    Args:
        state_dim: d.
        vocab_size: Driven by tokens; or
        feature_dim: driven by features.
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
        """Where the raw numbers ``(P)`` start, up to noise: the chart of it is :meth:`start_matrix`."""

    def default_scale(self) -> float:
        """The noise at the start when ``init_scale`` is not given: ‖M − start‖₂ is about 0.2 for d² free entries."""
        return 0.1 / math.sqrt(self.state_dim)

    @abstractmethod
    def chart(self, raw: Tensor) -> Tensor:
        """Raw numbers ``(..., P)`` to matrices ``(..., D, D)``."""

    def factors(self, raw: Tensor) -> tuple[Tensor, ...]:
        """What one step needs of the raw numbers; families with structure return less than the matrix."""
        return (self.chart(raw),)

    def act(self, state: Tensor, *factors: Tensor) -> Tensor:
        """One step: ``(B, D)`` to ``(B, D)``."""
        return matvec(factors[0], state)

    def raw_numbers(self, features: Tensor | None) -> Tensor:
        """The chart's input, in at least float32."""
        raw: Tensor = self.source(features)
        return raw.to(working_dtype(raw.dtype))

    def build(self, features: Tensor | None) -> Tensor:
        """The chart of the raw numbers."""
        return self.chart(self.raw_numbers(features))

    def stepper(self) -> Stepper:
        """A step through the factors, which cost less than the matrix where there is structure."""
        if self.vocab_size is None:
            return Stepper(lambda state, features: self.act(state, *self.factors(self.raw_numbers(features))))
        return Stepper(
            lambda state, tokens, *factors: self.act(state, *[each.index_select(0, tokens) for each in factors]),
            self.factors(self.raw_numbers(None)),
            by_table=type(self).act is ChartedFamily.act,
        )

    def lipschitz_of_chart(self) -> float | None:
        """The chart's Lipschitz constant in the Frobenius norm, where there is one."""
        return None

    def lipschitz_bound(self) -> float | None:
        """The chart's constant times the norm of the feature map."""
        constant = self.lipschitz_of_chart()
        if constant is None or not isinstance(self.source, FeatureSource):
            return None
        weight = self.source.projection.weight.detach().double()
        return constant * (float(torch.linalg.matrix_norm(weight, 2)) if weight.numel() else 0.0)

    def spec(self) -> FamilySpec:
        """Name, sizes and options as they are now."""
        drive = {"vocab_size": self.vocab_size} if self.feature_dim is None else {"feature_dim": self.feature_dim}
        options = {option: getattr(self, option) for option in (*self.options, "init_scale")}
        return FamilySpec(self.name, {"state_dim": self.state_dim, **drive, **options})
