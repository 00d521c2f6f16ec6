"""The universal head: rotations that count, distributions that switch."""

from __future__ import annotations

from typing import Self

from transductor.heads.rational import RationalHead
from transductor.transitions import DirectSum, OrthogonalTransitions, StochasticTransitions, TransitionFamily


class UniversalHead(RationalHead):
    """Orthogonal ⊕ stochastic: infinite memory beside discrete switching, for tasks nobody has analysed yet.

    Args:
        orthogonal_dim: Width of the orthogonal part (the default orthogonal family).
        stochastic_dim: Width of the stochastic part.
        vocab_size: Driven by tokens; or
        feature_dim: driven by features.
    """

    name = "universal"

    def __init__(
        self,
        *,
        orthogonal_dim: int,
        stochastic_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        backend: str = "auto",
    ) -> None:
        family = DirectSum(
            OrthogonalTransitions(state_dim=orthogonal_dim, vocab_size=vocab_size, feature_dim=feature_dim),
            StochasticTransitions(state_dim=stochastic_dim, vocab_size=vocab_size, feature_dim=feature_dim),
        )
        super().__init__(family, backend=backend)

    @classmethod
    def from_family(cls, transitions: TransitionFamily, backend: str) -> Self:
        """Widths are read off the parts; their options (the temperature, say) are kept."""
        kinds = [type(part) for part in transitions.families] if isinstance(transitions, DirectSum) else []
        if not isinstance(transitions, DirectSum) or kinds != [OrthogonalTransitions, StochasticTransitions]:
            raise ValueError("a universal head is a direct sum of orthogonal and stochastic transitions")
        orthogonal_dim, stochastic_dim = transitions.part_dims
        head = cls(
            orthogonal_dim=orthogonal_dim,
            stochastic_dim=stochastic_dim,
            vocab_size=transitions.vocab_size,
            feature_dim=transitions.feature_dim,
            backend=backend,
        )
        head.transitions = transitions
        return head
