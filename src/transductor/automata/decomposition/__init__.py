"""Finite machines taken apart: syntactic monoids, permutation groups, Krohn–Rhodes cascades."""
