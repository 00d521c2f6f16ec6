"""Does a head agree with an automaton?  Proved, refuted with a word, or true up to a length."""

from __future__ import annotations

from typing import Any

import numpy as np

from transductor.automata.finite_automata import DFA
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.weighted import WeightedAutomaton
from transductor.certification.balls import Array
from transductor.certification.certificates import AgreementCertificate, Evidence, Question
from transductor.certification.counterexamples import separating_word
from transductor.certification.placements import placed
from transductor.certification.reachability import exactness, product_graph, refined_graph
from transductor.certification.replay import as_blocks
from transductor.certification.subjects import Subject, subject_of
from transductor.certification.verdicts import judged, model_logits, refutes, shows_the_difference
from transductor.checks import check_positive


def certify(
    model_or_head: Any,
    readout: Any = None,
    *,
    against: MooreMachine | DFA | WeightedAutomaton,
    domain: MooreMachine | DFA | None = None,
    horizon: int = 10**6,
    tolerance: float = 0.0,
) -> AgreementCertificate:
    """Whether a model's answer after every letter is that of an automaton, on every word of at least one letter.

    *proved*: for all lengths.  The head's numbers are exactly a finite machine, so that no operation rounds, and every
    reachable state was looked at; or its series equals the automaton's over the rationals, and floats compute it
    exactly.  *refuted*: by a word on which the model itself is wrong, the shortest found.  *holds up to N*: no word of
    at most N letters can be wrong, however the scan associates its products, rounding included.

    Args:
        model_or_head: A :class:`~transductor.model.RationalReadout`; a head with ``readout``; or a
            :class:`~transductor.model.RationalTransductor`: the statement is about the whole model where it has neither
            attention nor positions and its head is exact, else about the head alone.
        readout: For a head: an ``nn.Linear``, a weight ``(K, D)`` or ``(weight, bias)``.  The label is the argmax; with
            one output, whether it is positive.
        against: Token v is letter v.  A Moore machine gives the label after every letter (``IGNORED``: anything goes),
            a DFA 1 where it accepts; a weighted automaton gives the value of the readout's one output.
        domain: The words that can occur, closed under prefixes: those a DFA accepts, or with label 1.
        horizon: The longest words that are asked about where there is no proof for all lengths.
        tolerance: For a weighted automaton: by how much values may differ, relative to the sum of the absolute values
            of all paths of the word.
    """
    subject, scope = subject_of(model_or_head, readout)
    question = _question(subject, scope, against, domain, horizon, tolerance)
    searched = question.series is None and exactness(subject) is None
    certificate = judged(question, _evidence(question, model_or_head, readout) if searched else Evidence())
    refuted = certificate.outcome == "refuted" and certificate.about != "head"
    if refuted and not shows_the_difference(certificate, model_or_head, readout):
        raise RuntimeError(f"the model does not show what its numbers say: {certificate}")
    return certificate


def _question(subject: Subject, scope: str, against: Any, domain: Any, horizon: int, tolerance: float) -> Question:
    """A question whose parts fit together, or a refusal that names the one that does not."""
    check_positive("horizon", horizon)
    if not (isinstance(tolerance, (int, float)) and 0 <= tolerance < 1):
        raise ValueError(f"tolerance must lie in [0, 1); got {tolerance!r}")
    machine = series = None
    match against:
        case MooreMachine():
            machine = against
        case DFA():
            machine = MooreMachine.from_dfa(against)
        case WeightedAutomaton():
            series = _series(against, subject, scope)
        case _:
            raise TypeError(
                f"against must be a MooreMachine, a DFA or a WeightedAutomaton; got {type(against).__name__}"
            )
    letters = len(against.alphabet) if machine is None else machine.letters
    if letters != subject.letters:
        raise ValueError(f"against must have one letter for each of the head's {subject.letters} tokens; got {letters}")
    if machine is not None and tolerance:
        raise ValueError("tolerance is for weighted automata; labels are equal or not")
    inside = None if domain is None else _domain(domain, subject.letters)
    if machine is not None and subject.classes is not None:
        shown = machine.outputs[machine.outputs != IGNORED]
        if len(shown) and not 0 <= shown.min() <= shown.max() < subject.classes:
            raise ValueError(
                f"against must have labels in [0, {subject.classes}), what the readout can show; "
                f"got {sorted(set(shown.tolist()))[:8]}"
            )
    return Question(subject, machine, series, inside, horizon, float(tolerance))


def _series(series: WeightedAutomaton, subject: Subject, scope: str) -> WeightedAutomaton:
    if series.weights.name not in ("rational", "float"):
        raise ValueError(
            f"against must have weights 'rational' or 'float'; got {series.weights.name!r} (a language: use as_dfa)"
        )
    if scope != "labels" or subject.bias is None or len(subject.bias) != 1:
        raise ValueError("against a weighted automaton, model_or_head must have a linear readout with one output")
    return series


def _domain(domain: Any, letters: int) -> MooreMachine:
    """With label 1 inside, closed under prefixes and not empty."""
    machine = MooreMachine.from_dfa(domain) if isinstance(domain, DFA) else domain
    if not isinstance(machine, MooreMachine):
        raise TypeError(f"domain must be a MooreMachine, a DFA or None; got {type(domain).__name__}")
    if machine.letters != letters:
        raise ValueError(f"domain must have one letter for each of the head's {letters} tokens; got {machine.letters}")
    inside = machine.outputs == 1
    if not inside[machine.start] or not inside[machine.transitions[machine.start]].any():
        raise ValueError("domain must hold the empty word and at least one letter")
    reached, pending = {machine.start}, [machine.start]
    while pending:
        for after in machine.transitions[pending.pop()].tolist():
            if after not in reached:
                reached.add(after)
                pending.append(after)
    states = np.array(sorted(reached))
    left = states[~inside[states]]
    if inside[machine.transitions[left]].any():
        raise ValueError("domain must be closed under prefixes: a word outside it can be continued to one inside")
    return machine


def _evidence(question: Question, model_or_head: Any, readout: Any) -> Evidence:
    """Places, a norm, and a word on which the model is wrong, as far as they are found."""
    subject, machine, domain = question.subject, question.machine, question.domain
    assert machine is not None
    head = subject if not subject.stream else Subject(subject.table, subject.initial, lookback=subject.lookback)
    found = placed(head, machine, domain, question.horizon)
    placement, bound = found if found is not None else (None, None)
    expected = 0 if bound is None else bound.holds_up_to
    nobody_answers = subject.weight is None and not subject.stream
    if nobody_answers or (expected >= question.horizon and not subject.stream):
        return Evidence(placement)

    def answers(tokens: Array) -> Array:
        logits = model_logits(model_or_head, readout, tokens)
        labels = logits[..., 0] > 0 if logits.shape[-1] == 1 else logits.argmax(-1)
        return labels.long().cpu().numpy()

    graph = product_graph(machine, domain)
    places = np.zeros((subject.dim, graph.nodes))
    if placement is not None:
        places = placement.places
        if placement.targets is not None:
            graph = refined_graph(placement.targets, machine, domain)
    word = separating_word(
        subject,
        graph,
        places,
        answers,
        lambda word: refutes(question, as_blocks(word)),
        expected=expected,
        horizon=question.horizon,
    )
    return Evidence(placement, None if word is None else as_blocks(word))
