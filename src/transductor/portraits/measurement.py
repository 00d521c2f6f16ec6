"""Measures a head: where its states go, how its matrices turn, how far it drifts, and the machine it is near to.

Distances are those of :mod:`~transductor.extraction.observable_distance`: they count what is read off a state now or
later.  A drift is the distance to the representative that hardening would put in the state's place, in the head's own
precision.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Sequence
from typing import Final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.finite_automata import DFA
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.checks import check_positive
from transductor.extraction.black_box import labelled
from transductor.extraction.extracting import Extraction, NoMachineNearby, extract
from transductor.extraction.observable_distance import Contexts, observable_coordinates, observed
from transductor.extraction.probing import Sequences, Words, random_words, states_visited, words_of_tokens
from transductor.heads import RationalHead
from transductor.model import RationalReadout, RationalTransductor
from transductor.portraits.values import Drawn, Drift, Leak, Portrait, Trajectory

_WORDS: Final = 16
_WALKED: Final = 300  # letters of the word whose trajectory is drawn
_LENGTHS: Final = 48  # lengths at which drift is measured
_MOST_POWERS: Final = 6  # letters whose powers are followed: those that leak most

Model = RationalReadout | RationalTransductor | RationalHead


def portrait(
    model: Model,
    against: MooreMachine | DFA | None = None,
    words: Sequences | None = None,
    *,
    examples: Sequences | None = None,
    letters: Sequence[str] | None = None,
    alphabet: TokenAlphabet | None = None,
    classes: Sequence[str] | None = None,
    length: int = 10_000,
    seed: int = 0,
) -> Portrait:
    """Measure a head into plain data, which :func:`transductor.report.portrait_figure` draws.

    Args:
        model: A readout, a transductor, or a bare head.
        against: The machine it should be; token v is letter v, or letter v of ``alphabet``.
        words: As for :func:`~transductor.extraction.extracting.extract`; random ones if not given.
        examples: Likewise, if any letter may follow any.
        letters: Names of the tokens; their numbers if not given.
        alphabet: Instead of ``letters``: which tokens are letters, their names, and what comes before a word.
        classes: Names of the labels 0, 1, …; their numbers if not given.
        length: How many letters drift is followed for; where words are given, letters follow each other as in these.
        seed: Seed of the random words.
    """
    check_positive("length", length)
    head = model if isinstance(model, RationalHead) else getattr(model, "rational_head", None)
    if not isinstance(model, Model) or head is None:
        raise TypeError(
            f"model must be a RationalReadout, a RationalTransductor or a RationalHead; got {type(model).__name__}"
        )
    tokens = head.transitions.vocab_size
    if tokens is None:
        raise ValueError("model must have a head that is driven by tokens; it is driven by features")
    if not head.linear:
        raise ValueError(f"model must have a linear head; got a {type(head).__name__}")
    names = [str(token) for token in range(tokens)] if letters is None else list(map(str, letters))
    if len(names) != tokens:
        raise ValueError(f"letters must be {tokens} names, one for each token; got {len(names)}")
    if alphabet is None:
        alphabet = TokenAlphabet(tuple(names), tuple(range(tokens)))
    elif letters is not None:
        raise ValueError("letters must be left out where an alphabet is given, which has the names")
    target = MooreMachine.from_dfa(against) if isinstance(against, DFA) else against
    if not isinstance(target, MooreMachine | None):
        raise TypeError(f"against must be a MooreMachine, a DFA or None; got {type(against).__name__}")
    count = len(alphabet.letters)
    if target is not None and target.letters != count:
        what = "letters" if alphabet.restricted else "tokens"
        raise ValueError(f"against must have one letter for each of the {count} {what}; got {target.letters}")
    target = None if target is None else target.minimised(empty_word=alphabet.shows_empty_word)
    extraction, refusal = extracted_or_refused(model, words, examples, alphabet)  # checks the words too
    has_labels = not isinstance(model, RationalHead)
    learned = None if extraction is None else _labelled(model, extraction, words if examples is None else examples)
    given = None if words is None else words_of_tokens(words, alphabet)
    measured = Measurement(model, head, alphabet, given, extraction, length, seed)
    compared, separating, narrowed = learned is not None and target is not None and has_labels, None, False
    if learned is not None and target is not None and has_labels:
        separating, narrowed = compared_words(learned, target, alphabet, measured.contexts)
    return Portrait(
        title=head_title(model, head, count),
        letters=list(alphabet.letter_names),
        eigenvalues=measured.eigenvalues(),
        trajectory=measured.trajectory(target if learned is None else learned),
        learned=None if learned is None else _drawn(learned, classes, labels=has_labels),
        refusal=refusal,
        target=None if target is None else _drawn(target, classes, labels=True),
        separating_word=separating,
        compared=compared,
        words_like_given=narrowed,
        drift=measured.drift(),
        leak=measured.leak(),
        summary="" if extraction is None else extraction_summary(extraction),
    )


def compared_words(
    machine: MooreMachine, target: MooreMachine, alphabet: TokenAlphabet, contexts: Contexts
) -> tuple[list[int] | None, bool]:
    """Return a shortest word on which the labels of two machines differ, and whether only words like those given count.

    What a machine does with words that do not occur is no mistake: if the two differ on such words alone, there is no
    separating word.
    """
    lifted = alphabet.lifted(machine)
    word = lifted.separating_word(alphabet.lifted(target), skip_ignored=True)
    narrowed = word is not None and not bool(contexts.follows.all())
    if narrowed:
        word = lifted.separating_word(alphabet.lifted(_on_words_like(target, contexts)), skip_ignored=True)
    return None if word is None else list(alphabet.in_letters(word)), narrowed


def _on_words_like(machine: MooreMachine, contexts: Contexts) -> MooreMachine:
    """Return the machine without labels on words in which a letter stands where it stood in none."""
    follows = contexts.follows.numpy()
    after, dead = len(follows), machine.states * len(follows)
    table = np.where(follows[None], machine.transitions[:, None] * after + np.arange(machine.letters), dead)
    table = np.concatenate([table.reshape(dead, -1), np.full((1, machine.letters), dead)])
    labels = np.append(np.repeat(machine.outputs, after), IGNORED)
    return MooreMachine(table, labels, machine.start * after + after - 1)


def extracted_or_refused(
    model: Model, words: Sequences | None, examples: Sequences | None, alphabet: TokenAlphabet
) -> tuple[Extraction | None, str]:
    """Return the machine that the model is near to, or why there is none."""
    if not isinstance(model, RationalHead) and model.output_size == 1:
        return None, "the model has one real output: there are no labels, and a series need not be a finite machine"
    try:
        if isinstance(model, RationalHead):
            return extract(model, words=words, alphabet=alphabet), ""
        return extract(model, words=words, examples=examples, alphabet=alphabet), ""
    except NoMachineNearby as refusal:
        return None, str(refusal)


def _labelled(model: Model, extraction: Extraction, words: Sequences | None) -> MooreMachine:
    """Return the extracted machine, with the model's labels where it has any."""
    if extraction.labelled or isinstance(model, RationalHead):
        return extraction.machine
    return labelled(model, extraction, words=words if words is not None and len(words) > 1 else None).machine


def _drawn(machine: MooreMachine, classes: Sequence[str] | None, *, labels: bool) -> Drawn:
    """Return a machine for drawing; a state without a label that is never left is the sink, which is not shown."""
    shown = [None if label == IGNORED else label for label in machine.outputs.tolist()]
    names = dict(enumerate(classes or ()))  # a target may have labels that the model has not
    named = [None if label is None else names.get(label, label) for label in shown]
    table = machine.transitions.tolist()
    stuck = [state for state, row in enumerate(table) if set(row) == {state} and shown[state] is None]
    sink = stuck[0] if stuck and labels and machine.start not in stuck else None
    return Drawn(table, named if labels else None, machine.start, sink)


def head_title(model: Model, head: RationalHead, letters: int) -> str:
    """Return what kind of head it is, in one line."""
    kind = "head" if isinstance(model, RationalHead) else type(model).__name__
    family = type(head.transitions).__name__.removesuffix("Transitions")
    shape = f"{_many(head.state_dim, 'dimension')}, {_many(letters, 'letter')}"
    dtype = _precision(head)
    return f"{kind}: {family}{', looking back' if head.shows_previous else ''}, {shape}, {dtype}"


def _precision(head: RationalHead) -> str:
    return str(head.raw_initial_state.dtype).removeprefix("torch.")


def extraction_summary(extraction: Extraction) -> str:
    """Return how near a machine is, in one line."""
    states = _many(extraction.machine.states, "state")
    if extraction.spread == 0:
        return f"{states}, exact: what is one state is one point"
    if extraction.way == "questions":
        return (
            f"{states}, from the model's answers to words up to those given; {extraction.agreement:.1%} of labels stay"
        )
    return f"{states}; what is one state is within {extraction.spread:.2g}, two are {extraction.separation:.2g} apart"


def _many(count: int, what: str) -> str:
    return f"{count} {what}{'' if count == 1 else 's'}"


class Measurement:
    """A head in float64 with its metric, and the head itself in its own precision."""

    def __init__(
        self,
        model: Model,
        head: RationalHead,
        alphabet: TokenAlphabet,
        words: Words | None,
        extraction: Extraction | None,
        length: int,
        seed: int,
    ) -> None:
        self.head = copy.deepcopy(head).cpu().eval().requires_grad_(False)
        self.alphabet = alphabet
        self.exact = observed(model, words, alphabet)
        if not self.exact.finite:
            raise ValueError("model must hold finite matrices; some have NaN or infinity")
        self.letters, self.extraction, self.length = len(self.exact.table), extraction, length
        self.contexts = Contexts.of(words, self.letters)
        self.metric = observable_coordinates(self.exact, self.contexts, words)  # (C, D, R)
        self.generator = torch.Generator().manual_seed(seed)

    def eigenvalues(self) -> list[list[list[float]]]:
        """Return ``[letter][k] = [real, imaginary]``."""
        values: list[list[list[float]]] = torch.view_as_real(torch.linalg.eigvals(self.exact.table)).tolist()
        return values

    def words(self, count: int, length: int) -> Tensor:
        """Return random words ``(B, T)`` whose letters follow each other as in the given words."""
        if self.contexts.follows.all():
            return random_words(self.letters, count, length, self.generator)
        follows = self.contexts.follows.clone()
        endless = torch.ones(self.letters, dtype=torch.bool)
        while not torch.equal(endless, lasting := endless & (follows[:-1] & endless).any(1)):
            endless = lasting
        allowed = (follows & endless).double()
        allowed[allowed.sum(1) == 0] = 1.0  # words end everywhere: nothing is known of longer ones
        letter = torch.full((count,), self.letters)
        drawn = [
            letter := torch.multinomial(allowed[letter], 1, generator=self.generator).squeeze(1) for _ in range(length)
        ]
        return torch.stack(drawn, 1)

    def states(self, words: Tensor) -> Tensor:
        """Return the states ``(B, T, D)`` after every letter, as the head computes them, widened to float64."""
        states: Tensor = self.head(Words.of_table(words).tokens(self.alphabet))[..., : self.head.state_dim].double()
        return states[:, states.shape[1] - words.shape[1] :]

    def trajectory(self, machine: MooreMachine | None) -> Trajectory:
        """Return where the state goes on one random word."""
        word = self.words(1, _WALKED)
        states = torch.cat([self.exact.start[None], self.states(word)[0]])
        # One map for all contexts: the root of the mean of their quadratic forms.
        values, vectors = torch.linalg.eigh((self.metric @ self.metric.mT).mean(0))
        root = vectors * values.clamp_min(0).sqrt()
        points = states @ root
        finite = points.isfinite().all(-1)
        centre = points[finite].mean(0)
        _, sizes, axes = torch.linalg.svd(points[finite] - centre, full_matrices=False)
        plane = torch.zeros(points.shape[1], 2, dtype=points.dtype)
        plane[:, : min(2, len(axes))] = axes[:2].T
        flat = (points - centre) @ plane
        centres = torch.zeros(0, 2)
        if self.extraction is not None:
            centres = (self.extraction.representatives[: self.extraction.sink] @ root - centre) @ plane
        numbers = None if machine is None else [machine.start, *states_visited(machine, word)[0].tolist()]
        energy = sizes.square()
        return Trajectory(
            word=word[0].tolist(),
            points=[row.tolist() if fine else None for row, fine in zip(flat, finite.tolist(), strict=True)],
            states=numbers,
            centres=centres.tolist(),
            share=float(energy[:2].sum() / energy.sum()) if energy.sum() > 0 else 1.0,
        )

    def leak(self) -> Leak | None:
        """Return how far each letter leads representatives from representatives."""
        if self.extraction is None:
            return None
        states, sink = self.extraction.representatives, self.extraction.sink
        table = torch.tensor(self.extraction.machine.transitions)
        leak = Leak([], [])
        for letter in range(self.letters):
            after = table[:, letter]
            kept = torch.arange(len(states))
            kept = kept[(kept != sink) & (after != sink)] if sink is not None else kept
            gaps = self.distances(states[kept] @ self.exact.table[letter].T, after[kept], letter)
            leak.mean.append(_finite(gaps.mean()) if len(kept) else None)
            leak.worst.append(_finite(gaps.max()) if len(kept) else None)
        return leak

    def distances(self, states: Tensor, numbers: Tensor, letters: Tensor | int) -> Tensor:
        """Return the distances of ``(…, D)`` states after ``letters`` from the representatives of ``numbers (…)``."""
        assert self.extraction is not None
        context = self.contexts.after[letters]
        out = states.new_empty(states.shape[:-1])
        for each in context.unique().tolist():
            here = (context == each).expand(out.shape)
            points, right = states[here] @ self.metric[each], self.extraction.representatives @ self.metric[each]
            if self.extraction.up_to_scale:
                points, right = (part / part.norm(dim=-1, keepdim=True).clamp_min(1e-300) for part in (points, right))
            out[here] = (points - right[numbers[here]]).norm(dim=-1)
        return out

    def drift(self) -> Drift | None:
        """Return how far states drift, on random words and on powers of the letters that leak most."""
        if self.extraction is None:
            return None
        words = self.words(_WORDS, self.length)
        times = _spaced(words.shape[1])
        letters = self.leaking()
        powers = torch.tensor(letters, dtype=torch.long)[:, None].expand(-1, words.shape[1])
        gaps, alone = self.followed(torch.cat([words, powers]))[:, times - 1].split([len(words), len(letters)])
        return Drift(
            lengths=times.tolist(),
            median=list(map(_finite, gaps.median(0).values)),
            worst=list(map(_finite, gaps.max(0).values)),
            powers={str(letter): list(map(_finite, row)) for letter, row in zip(letters, alone, strict=True)},
            words=len(words),
            limit=self.extraction.separation / 2,
            precision=_precision(self.head),
        )

    def followed(self, words: Tensor) -> Tensor:
        """Return the distances ``(B, T)`` after every letter of words."""
        assert self.extraction is not None
        numbers = states_visited(self.extraction.machine, words)
        # Word by word: the states of all may not fit into memory.
        rows = [self.distances(self.states(word[None])[0], row, word) for word, row in zip(words, numbers, strict=True)]
        return torch.stack(rows)

    def leaking(self) -> list[int]:
        """Return the letters that leak most, among those whose powers do not lead to the sink."""
        leak = self.leak()
        assert self.extraction is not None
        assert leak is not None
        table, inside = self.extraction.machine.transitions, []
        for letter in range(self.letters):
            state = self.extraction.machine.start
            for _ in range(len(table)):
                state = int(table[state, letter])
            if state != self.extraction.sink:
                inside.append(letter)
        inside.sort(key=lambda letter: -(leak.worst[letter] or 0.0))
        return sorted(inside[:_MOST_POWERS])


def _spaced(length: int) -> Tensor:
    """Return up to ``_LENGTHS`` lengths from 1 to ``length``, evenly spaced by their logarithms."""
    return torch.tensor(sorted({round(length ** (k / (_LENGTHS - 1))) for k in range(_LENGTHS)}))


def _finite(value: Tensor) -> float | None:
    return float(value) if math.isfinite(value) else None
