from __future__ import annotations

import os

import pytest
import torch
from hypothesis import settings

if not torch.cuda.is_available():
    # Kernels for a GPU are tested on any machine, by Triton's interpreter; it is chosen when triton is imported.
    os.environ.setdefault("TRITON_INTERPRET", "1")

settings.register_profile("house", deadline=None, max_examples=30, derandomize=True)
settings.load_profile("house")


@pytest.fixture(autouse=True)
def repeatable():
    """Every test starts from one seed, and uninitialised memory holds NaN so that a read of it shows."""
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    yield
    torch.use_deterministic_algorithms(False)
