"""Recipes: models and how they are trained, as frozen values, that are known to work on labelled sequences.

One label per sequence says little about each token, and no single head suits all machines: orthogonal matrices count
and cannot reset, stochastic ones switch and need a falling temperature, dense ones can do both and drift.  So several
are trained, and sequences longer than the trained ones tell which has understood.  Sizes and rates were
chosen on one data set, the door of ``examples/data`` (1 500 sequences of 3–39 tokens), one or two seeds each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from transductor.checks import one_of
from transductor.heads import RationalHead, UniversalHead
from transductor.model import (
    LSTM,
    BackboneConfig,
    NoAttention,
    RationalReadout,
    RationalTransductor,
    RotaryPositions,
    SequenceModel,
    Transformer,
)
from transductor.training import Annealing, TrainingSettings
from transductor.transitions import DenseTransitions, OrthogonalTransitions, StochasticTransitions

# From the number of tokens and the number of outputs to a fresh model; torch is seeded before.
Build = Callable[[int, int], SequenceModel[Any]]


@dataclass(frozen=True)
class Recipe:
    """A model and how it is trained.

    Attributes:
        name: Its name in tables, on the command line, and of its folder.
        summary: What it is, in a few words.
        build: Builds the model.
        settings: How it is trained; ``steps`` is the most that it is given, however large the budget.
        peer: Whether it is there for comparison alone, and never chosen.
        attends: Whether it compares every token with every other, which long sequences do not allow.
    """

    name: str
    summary: str
    build: Build
    settings: TrainingSettings = field(default_factory=TrainingSettings)
    peer: bool = False
    attends: bool = False


def _dense(tokens: int) -> RationalHead:
    return RationalHead(DenseTransitions(vocab_size=tokens, state_dim=32, init_scale=0.1))


def _dense_readout(tokens: int, outputs: int) -> SequenceModel[Any]:
    return RationalReadout(_dense(tokens), outputs)


def _orthogonal(tokens: int, outputs: int) -> SequenceModel[Any]:
    return RationalReadout(RationalHead(OrthogonalTransitions(vocab_size=tokens, state_dim=16)), outputs)


def _stochastic(tokens: int, outputs: int) -> SequenceModel[Any]:
    family = StochasticTransitions(vocab_size=tokens, state_dim=32, init_scale=2.0)
    return RationalReadout(RationalHead(family), outputs)


def _small(tokens: int, outputs: int) -> SequenceModel[Any]:
    # It begins by nearly staying where it is: most words of a log change nothing.
    family = StochasticTransitions(vocab_size=tokens, state_dim=16, init_scale=0.5)
    return RationalReadout(RationalHead(family), outputs)


def _universal(tokens: int, outputs: int) -> SequenceModel[Any]:
    return RationalReadout(UniversalHead(orthogonal_dim=8, stochastic_dim=16, vocab_size=tokens), outputs)


def _transductor(tokens: int, outputs: int) -> SequenceModel[Any]:
    backbone = BackboneConfig(vocab_size=tokens, output_size=outputs, attention=NoAttention())
    return RationalTransductor(_dense(tokens), backbone)


def _attending(tokens: int, outputs: int) -> SequenceModel[Any]:
    return RationalTransductor(_dense(tokens), BackboneConfig(vocab_size=tokens, output_size=outputs))


def _transformer(tokens: int, outputs: int) -> SequenceModel[Any]:
    return Transformer(BackboneConfig(vocab_size=tokens, output_size=outputs, positions=RotaryPositions()))


def _lstm(tokens: int, outputs: int) -> SequenceModel[Any]:
    return LSTM(vocab_size=tokens, output_size=outputs, width=64, layers=2)


_MOST_STEPS: Final = 1500
_STEADY: Final = TrainingSettings(steps=_MOST_STEPS)
_QUICK_HEAD: Final = TrainingSettings(steps=_MOST_STEPS, head_learning_rate=1e-2)

# The recipe whose models begin the search over the data where merging states leads nowhere.
SMALL: Final = "small"

RECIPES: Final[dict[str, Recipe]] = {
    recipe.name: recipe
    for recipe in (
        Recipe(
            "dense",
            "any matrices (d = 32), read linearly",
            _dense_readout,
            TrainingSettings(steps=_MOST_STEPS, learning_rate=1e-2),
        ),
        Recipe("orthogonal", "rotations and reflections (d = 16), read linearly", _orthogonal, _STEADY),
        Recipe(
            "stochastic",
            "distributions over 32 states, annealed, read linearly",
            _stochastic,
            # A falling temperature makes the distributions certain by itself; smoothing would keep them from it.
            TrainingSettings(steps=_MOST_STEPS, learning_rate=5e-2, label_smoothing=0.0, annealing=Annealing()),
        ),
        Recipe(
            SMALL,
            "distributions over 16 states that begin by staying",
            _small,
            TrainingSettings(steps=_MOST_STEPS, learning_rate=5e-2, label_smoothing=0.0, annealing=Annealing()),
        ),
        Recipe(
            "universal",
            "rotations (d = 8) beside 16 annealed states, read linearly",
            _universal,
            TrainingSettings(steps=_MOST_STEPS, learning_rate=2e-2, annealing=Annealing()),
        ),
        Recipe("transductor", "a dense head and two layers without attention", _transductor, _QUICK_HEAD),
        Recipe("attention", "a dense head and two layers with attention", _attending, _QUICK_HEAD, attends=True),
        Recipe("transformer", "two layers with rotary positions", _transformer, _STEADY, peer=True, attends=True),
        Recipe("lstm", "two layers of width 64", _lstm, _STEADY, peer=True),
    )
}


def chosen_recipes(names: Sequence[str] | None) -> tuple[Recipe, ...]:
    """Return the recipes of these names, in the order of ``RECIPES``; all where ``names`` is None."""
    for name in names or ():
        one_of("recipes", name, RECIPES)
    return tuple(recipe for name, recipe in RECIPES.items() if names is None or name in names)
