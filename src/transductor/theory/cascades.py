"""Cascades of weighted automata: the one head that is equal, what is saved, and what only gates can do."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

import numpy as np

from transductor.automata import DFA, WeightedAutomaton, cascaded, gated, reduced
from transductor.automata.closure import reachable_words
from transductor.automata.modular import random_primes, reduced_residues
from transductor.automata.weights import WEIGHTS, Array
from transductor.theory.evidence import Checks, alphabet, generic, generic_automaton, integers, words
from transductor.theory.statements import StatementCertificate, statement
from transductor.transitions import Cascade, DenseTransitions

_RING = WEIGHTS["rational"]


@dataclass(frozen=True, eq=False)
class _Stack:
    """A linear stack as it is written down: ``h^k ← M^k h^k + V^k h^{k−1} + b^k``, each with its own numbers.

    ``current`` says whether h^{k−1} is the state after the letter, as in the equation of the stack, or before it, as in
    the block matrix of the proof.
    """

    parts: tuple[WeightedAutomaton, ...]
    couplings: tuple[Array, ...]  # V^k (d_k, d_{k−1})
    offsets: tuple[Array, ...]  # b^k (letters, d_k): a linear map of the letter's embedding
    current: bool

    def stepped(self, states: Sequence[Array], letter: int) -> list[Array]:
        """Return the states after a letter, straight from the equations."""
        after: list[Array] = []
        for number, (part, state) in enumerate(zip(self.parts, states, strict=True)):
            moved = part.matrices[letter] @ state + self.offsets[number][letter]
            if number:
                moved = moved + self.couplings[number - 1] @ (after if self.current else states)[number - 1]
            after.append(moved)
        return after

    def value(self, word: Sequence[int]) -> object:
        """Return the weight of a word, read at the last state."""
        states = [part.initial for part in self.parts]
        for letter in word:
            states = self.stepped(states, letter)
        return self.parts[-1].final @ states[-1]


def _stack(dims: Sequence[int], letters: int, seed: int, *, current: bool, driven: bool) -> _Stack:
    parts = tuple(generic_automaton(seed + number, dim, letters) for number, dim in enumerate(dims))
    couplings = tuple(generic(seed, later, earlier) for earlier, later in pairwise(dims))
    # The paper's first input is the embedding of the letter; without it states alone drive each other.
    offsets = [np.zeros((letters, dim), dtype=object) for dim in dims]
    if driven:
        offsets[0] = generic(seed + 1, letters, dims[0])
    return _Stack(parts, couplings, tuple(offsets), current)


def _single_head(stack: _Stack, *, constant: bool) -> WeightedAutomaton:
    """Return one automaton on all states together; ``constant`` adds a coordinate that stays 1, for the offsets.

    The coupling to a state *after* the letter is V·M of the part before, and what reaches that part.
    """
    sizes = [part.dim for part in stack.parts]
    edges = np.concatenate(([0], np.cumsum(sizes)))
    total, letters = int(edges[-1]), len(stack.parts[0].matrices)
    matrices = _RING.zeros(letters, total + constant, total + constant)
    for letter in range(letters):
        for number, part in enumerate(stack.parts):
            here = slice(edges[number], edges[number + 1])
            matrices[letter, here, here] = part.matrices[letter]
            if constant:
                matrices[letter, here, total] = stack.offsets[number][letter]
            if number:
                before, coupling = slice(edges[number - 1], edges[number]), stack.couplings[number - 1]
                if stack.current:
                    matrices[letter, here] = matrices[letter, here] + coupling @ matrices[letter, before]
                else:
                    matrices[letter, here, before] = coupling
        if constant:
            matrices[letter, total, total] = 1
    initial = np.concatenate([part.initial for part in stack.parts] + [[1]] * constant)
    final = np.concatenate([_RING.zeros(total - sizes[-1]), stack.parts[-1].final] + [[0]] * constant)
    return WeightedAutomaton(initial, matrices, final, alphabet(letters))


def _same_steps(stack: _Stack, head: WeightedAutomaton, *, constant: bool) -> bool:
    """Whether the head's matrices do what the equations do on a basis of all states, which proves it for every word."""
    edges = np.cumsum([part.dim for part in stack.parts])[:-1]
    basis = np.eye(sum(part.dim for part in stack.parts), dtype=int).astype(object)
    for letter in range(len(head.matrices)):
        for column in [0 * basis[0], *basis] if constant else basis:
            after = np.concatenate(stack.stepped(np.split(column, edges), letter))
            full = np.concatenate((column, [1])) if constant else column
            if (head.matrices[letter] @ full != (np.concatenate((after, [1])) if constant else after)).any():
                return False
    return True


@statement("Reducibility of Cascaded WFAs", 1)
def cascade_reduction(
    dims: tuple[int, ...] = (3, 2), letters: int = 2, seed: int = 0, longest: int = 4
) -> StatementCertificate:
    """Build the one automaton that is a linear cascade, and count its states: reducibility of cascaded WFAs.

    The equations of the stack are followed as they are written; the single head must take the same steps on a basis of
    all states, which is a proof for every word, and give the same weights to all words up to ``longest``.
    """
    dims = integers("dims", dims)
    checks, ranks = Checks(), dict[str, int]()
    for current in (False, True):
        for driven in (False, True):
            stack = _stack(dims, letters, seed, current=current, driven=driven)
            head = _single_head(stack, constant=driven)
            name = f"coupled to the {'current' if current else 'previous'} state{', driven by embeddings' * driven}"
            checks.true(f"{name}: another step than the stack's", _same_steps(stack, head, constant=driven))
            wrong = [
                word for word in words(range(letters), longest) if stack.value(word) != head.batch([_spelled(word)])[0]
            ]
            checks.equal(f"{name}: words of another weight", len(wrong), 0)
            ranks[name] = reduced(head).automaton.dim
            checks.equal(f"{name}: least number of states", ranks[name], sum(dims) + driven)
    if len(dims) == 2:
        stack = _stack(dims, letters, seed, current=False, driven=False)
        house = cascaded(stack.parts[0], stack.parts[1], [stack.couplings[0]] * letters)
        checks.true("cascaded() has another series", house == _single_head(stack, constant=False))
    total = sum(dims)
    return StatementCertificate(
        "Reducibility of Cascaded WFAs",
        (1,),
        f"A linear cascade of dimensions {'+'.join(map(str, dims))} is one automaton of {total} states, and of "
        f"{total + 1} where embeddings drive it; generically neither has fewer",
        "=",
        total + 1,
        checks.unless_failed(ranks["coupled to the current state, driven by embeddings"]),
        checks.witness(f"random integer cascades over {letters} letters, seed {seed}: {ranks}"),
        "holds with care",
        "Σ d_k states suffice where only states drive each other. The stack of the paper is driven by the embedding "
        "of the letter, an additive term, and needs one coordinate more, which stays 1. Coupling to the current state "
        "h¹_t has V·M_x below the diagonal, coupling to h¹_{t−1} has V itself: the equation and the proof differ in "
        "this.",
        measurements={"dims": list(dims), "least_states": ranks, "checks": checks.made},
    )


def _spelled(word: Sequence[int]) -> tuple[str, ...]:
    return tuple(alphabet(26)[letter] for letter in word)


def _algebra_dimension(matrices: Array) -> int:
    """Return the dimension of the algebra that matrices generate with the identity, modulo a random prime.

    That is a lower bound; where it equals the number of entries that can differ from 0, it is the dimension.
    """
    dim = matrices.shape[-1]
    prime = next(random_primes())
    left = np.stack([np.kron(matrix, np.eye(dim, dtype=int)) for matrix in matrices])
    start = np.eye(dim, dtype=int).reshape(-1).astype(object)
    return len(reachable_words(reduced_residues(start, prime), reduced_residues(left, prime), prime))


def _cascade_matrices(dims: Sequence[int], letters: int, seed: int, *, all_earlier: bool) -> Array:
    """Return random block-triangular matrices: coupled to the part before, or to all parts before."""
    edges = np.concatenate(([0], np.cumsum(dims)))
    matrices = generic(seed, letters, edges[-1], edges[-1])
    for to in range(len(dims)):
        for source in range(len(dims)):
            if source > to or (source < to - 1 and not all_earlier):
                matrices[:, edges[to] : edges[to + 1], edges[source] : edges[source + 1]] = 0
    return matrices


@statement("Cascaded Parameter Efficiency", 2)
def cascaded_parameter_efficiency(
    dims: tuple[int, ...] = (2, 2, 2), letters: int = 2, seed: int = 0
) -> StatementCertificate:
    """Count the numbers of a cascade, couplings included, and what it gives up: the algebra its matrices generate."""
    dims = integers("dims", dims, count=2)
    chain = letters * (sum(dim**2 for dim in dims) + sum(a * b for a, b in pairwise(dims)))
    stream = letters * sum(dims[k] * sum(dims[: k + 1]) for k in range(len(dims)))
    without, single = letters * sum(dim**2 for dim in dims), letters * sum(dims) ** 2
    family = Cascade(*(DenseTransitions(vocab_size=letters, state_dim=dim) for dim in dims))
    checks = Checks()
    trained = sum(parameter.numel() for parameter in family.parameters())
    checks.equal("numbers that the family Cascade trains", trained, chain)
    sparse, triangular = (_cascade_matrices(dims, letters, seed, all_earlier=each) for each in (False, True))
    generated = {
        "generic": _algebra_dimension(generic(seed, letters, sum(dims), sum(dims))),
        "cascade": _algebra_dimension(sparse),
        "cascade coupled to all earlier parts": _algebra_dimension(triangular),
    }
    checks.equal("dimension of the algebra of generic matrices", generated["generic"], sum(dims) ** 2)
    for name in list(generated)[1:]:
        checks.equal(f"dimension of the algebra of a {name}", generated[name], stream // letters)
    return StatementCertificate(
        "Cascaded Parameter Efficiency",
        (2,),
        f"A chain of dimensions {'+'.join(map(str, dims))} over {letters} letters has {chain} numbers with its "
        f"couplings ({without} without) against {single}, and generates an algebra of dimension {stream // letters} "
        f"instead of {sum(dims) ** 2}",
        "=",
        chain,
        checks.unless_failed(trained),
        checks.witness(f"random integer matrices, seed {seed}: {generated}"),
        "holds with care",
        "The count leaves the couplings out. A chain saves K²/(2K − 1), about K/2; but the stream carries all earlier "
        "states, and with couplings to all of them the saving is 2K/(K + 1), never more than 2. Fewer numbers are not "
        "shown to need fewer samples, and most machines of the joint dimension are no cascade.",
        measurements={
            "dims": list(dims),
            "parameters": {"chain": chain, "all earlier": stream, "as counted": without, "single": single},
            "saving": {"chain": single / chain, "all earlier": single / stream, "as counted": single / without},
            "algebra": generated,
        },
    )


def _cycle(states: int) -> DFA:
    """Return the machine that counts its letter a and leaves its state at b: every state is reached."""
    return DFA(tuple("ab"), np.array([[(state + 1) % states, state] for state in range(states)]), 0, frozenset())


def _gates(kind: str, states: int, dim: int, seed: int) -> Array:
    """Return gates ``(2, states, dim, dim)``: generic, permutations, or generic and the same for every state."""
    if kind == "permutations":
        draw = np.random.default_rng([seed, states, dim])
        rows = [np.eye(dim, dtype=int)[draw.permutation(dim)] for _ in range(2 * states)]
        return np.stack(rows).reshape(2, states, dim, dim).astype(object)
    if kind == "same":
        return np.repeat(generic(seed, 2, 1, dim, dim), states, axis=1)
    return generic(seed, 2, states, dim, dim)


def _gated_rank(kind: str, states: int, dim: int, seed: int) -> tuple[int, bool]:
    """Return the proved Hankel rank of a gated stack, and whether it takes the steps of the stack on short words."""
    first, gates = _cycle(states), _gates(kind, states, dim, seed)
    start, final = np.eye(dim, dtype=int)[0].astype(object), generic(seed + 5, dim, 1)[:, 0]
    head = gated(first, gates, start, final)
    right = True
    for word in words(range(2), 4):
        state, second = first.start, start
        for letter in word:
            state, second = int(first.transitions[state, letter]), gates[letter, state] @ second
        right &= bool(head(_spelled(word)) == final @ second)
    return reduced(head).automaton.dim, right


@statement("Non-Linear Irreducibility", 3)
def non_linear_irreducibility(dims: tuple[int, ...] = (4, 5), seed: int = 0) -> StatementCertificate:
    """Measure the Hankel rank of a stack whose second matrix is chosen by the first machine's state, read at h² alone.

    All pairs (d₁, d₂) from (2, 2) up to ``dims`` are measured; ranks are proved over the rationals.
    """
    dims = integers("dims", dims, least=2, count=2)
    if len(dims) != 2:
        raise ValueError(f"dims must be two dimensions, d₁ and d₂; got {len(dims)}")
    checks = Checks()
    table: dict[str, dict[str, int]] = {
        "gated": {},
        "permutations": {},
        "same gate for every state": {},
        "additive": {},
    }
    for one in range(2, dims[0] + 1):
        for two in range(2, dims[1] + 1):
            pair = f"{one},{two}"
            for kind, name in (
                ("generic", "gated"),
                ("permutations", "permutations"),
                ("same", "same gate for every state"),
            ):
                table[name][pair], right = _gated_rank(kind, one, two, seed)
                checks.true(f"{name} {pair}: the automaton is not the stack", right)
            stack = _stack((one, two), 2, seed, current=False, driven=False)
            table["additive"][pair] = reduced(_single_head(stack, constant=False)).automaton.dim
            checks.equal(f"rank of the gated stack {pair}", table["gated"][pair], one * two)
            most = one * (two - 1) + 1
            checks.true(f"rank of permutation gates {pair} above {most}", table["permutations"][pair] <= most)
            checks.equal(f"rank of one gate {pair}", table["same gate for every state"][pair], two)
            checks.equal(f"rank of the additive example {pair}", table["additive"][pair], one + two)
    return StatementCertificate(
        "Non-Linear Irreducibility",
        (3,),
        f"A stack gated by the first machine's state has Hankel rank d₁·d₂, {dims[0] * dims[1]} for d = "
        f"{dims[0]}, {dims[1]}, against d₁ + d₂ states",
        "=",
        dims[0] * dims[1],
        checks.unless_failed(table["gated"][f"{dims[0]},{dims[1]}"]),
        checks.witness(f"a counter of d₁ states and random integer gates, seed {seed}: {table['gated']}"),
        "holds with care",
        "The gate must multiply: h² ← G[x, q] h². The example of the proof, an input u ⊗ h¹ that is added, is linear "
        "in h¹ and has rank d₁ + d₂ (measured). Gates that permute reach at most d₁(d₂ − 1) + 1. The price is linear: "
        "'much larger' needs both dimensions to grow.",
        measurements={"rank": table},
    )
