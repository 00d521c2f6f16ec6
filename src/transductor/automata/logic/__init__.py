"""Monadic second-order logic over words, plain and weighted: formulas read, written and compiled to automata."""
