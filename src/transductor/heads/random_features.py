"""The random-feature head, whose parameters are never trained."""

from __future__ import annotations

from typing import Any

from transductor.heads.rational import RationalHead
from transductor.transitions import RandomTransitions, TransitionFamily


class RandomFeatureHead(RationalHead):
    """Frozen Gaussian transitions and a frozen initial state: only what reads the states learns.

    To freeze another family, call ``requires_grad_(False)`` on a :class:`RationalHead` over it.
    """

    name = "random_features"
    trains = False

    def __init__(
        self,
        *,
        state_dim: int,
        vocab_size: int | None = None,
        feature_dim: int | None = None,
        spectral_cap: float = 0.99,
        backend: str = "auto",
    ) -> None:
        family = RandomTransitions(
            state_dim=state_dim, vocab_size=vocab_size, feature_dim=feature_dim, spectral_cap=spectral_cap
        )
        super().__init__(family, backend=backend)

    @classmethod
    def _arguments(cls, transitions: TransitionFamily) -> dict[str, Any]:
        sizes = {"state_dim": transitions.state_dim, "vocab_size": transitions.vocab_size}
        return sizes | {"feature_dim": transitions.feature_dim}
