"""A complete model with attention beside a machine: is every label right, whatever attention looks at?"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from transductor.automata.moore import MooreMachine
from transductor.certification.ball_arithmetic import Array
from transductor.certification.bounds.attended_stream import AttendedLogits, AttendedStream, attended_logits
from transductor.certification.bounds.attention_hull import edges_in_sight
from transductor.certification.bounds.attention_tensors import NotAnalysed, attention_tensors
from transductor.certification.bounds.horizon import outputs_on_edges
from transductor.certification.exactness import exactness
from transductor.certification.reachability import Graph, exact_run
from transductor.certification.subjects import subject_of
from transductor.model import RationalTransductor, SlidingWindow

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
    tensors = attention_tensors(model)
    subject, _ = subject_of(model.rational_head)
    if exactness(subject) is None:
        raise NotAnalysed("the head must be exactly a finite machine; harden the model first")
    graph, states = exact_run(subject, against, domain)
    edges, stream = attended_pairs(model, tensors, graph, outputs_on_edges(subject, graph, states))
    result = attended_logits(stream, graph.labels[graph.target][edges], longest=longest)
    return replace(result, edge=edges[result.edge])


def attended_pairs(
    model: RationalTransductor, tensors: dict[str, Array], graph: Graph, outputs: Array
) -> tuple[Array, AttendedStream]:
    """Return one edge for each token, output and label that occur together, and the stream of these pairs.

    Args:
        tensors: The arrays of the model's stream.
        graph: The head, the machine and the domain side by side.
        outputs: ``(E, D)``, what the head shows on each edge.
    """
    config = model.backbone.config
    window = config.attention.window if isinstance(config.attention, SlidingWindow) else None
    keys = np.concatenate((graph.letter[:, None], graph.labels[graph.target][:, None], outputs), 1)
    _, first, number = np.unique(keys, axis=0, return_index=True, return_inverse=True)
    sees = None
    if len(keys) <= _MOST_IN_SIGHT:
        member = np.zeros((len(first), len(keys)), np.float32)
        member[number.reshape(-1), np.arange(len(keys))] = 1
        sees = member @ edges_in_sight(graph.source, graph.target, window) @ member.T > 0
        sees = None if sees.all() else sees
    precision = str(model.backbone.readout.weight.dtype).removeprefix("torch.")
    stream = AttendedStream(
        tensors, config.attention_heads, window, precision, graph.letter[first], outputs[first], sees
    )
    return first, stream
