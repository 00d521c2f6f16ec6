"""A complete model with attention beside a machine: is every label right, whatever attention looks at?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.attention_tensors import NotAnalysed, attention_tensors
from transductor.certification.ball_arithmetic import Array
from transductor.certification.bounds.attended_stream import AttendedLogits, AttendedStream, attended_logits
from transductor.certification.bounds.attention_hull import edges_in_sight
from transductor.certification.bounds.horizon import outputs_on_edges
from transductor.certification.exactness import exactness
from transductor.certification.reachability import Graph, exact_run
from transductor.certification.subjects import Subject, subject_of
from transductor.model import RationalTransductor

_MOST_IN_SIGHT: Final = 2000  # edges; with more, every edge counts as seen by every other


def attention_agreement(
    model: RationalTransductor,
    *,
    against: MooreMachine,
    domain: MooreMachine | None = None,
    longest: int = 10**6,
) -> AttendedLogits:
    """Bound by how much a model with attention puts the machine's label ahead, on every word of the domain.

    Args:
        model: Its head must be exact: hardened, compiled, or made of permutations.
        against: Token v is letter v; its output is the label after every letter.
        domain: The words that can occur, those with output 1, closed under prefixes; None for all words.
        longest: The longest words that are asked for where a length must be named.

    Raises:
        NotAnalysed: If the head may round, or a part of the model is not covered.
    """
    attention_tensors(model)  # says what is not covered
    subject, _ = subject_of(model)
    if exactness(subject) is None:
        raise NotAnalysed("the head must be exactly a finite machine; harden the model first")
    return attended_agreement(subject, *exact_run(subject, against, domain), longest=longest)


def attended_agreement(
    subject: Subject, graph: Graph, states: Array, *, longest: int, stated: int | None = None
) -> AttendedLogits:
    """Bound by how much the right labels are ahead in a stream with attention, whose exact head reaches this graph.

    See :func:`~.attended_stream.attended_logits`.
    """
    edges, stream = attended_pairs(subject, graph, outputs_on_edges(subject, graph, states))
    result = attended_logits(stream, graph.labels[graph.target][edges], longest=longest, stated=stated)
    return replace(result, edge=edges[result.edge])


def attended_pairs(subject: Subject, graph: Graph, outputs: Array) -> tuple[Array, AttendedStream]:
    """Return one edge for each token, output and label that occur together, and the stream of these pairs.

    Args:
        subject: The model's numbers.
        graph: The head, the machine and the domain side by side.
        outputs: ``(E, D)``, what the head shows on each edge.
    """
    assert subject.attention is not None
    window = subject.attention.window
    keys = np.concatenate((graph.letter[:, None], graph.labels[graph.target][:, None], outputs), 1)
    _, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    sees = None
    if len(keys) <= _MOST_IN_SIGHT:
        member = np.zeros((len(first), len(keys)), np.float32)
        member[number.reshape(-1), np.arange(len(keys))] = 1
        sees = member @ edges_in_sight(graph.source, graph.target, window) @ member.T > 0
        sees = None if sees.all() else sees
    heads = subject.attention.heads
    stream = AttendedStream(subject.stream, heads, window, subject.precision, graph.letter[first], outputs[first], sees)
    return first, stream
