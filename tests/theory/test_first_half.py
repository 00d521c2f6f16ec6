"""Statements 1 to 19, 31 and 32: each is confirmed, at other sizes too, and a changed construction is refused."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import numpy as np
import pytest
import torch

from transductor.automata import DFA, WeightedAutomaton, machine
from transductor.automata.barrington import CYCLE, Instruction, PermutationProgram
from transductor.automata.ben_or_cleve import Addition, ArithmeticProgram
from transductor.compilation import HardAttention
from transductor.theory import (
    STATEMENTS,
    capacity,
    cascades,
    circuits,
    expressivity,
    hierarchy,
    logic,
    representations,
)

# Sizes at which a statement takes a moment.
SMALL = {
    "positional_encodings_are_rational": {"frequencies": 2, "length": 20, "longest": 1000},
    "expressive_hierarchy": {"longest": 5, "depth": 50, "bits": 4, "block": 5, "deepest": 60},
    "exact_arithmetic_evaluation": {"bases": (2, 10), "longest": 3, "digits": 50},
    "representational_completeness_via_krohn_rhodes": {"random_machines": 1, "longest": 3, "length": 50},
    "logical_characterization_via_weighted_mso": {"machines": 0, "block": 5},
    "non_linear_irreducibility": {"dims": (3, 3)},
    "effective_capacity_increase": {"longest": 4},
    "vector_valued_rational_functions": {"longest": 3},
    "linear_representation": {"longest": 3},
    "maximality_under_linear_recurrence": {"longest": 3, "block": 4},
    "virtual_tensorization_via_attention": {"dims": (2, 3)},
    "circuit_upper_bound_for_transductors": {"times": (1, 5, 8)},
    "equivalence_to_linear_branching_programs": {"formulas": 20, "depth": 3, "pairs": 2},
    "circuit_lower_bound_for_transductors": {"longest": 4},
    "circuit_complexity_sandwich": {"longest": 5, "time": 32},
    "exact_modular_counting": {"moduli": (2, 5)},
    "the_parity_gap": {"rotations": 3},
}


def run(name, **arguments):
    return STATEMENTS[name].run(**{**SMALL.get(name, {}), **arguments})


def test_statements_are_listed_in_the_order_of_the_paper():
    numbers = [number for entry in STATEMENTS.values() for number in entry.numbers]
    assert numbers == sorted(numbers)
    assert {*range(1, 20), 31, 32} <= set(numbers)


OTHER = [
    ("cascade_reduction", {"dims": (2, 3, 1), "letters": 3, "longest": 2}),
    ("cascade_reduction", {"dims": (4,), "letters": 1}),
    ("cascaded_parameter_efficiency", {"dims": (1, 3), "letters": 3}),
    ("non_linear_irreducibility", {"dims": (2, 4), "seed": 1}),
    ("exact_modular_counting", {"moduli": (4, 9)}),
    ("effective_capacity_increase", {"longest": 1}),
    ("decomposition_characterization", {"dim": 2, "width": 4, "layers": 1, "seed": 1}),
    ("maximality_under_linear_recurrence", {"size": 3, "seed": 2}),
    ("virtual_tensorization_via_attention", {"dims": (5,), "inner": 3, "seed": 1}),
    ("circuit_upper_bound_for_transductors", {"times": (100,), "dim": 3}),
    ("vector_valued_rational_functions", {"dim": 4, "letters": 3}),
    ("linear_representation", {"dim": 2, "letters": 3}),
    ("fliess", {"dim": 1, "letters": 1, "block": 1}),
    ("vector_valued_rational_functions", {"dim": 8, "longest": 2}),
    ("vector_valued_rational_functions", {"dim": 2, "letters": 1}),
    ("decomposition_characterization", {"length": 1}),
    ("fliess", {"dim": 2, "letters": 3, "block": 6, "seed": 1}),
]


@pytest.mark.parametrize(("name", "arguments"), OTHER)
def test_other_sizes_and_seeds_are_confirmed(name, arguments):
    assert run(name, **arguments), run(name, **arguments).witness


def wrong_coupling(stack, *, constant):
    """The head that couples to the previous state, whatever the stack does."""
    return original_head(cascades._Stack(stack.parts, stack.couplings, stack.offsets, False), constant=constant)


original_head = cascades._single_head


def short_of_a_coordinate(stack, *, constant):
    return original_head(stack, constant=False)


def flat_cascade(dims, letters, seed, *, all_earlier):
    """Parts that do not see each other: their algebra is the direct sum."""
    matrices = cascades.generic(seed, letters, sum(dims), sum(dims))
    for begin, end in pairwise(np.concatenate(([0], np.cumsum(dims)))):
        matrices[:, begin:end, :begin] = matrices[:, begin:end, end:] = 0
    return matrices


def ungated(kind, states, dim, seed):
    return original_gates("same" if kind == "generic" else kind, states, dim, seed)


original_gates = cascades._gates


def not_quite_a_turn(frequencies):
    automaton = original_positions(frequencies)
    matrices = automaton.matrices.copy()
    matrices[1, 0, 0] = Fraction(3, 4)
    return WeightedAutomaton(automaton.initial, matrices, automaton.final, automaton.alphabet)


original_positions = expressivity._machine_of_positions


def twice_the_same_frequency(frequencies):
    automaton = original_positions(frequencies)
    matrices = automaton.matrices.copy()
    matrices[:, 2:4, 2:4] = matrices[:, 0:2, 0:2]
    return WeightedAutomaton(automaton.initial, matrices, automaton.final, automaton.alphabet)


def last_letter():
    return DFA(("0", "1"), np.array([[0, 1], [0, 1]]), 0, frozenset({1}))


def counts_one_more(modulus):
    return original_counter(modulus + 1)


original_counter = expressivity._counter


def a_digit_short(base):
    return WeightedAutomaton(
        [1, 0], [[[1, 0], [max(0, digit - 1), base]] for digit in range(base)], [0, 1], "0123456789"[:base]
    )


def unweighted_depths(kinds):
    """The matcher without the factor t + 1: an opening at another depth can win."""
    matcher = original_matcher(kinds)
    scores = matcher.scores.copy()
    scores[2, 3] = scores[4, 1] = scores[2, 1] = 0
    return HardAttention(matcher.automaton, scores, matcher.keys)


original_matcher = hierarchy._matcher


def the_height_itself():
    attention = original_difference()
    scores = np.zeros((3, 3), dtype=object)
    scores[0, 2] = 1  # every position looks at itself
    return HardAttention(attention.automaton, scores, attention.keys)


original_difference = hierarchy._difference


def looks_one_ahead():
    attention = original_lookup()
    scores = attention.scores.copy()
    scores[0, 1] = 2
    return HardAttention(attention.automaton, scores, attention.keys)


original_lookup = hierarchy._lookup


def silent_states(word):
    return 1


def other_cascade(table):
    return original_decomposed(np.roll(np.asarray(table.transitions), 1, axis=0))


original_decomposed = hierarchy.decomposed


def forgets_the_empty_word(automaton):
    return original_formula(automaton).rpartition(" + ")[0]


original_formula = logic.formula_of


def without_the_injected(deep, *, norm):
    """Carries the states, and reads at each layer only what the first one adds."""
    with pytest.MonkeyPatch.context() as patch:
        first = capacity._projection(deep, 0)
        patch.setattr(capacity, "_projection", lambda model, layer: first * (layer == 0))
        return original_carrying(deep, norm=norm)


original_carrying = capacity._carrying


def without_a_constant(coordinates, update):
    head = original_as_head(coordinates, update)
    matrices = head.matrices.copy()
    matrices[:, :coordinates, -1] = 0
    return WeightedAutomaton(head.initial, matrices, head.final, head.alphabet)


original_as_head = capacity._as_head


def form_of_rank_one(dim, inner, seed):
    return np.outer(capacity.generic(seed, dim, 1)[:, 0], capacity.generic(seed, dim, 1)[:, 0])


def one_instruction_less(formula, **options):
    program = original_arithmetic(formula, **options)
    return ArithmeticProgram((*program.instructions, Addition(1, 0, 1)), program.depth + 2)


original_arithmetic = circuits.arithmetic_program


def never(formula, **options):
    return PermutationProgram((Instruction(None, CYCLE, CYCLE),), 0)


def single_paths(automaton, word):
    states = [int(state) for state in np.zeros(len(word) + 1)]
    total = automaton.initial[0] * automaton.final[0]
    for letter in word:
        total = total * automaton.matrices[letter, states[0], states[0]]
    return total


def other_head(automaton):
    return original_rational_head(
        WeightedAutomaton(automaton.initial, automaton.matrices.transpose(0, 2, 1), automaton.final, automaton.alphabet)
    )


original_rational_head = representations._head


def height_for_palindromes(name):
    return machine("balance" if name == "palindrome_distance" else name)


def nothing_to_spare(automaton, spare, seed):
    return automaton


MUTATIONS = [
    ("cascade_reduction", cascades, "_single_head", wrong_coupling),
    ("cascaded_parameter_efficiency", cascades, "_cascade_matrices", flat_cascade),
    ("non_linear_irreducibility", cascades, "_gates", ungated),
    ("positional_encodings_are_rational", expressivity, "_machine_of_positions", not_quite_a_turn),
    ("positional_encodings_are_rational", expressivity, "_machine_of_positions", twice_the_same_frequency),
    ("the_parity_gap", expressivity, "_parity", last_letter),
    ("the_parity_gap", expressivity, "_cayley_of", lambda skew: skew),
    ("exact_modular_counting", expressivity, "_counter", counts_one_more),
    ("exact_arithmetic_evaluation", expressivity, "_value_machine", a_digit_short),
    ("expressive_hierarchy", hierarchy, "_matcher", unweighted_depths),
    ("expressive_hierarchy", hierarchy, "_difference", the_height_itself),
    ("expressive_hierarchy", hierarchy, "_lookup", looks_one_ahead),
    ("effective_capacity_increase", capacity, "_told_apart", silent_states),
    ("effective_capacity_increase", capacity, "_shatters_one_letter", lambda width: 3),
    ("representational_completeness_via_krohn_rhodes", hierarchy, "decomposed", other_cascade),
    ("logical_characterization_via_weighted_mso", logic, "positive_part", the_height_itself),
    ("logical_characterization_via_weighted_mso", logic, "_squares", lambda length: 2**length),
    ("decomposition_characterization", capacity, "_carrying", without_the_injected),
    ("maximality_under_linear_recurrence", capacity, "_as_head", without_a_constant),
    ("virtual_tensorization_via_attention", capacity, "_score_form", form_of_rank_one),
    ("equivalence_to_linear_branching_programs", circuits, "arithmetic_program", one_instruction_less),
    ("equivalence_to_linear_branching_programs", circuits, "permutation_program", never),
    ("circuit_lower_bound_for_transductors", circuits, "_parity", last_letter),
    ("circuit_complexity_sandwich", circuits, "_parity", last_letter),
    ("circuit_complexity_sandwich", circuits, "machine", height_for_palindromes),
    ("vector_valued_rational_functions", representations, "_head", other_head),
    ("linear_representation", representations, "_sum_of_paths", single_paths),
    ("fliess", representations, "_larger", nothing_to_spare),
    ("fliess", representations, "_positive_part", lambda word: len(word)),
]


@pytest.mark.parametrize(("name", "module", "builder", "mutation"), MUTATIONS)
def test_a_changed_construction_is_refused(name, module, builder, mutation, monkeypatch):
    monkeypatch.setattr(module, builder, mutation)
    certificate = run(name)
    assert not certificate
    assert str(certificate).count("NOT CONFIRMED") == 1


def test_every_statement_has_a_changed_construction_that_is_refused():
    here = {entry.name for entry in STATEMENTS.values() if entry.numbers[0] < 20 or entry.numbers[0] > 30}
    by_argument = {"circuit_upper_bound_for_transductors"}
    assert here == {name for name, *_ in MUTATIONS} | by_argument


def test_a_scan_that_is_a_loop_is_not_shallow():
    certificate = run("circuit_upper_bound_for_transductors", backend="reference")
    assert not certificate
    assert certificate.measurements["depth"] == {"1": 1, "5": 5, "8": 8}


def test_without_its_coordinate_a_driven_cascade_is_another(monkeypatch):
    stack = cascades._stack((3, 2), 2, 0, current=False, driven=True)
    assert cascades._same_steps(stack, cascades._single_head(stack, constant=True), constant=True)
    assert not cascades._same_steps(stack, cascades._single_head(stack, constant=False), constant=False)


def test_a_formula_that_loses_the_empty_word_is_another_machine(monkeypatch):
    assert run("logical_characterization_via_weighted_mso", machines=1, seed=1)
    monkeypatch.setattr(logic, "formula_of", forgets_the_empty_word)
    certificate = run("logical_characterization_via_weighted_mso", machines=1, seed=1)
    assert not certificate
    assert "at ()" in certificate.witness


def test_counterexamples_run_in_a_line():
    assert run("effective_capacity_increase", longest=1).finding == "false as written"
    assert logic.positive_part().values("aaab")[-1] == 2
    for name in ("effective_capacity_increase", "logical_characterization_via_weighted_mso"):
        assert STATEMENTS[name].run.__wrapped__.__doc__


def test_a_lookup_needs_a_few_bits_where_a_recurrent_network_needs_one_for_each_letter(monkeypatch):
    bits = [hierarchy._bits_of_lookup(2**power) for power in range(3, 9)]
    assert [later - earlier for earlier, later in pairwise(bits)] == [2] * 5
    monkeypatch.setattr(hierarchy, "_bits_of_lookup", lambda stored: stored)
    certificate = run("expressive_hierarchy")
    assert not certificate
    assert "1000 bits" in certificate.witness


def test_drift_is_measured_against_exact_positions():
    automaton = expressivity._machine_of_positions(1)
    exact = automaton.trajectory("a" * 300)[-1]
    assert np.allclose(expressivity._turned(Fraction(3, 5), Fraction(4, 5), 300), exact.astype(float), atol=1e-15)
    assert expressivity.position_drift(automaton, [300], torch.float64)[0] < 1e-12


REFUSED = [
    ("cascade_reduction", {"dims": ()}, "dims must hold 1 or more integers"),
    ("cascade_reduction", {"dims": (3, 0)}, "dims must be an integer of at least 1"),
    ("cascade_reduction", {"letters": 0}, "letters must lie in"),
    ("cascaded_parameter_efficiency", {"dims": (3,)}, "2 or more integers"),
    ("non_linear_irreducibility", {"dims": (2, 2, 2)}, "two dimensions"),
    ("non_linear_irreducibility", {"dims": (1, 2)}, "dims must be an integer of at least 2"),
    ("exact_modular_counting", {"moduli": (1,)}, "moduli must be an integer of at least 2"),
    ("exact_arithmetic_evaluation", {"bases": (1,)}, "bases must be an integer of at least 2"),
    ("vector_valued_rational_functions", {"longest": 20}, "longest must be smaller"),
    ("circuit_upper_bound_for_transductors", {"times": (0,)}, "times must be"),
    ("virtual_tensorization_via_attention", {"dims": (1,)}, "at least 2"),
    ("fliess", {"dim": 0}, "dim must be"),
    ("exact_modular_counting", {"moduli": ()}, "moduli must hold 1 or more"),
    ("exact_arithmetic_evaluation", {"bases": ()}, "bases must hold 1 or more"),
    ("circuit_upper_bound_for_transductors", {"times": ()}, "times must hold 1 or more"),
    ("positional_encodings_are_rational", {"frequencies": 0}, "frequencies must be"),
    ("expressive_hierarchy", {"bits": 0}, "bits must be"),
    ("equivalence_to_linear_branching_programs", {"pairs": 0}, "pairs must be"),
    ("decomposition_characterization", {"length": 0}, "length must be"),
    ("logical_characterization_via_weighted_mso", {"block": 0}, "block must be"),
]


@pytest.mark.parametrize(("name", "arguments", "words"), REFUSED)
def test_arguments_that_make_no_sense_are_refused(name, arguments, words):
    with pytest.raises(ValueError, match=words):
        run(name, **arguments)
