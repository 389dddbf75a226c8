"""Genotypes of two bits: counts by population counts, and decoded rows. Needs numpy alone."""

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array

MISSING = 1
"""The code of a missing genotype."""
COPIES = np.array([2.0, np.nan, 1.0, 0.0])
"""Copies of the counted allele for each code of two bits."""

ALL_MISSING = 0b01010101
"""Byte of four people whose genotype is missing."""

_WORD = 8
Packed = npt.NDArray[np.uint8]


def pack_mask(people: npt.NDArray[np.int64], width: int) -> Packed:
    """Return bytes with the lower bit of each of these people set, (width,).

    Parameters
    ----------
    people : ndarray of int64
        Positions in the file.
    width : int
        Bytes of a variant.

    Examples
    --------
    >>> pack_mask(np.array([0, 3, 4]), 2).tolist()
    [65, 1]
    """
    flags = np.zeros((width, 4), dtype=np.uint8)
    flags.reshape(-1)[people] = 1
    mask: Packed = (flags << np.arange(0, 8, 2, dtype=np.uint8)).sum(axis=1, dtype=np.uint8)
    return mask


def pack_copies(copies: npt.NDArray[np.int8]) -> Packed:
    """Pack a table of people x variants into bytes of four genotypes, a row for each variant.

    Parameters
    ----------
    copies : ndarray of int8, shape (n, d)
        Copies of the counted allele, 0 to 2; below 0 where the genotype is missing.

    Examples
    --------
    >>> pack_copies(np.array([[2], [-1], [1], [0], [2]], dtype=np.int8)).tolist()
    [[228, 0]]
    """
    codes = np.array([3, 2, 0, 1], dtype=np.uint8)[np.where(copies < 0, 3, copies)].T
    padded = np.pad(codes, ((0, 0), (0, -len(copies) % 4)))
    packed = np.zeros((len(padded), padded.shape[1] // 4), dtype=np.uint8)
    for place in range(4):
        packed |= padded[:, place::4] << np.uint8(2 * place)
    return packed


def count_codes(packed: Packed, mask: Packed) -> npt.NDArray[np.int64]:
    """Count the codes of some people, by variant.

    Parameters
    ----------
    packed : ndarray of uint8, shape (m, width)
    mask : ndarray of uint8, shape (width,)
        Of `pack_mask`.

    Returns
    -------
    ndarray of int64, shape (m, 4)

    Examples
    --------
    >>> count_codes(np.array([[0b11100100]], dtype=np.uint8), pack_mask(np.arange(4), 1))
    array([[1, 1, 1, 1]])
    """
    m, width = packed.shape
    words = -(-width // _WORD)
    padded = np.zeros((m + 1, words * _WORD), dtype=np.uint8)
    padded[:m, :width], padded[m, :width] = packed, mask
    rows = padded.view(np.uint64)
    rows, kept = rows[:m], rows[m]
    low = rows & kept
    high = (rows >> np.uint64(1)) & kept
    both = _count_bits(low & high)
    counts = np.empty((m, 4), dtype=np.int64)
    counts[:, 3] = both
    counts[:, 1] = _count_bits(low) - both
    counts[:, 2] = _count_bits(high) - both
    counts[:, 0] = int(np.bitwise_count(kept).sum()) - counts[:, 1:].sum(axis=1)
    return counts


def _count_bits(words: npt.NDArray[np.uint64]) -> npt.NDArray[np.int64]:
    counts: npt.NDArray[np.int64] = np.bitwise_count(words).sum(axis=1, dtype=np.int64)
    return counts


def decode_rows(packed: Packed, values: Array, people: npt.NDArray[np.int64]) -> Array:
    """Return the values of some people's genotypes, people x variants.

    Parameters
    ----------
    packed : ndarray of uint8, shape (m, width)
    values : ndarray of shape (m, 4)
        The value of each code, by variant.
    people : ndarray of int64, shape (r,)
        Positions in the file.

    Returns
    -------
    ndarray of shape (r, m)

    Examples
    --------
    >>> packed = np.array([[0b11100100]], dtype=np.uint8)
    >>> decode_rows(packed, COPIES[None, :], np.array([0, 2, 3])).ravel()
    array([2., 1., 0.])
    """
    shifts = (2 * (people % 4)).astype(np.uint8)
    codes = (packed[:, people // 4] >> shifts) & 3
    found: Array = np.take_along_axis(values, codes.astype(np.intp), axis=1).T
    return found
