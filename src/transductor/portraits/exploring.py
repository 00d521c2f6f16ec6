"""Takes out of a model what a page needs to run it: the head's numbers, its machine, and where its states lie."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor

from transductor.automata.finite_automata import DFA
from transductor.automata.graphs import explored
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.certification.certificates import FORMAT, AgreementCertificate
from transductor.certification.encoding import digest
from transductor.checks import working_dtype
from transductor.extraction.black_box import labelled
from transductor.extraction.extracting import Extraction
from transductor.extraction.probing import Sequences, words_of_tokens
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.portraits.explored import Accuracy, Explored, Head, Machine, Numbers, Proof, View
from transductor.portraits.measurement import (
    Measurement,
    Model,
    compared_words,
    extracted_or_refused,
    extraction_summary,
    head_title,
)

_PLANE_LETTERS: Final = 300  # of the random word whose states span the plane


def explored_model(
    model: Model,
    name: str,
    *,
    against: MooreMachine | DFA | None = None,
    against_name: str = "",
    twin: MooreMachine | None = None,
    words: Sequences | None = None,
    examples: Sequences | None = None,
    alphabet: TokenAlphabet | None = None,
    classes: Sequence[str] | None = None,
    trained_length: int | None = None,
    certificates: Sequence[Proof] = (),
    accuracy: Accuracy | None = None,
    notes: Sequence[str] = (),
) -> Explored:
    """Return what a page needs to run a model beside its hardened twin.

    Args:
        model: A readout, a transductor, or a bare head, over tokens.
        name: What it is called.
        against: The machine over letters that it should be.
        against_name: What that is called.
        twin: The machine over letters that the hardened twin is, where it is known already; else it is extracted.
        words: As for :func:`~transductor.extraction.extracting.extract`.
        examples: Likewise.
        alphabet: Which tokens are letters, their names, and what comes before a word; all tokens if not given.
        classes: Names of the labels; their numbers if not given.
        trained_length: How long the sequences were that it was trained on.
        certificates: What is proved of it.
        accuracy: How right it and others are by length.
        notes: What else a reader should know.
    """
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
    alphabet = alphabet or TokenAlphabet.all_tokens(tokens)
    if alphabet.vocab_size != tokens:
        raise ValueError(f"alphabet must name the model's {tokens} tokens; it names {alphabet.vocab_size}")
    letters = len(alphabet.letters)
    target = MooreMachine.from_dfa(against) if isinstance(against, DFA) else against
    for argument, machine in (("against", target), ("twin", twin)):
        if machine is not None and machine.letters != letters:
            raise ValueError(f"{argument} must have one letter for each of the {letters}; got {machine.letters}")
    target = None if target is None else target.minimised(empty_word=alphabet.shows_empty_word)
    extraction, refusal = (None, "") if twin is not None else extracted_or_refused(model, words, examples, alphabet)
    given = None if words is None else words_of_tokens(words, alphabet)
    measured = Measurement(model, head, alphabet, given, extraction, _PLANE_LETTERS, 0)
    root = _root(measured.metric)
    states: Tensor | None = None
    sink: int | None = None
    if extraction is not None:
        machine, chosen = _labelled_states(model, extraction, words if examples is None else examples)
        states, twin = extraction.representatives[chosen], machine
        sink = chosen.index(extraction.sink) if extraction.sink in chosen else None
    elif (known := twin or target) is not None:
        states = _first_states(known, measured.exact.table, measured.exact.start)
    if states is not None and not bool(states.isfinite().all()):
        states = None
    separating = None
    if twin is not None and target is not None and not isinstance(model, RationalHead):
        separating, _ = compared_words(twin, target, alphabet, measured.contexts)
    up_to_scale = extraction is not None and extraction.up_to_scale
    return Explored(
        name=name,
        title=head_title(model, head, letters),
        letters=list(alphabet.letter_names),
        classes=None if classes is None else list(classes),
        empty_word=alphabet.shows_empty_word,
        follows=None if words is None else measured.contexts.follows.int().tolist(),
        head=_head(model, head, alphabet),
        view=_view(measured, root),
        twin=None if twin is None else _plain(twin, sink),
        representatives=None if states is None else Numbers.of(states.numpy()),
        up_to_scale=up_to_scale,
        summary=extraction_summary(extraction) if extraction is not None else "",
        refusal=refusal,
        target=None if target is None else _plain(target, None),
        target_name=against_name,
        separating_word=separating,
        trained_length=trained_length,
        certificates=list(certificates),
        accuracy=accuracy,
        notes=list(notes),
    )


@torch.no_grad()
def _head(model: Model, head: RationalHead, alphabet: TokenAlphabet) -> Head:
    """Return the numbers of the letters alone, in the precision in which the head multiplies them."""
    table, start = head.transitions.table().detach().cpu(), head.initial_state().detach().cpu()
    before = start
    if alphabet.begin is not None:
        start = head(torch.tensor([[alphabet.begin]]))[0, 0, : head.state_dim].cpu()
    kept = working_dtype(table.dtype)
    weight = bias = None
    if isinstance(model, RationalReadout):
        weight = Numbers.of(_stored(model.readout.weight))
        bias = Numbers.of(
            _stored(model.readout.bias) if model.readout.bias is not None else np.zeros(model.output_size, np.float32)
        )
    return Head(
        Numbers.of(table[list(alphabet.letters)].to(kept).numpy()),
        Numbers.of(start.to(kept).numpy()),
        Numbers.of(before.to(kept).numpy()),
        head.shows_previous,
        weight,
        bias,
    )


def _stored(parameter: Tensor) -> np.ndarray[Any, Any]:
    """Return a parameter in float32 or float64, which hold every narrower number exactly."""
    values: np.ndarray[Any, Any] = parameter.detach().cpu().to(working_dtype(parameter.dtype)).numpy()
    return values


def _root(metric: Tensor) -> Tensor:
    """Return one map ``(D, R)`` for all contexts, the root of the mean of their quadratic forms, less what is zero."""
    values, vectors = torch.linalg.eigh((metric @ metric.mT).mean(0))
    kept = values > 1e-12 * values.max().clamp_min(1e-300)
    root: Tensor = vectors[:, kept] * values[kept].sqrt()
    return root


def _view(measured: Measurement, root: Tensor) -> View:
    """Return the plane in which the states of a random word vary most."""
    states = torch.cat([measured.exact.start[None], measured.states(measured.words(1, _PLANE_LETTERS))[0]])
    points = states[states.isfinite().all(-1)] @ root
    centre = points.mean(0)
    _, sizes, axes = torch.linalg.svd(points - centre, full_matrices=False)
    plane = torch.zeros(root.shape[1], 2, dtype=root.dtype)
    plane[:, : min(2, len(axes))] = axes[:2].T
    energy = sizes.square()
    share = float(energy[:2].sum() / energy.sum()) if energy.sum() > 0 else 1.0
    return View(
        Numbers.of(root.contiguous().numpy()), Numbers.of((root @ plane).numpy()), (centre @ plane).tolist(), share
    )


def _labelled_states(model: Model, extraction: Extraction, words: Sequences | None) -> tuple[MooreMachine, list[int]]:
    """Return the extracted machine with the model's labels, and for each state the number of its representative.

    Where labels depend on more than the head's state, states are told apart by label too.
    """
    states = extraction.machine
    if isinstance(model, RationalHead) or extraction.labelled:
        outputs = np.full(states.states, IGNORED) if isinstance(model, RationalHead) else states.outputs
        return MooreMachine(states.transitions, outputs, states.start), list(range(states.states))
    labels = labelled(model, extraction, words=words if words is not None and len(words) > 1 else None).machine

    def successors(pair: tuple[int, int]) -> list[tuple[int, int]]:
        one, other = pair
        return [
            (int(states.transitions[one, letter]), int(labels.transitions[other, letter]))
            for letter in range(states.letters)
        ]

    pairs, rows = explored([(states.start, labels.start)], successors)
    outputs = np.array([labels.outputs[other] for _, other in pairs])
    return MooreMachine(np.array(rows), outputs), [one for one, _ in pairs]


def _first_states(machine: MooreMachine, table: Tensor, start: Tensor) -> Tensor:
    """Return the head's states ``(n, D)`` after a shortest word to each state of a machine; zeros where none leads."""
    states = torch.zeros(machine.states, len(start), dtype=start.dtype)
    states[machine.start] = start
    order, reached = [machine.start], {machine.start}
    for state in order:
        for letter, after in enumerate(machine.transitions[state].tolist()):
            if after not in reached:
                reached.add(after)
                order.append(after)
                states[after] = table[letter] @ states[state]
    return states


def _plain(machine: MooreMachine, sink: int | None) -> Machine:
    labels = [None if label == IGNORED else label for label in machine.outputs.tolist()]
    return Machine(machine.transitions.tolist(), labels, machine.start, None if sink == machine.start else sink)


def proof_of(certificate: AgreementCertificate | Mapping[str, Any], of: str, file: str = "") -> Proof:
    """Return what a certificate, or the content of its file, says, for a page.

    Args:
        certificate: The certificate, or what ``read_content`` returned.
        of: What it is about, in a few words.
        file: The name of its file.
    """
    content = certificate.content() if isinstance(certificate, AgreementCertificate) else certificate
    said = {name: value for name, value in content["numbers"].items() if isinstance(value, str | int | float)}
    return Proof(
        of=of,
        verdict=content["verdict"],
        claim=content["claim"],
        method=content["method"],
        margin=content["margin"],
        assumptions=list(content["assumptions"]),
        covers=list(content.get("covers", ())),
        numbers={name: f"{value:.6g}" if isinstance(value, float) else str(value) for name, value in said.items()},
        file=file,
        sha256=digest({"format": FORMAT, **content}) if file else "",
    )
