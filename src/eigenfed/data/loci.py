"""Where variants lie on the genome, as numbers that windows and regions are found from."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Integers

_LAST_AUTOSOME = 22
_NAMED = {"X": 23, "Y": 24, "XY": 25, "PAR1": 25, "PAR2": 25, "M": 26, "MT": 26}
_FIRST_OTHER = 100


@dataclass(frozen=True, eq=False, repr=False)
class Loci:
    """Chromosome and position of variants, and how a site's own ones were matched to them.

    Attributes
    ----------
    chromosome : ndarray of int64, shape (d,)
        1 to 22, 23 for X, 24 for Y, 25 for XY, 26 for MT; contigs have larger numbers, in the
        order of their first variants.
    position : ndarray of int64, shape (d,)
        In base pairs.
    matched : ndarray of int64 or None
        How many variants of the study's manifest a site has matched in which way
        (`eigenfed.data.harmonise`); None if there is no manifest.

    Examples
    --------
    >>> loci = Loci.of(["1", "chrX"], np.array([5, 9]))
    >>> loci.chromosome, loci.take([1]).position
    (array([ 1, 23]), array([9]))
    """

    chromosome: Integers
    position: Integers
    matched: Integers | None = None

    @classmethod
    def of(cls, chromosome: Iterable[str], position: Integers) -> "Loci":
        """Return the loci of chromosomes as they are named in files."""
        names = list(chromosome)
        codes: dict[str, int] = {}
        others: dict[str, int] = {}
        for name in dict.fromkeys(names):
            plain = name_chromosome(name)
            found = int(plain) if plain.isdecimal() else _NAMED.get(plain)
            if found is None or found >= _FIRST_OTHER:
                found = others.setdefault(plain, _FIRST_OTHER + len(others))
            codes[name] = found
        by_variant = np.fromiter(map(codes.__getitem__, names), np.int64, len(names))
        return cls(by_variant, position)

    def __len__(self) -> int:
        return len(self.position)

    @property
    def autosomal(self) -> npt.NDArray[np.bool_]:
        """Which variants are on the chromosomes 1 to 22, (d,)."""
        return (self.chromosome >= 1) & (self.chromosome <= _LAST_AUTOSOME)

    def take(self, order: npt.ArrayLike) -> "Loci":
        """Return some of the loci, by positions or by a mask."""
        chosen = np.asarray(order)
        return replace(self, chromosome=self.chromosome[chosen], position=self.position[chosen])


def name_chromosome(name: str) -> str:
    """Return the name of a chromosome without a prefix, as all spellings of it have it.

    Examples
    --------
    >>> [name_chromosome(name) for name in ("chr7", "07", "23", "chrM")]
    ['7', '7', 'X', 'MT']
    """
    plain = name[3:] if name[:3].lower() == "chr" else name
    plain = str(int(plain)) if plain.isdecimal() else plain.upper()
    return {"23": "X", "24": "Y", "25": "XY", "26": "MT", "M": "MT"}.get(plain, plain)


def find_loci(rows: Any) -> Loci | None:
    """Return the loci of a table of genotypes; None for other tables."""
    found: Loci | None = getattr(rows, "loci", None)
    return found
