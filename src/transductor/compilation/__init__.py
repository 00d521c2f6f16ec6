"""From an automaton to a head, a readout or a complete model whose numbers are exact: compiled, not trained."""

from transductor.compilation.cascade import compile_cascade
from transductor.compilation.compiling import compile_head, compile_model, compile_program, program_tokens
from transductor.compilation.realisation import CannotCompile

__all__ = ["CannotCompile", "compile_cascade", "compile_head", "compile_model", "compile_program", "program_tokens"]
