"""Triton kernels for a GPU: the scan and its adjoint, Cayley rotations, and one decoded token."""
