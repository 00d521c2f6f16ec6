"""Automata into models: right on every word, at every length, in every form they are kept in."""

from __future__ import annotations

import itertools
import re
from fractions import Fraction

import numpy as np
import pytest
import torch
from torch.nn import functional

from tests.compilation.compilation_cases import (
    PATTERNS,
    all_words,
    margin_on_all_words,
    random_dfa,
    random_words,
    smallest_margin,
    states_of,
)
from transductor.automata import IGNORED, NFA, MooreMachine, WeightedAutomaton, from_dfa, machine, mso, regex
from transductor.automata.library import machines
from transductor.compilation import CannotCompile, compile_head, compile_model
from transductor.model import (
    BackboneConfig,
    FullAttention,
    LearnedPositions,
    NoAttention,
    RationalReadout,
    RationalTransductor,
    RotaryPositions,
    SinusoidalPositions,
    SlidingWindow,
    load,
    save,
)
from transductor.tasks import FlipFlop, LongAddition, ModularArithmetic

FINITE = [named.name for named in machines() if named.dfa is not None]
SERIES = [named.name for named in machines() if named.dfa is None]


def assert_compiled(automaton, *, words=(50, 200), **options):
    """The labels of all short words, of some long ones, and of all words by following every step."""
    model = compile_model(automaton, **options)
    assert isinstance(model, RationalTransductor)
    finite = automaton if isinstance(automaton, MooreMachine) else MooreMachine.from_dfa(automaton)
    for tokens in (all_words(finite.letters, 4096), random_words(finite.letters, *words)):
        with torch.no_grad():
            assert smallest_margin(model(tokens), finite.labels(tokens)) > 7.9
    assert margin_on_all_words(model, finite) > 7.9
    return model


@pytest.mark.parametrize("name", FINITE)
def test_a_named_machine_is_compiled(name):
    assert_compiled(machine(name).dfa)


@pytest.mark.parametrize("seed", range(12))
def test_a_random_automaton_is_compiled(seed):
    assert_compiled(random_dfa(seed), dtype=[torch.float32, torch.float64][seed % 2])


@pytest.mark.parametrize("pattern", PATTERNS[::5])
def test_a_regular_expression_is_compiled(pattern):
    language = regex(pattern, "abcd01")
    model = compile_model(language)
    for length in (1, 2, 3, 4):
        words = list(itertools.product("abcd01", repeat=length))
        tokens = torch.tensor([[language.alphabet.index(letter) for letter in word] for word in words])
        with torch.no_grad():
            accepted = model(tokens)[:, -1].argmax(-1).bool().tolist()
        assert accepted == [re.fullmatch(pattern, "".join(word)) is not None for word in words]
    assert margin_on_all_words(model, MooreMachine.from_dfa(language)) > 7.9


def test_languages_of_every_kind_are_compiled():
    ends = NFA("ab", 3, {(0, "a", 0), (0, "b", 0), (0, "a", 1), (1, "b", 2)}, {0}, {2})
    for automaton in (ends, from_dfa(regex("(a|b)*ab")), mso("exists x. last(x) & b(x)", "ab")):
        model = compile_model(automaton)
        tokens = all_words(2, longest=6)
        expected = [bool(automaton(["ab"[token] for token in word])) for word in tokens.tolist()]
        assert model(tokens)[:, -1].argmax(-1).bool().tolist() == expected


@pytest.mark.parametrize("accepting", [frozenset(), frozenset({0})])
def test_a_language_has_two_classes_even_if_it_is_empty_or_everything(accepting):
    language = random_dfa(0, states=1, letters=1)
    language = type(language)(language.alphabet, language.transitions, 0, accepting)
    model = assert_compiled(language)
    assert model(torch.zeros(1, 3, dtype=torch.long)).shape == (1, 3, 2)


@pytest.mark.parametrize("task", [FlipFlop(), LongAddition(3, "letter"), ModularArithmetic(3)], ids=lambda t: t.name)
@pytest.mark.parametrize("head", ["rational", "lookback"])
def test_a_transducer_gives_its_label_at_every_position(task, head):
    model = assert_compiled(task.automaton(), head=head, output_size=task.output_size + 1)
    assert model.backbone.readout.out_features == task.output_size + 1


def test_looking_back_needs_only_the_carry():
    task = LongAddition(10)
    model = assert_compiled(task.automaton(), head="lookback")
    assert (task.automaton().states, model.rational_head.state_dim) == (21, 2)


@pytest.mark.parametrize("family", ["auto", "stochastic", "dplr", "shared_basis"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", ["tomita:3", "symmetric:3"])
def test_the_state_is_exact_after_a_hundred_thousand_letters(name, dtype, family):
    dfa = machine(name).dfa
    head = compile_head(dfa, family=family, dtype=dtype)
    finite = MooreMachine.from_dfa(dfa)
    tokens = random_words(finite.letters, 1, 100_000)
    states = head(tokens)
    assert states.dtype == dtype
    assert torch.equal(states, torch.eye(finite.states, dtype=dtype)[states_of(finite, tokens)])


@pytest.mark.parametrize("name", SERIES)
def test_a_series_is_compiled(name):
    automaton = machine(name).automaton
    model = compile_model(automaton, dtype=torch.float64)
    assert isinstance(model, RationalReadout)
    tokens = all_words(len(automaton.alphabet), 1 << 10)
    with torch.no_grad():
        values = model(tokens).squeeze(-1)
    for row in range(0, len(tokens), 7):
        word = [automaton.alphabet[token] for token in tokens[row].tolist()]
        expected = torch.tensor([float(automaton(word[: end + 1])) for end in range(len(word))], dtype=torch.float64)
        assert torch.allclose(values[row], expected, rtol=1e-12, atol=1e-14)


def test_a_value_may_grow_without_bound():
    balance = compile_model(machine("balance").automaton)
    tokens = torch.zeros(1, 100_000, dtype=torch.long)
    assert torch.equal(balance(tokens)[0, :, 0], torch.arange(1.0, 100_001))


def test_weights_of_every_kind_are_numbers_or_refused():
    halves = WeightedAutomaton([1], {"a": [[Fraction(1, 2)]]}, [3])
    tokens = torch.zeros(1, 4, dtype=torch.long)
    assert compile_model(halves)(tokens).flatten().tolist() == [1.5, 0.75, 0.375, 0.1875]
    assert compile_model(halves.over("float"), head="lookback")(tokens)[0, -1].item() == 0.1875
    assert compile_model(halves - halves, realisation="smallest")(tokens).flatten().tolist() == [0] * 4
    costs = WeightedAutomaton([0.0], {"a": [[1.0]]}, [0.0], weights="min_plus")
    with pytest.raises(CannotCompile, match=r"weights 'min_plus'.*rational"):
        compile_model(costs)
    with pytest.raises(CannotCompile, match="range of float64"):
        compile_model(WeightedAutomaton([1], {"a": [[10**400]]}, [1]))
    with pytest.raises(CannotCompile, match=r"only to (nan|inf)"):
        compile_model(WeightedAutomaton([1], {"a": [[10**40]]}, [1]))


def test_the_smallest_series_has_its_minimal_dimension():
    twice = machine("balance").automaton + machine("balance").automaton
    model = compile_model(twice, realisation="smallest", dtype=torch.float64)
    assert (twice.dim, model.rational_head.state_dim) == (4, 2)
    tokens = all_words(2, 64)
    letters = [["ab"[token] for token in word] for word in tokens.tolist()]
    assert torch.allclose(model(tokens)[:, -1, 0], torch.tensor([float(twice(word)) for word in letters]).double())


@pytest.mark.parametrize("modulus", [1, 2, 3, 4, 5, 12, 100])
@pytest.mark.parametrize("family", ["auto", "orthogonal"])
def test_a_counter_turns_in_the_plane(modulus, family):
    dfa = machine(f"counter:{modulus}").dfa
    accepting = frozenset({0, 2} if modulus > 3 else {0})  # no half-plane holds 0 and 2 alone
    dfa = type(dfa)(dfa.alphabet, dfa.transitions, 0, accepting)
    model = compile_model(dfa, realisation="smallest", family=family)
    assert model.rational_head.state_dim == (1 if modulus <= 2 else 2)
    tokens = random_words(2, 10, 2000)
    assert torch.equal(model(tokens).argmax(-1), MooreMachine.from_dfa(dfa).labels(tokens))


def test_states_too_close_for_the_precision_are_refused():
    table = np.stack((np.arange(6000), (np.arange(6000) + 1) % 6000), 1)
    counter = MooreMachine(table, np.arange(6000) % 3)
    with pytest.raises(CannotCompile, match=r"too close for this precision.*float64"):
        compile_model(counter, realisation="smallest")
    compile_model(counter, realisation="smallest", dtype=torch.float64)


def test_a_quarter_turn_is_exact_for_ever():
    head = compile_head(machine("counter:4").dfa, realisation="smallest")
    states = head(random_words(2, 1, 100_000))
    assert set(states.unique().tolist()) == {-1.0, 0.0, 1.0}


@pytest.mark.parametrize(
    ("name", "why"),
    [("symmetric:3", "do not commute"), ("flip_flop", "merges states"), ("tomita:5", "no word has order 4")],
)
def test_only_cyclic_machines_turn(name, why):
    with pytest.raises(CannotCompile, match=f"cyclic group.*{why}.*'regular'"):
        compile_model(machine(name).dfa, realisation="smallest")


def test_states_that_no_word_reaches_do_not_turn():
    dfa = machine("counter:3").dfa
    table = np.concatenate((dfa.transitions, [[0, 0]]))
    model = compile_model(type(dfa)(dfa.alphabet, table, 0, frozenset({0})), realisation="smallest")
    assert model.rational_head.state_dim == 2


def test_several_automata_are_one_head():
    parts = [machine("parity").dfa, machine("counter:3").dfa, machine("base_value:2").automaton]
    head = compile_head(parts, family=["orthogonal", "auto", "dense"], dtype=torch.float64)
    tokens = random_words(2, 3, 30)
    expected = torch.cat([compile_head(part, dtype=torch.float64)(tokens) for part in parts], -1)
    assert torch.allclose(head(tokens), expected, rtol=1e-12, atol=1e-12)
    assert [family.name for family in head.transitions.families] == ["orthogonal", "permutation", "dense"]
    with pytest.raises(ValueError, match="same letters"):
        compile_head([machine("parity").dfa, machine("flip_flop").dfa])
    with pytest.raises(ValueError, match="family must be one name, or 3"):
        compile_head(parts, family=["dense"])
    with pytest.raises(ValueError, match="a list of at least one"):
        compile_head([])


def test_a_head_that_looks_back_shows_both_states():
    dfa = machine("counter:3").dfa
    tokens = random_words(2, 2, 20)
    plain, both = compile_head(dfa)(tokens), compile_head(dfa, head="lookback")(tokens)
    assert torch.equal(both[..., :3], plain)
    assert torch.equal(both[:, 1:, 3:], plain[:, :-1])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"family": "orthogonal"},
        {"family": "stochastic"},
        {"realisation": "smallest"},
        {"head": "lookback"},
        {"series": True},
    ],
    ids=str,
)
def test_a_compiled_model_is_kept_in_a_file(tmp_path, dtype, options):
    options = dict(options)
    named = machine("counter:5")
    automaton = named.automaton if options.pop("series", False) else named.dfa
    model = compile_model(automaton, dtype=dtype, **options)
    again = load(save(model, tmp_path / "model"))
    tokens = random_words(2, 3, 40)
    assert torch.equal(again(tokens), model(tokens))
    assert not any(parameter.requires_grad for parameter in (*model.parameters(), *again.parameters()))
    assert {value.dtype for value in again.parameters()} == {dtype}


WARM = [
    "auto",
    "dense",
    "stochastic",
    "orthogonal",
    "signed_cayley",
    "squared_cayley",
    "exponential",
    "cayley",
    "householder",
]


@pytest.mark.parametrize("family", WARM)
def test_a_warm_start_is_right_and_has_a_gradient(family):
    finite = MooreMachine(machine("counter:3").dfa.transitions, np.arange(3))
    model = compile_model(finite, family=family, trainable=True)
    tokens = random_words(2, 8, 60)
    logits, labels = model(tokens), finite.labels(tokens)
    assert torch.equal(logits.argmax(-1), labels)
    functional.cross_entropy(logits.flatten(0, 1), labels.flatten()).backward()
    gradients = [parameter.grad for parameter in model.rational_head.parameters()]
    assert all(gradient.isfinite().all() and gradient.abs().max() > 0 for gradient in gradients)
    assert all(parameter.requires_grad for parameter in model.parameters())


def test_a_stochastic_head_is_exact_cold_and_leaks_a_little_warm():
    dfa = machine("flip_flop").dfa
    warm, cold = (compile_head(dfa, family="stochastic", trainable=trainable) for trainable in (True, False))
    assert (warm.transitions.temperature, cold.transitions.temperature) == (1.0, 0.0)
    target = torch.tensor(dfa.transitions).T
    exact = functional.one_hot(target, 2).mT.float()
    assert torch.equal(cold.transitions.table(), exact)
    assert (warm.transitions.table() - exact).abs().max().item() == pytest.approx(1e-4, rel=1e-3)
    warm.transitions.temperature = 0.0
    assert torch.equal(warm.transitions.table(), exact)


@pytest.mark.parametrize(
    "backbone",
    [
        BackboneConfig(2, 5, 24, 3, 4, attention=FullAttention(), positions=RotaryPositions()),
        BackboneConfig(2, 2, 16, 2, 2, attention=SlidingWindow(4), dropout=0.5),
        BackboneConfig(2, 3, 8, 1, 1, feedforward=20, attention=NoAttention(), positions=LearnedPositions(64)),
    ],
    ids=["full", "window", "none"],
)
@pytest.mark.parametrize(
    "options", [{}, {"head": "lookback"}, {"realisation": "smallest"}, {"trainable": True}], ids=str
)
def test_a_backbone_with_more_room_starts_silent(backbone, options):
    dfa = machine("counter:3").dfa
    model = compile_model(dfa, backbone=backbone, **options).eval()
    tokens = random_words(2, 4, 64)
    assert smallest_margin(model(tokens), MooreMachine.from_dfa(dfa).labels(tokens)) > 7.9
    assert model.backbone.config == backbone


def test_refusals_name_what_is_allowed():
    parity = machine("parity").dfa
    for wrong, message in [
        ({"family": "cauley"}, "family must be one of 'auto', 'dense'"),
        ({"head": "universal"}, "head must be one of 'rational', 'lookback'"),
        ({"realisation": "tiny"}, "realisation must be one of 'regular', 'smallest'"),
        ({"dtype": torch.float16}, "dtype must be one of torch.float32, torch.float64"),
    ]:
        for build in (compile_head, compile_model):
            with pytest.raises(ValueError, match=message):
                build(parity, **wrong)
    with pytest.raises(TypeError, match=r"its \.dfa .* or its \.automaton"):
        compile_head(machine("parity"))
    with pytest.raises(TypeError, match=r"regex\(pattern\).*got str"):
        compile_model("(ab)*")
    for backbone, message in [
        (BackboneConfig(3), "vocab_size=2"),
        (BackboneConfig(2, 1), "output_size of at least 2"),
        (BackboneConfig(2, width=3, attention_heads=1), "width of at least 4"),
    ]:
        with pytest.raises(ValueError, match=message):
            compile_model(parity, backbone=backbone)
    with pytest.raises(ValueError, match="feedforward of at least 4"):
        compile_model(parity, head="lookback", backbone=BackboneConfig(2, feedforward=3))
    with pytest.raises(CannotCompile, match="SinusoidalPositions"):
        compile_model(parity, backbone=BackboneConfig(2, positions=SinusoidalPositions()))
    with pytest.raises(ValueError, match="output_size must be at least 2"):
        compile_model(parity, output_size=1)
    with pytest.raises(ValueError, match="one real output"):
        compile_model(machine("balance").automaton, output_size=2)
    with pytest.raises(ValueError, match="realisation must be 'regular' with head 'lookback'"):
        compile_model(parity, head="lookback", realisation="smallest")
    with pytest.raises(CannotCompile, match="at least one letter"):
        compile_head(MooreMachine(np.zeros((1, 0)), np.zeros(1)))
    with pytest.raises(CannotCompile, match="labels of at least 0, or IGNORED; got -1"):
        compile_head(MooreMachine(np.zeros((1, 1)), np.array([-1])))


def test_a_machine_without_labels_is_still_a_model():
    model = compile_model(MooreMachine(np.zeros((1, 2)), np.array([IGNORED])))
    assert model(torch.zeros(1, 4, dtype=torch.long)).shape == (1, 4, 1)
