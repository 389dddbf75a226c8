"""PLINK 1 files: ``.bed``, ``.bim`` and ``.fam``, mapped, checked and selected by lists.

A ``.bed`` file holds three bytes that say what it is, then the genotypes in packed form, a variant
after the other (`eigenfed.data.genotypes`). The ``.bim`` and ``.fam`` files beside it, of the same
name, hold a line for each variant and for each person. Their text is never quoted in a message.
"""

import os
import stat
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from hashlib import sha256
from pathlib import Path
from sys import intern
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Flags
from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.genotypes import Genotypes, Samples, Variants
from eigenfed.data.harmonise import (
    ABSENT,
    describe_matches,
    make_unmatched_error,
    match_variants,
)
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError

_MAGIC = b"\x6c\x1b"
_BY_VARIANT = b"\x01"
_FIELDS = 6


@dataclass(frozen=True, eq=False, repr=False)
class PlinkFile:
    """An open PLINK file.

    Attributes
    ----------
    path : Path
        Of the ``.bed`` file.
    genotypes : Genotypes
        People x variants, mapped.
    variants : Variants
    samples : Samples
    fitted : ndarray of bool, shape (n,)
        Whether a person is fitted, or only projected.
    notes : tuple of str
        What lists and a manifest have left, for whoever opens the file.
    """

    path: Path
    genotypes: Genotypes
    variants: Variants
    samples: Samples
    fitted: Flags
    notes: tuple[str, ...] = ()

    @cached_property
    def source(self) -> Source:
        """The people as rows; those that are not fitted have the weight 0."""
        weights = None if self.fitted.all() else self.fitted.astype(np.float64)
        genotypes = self.genotypes
        if genotypes.loci is None:
            loci = self.variants.loci
            genotypes = replace(genotypes, loci=loci)
        return Source(genotypes, weights, self.variants.names)

    @property
    def row_ids(self) -> tuple[str, ...]:
        """Family and person of each row, with a space between them."""
        pairs = zip(self.samples.family, self.samples.person, strict=True)
        return tuple(f"{family} {person}" for family, person in pairs)

    def take_variants(
        self, order: npt.ArrayLike, swapped: npt.ArrayLike | None = None
    ) -> "PlinkFile":
        """Return some variants in another order.

        Parameters
        ----------
        order : array-like of int or bool
            Positions of the variants, or a mask.
        swapped : array-like of bool, optional
            For each of them, whether the other allele is to be counted.
        """
        return replace(
            self,
            genotypes=self.genotypes.select_variants(order, swapped),
            variants=self.variants.take(order, swapped),
        )

    def match(self, manifest: Variants, *, ambiguous: str = "drop") -> "PlinkFile":
        """Return the variants of a manifest, as far as the file has them; others are missing."""
        found = match_variants(self.variants, manifest, ambiguous=ambiguous)
        absent = found.places == ABSENT
        if absent.all():
            raise make_unmatched_error(self.path, found.counts)
        table = self.genotypes.select_variants(np.where(absent, 0, found.places), found.swapped)
        loci = manifest.loci
        table = replace(
            table,
            places=np.where(absent, ABSENT, table.places),
            loci=replace(loci, matched=found.counts),
        )
        notes = (*self.notes, describe_matches(self.path, found.counts))
        return replace(self, genotypes=table, variants=manifest, notes=notes)

    def take_named(self, names: Sequence[str]) -> "PlinkFile":
        """Return the variants of these names, in this order.

        Where a name counts the other allele of a variant, its copies are counted.
        """
        if list(names) == list(self.variants.names):
            return self
        places = {name: place for place, name in enumerate(self.variants.names)}
        everything = np.arange(len(self.variants))
        turned = self.variants.take(everything, np.ones(len(everything), np.bool_))
        others = {name: place for place, name in enumerate(turned.names)}
        absent = sum(name not in places and name not in others for name in names)
        if absent:
            raise InputError(
                f"{self.path} lacks {absent} of the {len(names)} variants, or has other alleles "
                "of them. Match them to a manifest, a .bim file with the variants of the study."
            )
        swapped = [name not in places for name in names]
        order = [
            others[name] if other else places[name]
            for name, other in zip(names, swapped, strict=True)
        ]
        return self.take_variants(np.array(order, dtype=np.int64), swapped)


def read_plink(path: str | os.PathLike[str], filters: GenotypeFilters | None = None) -> PlinkFile:
    """Open a PLINK file.

    Parameters
    ----------
    path : path
        Of the ``.bed`` file; the ``.bim`` and ``.fam`` files must be beside it.
    filters : GenotypeFilters, optional

    Returns
    -------
    PlinkFile
        Genotypes are mapped, not read.

    Raises
    ------
    InputError
        If a file is missing, or nobody or no variant is left.
    DataError
        If a file is not what it claims to be.
    """
    path = Path(path)
    filters = filters or GenotypeFilters()
    variants, samples = read_variants(path), _read_samples(path)
    genotypes = Genotypes.of(_map_bed(path, len(samples), len(variants)), len(samples))
    kept, fitted = filters.select_people(_pair(samples))
    used = filters.select_variants(variants.identifier.tolist())
    if not (kept & fitted).any() or not used.any():
        what = "people" if used.any() else "variants"
        raise InputError(f"No {what} of {path} are left by the lists. Check the lists.")
    notes = filters.describe_left(path, kept, fitted, used)
    opened = PlinkFile(path, genotypes, variants, samples, fitted, notes)
    if not kept.all():
        opened = replace(
            opened,
            genotypes=genotypes.select_people(kept),
            samples=samples.take(kept),
            fitted=fitted[kept],
        )
    opened = opened if used.all() else opened.take_variants(np.flatnonzero(used))
    if filters.manifest is None:
        return opened
    return opened.match(read_manifest(filters.manifest), ambiguous=filters.ambiguous)


def read_manifest(path: str | os.PathLike[str]) -> Variants:
    """Read the variants of a study from a ``.bim`` file."""
    if Path(path).suffix != ".bim":
        raise InputError(f"The manifest {path} must be a .bim file, with the variants of a study.")
    about = _check_file(Path(path))
    return _load_variants(Path(path), about.st_mtime_ns, about.st_size)


def read_variants(path: Path, filters: GenotypeFilters | None = None) -> Variants:
    """Read the variants of a ``.bed`` file that lists leave, from the ``.bim`` file beside it."""
    if filters is not None and filters.manifest is not None:
        return read_manifest(filters.manifest)
    beside = path.with_suffix(".bim")
    about = _check_file(beside)
    variants = _load_variants(beside, about.st_mtime_ns, about.st_size)
    used = (filters or GenotypeFilters()).select_variants(variants.identifier.tolist())
    return variants if used.all() else variants.take(used)


@lru_cache(maxsize=16)
def _load_variants(path: Path, changed: int, size: int) -> Variants:
    """Read a ``.bim`` file, once: names are needed before the genotypes are opened."""
    data = _read_bytes(path)
    digest = sha256(data).digest()
    variants = _PARSED.get(digest)
    if variants is None:
        variants = _PARSED[digest] = _parse_variants(path, data)
    return variants


_PARSED: WeakValueDictionary[bytes, Variants] = WeakValueDictionary()
"""Variants by the digest of their file: sites in one process often have the same ones."""


def _parse_variants(path: Path, data: bytes) -> Variants:
    chromosome, identifier, _, position, a1, a2 = _split_fields(path, data)
    if not position:
        raise DataError(f"{path} has no variants. Pass a file with some.")
    try:
        places = np.array(list(map(int, position)), dtype=np.int64)
    except (ValueError, OverflowError):
        raise _malformed_error(path) from None
    variants = Variants(
        _as_objects(chromosome), _as_objects(identifier), places, _as_objects(a1), _as_objects(a2)
    )
    if len(set(variants.names)) < len(variants):
        raise DataError(
            f"{path} names a variant more than once. Give every variant an identifier of its own."
        )
    return variants


def _read_samples(path: Path) -> Samples:
    beside = path.with_suffix(".fam")
    _check_file(beside)
    family, person, *_ = _split_fields(beside, _read_bytes(beside))
    samples = Samples(_as_objects(family), _as_objects(person))
    if len(set(_pair(samples))) < len(samples):
        raise DataError(
            f"{beside} names a person more than once. Give everybody an identifier of their own."
        )
    return samples


def _read_bytes(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        raise InputError(f"{path} cannot be read. Ask its owner for read access.") from None


def _split_fields(path: Path, data: bytes) -> list[list[str]]:
    """Return the columns of a file that has six fields on every line; lines may be empty."""
    codes = np.frombuffer(data + b"\n", np.uint8)
    is_space = codes <= ord(" ")
    starts = ~is_space
    starts[1:] &= is_space[:-1]
    # The number of fields that have begun before each end of a line.
    before = np.searchsorted(np.flatnonzero(starts), np.flatnonzero(codes == ord("\n")))
    try:
        fields = data.decode("utf-8").split()
    except UnicodeDecodeError:
        fields = []
    is_table = not (before % _FIELDS).any() and (np.diff(before, prepend=0) <= _FIELDS).all()
    if not is_table or len(fields) != before[-1]:
        raise _malformed_error(path)
    return [fields[column::_FIELDS] for column in range(_FIELDS)]


def _malformed_error(path: Path) -> DataError:
    return DataError(
        f"{path} must have six fields on every line, the fourth of a .bim file an integer. "
        "Write it again with plink --make-bed."
    )


def _map_bed(path: Path, people: int, variants: int) -> npt.NDArray[np.uint8]:
    """Map the packed genotypes of a file that has exactly the size they need."""
    about = _check_file(path)
    width = -(-people // 4)
    with path.open("rb") as file:
        head = file.read(3)
        if head[:2] != _MAGIC:
            raise DataError(f"{path} is not a PLINK 1 file. Convert it with plink2 --make-bed.")
        if head[2:] != _BY_VARIANT:
            raise DataError(
                f"{path} stores one person after the other. Convert it with plink --make-bed."
            )
        if not people or not variants:
            raise DataError(f"{path} has no people or no variants. Pass a file with both.")
        if about.st_size != len(head) + width * variants:
            raise DataError(
                f"{path} does not have the size that the people and variants of the files beside "
                "it need. Pass three files that belong together."
            )
        return np.memmap(file, np.uint8, mode="r", offset=len(head), shape=(variants, width))


def _check_file(path: Path) -> os.stat_result:
    """Return what is known of a regular file, and refuse one that is not there."""
    try:
        about = path.stat()
    except OSError:
        about = None
    if about is None or not stat.S_ISREG(about.st_mode):
        raise InputError(
            f"{path} is not there. A PLINK file is three files of one name: .bed, .bim and .fam."
        )
    return about


def _pair(samples: Samples) -> list[tuple[str, str]]:
    return list(zip(samples.family.tolist(), samples.person.tolist(), strict=True))


def _as_objects(words: list[str]) -> npt.NDArray[np.object_]:
    return np.array(list(map(intern, words)), dtype=object)
