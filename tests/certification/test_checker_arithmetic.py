"""The checker's bounds hold what torch computes, in four formats and at all scales, and what mathematics says."""

from __future__ import annotations

import math
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest
import torch

from tests.certification.perturbed import counter
from tests.certification.proofs import dense, readout
from transductor import compile_model
from transductor.certification.checker import FORMATS, PI, CheckError, Model, Tensor, normal_distribution
from transductor.certification.proof_objects import _outward
from transductor.certification.subjects import subject_of
from transductor.heads import LookbackHead, RationalHead
from transductor.model import BackboneConfig, NoAttention, RationalTransductor
from transductor.transitions import PermutationTransitions

mpmath = pytest.importorskip("mpmath")
DTYPES = {"float64": torch.float64, "float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}


def test_pi_is_rounded_down():
    with mpmath.workdps(90):
        assert int(mpmath.floor(mpmath.pi * 10**60)) == PI


def test_formats_are_those_of_torch():
    for name, (bits, tiny, largest) in FORMATS.items():
        info = torch.finfo(DTYPES[name])
        assert (info.eps, info.max) == (2.0 ** (1 - bits), float(largest))
        assert 2.0**-tiny == (info.smallest_normal * info.eps if name == "float16" else info.smallest_normal)


def test_the_normal_distribution_lies_in_its_bounds():
    rng = np.random.default_rng(0)
    values = [0, 1, -1, 2**96, -(2**96), 12 * 2**96 - 1, 12 * 2**96, -12 * 2**96 + 1, 100 * 2**96, 2**60]
    values += [int(x * 2**60) * 2**36 for x in rng.normal(size=200) * 4]
    for x in values:
        low, high = normal_distribution(x)
        with mpmath.workdps(120):
            true = mpmath.ncdf(mpmath.mpf(x) / 2**96) * mpmath.mpf(2) ** 256
            assert low <= true <= high, x
        assert high - low < 2**150, x  # within 2^-106


def test_intervals_are_doubles_around_a_ball():
    rng = np.random.default_rng(0)
    for grid in (160, 1074):
        for _ in range(300):
            size = int(rng.integers(1, grid + 90))
            centre = int.from_bytes(rng.bytes(size // 8 + 1), "little") * int(rng.choice([-1, 1]))
            radius = int.from_bytes(rng.bytes(int(rng.integers(1, size // 8 + 2))), "little")
            low, high = _outward((centre, radius), grid)
            assert Fraction(low) <= Fraction(centre - radius, 1 << grid)
            assert Fraction(high) >= Fraction(centre + radius, 1 << grid)
            assert (Fraction(low) * (1 << grid)).denominator == 1
            slack = Fraction(abs(centre) + radius, 2**51 << grid) + Fraction(2, 1 << grid)
            assert Fraction(high) - Fraction(low) <= Fraction(2 * radius, 1 << grid) + slack


def model_of(model):
    """The checker's model of the same numbers."""
    subject, _ = subject_of(model)
    tensors = {}
    for name, values in subject.tensors().items():
        numbers = {place: float(x) for place, x in enumerate(values.reshape(-1)) if x}
        tensors[name] = Tensor(values.shape, numbers, values.dtype.name)
    return Model(tensors, subject.precision, subject.lookback)


def computed_logits(model, tokens):
    """What torch computes: in parallel and token by token, with numbers below the normal ones kept and flushed."""
    out = []
    for flushed in (False, True):
        torch.set_flush_denormal(flushed)
        try:
            with torch.no_grad():
                out.append(model(tokens).double())
                state, parts = model.start(len(tokens)), []
                for time in range(tokens.shape[1]):
                    logits, state = model.advance(tokens[:, time : time + 1], state)
                    parts.append(logits.double())
                out.append(torch.cat(parts, 1))
        finally:
            torch.set_flush_denormal(False)
    return out


def bounds_hold(model, tokens):
    """Compare every logit with its bounds; return the largest width, relative to the logits."""
    exact = model_of(model)
    one, widest, everything = exact.one, 0.0, computed_logits(model, tokens)
    for row in range(len(tokens)):
        before = tuple(exact.vectors["initial"])
        for time, letter in enumerate(tokens[row].tolist()):
            after = exact.step(letter, before)
            for k, (centre, radius) in enumerate(exact.logits(letter, after + before if exact.lookback else after)):
                for computed in everything:
                    shown = Fraction(float(computed[row, time, k])) * one
                    assert centre - radius <= shown <= centre + radius, (row, time, k)
                widest = max(widest, radius / (abs(centre) + radius or 1))
            before = after
    return widest


def random_head(rng, kind, dim=4, letters=3):
    """An exact head: permutations, or matrices with one entry, 1 or -1, in each row or column."""
    if kind == "permutations":
        family = PermutationTransitions(permutations=[rng.permutation(dim).tolist() for _ in range(letters)])
        return family, rng.normal(size=dim)
    table = np.zeros((letters, dim, dim))
    for matrix in table:
        for one, other in enumerate(rng.integers(0, dim, dim)):
            place = (one, other) if kind == "rows" else (other, one)
            matrix[place] = rng.choice([-1, 0, 1, 1])
    return dense(table), rng.normal(size=dim) if kind == "rows" else rng.integers(-3, 4, dim) * 2.0 ** rng.integers(
        -20, 20
    )


def scaled(model, rng, most):
    """Multiply every tensor behind the head by a power of two, and most of them by a moderate one."""
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if "transitions" not in name and "norm" not in name:
                power = int(rng.integers(-most, most + 1)) if rng.random() < 0.5 else 0
                parameter.mul_(2.0**power)
    return model


@pytest.mark.parametrize("precision", DTYPES)
def test_readouts_of_all_scales_lie_in_their_bounds(precision):
    rng, tally = np.random.default_rng(list(DTYPES).index(precision)), Counter()
    tokens = torch.from_numpy(rng.integers(0, 3, (2, 9)))
    for number in range(60):
        kind = ("permutations", "rows", "columns")[number % 3]
        family, initial = random_head(rng, kind)
        head = LookbackHead if number % 4 == 3 else RationalHead
        weight = rng.normal(size=(3, 8 if head is LookbackHead else 4))
        model = readout(family, initial, weight, rng.normal(size=3), head=head, dtype=DTYPES[precision])
        if number % 5 == 4 and precision != "float64":
            model.rational_head.double()
        model = scaled(model, rng, (0, 8, 30, 140)[number % 4])
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            continue
        try:
            bounds_hold(model, tokens)
            tally["held"] += 1
        except CheckError as error:
            tally[str(error)] += 1
    assert tally["held"] >= 25, tally


@pytest.mark.parametrize("precision", DTYPES)
def test_streams_of_all_scales_lie_in_their_bounds(precision):
    rng, tally = np.random.default_rng(10 + list(DTYPES).index(precision)), Counter()
    tokens = torch.from_numpy(rng.integers(0, 3, (2, 5)))
    for number in range(24):
        torch.manual_seed(number)
        kind = ("permutations", "rows", "columns")[number % 3]
        family, initial = random_head(rng, kind)
        sizes = {"width": (4, 8, 12)[number % 3], "layers": number % 3 + 1, "feedforward": 6, "attention_heads": 1}
        config = BackboneConfig(vocab_size=3, output_size=3, attention=NoAttention(), **sizes)
        injection = ("deep", "input", "none", "deep")[number % 4]
        head = (LookbackHead if number % 5 == 4 else RationalHead)(family)
        model = RationalTransductor(head, config, injection=injection).eval().to(DTYPES[precision])
        with torch.no_grad():
            model.rational_head.raw_initial_state.copy_(torch.from_numpy(initial))
            for name, parameter in model.named_parameters():
                if "norm" in name:
                    parameter.add_(torch.randn_like(parameter) * 0.3)
        model = scaled(model, rng, (0, 4, 12, 60)[number % 4])
        if not all(parameter.isfinite().all() for parameter in model.parameters()):
            continue
        try:
            width = bounds_hold(model, tokens)
            tally["held"] += 1
            tally["narrow"] += width < 0.01
        except CheckError as error:
            tally[str(error)] += 1
    assert tally["held"] >= 8, tally
    assert precision in ("bfloat16", "float16") or tally["narrow"] >= 4, tally


def test_bounds_are_close_where_numbers_are_moderate():
    """A bound that is always huge would be sound, too."""
    model = compile_model(counter(5))
    tokens = torch.arange(10).reshape(2, 5) % 2
    assert bounds_hold(model, tokens) < 2.0**-14
    assert bounds_hold(model.double(), tokens) < 2.0**-40


def test_a_linear_map_is_bounded_by_the_formula():
    """Two products and a bias, by hand: γ(4) of the sizes and 16·tiny for each number that may vanish."""
    model = model_of(readout(dense([np.eye(2)]), [1.0, 2.0], [[3.0, -5.0]], [0.5], dtype=torch.float32))
    ((centre, radius),) = model.logits(0, model.step(0, tuple(model.vectors["initial"])))
    sizes, unit = Fraction(3 + 10) + Fraction(1, 2), Fraction(1, 2**24)
    vanishing = 16 * Fraction(1, 2**126) * (1 + (1 + 3 + 1) + (1 + 5 + 2))
    expected = 4 * unit / (1 - 4 * unit) * sizes + vanishing
    assert Fraction(centre, model.one) == 3 - 10 + Fraction(1, 2)
    assert expected <= Fraction(radius, model.one) <= expected + Fraction(4, model.one)


@pytest.mark.parametrize(("scale", "precision"), [(2.0**14, "float16"), (2.0**126, "float32"), (2.0**126, "bfloat16")])
def test_numbers_near_the_end_of_the_range_are_refused(scale, precision):
    model = readout(dense([np.eye(1)]), [1.0], [[scale]], dtype=DTYPES[precision])
    exact = model_of(model)
    state = tuple(exact.vectors["initial"])
    with pytest.raises(CheckError, match="may leave the range"):
        exact.logits(0, state)
    with torch.no_grad():
        model.readout.weight.mul_(0.125)
    exact = model_of(model)
    assert math.isclose(exact.logits(0, state)[0][0] / exact.one, scale / 8)
