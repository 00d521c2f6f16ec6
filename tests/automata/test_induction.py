"""Machines from labelled words: exact where the data say so, and no claim where they do not."""

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from transductor.automata import IGNORED, MooreMachine, learned_from_labels
from transductor.automata.induction.merging import _log_rising, merged_machine, shaped_class
from transductor.automata.induction.right_words import by_letters, rival_by_letters
from transductor.automata.induction.sample import sample_of
from transductor.automata.induction.search import Search, changed_by_lot, completed, minimal, numbered
from transductor.automata.induction.support import hypergeometric_tail, longest_tenth

PARITY = MooreMachine([[0, 1], [1, 0]], [0, 1])
TOMITA_4 = MooreMachine([[1, 0], [2, 0], [3, 0], [3, 3]], [1, 1, 1, 0])  # no three zeros in a row
MOD_3 = MooreMachine([[0, 1, 2], [1, 2, 0], [2, 0, 1]], [0, 1, 2])
RESET = MooreMachine([[0, 1, 0], [1, 2, 0], [2, 3, 0], [3, 0, 0]], [0, 0, 1, 0])


def states_of(machine, word):
    states = [machine.start]
    for letter in word:
        states.append(int(machine.transitions[states[-1], letter]))
    return states


def drawn(machine, count, seed, noise=0.0, longest=20, tagged=False):
    random = np.random.default_rng(seed)
    classes = int(machine.outputs.max()) + 1
    words = [random.integers(0, machine.letters, random.integers(0, longest + 1)).tolist() for _ in range(count)]

    def shown(state):
        label = int(machine.outputs[state])
        return int(label + random.integers(1, classes)) % classes if random.random() < noise else label

    if tagged:
        return words, [[shown(state) for state in states_of(machine, word)[1:]] for word in words]
    return words, [shown(states_of(machine, word)[-1]) for word in words]


def truth(machine, word):
    return int(machine.outputs[states_of(machine, word)[-1]])


def same(one, other):
    return one.outputs[one.start] == other.outputs[other.start] and one.separating_word(other) is None


@pytest.mark.parametrize("noise", [0.0, 0.1])
@pytest.mark.parametrize("machine", [PARITY, TOMITA_4, MOD_3, RESET], ids=["parity", "tomita 4", "mod 3", "reset"])
def test_the_exact_machine_is_learned_and_supported(machine, noise):
    words, labels = drawn(machine, 1500, seed=5, noise=noise)
    learned = learned_from_labels(words, labels, letters=machine.letters, classes=int(machine.outputs.max()) + 1)
    assert same(learned.machine, machine)
    assert learned.machine.states == machine.states  # these are minimal
    assert learned.machine.start == 0
    assert learned.supported, learned.reasons
    assert learned.bits < learned.bits_alone
    wrong = sum(truth(machine, word) != label for word, label in zip(words, labels, strict=True))
    assert learned.errors == wrong
    assert learned.noise == wrong / learned.labels


@pytest.mark.parametrize("noise", [0.0, 0.05])
def test_labels_for_every_letter(noise):
    words, labels = drawn(RESET, 300, seed=2, noise=noise, tagged=True)
    labels[0] = [IGNORED] * len(words[0])
    learned = learned_from_labels(words, labels, letters=3, classes=2)
    assert RESET.separating_word(learned.machine) is None  # the empty word has no label here
    assert learned.supported, learned.reasons
    assert learned.labels == sum(map(len, labels[1:]))


def test_labels_without_a_pattern_support_nothing():
    random = np.random.default_rng(0)
    words, _ = drawn(PARITY, 1000, seed=1)
    learned = learned_from_labels(words, random.integers(0, 2, len(words)).tolist(), letters=2, classes=2)
    assert not learned.supported
    assert learned.machine.states == 1
    assert "frequencies" in learned.reasons[0]


def test_as_many_classes_as_words_have_no_pattern():
    words, _ = drawn(PARITY, 100, seed=1)
    learned = learned_from_labels(words, list(range(100)), letters=2, classes=100)
    assert not learned.supported
    assert "better than their frequencies do (0 bits" in learned.reasons[0]


def test_a_counter_is_not_claimed_to_be_finite():
    random = np.random.default_rng(3)
    words = [random.integers(0, 2, random.integers(0, 31)).tolist() for _ in range(1500)]
    learned = learned_from_labels(words, [int(2 * sum(word) > len(word)) for word in words], letters=2, classes=2)
    assert not learned.supported


def test_one_class_supports_nothing():
    learned = learned_from_labels([[0], [1], []], [1, 1, 1], letters=2, classes=2)
    assert not learned.supported
    assert learned.machine.states == 1
    assert learned.machine.outputs.tolist() == [1]
    assert "same class" in learned.reasons[0]


def test_the_empty_word_and_single_letters():
    learned = learned_from_labels([[], [], [0], [0, 0]], [1, 1, 0, 0], letters=1, classes=2, method="rpni")
    assert learned.machine.outputs.tolist() == [1, 0]
    assert not learned.supported  # four words cannot be held out


@pytest.mark.parametrize("method", ["edsm", "rpni"])
@pytest.mark.parametrize("machine", [PARITY, TOMITA_4, RESET], ids=["parity", "tomita 4", "reset"])
def test_the_classical_algorithms_give_the_language_that_aalpy_gives(machine, method):
    algorithms = pytest.importorskip("aalpy.learning_algs")
    words, labels = drawn(machine, 1500, seed=4, longest=12)
    ours = learned_from_labels(words, labels, letters=machine.letters, classes=2, method=method)
    data = [(tuple(word), bool(label)) for word, label in zip(words, labels, strict=True)]
    run = {"rpni": algorithms.run_RPNI, "edsm": algorithms.run_EDSM}[method]
    theirs = run(data, automaton_type="dfa", print_info=False)
    assert same(ours.machine, machine)
    assert ours.errors == 0
    for word in words:
        if word:
            assert theirs.execute_sequence(theirs.initial_state, word)[-1] == truth(machine, word)


def test_wrong_labels_make_the_classical_algorithms_stop_at_the_limit():
    words, labels = drawn(PARITY, 600, seed=1, noise=0.1)
    learned = learned_from_labels(words, labels, letters=2, classes=2, method="rpni", max_states=10)
    assert not learned.supported
    assert "10 states" in learned.reasons[0]
    assert "description_length" in learned.reasons[0]


def test_time_is_limited_and_progress_is_reported():
    reports = []
    words, labels = drawn(RESET, 400, seed=7, noise=0.1)
    learned = learned_from_labels(
        words, labels, letters=3, classes=2, seconds=1e-9, on_progress=lambda share, text: reports.append((share, text))
    )
    assert not learned.supported
    learned_from_labels(
        words, labels, letters=3, classes=2, on_progress=lambda share, text: reports.append((share, text))
    )
    shares = [share for share, _ in reports]
    assert all(0 <= share <= 1 for share in shares)
    assert shares[-1] == 1
    assert all(text for _, text in reports)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"words": [[0], [2]]}, "letters from 0 to 1; word 1 has 2"),
        ({"labels": [0, 5]}, "classes from 0 to 1, or -100 for none; word 1 has 5"),
        ({"labels": [0]}, "labels must be as many as words; got 1 labels and 2 words"),
        ({"words": [], "labels": []}, "words must not be empty"),
        ({"labels": [[0], [0, 1]]}, "word 1 has 1 letters and 2 labels"),
        ({"labels": [IGNORED, IGNORED]}, "labels must not all be -100"),
        ({"letters": 0}, "letters must be a positive integer; got 0"),
        ({"classes": 0}, "classes must be a positive integer; got 0"),
        ({"method": "magic"}, "method must be one of 'description_length', 'edsm', 'rpni'; got 'magic'"),
        ({"seconds": 0}, "seconds must be positive"),
        ({"max_states": 0}, "max_states must be at least 1; got 0"),
    ],
)
def test_what_is_refused_is_named(arguments, message):
    given = {"words": [[0], [1]], "labels": [0, 1], "letters": 2, "classes": 2} | arguments
    with pytest.raises(ValueError, match=message):
        learned_from_labels(given.pop("words"), given.pop("labels"), **given)


def test_a_change_that_is_kept_has_the_bits_of_a_complete_run():
    """What the search believes about a changed arc, from the words that walk it, is what reading all words gives."""
    words, labels = drawn(RESET, 300, seed=3, noise=0.1)
    search = Search(sample_of(words, labels, 3, 2), max_states=20)
    candidate = search.measured(np.array([[1, 2, 0], [1, 1, 2], [0, 2, 1]], dtype=np.int32))
    present = search._present(candidate)
    loops = sys.modules["transductor.automata.induction.machine_loops"]
    for state, letter in [(0, 0), (1, 2), (2, 1)]:
        believed = loops.redirected(search.words, present, state, letter)
        for target in range(3):
            table = candidate.table.copy()
            table[state, letter] = target
            after = search.measured(table)
            if after.states == 3 and (after.usage > 0).all():
                assert believed[target] == pytest.approx(after.bits, abs=1e-9)
    bits, table = loops.split(search.words, present, 4)
    assert search.measured(table).bits == pytest.approx(bits, abs=1e-9)


def test_more_targets_than_are_followed_side_by_side():
    """A machine of twenty states: two rounds of targets, each believed as reading all words finds it."""
    words, labels = drawn(RESET, 400, seed=3, noise=0.1)
    search = Search(sample_of(words, labels, 3, 2), max_states=30)
    candidate = search.measured(np.random.default_rng(0).integers(0, 20, (20, 3)).astype(np.int32))
    loops = sys.modules["transductor.automata.induction.machine_loops"]
    assert candidate.states > loops.LANES
    believed = loops.redirected(search.words, search._present(candidate), 0, 0)
    for target in range(candidate.states):
        table = candidate.table.copy()
        table[0, 0] = target
        _, tally, _ = search._run(table, candidate.start)
        used = int((candidate.usage > 0).sum())
        bits, _ = loops.description(tally, table, candidate.start, candidate.states, used, 0.05)
        assert believed[target] == pytest.approx(bits, abs=1e-9)


def test_a_machine_is_known_again_with_other_numbers():
    words, labels = drawn(RESET, 300, seed=3)
    search = Search(sample_of(words, labels, 3, 2), max_states=20)
    table, number = np.array([[1, 2, 0], [1, 1, 2], [0, 2, 1]]), np.array([2, 0, 1])
    renumbered = np.empty_like(table)
    renumbered[number] = number[table]
    assert numbered(search.measured(renumbered, 2)) == numbered(search.measured(table, 0))
    assert numbered(search.measured(renumbered, 1)) != numbered(search.measured(table, 0))


def test_evidence_from_letters_counts_as_far_as_words_go():
    """A state that words pass often has more letters after it than there are words."""
    assert _log_rising(0.5, 3) == pytest.approx([0, np.log(0.5), np.log(0.75), np.log(1.875)])
    words, labels = drawn(RESET, 50, seed=3, longest=40)
    sample = sample_of(words, labels, 3, 2)
    tables = [merged_machine(sample, way="bayes", noise=0.08, shape=1.0, max_states=40) for _ in range(3)]
    assert all(table is not None and (table == tables[0]).all() for table in tables)


def test_arcs_that_no_word_walks_lead_to_the_sink():
    table = np.array([[1, 0], [1, 1], [0, 2]], dtype=np.int32)
    usage = np.array([[5, 0], [3, 3], [1, 0]])
    assert completed(table, usage).tolist() == [[1, 1], [1, 1], [0, 1]]
    usage = np.array([[5, 0], [3, 3], [1, 1]])
    assert completed(table, np.where(table == 1, 2, usage))[2].tolist() == [0, 2]


def test_shape_is_read_from_the_class_that_is_least_like_random_letters():
    random = np.random.default_rng(0)
    words = [[0, 1] * 5 if place % 2 else random.integers(0, 2, 10).tolist() for place in range(40)]
    assert shaped_class(sample_of(words, [place % 2 for place in range(40)], 2, 2)) == 1


def test_the_longest_tenth_is_held_out():
    words = [[0] * length for length in range(20)]
    held_out = longest_tenth(sample_of(words, [0] * 20, 1, 2), seed=0)
    assert np.flatnonzero(held_out).tolist() == [18, 19]


def test_chances_of_a_lot():
    assert hypergeometric_tail(0, 3, 4, 10) == 1
    assert hypergeometric_tail(2, 2, 5, 10) == pytest.approx(2 / 9)


PLAIN = """
import sys
sys.path.insert(0, sys.argv[1])
from tests.automata.test_induction import RESET, drawn
from transductor.automata import learned_from_labels
words, labels = drawn(RESET, 60, seed=9, noise=0.05, longest=8)
learned = learned_from_labels(words, labels, letters=3, classes=2)
print(learned.machine.transitions.tolist(), learned.machine.outputs.tolist(), learned.errors, round(learned.bits, 6))
"""


def test_without_numba_the_same_machine_is_learned():
    root = Path(__file__).parents[2]
    command = [sys.executable, "-c", PLAIN, str(root)]
    plain, fast = (
        subprocess.run(command, env=os.environ | extra, capture_output=True, text=True, check=True).stdout
        for extra in ({"NUMBA_DISABLE_JIT": "1"}, {})
    )
    assert plain == fast
    assert plain


def test_many_letters_that_behave_alike_are_found_in_groups():
    """Twenty-four letters do one of three things each; merging states alone has nothing to go by."""
    behaviours = np.random.default_rng(3).integers(0, 3, 24)
    machine = MooreMachine(np.array([[1, 0, 0], [2, 1, 0], [0, 2, 0]])[:, behaviours], [0, 1, 1])
    words, labels = drawn(machine, 2500, seed=3)
    answer = learned_from_labels(words, labels, letters=24, classes=2)
    assert same(answer.machine, machine)
    assert answer.supported, answer.reasons


def test_changes_by_lot_are_machines_and_what_is_better_is_kept(monkeypatch):
    words, labels = drawn(MOD_3, 300, seed=4, longest=14)
    search = Search(sample_of(words, labels, 3, 3), max_states=20)
    exact = search.measured(MOD_3.transitions.astype(np.int32))
    wrong = exact.table.copy()
    wrong[1, 1], wrong[2, 0] = 0, 1
    caught = search.measured(wrong)
    for seed in range(20):
        table, start = changed_by_lot(caught, np.random.default_rng(seed), 20)
        assert 0 <= table.min() <= table.max() < len(table)
        assert 0 <= start < len(table)
    monkeypatch.setattr(search, "improved", lambda candidate: candidate)  # what the lot alone does
    shaken = [search.shaken(caught, np.random.default_rng(seed)).bits for seed in range(10)]
    assert max(shaken) <= caught.bits
    assert min(shaken) < caught.bits - 1


def test_a_search_may_begin_with_machines_from_elsewhere():
    words, labels = drawn(RESET, 2000, 0)
    table = RESET.transitions.copy()
    table[0, 1] = 2
    nearly = MooreMachine(table, np.zeros(4, dtype=int))
    assert nearly.minimised().states == 1  # what it answers does not matter
    learned = learned_from_labels(words, labels, letters=3, classes=2, begin_with=[nearly])
    assert learned.supported
    assert learned.machine.separating_word(RESET) is None
    assert learned.bits == learned_from_labels(words, labels, letters=3, classes=2).bits
    for wrong in (MooreMachine(np.zeros((1, 2), dtype=int), np.zeros(1, dtype=int)), nearly):
        with pytest.raises(ValueError, match="begin_with must be machines over 3 letters, of at most 2 states"):
            learned_from_labels(words, labels, letters=3, classes=2, begin_with=[wrong], max_states=2)


def calculated(state, letter):
    """Digits 0 to 2 and the operators +, − and × in turn, from left to right; the value is counted modulo 3."""
    kind, value = state
    if kind in ("", "+", "-", "*") and letter < 3:
        result = {"": letter, "+": value + letter, "-": value - letter, "*": value * letter}[kind]
        return "number", result % 3
    return ("+-*"[letter - 3], value) if kind == "number" and letter >= 3 else ("wrong", 0)


ARITHMETIC = MooreMachine.explored(("", 0), 6, calculated, lambda state: int(state == ("number", 0))).minimised()
# Digits and operators in turn, with two exceptions: right but for a few words.
SIX_STATES = [
    [1, 2, 2, 3, 3, 3],
    [3, 3, 3, 0, 0, 4],
    [3, 3, 3, 4, 4, 0],
    [3] * 6,
    [5, 5, 5, 3, 3, 3],
    [3, 3, 3, 4, 4, 4],
]


def expressions(count, seed):
    """Half of the words have the value 0; of the others, few are expressions too; 5 % of labels are wrong."""
    random = np.random.default_rng(seed)
    words, labels = [], []
    while len(words) < count:
        word = random.integers(0, 3, 2 * random.integers(0, 7) + 1)
        word[1::2] += 3
        wanted = len(words) % 2
        if wanted == 0 and len(words) % 80:
            word[random.integers(len(word))] = random.integers(0, 6)
        label = truth(ARITHMETIC, word)
        well_formed = bool((word[::2] < 3).all() and (word[1::2] > 2).all())
        if label == wanted and (wanted or well_formed == (len(words) % 80 == 0)):
            words.append(word.tolist())
            labels.append(label ^ int(random.random() < 0.05))
    return sample_of(words, labels, 6, 2)


def test_the_letters_of_right_words_tell_what_few_labels_do():
    """On no seed is the machine worse afterwards; on several it is the exact one (now on four of these seven)."""
    exact_ones = 0
    for seed in range(7):
        sample = expressions(4000, seed)
        search = Search(sample, max_states=200)
        six = search.improved(search.measured(np.array(SIX_STATES, dtype=np.int32)))
        assert six.states < 11
        exact = search.measured(ARITHMETIC.transitions.astype(np.int32), ARITHMETIC.start)
        assert exact.bits < six.bits - 50
        after = by_letters(sample, search, six)
        assert after.bits <= six.bits
        exact_ones += same(minimal(after), minimal(exact))
        assert by_letters(sample, search, exact) is exact
    assert exact_ones >= 3


def test_a_machine_that_the_letters_speak_against_is_not_claimed():
    sample = expressions(4000, 1)
    search = Search(sample, max_states=200)
    six = search.improved(search.measured(np.array(SIX_STATES, dtype=np.int32)))
    exact = search.measured(ARITHMETIC.transitions.astype(np.int32), ARITHMETIC.start)
    rival = rival_by_letters(sample, six, lambda: True)
    assert rival is not None
    assert rival.states > six.states
    assert rival_by_letters(sample, exact, lambda: True) is None


def test_a_split_that_pays_only_with_another_is_found():
    """Two states stand for four: no single change shortens the description, and two splits do."""
    truth_of = MooreMachine([[1, 2], [3, 4], [4, 3], [0, 0], [3, 4]], [0, 0, 0, 1, 0]).minimised()
    words, labels = drawn(truth_of, 400, 3, longest=12, tagged=True)
    search = Search(sample_of(words, labels, 2, 2), max_states=20)
    exact = search.measured(truth_of.transitions.astype(np.int32))
    one = search.measured(np.zeros((1, 2), dtype=np.int32))
    stuck = search.improved(one)
    assert stuck.states < exact.states
    grown = search.grown(stuck)
    assert grown is not None
    assert grown.bits < stuck.bits


@pytest.mark.parametrize(("count", "noise", "most"), [(300, 0.0, 60), (300, 0.05, 40), (150, 0.2, 60)])
def test_edsm_remembers_only_what_still_holds(count, noise, most):
    """The same machine as if every pair were tried again before every decision."""
    for machine, seed in ((RESET, 0), (TOMITA_4, 1), (MOD_3, 2)):
        words, labels = drawn(machine, count, seed, noise=noise, longest=10)
        sample = sample_of(words, labels, machine.letters, 3)
        table = merged_machine(sample, way="edsm", max_states=most)
        slowly = merged_with_fresh_trials(sample, most)
        assert (table is None) == (slowly is None)
        assert table is None or (table == slowly).all()


def merged_with_fresh_trials(sample, most):
    """EDSM as it is described: nothing is remembered."""
    loops = sys.modules["transductor.automata.induction.tree_loops"]
    trees = sys.modules["transductor.automata.induction.prefix_tree"]
    tree = trees.tree_of(sample.text, sample.offsets, sample.marks, sample.letters, sample.classes, -1)
    evidence = loops.Evidence(np.log(0.95), np.log(0.05), 0.0, 1.0, np.zeros(1), np.zeros(1))
    red, reds, left = np.zeros(most + 1, dtype=np.int64), 1, 1
    while left > 0:
        room = (reds + 1) * sample.letters, reds + 1
        fringe = loops.Fringe(np.full(room, loops.UNKNOWN, np.int32), np.zeros(room, np.int64))
        reds, left = loops.merged(tree, evidence, loops.EVIDENCE, most, 1, red, reds, fringe)
    if left < 0:
        return None
    number = np.full(len(tree.child), -1, dtype=np.int32)
    number[red[:reds]] = np.arange(reds)
    rows = tree.child[red[:reds]]
    return np.where(rows < 0, -1, number[rows])
