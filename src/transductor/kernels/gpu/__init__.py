"""Triton kernels for a GPU: the scan and its adjoint, rotations, a decoded token."""
