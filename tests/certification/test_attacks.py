"""Models that were called proved and are wrong, calls that broke the words, and files that broke the checker."""

from __future__ import annotations

import itertools
import json

import numpy as np
import pytest
import torch
from torch import nn

from tests.certification.perturbed import counter, one_hot, readout_model, turn
from tests.certification.test_certificates import altered, sealed
from transductor.automata import MooreMachine, WeightedAutomaton
from transductor.certification import CertificateError, certify, check_certificate
from transductor.compilation import compile_model
from transductor.extraction import NoMachineNearby, extract, harden
from transductor.heads import RationalHead
from transductor.model import BackboneConfig, RationalReadout, RationalTransductor
from transductor.transitions import (
    DenseTransitions,
    DPLRTransitions,
    PermutationTransitions,
    StochasticTransitions,
    TensorProduct,
)

FIVE = counter(5)
WORDS = torch.randint(0, 2, (16, 64), generator=torch.Generator().manual_seed(0))


def scaled_counter(initial, weight, dtype=torch.float32, head_dtype=None):
    """Count modulo 5 with a state and a readout of any size."""
    family = PermutationTransitions(permutations=[[0, 1, 2, 3, 4], [1, 2, 3, 4, 0]])
    model = RationalReadout(RationalHead(family), 5).to(dtype)
    if head_dtype is not None:
        model.rational_head.to(head_dtype)
    with torch.no_grad():
        model.rational_head.raw_initial_state.copy_(torch.eye(5)[0].double() * initial)
        model.readout.weight.copy_(torch.eye(5).double() * weight)
        model.readout.bias.zero_()
    return model


def accuracy(model, machine=FIVE, words=WORDS):
    with torch.no_grad():
        logits = model(words)
    best, second = logits.topk(2).values.unbind(-1)
    right = (logits.argmax(-1) == machine.labels(words)) & (best > second)
    return float(right.double().mean())


OUT_OF_RANGE = {
    "products underflow": lambda: scaled_counter(2.0**-99, 2.0**-60),
    "products underflow in float16": lambda: scaled_counter(1e-3, 1e-5, torch.float16),
    "the state becomes infinite in float16": lambda: scaled_counter(2.0**17, 2.0**-12, torch.float16),
    "the state becomes infinite in float32": lambda: scaled_counter(2.0**130, 2.0**-60, head_dtype=torch.float64),
}


@pytest.mark.parametrize("name", OUT_OF_RANGE)
def test_a_readout_out_of_range_is_not_proved(name):
    model = OUT_OF_RANGE[name]()
    assert accuracy(model) < 0.5
    certificate = certify(model, against=FIVE)
    assert (certificate.verdict, certificate.holds_up_to) == ("refuted", 0)
    with torch.no_grad():
        shown = model(torch.tensor([certificate.word]))[0, -1].argmax()
    assert int(shown) != FIVE.labels(torch.tensor([certificate.word]))[0, -1]
    check_certificate(json.loads(json.dumps(certificate.plain())), model)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16])
@pytest.mark.parametrize("scale", [2.0**-3, 1.0, 2.0**3])
def test_within_range_all_formats_are_proved(dtype, scale):
    model = scaled_counter(scale, scale, dtype)
    certificate = certify(model, against=FIVE)
    assert certificate.verdict == "proved"
    assert 0 < certificate.margin <= scale**2
    assert accuracy(model) == 1.0
    check_certificate(certificate, model)


def test_flushing_to_zero_is_covered():
    model = scaled_counter(1.0, 1e-40)
    assert certify(model, against=FIVE).outcome != "proved"
    if torch.set_flush_denormal(True):
        try:
            assert accuracy(model) < 0.5
            # Numbers that are proved are right with flushing too.
            proved = scaled_counter(1.0, 2.0**-100)
            assert certify(proved, against=FIVE).verdict == "proved"
            assert accuracy(proved) == 1.0
        finally:
            torch.set_flush_denormal(False)


@pytest.mark.parametrize(
    "changes",
    [
        {"injection.projections.weight": 1e20},
        {"backbone.final_norm.weight": 1e-30, "backbone.readout.weight": 1e-30},
        {"backbone.final_norm.weight": 1e30, "backbone.readout.weight": 1e30},
    ],
    ids=["squares overflow", "logits underflow", "logits overflow"],
)
def test_a_stream_out_of_range_is_not_proved(changes):
    model = compile_model(FIVE)
    assert certify(model, against=FIVE).verdict == "proved"
    with torch.no_grad():
        for name, factor in changes.items():
            model.get_parameter(name).mul_(factor)
    certificate = certify(model, against=FIVE)
    assert (certificate.about, certificate.holds_up_to) == ("model", 0)
    # Infinite logits of the right sign are no proof, and no mistake.
    assert certificate.verdict == ("refuted" if accuracy(model) < 0.5 else "holds up to 0")
    check_certificate(json.loads(json.dumps(certificate.plain())), model)


def test_a_series_that_underflows_is_not_proved():
    head = RationalHead(DenseTransitions(state_dim=1, vocab_size=1, init_scale=0.0))
    with torch.no_grad():
        head.raw_initial_state.fill_(2.0**-20)
    series = WeightedAutomaton([2.0**-30], [[[1.0]]], [1.0], "a")
    weight = torch.tensor([[2.0**-10]])
    assert certify(head, weight, against=series).verdict == "proved"
    certificate = certify(head, weight.half(), against=series)
    assert certificate.outcome != "proved"
    assert certificate.holds_up_to == 0


def test_a_horizon_counts_underflow_in_the_readout():
    permutations = [np.eye(5)[:, [0, 1, 2, 3, 4]], np.roll(np.eye(5), 1, 0)]
    table = np.stack(permutations) * (1 - 2.0**-20)
    model = readout_model(table, np.eye(5)[0] * 2.0**-70, np.eye(5) * 2.0**-90, dtype=torch.float32)
    assert accuracy(model) < 0.5
    assert certify(model, against=FIVE, horizon=1000).holds_up_to == 0


def streamed(model, words):
    state, labels = model.start(len(words)), []
    for time in range(words.shape[1]):
        logits, state = model.advance(words[:, time : time + 1], state)
        labels.append((logits[..., 0] > 0).long() if logits.shape[-1] == 1 else logits.argmax(-1))
    return torch.cat(labels, 1)


def factored_parities():
    """Heads of dimension 1 with matrices 1 and −1, which their factors miss."""
    dplr = DPLRTransitions(state_dim=1, vocab_size=2, rank=1)
    with torch.no_grad():
        big = 2.0**23
        dplr.source.raw.copy_(torch.tensor([[1 + big, big, -1], [-1 - big, big, 1]]))
    yield "dplr", dplr
    huge, tiny = (DenseTransitions(state_dim=1, vocab_size=2, init_scale=0.0) for _ in range(2))
    with torch.no_grad():
        huge.source.raw.copy_(torch.tensor([[2.0**127], [2.0**127]]))
        tiny.source.raw.copy_(torch.tensor([[2.0**-127], [-(2.0**-127)]]))
    yield "tensor_product", TensorProduct(huge, tiny)


@pytest.mark.parametrize(("name", "family"), list(factored_parities()))
def test_a_stream_multiplies_what_was_analysed(name, family):
    assert family.table().flatten().tolist() == [1, -1]
    model = RationalReadout(RationalHead(family), 1)
    with torch.no_grad():
        model.rational_head.raw_initial_state.fill_(0.3)
        model.readout.weight.fill_(1.0)
        model.readout.bias.fill_(-0.29)
    even = MooreMachine(np.array([[0, 1], [1, 0]]), np.array([1, 0]))
    certificate = certify(model, against=even)
    assert certificate.verdict == "proved"
    assert any("streaming in any split" in way for way in certificate.covers)
    assert torch.equal(streamed(model, WORDS), even.labels(WORDS))


def test_where_factors_round_single_steps_are_not_covered():
    torch.manual_seed(0)
    family = DPLRTransitions(state_dim=2, vocab_size=2, rank=1)
    model = RationalReadout(RationalHead(family), 2)
    certificate = certify(model, against=counter(2), horizon=4)
    assert not any("streaming in any split" in way for way in certificate.covers)


def test_a_forged_domain_is_refused():
    table, initial, weight = one_hot(FIVE)
    model = readout_model(table, initial, weight, dtype=torch.float32)
    domain = MooreMachine(np.array([[0, 1], [1, 1]]), np.array([1, 0]))
    plain = certify(model, against=FIVE, domain=domain).plain()
    # Letter 1 leads outside, and from there a second one back inside: not closed under prefixes.
    forged = MooreMachine(np.array([[0, 1], [1, 0]]), np.array([1, 0]))
    machine = sealed({"transitions": forged.transitions.tolist(), "outputs": [1, 0], "start": 0})
    with pytest.raises(CertificateError, match="closed under prefixes"):
        check_certificate(sealed(plain | {"domain": machine}))
    with pytest.raises(ValueError, match="closed under prefixes"):
        certify(model, against=FIVE, domain=forged)


class Loud(RationalHead):
    """A head that shows something else."""

    def forward(self, *args, **options):
        return -super().forward(*args, **options)


def altered_models():
    def hooked(model):
        model.readout.register_forward_hook(lambda module, inputs, output: -output)

    def hooked_before(model):
        model.rational_head.register_forward_pre_hook(lambda module, inputs: inputs)

    def replaced(model):
        model.readout.forward = lambda states: -states

    def another_reading(model):
        model._read = lambda states: -states

    def parametrised(model):
        torch.nn.utils.parametrizations.weight_norm(model.readout)

    def another_linear(model):
        model.readout = type("Linear", (nn.Linear,), {})(5, 5)

    return [hooked, hooked_before, replaced, another_reading, parametrised, another_linear]


@pytest.mark.parametrize("alter", altered_models(), ids=lambda alter: alter.__name__)
def test_code_that_was_not_analysed_is_refused_by_name(alter):
    model = scaled_counter(1.0, 1.0)
    certificate = certify(model, against=FIVE)
    alter(model)
    with pytest.raises(ValueError, match=r"model_or_head must .*(readout|rational_head|RationalReadout)"):
        certify(model, against=FIVE)
    with pytest.raises(ValueError, match="model_or_head must"):
        check_certificate(certificate, model)


def test_a_subclass_and_a_global_hook_are_refused():
    model = scaled_counter(1.0, 1.0)
    head = Loud(model.rational_head.transitions)
    with pytest.raises(ValueError, match="Loud"):
        certify(RationalReadout(head, 5), against=FIVE)
    with pytest.raises(ValueError, match="Loud"):
        certify(head, torch.eye(5), against=FIVE)
    handle = nn.modules.module.register_module_forward_hook(lambda module, inputs, output: None)
    try:
        with pytest.raises(ValueError, match="hook for all modules"):
            certify(model, against=FIVE)
    finally:
        handle.remove()


@pytest.mark.parametrize("options", [{}, {"injection": "none"}])
def test_proved_is_not_said_of_a_model_whose_labels_were_not_analysed(options):
    torch.manual_seed(0)
    head = scaled_counter(1.0, 1.0).rational_head
    model = RationalTransductor(head, BackboneConfig(vocab_size=2, output_size=5, width=8, layers=1), **options).eval()
    certificate = certify(model, against=FIVE)
    assert (certificate.about, certificate.verdict) == ("head", "separated")
    other = RationalTransductor(head, BackboneConfig(vocab_size=2, output_size=5, width=8, layers=1), **options).eval()
    for model in (other, head):
        with pytest.raises(CertificateError, match="not about this model"):
            check_certificate(certificate, model)
    check_certificate(certify(head, against=FIVE), head)
    with pytest.raises(CertificateError, match="not about this model"):
        check_certificate(certify(head, against=FIVE), other)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_compiled_model_in_half_precision_is_judged_as_a_model(dtype):
    model = compile_model(FIVE).to(dtype)
    certificate = certify(model, against=FIVE)
    assert certificate.about == "model"
    assert certificate.margin is not None
    assert np.isfinite(certificate.margin)
    assert certificate.outcome in ("proved", "bounded")
    check_certificate(certificate, model)


def test_a_certificate_is_bound_to_its_specification():
    model = scaled_counter(1.0, 1.0)
    careless = MooreMachine(FIVE.transitions, np.full(5, -100))
    certificate = certify(model, against=careless)
    assert certificate.verdict == "proved"
    with pytest.raises(CertificateError, match="not about this specification: after"):
        check_certificate(certificate, model, FIVE)
    check_certificate(certify(model, against=FIVE), model, FIVE)
    named = certify(model, against=FIVE, letters=["stay", "step"])
    check_certificate(named, model, FIVE, letters=["stay", "step"])
    with pytest.raises(CertificateError, match="not about this specification: after"):
        check_certificate(named, model, FIVE, letters=["step", "stay"])
    with pytest.raises(CertificateError, match="by name"):
        check_certificate(named, model, FIVE)


def test_nonsense_is_not_extracted_with_full_confidence():
    torch.manual_seed(1)
    model = RationalReadout(RationalHead(StochasticTransitions(state_dim=64, vocab_size=30)), 30)
    with pytest.raises(NoMachineNearby):
        extract(model)
    with pytest.raises(NoMachineNearby):
        harden(model)


def test_too_many_states_are_an_answer(monkeypatch):
    monkeypatch.setattr("transductor.certification.reachability._MOST_NODES", 40)
    counter_of_seven, head = counter(7), one_hot(counter(9))
    model = readout_model(head[0], head[1], head[2][:7], dtype=torch.float32)
    certificate = certify(model, against=counter_of_seven)
    assert certificate.outcome in ("bounded", "refuted")
    assert certificate.holds_up_to == 6
    large = counter(60)
    table, initial, weight = one_hot(large)
    certificate = certify(readout_model(table, initial, weight, dtype=torch.float32), against=large)
    assert certificate.verdict == "holds up to 40"
    assert "too many states" in certificate.method


def test_what_means_nothing_cannot_be_changed_and_signed_again():
    plain = certify(scaled_counter(1.0, 1.0), against=FIVE).plain()
    assert plain["horizon"] is None
    assert "versions" not in plain
    with pytest.raises(CertificateError, match="horizon"):
        check_certificate(sealed(plain | {"horizon": 5}))


def test_hostile_files_are_refused_quickly(tmp_path):
    head = RationalHead(DenseTransitions(state_dim=1, vocab_size=1, init_scale=0.0))
    series = WeightedAutomaton([1], [[[1]]], [1], "a")
    plain = certify(head, torch.tensor([[1.0]]), against=series).plain()
    weights = sealed({**plain["series"], "initial": ["1e999999999"], "sha256": None})
    with pytest.raises(CertificateError, match="a weight must be"):
        check_certificate(sealed(plain | {"series": weights}))
    path = tmp_path / "certificate.json"
    path.write_text(json.dumps(plain)[:-1] + ', "outcome": "proved"}')
    with pytest.raises(CertificateError, match="twice"):
        check_certificate(path)
    path.write_text("[" * 100_000)
    with pytest.raises(CertificateError, match="not JSON"):
        check_certificate(path)
    path.write_text('{"format": 1e99999}')
    with pytest.raises(CertificateError, match="too large"):
        check_certificate(path)
    drifting = readout_model([np.eye(2), -turn(0.05)], [1.0, 0], [[1.0, 0], [-1, 0]])
    refuted = certify(drifting, against=counter(2), horizon=1000).plain()
    assert refuted["outcome"] == "refuted"
    forged = altered(refuted | {"horizon": 10**12}, ("word",), [[[1], 10**10]])
    with pytest.raises(CertificateError, match="word must have"):
        check_certificate(sealed(forged))


def test_all_words_to_length_six_agree_where_something_was_proved():
    """Scales of every tensor drawn at random, in four formats: a small part of the fuzzer in benchmarks/."""
    generator = np.random.default_rng(0)
    words = torch.tensor(list(itertools.product(range(2), repeat=6)))
    proved = 0
    for number in range(60):
        dtype = (torch.float64, torch.float32, torch.bfloat16, torch.float16)[number % 4]
        span = 12 if dtype == torch.float16 else 90
        initial, weight = (2.0 ** float(generator.integers(-span, span)) for _ in range(2))
        model = scaled_counter(initial, weight, dtype)
        if certify(model, against=FIVE).outcome == "proved":
            proved += 1
            assert accuracy(model, words=words) == 1.0
    assert proved >= 20
