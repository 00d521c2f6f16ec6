"""Fast code for a CPU: the scan and its adjoint compiled by numba, and attention for short sequences."""
