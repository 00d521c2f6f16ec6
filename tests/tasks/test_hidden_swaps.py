"""Hidden swaps: the process is what is drawn, and its answers are those of following every order by hand."""

from __future__ import annotations

from itertools import permutations

import pytest
import torch

from tests.tasks.cases import generator
from transductor.tasks import HiddenSwaps

TASK = HiddenSwaps(things=3, hidden=0.3, noise=0.1)


def belief_by_hand(task, word):
    """The belief over orders after a word, one order and one pair at a time."""
    count = task.things
    pairs = [(x, y) for x in range(count) for y in range(x + 1, count)]
    belief = {tuple(range(count)): 1.0}
    for token in word:
        after = dict.fromkeys(permutations(range(count)), 0.0)
        for order, weight in belief.items():
            if token >= len(pairs) + count + 1:
                place, thing = divmod(token - len(pairs) - count - 1, count)
                after[order] += weight * ((1 - task.noise) * (order[place] == thing) + task.noise / count)
                continue
            for x, y in pairs:
                if token < len(pairs):
                    meant = pairs[token] == (x, y)
                else:
                    meant = token == len(pairs) + count or token - len(pairs) in (x, y)
                if meant:
                    moved = list(order)
                    moved[x], moved[y] = moved[y], moved[x]
                    after[tuple(moved)] += weight
        total = sum(after.values())
        belief = {order: weight / total for order, weight in after.items()}
    return [belief[order] for order in sorted(belief)]


def test_the_posterior_is_that_of_every_order_followed_by_hand():
    tokens, _ = TASK.drawn(4, 12, generator())
    right = TASK.posterior(tokens)
    for row in range(4):
        for t in (0, 5, 11):
            wanted = belief_by_hand(TASK, tokens[row, : t + 1].tolist())
            assert right[row, t].tolist() == pytest.approx(wanted, abs=1e-12)


@pytest.mark.parametrize("things", [2, 3, 5])
def test_probabilities_of_the_next_token_sum_to_one_and_all_tokens_occur(things):
    task = HiddenSwaps(things=things, hidden=0.4)
    process = task.process()
    assert sum(process((token,)) for token in range(task.vocab_size)) == pytest.approx(1)
    tokens, states = task.drawn(200, 60, generator())
    assert set(tokens.unique().tolist()) == set(range(task.vocab_size))
    assert states.max() < task.output_size == len(task.orders())


def test_what_is_drawn_is_what_the_process_says():
    """Given the posterior p, the order is s with probability p_s: the mean p of what came is the mean of p²."""
    tokens, states = TASK.drawn(500, 40, generator(1))
    right = TASK.posterior(tokens)
    came = right.gather(2, states[..., None]).mean()
    assert came == pytest.approx(float(right.square().sum(-1).mean()), abs=0.02)
    frequencies = torch.bincount(tokens.flatten(), minlength=task_size(TASK)) / tokens.numel()
    process = TASK.process()
    assert frequencies[:7].sum() == pytest.approx(sum(process((token,)) for token in range(7)), abs=0.01)


def task_size(task):
    return task.vocab_size


@pytest.mark.parametrize("options", [{"things": 6}, {"things": 1}, {"shown": 1.0}, {"hidden": 0.0}, {"noise": 0.0}])
def test_bad_parameters_are_refused_by_name(options):
    with pytest.raises(ValueError, match=next(iter(options))):
        HiddenSwaps(**options)
