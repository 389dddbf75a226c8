"""Orthonormal bases of revealed directions, and which of these are independent."""

from collections.abc import Sequence

import numpy as np

from eigenfed.arrays import Array
from eigenfed.privacy.revealed_products import RevealedProducts

# Relative tolerances. A singular value above INDEPENDENT is a direction of its own; below
# _ROUNDING it is zero; a direction in between is "faint" and counted without joining the basis.
INDEPENDENT = 1e-10
_ROUNDING = 1e-14
_WELL_CONDITIONED = 1e-3
_ORTHONORMAL = 1e-13


def normalise_columns(directions: Array, images: Array) -> tuple[Array, Array]:
    """Scale columns to norm 1, their images alike, and drop columns that are zero."""
    lengths = np.sqrt(np.einsum("ij,ij->j", directions, directions))
    if np.all(np.abs(lengths - 1.0) < 1e-9):
        return directions, images
    # Dividing by the largest entry first keeps the squares from overflowing or vanishing.
    largest = np.abs(directions).max(axis=0, initial=0.0)
    nonzero = largest > 0
    units, unit_images = (x[:, nonzero] / largest[nonzero] for x in (directions, images))
    lengths = np.sqrt(np.einsum("ij,ij->j", units, units))
    return units / lengths, unit_images / lengths


def is_orthonormal(units: Array) -> bool:
    """Return whether columns are orthonormal up to rounding."""
    defect = units.T @ units
    defect.flat[:: len(defect) + 1] -= 1.0
    return bool(np.abs(defect).max(initial=0.0) < _ORTHONORMAL)


def orthonormalise(units: Array) -> tuple[Array, Array, int]:
    """Return an orthonormal basis of the span of `units`, by Cholesky QR or, if needed, an SVD.

    Returns
    -------
    basis : ndarray of shape (d, r)
    transform : ndarray of shape (m, r)
        ``units @ transform`` is the basis.
    faint : int
        Number of directions that are neither independent nor zero up to rounding.
    """
    gram = units.T @ units
    if np.min(np.linalg.eigvalsh(gram), initial=1.0) > _WELL_CONDITIONED:
        transform: Array = np.linalg.inv(np.linalg.cholesky(gram)).T
        return units @ transform, transform, 0
    frame, triangle = np.linalg.qr(units)
    left, sizes, right = np.linalg.svd(triangle, full_matrices=False)
    count = int(np.count_nonzero(sizes > INDEPENDENT))
    faint = int(np.count_nonzero(sizes > _ROUNDING)) - count
    return frame @ left[:, :count], right[:count].T / sizes[:count], faint


def merge_answers(
    basis: Array, images: Array, answers: Sequence[RevealedProducts]
) -> tuple[Array, Array, int]:
    """Merge replies into a basis of revealed directions.

    Only the part of the directions outside the basis is new, and its image follows from the replies
    themselves, so nothing is computed from the rows. Norms of directions do not matter.

    Parameters
    ----------
    basis, images : ndarray of shape (d, r)
        Orthonormal columns, and the scatter times them.
    answers : sequence of RevealedProducts

    Returns
    -------
    basis, images : ndarray of shape (d, r)
        Of all directions.
    faint : int
        Number of new directions that are neither independent nor zero up to rounding.

    Examples
    --------
    >>> answer = RevealedProducts(np.array([[2.0], [0.0]]), np.array([[6.0], [0.0]]), trace=4.0)
    >>> merge_answers(np.zeros((2, 0)), np.zeros((2, 0)), [answer])[1]
    array([[3.],
           [0.]])
    """
    own = [answer.in_rows_units() for answer in answers]
    directions, products = (np.hstack(blocks) for blocks in zip(*own, strict=True))
    units, unit_images = normalise_columns(directions, products)
    if not basis.shape[1] and is_orthonormal(units):
        return units, unit_images, 0
    if basis.shape[1]:
        known = basis.T @ units
        outside = units - basis @ known
        again = basis.T @ outside
        units = outside - basis @ again
        unit_images = unit_images - images @ (known + again)
    added, transform, faint = orthonormalise(units)
    return np.hstack([basis, added]), np.hstack([images, unit_images @ transform]), faint
