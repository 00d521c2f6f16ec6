"""From an automaton to a head, a readout or a complete model whose numbers are exact: compiled, not trained."""

from transductor.compilation.cascade import compile_cascade
from transductor.compilation.compiling import compile_head, compile_model, compile_program, program_tokens
from transductor.compilation.filters import automaton_of_filter, filter_of, predictor_of
from transductor.compilation.hard_attention import (
    HardAttention,
    HardAttentionModel,
    dyck_matcher,
    is_dyck,
    positive_part,
)
from transductor.compilation.realisation import CannotCompile

__all__ = [
    "CannotCompile",
    "HardAttention",
    "HardAttentionModel",
    "automaton_of_filter",
    "compile_cascade",
    "compile_head",
    "compile_model",
    "compile_program",
    "dyck_matcher",
    "filter_of",
    "is_dyck",
    "positive_part",
    "predictor_of",
    "program_tokens",
]
