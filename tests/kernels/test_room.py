"""How much memory the GPU passes take, counted on any machine: allocations are followed, kernels are not run."""

from __future__ import annotations

import weakref

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

pytest.importorskip("triton")
from transductor.kernels.gpu import matrix_gradients, passes, walking, word_tables
from transductor.kernels.gpu import scan as gpu


class LiveBytes(TorchDispatchMode):
    """The most bytes that tensors made inside held at one time."""

    def __init__(self, *outside):
        super().__init__()
        self.live, self.most = 0, 0
        self._seen = {tensor.untyped_storage()._cdata for tensor in outside}

    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        result = function(*args, **(kwargs or {}))
        for value in tree_leaves(result):
            if isinstance(value, torch.Tensor) and value.untyped_storage()._cdata not in self._seen:
                storage = value.untyped_storage()
                self._seen.add(storage._cdata)
                self.live += storage.nbytes()
                weakref.finalize(storage, self._freed, storage._cdata, storage.nbytes())
        self.most = max(self.most, self.live)
        return result

    def _freed(self, key, size):
        self._seen.discard(key)
        self.live -= size


@pytest.mark.parametrize(
    ("batch", "time", "dim"),
    [(64, 8192, 16), (1, 1 << 20, 16), (8, 32_768, 32), (8, 16_384, 64), (64, 8192, 64), (64, 8192, 32)],
)
def test_forward_and_backward_fit_in_one_and_a_half_times_what_must_be_there(batch, time, dim, monkeypatch):
    """Tokens, table, states, their gradient and the table's are what nobody can do without."""
    for module in (passes, matrix_gradients, walking, word_tables):
        monkeypatch.setattr(module, "launch", lambda *args, **options: None)
    table = torch.empty(8, dim, dim, device="meta")
    tokens = torch.empty(batch, time, dtype=torch.long, device="meta")
    start = torch.empty(batch, dim, device="meta")
    with LiveBytes(table, tokens, start) as memory:
        states, *products = gpu.forward(table, tokens, None, start, None, None)
        grad = torch.empty_like(states)
        gpu.backward(
            table, tokens, start, None, None, states, *products, grad, wants_matrices=True, wants_bias=False
        )  # fmt: skip
    least = tokens.nbytes + 2 * table.nbytes + 2 * states.nbytes
    ratio = (tokens.nbytes + table.nbytes + memory.most) / least
    assert 1.0 < ratio <= 1.5
