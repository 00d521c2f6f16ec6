"""Signed Cayley transitions reach the full orthogonal group by fixed signs."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.rotations import SignedFamily


@final
class SignedCayleyTransitions(SignedFamily):
    """``C(A) · diag(±1)``: every orthogonal matrix is of this form for some signs.

    det +1 and det −1 are disconnected and training cannot cross, so the signs are fixed at the start.  One
    negative and one spare dimension reach every orthogonal matrix of dimension d − 1.

    Args:
        negatives: How many coordinates, the last ones, are −1 for every token; default 1 (0 when d = 1).  The buffer
            ``signs``, of shape ``(V, D)`` (features: ``(D)``), may be overridden by the caller.
    """

    name = "signed_cayley"
    slope = 2

    def rotation(self, raw: Tensor) -> Tensor:
        """Apply the Cayley transform."""
        return cayley_rotation(raw, self.state_dim)
