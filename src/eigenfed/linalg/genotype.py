"""Products of packed genotypes with a few directions, on bytes of four genotypes each.

With D people x variants, ``multiply_tile`` is D Q and ``adjoin_tile`` is D'Y, for the variants of a
tile. For four genotypes that share a byte, a table of 256 rows holds what they contribute to all
directions: one lookup and one addition of a row serve four genotypes. In D Q the four are those of
one person at four variants, so bytes are transposed in blocks of 4 x 4 genotypes first; centring,
scaling and 0 for a missing genotype are in the table. In D'Y they are those of four people at one
variant, whose table cannot depend on the variant: it holds copies minus one, and the caller centres
and scales the sums.

A row of a table is 64 bytes, one or a few vector registers: 16 directions in single precision, 8 in
double. numba compiles the functions that are plain Python here, and `eigenfed.linalg.vector_rows`
brings the operations on whole rows, which numba does not vectorise by itself.

The other way, tiles decoded to float32 and multiplied by sgemm, takes three times as long. Measured
on one core of an AMD EPYC with AVX-512, with 16 directions, in nanoseconds for a genotype of a site
of 832 and of 2,496 people: D Q 0.24 and 0.32, D'Y 0.17 and 0.18; decoding 0.22 and 0.22 each time,
and sgemm alone 0.43 and 0.44 for D Q, 0.40 and 0.41 for D'Y.
"""

from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eigenfed.errors import InputError
from eigenfed.linalg.genotype_codes import Packed

Floats = npt.NDArray[Any]

ROW_BYTES = 64
"""Bytes of a row of a table."""
TABLES = 8
"""Tables that are looked up at a time: together 128 kB, within the second cache."""
_BYTES_AT_ONCE = 1024
"""Bytes of four people that are added up before the sum goes on in double precision: in single
precision the rounding errors of equal people add up beyond the bound of the certificate."""
_SIGNS = (1.0, 0.0, 0.0, -1.0)
"""Copies of the counted allele minus one, for each code; 0 for a missing genotype."""


# Rows of 64 bytes: `vector_rows` compiles these three ---------------------------------------------


def add_looked_up(
    total: Floats, i: int, tables: Floats, index: Packed, start: int, step: int
) -> None:
    """Add a row of each table to row i: those at every step-th entry of `index`, flat."""
    places = index.reshape(-1)[start + step * np.arange(TABLES)].astype(np.intp)
    total[i] += tables[256 * np.arange(TABLES) + places].sum(axis=0)


def add_two(total: Floats, i: int, first: Floats, j: int, second: Floats, k: int) -> None:
    """Set row i to the sum of two rows."""
    total[i] = first[j] + second[k]


def weigh_two(total: Floats, i: int, rows: Floats, j: int, a: Any, b: Any) -> None:
    """Set row i to a times row j plus b times row j + 1."""
    total[i] = a * rows[j] + b * rows[j + 1]


# Kernels, which numba compiles --------------------------------------------------------------------


def fill_table(
    values: Floats, rows: Floats, start: int, tables: Floats, first: int, pairs: Floats
) -> None:
    """Fill 256 rows of `tables` with the sums over four of `rows`, for each byte of four codes."""
    for pair in range(2):
        j = start + 2 * pair
        for code in range(16):
            weigh_two(
                pairs, 16 * pair + code, rows, j, values[j, code & 3], values[j + 1, code >> 2]
            )
    for high in range(16):
        for low in range(16):
            add_two(tables, first + 16 * high + low, pairs, low, pairs, 16 + high)


def transpose_group(packed: Packed, j: int, words: npt.NDArray[np.uint32]) -> None:
    """Turn the bytes of four variants from j on into bytes of four genotypes of each person.

    The four bytes of four people are a word. Variants beyond the last one repeat it: their
    directions are 0.
    """
    last = len(packed) - 1
    a, b = packed[min(j, last)], packed[min(j + 1, last)]
    c, d = packed[min(j + 2, last)], packed[min(j + 3, last)]
    near, far = np.uint32(6), np.uint32(12)
    for place in range(len(words)):
        x = np.uint32(a[place]) | (np.uint32(b[place]) << np.uint32(8))
        x = x | (np.uint32(c[place]) << np.uint32(16)) | (np.uint32(d[place]) << np.uint32(24))
        moved = (x ^ (x >> near)) & np.uint32(0x00CC00CC)
        x = x ^ moved ^ (moved << near)
        moved = (x ^ (x >> far)) & np.uint32(0x0000F0F0)
        words[place] = x ^ moved ^ (moved << far)


def add_images(packed: Packed, values: Floats, basis: Floats, total: Floats) -> None:
    """Add D Q to `total`, (4 w, lanes); `values` and `basis` are padded with 0."""
    people = 4 * packed.shape[1]
    tables = np.empty((256 * TABLES, basis.shape[1]), basis.dtype)
    pairs = np.empty((32, basis.shape[1]), basis.dtype)
    words = np.empty((TABLES, packed.shape[1]), np.uint32)
    index = words.view(np.uint8)
    for j in range(0, len(packed), 4 * TABLES):
        for group in range(TABLES):
            fill_table(values, basis, j + 4 * group, tables, 256 * group, pairs)
            transpose_group(packed, j + 4 * group, words[group])
        for person in range(people):
            add_looked_up(total, person, tables, index, person, people)


def add_adjoint(packed: Packed, signs: Floats, sided: Floats, total: Floats) -> None:
    """Add the sums of (copies - 1) Y to `total`, (m, lanes); a variant has 8 bytes or more."""
    m, width = packed.shape
    tables = np.empty((256 * TABLES, sided.shape[1]), sided.dtype)
    pairs = np.empty((32, sided.shape[1]), sided.dtype)
    some = np.empty((4 * TABLES, sided.shape[1]), sided.dtype)
    for start in range(0, width, TABLES):
        # The last pass is moved back to end with the variant, and leaves out what is done.
        begin = min(start, width - TABLES)
        some[:] = sided[4 * begin : 4 * (begin + TABLES)]
        some[: 4 * (start - begin)] = 0.0
        for place in range(TABLES):
            fill_table(signs, some, 4 * place, tables, 256 * place, pairs)
        for variant in range(m):
            add_looked_up(total, variant, tables, packed, width * variant + begin, 1)


def add_missing(packed: Packed, flags: npt.NDArray[Any], sided: Floats, total: Floats) -> None:
    """Add the sums of Y over people whose genotype is missing, for the variants with a flag."""
    for variant in range(len(packed)):
        if not flags[variant]:
            continue
        for place in range(packed.shape[1]):
            code = packed[variant, place]
            gaps = code & ~(code >> 1) & 0x55
            for inside in range(4):
                if gaps >> (2 * inside) & 1:
                    add_two(total, variant, total, variant, sided, 4 * place + inside)


# What is called -----------------------------------------------------------------------------------


class Kernels(NamedTuple):
    """The kernels, compiled or as they are: `add_images`, `add_adjoint` and `add_missing`."""

    add_images: Callable[..., None]
    add_adjoint: Callable[..., None]
    add_missing: Callable[..., None]


PLAIN = Kernels(add_images, add_adjoint, add_missing)
"""The kernels as Python runs them: very slow, and the same arithmetic."""


@cache
def load_kernels(single: bool) -> Kernels:
    """Return the kernels compiled for one precision, from numba's cache after the first time.

    Raises
    ------
    InputError
        If numba is not installed.
    """
    try:
        from eigenfed.linalg.vector_rows import compile_kernel
    except ImportError:
        raise InputError(
            "Products of genotypes need numba, which is not installed. Run pip install "
            "'eigenfed[genotypes]'."
        ) from None
    return Kernels(*(compile_kernel(kernel, single=single) for kernel in PLAIN))


def multiply_tile(packed: Packed, values: Floats, basis: Floats, kernels: Kernels) -> Floats:
    """Return D Q for the variants of a tile, (4 w, l).

    Parameters
    ----------
    packed : ndarray of uint8, shape (m, w)
    values : ndarray of shape (m, 4)
        Entries of D for each code, by variant.
    basis : ndarray of shape (m, l)
        Rows of Q, of the precision in which to multiply.
    kernels : Kernels

    Examples
    --------
    >>> packed = np.array([[0b11100100], [0b00000010]], dtype=np.uint8)
    >>> values = np.array([[2.0, 0.0, 1.0, 0.0]] * 2, dtype=np.float32)
    >>> multiply_tile(packed, values, np.ones((2, 1), np.float32), PLAIN).ravel()
    array([3., 2., 3., 2.], dtype=float32)
    """
    m, width = packed.shape
    rows = -(-m // (4 * TABLES)) * 4 * TABLES
    by_code = np.zeros((rows, 4), basis.dtype)
    by_code[:m] = values
    found = np.empty((4 * width, basis.shape[1]), basis.dtype)
    for columns, part in _split_lanes(basis, rows):
        total = np.zeros((4 * width, part.shape[1]), basis.dtype)
        kernels.add_images(packed, by_code, part, total)
        found[:, columns] = total[:, : columns.stop - columns.start]
    return found


def adjoin_tile(
    packed: Packed, sided: Floats, flags: npt.NDArray[np.bool_], kernels: Kernels
) -> tuple[Floats, Floats]:
    """Return sums over people, for the variants of a tile.

    Parameters
    ----------
    packed : ndarray of uint8, shape (m, w)
    sided : ndarray of shape (4 w, l)
        Rows of Y, 0 for people who do not count, of the precision in which to add.
    flags : ndarray of bool, shape (m,)
        Variants of which a genotype may be missing.
    kernels : Kernels

    Returns
    -------
    sums : ndarray of shape (m, l)
        Of copies minus one, times Y; in double precision, as what follows.
    missing : ndarray of shape (m, l)
        Of Y, over people whose genotype is missing.

    Examples
    --------
    >>> packed = np.array([[0b11100100]], dtype=np.uint8)
    >>> sided = np.array([[5.0], [7.0], [9.0], [2.0]])
    >>> adjoin_tile(packed, sided, np.array([True]), PLAIN)
    (array([[3.]]), array([[7.]]))
    """
    m, width = packed.shape
    if width > _BYTES_AT_ONCE:
        sums, missing = np.zeros((m, sided.shape[1])), np.zeros((m, sided.shape[1]))
        for start in range(0, width, _BYTES_AT_ONCE):
            stop = min(start + _BYTES_AT_ONCE, width)
            part = np.ascontiguousarray(packed[:, start:stop])
            over, absent = adjoin_tile(part, sided[4 * start : 4 * stop], flags, kernels)
            sums += over
            missing += absent
        return sums, missing
    if width < TABLES:
        padded = np.zeros((m, TABLES), np.uint8)
        padded[:, :width] = packed
        packed, width = padded, TABLES
    signs = np.tile(np.array(_SIGNS, sided.dtype), (4 * TABLES, 1))
    sums, missing = (np.zeros((m, sided.shape[1]), sided.dtype) for _ in range(2))
    for columns, part in _split_lanes(sided, 4 * width):
        kept = columns.stop - columns.start
        total = np.zeros((m, part.shape[1]), sided.dtype)
        kernels.add_adjoint(packed, signs, part, total)
        sums[:, columns] = total[:, :kept]
        if flags.any():
            total[:] = 0.0
            kernels.add_missing(packed, flags, part, total)
            missing[:, columns] = total[:, :kept]
    return sums.astype(np.float64, copy=False), missing.astype(np.float64, copy=False)


def _split_lanes(a: Floats, rows: int) -> list[tuple[slice, Floats]]:
    """Return groups of columns that fill a row of a table, with columns and rows of 0 added."""
    lanes = ROW_BYTES // a.itemsize
    parts = []
    for start in range(0, a.shape[1], lanes):
        columns = slice(start, min(start + lanes, a.shape[1]))
        part = np.zeros((rows, lanes), a.dtype)
        part[: len(a), : columns.stop - start] = a[:, columns]
        parts.append((columns, part))
    return parts
