"""Products with packed genotypes, centred and scaled, on tiles of variants.

`view_rows` returns the products of any source. For genotypes they come from the kernels of
`eigenfed.linalg.genotype`, tile by tile in threads; the sums over a tile are in single or double
precision, those over tiles always in double. Sums of squares follow from counts.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.linalg.genotype import adjoin_tile, load_kernels, multiply_tile
from eigenfed.linalg.genotype_codes import MISSING
from eigenfed.linalg.orthonormal import column_peaks, find_powers, split_powers
from eigenfed.linalg.threads import map_in_order

TILE = 8192
"""Most variants of a tile: the tables of a tile are filled in a fraction of the time of its use."""
_TILE_BYTES = 64 << 20
_LEAST_FACTOR, _LEAST_NORM = 2.0**-60, 1e-30
"""Entries of directions, relative to the largest, and norms of columns of D Q, from which products
in single precision keep their digits."""


@dataclass(frozen=True, eq=False, repr=False)
class PackedRows(Prepared):
    """Genotypes with the mean and the scale to apply to them.

    Attributes
    ----------
    single : bool, default=False
        Whether sums over a tile are made in single precision, in half the time.

    Examples
    --------
    >>> packed = np.array([[0b11100100]], dtype=np.uint8)
    >>> source = Source(Genotypes.of(packed, 4))
    >>> PackedRows(source, mean=np.ones(1), scale=np.full(1, 0.5)).multiply(np.ones((1, 1))).ravel()
    array([ 2.,  0.,  0., -2.])
    """

    single: bool = False

    @property
    def _table(self) -> Genotypes:
        table: Genotypes = self.source.X
        return table

    @property
    def _dtype(self) -> Any:
        return np.float32 if self.single else np.float64

    def _values(self, span: slice) -> npt.NDArray[Any]:
        """Return the entries of D for each code of some variants, (m, 4)."""
        centred = (self._table.values(span) - self.mean[span, None]) / self.scale[span, None]
        centred[:, MISSING] = 0.0
        return centred.astype(self._dtype)

    def _spans(self) -> list[slice]:
        d = self.source.d
        step = max(256, min(TILE, _TILE_BYTES // self._table.packed.shape[1]))
        return [slice(start, min(start + step, d)) for start in range(0, d, step)]

    def _multiply(self, basis: Array) -> Array:
        """Return D Q, (n, l), which has a row for each person."""
        table, kernels = self._table, load_kernels(self.single)
        powers = find_powers(basis)

        def multiply_span(span: slice) -> npt.NDArray[Any]:
            part = np.ldexp(basis[span], -powers).astype(self._dtype)
            return multiply_tile(table.tile(span), self._values(span), part, kernels)

        total = np.zeros((4 * table.packed.shape[1], basis.shape[1]))
        flops = 2.0 * self.source.n * basis.size
        for part in map_in_order(multiply_span, self._spans(), flops=flops):
            total += part
        found: Array = np.ldexp(total[table.people], powers)
        return found

    def _find_least_norms(self, basis: Array) -> Array | None:
        """Return norms below which columns of D Q are 0; None without tiny entries in `basis`."""
        if not self.single:
            return super()._find_least_norms(basis)
        sizes = np.abs(basis)
        if sizes.min(initial=np.inf) >= _LEAST_FACTOR * sizes.max(initial=0.0):
            return None
        peaks = column_peaks(sizes)
        is_faint = ((sizes > 0.0) & (sizes < _LEAST_FACTOR * peaks)).any()
        return _LEAST_NORM * peaks if is_faint else None

    def adjoint(self, sided: Array) -> Array:
        """Return D'W Y, (d, l)."""
        table, kernels = self._table, load_kernels(self.single)
        weighted, powers = split_powers(self._apply_weights(sided))
        everyone = np.zeros((4 * table.packed.shape[1], sided.shape[1]), dtype=self._dtype)
        everyone[table.people] = weighted
        sums, flags = weighted.sum(axis=0), table.counts.missing > 0
        signs = np.where(table.swapped, -1.0, 1.0) / self.scale
        shifts = (1.0 - self.mean) / self.scale
        found = np.empty((self.source.d, sided.shape[1]))

        def add_span(span: slice) -> None:
            over, absent = adjoin_tile(table.tile(span), everyone, flags[span], kernels)
            part = found[span]
            np.multiply(over, signs[span, None], out=part)
            part += shifts[span, None] * (sums - absent if flags[span].any() else sums)
            np.ldexp(part, powers, out=part)

        flops = 2.0 * self.source.d * sided.size
        for _ in map_in_order(add_span, self._spans(), flops=flops):
            pass
        return found

    def product(self, basis: Array) -> Array:
        """Return D'W D Q, (d, l), in two passes over the genotypes."""
        return self.adjoint(self.multiply(basis))

    def squares(self) -> Array:
        """Return the weighted sums of squares of the columns of D, (d,)."""
        counts = self.source.counts
        if counts is None:
            return Prepared(self.source, self.mean, self.scale).squares()
        by_copies = ((counts.two, 2.0), (counts.one, 1.0), (counts.none, 0.0))
        total = np.zeros(self.source.d)
        for count, copies in by_copies:
            total += count * (copies - self.mean) ** 2
        squares: Array = total / self.scale**2
        return squares


def view_rows(
    source: Source,
    mean: Array,
    scale: Array,
    *,
    near: bool = False,
    rest: Array | None = None,
    single: bool = False,
) -> Prepared:
    """Return the rows of a source, centred and scaled where they are multiplied.

    Parameters
    ----------
    source : Source
    mean, scale : ndarray of shape (d,)
    near : bool, default=False
        As in `Prepared`.
    rest : ndarray of shape (d,), optional
        As in `Prepared`; genotypes need none.
    single : bool, default=False
        Whether genotypes may be multiplied in single precision; other rows never are.

    Examples
    --------
    >>> view_rows(Source.of(np.eye(2)), np.zeros(2), np.ones(2)).multiply(np.eye(2))
    array([[1., 0.],
           [0., 1.]])
    """
    if isinstance(source.X, Genotypes):
        return PackedRows(source, mean, scale, single=single)
    return Prepared(source, mean, scale, near=near, rest=rest)
