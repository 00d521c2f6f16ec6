"""From a trained head back to the finite machine that it stands for.

What is near was learned from trained heads: five seeds or more of counting, parity, S3, A5, S5, even pairs, flip-flop,
arithmetic with precedence, and long addition.  Where training had reached all labels, what was one state lay within
0.01 to 0.35 of a typical state and different states were 0.5 to 2 apart.  Their ratio was 3 to 120 and 0.987 of the
labels or more stayed; or it was 1.4 to 3 (heads that leak or grow) and all labels stayed.  Wrong machines, and those of
heads that were random, unconverged or trained on noise, had a ratio below 2.5 and lost labels, or kept at most 0.96.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.decomposition.permutation_groups import Permutation, PermutationGroup
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.checks import check_positive, check_token_ids
from transductor.extraction.clustering import Search, Walk
from transductor.extraction.label_agreement import Judge
from transductor.extraction.observable_distance import seen, seen_head
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalReadout, RationalTransductor

# Radii tried, in units of a typical state; those that an earlier walk makes redundant are skipped.
TOLERANCES: Final = (0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.02, 0.005)

# States must be this many times as far apart as what was taken for one, and keep this share of the labels …
MIN_RATIO, MIN_AGREEMENT = 3.0, 0.97
# … or, where states shade into one another (a leaking head), this many times and all labels.
SHADED_RATIO = 1.25
_ABOUT = 0.005


class NoMachineNearby(ValueError):
    """The head is not near any finite machine; the message says what was measured."""


@dataclass(frozen=True)
class Extraction:
    """A finite machine that a head is near to, and how near.

    Distances are in units of a typical state, as far as anything read off the states now or later shows them.

    Attributes:
        machine: The machine.  Of a :class:`RationalReadout` over a head that shows its state, the smallest machine
            whose labels are the readout's (argmax).  Of anything else the label at a position is no function of
            the state alone; then ``outputs`` number the states, and ``labelled`` is false
            (see :func:`~transductor.extraction.black_box.labelled`).
        representatives: ``(states, D)`` float64: for each state of the machine the head state of a shortest word, or
            the certainty that a leaking distribution leans to; zeros for the sink.
        spread: The largest distance of a successor to the representative it was taken for.
        separation: The smallest distance of two representatives; 1 if there is only one.
        tolerance: The radius within which states were taken for one.
        labelled: Whether ``machine.outputs`` are the model's labels.
        up_to_scale: Whether states on one ray were taken for one: an unbounded head whose labels repeat but whose
            states grow.
        sink: The state that stands for everything ``words`` never showed, if there is any.
        agreement: Share of positions of short words, of those where the model is decided, whose label stays when every
            state is replaced by its representative; of a bare head, whose nearest representative is the right one.
        words_seen: How many words were given.
    """

    machine: MooreMachine
    representatives: Tensor
    spread: float
    separation: float
    tolerance: float
    labelled: bool = False
    up_to_scale: bool = False
    sink: int | None = None
    agreement: float = 0.0
    words_seen: int | None = None

    @property
    def ratio(self) -> float:
        """How many times farther apart states are than what was taken for one; infinite for an exact machine."""
        return self.separation / self.spread if self.spread else float("inf")


def extract(
    model: RationalReadout | RationalTransductor | RationalHead,
    *,
    words: Tensor | None = None,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
) -> Extraction:
    """The finite machine that a model's head stands for.

    Its states are walked through breadth-first, near ones being one, for several radii; of the walks that end with
    states clearly farther apart than what was taken for one, and keep the model's labels, the machine is the one with
    the fewest states.

    Args:
        model: A readout, a whole transductor, or a bare head, all of whose state counts.
        words: ``(B, T)``: a letter may follow another, or begin, where it does in these; everything else leads to a
            sink without a label.  Give words where the head has learned only some (expressions, say).
        max_states: A walk that needs more is given up.
        tolerances: Radii, in units of a typical state.

    Raises:
        NoMachineNearby: With what was measured.
    """
    if not isinstance(model, (RationalReadout, RationalTransductor, RationalHead)):
        raise TypeError(
            f"model must be a RationalReadout, a RationalTransductor or a RationalHead; got {type(model).__name__}"
        )
    if isinstance(model, RationalHead):
        return extract_head(
            model, torch.eye(model.state_dim), words=words, max_states=max_states, tolerances=tolerances
        )
    if model.output_size < 2:
        raise ValueError("model must have at least two outputs, one per label; it has one")
    words = _checked(model.rational_head, words, max_states, tolerances)
    search = Search(seen(model, words), words, max_states, tolerances)
    if search.blind:
        raise NoMachineNearby(_refusal(search.notes, []))
    judge = Judge(model, words)
    candidates: list[Extraction] = []
    # Of a state that grows, a readout shows no more than its direction, and so do layers with a norm before them.
    for up_to_scale in (False, True):
        candidates += [_judged(_extraction(walk, words), judge) for walk in search.walks(up_to_scale=up_to_scale)]
        if found := _simplest(candidates, MIN_RATIO, MIN_AGREEMENT):
            return _labelled(found, model)
    if found := _simplest(candidates, SHADED_RATIO, 1.0):
        return _labelled(found, model)
    raise NoMachineNearby(_refusal(search.notes, candidates))


def extract_head(
    head: RationalHead,
    visible: Tensor,
    *,
    words: Tensor | None = None,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
) -> Extraction:
    """The machine of a head's states as seen through ``visible (K, D)``; see :func:`extract`.

    Args:
        head: Driven by tokens.
        visible: The linear maps through which the state is read.
    """
    words = _checked(head, words, max_states, tolerances)
    if visible.ndim != 2 or visible.shape[1] != head.state_dim:
        raise ValueError(f"visible must be of shape (K, {head.state_dim}); got {tuple(visible.shape)}")
    search = Search(seen_head(head, visible.detach()), words, max_states, tolerances)
    walks = search.walks(up_to_scale=False)
    candidates = [replace(_extraction(walk, words), agreement=search.followed(walk)) for walk in walks]
    if found := _simplest(candidates, MIN_RATIO, MIN_AGREEMENT):
        return found
    raise NoMachineNearby(_refusal(search.notes, candidates))


@dataclass(frozen=True)
class GeneratedGroup:
    """The group that the letters of an extracted machine generate.

    The states that words lead to span all that is visible, so this is the group of the matrices there.

    Attributes:
        generators: For each letter where it takes the machine's states.
        order: How many elements the group has.
        name: ``Z6``, ``A5``, …, where it is known.
        extraction: The machine.
    """

    generators: tuple[Permutation, ...]
    order: int
    name: str
    extraction: Extraction


def generated_group(
    model: RationalReadout | RationalTransductor | RationalHead,
    *,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
) -> GeneratedGroup:
    """The finite group that the matrices of a head generate, as permutations of the machine's states.

    Raises:
        NoMachineNearby: If the matrices generate no finite group that is near.
        ValueError: If a letter takes two states to one, so that there is no group.
    """
    extraction = extract(model, max_states=max_states, tolerances=tolerances)
    columns = tuple(tuple(column) for column in extraction.machine.transitions.T.tolist())
    for letter, column in enumerate(columns):
        second = next((state for state, target in enumerate(column) if target in column[:state]), None)
        if second is not None:
            raise ValueError(
                f"model must permute its {len(column)} states; letter {letter} takes states "
                f"{column.index(column[second])} and {second} to one"
            )
    group = PermutationGroup(extraction.machine.states, columns)
    return GeneratedGroup(columns, group.order, group.name, extraction)


def _extraction(walk: Walk, words: Tensor | None) -> Extraction:
    """The walk as a machine; where it did not go, a sink."""
    table, states, sink = walk.transitions, walk.representatives, None
    outputs = torch.arange(len(table))
    if (table < 0).any():
        sink = len(table)
        table = torch.cat([table.where(table >= 0, torch.tensor(sink)), torch.full_like(table[:1], sink)])
        states = torch.cat([states, torch.zeros_like(states[:1])])
        outputs = torch.cat([outputs, torch.tensor([IGNORED])])
    return Extraction(
        MooreMachine(table.numpy(), outputs.numpy()),
        states,
        walk.spread,
        walk.separation,
        walk.radius,
        up_to_scale=walk.up_to_scale,
        sink=sink,
        words_seen=None if words is None else len(words),
    )


def _simplest(candidates: Sequence[Extraction], ratio: float, agreement: float) -> Extraction | None:
    """Of the machines that are clear enough and keep about as many labels as any, the one with the fewest states.

    Not the clearest: a clock that is a little wrong is very near a clock of many more hours.  One state is the last
    choice, since there is no other to be apart from.
    """
    clear = [each for each in candidates if each.ratio > ratio and each.agreement >= agreement]
    most = max((each.agreement for each in clear), default=0.0)
    alike = [each for each in clear if each.agreement >= most - _ABOUT]
    return min(alike, key=lambda each: (each.machine.states == 1, each.machine.states), default=None)


def _judged(found: Extraction, judge: Judge) -> Extraction:
    """With its agreement.  Leaking distributions become the certainties they lean to, if as many labels stay."""
    if found.ratio <= SHADED_RATIO:  # no agreement would help it
        return found
    states, inside = found.representatives, slice(None, found.sink)
    agreement = judge.agreement(found.machine, states)
    leaning = states[inside].argmax(-1)
    stochastic = bool((states[inside] >= 0).all() and ((states[inside].sum(-1) - 1).abs() < 1e-6).all())
    if stochastic and len(leaning.unique()) == len(leaning):
        certain = states.clone()
        certain[inside] = torch.nn.functional.one_hot(leaning, states.shape[1]).double()
        if (as_certain := judge.agreement(found.machine, certain)) >= agreement:
            states, agreement = certain, as_certain
    return replace(found, representatives=states, agreement=agreement)


def _labelled(found: Extraction, model: RationalReadout | RationalTransductor) -> Extraction:
    """With the readout's labels and as few states as they need, where the label is a function of the state."""
    if not isinstance(model, RationalReadout) or isinstance(model.rational_head, LookbackHead):
        return found
    weight, bias = (part.detach().double().cpu() for part in (model.readout.weight, model.readout.bias))
    labels = (found.representatives @ weight.T + bias).argmax(-1)
    if found.sink is not None:
        labels[found.sink] = IGNORED
    whole = MooreMachine(found.machine.transitions, labels.numpy())
    kept = whole.representative_states()
    return replace(
        found,
        machine=whole.minimised(),
        representatives=found.representatives[torch.from_numpy(kept)],
        labelled=True,
        sink=None if found.sink is None else int(np.flatnonzero(kept == found.sink)[0]),
    )


def _refusal(notes: Sequence[str], candidates: Sequence[Extraction]) -> str:
    """What was measured, in one sentence."""
    told = list(notes)
    if candidates:
        best = max(candidates, key=lambda each: each.ratio)
        kept = f" and {best.agreement:.1%} of the labels stay" if best.ratio > SHADED_RATIO else ""
        told.append(
            f"of {len(candidates)} walks that closed the clearest, within {best.tolerance:g}, has "
            f"{best.machine.states} states {best.separation:.3g} apart where states up to {best.spread:.3g} apart were "
            f"taken for one{kept}; needed are a ratio above {MIN_RATIO:g} and {MIN_AGREEMENT:.0%} of the labels, or a "
            f"ratio above {SHADED_RATIO:g} and all labels"
        )
    return f"the head is near no finite machine: {'; '.join(told)}"


def _checked(head: RationalHead, words: Tensor | None, max_states: int, tolerances: Sequence[float]) -> Tensor | None:
    letters = head.transitions.vocab_size
    if letters is None:
        raise ValueError("head must be driven by tokens; it is driven by features")
    check_positive("max_states", max_states)
    if not tolerances or not all(0 < tolerance < 1 for tolerance in tolerances):
        raise ValueError(f"tolerances must be numbers in (0, 1), at least one; got {tolerances!r}")
    if words is None:
        return None
    if not isinstance(words, Tensor) or words.ndim != 2 or not words.numel():
        shape = tuple(words.shape) if isinstance(words, Tensor) else type(words).__name__
        raise ValueError(f"words must be tokens of shape (B, T), at least one; got {shape}")
    check_token_ids("words", words, letters)
    return words.long().cpu()
