"""The universal head: orthogonal transitions, which count, beside stochastic ones, which switch."""

from __future__ import annotations

from typing import Any

from transductor.heads.rational import RationalHead
from transductor.transitions import DirectSum, OrthogonalTransitions, StochasticTransitions, TransitionFamily


class UniversalHead(RationalHead):
    """Orthogonal ⊕ stochastic: unlimited memory beside discrete switching, for tasks whose machine is not known.

    Args:
        orthogonal_dim: Width of the orthogonal part (the default orthogonal family).
        stochastic_dim: Width of the stochastic part.
        vocab_size: How many tokens drive the head; or
        feature_dim: the dimension of the features that drive it.
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
    def _arguments(cls, transitions: TransitionFamily) -> dict[str, Any]:
        kinds = [type(part) for part in transitions.families] if isinstance(transitions, DirectSum) else []
        if not isinstance(transitions, DirectSum) or kinds != [OrthogonalTransitions, StochasticTransitions]:
            raise ValueError("a universal head is a direct sum of orthogonal and stochastic transitions")
        orthogonal_dim, stochastic_dim = transitions.part_dims
        drive = {"vocab_size": transitions.vocab_size, "feature_dim": transitions.feature_dim}
        return {"orthogonal_dim": orthogonal_dim, "stochastic_dim": stochastic_dim, **drive}
