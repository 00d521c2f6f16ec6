"""Orthogonal matrices taken apart into skew-symmetric preimages, signs and reflections.

An orthogonal M is normal, so its symmetric part S (eigenvalues cos θ) and its skew part K (on the plane of θ: sin θ
times a quarter turn) commute, and any odd function of the angle is ``f(θ) / sin θ`` of S, times K.  Towards the half
turn K is small and its quarter turn J is taken by itself, as the orthogonal factor of K: an error of J costs only as
much as the angle lacks to π.  At the half turn K vanishes, and any planes will do.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from transductor.compilation.realisation import Reals

_TINY = 1e-13  # below this sine an angle counts as 0 or π
_FIXED = 1e-10  # an axis that is moved by less is left as it is


def cayley_preimage(rotation: Reals) -> Reals:
    """Return A with ``(I + A)(I − A)⁻¹`` the given rotation, which must not have the eigenvalue −1: tan(θ/2)."""
    return _of_angles(rotation, lambda angle: np.tan(angle / 2), 0.5)


def squared_cayley_preimage(rotation: Reals) -> Reals:
    """Return A with ``C(A)²`` the given rotation: tan(θ/4), at most 1."""
    return _of_angles(rotation, lambda angle: np.tan(angle / 4), 0.25)


def exponential_preimage(rotation: Reals) -> Reals:
    """Return A with ``exp(A)`` the given rotation: its angles, at most π."""
    return _of_angles(rotation, lambda angle: angle, 1.0)


def has_half_turn(orthogonal: Reals) -> bool:
    """Return whether −1 is an eigenvalue."""
    cosines, sines, _ = _angles(orthogonal)
    return bool(((cosines < 0) & (sines < _TINY)).any())


def _angles(orthogonal: Reals) -> tuple[Reals, Reals, Reals]:
    """Return cosines and sines ``(D)``, and the vectors they belong to, as columns."""
    cosines, vectors = np.linalg.eigh((orthogonal + orthogonal.T) / 2)
    # The length of K v, not √(1 − cos²): near 0 and π the cosine forgets the angle.
    sines = np.linalg.norm((orthogonal - orthogonal.T) / 2 @ vectors, axis=0)
    return cosines, sines, vectors


def _of_angles(rotation: Reals, function: Callable[[Reals], Reals], slope: float) -> Reals:
    """Return the skew matrix with angles ``function(θ)``; ``slope`` is the derivative of the function at 0."""
    cosines, sines, vectors = _angles(rotation)
    angles, still, turned = np.arctan2(sines, cosines), sines < _TINY, (rotation - rotation.T) / 2
    near, half = ~still & (cosines < _between_planes(cosines)), still & (cosines < 0)
    ratios = np.where(still, slope, function(angles) / np.where(still, 1.0, sines))
    ratios[near | half] = 0.0
    skew: Reals = (vectors * ratios) @ vectors.T @ turned
    if near.any():
        planes = vectors[:, near]
        left, _, right = np.linalg.svd(planes.T @ turned @ planes)
        skew += (planes * function(angles[near])) @ (left @ right) @ planes.T
    size, axes = float(function(np.array(np.pi))), vectors[:, half].T
    for first, second in zip(axes[::2], axes[1::2], strict=True):  # det +1: there is an even number
        skew += size * (np.outer(second, first) - np.outer(first, second))
    return (skew - skew.T) / 2


def _between_planes(cosines: Reals) -> float:
    """Return a cosine in the widest gap between −0.9 and −0.4, so that no plane is cut in two."""
    edges = np.concatenate(([-0.9], cosines[(cosines > -0.9) & (cosines < -0.4)], [-0.4]))
    widest = int(np.diff(edges).argmax())
    return float(edges[widest : widest + 2].mean())


def skew_numbers(rotations: Reals, preimage: Callable[[Reals], Reals]) -> Reals:
    """Return the entries ``(V, d(d−1)/2)`` above the diagonal of preimages, in the order that families read."""
    rows, columns = np.triu_indices(rotations.shape[-1], 1)
    return np.stack([preimage(rotation)[rows, columns] for rotation in rotations])


def signs_without_half_turn(orthogonal: Reals) -> Reals:
    """Return signs ``(D)`` for which ``M diag(s)`` is far from having the eigenvalue −1.

    That is, ``M + diag(s)`` is far from singular.  When coordinates are eliminated one after the other, the pivot is
    what is left of the diagonal entry plus the sign: with the sign of that entry it is at least 1.  Positive signs are
    taken where they do as well.
    """
    rest = orthogonal.copy()
    signs = np.empty(len(rest))
    for axis in range(len(rest)):
        signs[axis] = 1.0 if rest[axis, axis] >= 0 else -1.0
        pivot = rest[axis, axis] + signs[axis]
        below = slice(axis + 1, None)
        rest[below, below] -= np.outer(rest[below, axis], rest[axis, below]) / pivot
    none = np.ones(len(rest))
    return max(none, signs, key=lambda each: np.linalg.svd(orthogonal + np.diag(each), compute_uv=False)[-1])


def reflections_of(orthogonal: Reals) -> list[Reals]:
    """Return the normals of reflections whose product, the first acting first, is the given matrix.

    Each reflection fixes one more axis and leaves those already fixed: the normal ``M e − e`` is orthogonal to them.
    A permutation takes its number of points less its number of cycles, all of them transpositions.
    """
    rest, normals, dim = orthogonal.copy(), list[Reals](), len(orthogonal)
    for axis in range(dim):
        normal = rest[:, axis] - np.eye(dim)[axis]
        length = np.linalg.norm(normal)
        if length > _FIXED:
            rest -= 2 * np.outer(normal, normal @ rest) / length**2
            normals.append(normal)
    return normals[::-1]
