"""What follows from a question and the evidence: the one module that makes verdicts, for `certify` and for checks.

Nothing is searched for here, nothing is random, and all arithmetic is exact or bounded, so that the same numbers give
the same certificate on every computer.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from fractions import Fraction
from functools import partial
from typing import Any, Final

import numpy as np

from transductor.automata.moore import IGNORED
from transductor.certification.assumptions import assumptions_about, covered_by
from transductor.certification.ball_arithmetic import Array
from transductor.certification.bounds.anchors import Anchors, margins_at
from transductor.certification.bounds.attended_models import attended_agreement
from transductor.certification.bounds.horizon import (
    against_rivals,
    bounded,
    enumerated,
    outputs_on_edges,
    readout_margins,
)
from transductor.certification.bounds.stream import stream_logits
from transductor.certification.certificates import About, AgreementCertificate, Evidence, Question
from transductor.certification.encoding import CertificateError
from transductor.certification.exactness import Exactness, exactness, head_alone
from transductor.certification.reachability import (
    Graph,
    TooManyStates,
    exact_run,
    label_after,
    product_graph,
    refined_graph,
)
from transductor.certification.replay import Blocks, as_blocks, label_of, logits_after, spelled
from transductor.certification.series_agreement import head_series, series_facts
from transductor.certification.subjects import Subject

_HULL: Final = (
    "the hull of attention: whatever it looks at, it returns an average of finitely many values; every stream that can "
    "come of it was bounded, for all lengths"
)
_HULL_AND_LENGTH: Final = (
    "the hull of attention: for all lengths where its averages are exact; in floats the sums of an average may be as "
    "long as the word, and up to this length their rounding changes no label"
)

_MOST_DOUBTFUL: Final = 200  # words that are run where no bound shows a label

# Makes the certificate of a question, once its outcome is known.
_Answer = Callable[..., AgreementCertificate]


@np.errstate(over="ignore", invalid="ignore", divide="ignore")  # a bound that is not a number proves nothing
def judged(question: Question, evidence: Evidence) -> AgreementCertificate:
    """Return the certificate that follows from the evidence; a ValueError where the evidence does not fit."""
    subject = question.subject
    exact = exactness(subject)
    answer = partial(
        AgreementCertificate,
        question,
        assumptions=assumptions_about(subject, exact),
        covers=covered_by(subject),
    )
    if question.series is not None:
        return _series_judged(question, answer)
    if exact is None and subject.attention is not None:
        raise ValueError("a stream with attention can only be followed from an exact head")
    try:
        if exact is not None:
            if subject.attention is not None:
                return _attended_judged(question, exact, answer, evidence.length)
            return _exact_judged(question, exact, answer, evidence.word)
        return _bounded_judged(question, evidence, answer)
    except TooManyStates as error:
        about: About = "model" if subject.stream else "labels" if subject.gives_labels else "head"
        return answer(about=about, outcome="bounded", holds_up_to=0, method=f"no word was followed: {error}")


def _exact_judged(
    question: Question, exact: Exactness, answer: _Answer, word: Blocks | None = None
) -> AgreementCertificate:
    """Visit every reachable state of a head that never rounds: there are finitely many, or as many as are followed.

    Where no bound shows a label, because numbers behind the head may leave their range, a word may refute it.
    """
    subject = question.subject
    graph, states = exact_run(subject, question.target, question.domain)
    numbers: dict[str, Any] = {"exactness": exact.reason, "nodes": graph.nodes, "edges": len(graph.source)}
    answer = partial(
        answer,
        method="product reachability: every reachable state of head, machine and domain was looked at",
        numbers=numbers,
    )
    if graph.complete_to is not None:
        answer = partial(
            answer,
            method=f"enumeration: every word of at most {graph.complete_to} letters was followed; head, machine and "
            "domain have too many states together to follow all words",
        )
    if not subject.gives_labels:
        return _states_judged(question, graph, states, numbers, partial(answer, about="head"))
    edge, gap, noise = _gaps(subject, graph, states)
    margin = _digits(_stated((gap - noise).min(initial=1e300)), subject)
    answer = partial(answer, about="model" if subject.stream else "labels", margin=margin)
    lengths = graph.depths[graph.source[edge]] + 1
    doubtful, wrong = ~(gap > noise), gap < -noise
    if not doubtful.any():
        if graph.complete_to is not None:
            return answer(outcome="bounded", holds_up_to=min(graph.complete_to, question.horizon))
        return answer(outcome="proved", reached=(graph, states))
    safe = min(int(lengths[doubtful].min()) - 1, question.horizon)
    safe = safe if graph.complete_to is None else min(safe, graph.complete_to)
    if wrong.any():
        word = as_blocks(graph.word_of(int(edge[wrong][np.argmin(lengths[wrong])])))
    elif word is None:
        return answer(outcome="bounded", holds_up_to=safe)
    else:
        answer = partial(answer, method="the word was run: no bound shows its label")
    numbers |= _replayed(question, word)
    if numbers["length"] <= safe:
        raise CertificateError(f"a word of {numbers['length']} letters is wrong, but none up to {safe} can be")
    return answer(outcome="refuted", holds_up_to=safe, evidence=Evidence(word=word))


def doubtful_words(question: Question) -> list[tuple[int, ...]]:
    """Return words after which no bound shows the label of an exact head's model, short ones first."""
    graph, states = exact_run(question.subject, question.target, question.domain)
    edge, gap, noise = _gaps(question.subject, graph, states)
    with np.errstate(invalid="ignore"):
        doubtful = np.unique(edge[~(gap > noise)])
    order = np.argsort(graph.depths[graph.source[doubtful]], kind="stable")
    return [graph.word_of(int(each)) for each in doubtful[order][:_MOST_DOUBTFUL]]


def _attended_judged(question: Question, exact: Exactness, answer: _Answer, stated: int | None) -> AgreementCertificate:
    """Follow every stream that attention can make of an exact head's states; where that is too wide, say so."""
    subject = question.subject
    graph, states = exact_run(subject, question.target, question.domain)
    alone = replace(question, subject=head_alone(subject), classes=None)
    head = partial(answer, assumptions=assumptions_about(alone.subject, exact))
    if graph.complete_to is not None:
        return _exact_judged(alone, exact, head)
    result = attended_agreement(subject, graph, states, longest=question.horizon, stated=stated)
    said = {
        "exactness": exact.reason,
        "nodes": graph.nodes,
        "edges": len(graph.source),
        "least_gap_at_all_lengths": _digits(_stated(result.worst), subject),
        "least_gap_in_floats": _digits(_stated(result.float_gap), subject),
    }
    answer = partial(answer, about="model", numbers=said, margin=said["least_gap_in_floats"])
    if result.proved:
        return answer(outcome="proved", method=_HULL)
    if result.holds and result.float_length:
        return answer(outcome="bounded", holds_up_to=result.float_length, method=_HULL_AND_LENGTH)
    states_alone = _exact_judged(alone, exact, head)
    numbers = {**states_alone.numbers, "least_gap_of_the_model": said["least_gap_at_all_lengths"]}
    return replace(states_alone, question=question, numbers=numbers)


def _gaps(subject: Subject, graph: Graph, states: Array) -> tuple[Array, Array, Array]:
    """Return edge, gap and noise of the right label against each rival, at exact states."""
    if not subject.stream:
        margins = readout_margins(subject, graph, states, exact=True)
        return margins.edge, margins.gap, margins.noise
    logits = stream_logits(subject, graph.letter, outputs_on_edges(subject, graph, states))
    edge, _, gap, noise = against_rivals(graph.labels[graph.target], logits, logits.radius)
    return edge, gap, noise


def _stated(margin: Any) -> float:
    """Return a margin as a number that a file can hold; that nothing is known is a margin of −1e300."""
    return float(max(-1e300, min(1e300, margin))) if margin == margin else -1e300


def _digits(value: float, subject: Subject) -> float:
    """Keep nine digits where transcendental functions were involved: computers may disagree about their last digit."""
    return float(f"{value:.8e}") if subject.stream else value


def _states_judged(
    question: Question, graph: Graph, states: Array, numbers: dict[str, Any], answer: _Answer
) -> AgreementCertificate:
    """Decide whether token and state determine the label."""
    subject = question.subject
    outputs, labels = outputs_on_edges(subject, graph, states), graph.labels[graph.target]
    first_with: dict[tuple[int, bytes], int] = {}
    for edge in np.argsort(graph.depths[graph.source], kind="stable").tolist():
        if labels[edge] == IGNORED:
            continue
        other = first_with.setdefault((int(graph.letter[edge]), outputs[edge].tobytes()), edge)
        if labels[other] != labels[edge]:
            word = graph.word_of(edge)
            numbers |= {"looks_like": list(graph.word_of(other)), "expected": int(labels[edge])}
            evidence = Evidence(word=as_blocks(word))
            safe = min(len(word) - 1, question.horizon)
            return answer(outcome="confused", holds_up_to=safe, evidence=evidence)
    if graph.complete_to is not None:
        return answer(outcome="bounded", holds_up_to=min(graph.complete_to, question.horizon))
    return answer(outcome="separated")


def _bounded_judged(question: Question, evidence: Evidence, answer: _Answer) -> AgreementCertificate:
    """Give a head that rounds or drifts a horizon, or refute it by the word of the evidence."""
    subject, machine, domain = question.subject, question.target, question.domain
    answer = partial(answer, evidence=evidence)
    if evidence.word is not None and subject.stream:
        numbers = _replayed(question, evidence.word)
        return answer(about="model", outcome="refuted", method="the word was run", holds_up_to=0, numbers=numbers)
    head = replace(subject, stream={})
    holds, numbers, margin, method = 0, {}, None, "no word was followed"
    if evidence.anchors is not None:
        holds, numbers, margin = _anchored(question, head, evidence.anchors)
        method = "error bound: distance from the machine's states, worst word, rounding in any order"
    if head.weight is not None:
        followed = enumerated(head, product_graph(machine, domain), question.horizon)
        numbers |= {"enumerated": followed}
        if followed > holds:
            holds, method = followed, "enumeration: every word was followed with its rounding errors"
    about = "labels" if head.weight is not None else "head"
    answer = partial(answer, about=about, method=method, holds_up_to=holds, margin=margin, numbers=numbers)
    if evidence.word is None:
        return answer(outcome="bounded")
    numbers |= _replayed(question, evidence.word)
    if numbers["length"] <= holds:
        raise CertificateError(f"a word of {numbers['length']} letters is wrong, but none up to {holds} can be")
    return answer(outcome="refuted")


def _anchored(question: Question, head: Subject, anchors: Anchors) -> tuple[int, dict[str, Any], float]:
    """Return the horizon that follows from the anchors, its numbers, and the least margin."""
    machine, domain, targets = question.target, question.domain, anchors.targets
    graph = product_graph(machine, domain) if targets is None else refined_graph(targets, machine, domain)
    points = anchors.points.astype(np.float64)
    if points.shape != (head.dim, graph.nodes) or not np.isfinite(points).all():
        raise CertificateError(f"placement.places must be {(head.dim, graph.nodes)}; got {points.shape}")
    margins = margins_at(head, graph, points)
    if margins is None:
        raise CertificateError("there are too many states to tell apart")
    bound = bounded(head, graph, points, anchors.norm(), margins, question.horizon)
    return bound.holds_up_to, {"nodes": graph.nodes, **bound.numbers}, _stated(margins.room.min(initial=1e300))


def right_label(question: Question, word: tuple[int, ...]) -> int:
    """Return the machine's label of a word; a ValueError for a word outside the domain."""
    if question.domain is not None and label_after(question.domain, word) != 1:
        raise ValueError("the word is not of the domain")
    return label_after(question.target, word)


def refutes(question: Question, blocks: Blocks) -> bool:
    """Return whether the stored numbers are wrong on a word."""
    expected = right_label(question, spelled(blocks))
    return expected not in (IGNORED, _label(question.subject, blocks))


def _replayed(question: Question, blocks: Blocks) -> dict[str, Any]:
    """Return length, label and wrong label of a word that refutes, and whether the label before was right."""
    subject, word = question.subject, spelled(blocks)
    if not word or not all(type(letter) is int and 0 <= letter < subject.letters for letter in word):
        raise ValueError(f"the word must be made of the letters 0 to {subject.letters - 1}")
    expected, shown = right_label(question, word), _label(subject, blocks)
    if expected in (IGNORED, shown):
        raise ValueError("the word does not refute: its label is right")
    right_before = True
    if len(word) > 1:
        before = right_label(question, word[:-1])
        right_before = before in (IGNORED, _label(subject, as_blocks(word[:-1])))
    return {"length": len(word), "expected": expected, "shown": shown, "right_before": right_before}


def _label(subject: Subject, blocks: Blocks) -> int:
    return label_of(logits_after(subject, blocks))


def _series_judged(question: Question, answer: _Answer) -> AgreementCertificate:
    """Compare the values of the readout with a weighted automaton."""
    subject, series = question.subject, question.series
    assert series is not None
    if subject.weight is None or len(subject.weight) != 1:
        raise ValueError("a series needs a readout with one output")
    facts = series_facts(subject, series, question.domain, question.horizon, question.tolerance)
    numbers: dict[str, Any] = {"equal_over_the_rationals": facts.equal, "exact_up_to": facts.exact_up_to}
    numbers |= {} if facts.near_up_to is None else {"near_up_to": facts.near_up_to}
    numbers |= {} if facts.reason is None else {"exactness": facts.reason}
    answer = partial(answer, about="series", method="equality of series over the rationals", numbers=numbers)
    near = facts.near_up_to or 0
    if facts.equal and facts.exact_up_to is None:
        return answer(outcome="proved")
    if facts.equal:
        return answer(outcome="bounded", holds_up_to=max(facts.exact_up_to or 0, near))
    if facts.word is None:  # they differ, but by no more than the tolerance
        return answer(outcome="bounded", holds_up_to=near)
    assert facts.weights is not None
    blocks = as_blocks(facts.word)
    value = float(logits_after(subject, blocks)[0])
    safe = min(question.horizon, len(facts.word) - 1)
    holds = min(safe, max(safe if facts.exact_up_to is None else facts.exact_up_to, near))
    numbers |= {"expected": str(facts.weights[1]), "shown": value}
    if abs(Fraction(value) - facts.weights[1]) <= allowed_difference(question, facts.word):  # rounding hides it
        return answer(outcome="bounded", holds_up_to=holds)
    return answer(outcome="refuted", holds_up_to=holds, evidence=Evidence(word=blocks))


def allowed_difference(question: Question, word: tuple[int, ...]) -> Fraction:
    """Return how far the value of a word may be from the automaton's: the tolerance of the sum of all paths' sizes."""
    size: Fraction = head_series(question.subject, absolute=True)(word)
    return Fraction(question.tolerance) * size
