"""Automata learned from the values of a series: Hankel blocks, spectral learning and exact interpolation."""
