"""Families of transition matrices: one file for each family and each way to combine them, and the laws they obey."""

from __future__ import annotations

from typing import Final

from transductor.checks import one_of
from transductor.transitions.affine import AffineTransitions
from transductor.transitions.base import ChartedFamily, FamilySpec, Stepper, TransitionFamily, only_moves
from transductor.transitions.block_sparse import BlockSparseTransitions
from transductor.transitions.butterfly import ButterflyTransitions
from transductor.transitions.capped import spectrally_capped
from transductor.transitions.cascade import Cascade
from transductor.transitions.cayley import CayleyTransitions
from transductor.transitions.certificates import certify_laws
from transductor.transitions.column_choice import ColumnChoiceTransitions
from transductor.transitions.dense import DenseTransitions
from transductor.transitions.diagonal import DiagonalTransitions
from transductor.transitions.direct_sum import DirectSum
from transductor.transitions.dplr import DPLRTransitions
from transductor.transitions.exponential import ExponentialTransitions
from transductor.transitions.hankel import HankelTransitions
from transductor.transitions.householder import HouseholderTransitions
from transductor.transitions.laws import Law
from transductor.transitions.orthogonal import OrthogonalTransitions
from transductor.transitions.permutation import PermutationTransitions
from transductor.transitions.positive import PositiveTransitions
from transductor.transitions.random import RandomTransitions
from transductor.transitions.scaled_cayley import ScaledCayleyTransitions
from transductor.transitions.shared_basis import SharedBasisTransitions
from transductor.transitions.signed_cayley import SignedCayleyTransitions
from transductor.transitions.signed_diagonal import SignedDiagonalTransitions
from transductor.transitions.sinkhorn import SinkhornTransitions
from transductor.transitions.spectral_cap import SpectralCap
from transductor.transitions.squared_cayley import SquaredCayleyTransitions
from transductor.transitions.steadying import steadied_family, steadied_table
from transductor.transitions.stochastic import StochasticTransitions
from transductor.transitions.tensor_product import TensorProduct
from transductor.transitions.toeplitz import ToeplitzTransitions

__all__ = [
    "COMPOSITES",
    "FAMILIES",
    "AffineTransitions",
    "BlockSparseTransitions",
    "ButterflyTransitions",
    "Cascade",
    "CayleyTransitions",
    "ChartedFamily",
    "ColumnChoiceTransitions",
    "DPLRTransitions",
    "DenseTransitions",
    "DiagonalTransitions",
    "DirectSum",
    "ExponentialTransitions",
    "FamilySpec",
    "HankelTransitions",
    "HouseholderTransitions",
    "Law",
    "OrthogonalTransitions",
    "PermutationTransitions",
    "PositiveTransitions",
    "RandomTransitions",
    "ScaledCayleyTransitions",
    "SharedBasisTransitions",
    "SignedCayleyTransitions",
    "SignedDiagonalTransitions",
    "SinkhornTransitions",
    "SpectralCap",
    "SquaredCayleyTransitions",
    "Stepper",
    "StochasticTransitions",
    "TensorProduct",
    "ToeplitzTransitions",
    "TransitionFamily",
    "build_family",
    "certify_laws",
    "only_moves",
    "spectrally_capped",
    "steadied_family",
    "steadied_table",
]

# A new family adds one line here; the law suite tests it from then on.
FAMILIES: Final[dict[str, type[TransitionFamily]]] = {
    family.name: family
    for family in (
        DenseTransitions,
        AffineTransitions,
        DiagonalTransitions,
        SignedDiagonalTransitions,
        PermutationTransitions,
        SinkhornTransitions,
        DPLRTransitions,
        OrthogonalTransitions,
        CayleyTransitions,
        ScaledCayleyTransitions,
        SquaredCayleyTransitions,
        ExponentialTransitions,
        SignedCayleyTransitions,
        HouseholderTransitions,
        StochasticTransitions,
        SharedBasisTransitions,
        ButterflyTransitions,
        ToeplitzTransitions,
        HankelTransitions,
        BlockSparseTransitions,
        RandomTransitions,
        ColumnChoiceTransitions,
        PositiveTransitions,
    )
}

COMPOSITES: Final[dict[str, type[TransitionFamily]]] = {
    family.name: family for family in (DirectSum, TensorProduct, Cascade, SpectralCap)
}


def build_family(spec: FamilySpec) -> TransitionFamily:
    """Build a family from its spec, with fresh parameters."""
    one_of("family", spec.family, [*FAMILIES, *COMPOSITES])
    if spec.family in COMPOSITES:
        parts = [build_family(part) for part in spec.parts]
        return COMPOSITES[spec.family](*parts, **spec.arguments)
    return FAMILIES[spec.family](**spec.arguments)
