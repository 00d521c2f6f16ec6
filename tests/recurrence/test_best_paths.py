"""Viterbi's paths, compared with all paths."""

from __future__ import annotations

from itertools import product

import pytest
import torch

from transductor.recurrence import best_paths

ABSENT = -torch.inf


def weight_of(path, arcs, start, final):
    return start[path[0]] + sum(arcs[t][path[t + 1], path[t]] for t in range(len(arcs))) + final[path[-1]]


@pytest.mark.parametrize("dense", [False, True], ids=["tokens", "dense"])
def test_no_path_is_better(dense):
    table = torch.randn(3, 3, 3, dtype=torch.float64)
    table[torch.rand(3, 3, 3) < 0.2] = ABSENT
    tokens, lengths = torch.randint(0, 3, (4, 5)), torch.tensor([5, 3, 1, 0])
    start, final = torch.randn(4, 3, dtype=torch.float64), torch.randn(3, dtype=torch.float64)
    drive = (table[tokens], None) if dense else (table, tokens)
    paths, weights = best_paths(*drive, initial_state=start, final=final, lengths=lengths)
    for row in range(4):
        arcs, length = [table[letter] for letter in tokens[row, : lengths[row]]], int(lengths[row])
        best = max(weight_of(path, arcs, start[row], final) for path in product(range(3), repeat=length + 1))
        assert weights[row] == pytest.approx(best)
        assert (paths[row, length + 1 :] == -1).all()
        if best > ABSENT:
            assert weight_of(paths[row, : length + 1].tolist(), arcs, start[row], final) == pytest.approx(best)


def test_a_machine_without_a_path_says_so():
    table = torch.full((1, 2, 2), ABSENT)
    _, weights = best_paths(table, torch.zeros(1, 3, dtype=torch.long), initial_state=torch.zeros(2))
    assert weights.tolist() == [ABSENT]
    with pytest.raises(ValueError, match=r"tokens must have shape \(B, T\)"):
        best_paths(table, torch.zeros(3, dtype=torch.long), initial_state=torch.zeros(2))
