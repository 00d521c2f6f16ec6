"""From a trained head back to the finite machine that it stands for.

The thresholds come from trained heads: five seeds or more of counting, parity, S3, A5, S5, even pairs, flip-flop,
arithmetic with precedence, and long addition.  Where training had reached all labels, the points of one state lay
within 0.01 to 0.35 of a typical state and different states were 0.5 to 2 apart.  Their ratio was 3 to 120 and 0.987 of
the labels or more stayed; or it was 1.4 to 3 (heads that leak or grow) and all labels stayed.  Wrong machines, and
those of heads that were random, unconverged or trained on noise, had a ratio below 2.5 and lost labels, or kept at most
0.96.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final, Literal

import numpy as np
import torch
from torch import Tensor

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.checks import check_positive
from transductor.extraction.asking import Asked, asked, determined, supported
from transductor.extraction.clustering import Search, Walk
from transductor.extraction.observable_distance import observed, observed_head
from transductor.extraction.probing import LabelJudge, Sequences, Words, words_of_tokens
from transductor.extraction.truncation import truncated
from transductor.heads import RationalHead
from transductor.model import RationalReadout, RationalTransductor

# Radii tried, in units of a typical state; those that an earlier walk makes redundant are skipped.
TOLERANCES: Final = (0.5, 0.35, 0.25, 0.18, 0.12, 0.08, 0.05, 0.02, 0.005)

# States must be this many times as far apart as those that were taken for one, and keep this share of the labels …
MIN_RATIO, MIN_AGREEMENT = 3.0, 0.97
# … or, where states shade into one another (a leaking head), this many times, and keep all labels.
SHADED_RATIO = 1.25

ADVICE: Final = "train longer, with a stochastic or orthogonal family or fewer dimensions"
# A machine that is known from answers alone must give this share of the labels of words that were not asked about.
MIN_ANSWERED = 0.99
_ABOUT = 0.005  # agreements this close count as equal
_MOST_AFTER_TRUNCATION = 200  # states; a machine with more is seen without truncation, or not at all

Way = Literal["walk", "reduced walk", "questions"]


class NoMachineNearby(ValueError):
    """A head is not near any finite machine; the message says what was measured, and what to try."""


@dataclass(frozen=True)
class Extraction:
    """A finite machine that a head is near to, and how near.

    Distances are in units of a typical state, and only count what is read off the states now or later.

    Attributes:
        machine: For a :class:`RationalReadout` over a head that shows its state, the smallest machine whose labels are
            the readout's (argmax).  For other models the label at a position is no function of the state alone; then
            ``outputs`` number the states, and ``labelled`` is false
            (see :func:`~transductor.extraction.black_box.labelled`).
        representatives: ``(states, D)`` float64: for each state of the machine the head state of a shortest word, or
            the certainty that a leaking distribution leans to; zeros for the sink.
        spread: The largest distance of a successor to the representative it was taken for.
        separation: The smallest distance of two representatives; 1 if there is only one.
        tolerance: The radius within which states were taken for one.
        labelled: Whether ``machine.outputs`` are the model's labels.
        up_to_scale: Whether states on one ray were taken for one: an unbounded head whose labels repeat but whose
            states grow.
        sink: The state that stands for everything that does not occur in ``words``, if there is one.
        agreement: The share of positions of short words, where the model is decided, whose label stays when every state
            is replaced by its representative, the mean over all labels; for a bare head, the share of positions whose
            nearest representative is the right one.
        words_seen: How many words were given.
        alphabet: Which tokens are the letters of ``machine``, and what comes before a word.  Where a token does, the
            label of the machine's start is the empty word's.
        way: How the machine was found: ``"walk"`` through the states, ``"reduced walk"`` after spare dimensions were
            taken away, or ``"questions"``: then nothing is known of words longer than those given.
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
    alphabet: TokenAlphabet | None = None
    way: Way = "walk"

    @property
    def ratio(self) -> float:
        """How many times farther apart states are than those taken for one; infinite for an exact machine."""
        return self.separation / self.spread if self.spread else float("inf")


def extract(
    model: RationalReadout | RationalTransductor | RationalHead,
    *,
    words: Sequences | None = None,
    examples: Sequences | None = None,
    alphabet: TokenAlphabet | None = None,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
) -> Extraction:
    """Return the finite machine that a model's head stands for.

    The surest way comes first.  The head's states are explored breadth-first, taking near ones for one, with several
    radii.  Of the walks that end with states clearly farther apart than those taken for one, and that keep the model's
    labels, the one with the fewest states is the machine.  If there is none, the same is tried after dimensions that
    words hardly reach, or that are hardly read, were taken away.  If there is still none, and words or examples are
    given, the model is asked (L*), with counterexamples from these and on no longer ones.

    Args:
        model: A readout, a complete transductor, or a bare head, all of whose state counts.
        words: Tokens ``(B, T)``, or sequences of unequal length: a letter may follow another, or begin, where it does
            in these; everything else leads to a sink without a label.  Give words where the head has learned only some
            (expressions, say).
        examples: Likewise, but any letter may follow any: words that the model is judged by and asked about.  Give the
            training data where all words may occur; random words hardly ever belong to a sparse language.
        alphabet: Which tokens are letters and which one begins a word; all tokens are letters if not given.  The
            machine is one over these letters, and other tokens are never read.
        max_states: A walk that needs more is given up.
        tolerances: Radii, in units of a typical state.

    Raises:
        NoMachineNearby: With what was measured.
    """
    if not isinstance(model, (RationalReadout, RationalTransductor, RationalHead)):
        raise TypeError(
            f"model must be a RationalReadout, a RationalTransductor or a RationalHead; got {type(model).__name__}"
        )
    if not (model if isinstance(model, RationalHead) else model.rational_head).linear:
        raise ValueError("model must have a linear head; the beliefs of a filter are no states of a finite machine")
    if isinstance(model, RationalHead):
        return extract_head(
            model,
            torch.eye(model.state_dim),
            words=words,
            alphabet=alphabet,
            max_states=max_states,
            tolerances=tolerances,
        )
    if model.output_size < 2:
        raise ValueError("model must have at least two outputs, one per label; it has one")
    alphabet, given = _checked(model.rational_head, words, alphabet, max_states, tolerances)
    shown = given if examples is None else words_of_tokens(examples, alphabet).shuffled()
    head = observed(model, shown, alphabet)
    search = Search(head, given, max_states, tolerances)
    if search.blind:
        raise NoMachineNearby(_refusal(search.notes, [], words_given=shown is not None))
    judge = LabelJudge(model, shown, alphabet)
    candidates, extraction = _walked(search, judge)
    if extraction is None:
        for smaller in truncated(head, shown):
            most = min(max_states, _MOST_AFTER_TRUNCATION)
            extraction = _walked(Search(smaller.head, given, most, tolerances), judge, smaller.back)[1]
            if extraction is not None:
                break
    walked = None if extraction is None else _labelled(replace(extraction, alphabet=alphabet), model)
    if walked is not None and (shown is None or _beyond_doubt(walked, judge, shown)):
        return walked
    if shown is not None:
        answers = asked(model, head, shown, alphabet, max_states)
        fits = answers.agreement >= MIN_ANSWERED and answers.supported
        # Where states shade into one another, or are more than the words can tell apart, a smaller machine that gives
        # the same answers is the better description; where they do not explain the labels, any that does.
        explains = walked is not None and _explains(walked, judge)
        if fits and (walked is None or not explains or answers.machine.states < walked.machine.states):
            return _from_answers(answers, alphabet, judge, shown)
        search.notes.append(answers.refusal(MIN_ANSWERED))
    if walked is not None:
        return walked
    raise NoMachineNearby(_refusal(search.notes, candidates, words_given=shown is not None))


def extract_head(
    head: RationalHead,
    readout: Tensor,
    *,
    words: Sequences | None = None,
    alphabet: TokenAlphabet | None = None,
    max_states: int = 2000,
    tolerances: Sequence[float] = TOLERANCES,
) -> Extraction:
    """Return the machine of a head's states as they are read through ``readout (K, D)``; see :func:`extract`.

    Args:
        head: Driven by tokens.
        readout: The linear maps through which the state is read.
        words, alphabet, max_states, tolerances: As for :func:`extract`.
    """
    alphabet, given = _checked(head, words, alphabet, max_states, tolerances)
    if readout.ndim != 2 or readout.shape[1] != head.state_dim:
        raise ValueError(f"readout must be of shape (K, {head.state_dim}); got {tuple(readout.shape)}")
    search = Search(observed_head(head, readout.detach(), alphabet), given, max_states, tolerances)
    walks = search.walks(up_to_scale=False)
    candidates = [replace(_extraction(walk, search), agreement=search.followed(walk)) for walk in walks]
    if extraction := _simplest(candidates, MIN_RATIO, MIN_AGREEMENT):
        return replace(extraction, alphabet=alphabet)
    raise NoMachineNearby(_refusal(search.notes, candidates, words_given=given is not None))


def _walked(
    search: Search, judge: LabelJudge, back: Tensor | None = None
) -> tuple[list[Extraction], Extraction | None]:
    """Return the walks that ended, judged, and the one that is clear enough, if there is one.

    Args:
        search: Walks through the head, or through a smaller one.
        judge: Of the complete model.
        back: ``(D, R)``: what the states of a smaller head stand for.
    """
    candidates: list[Extraction] = []
    # A readout, or layers with a norm before them, show only the direction of a state that grows.
    for up_to_scale in (False, True):
        for walk in search.walks(up_to_scale=up_to_scale):
            extraction = _extraction(walk, search)
            if back is not None:
                states = extraction.representatives @ back.T
                extraction = replace(extraction, representatives=states, way="reduced walk")
            candidates.append(_judged(extraction, judge))
        if clear := _simplest(candidates, MIN_RATIO, MIN_AGREEMENT):
            return candidates, clear
    return candidates, _simplest(candidates, SHADED_RATIO, 1.0)


def _extraction(walk: Walk, search: Search) -> Extraction:
    """Return the walk as a machine, with a sink where the walk did not go."""
    table, states, sink = walk.transitions, walk.states.clone(), None
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
        walk.separation(),
        walk.radius,
        up_to_scale=walk.up_to_scale,
        sink=sink,
        words_seen=None if search.words is None else len(search.words),
    )


def _simplest(candidates: Sequence[Extraction], ratio: float, agreement: float) -> Extraction | None:
    """Return the machine with the fewest states that is clear enough and keeps about as many labels as any.

    It is not the clearest: a clock that is a little wrong is very near a clock of many more hours.  One state is the
    last choice, since there is no other to be apart from.
    """
    clear = [each for each in candidates if each.ratio > ratio and each.agreement >= agreement]
    most = max((each.agreement for each in clear), default=0.0)
    alike = [each for each in clear if each.agreement >= most - _ABOUT]
    return min(alike, key=lambda each: (each.machine.states == 1, each.machine.states), default=None)


def _judged(extraction: Extraction, judge: LabelJudge) -> Extraction:
    """Add the agreement.  Leaking distributions become the certainties they lean to, if as many labels stay."""
    if extraction.ratio <= SHADED_RATIO:  # no agreement would make it acceptable
        return extraction
    states, inside = extraction.representatives, slice(None, extraction.sink)
    agreement = judge.agreement(extraction.machine, states)
    leaning = states[inside].argmax(-1)
    stochastic = bool((states[inside] >= 0).all() and ((states[inside].sum(-1) - 1).abs() < 1e-6).all())
    if stochastic and len(leaning.unique()) == len(leaning):
        certain = states.clone()
        certain[inside] = torch.nn.functional.one_hot(leaning, states.shape[1]).double()
        if (as_certain := judge.agreement(extraction.machine, certain)) >= agreement:
            states, agreement = certain, as_certain
    return replace(extraction, representatives=states, agreement=agreement)


def _labelled(extraction: Extraction, model: RationalReadout | RationalTransductor) -> Extraction:
    """Add the readout's labels, with as few states as they need, where the label is a function of the state."""
    if not isinstance(model, RationalReadout) or model.rational_head.shows_previous:
        return extraction
    weight, bias = (part.detach().double().cpu() for part in (model.readout.weight, model.readout.bias))
    labels = (extraction.representatives @ weight.T + bias).argmax(-1)
    if extraction.sink is not None:
        labels[extraction.sink] = IGNORED
    unreduced = MooreMachine(extraction.machine.transitions, labels.numpy(), extraction.machine.start)
    empty_word = extraction.alphabet is not None and extraction.alphabet.shows_empty_word
    kept = unreduced.representative_states(empty_word=empty_word)
    return replace(
        extraction,
        machine=unreduced.minimised(empty_word=empty_word),
        representatives=extraction.representatives[torch.from_numpy(kept)],
        labelled=True,
        sink=None if extraction.sink is None else int(np.flatnonzero(kept == extraction.sink)[0]),
    )


def _beyond_doubt(extraction: Extraction, judge: LabelJudge, words: Words) -> bool:
    """Return whether states are clearly apart, no more than the words can tell apart, and explain the labels."""
    return (
        extraction.ratio > MIN_RATIO
        and _explains(extraction, judge)
        and supported(extraction.machine, judge, words, labelled=extraction.labelled)
    )


def _explains(extraction: Extraction, judge: LabelJudge) -> bool:
    """Return whether the machine has labels, or its states and the letters determine those of the model."""
    return extraction.labelled or determined(extraction.machine, judge) >= MIN_ANSWERED


def _from_answers(answers: Asked, alphabet: TokenAlphabet, judge: LabelJudge, words: Words) -> Extraction:
    """Return the machine of answers; what stands for a state is whatever keeps more labels."""
    kept = [judge.agreement(answers.machine, states) for states in (answers.means, answers.firsts)]
    return Extraction(
        answers.machine,
        answers.means if kept[0] >= kept[1] else answers.firsts,
        answers.spread,
        answers.separation,
        tolerance=0.0,
        labelled=True,
        agreement=max(kept),
        words_seen=len(words),
        alphabet=alphabet,
        way="questions",
    )


def _refusal(notes: Sequence[str], candidates: Sequence[Extraction], *, words_given: bool) -> str:
    """Say what was measured, in one sentence, and what to try, in another."""
    reasons = list(notes)
    if candidates:
        best = max(candidates, key=lambda each: each.ratio)
        kept = f" and {best.agreement:.1%} of the labels stay" if best.ratio > SHADED_RATIO else ""
        reasons.append(
            f"of {len(candidates)} walks that closed the clearest, within {best.tolerance:g}, has "
            f"{best.machine.states} states {best.separation:.3g} apart where states up to {best.spread:.3g} apart were "
            f"taken for one{kept}; needed are a ratio above {MIN_RATIO:g} and {MIN_AGREEMENT:.0%} of the labels, or a "
            f"ratio above {SHADED_RATIO:g} and all labels"
        )
    advice = [ADVICE]
    if not words_given:
        advice.insert(0, "give words like those it was trained on, so that it can also be asked")
    return f"the head is near no finite machine: {'; '.join(reasons)}.  What to try: {'; '.join(advice)}"


def _checked(
    head: RationalHead,
    words: Sequences | None,
    alphabet: TokenAlphabet | None,
    max_states: int,
    tolerances: Sequence[float],
) -> tuple[TokenAlphabet, Words | None]:
    tokens = head.transitions.vocab_size
    if tokens is None:
        raise ValueError("head must be driven by tokens; it is driven by features")
    check_positive("max_states", max_states)
    if not tolerances or not all(0 < tolerance < 1 for tolerance in tolerances):
        raise ValueError(f"tolerances must be numbers in (0, 1), at least one; got {tolerances!r}")
    alphabet = TokenAlphabet.all_tokens(tokens) if alphabet is None else alphabet
    if alphabet.vocab_size != tokens:
        raise ValueError(f"alphabet must be one of {tokens} tokens, as the head reads; got {alphabet.vocab_size}")
    return alphabet, None if words is None else words_of_tokens(words, alphabet)
