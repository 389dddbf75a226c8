"""A site's variants matched to the manifest of a study, by chromosome, position and alleles.

Files of different arrays and pipelines name the same variant differently, count the other allele,
or read the other strand. A variant of the manifest and one of the site at the same place are
compared by their alleles:

=============  =================================================================================
same           the same alleles, the same one counted
swapped        the same alleles, the other one counted: copies c become 2 - c
flipped        the alleles of the other strand: A for T, C for G
flip_swapped   both
ambiguous      A and T, or C and G: the alleles of one strand are those of the other, and nothing
               tells which was read. Left out, unless the study takes them as they are written
other_alleles  other alleles at the same place. Left out
duplicate      several variants of the site match. Left out: which one is right is not known
absent         no variant at that place
=============  =================================================================================

The names of variants are not compared. Everything is decided at the site. What leaves is how many
variants fell into each class, and which ones the site can use (`protocol.exact.variant_counts`).
"""

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenfed.arrays import Flags, Integers
from eigenfed.data.genotypes import Variants
from eigenfed.data.loci import name_chromosome
from eigenfed.errors import DataError, InputError, Pass

CLASSES = (
    "same",
    "swapped",
    "flipped",
    "flip_swapped",
    "ambiguous",
    "other_alleles",
    "duplicate",
    "absent",
)
"""How a variant of the manifest can be matched."""
_SAME, _SWAPPED, _FLIPPED, _FLIP_SWAPPED, _AMBIGUOUS, _OTHER, _DUPLICATE, _ABSENT = range(8)
_COMPLEMENT = {"A": "T", "T": "A", "C": "G", "G": "C"}
_UNKNOWN = "0"
"""PLINK's name of an allele that nobody has."""
ABSENT = -1
"""Place of a variant that a site cannot use."""


@dataclass(frozen=True, eq=False, repr=False)
class Matches:
    """How a site's variants were matched to the manifest.

    Attributes
    ----------
    places : ndarray of int64, shape (d,)
        For each variant of the manifest, its place among the site's; -1 if it cannot be used.
    swapped : ndarray of bool, shape (d,)
        Whether the other allele must be counted.
    counts : ndarray of int64, shape (8,)
        How many variants of the manifest are in each of `CLASSES`.
    """

    places: Integers
    swapped: Flags
    counts: Integers


def match_variants(own: Variants, manifest: Variants, *, ambiguous: str = "drop") -> Matches:
    """Match a site's variants to those of a manifest.

    Parameters
    ----------
    own, manifest : Variants
    ambiguous : {"drop", "keep"}, default="drop"
        Whether variants with the alleles A and T, or C and G, are left out, or taken as if all
        sites had read the same strand.

    Raises
    ------
    DataError
        If the manifest has a variant twice.

    Examples
    --------
    >>> def make(*rows):
    ...     columns = [np.array(column, dtype=object) for column in zip(*rows)]
    ...     return Variants(columns[0], columns[1], columns[2].astype(int), *columns[3:])
    >>> manifest = make(("1", "a", 10, "A", "G"), ("1", "b", 20, "C", "T"), ("2", "c", 5, "A", "T"))
    >>> own = make(("chr1", "x", 20, "A", "G"), ("1", "y", 10, "G", "A"), ("2", "z", 5, "A", "T"))
    >>> found = match_variants(own, manifest)
    >>> found.places, found.swapped
    (array([ 1,  0, -1]), array([ True,  True, False]))
    >>> dict(zip(CLASSES, found.counts.tolist()))["ambiguous"]
    1
    """
    by_place: dict[tuple[str, int], list[int]] = defaultdict(list)
    for index, key in enumerate(_list_keys(own)):
        by_place[key].append(index)
    alleles = _list_alleles(own)
    d = len(manifest)
    places = np.full(d, ABSENT, dtype=np.int64)
    kinds = np.full(d, _ABSENT, dtype=np.int64)
    seen: set[tuple[tuple[str, int], frozenset[str]]] = set()
    rows = zip(_list_keys(manifest), _list_alleles(manifest), strict=True)
    for index, (key, (a1, a2)) in enumerate(rows):
        pair = key, frozenset((a1, a2))
        if pair in seen:
            raise DataError(
                "The manifest has a variant more than once, by chromosome, position and alleles. "
                "Name each variant once."
            )
        seen |= {pair, (key, frozenset(_flip(a1, a2)))}
        found = by_place.get(key, [])
        if found:
            chosen = _choose(found, alleles, a1, a2, keeps=ambiguous == "keep")
            kinds[index], places[index] = chosen
    swapped = np.isin(kinds, (_SWAPPED, _FLIP_SWAPPED))
    counts = np.bincount(kinds, minlength=len(CLASSES))
    return Matches(places, swapped, counts)


def make_unmatched_error(path: Path, counts: Integers) -> InputError:
    """Return the error for a file of which no variant of the manifest can be used."""
    if not counts[_AMBIGUOUS]:
        return InputError(
            f"{path} has none of the variants of the manifest, by chromosome, position and "
            "alleles. Check that both refer to the same build of the genome."
        )
    return InputError(
        f"{describe_matches(path, counts)} None can be used: A and T, or C and G, do not tell "
        "which strand was read",
        remedy=(Pass("ambiguous", "keep"), " if all sites have read the same."),
    )


def describe_matches(path: Path, counts: Integers) -> str:
    """Return in a sentence how the variants of a file were matched to the manifest.

    Examples
    --------
    >>> describe_matches(Path("a.bed"), np.array([7, 2, 0, 0, 0, 0, 0, 1]))
    'a.bed: of 10 variants of the manifest, 7 same, 2 swapped, 1 absent.'
    """
    total = int(counts.sum())
    doubt = ""
    if counts[_ABSENT] + counts[_OTHER] > total / 2:
        doubt = " Check that both refer to the same build of the genome."
    named = zip(CLASSES, counts.tolist(), strict=True)
    found = ", ".join(f"{n} {name.replace('_', ' ')}" for name, n in named if n)
    return f"{path.name}: of {total} variants of the manifest, {found}.{doubt}"


def _choose(
    found: list[int], alleles: Sequence[tuple[str, str]], a1: str, a2: str, *, keeps: bool
) -> tuple[int, int]:
    """Return the class of a variant of the manifest, and its place among the site's."""
    kinds = [_compare(*alleles[index], a1, a2) for index in found]
    fitting = [(kind, index) for kind, index in zip(kinds, found, strict=True) if kind != _OTHER]
    if not fitting:
        return _OTHER, ABSENT
    if len(fitting) > 1:
        return _DUPLICATE, ABSENT
    if _COMPLEMENT.get(a1) == a2 and not keeps:
        return _AMBIGUOUS, ABSENT
    return fitting[0]


def _compare(own1: str, own2: str, a1: str, a2: str) -> int:
    """Return how a pair of alleles matches that of the manifest; as it is written, if it can."""
    for strand, kinds in (((own1, own2), (_SAME, _SWAPPED)), (_flip(own1, own2), _FLIPS)):
        if _fits(*strand, a1, a2):
            return kinds[0]
        if _fits(*strand, a2, a1):
            return kinds[1]
    return _OTHER


_FLIPS = _FLIPPED, _FLIP_SWAPPED


def _fits(own1: str, own2: str, a1: str, a2: str) -> bool:
    """Return whether alleles are the same; one that nobody has may be any but the other."""
    one = own1 == a1 or (own1 == _UNKNOWN and own2 == a2)
    other = own2 == a2 or (own2 == _UNKNOWN and own1 == a1)
    return one and other


def _flip(own1: str, own2: str) -> tuple[str, str]:
    """Return the alleles of the other strand; only single bases have one that is certain."""
    if {own1, own2} <= {*_COMPLEMENT, _UNKNOWN}:
        return _COMPLEMENT.get(own1, _UNKNOWN), _COMPLEMENT.get(own2, _UNKNOWN)
    return "", ""


def _list_keys(variants: Variants) -> list[tuple[str, int]]:
    plain = {name: name_chromosome(name) for name in set(variants.chromosome.tolist())}
    names = [plain[name] for name in variants.chromosome.tolist()]
    return list(zip(names, variants.position.tolist(), strict=True))


def _list_alleles(variants: Variants) -> list[tuple[str, str]]:
    pairs = zip(variants.a1.tolist(), variants.a2.tolist(), strict=True)
    return [(a1.upper(), a2.upper()) for a1, a2 in pairs]
