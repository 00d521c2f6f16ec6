"""What peers are run by: their recurrences are the definitions, and many models at once end as each one alone."""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from transductor.model import build
from transductor.studies import STUDIES
from transductor.training import Trainer
from transductor.training.steps import draw_batch

FOLDER = Path(__file__).parents[2] / "benchmarks"


def loaded(name):
    spec = importlib.util.spec_from_file_location(name, FOLDER / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


plain, together = loaded("plain_recurrences"), loaded("trained_as_one")


def same(ours, right, *inputs):
    """Compare values and gradients."""
    inputs = [each.double().requires_grad_() for each in inputs]
    pairs = [(ours(*inputs), right(*inputs))]
    weights = torch.randn(pairs[0][0].shape, dtype=torch.float64)
    pairs += zip(*(torch.autograd.grad((one * weights).sum(), inputs) for one in pairs[0]), strict=True)
    for one, other in pairs:
        torch.testing.assert_close(one, other, rtol=1e-9, atol=1e-9)


def drawn(length, *more):
    generator = torch.Generator().manual_seed(length)
    return torch.randn(2, length, 2, *more, generator=generator)


@pytest.mark.parametrize("length", [1, 7, 40, 70])
@pytest.mark.parametrize("gated", [False, True])
def test_the_delta_rule_is_its_definition(length, gated):
    q, k, v = (drawn(length, 4) + shift for shift in (0.0, 1.0, 2.0))
    rates, gates = 2 * drawn(length).sigmoid(), -drawn(length).exp()

    def stepped(q, k, v, beta, g):
        state, read = torch.zeros(2, 2, 4, 4, dtype=q.dtype), []
        for t in range(length):
            if gated:
                state = state * g[:, t, :, None, None].exp()
            written = beta[:, t, :, None] * (v[:, t] - (k[:, t, :, None] @ state)[..., 0, :])
            state = state + k[:, t, :, :, None] * written[..., None, :]
            read.append((q[:, t, :, None] @ state)[..., 0, :] / 2)
        return torch.stack(read, 1) + 0 * g.sum()

    def ours(q, k, v, beta, g):
        return plain.delta_rule(q, k, v, beta, g if gated else None, chunk=16) + 0 * g.sum()

    same(ours, stepped, q, torch.nn.functional.normalize(k, dim=-1), v, rates, gates)


@pytest.mark.parametrize("length", [1, 7, 64, 70])
def test_the_general_rule_is_its_definition(length):
    q, k, v, b = (drawn(length, 4) + shift for shift in (0.0, 1.0, 2.0, 3.0))
    b = torch.nn.functional.normalize(b, dim=-1)
    decay = -0.6 * drawn(length, 4).sigmoid()

    def stepped(q, k, v, a, b, decay):
        state, read = torch.zeros(2, 2, 4, 4, dtype=q.dtype), []  # (key, value)
        for t in range(length):
            erased = (a[:, t, :, None] @ state)[..., 0, :]
            state = state * decay[:, t].exp()[..., None] + b[:, t, :, :, None] * erased[..., None, :]
            state = state + k[:, t, :, :, None] * v[:, t, :, None]
            read.append((q[:, t, :, None] @ state)[..., 0, :])
        return torch.stack(read, 1)

    same(plain.general_rule, stepped, q, k, v, -b, b * 0.7, decay)


@pytest.mark.parametrize(("tracker", "stacked"), [("filter", True), ("lstm", False)])
def test_many_models_at_once_end_as_each_one_alone(tracker, stacked):
    (arm,) = (each for each in STUDIES["tracking"].arms if each.name == f"{tracker}_on_5_slow")
    settings = replace(arm.training, steps=5, batch_size=8, warmup=2)
    alone, members = [], []
    for seed in (0, 1):
        torch.manual_seed(seed)
        trainer = Trainer(build(arm.model), arm.task, replace(settings, seed=seed))
        trainer.run()
        alone.append(trainer.model)
        generator = torch.Generator().manual_seed(seed)
        batches = [draw_batch(arm.task, settings, settings.length, generator) for _ in range(settings.steps)]
        torch.manual_seed(seed)
        members.append(
            together.Member(build(arm.model), *map(torch.stack, zip(*batches, strict=True)), settings.learning_rate)
        )
    fleet = together.Fleet(members, settings, "cpu", stacked=stacked)
    fleet.train()
    assert len(fleet.stacks) == (1 if stacked else 2)
    assert all(outcome["failure"] is None for outcome in fleet.outcomes())
    for member, model in zip(members, alone, strict=True):
        for ours, right in zip(member.model.parameters(), model.parameters(), strict=True):
            torch.testing.assert_close(ours, right, rtol=1e-4, atol=1e-5)
