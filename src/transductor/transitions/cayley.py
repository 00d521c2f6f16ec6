"""F5: the paper's rotations."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn
from torch.nn import functional

from transductor.kernels.rotation import cayley_rotation
from transductor.notation import working_dtype
from transductor.transitions.base import FeatureSource, Stepper, matvec
from transductor.transitions.laws import Determinant, Law, Orthogonal
from transductor.transitions.rotations import SkewFamily, skew

__all__ = ["CayleyTransitions"]


@final
class CayleyTransitions(SkewFamily):
    """``(I + A)(I − A)⁻¹`` with A skew: strictly orthogonal, det +1.

    The limit of this family: −1 is never an eigenvalue, because ``C(A) + I = 2(I − A)⁻¹`` is invertible.  No
    pure Cayley head of any dimension decides parity with an affine threshold at all lengths.
    :class:`SquaredCayleyTransitions` reaches every rotation, :class:`OrthogonalTransitions` every orthogonal
    matrix.
    """

    name = "cayley"
    slope = 2

    def chart(self, raw: Tensor) -> Tensor:
        """The Cayley transform."""
        return cayley_rotation(skew(raw, self.state_dim))

    def stepper(self) -> Stepper:
        """Driven by features, ``A`` is an affine map of them, prepared here: decoding waits for every launch."""
        source = self.source
        if (
            self.feature_dim is None
            or not isinstance(source, FeatureSource)
            or type(source.projection) is not nn.Linear
        ):
            return super().stepper()
        dim, projection = self.state_dim, source.projection
        dtype = working_dtype(projection.weight.dtype)
        weight = skew(projection.weight.to(dtype).mT, dim).flatten(1).mT.contiguous()
        offset = skew(projection.bias.to(dtype), dim).flatten()

        def step(state: Tensor, features: Tensor) -> Tensor:
            skews = functional.linear(features.to(dtype), weight, offset).view(*features.shape[:-1], dim, dim)
            return matvec(cayley_rotation(skews), state)

        return step

    def laws(self) -> tuple[Law, ...]:
        """A rotation."""
        return (Orthogonal(), Determinant(1))
