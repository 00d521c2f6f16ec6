"""Automata learned from values: Hankel blocks, spectral learning, exact interpolation."""
