"""Circuits: the depth of the scan that runs, programs of formulas, and functions that no shallow circuit computes."""

from __future__ import annotations

import itertools
import math
import random
from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from transductor.automata import DFA, machine, regex
from transductor.automata.barrington import BooleanFormula, Gate, Variable, permutation_program
from transductor.automata.barrington import evaluated as truth_of
from transductor.automata.ben_or_cleve import ArithmeticFormula, Constant, Operation, arithmetic_program
from transductor.automata.ben_or_cleve import evaluated as value_of
from transductor.automata.logic.formula_tree import Not
from transductor.automata.modular import rank_of_matrix
from transductor.certification import certify
from transductor.compilation import compile_model, compile_program
from transductor.recurrence import scan
from transductor.theory.evidence import Checks, at_least, integers, words
from transductor.theory.statements import StatementCertificate, statement

_PRODUCTS: Final = ("mm", "bmm", "matmul", "mv", "baddbmm", "addmm")


class _Depth(TorchDispatchMode):
    """Follows the numbers through torch's own operations, and counts products of matrices that wait for each other."""

    def __init__(self) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.kept: list[Tensor] = []  # so that no address is used twice
        self.depths: dict[int, int] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        before = max((self.of(value) for value in _tensors((args, kwargs))), default=0)
        depth = before + (func.overloadpacket.__name__ in _PRODUCTS)
        for value in _tensors(out):
            self.kept.append(value)
            self.depths[_address(value)] = max(depth, self.of(value))
        return out

    def of(self, value: Tensor) -> int:
        """Return how many products a tensor had to wait for."""
        return self.depths.get(_address(value), 0)


def _address(value: Tensor) -> int:
    return int(value.untyped_storage()._cdata)


def _tensors(values: Any) -> Iterator[Tensor]:
    if isinstance(values, Tensor):
        yield values
    elif isinstance(values, tuple | list):
        for value in values:
            yield from _tensors(value)
    elif isinstance(values, dict):
        yield from _tensors(tuple(values.values()))


def scan_depth(time: int, dim: int, backend: str) -> int:
    """Return how many products of matrices in a row the scan of one sequence takes, counted while it runs."""
    matrices = torch.eye(dim, dtype=torch.float64).expand(1, time, dim, dim).contiguous()
    initial = torch.ones(1, dim, dtype=torch.float64)
    counted = _Depth()
    with torch.no_grad(), counted:
        states = scan(matrices, initial_state=initial, backend=backend)
    return counted.of(states)


@statement("Circuit Upper Bound for Transductors", 16)
def circuit_upper_bound_for_transductors(
    times: tuple[int, ...] = (1, 2, 3, 7, 64, 65, 1000, 4096), dim: int = 2, backend: str = "kogge_stone"
) -> StatementCertificate:
    """Run the parallel scan and count products that wait for each other: ⌈log₂ T⌉, and one for the initial state."""
    checks, depths = Checks(), dict[str, int]()
    for time in integers("times", times):
        depths[str(time)] = scan_depth(time, dim, backend)
        checks.equal(f"depth at length {time}", depths[str(time)], math.ceil(math.log2(time)) + 1)
    last = max(times)
    return StatementCertificate(
        "Circuit Upper Bound for Transductors",
        (16,),
        f"The scan of T letters takes ⌈log₂ T⌉ + 1 products of matrices in a row: {math.ceil(math.log2(last)) + 1} for "
        f"{last} letters",
        "=",
        math.ceil(math.log2(last)) + 1,
        checks.unless_failed(depths[str(last)]),
        checks.witness(f"backend {backend!r}, counted at torch's own operations: {depths}"),
        "holds with care",
        "Depth is counted in products of d × d matrices, each of depth 1 + ⌈log₂ d⌉ in additions and multiplications. "
        "The numbers have O(T) bits, so this is arithmetic NC¹ for the head; softmax and LayerNorm need roots and "
        "quotients, for which the bound rests on precision that grows with log T (the paper's own remark counts at "
        "bounded precision). Other backends are quicker and deeper.",
        measurements={"depth": depths, "backend": backend},
    )


def _random_boolean(draw: random.Random, depth: int, names: str) -> BooleanFormula:
    if depth == 0:
        return Variable(draw.choice(names))
    if draw.random() < 0.2:
        return Not(_random_boolean(draw, depth - 1, names))
    return Gate(draw.choice("&|^"), tuple(_random_boolean(draw, depth - 1, names) for _ in range(2)))


def _random_arithmetic(draw: random.Random, depth: int, names: str) -> ArithmeticFormula:
    if depth == 0 or draw.random() < 0.1:
        return Constant(draw.randint(-9, 9)) if draw.random() < 0.3 else Variable(draw.choice(names))
    return Operation(draw.choice("+-*"), tuple(_random_arithmetic(draw, depth - 1, names) for _ in range(2)))


def _boolean_errors(draw: random.Random, formulas: int, depth: int) -> tuple[int, int]:
    """Return wrong values of permutation programs over all assignments, and how many were computed."""
    names, wrong, asked = "uvw", 0, 0
    for _ in range(formulas):
        formula = _random_boolean(draw, depth, names)
        program = permutation_program(formula)
        automaton = program.automaton()
        for values in itertools.product((False, True), repeat=len(names)):
            assignment = dict(zip(names, values, strict=True))
            wrong += automaton(program.reading(assignment)) != truth_of(formula, assignment)
            asked += 1
    return wrong, asked


def _arithmetic_errors(draw: random.Random, formulas: int, depth: int) -> tuple[int, int]:
    """Return wrong values of 3 × 3 programs at random assignments, and how many were computed."""
    names, wrong = "uvwx", 0
    for _ in range(formulas):
        formula = _random_arithmetic(draw, depth, names)
        program = arithmetic_program(formula)
        assignment = {name: draw.randint(-9, 9) for name in names}
        wrong += program.automaton(assignment)(program.reading(assignment)) != value_of(formula, assignment)
    return wrong, formulas


@statement("Equivalence to Linear Branching Programs", 17)
def equivalence_to_linear_branching_programs(
    formulas: int = 300, depth: int = 4, boolean_depth: int = 2, pairs: int = 4, seed: int = 0
) -> StatementCertificate:
    """Compile formulas into programs that a head of fixed width reads: five points, or 3 × 3 integers for arithmetic.

    Also what the word "simulate" hides: the equality of two words of ``pairs`` letters has a Hankel block of rank
    2^pairs, so no head of fixed width computes it from the letters themselves, in the order in which they come.
    """
    at_least("formulas", formulas, 1)
    at_least("pairs", pairs, 1)
    draw, checks = random.Random(seed), Checks()
    wrong, asked = _boolean_errors(draw, (formulas + 9) // 10, boolean_depth)
    checks.equal("wrong values of permutation programs of width 5", wrong, 0)
    wrong, computed = _arithmetic_errors(draw, formulas, depth)
    checks.equal("wrong values of integer programs of width 3", wrong, 0)
    halves = list(itertools.product("01", repeat=pairs))
    block = np.array([[int(u == v) for v in halves] for u in halves], dtype=object)
    equality = rank_of_matrix(block)
    checks.equal("rank of the equality of two words", equality, 2**pairs)
    formula = " & ".join(f"!(x{i} ^ y{i})" for i in range(pairs))
    program = permutation_program(formula)
    for u, v in itertools.product(halves, repeat=2):
        named = {f"{name}{i}": bit == "1" for name, half in (("x", u), ("y", v)) for i, bit in enumerate(half)}
        checks.true(f"the program of equality is wrong at {u}, {v}", program(named) == (u == v))
    compiled = certify(compile_program(program), against=program.automaton())
    checks.equal("the verdict on the compiled program", compiled.verdict, "proved")
    return StatementCertificate(
        "Equivalence to Linear Branching Programs",
        (17,),
        f"Heads of width 5 and 3 read the programs of {(formulas + 9) // 10} Boolean and {computed} arithmetic "
        "formulas without an error",
        "∄",
        0,
        len(checks.failed),
        checks.witness(
            f"{asked} truth values and {computed} integers, seed {seed}; equality of {pairs} letters: rank "
            f"{equality}, a program of width 5 and {len(program)} instructions"
        ),
        "holds with care",
        "A head reads its letters once, in their order. It simulates a program that is given as a word, one matrix a "
        "letter, which a preparation of constant depth writes from the input; of the input itself it computes only "
        "what has a Hankel rank of at most d. Equality of two words has a program of width 5 and needs 2ⁿ states.",
        measurements={
            "truth_values": asked,
            "integers": computed,
            "equality_rank": equality,
            "equality_program": len(program),
        },
    )


def _always_flips(dfa: DFA) -> bool:
    """Whether exchanging one letter of a word changes its label, for every word and place: a proof by pairs of states.

    Two different letters lead to two states; every pair that can come of that must have different labels, for ever.
    """
    states = {dfa.start}
    for state in (queue := [dfa.start]):
        for target in dfa.transitions[state].tolist():
            if target not in states:
                states.add(target)
                queue.append(target)
    pairs = {
        (int(dfa.transitions[state, one]), int(dfa.transitions[state, two]))
        for state in states
        for one, two in itertools.combinations(range(len(dfa.alphabet)), 2)
    }
    for one, two in (pending := list(pairs)):
        if (one in dfa.accepting) == (two in dfa.accepting):
            return False
        for letter in range(len(dfa.alphabet)):
            pair = int(dfa.transitions[one, letter]), int(dfa.transitions[two, letter])
            if pair not in pairs:
                pairs.add(pair)
                pending.append(pair)
    return True


def _prime_implicants(dfa: DFA, length: int) -> int:
    """Return how many maximal subcubes of accepted words there are, which a circuit of depth two must choose from."""
    accepted = {word for word in itertools.product((0, 1), repeat=length) if dfa([dfa.alphabet[bit] for bit in word])}
    cubes: set[tuple[int | None, ...]] = set(accepted)
    maximal = 0
    while cubes:
        larger: set[tuple[int | None, ...]] = set()
        covered: set[tuple[int | None, ...]] = set()
        for cube in cubes:
            for place, bit in enumerate(cube):
                if bit == 0 and (other := (*cube[:place], 1, *cube[place + 1 :])) in cubes:
                    larger.add((*cube[:place], None, *cube[place + 1 :]))
                    covered |= {cube, other}
        maximal += len(cubes - covered)
        cubes = larger
    return maximal


def _parity() -> DFA:
    """Return the machine of parity."""
    dfa = machine("parity").dfa
    assert dfa is not None
    return dfa


@statement("Circuit Lower Bound for Transductors", 18)
def circuit_lower_bound_for_transductors(longest: int = 8) -> StatementCertificate:
    """Prove that a compiled model is parity at every length, and that every letter of every word decides its label.

    Full sensitivity is what circuits of constant depth lack; for depth two it is a bound by itself: every term names
    all letters, so 2^(T−1) terms are needed, which is counted up to ``longest``.
    """
    at_least("longest", longest, 1)
    dfa, checks = _parity(), Checks()
    certificate = certify(compile_model(dfa), against=_parity())
    checks.equal("the verdict on the compiled model", certificate.verdict, "proved")
    checks.true("a letter can be exchanged and the label stays", _always_flips(dfa))
    terms = [_prime_implicants(dfa, length) for length in range(1, longest + 1)]
    checks.equal("terms of depth two", terms, [2 ** (length - 1) for length in range(1, longest + 1)])
    return StatementCertificate(
        "Circuit Lower Bound for Transductors",
        (18,),
        "A compiled head of 2 states is parity at every length, each letter decides, and depth two needs 2^(T−1) "
        f"terms, {terms[-1]} at T = {longest}; that no constant depth has polynomial size is Furst, Saxe and Sipser's "
        "theorem, cited",
        "=",
        2 ** (longest - 1),
        checks.unless_failed(terms[-1]),
        checks.witness(f"terms of depth two by length: {terms}"),
        "holds",
        measurements={"terms": terms, "verdict": certificate.verdict},
    )


@statement("Circuit Complexity Sandwich", 19)
def circuit_complexity_sandwich(longest: int = 8, time: int = 1024) -> StatementCertificate:
    """Check each half: parity, which is not in AC⁰, is proved of a model; the scan's depth; and what of AC⁰ is there.

    Of AC⁰ ⊆ F_RT only examples can be shown: "contains 11" is regular, palindromes are not, and both are heads.
    """
    at_least("time", time, 1)
    checks = Checks()
    for name, dfa in (("parity", _parity()), ("contains 11", regex(".*11.*", "01"))):
        verdict = certify(compile_model(dfa), against=dfa).verdict
        checks.equal(f"the verdict on {name}", verdict, "proved")
    checks.true("a letter of parity does not decide", _always_flips(_parity()))
    checks.true("every letter decides in 'contains 11'", not _always_flips(regex(".*11.*", "01")))
    depth = scan_depth(time, 2, "kogge_stone")
    checks.equal(f"depth of the scan at {time}", depth, math.ceil(math.log2(time)) + 1)
    distance = machine("palindrome_distance").automaton
    wrong = sum((distance(word) == 0) != (word == word[::-1]) for word in words("ab", longest))
    checks.equal("words that are wrongly called palindromes or not", wrong, 0)
    return StatementCertificate(
        "Circuit Complexity Sandwich",
        (19,),
        "F_RT is not inside AC⁰ (parity, proved of a model) and its head is ⌈log₂ T⌉ + 1 products deep; two languages "
        "of AC⁰, 'contains 11' and the palindromes, are heads",
        "∄",
        0,
        len(checks.failed),
        checks.witness(f"parity at every length; depth {depth} at T = {time}; palindromes up to {longest}"),
        "holds with care",
        "Shown is F_RT ⊄ AC⁰ and, as far as statement 16 goes, F_RT ⊆ PNC¹. That AC⁰ ⊆ F_RT is never argued: "
        "Transformers with hard attention are inside AC⁰, which is the other direction. With non-uniform circuits the "
        "two inclusions contradict each other: AC⁰ then has undecidable sets of lengths, and uniform PNC¹ has none. "
        "Repaired: F_RT ⊄ AC⁰, F_RT ⊆ PNC¹, and all regular languages of AC⁰ are in F_RT because all regular "
        "languages are.",
        measurements={"depth": depth, "palindromes_wrong": wrong},
    )
