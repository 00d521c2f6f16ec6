"""The judge against counting by hand, position by position."""

from __future__ import annotations

import itertools
import json
import math
from fractions import Fraction

import pytest
import torch
from torch import nn

from transductor.compilation import compile_model
from transductor.model import SequenceModel
from transductor.studies import Probe, judging
from transductor.studies.judging import judge
from transductor.tasks import (
    IGNORED,
    BaseValue,
    CycleNavigation,
    FlipFlop,
    LongAddition,
    ModularArithmetic,
    ModularCounting,
    Parity,
)


class Scripted(SequenceModel):
    """Answers what it is told to, and remembers what it was asked."""

    def __init__(self, answer):
        super().__init__()
        self.anchor = nn.Parameter(torch.zeros(1))  # where a model is, its parameters say
        self.answer = answer
        self.asked = []

    config = start = advance = None

    def forward(self, tokens, **_):
        assert not self.training
        assert not torch.is_grad_enabled()
        rows = sum(len(tokens) for tokens in self.asked)
        self.asked.append(tokens)
        return self.answer(tokens, torch.arange(rows, rows + len(tokens)).unsqueeze(1))


def right(task):
    """Logits of the true labels, and of nonsense where there is none."""

    def answer(tokens, _):
        labels = task.truth(tokens)
        labels = torch.where(labels == IGNORED, 1 % task.output_size, labels)
        return nn.functional.one_hot(labels, task.output_size).float()

    return answer


def wrong_at(task, rule):
    """As :func:`right`, but for the labels at which ``rule(row, position)`` holds, both counted from 0."""

    def answer(tokens, rows):
        outputs = right(task)(tokens, rows)
        wrong = rule(rows, torch.arange(tokens.shape[1]))
        return torch.where(wrong.unsqueeze(-1), outputs.roll(1, -1), outputs)

    return answer


def counted_by_hand(task, model, trained_length):
    """Everything but the curve, from single labels in plain Python."""
    total = good = far = far_good = exact = last = with_last = 0
    first = None
    sequences = 0
    row = 0
    for tokens in model.asked:
        outputs = model.answer(tokens, torch.arange(row, row + len(tokens)).unsqueeze(1))
        row += len(tokens)
        for labels, scores in zip(task.truth(tokens).tolist(), outputs.tolist(), strict=True):
            sequences += 1
            verdicts = {
                place: max(range(len(score)), key=score.__getitem__) == label
                for place, (label, score) in enumerate(zip(labels, scores, strict=True), 1)
                if label != IGNORED
            }
            total += len(verdicts)
            good += sum(verdicts.values())
            beyond = [verdict for place, verdict in verdicts.items() if place > trained_length]
            far, far_good = far + len(beyond), far_good + sum(beyond)
            exact += all(verdicts.values())
            if verdicts:
                with_last += 1
                last += verdicts[max(verdicts)]
            first = min([first or math.inf, *(place for place, verdict in verdicts.items() if not verdict)])
            first = None if first == math.inf else first
    return {
        "sequences": sequences,
        "labels": total,
        "positions": good / total,
        "beyond": far_good / far if far else good / total,
        "last": last / with_last,
        "exact": exact / sequences,
        "mistakes": total - good,
        "first_mistake": first,
    }


def check_curve(task, model, entry):
    """The bins are whole, in order, fine at the beginning; each holds the share of its own positions."""
    length = entry["length"]
    verdicts = [[] for _ in range(length)]
    row = 0
    for tokens in model.asked:
        outputs = model.answer(tokens, torch.arange(row, row + len(tokens)).unsqueeze(1))
        row += len(tokens)
        for labels, answers in zip(task.truth(tokens).tolist(), outputs.argmax(-1).tolist(), strict=True):
            for place, (label, one) in enumerate(zip(labels, answers, strict=True)):
                if label != IGNORED:
                    verdicts[place].append(label == one)
    begin = 0
    for end, share in entry["curve"]:
        within = [verdict for place in verdicts[begin:end] for verdict in place]
        assert begin < end <= length
        assert share == sum(within) / len(within)
        begin = end
    assert not any(verdicts[begin:])
    assert len(entry["curve"]) <= 32


def random_third(rows, places):
    return (rows * 7 + places * 5 + rows * places) % 3 == 0


def late(rows, places):
    return (places >= 11) & (rows % 2 == 1)


def never(rows, places):
    return (rows < 0) & (places < 0)


TASKS = [ModularCounting(5), FlipFlop(0.5), ModularArithmetic(), LongAddition(), CycleNavigation()]


@pytest.mark.parametrize("length", [1, 2, 7, 33, 200])
@pytest.mark.parametrize("rule", [random_third, late, never])
@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_every_number_is_what_counting_by_hand_gives(task, rule, length):
    length = max(length, task.shortest)
    model = Scripted(wrong_at(task, rule))
    (entry,) = judge(model, task, Probe(length, 9), trained_length=6, seed=3)
    assert (entry["input"], entry["task"], entry["length"]) == ("random", task.name, length)
    assert entry.items() >= counted_by_hand(task, model, 6).items()
    check_curve(task, model, entry)
    json.dumps(entry, allow_nan=False)


@pytest.mark.parametrize("task", TASKS, ids=lambda task: task.name)
def test_an_exact_machine_is_right_everywhere(task):
    """Compiled, not trained; positions without a label play no part."""
    model = compile_model(task.automaton())
    probes = (Probe(21, 6), Probe(601, 3), Probe(201, 1, family="every"))
    entries = [entry for probe in probes for entry in judge(model, task, probe, trained_length=40, seed=0)]
    assert len(entries) == 2 + len(task.adversarial(201))
    for entry in entries:
        assert entry["labels"] > 0
        assert [entry[key] for key in ("positions", "beyond", "last", "exact")] == [1.0] * 4
        assert (entry["mistakes"], entry["first_mistake"]) == (0, None)
        assert entry["curve"] == [[entry["length"], 1.0]]


def test_known_mistakes_are_found_where_they_are():
    """Two sequences of ten, three mistakes: the 4th and 10th label of the second, the 7th of the first."""
    task = Parity()

    def rule(rows, places):
        return ((rows == 1) & ((places == 3) | (places == 9))) | ((rows == 0) & (places == 6))

    (entry,) = judge(Scripted(wrong_at(task, rule)), task, Probe(10, 2), trained_length=5, seed=0)
    expected = {
        "sequences": 2,
        "labels": 20,
        "positions": 17 / 20,
        "beyond": 8 / 10,
        "last": 1 / 2,
        "exact": 0.0,
        "mistakes": 3,
        "first_mistake": 4,
    }
    assert entry.items() >= expected.items()
    assert entry["curve"] == [[place, 0.5 if place in (4, 7, 10) else 1.0] for place in range(1, 11)]


def test_positions_without_a_label_are_not_asked():
    """write 1, read, ignore 0, read: two labels, and the answer elsewhere is nobody's business."""
    task = FlipFlop()
    tokens = torch.tensor([[1, 4, 2, 4]])
    model = Scripted(wrong_at(task, lambda rows, places: (rows >= 0) & (places == 3)))
    tally = judging._Classes(2)
    tally.add(task, tokens, model.answer(tokens, torch.tensor([[0]])))
    entry = tally.entry()
    assert (entry["labels"], entry["positions"], entry["beyond"], entry["mistakes"]) == (2, 0.5, 0.0, 1)
    assert (entry["last"], entry["first_mistake"], entry["exact"]) == (0.0, 4, 0.0)
    assert entry["curve"] == [[2, 1.0], [4, 0.0]]


def test_a_sequence_without_any_label_is_no_mistake():
    tally = judging._Classes(2)
    tokens = torch.tensor([[0, 2, 3]])
    tally.add(FlipFlop(), tokens, torch.zeros(1, 3, 2))
    entry = tally.entry()
    assert (entry["labels"], entry["mistakes"], entry["first_mistake"], entry["curve"]) == (0, 0, None, [])
    json.dumps(entry, allow_nan=False)


@pytest.mark.parametrize("task", [ModularCounting(5), FlipFlop(0.5)], ids=lambda task: task.name)
def test_batches_drawn_in_parts_count_as_one(monkeypatch, task):
    monkeypatch.setattr(judging, "_TOKENS_AT_ONCE", 100)
    model = Scripted(wrong_at(task, random_third))
    (entry,) = judge(model, task, Probe(30, 10), trained_length=12, seed=0)
    assert [len(tokens) for tokens in model.asked] == [3, 3, 3, 1]
    assert entry.items() >= counted_by_hand(task, model, 12).items()
    assert entry["sequences"] == 10
    check_curve(task, model, entry)
    model = Scripted(right(task))
    judge(model, task, Probe(1000, 2), trained_length=12, seed=0)  # one that is too long goes alone
    assert [len(tokens) for tokens in model.asked] == [1, 1]


def test_counts_beyond_what_float32_holds_are_exact():
    """A mistake among 2^24 labels and more must not be rounded away."""
    tally = judging._Classes(1)
    tally.add(Parity(), torch.tensor([[0, 1]]), torch.tensor([[[1.0, 0.0], [0.0, 1.0]]]))
    tally.labelled = tally.labelled * 2**25 + 1  # as if as many had been added
    tally.right = tally.right * 2**25 + torch.tensor([1, 0])
    entry = tally.entry()
    assert (entry["labels"], entry["mistakes"], entry["first_mistake"]) == (2**26 + 2, 1, 2)
    assert entry["positions"] == (2**26 + 1) / (2**26 + 2) < 1
    assert entry["curve"][0][1] == 1.0 > entry["curve"][1][1]


def test_inputs_are_named_and_are_the_tasks_own():
    task = Parity()
    for probe, name in (
        (Probe(20, 50), "random"),
        (Probe(20, 50, bias=0.9), "p = 0.9"),
        (Probe(20, 5, 0.1), "p = 0.1"),
    ):
        model = Scripted(right(task))
        (entry,) = judge(model, task, probe, trained_length=4, seed=0)
        assert entry["input"] == name
        if probe.sequences == 50:
            assert abs(torch.cat(model.asked).double().mean() - (probe.bias or 0.5)) < 0.05
    kinds = task.adversarial(20)
    model = Scripted(right(task))
    entries = judge(model, task, Probe(20, 99, family="every"), trained_length=4, seed=0)
    assert [entry["input"] for entry in entries] == list(kinds)
    assert [entry["sequences"] for entry in entries] == [1] * len(kinds)
    assert all(torch.equal(a, b) for a, b in zip(model.asked, kinds.values(), strict=True))
    (entry,) = judge(Scripted(right(task)), task, Probe(20, 1, family="all ones"), trained_length=4, seed=0)
    assert entry["input"] == "all ones"
    with pytest.raises(ValueError, match=r"family must be one of all ones, .* or every; got 'all twos'"):
        judge(Scripted(right(task)), task, Probe(20, 1, family="all twos"), trained_length=4, seed=0)


def test_another_task_than_the_trained_one_is_asked():
    sparse = FlipFlop(0.9)
    model = Scripted(right(sparse))
    (entry,) = judge(model, FlipFlop(0.1), Probe(100, 20, task=sparse), trained_length=4, seed=0)
    assert entry["task"] == sparse.name
    ignored = ((model.asked[0] == 2) | (model.asked[0] == 3)).double().mean()
    assert 0.85 < ignored < 0.95


def test_equal_seeds_ask_the_same_and_others_something_else():
    def tokens(seed):
        model = Scripted(right(Parity()))
        judge(model, Parity(), Probe(30, 5), trained_length=4, seed=seed)
        return model.asked[0]

    assert torch.equal(tokens(0), tokens(0))
    assert not torch.equal(tokens(0), tokens(1))
    for seed in range(5):  # nor what is trained on
        batch = Parity().sample(5, 30, torch.Generator().manual_seed(seed))
        assert not any(torch.equal(tokens(other), batch) for other in range(5))


def test_a_model_is_judged_as_it_is_used():
    model = Scripted(right(Parity())).train()
    judge(model, Parity(), Probe(3, 1), trained_length=4, seed=0)  # the model itself asserts both
    assert not model.training
    assert torch.is_grad_enabled()


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_no_numbers_are_no_right_answers_and_the_record_stays_finite(value):
    task = ModularCounting(5)

    def everywhere(tokens, _):
        return torch.full((*tokens.shape, 5), value)

    (entry,) = judge(Scripted(everywhere), task, Probe(20, 5), trained_length=4, seed=0)
    json.dumps(entry, allow_nan=False)
    if math.isnan(value):  # argmax would call it label 0
        assert entry["mistakes"] == entry["labels"] == 100
        assert (entry["positions"], entry["exact"], entry["first_mistake"]) == (0.0, 0.0, 1)

    def on_the_right_label(tokens, rows):
        outputs = right(task)(tokens, rows)
        return torch.where(outputs == 1, value, outputs)

    (entry,) = judge(Scripted(on_the_right_label), task, Probe(20, 5), trained_length=4, seed=0)
    assert entry["positions"] == (1.0 if value == math.inf else 0.0)


def exact_values(task, tokens):
    """Labels as fractions, from the definition."""
    rows = []
    for digits in tokens.tolist():
        row, value = [], 0
        for time, digit in enumerate(digits):
            value = value * task.base + digit if task.most_significant_first else value + digit * task.base**time
            row.append(Fraction(value, task.base ** (time + 1)) if task.normalised else Fraction(value))
        rows.append(row)
    return rows


@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("first", [True, False])
@pytest.mark.parametrize("base", [2, 3])
@pytest.mark.parametrize("length", [1, 5, 20])
def test_errors_of_numbers_are_those_of_the_formulas(base, first, normalised, length):
    """Every answer is off by a known amount, in units of the place: all numbers follow."""
    task = BaseValue(base, first, normalised)

    def error(row, time):
        return Fraction((row * 3 + time * 5) % 7 - 3, 16) * (1 if normalised else base ** (time + 1))

    def answer(tokens, rows):
        values = [
            [float(value + error(row, time)) for time, value in enumerate(line)]
            for row, line in zip(rows.flatten().tolist(), exact_values(task, tokens), strict=True)
        ]
        return torch.tensor(values, dtype=torch.float64).unsqueeze(-1)

    model = Scripted(answer)
    (entry,) = judge(model, task, Probe(length, 6), trained_length=4, seed=0)
    truths = exact_values(task, torch.cat(model.asked))
    squares = [
        [(error(row, time) / (1 if normalised else base ** (time + 1))) ** 2 for row in range(6)]
        for time in range(length)
    ]
    means = [sum(each) / 6 for each in squares]
    relative = [abs(error(row, length - 1) / line[-1]) for row, line in enumerate(truths) if line[-1]]
    assert entry["sequences"] == 6
    assert entry["mse"] == pytest.approx(float(means[-1]), rel=1e-9, abs=1e-15)
    assert entry["mse_every_position"] == pytest.approx(float(sum(means) / length), rel=1e-9)
    assert entry["relative_error"] == pytest.approx(float(sum(relative) / len(relative)), rel=1e-9)
    begin = 0
    for end, value in entry["curve"]:
        assert value == pytest.approx(float(sum(means[begin:end]) / (end - begin)), rel=1e-9, abs=1e-15)
        begin = end
    assert begin == length


def test_numbers_in_parts_count_as_one(monkeypatch):
    task = BaseValue()
    monkeypatch.setattr(judging, "_TOKENS_AT_ONCE", 20)

    def answer(tokens, rows):
        return (task.truth(tokens) + rows).unsqueeze(-1)

    model = Scripted(answer)
    (entry,) = judge(model, task, Probe(8, 5), trained_length=4, seed=0)
    assert [len(tokens) for tokens in model.asked] == [2, 2, 1]
    assert entry["sequences"] == 5
    assert entry["mse"] == pytest.approx((0 + 1 + 4 + 9 + 16) / 5)
    lasts = task.truth(torch.cat(model.asked))[:, -1]
    assert entry["relative_error"] == pytest.approx(float((torch.arange(5) / lasts).mean()))


def test_a_value_of_zero_has_no_relative_error():
    task = BaseValue()
    model = Scripted(lambda tokens, _: torch.full((*tokens.shape, 1), 0.5))
    entries = {
        entry["input"]: entry for entry in judge(model, task, Probe(6, 1, family="every"), trained_length=4, seed=0)
    }
    assert entries["all zeros"]["relative_error"] is None
    assert entries["all zeros"]["mse"] == 0.25
    assert entries["largest, then zeros"]["relative_error"] == 0.0


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e200])
def test_numbers_that_overflow_leave_a_finite_record(value):
    model = Scripted(lambda tokens, _: torch.full((*tokens.shape, 1), value, dtype=torch.float64))
    (entry,) = judge(model, BaseValue(normalised=False), Probe(6, 2), trained_length=4, seed=0)
    json.dumps(entry, allow_nan=False)
    assert entry["mse"] == entry["mse_every_position"] == 1e308
    assert all(share == 1e308 for _, share in entry["curve"])


def test_values_too_large_for_their_labels_leave_a_finite_record():
    """2^1100 is no float64, so the label itself overflows."""
    task = BaseValue(normalised=False)
    model = Scripted(lambda tokens, _: task.truth(tokens).unsqueeze(-1))
    (entry,) = judge(model, task, Probe(1100, 2), trained_length=4, seed=0)
    json.dumps(entry, allow_nan=False)
    assert entry["mse"] == 1e308
    assert entry["curve"][0][1] == 0.0


def test_the_bins_cover_every_length():
    for length in (*range(1, 200), 1000, 9999, 10_000, 99_999, 100_000):
        bins = list(judging._bins(length))
        assert bins[0][0] == 0
        assert bins[-1][1] == length
        assert all(before[1] == after[0] < after[1] for before, after in itertools.pairwise(bins))
        assert len(bins) <= 32
