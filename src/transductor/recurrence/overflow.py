"""When the result of a fast path must not be used."""

from __future__ import annotations

import torch
from torch import Tensor


def all_finite(values: Tensor) -> bool:
    """Tell whether all values are finite, by one reduction: a finite sum has only finite terms.

    A product of matrices may overflow where the states do not (``inf · 0``), and beyond a document's end; then the
    reference loop computes the states, which never forms products.
    """
    return values.numel() == 0 or bool(torch.isfinite(values.detach().sum()))
