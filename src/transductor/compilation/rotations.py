"""Orthogonal matrices taken apart: skew-symmetric preimages, signs, reflections.

An orthogonal M is normal, so its symmetric part S (eigenvalues cos θ) and its skew part K (on the plane of θ: sin θ
times a quarter turn) commute, and any odd function of the angle is ``f(θ) / sin θ`` of S, times K.  Towards the half
turn K is small and its quarter turn J is taken by itself, as the orthogonal factor of K: an error of J costs only as
much as the angle lacks to π.  At the half turn K vanishes, and any planes will do.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from transductor.compilation.realisation import Reals

# Below this sine an angle counts as 0 or π; below this length an axis is in its place.
_TINY, _IN_PLACE = 1e-13, 1e-10


def cayley_preimage(rotation: Reals) -> Reals:
    """A with ``(I + A)(I − A)⁻¹`` the given rotation, which must not have the eigenvalue −1: tan(θ/2)."""
    return _of_angles(rotation, lambda angle: np.tan(angle / 2), 0.5)


def squared_cayley_preimage(rotation: Reals) -> Reals:
    """A with ``C(A)²`` the given rotation: tan(θ/4), at most 1."""
    return _of_angles(rotation, lambda angle: np.tan(angle / 4), 0.25)


def exponential_preimage(rotation: Reals) -> Reals:
    """A with ``exp(A)`` the given rotation: its angles, at most π."""
    return _of_angles(rotation, lambda angle: angle, 1.0)


def has_half_turn(orthogonal: Reals) -> bool:
    """Whether −1 is an eigenvalue."""
    cosines, sines, _ = _angles(orthogonal)
    return bool(((cosines < 0) & (sines < _TINY)).any())


def _angles(orthogonal: Reals) -> tuple[Reals, Reals, Reals]:
    """Cosines and sines ``(D)``, and the vectors they belong to, as columns."""
    cosines, vectors = np.linalg.eigh((orthogonal + orthogonal.T) / 2)
    # The length of K v, not √(1 − cos²): near 0 and π the cosine forgets the angle.
    sines = np.linalg.norm((orthogonal - orthogonal.T) / 2 @ vectors, axis=0)
    return cosines, sines, vectors


def _of_angles(rotation: Reals, function: Callable[[Reals], Reals], slope: float) -> Reals:
    """The skew matrix with angles ``function(θ)``; ``slope`` is its derivative at 0."""
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
    """A cosine in the widest gap between −0.9 and −0.4, so that no plane is cut in two."""
    edges = np.concatenate(([-0.9], cosines[(cosines > -0.9) & (cosines < -0.4)], [-0.4]))
    widest = int(np.diff(edges).argmax())
    return float(edges[widest : widest + 2].mean())


def skew_numbers(matrices: Sequence[Reals]) -> Reals:
    """The entries above the diagonal, in the order in which families read them: ``(V, d(d−1)/2)``."""
    rows, columns = np.triu_indices(len(matrices[0]), 1)
    return np.stack([matrix[rows, columns] for matrix in matrices])


def signs_without_half_turn(orthogonal: Reals) -> Reals:
    """Signs ``(D)`` for which ``M diag(s)`` is far from having the eigenvalue −1.

    That is, ``M + diag(s)`` is far from singular.  Eliminating one coordinate after the other, the pivot is what is
    left of the diagonal entry plus the sign: with the sign of that entry it is at least 1.  No signs may do as well.
    """
    rest = orthogonal.copy()
    signs = np.empty(len(rest))
    for place in range(len(rest)):
        signs[place] = 1.0 if rest[place, place] >= 0 else -1.0
        pivot = rest[place, place] + signs[place]
        below = slice(place + 1, None)
        rest[below, below] -= np.outer(rest[below, place], rest[place, below]) / pivot
    none = np.ones(len(rest))
    return max(none, signs, key=lambda each: np.linalg.svd(orthogonal + np.diag(each), compute_uv=False)[-1])


def reflections_of(orthogonal: Reals) -> list[Reals]:
    """Normals of reflections whose product, the first acting first, is the given matrix.

    Each reflection puts one more axis in its place and leaves those already there: the normal ``M e − e`` is orthogonal
    to them.  A permutation takes its number of points less its number of cycles, all of them transpositions.
    """
    rest, normals, dim = orthogonal.copy(), list[Reals](), len(orthogonal)
    for axis in range(dim):
        normal = rest[:, axis] - np.eye(dim)[axis]
        length = np.linalg.norm(normal)
        if length > _IN_PLACE:
            rest -= 2 * np.outer(normal, normal @ rest) / length**2
            normals.append(normal)
    return normals[::-1]
