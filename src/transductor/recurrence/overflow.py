"""When the result of a fast path must not be used, and for which rows."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def all_finite(values: Tensor) -> bool:
    """Tell whether all values are finite, by one reduction: a finite sum has only finite terms.

    A product of matrices may overflow where the states do not (``inf · 0``), and beyond a document's end; then the
    reference loop computes the states, which never forms products.
    """
    return values.numel() == 0 or math.isfinite(values.detach().sum().item())


def overflowed_rows(*parts: Tensor) -> Tensor:
    """Return the rows of a batch in which a part ``(B, ...)`` is not finite, as indices; no other row needs repair."""
    rows = parts[0].shape[0]
    wrong = torch.zeros(rows, dtype=torch.bool, device=parts[0].device)
    for part in parts:
        if not all_finite(part):
            wrong |= ~part.detach().isfinite().flatten(1).all(1)
    return wrong.nonzero().squeeze(-1)
