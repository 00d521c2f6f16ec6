"""Weighted and finite automata: their algebra, decisions, files, logic and learning, exact wherever weights are."""

from transductor.automata.algebra import (
    all_words,
    cascaded,
    cauchy_product,
    difference,
    extended,
    gated,
    hadamard_product,
    left_quotient,
    only_word,
    power,
    renamed,
    restricted,
    reversed_series,
    right_quotient,
    scaled,
    shuffle_product,
    starred,
    sum_of,
    zero_series,
)
from transductor.automata.boolean import as_dfa, from_dfa
from transductor.automata.drawing import draw, svg
from transductor.automata.expression_writing import as_regex
from transductor.automata.finite_automata import DFA, NFA
from transductor.automata.first_order import as_first_order
from transductor.automata.formats import AutomatonFormatError, read, read_dfa, write
from transductor.automata.hidden_markov import HiddenMarkovModel, fitted_hidden_markov, spectral_hidden_markov
from transductor.automata.induction.learning import MachineFromLabels, learned_from_labels
from transductor.automata.labelled_series import labels_of_series, series_of_labels
from transductor.automata.library import machine
from transductor.automata.logic.runs import as_mso, as_weighted_mso
from transductor.automata.logic.second_order import mso
from transductor.automata.logic.weighted import weighted_mso
from transductor.automata.logic.weighted_syntax import OutsideFragment
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.reduction import Equivalence, RankWarning, Reduction, equivalent, minimised, rank, reduced
from transductor.automata.regular_expression import RegexNotRegular, regex
from transductor.automata.spectral.estimator import SpectralLearner
from transductor.automata.spectral.hankel_block import HankelBlock, hankel
from transductor.automata.spectral.interpolation import NotRational, interpolated
from transductor.automata.spectral.learning import LearnedAutomaton, learned, learned_from_sample
from transductor.automata.spectral.numbers import AutomatonFromNumbers, learned_from_numbers
from transductor.automata.spectral.queries import learned_from_callable
from transductor.automata.token_alphabet import TokenAlphabet
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weights import WEIGHTS, Weights

__all__ = [
    "DFA",
    "IGNORED",
    "NFA",
    "WEIGHTS",
    "AutomatonFormatError",
    "AutomatonFromNumbers",
    "Equivalence",
    "HankelBlock",
    "HiddenMarkovModel",
    "LearnedAutomaton",
    "MachineFromLabels",
    "MooreMachine",
    "NotRational",
    "OutsideFragment",
    "RankWarning",
    "Reduction",
    "RegexNotRegular",
    "SpectralLearner",
    "TokenAlphabet",
    "WeightedAutomaton",
    "Weights",
    "all_words",
    "as_dfa",
    "as_first_order",
    "as_mso",
    "as_regex",
    "as_weighted_mso",
    "cascaded",
    "cauchy_product",
    "difference",
    "draw",
    "equivalent",
    "extended",
    "fitted_hidden_markov",
    "from_dfa",
    "gated",
    "hadamard_product",
    "hankel",
    "interpolated",
    "labels_of_series",
    "learned",
    "learned_from_callable",
    "learned_from_labels",
    "learned_from_numbers",
    "learned_from_sample",
    "left_quotient",
    "machine",
    "minimised",
    "mso",
    "only_word",
    "power",
    "rank",
    "read",
    "read_dfa",
    "reduced",
    "regex",
    "renamed",
    "restricted",
    "reversed_series",
    "right_quotient",
    "scaled",
    "series_of_labels",
    "shuffle_product",
    "spectral_hidden_markov",
    "starred",
    "sum_of",
    "svg",
    "weighted_mso",
    "write",
    "zero_series",
]
