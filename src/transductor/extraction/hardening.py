"""A trained model made exact: its head becomes the finite machine that it was near to.

A one-hot state under 0/1 matrices is a sum of zeros and a single one, which no order of operations rounds: the state
after a billion letters is as exact as after one.
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

import torch
from torch import Tensor, nn

from transductor.automata.moore import MooreMachine
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.extraction.extracting import ADVICE, MIN_AGREEMENT, TOLERANCES, Extraction, NoMachineNearby, extract
from transductor.extraction.probing import (
    JUDGED_LENGTH,
    JUDGED_WORDS,
    LabelJudge,
    Sequences,
    Words,
    labels_said,
    words_of_tokens,
)
from transductor.heads import LookbackHead, RationalHead
from transductor.model import RationalReadout, RationalTransductor
from transductor.transitions import DenseTransitions, PermutationTransitions, TransitionFamily

ModelT = TypeVar("ModelT", RationalReadout, RationalTransductor)


@dataclass(frozen=True)
class Hardened(Generic[ModelT]):
    """A model whose head is exactly a finite machine.

    Attributes:
        model: A copy of the given model with another head, in evaluation mode; the head is frozen.
        extraction: The machine, and how near the head was.
        agreement: Share of positions, of held-out words no longer than 64, on which the hardened model and the soft one
            give the same label, where the soft one is decided.
    """

    model: ModelT
    extraction: Extraction
    agreement: float


def harden(
    model: ModelT,
    *,
    words: Sequences | None = None,
    examples: Sequences | None = None,
    alphabet: TokenAlphabet | None = None,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
    extraction: Extraction | None = None,
) -> Hardened[ModelT]:
    """Return a copy of ``model`` whose head is the machine that its head is near to.

    The state stays a one-hot vector at every length.  The map that read the state now reads the representatives
    instead: ``W' = W R``, so that ``W' e_q = W r_q``.  Everything else is the same, bit for bit.

    A token that is no letter of ``alphabet`` leaves the state as it is: the hardened model reads ``<start>`` first,
    like the soft one, and passes over ``<end>``, ``<unknown>`` and any other ``<start>``, which the soft one was never
    taught.

    Args:
        model: A readout or a complete transductor.
        words: What the model was trained for, if not all words; see :func:`extract`.
        examples: Words that the model is judged by, if any letter may follow any; see :func:`extract`.
        alphabet: Which tokens are letters, if not all; see :func:`extract`.
        max_states: A machine with more is not looked for.
        tolerances: Radii within which states may be taken for one.
        extraction: The result of :func:`extract` for this model, if it is known already.

    Raises:
        NoMachineNearby: With what was measured; nothing is returned that is only nearly right, nor where the hardened
            model's labels are not the soft one's on held-out words.
    """
    if not isinstance(model, (RationalReadout, RationalTransductor)):
        raise TypeError(f"model must be a RationalReadout or a RationalTransductor; got {type(model).__name__}")
    if extraction is None:
        extraction = extract(
            model,
            words=words,
            examples=examples,
            alphabet=alphabet,
            max_states=max_states,
            tolerances=tolerances,
        )
    elif alphabet is not None and alphabet != extraction.alphabet:
        raise ValueError("alphabet must be that of the extraction; leave it out where an extraction is given")
    head, states = model.rational_head, extraction.representatives
    if states.shape != (extraction.machine.states, head.state_dim):
        raise ValueError(
            f"extraction must be of this model, whose states have {head.state_dim} coordinates; got {states.shape[1]}"
        )
    known = extraction.alphabet or TokenAlphabet.all_tokens(model.vocab_size)
    # Only a head that looks back shows its state before the first token.
    before = known.begin is not None and head.shows_previous
    machine = known.idle(extraction.machine, before=before)
    if before:
        states = torch.cat([states, head.initial_state().detach().double().cpu()[None]])
    hard = copy.deepcopy(model)
    hard.rational_head = machine_head(
        machine, lookback=head.shows_previous, like=head.raw_initial_state, backend=head.backend
    )
    if isinstance(hard, RationalReadout):
        hard.readout = _refitted(hard.readout, states)
    else:
        assert hard.injection.projections is not None  # a head that is not read was refused
        hard.injection.projections = _refitted(hard.injection.projections, states)
    hard.eval()
    if examples is not None:
        held_out = _held_out(words_of_tokens(examples, known).shuffled(), len(known.letters))
    else:
        held_out = _held_out(None if words is None else words_of_tokens(words, known), len(known.letters))
    return Hardened(hard, extraction, _agreement(model, hard, held_out, known))


def _held_out(words: Words | None, letters: int) -> Words:
    """Return words that no machine was judged by; where too few are given, the last of them."""
    if words is None:
        return Words.random(letters, JUDGED_WORDS, JUDGED_LENGTH, torch.Generator().manual_seed(1))
    return words.rows(slice(-JUDGED_WORDS, None)).beginnings(JUDGED_WORDS, JUDGED_LENGTH)


def _agreement(model: ModelT, hard: ModelT, words: Words, alphabet: TokenAlphabet) -> float:
    """Return the share of decided positions on which both give the same label; refuse where it is too small."""
    judge, hardened = LabelJudge(model, words, alphabet), labels_said(hard, words.tokens(alphabet))
    if not judge.decided.any():
        raise NoMachineNearby(
            "the model decides on no label anywhere on held-out words: nothing to keep.  What to try: train longer"
        )
    different = judge.decided & (judge.labels != hardened)
    agreement = 1 - float(different.sum() / judge.decided.sum())
    if agreement < MIN_AGREEMENT:
        row, time = different.nonzero()[0].tolist()
        word = alphabet.spelled(judge.tokens[row, : time + 1].tolist()).split()
        raise NoMachineNearby(
            f"a machine was near, but the hardened model keeps only {agreement:.2%} of the labels of held-out words "
            f"(needed: {MIN_AGREEMENT:.0%}); after {' '.join(word[-12:])} it says "
            f"{int(hardened[row, time])} where the model says {int(judge.labels[row, time])}.  What to try: {ADVICE}"
        )
    return agreement


def machine_head(
    machine: MooreMachine, *, lookback: bool = False, like: Tensor | None = None, backend: str = "auto"
) -> RationalHead:
    """Return a frozen head whose state is the one-hot vector of the machine's state.

    Its matrices are permutations where every letter permutes the states: they are kept as one number a column, and a
    step moves coordinates.

    Args:
        machine: Its outputs play no part.
        lookback: Show the state before the token too.
        like: A tensor of the dtype and on the device wanted.
        backend: The backend of the scan.
    """
    like = torch.empty(()) if like is None else like
    head = (LookbackHead if lookback else RationalHead)(_moves(machine), backend=backend).requires_grad_(False)
    head.raw_initial_state.zero_()[machine.start] = 1.0
    return head.to(like)


@torch.no_grad()
def _moves(machine: MooreMachine) -> TransitionFamily:
    """Return the matrices that move the one-hot vector of a state to that of the next."""
    images = torch.tensor(machine.transitions.T)
    if bool((images.sort(-1).values == torch.arange(machine.states)).all()):
        return PermutationTransitions(permutations=images.tolist())
    family = DenseTransitions(state_dim=machine.states, vocab_size=machine.letters, init_scale=0.0)
    table = family.get_parameter("source.raw").view(machine.letters, machine.states, machine.states).zero_()
    table.scatter_(1, images.unsqueeze(1), 1.0)  # M[letter][to, from]
    return family


def _refitted(linear: nn.Linear, states: Tensor) -> nn.Linear:
    """Return the map that does to one-hot states what ``linear`` does to ``states (n, D)``."""
    weight = linear.weight.detach()
    parts = [part @ states.T for part in weight.double().cpu().split(states.shape[1], 1)]
    fitted = nn.Linear(len(parts) * len(states), linear.out_features, bias=linear.bias is not None).to(weight)
    fitted.weight = nn.Parameter(torch.cat(parts, 1).to(weight), requires_grad=linear.weight.requires_grad)
    if linear.bias is not None:
        fitted.bias = linear.bias
    return fitted
