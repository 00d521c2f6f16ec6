"""Monadic second-order logic over words, plain and weighted: formulas are read, written and compiled to automata."""
