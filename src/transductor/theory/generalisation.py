"""Generalisation: errors over time, Rademacher complexities computed exactly, and stability under changes of inputs."""

from __future__ import annotations

import cmath
import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from typing import Final

import numpy as np
import torch

from transductor.automata import MooreMachine
from transductor.certification import subject_of
from transductor.certification.exactness import analysed
from transductor.certification.search.anchor_points import best_anchors
from transductor.checks import check_positive
from transductor.heads import RationalHead
from transductor.model import RationalReadout
from transductor.tasks import ModularCounting
from transductor.theory.random_features import parity_labels
from transductor.theory.statements import StatementCertificate, statement
from transductor.transitions import DenseTransitions

_MOST_WORDS: Final = 12  # of a sample whose signs are all tried


def turning_model(angle: float, modulus: int) -> RationalReadout:
    """Return a head in float64 that a one turns by ``angle`` and a zero leaves, read by the corners of a polygon."""
    family = DenseTransitions(state_dim=2, vocab_size=2)
    head = RationalHead(family)
    model = RationalReadout(head, modulus).double()
    turns = [cmath.exp(2j * math.pi * j / modulus) for j in range(modulus)]
    one = cmath.exp(1j * angle)
    with torch.no_grad():
        turn = [one.real, -one.imag, one.imag, one.real]
        family.raw_numbers(None).copy_(torch.tensor([[1.0, 0.0, 0.0, 1.0], turn], dtype=torch.float64))
        head.raw_initial_state.copy_(torch.tensor([1.0, 0.0]))
        corners = torch.tensor([[corner.real, corner.imag] for corner in turns], dtype=torch.float64)
        model.readout.weight.copy_(corners)
        model.readout.bias.zero_()
    return model.eval()


def certified_horizon(model: RationalReadout, machine: MooreMachine, horizon: int) -> int:
    """Return a length up to which no word can be read wrongly, rounding included; no wrong word is searched for."""
    anchors = best_anchors(analysed(subject_of(model)[0]), machine, None, horizon)
    return 0 if anchors is None else anchors[1].holds_up_to


def first_failure(drift: float, modulus: int, cap: int) -> int:
    """Return the first length at which a word of ones is read as another residue; ``cap`` where none is shorter."""
    half = math.pi / modulus
    return cap if abs(drift) * cap < half else math.ceil(half / abs(drift))


@statement("Time-Invariant Error Bounding", 27)
def time_invariant_error_bounding(
    modulus: int = 5,
    gamma: float = 0.99,
    norm: float | None = None,
    drift: float = 1e-3,
    steps: int = 4000,
    drifts: Sequence[float] = (1e-2, 1e-3, 1e-4, 1e-5),
    horizon: int = 10**6,
) -> StatementCertificate:
    """Is the error of a contractive head bounded by εC/(1−γ) at every length?  It is, and that is never below C.

    Args:
        modulus: The machine counts modulo k, a turn of 2π/k.
        gamma: The norm γ < 1 that the learned matrix is promised to have at most.
        norm: The norm that it has; γ when left out.
        drift: By how much its angle is off.
        steps: The longest word of the measurement.
        drifts: Angle errors of orthogonal heads whose horizons are certified.
        horizon: The longest words that a certificate looks at.
    """
    if not isinstance(modulus, int) or modulus < 2:
        raise ValueError(f"modulus must be an integer of at least 2; got {modulus!r}")
    check_positive("steps", steps)
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must lie between 0 and 1; got {gamma!r}")
    factor = (gamma if norm is None else norm) * cmath.exp(1j * drift)
    # Both matrices are turns, so that their difference is one complex number; the true states have norm C = 1.
    error = abs(factor - 1)
    errors = np.abs(1 - factor ** np.arange(1, steps + 1))
    bound = error / (1 - gamma)
    heads, machine = [], ModularCounting(modulus).automaton()
    assert machine is not None
    for each in drifts:
        model = turning_model(2 * math.pi / modulus + each, modulus)
        heads.append(
            {
                "drift": each,
                "error": 2 * math.sin(each / 2),
                "certified": certified_horizon(model, machine, horizon),
                "first_failure": first_failure(each, modulus, horizon),
            }
        )
    shown = sorted({round(steps ** (place / 60)) for place in range(61)})
    return StatementCertificate(
        title="Time-Invariant Error Bounding",
        numbers=(27,),
        claim=f"For ‖M̂‖ ≤ {gamma} the distance to the states of the counter stays below εC / (1 − γ) at every length.",
        relation="≤",
        bound=bound,
        measured=float(errors.max()),
        witness=f"a turn of 2π/{modulus} + {drift} times {abs(factor):.6g}, ε = {error:.6g}, up to {steps} letters",
        finding="holds with care",
        care="Every machine that never forgets has ‖M*‖ ≥ 1, so ε ≥ 1 − γ and the bound is at least C, the size of the "
        "states themselves: no label follows from it, at any length. At γ = 1 it is infinite, as the paper's remark "
        "says, and the exactness that the remark puts in its place needs exact matrices, which learned angles are "
        "not. What does follow is a finite horizon, from the norm of the error and the margin of the readout, as "
        "certify gives it.",
        tolerance=1e-12,
        tolerance_reason="powers of a complex number of norm at most 1 in float64",
        measurements={
            "modulus": modulus,
            "gamma": gamma,
            "bound": bound,
            "margin": math.sin(math.pi / modulus),
            "lengths": shown,
            "contractive_error": [float(errors[length - 1]) for length in shown],
            "orthogonal_error": [abs(1 - cmath.exp(1j * drift * length)) for length in shown],
            "drift": drift,
            "heads": heads,
        },
    )


def _mean_distance(count: int) -> Fraction:
    """Return the mean of ``|σ_1 + … + σ_n|`` over all signs."""
    return Fraction(count * math.comb(count - 1, (count - 1) // 2), 2 ** (count - 1))


def rademacher(tokens: int, copies: int, gamma: Fraction, length: int = 1) -> Fraction:
    """Return the empirical Rademacher complexity, exactly, for W = ‖α‖ = 1 and a sample that is hard to compress.

    The words end in ``tokens`` different letters, each ``copies`` times; the letters before are one further letter.  A
    last letter's matrix takes α to either side as it likes, so each letter alone decides the sign of its words.
    """
    return gamma**length * _mean_distance(copies) / copies


def _rademacher_bound(size: int, gamma: Fraction) -> float:
    return 1 / (math.sqrt(size) * (1 - float(gamma)))


@statement("Length-Independent Generalization", 28)
def length_independent_generalization(
    tokens: int = 25, copies: int = 1, gamma: Fraction = Fraction(1, 2), length: int = 1
) -> StatementCertificate:
    """Is the Rademacher complexity at most W‖α‖/(√N(1−γ))?  Not where the sample has many different letters.

    Args:
        tokens: How many different last letters the sample has.
        copies: How many words end in each of them, so that N = tokens · copies.
        gamma: The spectral bound.
        length: The length T of the words.
    """
    for name, value in (("tokens", tokens), ("copies", copies), ("length", length)):
        check_positive(name, value)
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must lie between 0 and 1; got {gamma!r}")
    size, gamma = tokens * copies, Fraction(gamma)
    half = Fraction(1, 2)
    distinct = [
        {"words": 2**n, "truth": float(rademacher(2**n, 1, half)), "bound": _rademacher_bound(2**n, half)}
        for n in range(13)
    ]
    repeated = [
        {"words": 64 * each, "truth": float(rademacher(64, each, half)), "bound": _rademacher_bound(64 * each, half)}
        for each in (1, 2, 4, 6, 10, 16, 32, 64)
    ]
    return StatementCertificate(
        title="Length-Independent Generalization",
        numbers=(28,),
        claim=f"For {size} words with {tokens} different last letters the complexity is exactly "
        f"{rademacher(tokens, copies, gamma, length)} W‖α‖, above the bound of the theorem.",
        relation="≥",
        bound=_rademacher_bound(size, gamma),
        measured=rademacher(tokens, copies, gamma, length),
        witness=f"T = {length}, N = {size}, γ = {gamma}: each letter's matrix is γ or −γ times the identity, as the "
        "signs of its words want it",
        finding="false as written",
        care="The number of letters is missing. With N different letters the complexity is γW‖α‖, whatever N is; with "
        "|Σ| letters that occur equally often it falls as γW‖α‖√(2|Σ|/(πN)). What always holds is W‖α‖γᵀ, because no "
        "value is larger: for a contractive head, independence of the length is forgetting.",
        measurements={"gamma": 0.5, "distinct": distinct, "letters_64": repeated, "trivial": 0.5},
    )


def _prefix_counts(words: Sequence[str], empty: bool) -> Counter[str]:
    return Counter(word[:end] for word in words for end in range(0 if empty else 1, len(word) + 1))


def fewest_collisions(words: Sequence[str]) -> tuple[int, list[tuple[str, str]]]:
    """Split each word in two so that no prefix and no suffix is used more often than it must be; return how often.

    The splits come with it, the first that reach the least number, for words in their order.
    """

    def within(most: int, place: int, rows: Counter[str], columns: Counter[str]) -> list[tuple[str, str]] | None:
        if place == len(words):
            return []
        word = words[place]
        for cut in range(len(word), -1, -1):
            row, column = word[:cut], word[cut:]
            if max(rows[row], columns[column]) < most:
                rest = within(most, place + 1, rows + Counter([row]), columns + Counter([column]))
                if rest is not None:
                    return [(row, column), *rest]
        return None

    for most in range(1, len(words) + 1):
        splits = within(most, 0, Counter(), Counter())
        if splits is not None:
            return most, splits
    raise ValueError("words must hold at least one word")


def _dual_complexity(splits: Sequence[tuple[str, str]]) -> float:
    """Return the mean over all signs of ``‖Σ σ_i e_u e_vᵀ‖₂ / N``: no class of nuclear norm 1 has a larger complexity.

    With f(x_i) = H[u_i, v_i] the sum Σ σ_i f(x_i) is an inner product of H with that matrix.
    """
    rows, columns = (list(dict.fromkeys(parts)) for parts in zip(*splits, strict=True))
    total = 0.0
    for signs in itertools.product((-1.0, 1.0), repeat=len(splits) - 1):  # the first sign changes no norm
        matrix = np.zeros((len(rows), len(columns)))
        for sign, (row, column) in zip((1.0, *signs), splits, strict=True):
            matrix[rows.index(row), columns.index(column)] += sign
        total += float(np.linalg.norm(matrix, 2))
    return total / (len(splits) << len(splits) - 1)


@statement("Hankel-Rademacher Complexity", 29)
def hankel_rademacher_complexity(
    words: Sequence[str] = ("0110", "1011", "0", "1101", "111", "0001"),
    empty_prefix: bool = True,
    lengths: Sequence[int] = (2, 4, 6, 8, 10, 12),
) -> StatementCertificate:
    """What is the term of colliding prefixes, and what is the nuclear norm of parity?  The sample size, and infinite.

    Args:
        words: The sample.
        empty_prefix: Whether the empty word counts among the prefixes, as the definition says.
        lengths: Even lengths T at which the Hankel block of parity on words of T letters is measured.
    """
    if not 1 <= len(words) <= _MOST_WORDS:
        raise ValueError(f"words must hold 1 to {_MOST_WORDS} words, because all signs are tried; got {len(words)}")
    fewest, splits = fewest_collisions(words)
    complexity = _dual_complexity(splits)
    counts = _prefix_counts(words, empty_prefix)
    as_written = _per_radius(len(words), max(counts.values(), default=0), _suffixes(words))
    norms = []
    if any(length % 2 for length in lengths):
        raise ValueError(f"lengths must be even, so that words have two halves; got {lengths!r}")
    for length in lengths:
        signs = parity_labels(length // 2)
        block = np.outer(signs, signs)  # parity of uv: the product of both signs
        norms.append({"length": length, "nuclear_norm": float(np.linalg.norm(block, "nuc"))})
    return StatementCertificate(
        title="Hankel-Rademacher Complexity",
        numbers=(29,),
        claim=f"The term of colliding prefixes of a sample of {len(words)} words is {len(words)}; the bound holds "
        f"there, and with one split of each word the term is {fewest}.",
        relation="=",
        bound=len(words),
        measured=max(counts.values(), default=0) if complexity <= as_written else math.nan,
        witness=f"the prefix {counts.most_common(1)[0][0]!r} of {', '.join(words)}; the complexity is at most "
        f"{complexity:.4g} r, the bound {as_written:.4g} r; splits {', '.join('·'.join(split) for split in splits)}"
        if counts
        else "no prefix at all",
        finding="holds with care",
        care="The empty word is a prefix of every word, so σ_S² is the sample size for every sample and measures "
        "nothing; what the bound becomes, r/√N up to logarithms, holds. Repaired: split each word once, x_i = u_i v_i; "
        "then Σ σ_i f(x_i) is an inner product with a matrix of N entries, and it is enough to count how often these "
        "splits use a prefix or a suffix. And the class is small: a function that agrees with parity on all words of T "
        "letters has a block of rank one and entries ±1 in its Hankel matrix, of nuclear norm 2^(T/2), so r ≥ 2^(T/2), "
        "and parity itself has r = ∞.",
        measurements={
            "distinct_suffixes": _suffixes(words),
            "parity": norms,
            "bound_per_r": as_written,
            "fewest_collisions": fewest,
            "complexity_per_r_at_most": complexity,
        },
    )


def _suffixes(words: Sequence[str]) -> int:
    """Return the number D_S of distinct suffixes."""
    return len({word[begin:] for word in words for begin in range(len(word) + 1)})


def _per_radius(size: int, collisions: int, suffixes: int) -> float:
    """Return the bound of the theorem for r = 1, with σ_S² the number of collisions."""
    logarithm = math.log(2 * suffixes)
    return (math.sqrt(2 * collisions * logarithm) + 2 / 3 * logarithm) / size


@statement("Lipschitz Input Stability", 30)
def lipschitz_input_stability(
    gamma: Fraction = Fraction(9, 10),
    norm: Fraction | None = None,
    lengths: Sequence[int] = (1, 2, 4, 8, 9, 10, 16, 32, 64, 128, 256),
    change: Fraction = Fraction(1, 10**6),
) -> StatementCertificate:
    """Is the last state Lipschitz in the inputs with constant K‖α‖/(1−γ)?  Yes, and the sharp one is K‖α‖Tγ^(T−1).

    Args:
        gamma: The spectral bound.
        norm: The norm at the inputs that are tried; γ when left out.
        lengths: The lengths T that are tried.
        change: By how much every input is changed.
    """
    if not 0 < gamma < 1:
        raise ValueError(f"gamma must lie between 0 and 1; got {gamma!r}")
    if not lengths or min(lengths) < 1:
        raise ValueError(f"lengths must hold positive integers, at least one; got {lengths!r}")
    if not change > 0:
        raise ValueError(f"change must be positive; got {change!r}")
    norm = Fraction(gamma if norm is None else norm)
    # M(x) = x for a number x: K = 1, α = 1 and h_T is the product of the inputs. All move down by the same change.
    quotients = {length: (norm**length - (norm - change) ** length) / change for length in lengths}
    worst = max(quotients, key=quotients.__getitem__)
    points = [
        {"length": length, "quotient": float(quotient), "sharp": float(length * norm ** (length - 1))}
        for length, quotient in quotients.items()
    ]
    return StatementCertificate(
        title="Lipschitz Input Stability",
        numbers=(30,),
        claim=f"For γ = {gamma} no change of the inputs changes the last state by more than K‖α‖/(1 − γ) times as "
        "much.",
        relation="≤",
        bound=1 / (1 - Fraction(gamma)),
        measured=float(quotients[worst]),
        witness=f"M(x) = x, every input {norm} lowered by {change}, T = {worst}. Exchanging inputs one by one gives "
        "K‖α‖Tγ^(T−1) for any M, no more than K‖α‖(1 + γ + … + γ^(T−1)); the quotient tends to it. It tends to 0 as T "
        "grows: a contractive head that adds no input forgets everything",
        finding="holds",
        measurements={"gamma": float(gamma), "bound": float(1 / (1 - Fraction(gamma))), "points": points},
    )
