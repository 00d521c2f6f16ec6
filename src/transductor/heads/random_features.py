"""The random-feature head: nothing in it trains."""

from __future__ import annotations

from typing import Self

from transductor.heads.rational import RationalHead
from transductor.transitions import RandomTransitions, TransitionFamily


class RandomFeatureHead(RationalHead):
    """Frozen Gaussian transitions and a frozen initial state: only what reads the states learns.

    To freeze another family, call ``requires_grad_(False)`` on a :class:`RationalHead` over it.
    """

    name = "random_features"

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
        self.requires_grad_(False)

    @classmethod
    def from_family(cls, transitions: TransitionFamily, backend: str) -> Self:
        """With the family's options."""
        head = cls(
            state_dim=transitions.state_dim,
            vocab_size=transitions.vocab_size,
            feature_dim=transitions.feature_dim,
            backend=backend,
        )
        head.transitions = transitions.requires_grad_(False)
        return head
