"""Orthonormal bases of revealed directions, and which of these are independent."""

from collections.abc import Sequence

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import column_norms
from eigenfed.privacy.revealed_products import RevealedProducts

# Relative tolerances. A singular value above INDEPENDENT is a direction of its own; below
# _ROUNDING it is zero; a direction in between is "faint" and counted without joining the basis.
INDEPENDENT = 1e-10
_ROUNDING = 1e-14
_WELL_CONDITIONED = 1e-3
_ORTHONORMAL = 1e-13
_FIRM, _FIRM_IN_UNITS = 1e-8, 1e-12
_ORTHOGONAL = 1e-10
_SURELY_COUNTED = 1e-12  # squared: an eigenvalue of a Gram matrix, above which nothing is removed


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

    The basis is made of multiples of the columns: of a feature in which they are tiny, it keeps
    their digits, where a QR factorisation would leave rounding errors of other features.

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
    triangle = np.linalg.qr(units, mode="r")
    _, sizes, right = np.linalg.svd(triangle, full_matrices=False)
    count = int(np.count_nonzero(sizes > INDEPENDENT))
    faint = int(np.count_nonzero(sizes > _ROUNDING)) - count
    transform = right[:count].T / sizes[:count]
    basis = units @ transform
    for _ in range(2):
        again = np.linalg.inv(np.linalg.cholesky(basis.T @ basis)).T
        basis, transform = basis @ again, transform @ again
    return basis, transform, faint


def count_determined(numbers: int, left: int) -> int:
    """Return how many of `left` further directions reveal no more than so many numbers.

    Of d directions, r known ones leave d - r, and another one reveals that many further numbers.
    """
    found = 0
    while 0 < left - found <= numbers:
        numbers -= left - found
        found += 1
    return found


def are_orthogonal(known: Array, units: Array) -> bool:
    """Return whether columns are orthogonal to known ones.

    Each is compared by its own length: next to a long one any short one would seem orthogonal.
    """
    if not known.shape[1]:
        return True
    most = np.outer(column_norms(known), _ORTHOGONAL * column_norms(units))
    return bool((np.abs(known.T @ units) <= most).all())


def find_hidden(outside: Array) -> Array | None:
    """Return the part of columns that is too small to count as a direction; None without one."""
    if np.linalg.eigvalsh(outside.T @ outside)[0] > _SURELY_COUNTED:
        return None
    frame, triangle = np.linalg.qr(outside)
    left, sizes, right = np.linalg.svd(triangle)
    hidden = sizes <= INDEPENDENT
    if not hidden.any():
        return None
    part: Array = ((frame @ left[:, hidden]) * sizes[hidden]) @ right[hidden]
    return part


def complete_trace(basis: Array, images: Array, spread: Array | None = None) -> float:
    """Return the trace of the best completion of images of an orthonormal basis.

    Parameters
    ----------
    basis, images : ndarray of shape (d, r)
    spread : ndarray of shape (d,) or None
        Diagonal of the scatter. A direction of features that hardly vary has a tiny image, which
        may tell as much as a large one: with it, directions are compared in standard deviations.

    Examples
    --------
    >>> scatter = np.array([[1e-20, 1e-10], [1e-10, 1.0]])
    >>> small = np.array([[1.0], [0.0]])
    >>> round(complete_trace(small, scatter @ small, scatter.diagonal()), 12)
    1.0
    """
    sided, onto, firmness = basis, images, _FIRM
    if spread is not None:
        varies = spread > 0.0
        units = np.sqrt(spread[varies])[:, None]
        sided, onto, firmness = basis[varies] * units, images[varies] / units, _FIRM_IN_UNITS
    lengths = column_norms(sided)
    kept = lengths > 0.0
    sided, onto = sided[:, kept] / lengths[kept], onto[:, kept] / lengths[kept]
    values, vectors = np.linalg.eigh(_make_symmetric(sided.T @ onto))
    # The image of a nearly repeated direction is a small difference of large numbers: rounding
    # errors divided by its tiny Ritz value would dominate, so such values are left out.
    firm = values > firmness * max(float(np.max(values, initial=0.0)), 0.0)
    factor = (images[:, kept] / lengths[kept]) @ (vectors[:, firm] / np.sqrt(values[firm]))
    return float(np.vdot(factor, factor))


def _make_symmetric(inner: Array) -> Array:
    """Return inner products as a symmetric matrix, of each pair the smaller one.

    They are equal but for rounding, unless a column has nothing but rounding where the rows vary.
    Its large product with the image of another column would hide what that image reveals.
    """
    smaller = np.where(np.abs(inner) <= np.abs(inner.T), inner, inner.T)
    return np.where(np.sign(inner) == np.sign(inner.T), smaller, 0.0)


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
