"""Run on every rank: models whose time axis lies on several ranks, beside the same models on the whole axis."""

from __future__ import annotations

import torch
import torch.distributed as dist

from tests.ranks import leave
from transductor.heads import LookbackHead, RationalHead
from transductor.model import (
    BackboneConfig,
    FullAttention,
    LearnedPositions,
    NoAttention,
    NoPositions,
    RationalReadout,
    RationalTransductor,
    RelativePositions,
    RotaryPositions,
    SlidingWindow,
    StackedTransductor,
    Transformer,
)
from transductor.transitions import OrthogonalTransitions

V, T, B = 5, 24, 3
SPLITS = {
    2: {"uneven": [5, 19], "empty": [24, 0]},
    4: {"uneven": [1, 10, 3, 10], "empty": [9, 0, 14, 1]},
}
# What is tried: by number of ranks and split, the layouts below.
CASES = {
    2: {"uneven": ("plain", "left_padding", "lengths", "packed"), "empty": ("packed",)},
    4: {"uneven": ("plain", "packed"), "empty": ("left_padding",)},
}
LAYOUTS = {
    "plain": {},
    "left_padding": {"mask": torch.arange(T) >= torch.tensor([[0], [7], [20]])},
    "lengths": {"lengths": torch.tensor([24, 6, 13])},
    "packed": {"cu_seqlens": torch.tensor([0, 2, 5, 5, 11, 12, 24])},
}


def head(kind=RationalHead, **drive):
    return kind(OrthogonalTransitions(state_dim=4, **(drive or {"vocab_size": V})))


def sizes(attention, positions):
    return BackboneConfig(vocab_size=V, width=16, layers=2, attention_heads=2, attention=attention, positions=positions)


MODELS = {
    "no_attention": lambda: RationalTransductor(head(), sizes(NoAttention(), NoPositions())),
    "window": lambda: RationalTransductor(head(), sizes(SlidingWindow(4), NoPositions())),
    "window_of_one": lambda: RationalTransductor(head(), sizes(SlidingWindow(1), NoPositions())),
    "window_rotary": lambda: RationalTransductor(head(), sizes(SlidingWindow(9), RotaryPositions())),
    "window_relative": lambda: RationalTransductor(head(), sizes(SlidingWindow(30), RelativePositions(8, 16))),
    "full": lambda: RationalTransductor(head(), sizes(FullAttention(), NoPositions())),
    "full_rotary": lambda: RationalTransductor(head(), sizes(FullAttention(), RotaryPositions())),
    "full_relative": lambda: RationalTransductor(head(), sizes(FullAttention(), RelativePositions(8, 16))),
    "full_learned": lambda: RationalTransductor(head(), sizes(FullAttention(), LearnedPositions(32))),
    "lookback": lambda: RationalTransductor(head(LookbackHead), sizes(SlidingWindow(4), NoPositions())),
    "readout": lambda: RationalReadout(head(), V),
    "lookback_readout": lambda: RationalReadout(head(LookbackHead), V),
    "transformer": lambda: Transformer(sizes(FullAttention(), RotaryPositions())),
    "stacked": lambda: StackedTransductor([head(), head()], sizes(SlidingWindow(4), NoPositions())),
    "stacked_features": lambda: StackedTransductor(
        [head(), head(feature_dim=16)], sizes(FullAttention(), RelativePositions(8, 16))
    ),
}


def compared(model, layout, lengths):
    """Largest error of logits and of every parameter's gradient, relative to the largest entry of each."""
    rank = dist.get_rank()
    span = slice(sum(lengths[:rank]), sum(lengths[: rank + 1]))
    rows = 1 if "cu_seqlens" in layout else B
    generator = torch.Generator().manual_seed(1)
    tokens = torch.randint(0, V, (rows, T), generator=generator)
    weights = torch.randn(rows, T, V, generator=generator, dtype=torch.float64)
    if "mask" in layout or "lengths" in layout:  # what a padded token says is nobody's business
        real = layout["mask"] if "mask" in layout else torch.arange(T) < layout["lengths"][:, None]
        weights = weights * real.unsqueeze(-1)
    whole = model(tokens, **layout)
    (whole * weights).sum().backward()
    expected = {name: value.grad.clone() for name, value in model.named_parameters()}
    model.zero_grad()
    ours = {name: value[:, span] if name == "mask" else value for name, value in layout.items()}
    found = model(tokens[:, span], **ours, time_group=dist.group.WORLD)
    (found * weights[:, span]).sum().backward()
    shown = weights[:, span] != 0
    errors = {"logits": error(found[shown], whole[:, span][shown])}
    for name, value in model.named_parameters():
        if value.grad is None:  # a bias of scores where there are none
            assert not lengths[rank], f"rank {rank} has no share of {name}"
            value.grad = torch.zeros_like(value)
    flat = torch.cat([value.grad.flatten() for value in model.parameters()])
    dist.all_reduce(flat)  # all at once: a message takes longer than what is in it
    parts = flat.split([gradient.numel() for gradient in expected.values()])
    for (name, gradient), summed in zip(expected.items(), parts, strict=True):
        errors[name] = error(summed.view_as(gradient), gradient)
    model.zero_grad()
    worst = torch.tensor(list(errors.values()), dtype=torch.float64)
    dist.all_reduce(worst, dist.ReduceOp.MAX)
    worst = dict(zip(errors, worst.tolist(), strict=True))
    return {"logits": worst.pop("logits"), "gradients": max(worst.values())}


def error(found, expected):
    if expected.numel() == 0:
        return 0.0 if found.shape == expected.shape else float("inf")
    return ((found - expected).abs().max() / expected.abs().max().clamp_min(1)).item()


def main(file):
    dist.init_process_group("gloo")
    found = {}
    for name, build in MODELS.items():
        torch.manual_seed(0)
        model = build().double()
        for split, layouts in CASES[dist.get_world_size()].items():
            for layout in layouts:
                lengths = SPLITS[dist.get_world_size()][split]
                found[f"{split}-{name}-{layout}"] = compared(model, LAYOUTS[layout], lengths)
    leave(file, found)
