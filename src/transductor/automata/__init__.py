"""Weighted automata and what is known about them: exact where the weights are."""

from transductor.automata.algebra import (
    all_words,
    cascaded,
    cauchy_product,
    difference,
    extended,
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
from transductor.automata.estimator import SpectralLearner
from transductor.automata.finite import DFA, NFA
from transductor.automata.formats import AutomatonFormatError, read, write
from transductor.automata.hankel_block import HankelBlock, hankel
from transductor.automata.interpolation import NotRational, interpolated
from transductor.automata.library import machine
from transductor.automata.logic import mso
from transductor.automata.moore import IGNORED, MooreMachine
from transductor.automata.reduction import (
    Equivalence,
    RankWarning,
    Reduction,
    equivalent,
    minimised,
    rank,
    reduced,
)
from transductor.automata.regular_expression import RegexNotRegular, regex
from transductor.automata.spectral import LearnedAutomaton, learned, learned_from_sample
from transductor.automata.spectral_queries import learned_from_callable
from transductor.automata.weighted import WeightedAutomaton
from transductor.automata.weighted_logic import OutsideFragment, weighted_mso
from transductor.automata.weights import WEIGHTS, Weights

__all__ = [
    "DFA",
    "IGNORED",
    "NFA",
    "WEIGHTS",
    "AutomatonFormatError",
    "Equivalence",
    "HankelBlock",
    "LearnedAutomaton",
    "MooreMachine",
    "NotRational",
    "OutsideFragment",
    "RankWarning",
    "Reduction",
    "RegexNotRegular",
    "SpectralLearner",
    "WeightedAutomaton",
    "Weights",
    "all_words",
    "as_dfa",
    "cascaded",
    "cauchy_product",
    "difference",
    "equivalent",
    "extended",
    "from_dfa",
    "hadamard_product",
    "hankel",
    "interpolated",
    "learned",
    "learned_from_callable",
    "learned_from_sample",
    "left_quotient",
    "machine",
    "minimised",
    "mso",
    "only_word",
    "power",
    "rank",
    "read",
    "reduced",
    "regex",
    "renamed",
    "restricted",
    "reversed_series",
    "right_quotient",
    "scaled",
    "shuffle_product",
    "starred",
    "sum_of",
    "weighted_mso",
    "write",
    "zero_series",
]
