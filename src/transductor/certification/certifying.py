"""Does a head agree with an automaton?  Proved, refuted with a word, or true up to a length."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from transductor.automata.finite_automata import DFA
from transductor.automata.moore import MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.certificates import AgreementCertificate, Evidence, Question
from transductor.certification.exactness import analysed, exactness
from transductor.certification.model_answers import is_refuted, model_labels
from transductor.certification.naming import in_token_order
from transductor.certification.reachability import TooManyStates, product_graph, refined_graph
from transductor.certification.replay import as_blocks
from transductor.certification.search.anchor_points import best_anchors
from transductor.certification.search.wrong_words import separating_word
from transductor.certification.subjects import Subject, subject_of
from transductor.certification.verdicts import doubtful_words, judged, refutes
from transductor.model import checkpoint_identity


def certify(
    model_or_head: Any,
    readout: Any = None,
    *,
    against: MooreMachine | DFA | WeightedAutomaton,
    domain: MooreMachine | DFA | None = None,
    horizon: int = 10**6,
    tolerance: float = 0.0,
    letters: Sequence[str] | None = None,
    classes: Sequence[str] | None = None,
) -> AgreementCertificate:
    """Decide whether a model's answer after every letter is that of an automaton, on every word but the empty one.

    *proved*: for all lengths.  The head's numbers are exactly a finite machine, so that no operation rounds, and every
    reachable state was visited; or its series equals the automaton's over the rationals, and floats compute it exactly.
    *refuted*: by a word on which the model itself is wrong, the shortest that the search came across.  *holds up to N*:
    no word of at most N letters can be wrong, in whatever order the scan takes its products, rounding included.

    Where the labels of a model were not analysed (it has attention or positions, or rounds), the statement is about its
    head alone and has words of its own: *separated* (token and state of the head determine the label, at every length),
    *separated up to N*, or *confused* by a word.

    Args:
        model_or_head: A :class:`~transductor.model.RationalReadout`; a head with ``readout``; or a
            :class:`~transductor.model.RationalTransductor`: the statement is about the complete model where its head is
            exact and nothing but attention scores knows positions, and what attention can do changes no label;
            otherwise about the head alone.
        readout: For a head: an ``nn.Linear``, a weight ``(K, D)`` or ``(weight, bias)``.  The label is the argmax; with
            one output, whether it is positive.
        against: Token v is letter v, or with ``letters`` the letter of that name.  A Moore machine gives the label
            after every letter (``IGNORED``: anything goes), a DFA 1 where it accepts; a weighted automaton gives the
            value of the readout's one output.
        domain: The words that can occur, closed under prefixes: those a DFA accepts, or with label 1.
        horizon: The length of the longest words that count where there is no proof for all lengths.
        tolerance: For a weighted automaton: by how much values may differ, relative to the sum of the absolute values
            of all paths of the word.
        letters: The names of the tokens 0, 1, …, which the certificate repeats; their numbers when left out.
        classes: The names of the labels 0, 1, …, if they have any.

    Raises:
        ValueError: Also if any part of the model is hooked, replaced, parametrised, or of a class that was not
            analysed.
    """
    subject, scope = subject_of(model_or_head, readout)
    subject = analysed(subject)
    if letters is not None:
        against, domain = _by_name(against, letters), None if domain is None else _by_name(domain, letters)
    series = _series(against, subject, scope) if isinstance(against, WeightedAutomaton) else None
    allowed = "a MooreMachine, a DFA or a WeightedAutomaton"
    question = Question(
        subject,
        machine=_machine("against", against, allowed) if series is None else None,
        series=series,
        domain=None if domain is None else _machine("domain", domain, "a MooreMachine, a DFA or None"),
        horizon=horizon,
        tolerance=float(tolerance) if isinstance(tolerance, int | float) else tolerance,
        letters=() if letters is None else tuple(letters),
        classes=None if classes is None else tuple(classes),
    )
    searched = question.series is None and exactness(subject) is None
    try:
        evidence = _evidence(question, model_or_head, readout) if searched else Evidence()
    except TooManyStates:  # of machine and domain together; the verdict says so
        evidence = Evidence()
    certificate = judged(question, evidence)
    if certificate.outcome == "bounded" and certificate.about in ("labels", "model") and not searched:
        certificate = _refuted_by_running(certificate, model_or_head, readout) or certificate
    refuted = certificate.outcome == "refuted" and certificate.about != "head"
    if refuted and not is_refuted(certificate, model_or_head, readout):
        raise RuntimeError(f"the model does not show what its numbers say: {certificate}")
    return replace(certificate, model=None if readout is not None else checkpoint_identity(model_or_head))


def _by_name(automaton: Any, letters: Sequence[str]) -> Any:
    """Return an automaton whose letters have names in the order of the tokens; a Moore machine's letters have none."""
    if not isinstance(automaton, DFA | WeightedAutomaton):
        return automaton
    return in_token_order(automaton, [str(letter) for letter in automaton.alphabet], list(letters))


def _machine(argument: str, value: Any, allowed: str) -> MooreMachine:
    if not isinstance(value, MooreMachine | DFA):
        raise TypeError(f"{argument} must be {allowed}; got {type(value).__name__}")
    return MooreMachine.from_dfa(value) if isinstance(value, DFA) else value


def _series(against: WeightedAutomaton, subject: Subject, scope: str) -> WeightedAutomaton:
    if against.weights.name not in ("rational", "float"):
        raise ValueError(
            f"against must have weights 'rational' or 'float'; got {against.weights.name!r} (a language: use as_dfa)"
        )
    if scope != "labels" or subject.bias is None or len(subject.bias) != 1:
        raise ValueError("against a weighted automaton, model_or_head must have a linear readout with one output")
    return against


def _refuted_by_running(
    certificate: AgreementCertificate, model_or_head: Any, readout: Any
) -> AgreementCertificate | None:
    """Run words after which no bound shows an exact head's label: a model whose numbers leave their range is wrong."""
    question = certificate.question
    if question.subject.attention is not None:
        return None
    for word in doubtful_words(question):
        if refutes(question, as_blocks(word)):
            refuted = judged(question, Evidence(word=as_blocks(word)))
            if is_refuted(refuted, model_or_head, readout):
                return refuted
    return None


def _evidence(question: Question, model_or_head: Any, readout: Any) -> Evidence:
    """Search for anchor points with a norm, and for a word on which the model is wrong."""
    subject, machine, domain = question.subject, question.target, question.domain
    head = subject if not subject.stream else Subject(subject.table, subject.initial, lookback=subject.lookback)
    best = best_anchors(head, machine, domain, question.horizon)
    anchors, expected = (None, 0) if best is None else (best[0], best[1].holds_up_to)
    if not subject.gives_labels or (expected >= question.horizon and not subject.stream):
        return Evidence(anchors)
    graph = product_graph(machine, domain)
    points = np.zeros((subject.dim, graph.nodes)) if anchors is None else anchors.points
    if anchors is not None and anchors.targets is not None:
        graph = refined_graph(anchors.targets, machine, domain)
    word = separating_word(
        subject,
        graph,
        points,
        partial(model_labels, model_or_head, readout),
        lambda word: refutes(question, as_blocks(word)),
        expected=expected,
        horizon=question.horizon,
    )
    return Evidence(anchors, None if word is None else as_blocks(word))
