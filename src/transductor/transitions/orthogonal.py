"""Orthogonal transitions reach the full orthogonal group; they are the default family."""

from __future__ import annotations

from typing import final

from torch import Tensor

from transductor.kernels.rotation import cayley_rotation
from transductor.transitions.rotations import SignedFamily


@final
class OrthogonalTransitions(SignedFamily):
    """``C(A)² · diag(±1)``, C the Cayley map: the default orthogonal family.

    Every rotation is the square of one without eigenvalue −1, so ``C(A)²`` reaches all of SO(d) at finite A; the
    signs add the other half of O(d).  With one negative sign every matrix has det −1 and eigenvalue −1 is there
    from the first step: training only has to turn it.  One spare dimension gives every orthogonal matrix of
    dimension d − 1, of either determinant.  How six orthogonal families compare depends on the protocol: under the
    demo's this one did best on parity and mod-5 counting, with a linear readout alone others count better
    (docs/transitions.md, "Which orthogonal family?").

    Args:
        negatives: How many coordinates, the last ones, start flipped, for every token; they cannot change while
            training, because det +1 and det −1 are disconnected.  Default 1 (0 when d = 1).  The buffer ``signs``,
            of shape ``(V, D)`` (features: ``(D)``), may be overridden by the caller.
    """

    name = "orthogonal"
    slope = 4

    def rotation(self, raw: Tensor) -> Tensor:
        """Apply the Cayley transform and square it."""
        return cayley_rotation(raw, self.state_dim, squared=True)
