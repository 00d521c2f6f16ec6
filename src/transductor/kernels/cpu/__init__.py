"""Compiled CPU code: the scan and its adjoint in numba, attention for short sequences."""
