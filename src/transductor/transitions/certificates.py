"""Laws of a family are certified by measuring them on its matrices."""

from __future__ import annotations

import torch
from torch import Tensor

from transductor.checks import LAW_TOLERANCE
from transductor.results import Certificate
from transductor.transitions.base import TransitionFamily


def certify_laws(family: TransitionFamily, matrices: Tensor | None = None) -> tuple[Certificate, ...]:
    """Measure every law of a family on its table, or on ``matrices`` of shape ``(N, D, D)``."""
    matrices = (family.table() if matrices is None else matrices).detach()
    if matrices.dtype not in LAW_TOLERANCE or matrices.ndim != 3 or matrices.shape[0] == 0:
        raise ValueError(
            f"matrices must be float32 or float64 of shape (N, D, D), N ≥ 1; got {matrices.dtype}, "
            f"{tuple(matrices.shape)}"
        )
    bound = LAW_TOLERANCE[matrices.dtype]
    certificates = []
    for law in family.laws():
        deviation = law.deviation(matrices.double())
        # A NaN must not hide behind a smaller number.
        worst = int(torch.where(deviation.isnan(), torch.inf, deviation).argmax())
        certificates.append(Certificate(law.claim, bound, float(deviation[worst]), f"symbol {worst}"))
    return tuple(certificates)
