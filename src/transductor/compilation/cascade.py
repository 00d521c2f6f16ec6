"""A Krohn–Rhodes cascade as a stack of heads, one level a layer.

Level k is moved by the letter and by the coordinates above it *before* the letter: by its *context*, by which the
cascade tabulates its moves.  The stack supplies exactly that:

* the delay: heads look back, so the stream gets the coordinate ``c^k_{t−1}`` and not only ``c^k_t``;
* the context of the first level is the letter, in the embedding; that of level k + 1 is a function of the context and
  the old coordinate of level k, which the feed-forward part of block k looks up: a conjunction, beyond a linear map;
* the head of level k + 1 is driven by the stream: a stochastic family at temperature 0, whose argmax turns the context
  into an exact 0/1 matrix, whatever the last bits of the stream;
* the decode map: below the last level the context names the state after the letter; the last block looks up its label.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias, cast

import numpy as np
import torch

from transductor.automata.decomposition.cascade import Action, Cascade, Level
from transductor.automata.decomposition.krohn_rhodes import decomposed
from transductor.automata.finite_automata import DFA, NFA
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import check_positive
from transductor.compilation.backbone import Moments, bare_backbone, silence, write_labels, write_lookup
from transductor.compilation.inverse_charts import compiled_family
from transductor.compilation.realisation import CannotCompile, realised
from transductor.heads import LookbackHead
from transductor.model import StackedTransductor
from transductor.transitions import StochasticTransitions, TransitionFamily

_MOST_REACHED: Final = 1_000_000  # coordinate tuples that are followed

Context: TypeAlias = tuple[int, int, int]  # view before the letter, view after it, letter


def compile_cascade(
    machine: DFA | NFA | MooreMachine | Cascade, *, dtype: torch.dtype = torch.float32, limit: int = 4096
) -> StackedTransductor:
    """Compile the holonomy cascade of a finite machine into a frozen non-linear stack that is right on every word.

    It is not needed for exactness (:func:`~transductor.compilation.compiling.compile_model` holds any finite machine in
    one head); it shows the machine as permutations and resets.  All coordinates that words reach are followed, and
    compared with the machine, before anything is built.

    Args:
        machine: Labels are those of :func:`~transductor.compile_model`; a decomposition, which has none, is labelled
            with the states of its machine.
        dtype: ``torch.float32`` or ``torch.float64``.
        limit: The most coordinates of the stream, and likewise units of a feed-forward layer.

    Raises:
        CannotCompile: A cascade with more contexts than ``limit`` allows.
    """
    check_positive("limit", limit)
    if isinstance(machine, Cascade):
        cascade, labels, table, classes = machine, np.arange(machine.states), None, machine.states
    else:
        if not isinstance(machine, DFA | NFA | MooreMachine):
            raise TypeError(f"machine must be a DFA, an NFA, a MooreMachine or a Cascade; got {type(machine).__name__}")
        target = realised(machine)
        assert target.machine is not None
        labels, table, classes = target.machine.outputs, target.machine.transitions, target.classes
        try:
            cascade = decomposed(cast(Any, target.machine))  # letters are numbers
        except ValueError as error:  # its own limits
            raise CannotCompile(
                f"machine has too large a cascade ({error}); compile_model takes it as it is"
            ) from error
    layers = _explored(cascade, labels.tolist(), None if table is None else table.tolist(), limit)
    plan = _Plan(classes, len(cascade.alphabet), layers)
    if plan.width > limit:
        raise _too_large(limit, len(layers), plan.width)
    config = bare_backbone(plan.letters, plan.classes, plan.width, layers=len(layers), units=plan.units)
    heads = [_head(number, plan, dtype) for number in range(len(layers))]
    model = StackedTransductor(heads, config)
    for part in (model.backbone, model.inputs, model.injections):
        part.double()
    _write(model, plan)
    return model.to(dtype).requires_grad_(False).eval()


def _too_large(limit: int, levels: int, needed: int) -> CannotCompile:
    return CannotCompile(
        f"limit allows {limit} coordinates and units, and this cascade of {levels} levels needs {needed} or more; "
        "raise limit, or compile the machine directly with compile_model"
    )


@dataclass
class _Layer:
    """A level of the cascade, as far as words reach it.

    Attributes:
        points: How many values its coordinate has.
        start: The value before the first letter.
        contexts: The contexts that drive its head, numbered.
        actions: How each context moves all points.
        lookups: ``(context, coordinate before)`` to what the block behind the level writes: a context of the next
            layer; behind the last, a label, or None where it is ignored.
    """

    points: int
    start: int
    contexts: dict[Context, int] = field(default_factory=dict)
    actions: list[Action] = field(default_factory=list)
    lookups: dict[tuple[int, int], int | None] = field(default_factory=dict)

    def number(self, context: Context, action: Action) -> int:
        """Return the number of a context; a new one comes last."""
        if context not in self.contexts:
            self.contexts[context] = len(self.contexts)
            self.actions.append(action)
        return self.contexts[context]


def _explored(cascade: Cascade, labels: list[int], table: list[list[int]] | None, limit: int) -> list[_Layer]:
    """Return the layers, following every letter from all coordinates that words reach; compared with ``table``."""
    letters = range(len(cascade.alphabet))
    # A machine with one state has no levels: it gets one that never moves.
    idle = Level((), {0: (0,)}, {(0, 0, letter): (0,) for letter in letters})
    levels = cascade.levels or (idle,)
    start = cascade.start(cascade.initial) or (0,)
    layers = [_Layer(len(next(iter(level.moves.values()))), first) for level, first in zip(levels, start, strict=True)]
    for letter in letters:  # first, so that a letter's context has its token's number
        layers[0].number((0, 0, letter), levels[0].moves[0, 0, letter])
    known: dict[tuple[int, int], int] = {}
    seen, queue = {start}, [start]
    for coordinates in queue:
        for letter in letters:
            before = after = 0
            reached, key = list[int](), (0, 0)
            for number, (level, layer, point) in enumerate(zip(levels, layers, coordinates, strict=True)):
                action = level.moves[before, after, letter]
                context = layer.number((before, after, letter), action)
                if number:
                    layers[number - 1].lookups[key] = context
                key = context, point
                before, after = level.narrowed[before][point], level.narrowed[after][action[point]]
                reached.append(action[point])
            (state,), (successor,) = cascade.views[before], cascade.views[after]
            expected = known.setdefault((state, letter), successor if table is None else table[state][letter])
            if successor != expected:
                raise ValueError(f"machine is not covered by its cascade: state {state}, letter {letter}")
            layers[-1].lookups[key] = None if labels[successor] == IGNORED else labels[successor]
            if tuple(reached) not in seen:
                seen.add(tuple(reached))
                queue.append(tuple(reached))
        largest = max(len(layer.lookups) for layer in layers)
        if largest > limit or len(seen) > _MOST_REACHED:
            raise _too_large(limit, len(levels), largest)
    return layers


@dataclass(frozen=True)
class _Plan:
    """Coordinates of the stream: the labels, then for every layer its context and its coordinate before the letter."""

    classes: int
    letters: int
    layers: list[_Layer]

    def context_at(self, layer: int) -> int:
        """Return where the contexts of a layer begin."""
        return self.classes + sum(len(each.contexts) + each.points for each in self.layers[:layer])

    def before_at(self, layer: int) -> int:
        """Return where the coordinate of a layer, as it was before the letter, begins."""
        return self.context_at(layer) + len(self.layers[layer].contexts)

    @property
    def width(self) -> int:
        """How many coordinates the stream has."""
        return self.context_at(len(self.layers))

    @property
    def units(self) -> int:
        """How many units the largest feed-forward layer has."""
        return max(len(layer.lookups) for layer in self.layers)


def _head(number: int, plan: _Plan, dtype: torch.dtype) -> LookbackHead:
    layer = plan.layers[number]
    family: TransitionFamily
    if number == 0:
        moves = np.array(layer.actions, dtype=np.int64).T  # [point, letter]
        target = realised(MooreMachine(moves, np.zeros(layer.points, dtype=np.int64), layer.start))
        family, start = compiled_family("auto", target, dtype=dtype, trainable=False)
    else:
        family = StochasticTransitions(state_dim=layer.points, feature_dim=plan.width, temperature=0.0, init_scale=0.0)
        family.get_parameter("source.projection.bias").data.zero_()
        logits = family.get_parameter("source.projection.weight").data.view(layer.points, layer.points, plan.width)
        for context, action in enumerate(layer.actions):
            logits[list(action), range(layer.points), plan.context_at(number) + context] = 1.0
        start = np.eye(layer.points)[layer.start]
    head = LookbackHead(family).to(dtype)
    head.raw_initial_state.data.copy_(torch.from_numpy(start))
    return head


@torch.no_grad()
def _write(model: StackedTransductor, plan: _Plan) -> None:
    silence(model.backbone, all_weights=True)
    for part in (model.inputs, model.injections):
        for parameter in part.parameters():
            parameter.zero_()
    embedding = model.backbone.embedding.weight
    embedding[:, plan.context_at(0) : plan.before_at(0)] = torch.eye(plan.letters, dtype=embedding.dtype)
    for number, layer in enumerate(plan.layers):
        begin = plan.before_at(number)
        injected = model.injections[number].get_parameter("projections.weight")[begin : begin + layer.points]
        injected[:, layer.points :] = torch.eye(layer.points, dtype=injected.dtype)  # [h_t ; h_{t−1}]: only the latter
        keys = embedding.new_zeros(len(layer.lookups), plan.width)
        for unit, (context, point) in enumerate(layer.lookups):
            keys[unit, plan.context_at(number) + context] = keys[unit, plan.before_at(number) + point] = 1.0
        first = plan.context_at(number + 1) if number + 1 < len(plan.layers) else 0
        values = [None if value is None else first + value for value in layer.lookups.values()]
        # Here the stream holds a context and a coordinate of this layer and of each before it.
        write_lookup(model.backbone, number, keys, values, Moments.of_ones(2 * (number + 1), plan.width), nearest=0.5)
    write_labels(model.backbone, plan.classes, Moments.of_ones(2 * len(plan.layers) + 1, plan.width))
