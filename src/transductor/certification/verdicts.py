"""What follows from a question and the evidence: the one place where verdicts are made, for `certify` and for checks.

Nothing is searched for here, nothing is random, and all arithmetic is exact or bounded, so that the same numbers give
the same certificate on every machine.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any, Final

import numpy as np
import torch

from transductor.automata.moore import IGNORED, MooreMachine
from transductor.certification.balls import Array
from transductor.certification.certificates import About, AgreementCertificate, CertificateError, Evidence, Question
from transductor.certification.horizon import bounded, enumerated, pairwise, readout_demands, shown_at
from transductor.certification.placements import demands_at, norm_of
from transductor.certification.reachability import Exactness, Graph, exact_run, exactness, product_graph, refined_graph
from transductor.certification.replay import Blocks, as_blocks, label_of, logits_of, spelled, states_after
from transductor.certification.series import head_series, series_facts
from transductor.certification.stream_bounds import STREAM_ASSUMPTIONS, stream_logits
from transductor.certification.subjects import Subject, linear_of
from transductor.heads import RationalHead

_STATED: Final = "the scan multiplies the table whose digest is given, in {dtype}"
_ANY_ORDER: Final = (
    "its products are associated and summed in any order, fused or not, each operation rounding to nearest (no TF32)"
)
_EXACT: Final = "its products are associated and summed in any order; no operation rounds (no TF32)"
_READOUT: Final = "logits are sums of products in {precision}, in any order; equal logits count for no label"


def judged(question: Question, evidence: Evidence) -> AgreementCertificate:
    """The certificate of a question, given what a search has found; a ValueError where the evidence is none."""
    _check_question(question)
    if question.series is not None:
        return _series_judged(question, evidence)
    exact = exactness(question.subject)
    if exact is not None:
        return _exact_judged(question, evidence, exact)
    return _bounded_judged(question, evidence)


def _check_question(question: Question) -> None:
    """What `certify` refuses with more words; certificates come here too."""
    subject = question.subject
    if (question.machine is None) == (question.series is None):
        raise ValueError("a question is about a machine or about a series")
    machines = [machine for machine in (question.machine, question.domain) if machine is not None]
    letters = [machine.letters for machine in machines]
    letters += [len(question.series.alphabet)] if question.series is not None else []
    if any(count != subject.letters for count in letters):
        raise ValueError(f"machine, series and domain must have the head's {subject.letters} letters; got {letters}")
    if type(question.horizon) is not int or question.horizon < 1:
        raise ValueError(f"horizon must be a positive integer; got {question.horizon!r}")
    tolerance = question.tolerance
    if type(tolerance) is not float or not 0 <= tolerance < 1 or (tolerance and question.machine is not None):
        raise ValueError(f"tolerance must lie in [0, 1), and be 0 for labels; got {tolerance!r}")
    classes = subject.classes
    if question.machine is not None and classes is not None:
        labels = question.machine.outputs[question.machine.outputs != IGNORED]
        if len(labels) and not 0 <= labels.min() <= labels.max() < classes:
            raise ValueError(f"labels must lie in [0, {classes}), what the readout can show; got {labels.tolist()[:8]}")


def _taken_for_granted(subject: Subject, exact: Exactness | None) -> tuple[str, ...]:
    assumptions = [_STATED.format(dtype=subject.table.dtype.name), _ANY_ORDER if exact is None else _EXACT]
    if subject.stream:
        return (*assumptions, *STREAM_ASSUMPTIONS)
    if subject.weight is not None:
        assumptions.append(_READOUT.format(precision=subject.precision))
    return tuple(assumptions)


def _exact_judged(question: Question, evidence: Evidence, exact: Exactness) -> AgreementCertificate:
    """A head that never rounds has finitely many states, or as many as can be followed: all are looked at."""
    subject, machine = question.subject, question.machine
    assert machine is not None
    graph, states = exact_run(subject, machine, question.domain)
    numbers: dict[str, Any] = {"exactness": exact.reason, "nodes": graph.nodes, "edges": len(graph.source)}
    granted = _taken_for_granted(subject, exact)
    method = "product reachability: every reachable state of head, machine and domain was looked at"
    if subject.weight is None and not subject.stream:
        return _told_apart(question, graph, states, numbers, method, granted)
    edge, gap, noise = _gaps(subject, graph, states)
    margin = _digits(float((gap - noise).min(initial=1e300)), subject)
    lengths = graph.depths[graph.source[edge]] + 1
    doubtful, wrong = ~(gap > noise), gap < -noise
    about: About = "model" if subject.stream else "labels"
    if not doubtful.any():
        return AgreementCertificate(question, Evidence(), about, "proved", None, method, margin, numbers, granted)
    safe = min(int(lengths[doubtful].min()) - 1, question.horizon)
    if not wrong.any():
        return AgreementCertificate(question, Evidence(), about, "bounded", safe, method, margin, numbers, granted)
    first = int(edge[wrong][np.argmin(lengths[wrong])])
    word = as_blocks(graph.word_of(first))
    numbers |= _replayed(subject, machine, word)
    return AgreementCertificate(
        question, Evidence(None, word), about, "refuted", safe, method, margin, numbers, granted
    )


def _gaps(subject: Subject, graph: Graph, states: Array) -> tuple[Array, Array, Array]:
    """Edge, gap and noise of the right label against each rival, at exact states."""
    if not subject.stream:
        demands = readout_demands(subject, graph, states)
        return demands.edge, demands.gap, demands.noise
    logits = stream_logits(subject, graph.letter, shown_at(subject, graph, states))
    edge, _, gap, noise = pairwise(graph.labels[graph.target], logits, logits.radius)
    return edge, gap, noise


def _digits(value: float, subject: Subject) -> float:
    """Nine digits where transcendental functions were involved, whose last digit machines may disagree about."""
    return float(f"{value:.8e}") if subject.stream else value


def _told_apart(
    question: Question, graph: Graph, states: Array, numbers: dict[str, Any], method: str, granted: tuple[str, ...]
) -> AgreementCertificate:
    """Whether token and state determine the label."""
    shown, labels = shown_at(question.subject, graph, states), graph.labels[graph.target]
    seen: dict[tuple[int, bytes], int] = {}
    for edge in np.argsort(graph.depths[graph.source], kind="stable").tolist():
        if labels[edge] == IGNORED:
            continue
        other = seen.setdefault((int(graph.letter[edge]), shown[edge].tobytes()), edge)
        if labels[other] != labels[edge]:
            word = graph.word_of(edge)
            numbers |= {"looks_like": list(graph.word_of(other)), "expected": int(labels[edge])}
            found = Evidence(None, as_blocks(word))
            return AgreementCertificate(
                question, found, "head", "refuted", len(word) - 1, method, None, numbers, granted
            )
    return AgreementCertificate(question, Evidence(), "head", "proved", None, method, None, numbers, granted)


def _bounded_judged(question: Question, evidence: Evidence) -> AgreementCertificate:
    """A head that rounds or drifts: a horizon, or a word."""
    subject, machine, domain = question.subject, question.machine, question.domain
    assert machine is not None
    granted = _taken_for_granted(subject, None)
    if evidence.word is not None and subject.stream:
        numbers = _replayed(subject, machine, evidence.word, domain)
        method = "the word was run"
        return AgreementCertificate(question, evidence, "model", "refuted", 0, method, None, numbers, granted)
    head = replace(subject, stream={})
    holds, numbers, margin, method = 0, {}, None, "no word was followed"
    if evidence.placement is not None:
        placement = evidence.placement
        graph = _graph(machine, domain, placement.targets)
        places = placement.places.astype(np.float64)
        if places.shape != (subject.dim, graph.nodes) or not np.isfinite(places).all():
            raise CertificateError(f"places must be {(subject.dim, graph.nodes)}; got {places.shape}")
        demands = demands_at(head, graph, places)
        if demands is None:
            raise CertificateError("there are too many states to tell apart")
        norm = norm_of(placement)
        bound = bounded(head, graph, places, norm, demands, question.horizon)
        holds, numbers = bound.holds_up_to, {"nodes": graph.nodes, **bound.numbers}
        margin = float(demands.room.min(initial=1e300))
        method = "error bound: distance from the machine's states, worst word, rounding in any order"
    if head.weight is not None:
        followed = enumerated(head, product_graph(machine, domain), question.horizon)
        numbers |= {"enumerated": followed}
        if followed > holds:
            holds, method = followed, "enumeration: every word was followed with its rounding errors"
    about: About = "labels" if head.weight is not None else "head"
    if evidence.word is None:
        return AgreementCertificate(question, evidence, about, "bounded", holds, method, margin, numbers, granted)
    numbers |= _replayed(subject, machine, evidence.word, domain)
    if numbers["length"] <= holds:
        raise CertificateError(f"a word of {numbers['length']} letters is wrong, but none up to {holds} can be")
    return AgreementCertificate(question, evidence, about, "refuted", holds, method, margin, numbers, granted)


def _graph(machine: MooreMachine, domain: MooreMachine | None, targets: Array | None) -> Graph:
    return product_graph(machine, domain) if targets is None else refined_graph(targets, machine, domain)


def right_label(machine: MooreMachine, domain: MooreMachine | None, word: tuple[int, ...]) -> int:
    """The machine's label of a word; a ValueError for a word outside the domain."""
    state = machine.start
    for letter in word:
        state = int(machine.transitions[state, letter])
    if domain is not None:
        place = domain.start
        for letter in word:
            place = int(domain.transitions[place, letter])
        if domain.outputs[place] != 1:
            raise ValueError("the word is not of the domain")
    return int(machine.outputs[state])


def refutes(question: Question, blocks: Blocks) -> bool:
    """Whether the stored numbers are wrong on a word."""
    assert question.machine is not None
    expected = right_label(question.machine, question.domain, spelled(blocks))
    return expected not in (IGNORED, _label(question.subject, blocks))


def _replayed(
    subject: Subject, machine: MooreMachine, blocks: Blocks, domain: MooreMachine | None = None
) -> dict[str, Any]:
    """Length, label and wrong label of a word that refutes, and whether its last letter is where it goes wrong."""
    word = spelled(blocks)
    if not word or not all(type(letter) is int and 0 <= letter < subject.letters for letter in word):
        raise ValueError(f"the word must be made of the letters 0 to {subject.letters - 1}")
    expected, shown = right_label(machine, domain, word), _label(subject, blocks)
    if expected in (IGNORED, shown):
        raise ValueError("the word does not refute: its label is right")
    before = True
    if len(word) > 1:
        wanted = right_label(machine, domain, word[:-1])
        before = wanted == IGNORED or wanted == _label(subject, as_blocks(word[:-1]))
    return {"length": len(word), "expected": expected, "shown": shown, "right_before": before}


def _label(subject: Subject, blocks: Blocks) -> int:
    return label_of(logits_of(subject, blocks[-1][0][-1], states_after(subject, blocks)))


def _series_judged(question: Question, evidence: Evidence) -> AgreementCertificate:
    subject, series = question.subject, question.series
    assert series is not None
    if subject.weight is None or len(subject.weight) != 1:
        raise ValueError("a series needs a readout with one output")
    facts = series_facts(subject, series, question.domain, question.horizon, question.tolerance)
    granted = _taken_for_granted(subject, exactness(subject))
    numbers: dict[str, Any] = {"equal_over_the_rationals": facts.equal, "exact_up_to": facts.exact_up_to}
    numbers |= {} if facts.near_up_to is None else {"near_up_to": facts.near_up_to}
    numbers |= {} if facts.reason is None else {"exactness": facts.reason}
    method = "equality of series over the rationals"
    if facts.equal:
        if facts.exact_up_to is None:
            return AgreementCertificate(question, Evidence(), "series", "proved", None, method, None, numbers, granted)
        holds = max(facts.exact_up_to, facts.near_up_to or 0)
        return AgreementCertificate(question, Evidence(), "series", "bounded", holds, method, None, numbers, granted)
    if facts.word is None:  # they differ, but by no more than the tolerance
        holds = facts.near_up_to or 0
        return AgreementCertificate(question, Evidence(), "series", "bounded", holds, method, None, numbers, granted)
    assert facts.weights is not None
    blocks = as_blocks(facts.word)
    value = float(logits_of(subject, facts.word[-1], states_after(subject, blocks))[0])
    allowed = Fraction(question.tolerance) * head_series(subject, absolute=True)(facts.word)
    safe = min(question.horizon, len(facts.word) - 1)
    holds = max(safe if facts.exact_up_to is None else min(safe, facts.exact_up_to), min(safe, facts.near_up_to or 0))
    numbers |= {"expected": str(facts.weights[1]), "shown": value}
    if abs(Fraction(value) - facts.weights[1]) <= allowed:  # rounding hides the difference
        return AgreementCertificate(question, Evidence(), "series", "bounded", holds, method, None, numbers, granted)
    found = Evidence(None, blocks)
    return AgreementCertificate(question, found, "series", "refuted", holds, method, None, numbers, granted)


def model_logits(model_or_head: Any, readout: Any, tokens: Array) -> torch.Tensor:
    """Logits ``(B, T, K)`` of the model itself, where it stands, in evaluation mode."""
    with torch.no_grad():
        given = torch.from_numpy(tokens).to(next(model_or_head.parameters()).device)
        if not isinstance(model_or_head, RationalHead):
            logits: torch.Tensor = model_or_head(given)
            return logits
        weight, bias = linear_of(readout)
        states = model_or_head(given)
        return torch.nn.functional.linear(states.to(weight.dtype), weight, bias)


def shows_the_difference(certificate: AgreementCertificate, model_or_head: Any, readout: Any = None) -> bool:
    """Whether the model itself is wrong on the certificate's word."""
    question, word = certificate.question, certificate.word
    assert word is not None
    logits = model_logits(model_or_head, readout, np.array([word]))[0, -1].double().cpu().numpy()
    if question.machine is not None:
        return label_of(logits) != right_label(question.machine, question.domain, word)
    assert question.series is not None
    letters = [question.series.alphabet[token] for token in word]
    allowed = Fraction(question.tolerance) * head_series(question.subject, absolute=True)(word)
    return bool(abs(Fraction(float(logits[0])) - question.series.over("rational")(letters)) > allowed)
