"""What replies have revealed, read off the inner products of their directions and images.

The rank of directions and the variance in the best completion of their images follow from three
small matrices of inner products: no orthonormal basis of d rows is made, which would take many
times as long and several copies of all replies. Inner products resolve a direction to half of the
digits, so that they are used only where that decides nothing: directions that are well apart from
each other, and after them replies that repeat those. `read_answers` returns None for all others.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.privacy.revealed_products import RevealedProducts

_APART = 0.01
"""Least eigenvalue of the Gram matrix of unit vectors that are well apart."""
_FIRM = 1e-7
"""Least Ritz value relative to the largest: an error of 2e-9 of the largest one follows."""
_MARGIN = 1e-8
"""Added to the variance, several times the error, so that no less is counted than was revealed."""
_SAFE = (1e-100, 1e100)
"""Lengths whose squares neither overflow nor vanish."""
_REPEATED = 1e-14
_BLOCK_ROWS = 4096


class Reading(NamedTuple):
    """What replies have revealed.

    Attributes
    ----------
    rank : int
        Of the directions.
    variance : float
        Trace of the best completion of the images.
    """

    rank: int
    variance: float


class _Products(NamedTuple):
    """Inner products of directions with each other, with images, and of images, (m, m) each."""

    directions: Array
    mixed: Array
    images: Array

    def scaled(self, transform: Array) -> "_Products":
        """Return the inner products after directions and images are multiplied by a matrix."""
        return _Products(*(transform.T @ product @ transform for product in self))


def read_answers(answers: Sequence[RevealedProducts]) -> Reading | None:
    """Return what replies have revealed; None where it takes an orthonormal basis to tell.

    Examples
    --------
    >>> scatter = np.diag([3.0, 1.0])
    >>> read_answers([RevealedProducts(np.eye(2)[:, :1], scatter[:, :1], trace=4.0)])
    Reading(rank=1, variance=3.00000003)
    """
    if any(answer.selected is not None for answer in answers):
        return None
    with one_blas_thread:
        return _read(answers)


def _read(answers: Sequence[RevealedProducts]) -> Reading | None:
    shifts = [answer.measure_shift() for answer in answers]
    sums = _sum_products(answers, shifts)
    lengths = np.sqrt(np.diag(sums.directions))
    if not ((lengths > _SAFE[0]) & (lengths < _SAFE[1])).all():
        return None
    gram = sums.directions / np.outer(lengths, lengths)
    count = _count_apart(gram, [answer.directions.shape[1] for answer in answers])
    if not count or not _repeats(answers, gram, lengths, count):
        return None
    lower = np.linalg.cholesky(gram[:count, :count])
    transform = np.linalg.inv(lower).T / lengths[:count, None]
    own = _Products(*(product[:count, :count] for product in sums)).scaled(transform)
    values, vectors = np.linalg.eigh((own.mixed + own.mixed.T) / 2)
    if not values[0] > _FIRM * values[-1]:
        return None
    squares = np.einsum("ij,ik,kj->j", vectors, own.images, vectors)
    return Reading(count, float((squares / values).sum()) * (1.0 + _MARGIN))


def _sum_products(answers: Sequence[RevealedProducts], shifts: Sequence[Array | None]) -> _Products:
    m = sum(answer.directions.shape[1] for answer in answers)
    sums = _Products(*(np.zeros((m, m)) for _ in range(3)))
    for start in range(0, len(answers[0].directions), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        directions = np.hstack([_take_directions(answer, rows) for answer in answers])
        images = np.hstack(
            [_take_images(*pair, rows) for pair in zip(answers, shifts, strict=True)]
        )
        sums.directions[:] += directions.T @ directions
        sums.mixed[:] += directions.T @ images
        sums.images[:] += images.T @ images
    return sums


def _take_directions(answer: RevealedProducts, rows: slice) -> Array:
    if answer.scale is None:
        return answer.directions[rows]
    return answer.directions[rows] / answer.scale[rows, None]


def _take_images(answer: RevealedProducts, shift: Array | None, rows: slice) -> Array:
    images = answer.images[rows]
    if answer.scale is not None:
        images = images * answer.scale[rows, None]
    if answer.shift is not None and shift is not None:
        images = images - np.outer(answer.shift[rows], shift)
    return images


def _count_apart(gram: Array, widths: Sequence[int]) -> int:
    """Return how many directions of the first replies are well apart from each other."""
    count = 0
    for width in widths:
        wider = count + width
        if np.min(np.linalg.eigvalsh(gram[:wider, :wider]), initial=1.0) <= _APART:
            return count
        count = wider
    return count


def _repeats(answers: Sequence[RevealedProducts], gram: Array, lengths: Array, count: int) -> bool:
    """Return whether all later directions lie in the span of the first ones, to rounding."""
    if count == len(gram):
        return True
    weights = np.linalg.solve(gram[:count, :count], gram[:count, count:])
    left = 0.0
    for start in range(0, len(answers[0].directions), _BLOCK_ROWS):
        rows = slice(start, start + _BLOCK_ROWS)
        units = np.hstack([_take_directions(answer, rows) for answer in answers]) / lengths
        outside = units[:, count:] - units[:, :count] @ weights
        left += float(np.vdot(outside, outside))
    return left <= _REPEATED**2
