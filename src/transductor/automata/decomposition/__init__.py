"""Decompositions of finite machines: syntactic monoids, permutation groups and Krohn–Rhodes cascades."""
