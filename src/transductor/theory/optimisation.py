"""Optimisation: convexity of the readout, what gradients do over time, and the curvature of the loss."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from transductor.checks import check_positive, one_of
from transductor.theory.random_features import drawn, parity_labels, states_of_length
from transductor.theory.separability import Floats
from transductor.theory.statements import StatementCertificate, statement

Exact = npt.NDArray[Any]  # of Fractions
Rows = Sequence[Sequence[Fraction]]

_TURNS: Final[tuple[Rows, ...]] = (
    ((Fraction(3, 5), Fraction(-4, 5)), (Fraction(4, 5), Fraction(3, 5))),
    ((Fraction(5, 13), Fraction(12, 13)), (Fraction(12, 13), Fraction(-5, 13))),
)
_NORM_EPSILON: Final = 1e-5


def _cross_entropy(logits: Floats, labels: npt.NDArray[np.int64]) -> float:
    highest = logits.max(1, keepdims=True)
    normaliser = np.log(np.exp(logits - highest).sum(1)) + highest[:, 0]
    return float((normaliser - logits[np.arange(len(labels)), labels]).mean())


def _layer_norm(stream: Floats) -> Floats:
    centred = stream - stream.mean(1, keepdims=True)
    return np.asarray(centred / np.sqrt((centred**2).mean(1, keepdims=True) + _NORM_EPSILON))


@statement("Convex Learnability of Rational Projections", 23)
def convex_learnability_of_rational_projections(
    normed: bool = False, dim: int = 6, width: int = 4, length: int = 5, pairs: int = 500, seed: int = 0
) -> StatementCertificate:
    """Is the loss convex in the projection W?  For logits ``G + W h``; not where a layer norm stands behind W.

    Args:
        normed: Whether a layer norm stands between ``G + W h`` and the logits.
        dim: The dimension of the frozen states.
        width: The width of ``G``, which is frozen too.
        length: The length of the words; the label is parity.
        pairs: How many pairs of projections are drawn.
        seed: Of all numbers drawn.
    """
    check_positive("pairs", pairs)
    random = np.random.default_rng(seed)
    states = states_of_length(*drawn("haar", dim, 2, random), length)
    labels = ((1 - parity_labels(length)) / 2).astype(np.int64)
    stream, readout = random.normal(size=(len(states), width)), random.normal(size=(width, 2))

    def loss(projection: Floats, norm: bool) -> float:
        injected = stream + states @ projection
        return _cross_entropy((_layer_norm(injected) if norm else injected) @ readout, labels)

    drawn_pairs = [random.normal(size=(2, dim, width)) * random.choice([0.3, 1.0, 3.0]) for _ in range(pairs)]

    def worst(norm: bool) -> tuple[float, float]:
        ends = [(loss(one, norm), loss(two, norm)) for one, two in drawn_pairs]
        middles = [loss((one + two) / 2, norm) for one, two in drawn_pairs]
        excess = max(middle - (a + b) / 2 for (a, b), middle in zip(ends, middles, strict=True))
        return excess, max(max(pair) for pair in ends)

    excess, largest = worst(normed)
    separated = np.array([[1.0, -1.0], [-1.0, 1.0]])  # two words with one-hot states and different labels
    scales = [1.0, 4.0, 16.0, 64.0]
    return StatementCertificate(
        title="Convex Learnability of Rational Projections",
        numbers=(23,),
        claim="With states, stream and readout frozen, the cross-entropy at the middle of two projections is at most "
        "the mean of the cross-entropies at both.",
        relation="≤",
        bound=0,
        measured=excess,
        witness=f"the worst of {pairs} pairs of projections, parity on all words of length {length}, a layer norm "
        f"{'behind' if normed else 'nowhere behind'} the injection",
        finding="holds with care",
        care="Convex where the injected state is read linearly, as in its formula. With a layer norm behind it, as in "
        "the model itself, it is not: the loss at the middle of two projections can exceed the mean of both. And a "
        "convex loss need not have a minimum: where the labels can be separated the cross-entropy only tends to 0 as W "
        "grows.",
        tolerance=64 * float(np.finfo(np.float64).eps) * largest,
        tolerance_reason="a few dozen roundings of float64 in each of three losses",
        measurements={
            "worst_excess": {"linear": worst(False)[0], "behind a layer norm": worst(True)[0]},
            "separable": {
                "scale": scales,
                "loss": [_cross_entropy(scale * separated, np.array([0, 1])) for scale in scales],
            },
        },
    )


def _exact(values: object) -> Exact:
    array = np.asarray(values, dtype=object)
    out = np.empty(array.shape, dtype=object)
    for place, value in np.ndenumerate(array):
        out[place] = Fraction(value)
    return out


def _square(vector: Exact) -> Fraction:
    return Fraction(sum(Fraction(value) ** 2 for value in vector))


# Vectors of integers with their norms, which are integers too.
_INJECTIONS: Final = ((3, 4, 5), (5, -12, 13), (-8, 15, 17), (4, 3, 5), (-12, -5, 13), (0, 1, 1))


def _exploding(gamma: Fraction, norm: Fraction, cases: int, random: np.random.Generator) -> int:
    """Return in how many random cases ``‖δ_{t−k}‖ ≤ γᵏ‖δ_t‖ + ‖v‖(1 + γ + … + γ^{k−1})`` is violated, exactly.

    The matrices are random words of turns times ``norm``; ‖v‖ is the largest norm of the k injections.
    """
    violations = 0
    for _ in range(cases):
        steps = int(random.integers(1, 12))
        *vectors, first = (_INJECTIONS[place] for place in random.integers(len(_INJECTIONS), size=steps + 1))
        error = _exact(first[:2])
        for *vector, _ in vectors:
            error = norm * _exact(_TURNS[int(random.integers(2))]).T @ error + _exact(vector)
        constant = max(size for *_, size in vectors) * sum((gamma**j for j in range(steps)), Fraction(0))
        violations += _square(error) > (gamma**steps * first[2] + constant) ** 2
    return violations


def _grown(gamma: Fraction, steps: int) -> Fraction:
    """Return the norm after so many steps of the worst case: M = γ I, and injections of norm 1 along the gradient."""
    size = Fraction(1)
    for _ in range(steps):
        size = gamma * size + 1
    return size


@statement("Gradient Norm Preservation", 24)
def gradient_norm_preservation(
    matrices: Sequence[Rows] = _TURNS,
    steps: int = 200,
    gamma: Fraction = Fraction(9, 10),
    norm: Fraction | None = None,
    cases: int = 200,
    seed: int = 0,
) -> StatementCertificate:
    """Is the norm of a gradient exactly preserved by orthogonal matrices, over any number of steps?  In fractions.

    Also its first part, ``‖δ_{t−k}‖ ≤ γᵏ‖δ_t‖ + C``, in random cases with injections, with its constant C.

    Args:
        matrices: Square matrices of fractions, one per letter; the gradient passes through a random word of them.
        steps: The length k of the word.
        gamma: The spectral bound of the first part, which is tried at γ = 1 too.
        norm: The norm that its matrices really have; γ when left out.
        cases: How many random cases the first part is tried on.
        seed: Of the word and of these cases.
    """
    check_positive("steps", steps)
    table = [_exact(matrix) for matrix in matrices]
    if not table or any(matrix.shape != (len(table[0]),) * 2 for matrix in table):
        raise ValueError(f"matrices must be square, of one size, and at least one; got {[m.shape for m in table]}")
    word = np.random.default_rng(seed).integers(len(table), size=steps)
    error = _exact([1] + [0] * (len(table[0]) - 1))
    for letter in word:
        error = table[letter].T @ error
    random = np.random.default_rng([seed, 1])
    one = Fraction(1)
    exploding = _exploding(gamma, gamma if norm is None else norm, cases, random) + _exploding(one, one, cases, random)
    growth = [
        {"steps": k, "gamma_1": int(_grown(one, k)), "gamma": float(_grown(gamma, k))} for k in (1, 10, 100, 1000)
    ]
    return StatementCertificate(
        title="Gradient Norm Preservation",
        numbers=(24,),
        claim=f"Without injection, {steps} orthogonal matrices preserve the squared norm of the gradient exactly; with "
        f"injections the first part holds, with C = ‖v‖(1 − γᵏ)/(1 − γ), in all {2 * cases} random cases.",
        relation="=",
        bound=1,
        measured=math.nan if exploding else _square(error),
        witness=f"a random word of {len(table)} rational matrices of dimension {len(table[0])}, in fractions; the "
        f"first part is violated in {exploding} cases at γ = {gamma} and 1",
        finding="holds with care",
        care="The constant C of the first part is ‖v‖(1 − γᵏ)/(1 − γ), which is k‖v‖ at γ = 1: with M = I and "
        "injections along the gradient it is attained. So there is no exponential explosion, but at γ = 1 gradients do "
        "grow with the length, linearly, as the proof says.",
        measurements={"gamma": float(gamma), "norm_with_injections": growth, "cases": 2 * cases},
    )


def _at_least(left: Fraction, added: Fraction, right: Fraction) -> bool:
    """Whether ``√left + √added ≥ √right``, exactly: square twice."""
    rest = right - left - added
    return rest <= 0 or 4 * left * added >= rest**2


def _powers(matrix: Exact, count: int) -> list[Exact]:
    powers = [_exact(np.eye(len(matrix), dtype=int))]
    for _ in range(count):
        powers.append(matrix @ powers[-1])
    return powers


_EXPONENTS: Final[dict[str, Callable[[int, int], int]]] = {"j": lambda j, k: j, "k-1-j": lambda j, k: k - 1 - j}
_COUNTEREXAMPLE: Final = (Fraction(1), Fraction(-1, 2))


def _maintained(exponent: str, transposed: Exact, after: Exact, injected: Sequence[Exact]) -> bool:
    """Whether ``‖δ_{t−k}‖ ≥ ‖Σ_j (Mᵀ)^exponent v_{t−1−j}‖ − ‖(Mᵀ)^k δ_t‖`` for these injections, exactly."""
    steps, powers = len(injected), _powers(transposed, len(injected))
    error = after
    for injection in injected:
        error = transposed @ error + injection
    collected = sum((powers[_EXPONENTS[exponent](j, steps)] @ each for j, each in enumerate(injected)), 0 * after)
    return _at_least(_square(error), _square(powers[steps] @ after), _square(collected))


@statement("Gradient Maintenance via Deep Injection", 25)
def gradient_maintenance_via_deep_injection(
    exponent: str = "k-1-j",
    gamma: Fraction = Fraction(1, 2),
    injections: Sequence[Fraction] = _COUNTEREXAMPLE,
    cases: int = 200,
    seed: int = 0,
) -> StatementCertificate:
    """Is the gradient bounded below by the injections?  Not with the exponent j as it is written; with k−1−j it is.

    Args:
        exponent: ``"k-1-j"``, as the proof has it, or ``"j"``, as the statement has it.
        gamma: The spectral bound.
        injections: ``v_{t−1}, v_{t−2}, …`` of the counterexample in one dimension, with ``δ_t = 0``.
        cases: How many random cases in two dimensions the inequality is tried on, in fractions.
        seed: Of these cases.
    """
    one_of("exponent", exponent, _EXPONENTS)
    if not injections:
        raise ValueError("injections must hold at least one number")
    one = [_exact([value]) for value in injections]
    scalar, nothing = _exact([[gamma]]), _exact([0])
    escapes = _maintained("j", scalar, nothing, one)
    random, violations = np.random.default_rng(seed), dict.fromkeys(_EXPONENTS, 0)
    for _ in range(cases):
        steps = int(random.integers(1, 6))
        vectors = [_exact(vector) for vector in random.integers(-4, 5, size=(steps + 1, 2)).tolist()]
        transposed = _exact(_TURNS[int(random.integers(2))]) * Fraction(gamma)
        for name in _EXPONENTS:
            violations[name] += not _maintained(name, transposed, vectors[0], vectors[1:])
    error = Fraction(0)
    for value in injections:
        error = gamma * error + value
    claimed = abs(sum((gamma**j * value for j, value in enumerate(injections)), Fraction(0)))
    return StatementCertificate(
        title="Gradient Maintenance via Deep Injection",
        numbers=(25,),
        claim=f"The bound with exponent j is violated by the counterexample, and with exponent {exponent} by none of "
        f"{cases} random cases.",
        relation="⇒",
        bound=0,
        measured=violations[exponent] + int(escapes),
        witness=f"γ = {gamma}, δ_t = 0, v = {', '.join(map(str, injections))}: |δ_(t−{len(injections)})| = "
        f"{abs(error)}, where at least {claimed} is claimed",
        finding="false as written",
        care="The powers stand in the wrong order: the proof has (Mᵀ)^(k−1−j), the statement (Mᵀ)^j. The repaired form "
        "holds, and allows the injections to cancel: in the counterexample its lower bound is 0, so it does not rule "
        "out that the gradient collapses.",
        measurements={
            "counterexample": {"gradient": float(abs(error)), "claimed": float(claimed)},
            "violations": violations,
            "cases": cases,
        },
    )


def _hessian_norm(gamma: float, length: int) -> float:
    """Return the spectral norm of the Hessian of ``½‖M^T α − y‖²`` at M, a turn of 2π/5 times γ.

    The unit vector y is a quarter turn ahead of ``M^T α``.
    """
    angle = 2 * math.pi / 5
    turn = [[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]
    matrix = gamma * torch.tensor(turn, dtype=torch.float64)
    ahead = length * angle + math.pi / 2
    start = torch.tensor([1.0, 0.0], dtype=torch.float64)
    target = torch.tensor([math.cos(ahead), math.sin(ahead)], dtype=torch.float64)

    def loss(flat: Tensor) -> Tensor:
        state = start
        for _ in range(length):
            state = flat.view(2, 2) @ state
        return 0.5 * (state - target).square().sum()

    hessian = torch.autograd.functional.hessian(loss, matrix.flatten())
    return float(torch.linalg.matrix_norm(hessian, 2))


def _smoothness(gamma: float, length: int) -> float:
    """Bound that norm for any M of norm γ: ``‖∇h‖² + ‖∇²h‖ (‖h‖ + 1)`` with ``T γ^{T−1}`` and ``T(T−1) γ^{T−2}``."""
    first, second = length * gamma ** (length - 1), length * (length - 1) * gamma ** max(0, length - 2)
    return first**2 + second * (gamma**length + 1)


@statement("Bounded Hessian and Smoothness", 26)
def bounded_hessian_and_smoothness(
    gamma: float = 0.95,
    norm: float | None = None,
    lengths: Sequence[int] = (8, 16, 32, 64, 128, 256),
    curves: Sequence[float] = (1.0, 0.95, 0.9),
) -> StatementCertificate:
    """Is the Hessian of the loss bounded at every length?  For γ < 1; at γ = 1, where counting happens, it grows as T².

    Args:
        gamma: The spectral bound γ < 1 that is promised.
        norm: The norm that the matrix really has; γ when left out.
        lengths: The lengths T.
        curves: Norms for which the measurements hold a curve.
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must lie between 0 and 1; got {gamma!r}")
    if not lengths or min(lengths) < 1:
        raise ValueError(f"lengths must hold positive integers, at least one; got {lengths!r}")
    norm = gamma if norm is None else norm
    # Beyond 2 / (1 − γ) + 2 letters every term falls.
    longest = math.ceil(2 / (1 - gamma)) + 3
    bound = max(_smoothness(gamma, length) for length in range(1, longest + 1))
    measured = {length: _hessian_norm(norm, length) for length in lengths}
    worst = max(measured, key=measured.__getitem__)
    points = [
        {"gamma": each, "length": length, "norm": value}
        for each, length in itertools.product(curves, lengths)
        for value in [measured[length] if each == norm else _hessian_norm(each, length)]
    ]
    return StatementCertificate(
        title="Bounded Hessian and Smoothness",
        numbers=(26,),
        claim=f"For ‖M‖ ≤ {gamma} the Hessian of a smooth loss of the last state has a norm that no length exceeds.",
        relation="≤",
        bound=bound,
        measured=measured[worst],
        witness=f"a turn of 2π/5 times {norm} at T = {worst}, the worst of the lengths {', '.join(map(str, lengths))}",
        finding="holds with care",
        care="For γ < 1, as it says, and every machine that counts has γ = 1: there the norm of the Hessian grows as "
        "T². The loss surface of the heads that generalise is not uniformly smooth.",
        measurements={
            "points": points,
            "gamma": gamma,
            "bound": bound,
            "bound_of_the_proof": (1 - gamma) ** -4 + 4 * (1 - gamma) ** -3,
        },
    )
