"""Frozen random features: what their states span, what their kernel is, and how many of them parity needs."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from fractions import Fraction
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from transductor.automata import machine
from transductor.automata.modular import Residues, echelon, product, random_primes
from transductor.automata.weighted import WeightedAutomaton
from transductor.checks import check_positive, one_of
from transductor.theory.separability import Floats, cover_probability, separable
from transductor.theory.statements import StatementCertificate, statement

FEATURES: Final = ("haar", "gaussian", "near_identity", "signs")
_EXACT: Final = ("dense", "diagonal")
_ENTRIES: Final = 1000  # exact matrices have entries up to this
_FLIP: Final = ((0, 1), (1, 0))
_FITTED: Final = 1e-6  # an error that is only rounding, for states whose condition number is below 1e9


def drawn(features: str, dim: int, letters: int, random: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw a frozen head: one matrix per letter ``(V, D, D)`` of norm about 1, and a unit initial state ``(D)``.

    Args:
        features: ``"haar"`` (uniform orthogonal matrices), ``"gaussian"``, ``"near_identity"`` (the identity and a
            fifth of a Gaussian matrix) or ``"signs"`` (plus or minus the identity).
        dim: The dimension D of the states.
        letters: The number V of letters.
        random: Where the numbers come from.
    """
    one_of("features", features, FEATURES)
    noise = random.normal(size=(letters, dim, dim)) / math.sqrt(dim)
    start = random.normal(size=dim)
    start /= np.linalg.norm(start)
    if features == "haar":
        left, right = np.linalg.qr(noise)
        # With the signs of R's diagonal the factor is uniform on the orthogonal group.
        return left * np.sign(np.diagonal(right, axis1=1, axis2=2))[:, None, :], start
    if features == "near_identity":
        return np.eye(dim) + 0.2 * noise, start
    if features == "signs":
        return np.sign(noise[:, :1, :1]) * np.eye(dim), start
    return noise, start


def states_of_length(table: npt.NDArray[Any], start: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return the states ``(V^L, D)`` after every word of one length; the number of a word has its last letter first."""
    states = start[None]
    for _ in range(length):
        states = np.concatenate([states @ matrix.T for matrix in table])
    return states


def states_up_to(table: npt.NDArray[Any], start: npt.NDArray[Any], length: int) -> npt.NDArray[Any]:
    """Return the states after every word of at most this length, shorter words first."""
    return np.concatenate([states_of_length(table, start, each) for each in range(length + 1)])


def parity_labels(length: int) -> Floats:
    """Return −1 for every word over two letters with an odd number of ones, otherwise 1, in that order of words."""
    return np.asarray([(-1.0) ** number.bit_count() for number in range(2**length)])


def _rank_of_states(family: str, dim: int, letters: int, length: int, seed: int) -> int:
    """Return the rank modulo a prime of the states of all words; it is never more than the rank over the rationals."""
    random = np.random.default_rng(seed)
    prime = next(iter(random_primes(seed)))
    table = random.integers(1, _ENTRIES, size=(letters, dim, dim))
    if family == "diagonal":
        table = table * np.eye(dim, dtype=np.int64)
    start: Residues = random.integers(1, _ENTRIES, size=dim)
    levels = [start[:, None]]
    for _ in range(length):
        levels.append(np.concatenate([product(matrix, levels[-1], prime) for matrix in table], 1))
    return len(echelon(np.concatenate(levels, 1).T, prime)[1])


@statement("Universality of Random Rational Features", 20)
def universality_of_random_rational_features(
    letters: int = 2, length: int = 5, family: str = "dense", seed: int = 0, curve: Sequence[int] = (1, 2, 3, 4, 5)
) -> StatementCertificate:
    """Are the states of all words of at most L letters linearly independent?  Exact, for random integer matrices.

    Args:
        letters: The size V of the alphabet.
        length: The longest words L.
        family: ``"dense"`` (every entry drawn) or ``"diagonal"`` (a commuting family).
        seed: Of the random integers.
        curve: Lengths of the measurements, in which both families are measured.
    """
    check_positive("letters", letters)
    check_positive("length", length)
    one_of("family", family, _EXACT)
    ranks = []
    for each in curve:
        words = sum(letters**n for n in range(each + 1))
        measured = {name: _rank_of_states(name, words, letters, each, seed) for name in _EXACT}
        ranks.append({"length": each, "words": words, "parikh_vectors": math.comb(each + letters, letters)} | measured)
    words = sum(letters**n for n in range(length + 1))
    conditions = {}
    for name in FEATURES[:3]:
        states = [states_up_to(*drawn(name, 127, 2, np.random.default_rng([seed, each])), 6) for each in range(9)]
        # Two digits: of a number near 1e9 float64 has no more that are the same on every processor.
        conditions[name] = float(f"{np.median([np.linalg.cond(each) for each in states]):.1e}")
    return StatementCertificate(
        title="Universality of Random Rational Features",
        numbers=(20,),
        claim=f"For random matrices with d = {words} the states of all {words} words of at most {length} letters are "
        "linearly independent, so a linear map takes them to the states of any automaton.",
        relation="=",
        bound=words,
        measured=_rank_of_states(family, words, letters, length, seed),
        witness=f"integer matrices ({family}) with entries below {_ENTRIES}, seed {seed}; the rank modulo a prime is "
        "at most the rank over the rationals",
        finding="holds with care",
        care="The distribution needs a density on all matrices, as 'no algebraic dependencies' can be read. In a "
        "commuting family, such as the diagonal matrices that the paper offers or rotations of fixed planes, words "
        "with the same numbers of letters have the same state, so the rank is at most the number of Parikh vectors, "
        "whatever d is. A start near the identity, which the theorem is said to justify, is the worst conditioned of "
        "the three that were measured.",
        measurements={"ranks": ranks, "median_condition_at_length_6": conditions},
    )


def _off_diagonal_rms(gram: Floats) -> float:
    count = len(gram)
    return float(np.sqrt((np.sum(gram**2) - np.sum(np.diag(gram) ** 2)) / (count * (count - 1))))


def _least_error(states: Floats) -> float:
    """Return a number below the largest error of every readout of the states after ε, 0 and 1, for the target 1, 0, 0.

    What least squares leave is orthogonal to every f_d, so rest · f* = rest · (f* − f_d) ≤ |rest|₁ sup |f* − f_d|.
    """
    target = np.array([1.0, 0.0, 0.0])
    rest = target - states @ np.linalg.lstsq(states, target, rcond=None)[0]
    size = float(np.abs(rest).sum())
    return float(rest @ target) / size if size > 1e-9 else 0.0


@statement("Uniform Spectral Approximation Bound", 21)
def uniform_spectral_approximation_bound(
    features: str = "signs",
    dim: int = 1024,
    delta: float = 0.01,
    dims: Sequence[int] = (8, 16, 32, 64, 128, 256, 512, 1024),
    length: int = 6,
    draws: int = 4,
    seed: int = 0,
) -> StatementCertificate:
    """Is the uniform error of d frozen features at most of the order 1/√d?  Not for every distribution of the theorem.

    Args:
        features: The distribution of the counterexample: ``"signs"``, or one of ``FEATURES`` to see it disappear.
        dim: The dimension of the counterexample.
        delta: The probability of failure that the bound allows.
        dims: Dimensions at which the Gram matrix of Haar features is measured.
        length: The length of the words of these Gram matrices.
        draws: How many independent heads are tried, of which the best one counts, and averaged in a Gram matrix.
        seed: Of all draws.
    """
    if not isinstance(dim, int) or dim < 2:
        raise ValueError(f"dim must be an integer of at least 2, because the bound divides by d − 1; got {dim!r}")
    check_positive("draws", draws)
    if not 0 < delta < 1:
        raise ValueError(f"delta must lie between 0 and 1; got {delta!r}")
    # Words of at most one letter; the target is K(ε, ·) = (1, 0, 0), of norm C = 1. Diameter 1, and |h(x) − h(x')| ≤ 2.
    heads = (drawn(features, dim, 2, np.random.default_rng([seed, draw])) for draw in range(draws))
    error = min(_least_error(states_up_to(*head, 1)) for head in heads)
    bound = (math.sqrt(2 * math.log(1 / delta)) + 4 * math.sqrt(dim / (dim - 1) * 2.0)) / math.sqrt(dim)
    curve, pictures = [], []
    for each in dims:
        random = np.random.default_rng([seed, each])
        gram = np.zeros((2**length, 2**length))
        for _ in range(draws):
            states = states_of_length(*drawn("haar", each, 2, random), length)
            gram += states @ states.T / draws
        noise = 1 / math.sqrt(each * draws)
        curve.append({"dim": each, "rms": _off_diagonal_rms(gram), "sampling_noise": noise})
        shown = gram[: 2 ** min(length, 5), : 2 ** min(length, 5)]
        pictures.append({"dim": each, "gram": np.round(shown, 2).tolist()})
    return StatementCertificate(
        title="Uniform Spectral Approximation Bound",
        numbers=(21,),
        claim="With matrices ±I, the sign a fair coin for each letter, no readout of the frozen states comes within "
        "the theorem's bound of K(ε, ·) on words of at most one letter, in any draw.",
        relation="≥",
        bound=bound,
        measured=error,
        witness=f"M = ±I, d = {dim}: the states after ε, 0 and 1 are α, ±α and ±α, while K(ε, ·) is 1, 0, 0, so one of "
        "the three values is missed by at least 1/2",
        finding="false as written",
        care="The features of one head are not independent draws, so the step by Hoeffding's inequality fails: with "
        "M = ±I the error is at least 1/2 for every d, and the bound tends to 0. For uniform orthogonal matrices the "
        "Gram matrix does approach its limit at the rate 1/√d, but the limit is K(x, x′) = 1 if x = x′ and otherwise "
        "0: universal here means that a table of words is memorised.",
        tolerance=1e-9,
        tolerance_reason="a least-squares solution of three equations in float64",
        measurements={
            "length": length,
            "draws": draws,
            "curve": curve,
            "grams": [one for one in pictures if one["dim"] in (dims[0], 64, 256, dims[-1])],
        },
    )


def separated_share(features: str, dim: int, length: int, trials: int, seed: int) -> int:
    """Return in how many of so many draws a hyperplane through the origin separates parity on all words of length L."""
    labels, separated = parity_labels(length), 0
    for trial in range(trials):
        states = states_of_length(*drawn(features, dim, 2, np.random.default_rng([seed, length, dim, trial])), length)
        separated += separable(states, labels)
    return separated


def _misfit(features: str, dim: int, length: int, random: np.random.Generator) -> float:
    """Return the largest error of least squares for parity, as a number, on all words of length L."""
    states, labels = states_of_length(*drawn(features, dim, 2, random), length), parity_labels(length)
    return float(np.abs(labels - states @ np.linalg.lstsq(states, labels, rcond=None)[0]).max())


def parity_points(length: int, ratios: Sequence[Fraction]) -> list[int]:
    """Return the dimensions d with d / 2^L nearest to these ratios."""
    return sorted({max(1, round(ratio * 2**length)) for ratio in ratios})


_RATIOS: Final = (Fraction(1, 4), Fraction(1, 2), Fraction(3, 4))


@statement("Compactness Gap", 22)
def compactness_gap(
    length: int = 6,
    trials: int = 100,
    features: str = "haar",
    ratios: Sequence[Fraction] = _RATIOS,
    flip: Sequence[Sequence[int]] = _FLIP,
    seed: int = 0,
) -> StatementCertificate:
    """How many frozen features does parity need on all words of length L?  Half of 2^L, by Cover's count; learned, two.

    Args:
        length: The length L of the words.
        trials: How many heads are drawn at each dimension.
        features: One of ``FEATURES``.
        ratios: The dimensions, as fractions of ``2^L``.
        flip: The matrix of the letter 1 in the learned head of two states.
        seed: Of the draws.
    """
    check_positive("length", length)
    check_positive("trials", trials)
    words, points = 2**length, list[dict[str, Any]]()
    for dim in parity_points(length, ratios):
        share = separated_share(features, dim, length, trials, seed)
        cover = cover_probability(words, dim)
        points.append({"dim": dim, "ratio": dim / words, "separated": share, "cover": float(cover)})
    misfit = max(_misfit(features, words, length, np.random.default_rng([seed, draw])) for draw in range(5))
    half = words / 2
    worst = max(abs(point["separated"] / trials - (np.sign(point["dim"] - half) + 1) / 2) for point in points)
    learned = WeightedAutomaton([1, 0], {"0": [[1, 0], [0, 1]], "1": flip}, [0, 1])
    right = learned == machine("parity").automaton
    wrong = 0 if right else sum(learned(word) != word.count("1") % 2 for word in _words(length)) or 1
    return StatementCertificate(
        title="Compactness Gap",
        numbers=(22,),
        claim=f"Frozen features ({features}) separate parity on all {words} words of length {length} in no draw where "
        "d is well below 2^L / 2, in half of the draws there, in all where it is well above; two learned states are "
        "right at every length (each wrong word counts as 1).",
        relation="≤",
        bound=3 / (2 * math.sqrt(trials)),
        measured=worst + wrong + (0 if misfit < _FITTED else 1),
        witness="largest distance of the separated share from 0, 1/2, 1; the learned head equals parity's automaton as "
        f"a series over the rationals; with d = {words} frozen features the error is below {_FITTED:g} in every draw",
        finding="holds with care",
        care="There is a gap, and for words of a fixed length it is exponential: d ≈ 2^L / 2. The rate Ω(1/ε²) is read "
        "off an upper bound and is no lower bound: with d = 2^L the error is 0, whatever ε is.",
        measurements={
            "length": length,
            "trials": trials,
            "features": features,
            "points": points,
            "learned_dim": 2,
            "rounding": {"error_at_all_words": misfit},
        },
    )


def _words(length: int) -> list[str]:
    return ["".join(letters) for letters in itertools.product("01", repeat=length)]
