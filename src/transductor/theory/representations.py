"""What the paper builds on: vector-valued rational functions, linear representations and Fliess' theorem."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from transductor.automata import NotRational, WeightedAutomaton, hankel, interpolated, machine, reduced
from transductor.automata.modular import rank_of_matrix
from transductor.automata.spectral.hankel_block import basis_words
from transductor.compilation import compile_head
from transductor.heads import RationalHead
from transductor.theory.evidence import Checks, alphabet, at_least, generic_automaton, words
from transductor.theory.statements import StatementCertificate, statement


def block_ranks(series: Callable[[Any], Any], letters: Sequence[Any], longest: int) -> list[int]:
    """Return the ranks of the Hankel blocks of all words up to length 0, 1, …, ``longest``, computed exactly."""
    ranks = []
    for length in range(longest + 1):
        some = basis_words(letters, length)
        if isinstance(series, WeightedAutomaton):
            block = hankel(series, some, some)
        else:
            block = np.array([[series((*u, *v)) for v in some] for u in some], dtype=object)
        ranks.append(rank_of_matrix(block))
    return ranks


def _head(automaton: WeightedAutomaton) -> RationalHead:
    """Return the head that computes the function: in float64, where the integers of short words are exact."""
    return compile_head(automaton, dtype=torch.float64)


def _joint_rank(automaton: WeightedAutomaton, longest: int) -> int:
    """Return the rank of the block whose columns are a suffix and a coordinate of the state after it."""
    some = basis_words(automaton.alphabet, longest)
    columns = [
        hankel(WeightedAutomaton(automaton.initial, automaton.matrices, row, automaton.alphabet), some, some)
        for row in np.eye(automaton.dim, dtype=int)
    ]
    return rank_of_matrix(np.concatenate(columns, axis=1))


@statement("Vector-Valued Rational Functions", 12)
def vector_valued_rational_functions(
    dim: int = 3, letters: int = 2, longest: int = 6, seed: int = 0
) -> StatementCertificate:
    """Build the function ``word ↦ (h_1, …, h_T)`` as a head, and compare every state with the product of matrices.

    Its Hankel block has a row per prefix, and a column per suffix and coordinate; its rank settles at the dimension of
    the space that words reach.
    """
    at_least("dim", dim, 1)
    if 40 * (40 * dim) ** longest > 2**53:
        raise ValueError(f"longest must be smaller for dim {dim}: integers would pass 2^53; got {longest}")
    automaton, checks = generic_automaton(seed, dim, letters), Checks()
    head, wrong = _head(automaton), 0
    for length in range(1, longest + 1):
        tokens = torch.tensor(list(itertools.product(range(letters), repeat=length)))
        states = head(tokens).numpy()
        for word, row in zip(tokens.tolist(), states, strict=True):
            expected = automaton.initial
            for letter, state in zip(word, row, strict=True):
                expected = automaton.matrices[letter] @ expected
                wrong += int((np.array([int(value) for value in state], dtype=object) != expected).any())
    checks.equal("states that are no product of the matrices", wrong, 0)
    ranks = list[int]()
    while len(ranks) <= dim and (not ranks or ranks[-1] < dim):
        ranks.append(_joint_rank(automaton, len(ranks)))
    checks.equal("rank of the vector-valued Hankel block", ranks[-1], dim)
    return StatementCertificate(
        "Vector-Valued Rational Functions",
        (12,),
        f"A head of dimension {dim} gives after every letter the product of its matrices, exactly, and its "
        f"vector-valued Hankel block has rank {dim}",
        "=",
        dim,
        checks.unless_failed(ranks[-1]),
        checks.witness(f"all words up to length {longest} over {letters} letters, seed {seed}; ranks {ranks}"),
        "holds",
        measurements={"ranks": ranks, "wrong_states": wrong},
    )


def _sum_of_paths(automaton: WeightedAutomaton, word: Sequence[int]) -> Any:
    """Return the weight of a word as the sum over all paths q_0, …, q_T of their weights, without a matrix product."""
    states, total = range(automaton.dim), 0
    for path in itertools.product(states, repeat=len(word) + 1):
        weight = automaton.initial[path[0]] * automaton.final[path[-1]]
        for letter, (source, target) in zip(word, itertools.pairwise(path), strict=True):
            weight = weight * automaton.matrices[letter, target, source]
        total = total + weight
    return total


@statement("Linear Representation", 31)
def linear_representation(dim: int = 3, letters: int = 2, longest: int = 5, seed: int = 0) -> StatementCertificate:
    """Compute ``βᵀ M_{x_T} ⋯ M_{x_1} α`` and the sum over all paths of the graph, and compare them on every short word.

    Also that a representation can have fewer states than a machine: parity has two states, and as a sign one dimension.
    """
    at_least("dim", dim, 1)
    automaton, checks = generic_automaton(seed, dim, letters), Checks()
    short = list(words(range(letters), longest))
    values = automaton.batch([[alphabet(letters)[letter] for letter in word] for word in short])
    wrong = sum(value != _sum_of_paths(automaton, word) for word, value in zip(short, values, strict=True))
    checks.equal("words whose paths have another sum", wrong, 0)
    sign = WeightedAutomaton([1], {"0": [[1]], "1": [[-1]]}, [1])
    parity = machine("parity")
    assert parity.dfa is not None
    agree = sign * -1 == parity.automaton * 2 - WeightedAutomaton([1], {"0": [[1]], "1": [[1]]}, [1])
    checks.true("parity is no sign of dimension 1", agree)
    checks.equal("states of the machine of parity", parity.dfa.states, 2)
    return StatementCertificate(
        "Linear Representation",
        (31,),
        f"The product of matrices is the sum over all paths: {len(short)} words, dimension {dim}",
        "∄",
        0,
        len(checks.failed),
        checks.witness(
            f"random integers, seed {seed}, words up to length {longest}; (−1)^#1 has one state, its machine two"
        ),
        "holds",
        measurements={"words": len(short), "wrong": wrong},
    )


def _larger(automaton: WeightedAutomaton, spare: int, seed: int) -> WeightedAutomaton:
    """Return the same series with states that cannot be told apart from others or cannot be reached."""
    from_random = generic_automaton(seed + 1, spare, len(automaton.alphabet))
    return automaton + from_random - from_random


def _positive_part(word: Sequence[str]) -> int:
    return max(0, sum(1 if letter == "a" else -1 for letter in word))


def _has_machine(function: Callable[[Any], Any]) -> bool:
    try:
        interpolated(function, "ab", max_length=3, check_length=12)
    except NotRational:
        return False
    return True


@statement("Fliess", 32)
def fliess(dim: int = 4, letters: int = 2, seed: int = 0, longest: int = 3, block: int = 12) -> StatementCertificate:
    """Let Hankel blocks grow: their rank settles at the least dimension, and a function that is not rational has none.

    The automaton has unneeded states; the machine that is computed from the block has the same series, which is proved.
    """
    at_least("dim", dim, 1)
    at_least("longest", longest, 1)
    at_least("block", block, 1)
    minimal = generic_automaton(seed, dim, letters)
    automaton, checks = _larger(minimal, 2, seed), Checks()
    ranks = block_ranks(automaton, automaton.alphabet, longest)
    least = reduced(automaton).automaton.dim
    checks.equal("rank of the largest block", ranks[-1], least)
    checks.true(f"ranks {ranks} shrink", ranks == sorted(ranks))
    checks.true(f"{least} is not below the {automaton.dim} states there were", least < automaton.dim)
    learned = interpolated(automaton, automaton.alphabet, max_length=longest, checks=20, check_length=8)
    checks.true("the machine of the block has another series", learned == automaton)
    checks.equal("states of the machine of the block", learned.dim, least)
    triangle = np.array([[_positive_part("a" * i + "b" * j) for j in range(block)] for i in range(block)], dtype=object)
    grown = [rank_of_matrix(triangle[:size, :size]) for size in range(1, block + 1)]
    checks.equal("ranks of max(0, #a − #b)", grown, list(range(block)))
    checks.true("max(0, #a − #b) has a machine", not _has_machine(_positive_part))
    return StatementCertificate(
        "Fliess",
        (32,),
        f"The rank of growing Hankel blocks settles at the least number of states, {least}, and that of max(0, #a − "
        "#b) grows with the block",
        "=",
        least,
        checks.unless_failed(ranks[-1]),
        checks.witness(f"{automaton.dim} random states of which {least} are needed, seed {seed}: ranks {ranks}"),
        "holds",
        measurements={"ranks": ranks, "least": least, "states": automaton.dim, "not_rational": grown},
    )
