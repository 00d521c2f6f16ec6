"""The doctor names the scan on a GPU when any one of its kernels is wrong; the same test in Triton's interpreter."""

from __future__ import annotations

import pytest
import torch

from transductor.bench.workloads import Case
from transductor.doctor import self_check

pytest.importorskip("triton")
from transductor.kernels.gpu import cuts, matrix_gradients, passes, walking, word_tables

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"

WALKS = {"walk_letters": 2, "walk_shape": (1, 2)}
# Each with the argument that it writes, and what has to be chosen so that it runs at a small size.
KERNELS = {
    "walk": ("out", WALKS),
    "letter_steps": ("out", WALKS),
    "joined_words": ("out", WALKS),
    "spelled": ("out", WALKS),
    "picked": ("out", {}),
    "summed": ("out", {}),
    "sorting_keys": ("out", {"picking_spans": 0, "short_runs": True}),
    "short_runs": ("out", {"picking_spans": 0, "short_runs": True}),
    "grouped_runs": ("out", {"picking_spans": 0, "short_runs": False}),
    "joined_runs": ("out", {"picking_spans": 0, "short_runs": True}),
    "products": ("out", {"chunk_length": 2}),
    "sweep": ("out", {"chunk_length": 2}),
}


@pytest.mark.parametrize("name", [None, *KERNELS])
def test_a_wrong_kernel_is_named(name, monkeypatch):
    if DEVICE == "cpu":
        monkeypatch.setenv("TRITON_INTERPRET", "1")
    written, choices = KERNELS.get(name, ("", {}))
    for choice, value in choices.items():
        monkeypatch.setattr(cuts, choice, lambda *_, value=value, **__: value)
    case, right = Case(2, 150 if name == "joined_runs" else 9, dim=3, symbols=3), passes.launch

    def launch(kernel, grid, *args, **options):
        right(kernel, grid, *args, **options)
        if kernel.fn.__name__ == name:
            out = args[kernel.arg_names.index(written)]
            out.mul_(1.01) if out.is_floating_point() else out.zero_()

    for module in (matrix_gradients, passes, walking, word_tables):
        monkeypatch.setattr(module, "launch", launch)
    checks = []
    self_check._check_backend("triton", DEVICE, (case,), {}, 5, checks)
    assert bool(checks[0].fault) == (name is not None), checks[0]
    if name is not None:
        assert " off by " in checks[0].fault
