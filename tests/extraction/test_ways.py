"""The three ways to a machine: through the states, without spare dimensions, by questions; and words of any length."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.extraction.near_machines import clock, dense_readout, noisy_readout
from transductor.automata import IGNORED, MooreMachine, TokenAlphabet, regex
from transductor.extraction import NoMachineNearby, extract, extract_from_labels, harden
from transductor.extraction.asking import answers_of, asked, determined
from transductor.extraction.observable_distance import observed
from transductor.extraction.probing import LabelJudge, Words, words_of_tokens
from transductor.extraction.questions import description_bits, hypotheses
from transductor.extraction.truncation import truncated

NAMES = ("<start>", "<end>", "<unknown>", "a", "b")
ALPHABET = TokenAlphabet.of_names(NAMES)


def of_file(machine, *, noise=1e-3, seed=0):
    """A noisy readout that reads <start> first and does anything on tokens that never occur."""
    generator = torch.Generator().manual_seed(seed)
    states = machine.states + 1
    table = np.full((states, 5), states - 1)
    table[:-1, 3:] = machine.transitions
    table[-1] = machine.start
    model = noisy_readout(MooreMachine(table, np.append(machine.outputs, 0), states - 1), 2, noise=noise, seed=seed)
    with torch.no_grad():
        raw = model.rational_head.transitions.get_parameter("source.raw").view(5, -1)
        raw[1:3] = torch.randn(raw[1:3].shape, generator=generator, dtype=raw.dtype)
    return model


def sample(machine, count=400, seed=0):
    """Words as tokens: half of them random, half along the machine's accepting paths."""
    generator, rows = np.random.default_rng(seed), []
    for number in range(count):
        word = generator.integers(0, 2, generator.integers(0, 20)).tolist()
        if number % 2:
            word = [0, 1] * int(generator.integers(0, 9))
        rows.append([0, *(3 + letter for letter in word)])
    return rows


def test_reserved_tokens_are_never_walked():
    machine = MooreMachine.from_dfa(regex("(ab)*", ["a", "b"]))
    model = of_file(machine)
    with pytest.raises(NoMachineNearby, match="What to try: give words like those it was trained on"):
        extract(model, max_states=300)
    extraction = extract(model, alphabet=ALPHABET, examples=sample(machine))
    assert (extraction.way, extraction.machine.states, extraction.sink) == ("walk", 3, None)
    assert ALPHABET.lifted(extraction.machine).separating_word(ALPHABET.lifted(machine)) is None
    hard = harden(model, extraction=extraction)
    assert hard.model.rational_head.state_dim == 3
    with pytest.raises(ValueError, match="alphabet must be that of the extraction"):
        harden(model, extraction=extraction, alphabet=TokenAlphabet.all_tokens(5))
    with pytest.raises(ValueError, match="alphabet must be one of 5 tokens"):
        extract(model, alphabet=TokenAlphabet.all_tokens(4))


def test_a_sorted_file_is_judged_by_all_of_it():
    """The first words all have one label; a machine of one state would keep it."""
    machine = MooreMachine.from_dfa(regex("(ab)*", ["a", "b"]))
    rows = sample(machine, 900)
    rejected = [row for row in rows if row[1:] != [3, 4] * (len(row) // 2)]
    accepted = [row for row in rows if row not in rejected]
    assert len(rejected) > 256
    for examples in (rejected + accepted, accepted + rejected):
        extraction = extract(of_file(machine), alphabet=ALPHABET, examples=examples)
        assert extraction.machine.states == 3
        assert harden(of_file(machine), extraction=extraction, examples=examples).agreement == 1.0


def test_a_machine_that_accepts_nothing_is_not_taken_for_a_sparse_language():
    machine = MooreMachine.from_dfa(regex("(ab)*", ["a", "b"]))
    for alphabet, model in ((ALPHABET, of_file(machine)), (None, noisy_readout(machine, 2))):
        extraction = extract(model, alphabet=alphabet)  # judged by random words, of which hardly one is accepted
        assert extraction.machine.states == 3


def test_spare_dimensions_are_taken_away():
    """Three states in a corner of nine dimensions, where the others turn by an irrational angle and are hardly read."""
    machine = MooreMachine.from_dfa(regex("(b|ab*ab*a)*", ["a", "b"]))
    small = observed(noisy_readout(machine, 2, noise=0.0), None)
    angles = torch.linspace(0.5, 2.5, 3, dtype=torch.float64)
    spin = torch.block_diag(
        *(torch.stack([torch.stack([a.cos(), -a.sin()]), torch.stack([a.sin(), a.cos()])]) for a in angles)
    )
    table = torch.stack([torch.block_diag(matrix, spin) for matrix in small.table])
    read = torch.cat([small.rows, 0.02 * torch.ones(2, 6, dtype=torch.float64) * torch.tensor([[1.0], [-1.0]])], 1)
    start = torch.cat([small.start, torch.ones(6, dtype=torch.float64)])
    head = observed(dense_readout(table, start, read), None)
    smaller = next(iter(truncated(head, None)))
    assert len(smaller.head.start) == 3
    words = Words.random(2, 20, 12).letters
    full, reduced = head.start.expand(20, -1), smaller.head.start.expand(20, -1)
    for letter in words.T:
        full = torch.einsum("nij,nj->ni", head.table[letter], full)
        reduced = torch.einsum("nij,nj->ni", smaller.head.table[letter], reduced)
    assert (full @ head.rows.T - reduced @ smaller.head.rows.T).abs().max() < 0.2


def test_asking_gives_the_machine_with_the_shortest_description():
    machine = MooreMachine.from_dfa(regex("(ab|ba)*", ["a", "b"]))
    model = of_file(machine)
    words = words_of_tokens(sample(machine), ALPHABET)
    answers = asked(model, observed(model, words, ALPHABET), words, ALPHABET, 100)
    assert ALPHABET.lifted(answers.machine).separating_word(ALPHABET.lifted(machine)) is None
    assert answers.agreement == 1.0
    assert answers.supported
    assert answers.means.shape == answers.firsts.shape == (machine.states, model.rational_head.state_dim)
    # The mean of states with one label has that label.
    logits = answers.means @ model.readout.weight.detach().T + model.readout.bias.detach()
    assert logits.argmax(-1).tolist() == answers.machine.outputs.tolist()


def test_a_head_that_turns_too_far_is_asked_where_it_is_right():
    """No walk ends well, but on words of at most twenty letters the clock is right, and its machine comes back."""
    wrong = clock(7, 0.03)
    words = [[1] * length for length in range(1, 15)] * 20
    generator = torch.Generator().manual_seed(0)
    words += torch.randint(0, 2, (300, 14), generator=generator).tolist()
    extraction = extract(wrong, examples=words, tolerances=(0.02, 0.005), max_states=100)
    assert extraction.way == "questions"
    assert extraction.machine.states == 7
    hard = harden(wrong, examples=words, extraction=extraction)
    ones = torch.ones(1, 700, dtype=torch.long)
    assert torch.equal(hard.model(ones).argmax(-1), (torch.arange(1, 701) % 7)[None])


def test_no_machine_has_more_states_than_the_words_support():
    """A clock that turns too far is very near one of many more hours; eight letters do not tell them apart."""
    words = [[1] * length for length in range(1, 9)] * 40
    words += torch.randint(0, 2, (300, 8), generator=torch.Generator().manual_seed(0)).tolist()
    wrong = clock(7, 0.05)
    assert extract(wrong).machine.states > 100
    extraction = extract(wrong, examples=words)
    assert (extraction.way, extraction.machine.states) == ("questions", 7)


def test_states_that_explain_no_label_are_told_from_those_that_do():
    machine = MooreMachine.from_dfa(regex("(ab)*", ["a", "b"]))
    judge = LabelJudge(of_file(machine), words_of_tokens(sample(machine), ALPHABET), ALPHABET)
    assert determined(machine, judge) == 1.0
    one_state = MooreMachine(np.zeros((1, 2), dtype=int), np.zeros(1, dtype=int))
    assert 0.4 < determined(one_state, judge) < 0.95


def test_questions_about_nothing_are_refused():
    torch.manual_seed(0)
    generator = torch.Generator().manual_seed(3)
    noise = dense_readout(
        *(torch.randn(shape, generator=generator, dtype=torch.float64) for shape in ((2, 6, 6), (6,), (4, 6)))
    )
    words = torch.randint(0, 2, (60, 12), generator=generator)
    with pytest.raises(NoMachineNearby, match="asked for its machine, it answers like one of"):
        extract(noise, examples=words, max_states=100)


def test_hypotheses_come_one_by_one_and_end_at_the_machine():
    machine = MooreMachine.from_dfa(regex("(aab|b)*", ["a", "b"]))
    plain = TokenAlphabet.all_tokens(2)
    answers = answers_of(machine.labels, plain)

    def counterexample(hypothesis):
        return hypothesis.separating_word(machine)

    sizes = [each.machine.states for each in hypotheses(2, answers, counterexample, max_states=50, max_rounds=50)]
    assert sizes == sorted(sizes)
    learned = [*hypotheses(2, answers, counterexample, max_states=50, max_rounds=50)][-1]
    assert learned.machine.separating_word(machine) is None
    assert [*hypotheses(2, answers, counterexample, max_states=1, max_rounds=50)] == []
    assert description_bits(machine, 0, 100) < description_bits(machine, 3, 100)


def test_words_of_unequal_length_are_read_with_care():
    words = words_of_tokens([[0, 3], [0], [0, 4, 4]], ALPHABET)
    assert words.lengths.tolist() == [1, 0, 2]
    assert words.inside.tolist() == [[True, False], [False, False], [True, True]]
    assert words.tokens(ALPHABET).tolist() == [[0, 3, 3], [0, 3, 3], [0, 4, 4]]
    assert words.positions(ALPHABET).tolist() == [[True, True, False], [True, False, False], [True, True, True]]
    for given, message in (([], "at least one"), ([[0]], "all of them are empty"), ([[3]], "begin with <start>")):
        with pytest.raises(ValueError, match=message):
            words_of_tokens(given, ALPHABET)


def test_learning_by_answers_reads_the_beginning_first():
    machine = MooreMachine.from_dfa(regex("(ab)*", ["a", "b"]))
    learned = extract_from_labels(of_file(machine), ALPHABET, checks=100, check_length=12)
    assert ALPHABET.lifted(learned.machine).separating_word(ALPHABET.lifted(machine)) is None
    assert learned.fit == 1.0
    assert IGNORED not in learned.machine.outputs
