"""Genotypes of two bits as rows of a site, decoded only where they are used.

A PLINK file stores a variant after the other, four people in a byte, the first in the lowest bits:

====  =======================================  ======
code  genotype                                 copies
====  =======================================  ======
0     two copies of the counted allele (A1)    2
1     missing                                  NaN
2     one copy of each                         1
3     two copies of the other allele (A2)      0
====  =======================================  ======

Rows are people and columns are variants, as in every table; an entry is the number of copies of the
counted allele. A selection of people or variants, and a swap of the alleles of a variant, are kept
as positions and flags: the file stays as it is, mapped.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Flags, Integers
from eigenfed.data.loci import Loci
from eigenfed.linalg.genotype_codes import (
    ALL_MISSING,
    COPIES,
    Packed,
    count_codes,
    decode_rows,
    pack_mask,
)
from eigenfed.linalg.threads import map_in_order

_TILE_BYTES = 1 << 20


@dataclass(frozen=True, eq=False, repr=False)
class GenotypeCounts:
    """How many of a site's people have each genotype, by variant.

    Attributes
    ----------
    two, one, none : ndarray of int64, shape (d,)
        People with two, one and no copies of the counted allele.
    missing : ndarray of int64, shape (d,)

    Examples
    --------
    >>> counts = GenotypeCounts(*np.array([[1, 0], [2, 0], [1, 3], [0, 1]]))
    >>> counts.observed, counts.copies
    (array([4, 3]), array([4, 0]))
    """

    two: Integers
    one: Integers
    none: Integers
    missing: Integers

    @property
    def observed(self) -> Integers:
        """People whose genotype is known, (d,)."""
        return self.two + self.one + self.none

    @property
    def copies(self) -> Integers:
        """Copies of the counted allele, (d,)."""
        return 2 * self.two + self.one


@dataclass(frozen=True, eq=False, repr=False)
class Genotypes:
    """Packed genotypes as a table of people x variants.

    Attributes
    ----------
    packed : ndarray of uint8, shape (variants of the file, bytes of a variant)
        Memory-mapped.
    people : ndarray of int64, shape (n,)
        Positions in the file of the people that are rows, in increasing order.
    places : ndarray of int64, shape (d,)
        Positions in the file of the variants that are columns, in any order; -1 for one that the
        file does not have, which is missing for everybody.
    swapped : ndarray of bool, shape (d,)
        Whether the copies of the other allele are counted.
    loci : Loci or None
        Where the variants lie, if that is known.

    Examples
    --------
    >>> packed = np.array([[0b11100100], [0b00000010]], dtype=np.uint8)
    >>> table = Genotypes.of(packed, 4)
    >>> table[:]
    array([[ 2.,  1.],
           [nan,  2.],
           [ 1.,  2.],
           [ 0.,  2.]])
    >>> table.select_variants([1], swapped=[True])[:2].tolist()
    [[1.0], [0.0]]
    """

    packed: Packed
    people: Integers
    places: Integers
    swapped: Flags
    loci: Loci | None = None

    ndim = 2
    dtype = np.dtype(np.float64)

    @classmethod
    def of(cls, packed: Packed, n: int) -> "Genotypes":
        """Return all n people and all variants of a packed array."""
        d = len(packed)
        return cls(packed, np.arange(n), np.arange(d), np.zeros(d, dtype=np.bool_))

    @property
    def shape(self) -> tuple[int, int]:
        """Number of people and of variants."""
        return len(self.people), len(self.places)

    @property
    def size(self) -> int:
        """Number of entries."""
        return len(self.people) * len(self.places)

    @property
    def nbytes(self) -> int:
        """Bytes of the packed genotypes of the variants."""
        return len(self.places) * int(self.packed.shape[1])

    def __len__(self) -> int:
        return len(self.people)

    def __getitem__(self, index: Any) -> Any:
        """Return decoded rows for a slice or positions, and a table for ``[:, order]``."""
        if isinstance(index, tuple):
            rows, order = index
            chosen = self.select_variants(np.asarray(order))
            return chosen if rows == slice(None) else chosen[rows]
        return self._decode(self.people[index])

    def select_variants(
        self, order: npt.ArrayLike, swapped: npt.ArrayLike | None = None
    ) -> "Genotypes":
        """Return some variants in another order, counting the other allele where `swapped` is."""
        chosen = np.asarray(order)
        flags = self.swapped[chosen]
        if swapped is not None:
            flags = flags ^ np.asarray(swapped, dtype=np.bool_)
        loci = None if self.loci is None else self.loci.take(chosen)
        return replace(self, places=self.places[chosen], swapped=flags, loci=loci)

    def select_people(self, rows: npt.ArrayLike) -> "Genotypes":
        """Return the people at some positions, or where a mask is true, in the file's order."""
        return replace(self, people=np.sort(self.people[np.asarray(rows)]))

    def dosages(self, variants: slice) -> Array:
        """Return the copies of the counted allele of some variants, (n, m); NaN is missing."""
        part = replace(self, places=self.places[variants], swapped=self.swapped[variants])
        found: Array = part[:]
        return found

    def spans(self) -> list[slice]:
        """Return the variants of each tile, of about 1 MB of packed bytes."""
        step = max(1, _TILE_BYTES // self.packed.shape[1])
        return [slice(start, start + step) for start in range(0, len(self.places), step)]

    def tile(self, span: slice) -> Packed:
        """Return the packed bytes of some variants: a view where they are adjacent in the file."""
        places = self.places[span]
        absent = places < 0
        if absent.any():
            tile = self.packed[np.where(absent, 0, places)]
            tile[absent] = ALL_MISSING
            return tile
        if len(places) and np.array_equal(places, np.arange(places[0], places[0] + len(places))):
            return self.packed[places[0] : places[0] + len(places)]
        return self.packed[places]

    @cached_property
    def counts(self) -> GenotypeCounts:
        """Counts of all people that are rows, by variant."""
        return self.count(None)

    def count(self, rows: npt.ArrayLike | None) -> GenotypeCounts:
        """Count the genotypes of some rows, given by positions or a mask; None counts all."""
        people = self.people if rows is None else self.people[np.asarray(rows)]
        mask = pack_mask(people, self.packed.shape[1])
        spans = self.spans()
        parts = map_in_order(
            lambda span: count_codes(self.tile(span), mask), spans, flops=float(self.nbytes)
        )
        by_code = np.concatenate([np.zeros((0, 4), np.int64), *parts])
        two = np.where(self.swapped, by_code[:, 3], by_code[:, 0])
        none = np.where(self.swapped, by_code[:, 0], by_code[:, 3])
        return GenotypeCounts(two, by_code[:, 2], none, by_code[:, 1])

    def values(self, variants: slice = slice(None)) -> Array:
        """Return the number of copies for each code of some variants, (m, 4); NaN is missing."""
        return np.where(self.swapped[variants, None], 2.0 - COPIES, COPIES)

    def _decode(self, people: Integers) -> Array:
        """Return the rows of these people, (m, d)."""
        rows = np.empty((len(people), len(self.places)))
        values = self.values()
        for span in self.spans():
            rows[:, span] = decode_rows(self.tile(span), values[span], people)
        return rows


@dataclass(frozen=True, eq=False, repr=False)
class Variants:
    """The variants of a file, in the order of its columns.

    Attributes
    ----------
    chromosome, identifier, a1, a2 : ndarray of str objects, shape (d,)
        `a1` is the allele that is counted, `a2` the other one.
    position : ndarray of int64, shape (d,)
        In base pairs.
    """

    chromosome: npt.NDArray[np.object_]
    identifier: npt.NDArray[np.object_]
    position: Integers
    a1: npt.NDArray[np.object_]
    a2: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.position)

    @property
    def loci(self) -> Loci:
        """Where they lie."""
        return Loci.of(self.chromosome, self.position)

    def take(self, order: npt.ArrayLike, swapped: npt.ArrayLike | None = None) -> "Variants":
        """Return some variants in another order, with their alleles swapped where asked for."""
        chosen = np.asarray(order)
        a1, a2 = self.a1[chosen], self.a2[chosen]
        if swapped is not None:
            flags = np.asarray(swapped, dtype=np.bool_)
            a1, a2 = np.where(flags, a2, a1), np.where(flags, a1, a2)
        return Variants(
            self.chromosome[chosen], self.identifier[chosen], self.position[chosen], a1, a2
        )

    @cached_property
    def names(self) -> tuple[str, ...]:
        """Names of the features: identifier and counted allele, as ``rs4970383_A``.

        A variant without an identifier is called by chromosome, position and both alleles.
        """
        identifiers = self.identifier.tolist()
        for place in np.flatnonzero(self.identifier == ".").tolist():
            low, high = sorted((self.a1[place], self.a2[place]))
            chromosome, position = self.chromosome[place], self.position[place]
            identifiers[place] = f"{chromosome}:{position}:{low}:{high}"
        pairs = zip(identifiers, self.a1.tolist(), strict=True)
        return tuple([f"{identifier}_{allele}" for identifier, allele in pairs])


@dataclass(frozen=True, eq=False, repr=False)
class Samples:
    """The people of a file, in the order of its rows.

    Attributes
    ----------
    family, person : ndarray of str objects, shape (n,)
    """

    family: npt.NDArray[np.object_]
    person: npt.NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.person)

    def take(self, rows: npt.ArrayLike) -> "Samples":
        """Return the people at some positions, or where a mask is true."""
        chosen = np.asarray(rows)
        return Samples(self.family[chosen], self.person[chosen])
