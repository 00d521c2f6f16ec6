"""Trained models made exact: the machine inside, the weights around it, and lengths far beyond training."""

from __future__ import annotations

import copy
from dataclasses import replace

import pytest
import torch

from tests.extraction.near_machines import clock, dense_readout, noisy_readout
from transductor.automata import IGNORED
from transductor.extraction.black_box import labelled
from transductor.extraction.extracting import NoMachineNearby, extract
from transductor.extraction.hardening import harden, machine_head
from transductor.heads import LookbackHead, RationalHead
from transductor.model import BackboneConfig, RationalReadout, RationalTransductor, Transformer, load, save
from transductor.studies.demo import DemoStudy
from transductor.tasks import task_named
from transductor.training import Curriculum, TrainingSettings, train
from transductor.transitions import DenseTransitions, OrthogonalTransitions, SquaredCayleyTransitions

MILLION = 1_000_000


def is_one_hot(states: torch.Tensor) -> bool:
    return bool(((states == 0) | (states == 1)).all() and (states.sum(-1) == 1).all())


def carries(*, lookback: bool) -> RationalReadout:
    """Base-10 addition over pairs of digits: the state is the carry; the labels name the carries out and in."""
    sums = torch.arange(100) // 10 + torch.arange(100) % 10
    kill, generate = sums < 9, sums > 9
    table = torch.eye(2).repeat(100, 1, 1)
    table[kill] = torch.tensor([[1.0, 1.0], [0.0, 0.0]])
    table[generate] = torch.tensor([[0.0, 0.0], [1.0, 1.0]])
    now, before = torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]), torch.eye(2).repeat(2, 1)
    weight = torch.cat([now, 0.5 * before], 1) if lookback else now[::2]
    return dense_readout(table, torch.tensor([1.0, 0.0]), weight, lookback=lookback)


@pytest.fixture(scope="module")
def counter():
    """The demo's transductor, trained for a few seconds on sequences of 50."""
    study = DemoStudy()
    torch.manual_seed(0)
    model = study.build("transductor")
    train(model, study.task, replace(study.training, steps=200))
    return model


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_clock_that_goes_wrong_is_exact_at_a_million(dtype):
    soft = clock(5, 1e-3).to(dtype)
    hard = harden(soft)
    assert hard.agreement == 1.0
    assert hard.extraction.machine.states == 5
    assert {parameter.dtype for parameter in hard.model.parameters()} == {dtype}
    assert not hard.model.training
    ones, coins = torch.ones(1, MILLION, dtype=torch.long), torch.randint(0, 2, (1, MILLION))
    for tokens in (ones, coins):
        states = hard.model.rational_head(tokens)
        assert is_one_hot(states)
        truth = task_named("counting:5").truth(tokens)
        assert torch.equal(hard.model(tokens).argmax(-1), truth)
    first_failure = (soft(ones[:, :1000]).argmax(-1) != task_named("counting:5").truth(ones[:, :1000])).nonzero()
    assert first_failure[0].tolist() == [0, 628]


@pytest.mark.parametrize("name", ["parity", "even_pairs", "tomita:6", "addition:2", "group:S3", "group:A5"])
def test_hardened_models_are_right_where_soft_ones_drift(name):
    task = task_named(name)
    soft = noisy_readout(task.automaton(), task.output_size)
    hard = harden(soft)
    tokens = torch.cat([task.sample(2, 50_000, torch.Generator().manual_seed(0)), *task.adversarial(50_000).values()])
    assert torch.equal(hard.model(tokens).argmax(-1), task.truth(tokens))
    assert not torch.equal(soft(tokens).argmax(-1), task.truth(tokens))


def test_words_outside_the_domain_lead_to_a_state_of_their_own():
    task = task_named("arithmetic:5")
    words = task.sample(512, 41, torch.Generator().manual_seed(1))
    hard = harden(noisy_readout(task.automaton(), 5), words=words)
    tokens = task.sample(4, 20_001, torch.Generator().manual_seed(2))
    truth = task.truth(tokens)
    assert (hard.model(tokens).argmax(-1) == truth)[truth != IGNORED].all()
    broken = hard.model.rational_head(torch.tensor([[1, 1, 5, 1]]))
    sink = torch.eye(hard.extraction.machine.states)[hard.extraction.sink]
    assert torch.equal(broken[0, 1:], sink.double().expand(3, -1))
    assert torch.equal(hard.model(torch.tensor([[1, 1]]))[0, 1], hard.model.readout.bias)


def test_logits_are_those_of_the_representatives():
    soft = noisy_readout(task_named("group:S3").automaton(), 6)
    hard = harden(soft)
    extraction = hard.extraction
    one_hot = torch.eye(6, dtype=torch.float64)
    torch.testing.assert_close(
        hard.model.readout(one_hot), soft.readout(extraction.representatives), rtol=0, atol=1e-13
    )
    assert torch.equal(hard.model.readout.bias, soft.readout.bias)
    head = hard.model.rational_head
    assert type(head) is RationalHead
    assert torch.equal(head.initial_state(), one_hot[extraction.machine.start])
    table = head.transitions.table()
    for state in range(6):
        for letter in range(6):
            assert table[letter, extraction.machine.transitions[state, letter], state] == 1
    assert is_one_hot(table.mT)
    assert not any(parameter.requires_grad for parameter in head.parameters())
    assert hard.model.readout.weight.requires_grad


@pytest.mark.parametrize("lookback", [False, True])
def test_an_exact_head_keeps_its_logits(lookback):
    soft = carries(lookback=lookback)
    hard = harden(soft)
    assert hard.extraction.machine.states == 2
    assert hard.extraction.labelled != lookback
    assert isinstance(hard.model.rational_head, LookbackHead) == lookback
    tokens = torch.randint(0, 100, (3, 2000))
    torch.testing.assert_close(hard.model(tokens), soft(tokens), rtol=0, atol=1e-12)
    stream, pieces = hard.model.start(3), []
    for part in tokens[:, :300].split(7, 1):
        logits, stream = hard.model.advance(part, stream)
        pieces.append(logits)
    assert torch.equal(torch.cat(pieces, 1), hard.model(tokens[:, :300]))


@pytest.mark.parametrize("lookback", [False, True])
def test_a_transductor_keeps_all_but_head_and_projections(lookback):
    # A transductor with an exact head in another basis: hardening changes the basis and nothing else.
    machine = task_named("cycle").automaton()
    head = (LookbackHead if lookback else RationalHead)(DenseTransitions(vocab_size=3, state_dim=5))
    exact, basis = machine_head(machine), torch.linalg.qr(torch.randn(5, 5)).Q
    with torch.no_grad():
        head.transitions.get_parameter("source.raw").copy_((basis @ exact.transitions.table() @ basis.T).flatten(1))
        head.raw_initial_state.copy_(basis @ exact.initial_state())
    config = BackboneConfig(vocab_size=3, output_size=5, width=16, layers=2, attention_heads=2)
    soft = RationalTransductor(head, config).eval()
    hard = harden(soft)
    assert hard.extraction.machine.states == 5
    assert hard.agreement == 1.0
    tokens = torch.randint(0, 3, (4, 60))
    torch.testing.assert_close(hard.model(tokens), soft(tokens), rtol=1e-4, atol=1e-4)
    before, after = soft.state_dict(), hard.model.state_dict()
    kept = [name for name in before if name.startswith("backbone.")]
    assert kept
    assert all(torch.equal(before[name], after[name]) for name in kept)
    assert is_one_hot(hard.model.rational_head(tokens).unflatten(-1, (-1, 5)))


def test_a_trained_transductor_becomes_exact(counter):
    task = task_named("counting:5")
    hard = harden(counter)
    assert hard.extraction.machine.states == 5
    assert hard.extraction.ratio > 10
    assert hard.agreement == 1.0
    for length in (500, 10_000):
        ones = torch.ones(1, length, dtype=torch.long)
        assert torch.equal(hard.model(ones).argmax(-1), task.truth(ones))
    ones = torch.ones(1, MILLION, dtype=torch.long)
    assert is_one_hot(hard.model.rational_head(ones))
    # The trained head turns by nearly a fifth, so its states drift until they are those of another count; when its
    # labels begin to be wrong depends on the rounding of the machine that trained it.
    with torch.no_grad():
        states = counter.rational_head(ones)[0]
    first = states[:5]
    same = torch.cdist(states[4::5], first)
    assert (same.argmin(-1) == 4)[:10].all()
    assert not (same.argmin(-1) == 4).all()
    learned = labelled(counter, hard.extraction)
    assert learned.fit == 1.0
    assert learned.machine.separating_word(task.automaton()) is None
    assert learned.machine.states == 5


def test_a_hardened_model_is_saved_and_loaded(counter, tmp_path):
    for number, soft in enumerate((counter, clock(7, 1e-3), carries(lookback=True))):
        hard = harden(soft).model
        again = load(save(hard, tmp_path / str(number)))
        tokens = torch.randint(0, 2, (2, 300))
        assert torch.equal(again(tokens), hard(tokens))
        assert not any(parameter.requires_grad for parameter in again.rational_head.parameters())
        assert extract(again).ratio == float("inf")


def test_the_soft_model_is_left_as_it_was():
    soft = clock(5, 1e-3).float().train()
    before = copy.deepcopy(soft.state_dict())
    harden(soft)
    assert soft.training
    assert all(torch.equal(before[name], value) for name, value in soft.state_dict().items())


def test_an_extraction_already_made_is_used():
    soft = clock(5, 1e-3)
    extraction = extract(soft)
    assert harden(soft, extraction=extraction).extraction is extraction
    with pytest.raises(ValueError, match="extraction must be of this model"):
        harden(noisy_readout(task_named("group:S3").automaton(), 6), extraction=extraction)


def test_what_is_near_no_machine_is_refused():
    with pytest.raises(NoMachineNearby, match=r"more than max_states = 300 states.*What to try: .*train longer"):
        harden(RationalReadout(RationalHead(OrthogonalTransitions(vocab_size=3, state_dim=8)), 4), max_states=300)
    with pytest.raises(TypeError, match="model must be a RationalReadout or a RationalTransductor"):
        harden(Transformer(BackboneConfig(vocab_size=2, output_size=2, width=8, layers=1, attention_heads=1)))


def test_one_letter():
    task = task_named("counting:3")
    machine = replace(task.automaton(), transitions=task.automaton().transitions[:, 1:])
    hard = harden(noisy_readout(machine, 3))
    assert hard.model(torch.zeros(1, 7, dtype=torch.long)).argmax(-1).tolist() == [[1, 2, 0, 1, 2, 0, 1]]


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("name", "family", "state_dim", "steps"),
    [
        ("group:S3", SquaredCayleyTransitions, 16, 800),
        ("group:A5:named", SquaredCayleyTransitions, 16, 1500),
        ("group:S5:named", SquaredCayleyTransitions, 16, 2500),
        ("group:S3", DenseTransitions, 16, 800),
        ("even_pairs", DenseTransitions, 16, 600),
        ("arithmetic:5", DenseTransitions, 32, 4000),
    ],
)
def test_trained_readouts_become_the_machine(name, family, state_dim, steps, seed):
    task = task_named(name)
    torch.manual_seed(seed)
    transitions = family(vocab_size=task.vocab_size, state_dim=state_dim, init_scale=0.3 / state_dim**0.5)
    model = RationalReadout(RationalHead(transitions), task.output_size)
    train(
        model,
        task,
        TrainingSettings(
            steps=steps,
            length=39,
            batch_size=128,
            optimiser="adam",
            clipping="per_tensor",
            label_smoothing=0.0,
            curriculum=Curriculum(start=3),
            seed=seed,
        ),
    )
    words = task.sample(512, 39, torch.Generator().manual_seed(1)) if "arithmetic" in name else None
    hard = harden(model, words=words)
    assert hard.extraction.machine.separating_word(task.automaton(), skip_ignored=True) is None
    tokens = torch.cat([task.sample(2, 20_001, torch.Generator().manual_seed(2)), *task.adversarial(20_001).values()])
    truth = task.truth(tokens)
    assert (hard.model(tokens).argmax(-1) == truth)[truth != IGNORED].all()
