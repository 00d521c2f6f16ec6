"""Portraits: the numbers behind the figures, on heads whose numbers are known."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest
import torch

import transductor.portraits
from tests.extraction.near_machines import clock, dense_readout, noisy_readout
from transductor.automata import MooreMachine, TokenAlphabet, regex
from transductor.compilation import compile_head, compile_model
from transductor.extraction import harden
from transductor.extraction.observable_distance import Contexts
from transductor.model import BackboneConfig, RationalReadout, RationalTransductor, StackedTransductor
from transductor.portraits import Portrait, portrait, read_portrait
from transductor.portraits.measurement import compared_words
from transductor.tasks import task_named
from transductor.transitions import DenseTransitions, StochasticTransitions

COUNTING = task_named("counting:5").automaton()


def random_readout(seed=0):
    torch.manual_seed(seed)
    return RationalReadout(dense_head(), 4)


def dense_head():
    from transductor import RationalHead

    return RationalHead(DenseTransitions(vocab_size=3, state_dim=6))


def test_the_names_of_the_room_are_all_there():
    for name in transductor.portraits.__all__:
        assert callable(getattr(transductor.portraits, name)), name
    with pytest.raises(AttributeError, match="no attribute 'soften'"):
        _ = transductor.portraits.soften


def test_the_room_and_what_a_portrait_holds_need_no_torch():
    code = "import sys, transductor.portraits; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


def test_what_is_done_with_words_that_do_not_occur_is_no_mistake():
    table, letters = np.array([[1, 2], [1, 1], [2, 2]]), TokenAlphabet(("a", "b"), (0, 1))
    target, after_b, after_a = (MooreMachine(table, np.array(labels)) for labels in ([0, 1, 0], [0, 1, 1], [0, 0, 0]))
    beginning_with_a = Contexts.of(torch.tensor([[0, 1, 1, 0, 0]]), 2)
    assert compared_words(after_b, target, letters, beginning_with_a) == (None, True)
    assert compared_words(after_b, target, letters, Contexts.of(None, 2)) == ([1], False)
    assert compared_words(after_a, target, letters, beginning_with_a) == ([0], True)
    assert compared_words(target, target, letters, beginning_with_a) == (None, False)


def test_a_clock_that_goes_wrong_drifts_as_it_must():
    error = 1e-3
    seen = portrait(clock(5, error), against=COUNTING, length=2000)
    assert seen.learned.states == seen.target.states == 5
    assert seen.learned == seen.target
    assert seen.compared
    assert seen.separating_word is None
    for values in seen.eigenvalues:
        assert all(math.isclose(math.hypot(*value), 1.0) for value in values)
    angles = sorted(math.atan2(*reversed(value)) for value in seen.eigenvalues[1])
    assert angles == pytest.approx([-2 * math.pi / 5 - error, 2 * math.pi / 5 + error])
    # A representative is the state of a shortest word, so going round once is five errors; a chord is nearly its angle.
    assert seen.leak.worst[0] == pytest.approx(0, abs=1e-12)
    assert seen.leak.worst[1] == pytest.approx(5 * error, rel=1e-3)
    # The states of the clock are of size 1 and half of a pentagon's side apart.
    assert seen.drift.limit == pytest.approx(math.sin(math.pi / 5), rel=1e-2)
    wrong = [n for n, gap in zip(seen.drift.lengths, seen.drift.powers["1"], strict=True) if gap > seen.drift.limit]
    assert 500 < wrong[0] < 800  # the label is first wrong at 629
    assert max(seen.drift.powers["0"]) == pytest.approx(0, abs=1e-12)
    halfway = seen.drift.lengths.index(min(seen.drift.lengths, key=lambda n: abs(n - 1000)))
    assert seen.drift.median[halfway] < seen.drift.powers["1"][halfway]  # half of the letters do nothing


def test_the_trajectory_is_a_pentagon_with_the_right_colours():
    seen = portrait(clock(5, 0.0), against=COUNTING, length=50).trajectory
    assert len(seen.points) == len(seen.states) == len(seen.word) + 1
    assert seen.share == pytest.approx(1)
    assert len(seen.centres) == 5
    counted = 0
    for letter, state, (x, y) in zip([0, *seen.word], seen.states, seen.points, strict=True):
        counted = (counted + letter) % 5
        assert state == counted
        assert (x, y) == pytest.approx(tuple(seen.centres[state]), abs=1e-9)


@pytest.mark.parametrize("lookback", [False, True])
def test_an_exact_machine_neither_leaks_nor_drifts(lookback):
    machine = task_named("addition:2").automaton()
    model = compile_model(machine, head="lookback" if lookback else "rational")
    seen = portrait(model, against=machine, length=500)
    assert seen.separating_word is None
    assert seen.compared
    assert not any(seen.leak.worst)
    assert seen.drift.lengths[-1] == 500
    assert not any(any(curve) for curve in (seen.drift.worst, *seen.drift.powers.values()))
    assert "exact" in seen.summary


def test_a_hardened_model_is_seen_to_be_exact():
    soft = clock(5, 1e-3).float()
    before = portrait(soft, length=100)
    assert before.drift.precision == "float32"
    assert any(before.leak.worst)
    hard = portrait(harden(soft).model, length=1000)
    assert not any(hard.leak.worst)
    assert not any(hard.drift.worst)


def test_a_machine_that_is_not_the_target_shows_where():
    seen = portrait(clock(5, 0.0), against=task_named("counting:6").automaton(), length=50)
    assert seen.separating_word == [1] * 5
    assert (seen.learned.states, seen.target.states) == (5, 6)


def test_a_head_near_no_machine_says_why():
    seen = portrait(random_readout(), against=None)
    assert seen.learned is seen.drift is seen.leak is seen.trajectory.states is None
    assert "near no finite machine" in seen.refusal
    assert not seen.compared
    coloured = portrait(random_readout(), against=regex("(abc)*"))
    assert set(coloured.trajectory.states) <= set(range(coloured.target.states))


def test_states_that_overflow_are_left_out():
    table = torch.stack([1e30 * torch.eye(2), torch.eye(2)]).double()
    seen = portrait(dense_readout(table, torch.ones(2), torch.eye(2)))
    assert None in seen.trajectory.points
    assert json.dumps(seen.trajectory.points, allow_nan=False)


def test_a_bare_head_has_states_and_no_labels():
    seen = portrait(compile_head(regex("(ab)*")), against=regex("(ab)*"), length=50)
    assert seen.learned.labels is None
    assert not seen.compared
    assert seen.title.startswith("head: ")


def test_a_series_is_no_finite_machine():
    from transductor.automata import machine

    seen = portrait(compile_model(machine("base_value:2").automaton))
    assert seen.learned is None
    assert "one real output" in seen.refusal


def test_with_words_only_what_they_show_is_followed():
    task = task_named("arithmetic:3")
    words = task.sample(600, 41, torch.Generator().manual_seed(0))
    seen = portrait(noisy_readout(task.automaton(), 3), task.automaton(), words, letters="012+-*", length=60)
    assert seen.separating_word is None
    assert seen.letters == list("012+-*")
    assert seen.drift.lengths[-1] == 60  # longer than any of the words
    assert seen.drift.powers == {}  # no expression is a digit and a digit and a digit
    assert all(leak is not None and leak < 0.1 for leak in seen.leak.worst)
    assert max(seen.drift.worst) < seen.drift.limit


def test_the_sink_is_not_shown_and_classes_have_names():
    task = task_named("arithmetic:3")
    words = task.sample(600, 41, torch.Generator().manual_seed(0)).tolist()
    model = noisy_readout(task.automaton(), 3)
    seen = portrait(model, task.automaton(), [word[: 5 + 2 * (row % 9)] for row, word in enumerate(words)],
                    letters="012+-*", classes=["zero", "one", "two"], length=30)  # fmt: skip
    assert seen.learned.shown == seen.learned.states - 1
    assert set(seen.learned.labels) == {"zero", "one", "two", None}
    assert set(seen.learned.transitions[seen.learned.sink]) == {seen.learned.sink}
    with pytest.raises(ValueError, match="letters must be left out where an alphabet is given"):
        portrait(model, letters="012+-*", alphabet=TokenAlphabet.all_tokens(6))


def test_a_portrait_is_written_and_read(tmp_path):
    for number, seen in enumerate((portrait(clock(5, 1e-3), against=COUNTING, length=50), portrait(random_readout()))):
        assert read_portrait(seen.write(tmp_path / f"{number}.json")) == seen
    for content in ("", "[]", '{"title": 1}', '{"trajectory": {"points": []}}'):
        (tmp_path / "other.json").write_text(content)
        with pytest.raises(ValueError, match=r"other\.json is no portrait"):
            read_portrait(tmp_path / "other.json")


def test_the_same_question_gets_the_same_portrait():
    first, second, other = (portrait(clock(5, 1e-3), length=50, seed=seed) for seed in (1, 1, 2))
    assert isinstance(first, Portrait)
    assert first == second
    assert first.trajectory != other.trajectory


def test_the_model_is_left_as_it_was():
    model = clock(5, 1e-3).train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    portrait(model, length=50)
    assert model.training
    assert all(parameter.requires_grad for parameter in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())


def test_wrong_arguments_are_refused_by_name():
    from transductor import RationalHead

    model = clock(5, 1e-3)
    for options, words in (
        ({"letters": "abc"}, "letters must be 2 names"),
        ({"length": 0}, "length"),
        ({"against": regex("a")}, "one letter for each of the 2 tokens"),
    ):
        with pytest.raises(ValueError, match=words):
            portrait(model, **options)
    with pytest.raises(IndexError, match="words must lie in"):
        portrait(model, words=torch.tensor([[7]]))
    with pytest.raises(TypeError, match="against must be"):
        portrait(model, against="parity")
    heads = [dense_head(), RationalHead(StochasticTransitions(feature_dim=8, state_dim=2))]
    config = BackboneConfig(vocab_size=3, width=8, layers=2, attention_heads=2)
    with pytest.raises(TypeError, match="got StackedTransductor"):
        portrait(StackedTransductor(heads, config))
    with pytest.raises(ValueError, match="driven by features"):
        portrait(heads[1])
    broken = RationalTransductor(dense_head(), replace(config, output_size=3))
    with torch.no_grad():
        broken.rational_head.raw_initial_state.fill_(math.nan)
    with pytest.raises(ValueError, match="finite"):
        portrait(broken)
