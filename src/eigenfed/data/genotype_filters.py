"""Lists of people and variants that a genotype file is restricted to, as PLINK has them."""

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

import numpy as np

from eigenfed.arrays import Flags
from eigenfed.errors import Argument, DataError, InputError, Pass

PathLike = str | os.PathLike[str]


@dataclass(frozen=True)
class GenotypeFilters:
    """Lists of people and variants, as files.

    Parameters
    ----------
    keep, remove : path, optional
        People to use, or to leave out: the first two columns are family and person.
    extract, exclude_variants : path, optional
        Variants to use, or to leave out: an identifier on each line.
    no_fit : path, optional
        People who are projected and not fitted, such as relatives of others.
    manifest : path, optional
        A ``.bim`` file with the variants of a study, to which the file's own are matched by
        chromosome, position and alleles (`eigenfed.data.harmonise`).
    ambiguous : {"drop", "keep"}, default="drop"
        Whether variants with the alleles A and T, or C and G, are left out when matching, or taken
        as if all sites had read the same strand.

    Notes
    -----
    A list may name people and variants that a file does not have, so that one list serves all
    sites. With several lists, what any of them leaves out is left out.

    Examples
    --------
    >>> GenotypeFilters(extract="pruned.prune.in").keep is None
    True
    """

    keep: PathLike | None = None
    remove: PathLike | None = None
    extract: PathLike | None = None
    exclude_variants: PathLike | None = None
    no_fit: PathLike | None = None
    manifest: PathLike | None = None
    ambiguous: str = "drop"

    def __post_init__(self) -> None:
        if self.ambiguous not in ("drop", "keep"):
            raise InputError(
                Argument("ambiguous", self.ambiguous),
                " must be 'drop' or 'keep'",
                remedy="Pass one of them.",
            )
        if self.ambiguous == "keep" and self.manifest is None:
            raise InputError(
                Argument("ambiguous", "keep"),
                " is about variants that are matched to a manifest",
                remedy=("Drop it, or ", Pass("manifest", ...), "."),
            )

    @property
    def given(self) -> dict[str, Any]:
        """The lists that are given, and other settings that are not the default, by name."""
        found = {field.name: (getattr(self, field.name), field.default) for field in fields(self)}
        return {name: value for name, (value, default) in found.items() if value != default}

    def select_people(self, people: Sequence[tuple[str, str]]) -> tuple[Flags, Flags]:
        """Return which people are used, and which of all are not excluded from the fit."""
        used = _select_listed(people, self.keep, self.remove, _read_people)
        return used, ~_find_listed(people, self.no_fit, _read_people)

    def describe_left(self, path: Path, kept: Flags, fitted: Flags, used: Flags) -> tuple[str, ...]:
        """Return in a sentence how many people and variants the lists leave out, if there are any.

        Examples
        --------
        >>> some, all_ = np.array([True, False]), np.array([True, True])
        >>> GenotypeFilters(remove="gone.txt").describe_left(Path("a.bed"), some, all_, all_)
        ('a.bed: of 2 people, 1 left out.',)
        """
        people, parts = [], []
        if self.keep is not None or self.remove is not None:
            people.append(f"{np.count_nonzero(~kept)} left out")
        if self.no_fit is not None:
            people.append(f"{np.count_nonzero(kept & ~fitted)} projected only")
        if people:
            parts.append(f"of {len(kept)} people, {' and '.join(people)}")
        if self.extract is not None or self.exclude_variants is not None:
            parts.append(f"of {len(used)} variants, {np.count_nonzero(~used)} left out")
        return (f"{path.name}: {'; '.join(parts)}.",) if parts else ()

    def select_variants(self, identifiers: Sequence[str]) -> Flags:
        """Return which variants are used."""
        return _select_listed(identifiers, self.extract, self.exclude_variants, _read_words)


def _select_listed(
    keys: Sequence[Any],
    used: PathLike | None,
    left: PathLike | None,
    read: Callable[[Path], set[Any]],
) -> Flags:
    """Return which keys a list names, if there is one, and another list does not."""
    kept = np.ones(len(keys), dtype=np.bool_) if used is None else _find_listed(keys, used, read)
    return kept & ~_find_listed(keys, left, read)


def _find_listed(
    keys: Sequence[Any], path: PathLike | None, read: Callable[[Path], set[Any]]
) -> Flags:
    if path is None:
        return np.zeros(len(keys), dtype=np.bool_)
    listed = read(Path(path))
    return np.fromiter((key in listed for key in keys), dtype=np.bool_, count=len(keys))


def _read_people(path: Path) -> set[Any]:
    """Return pairs of family and person; a line with a single word names a person by it twice."""
    lines = [line.split() for line in _read_text(path).splitlines()]
    found = [(fields[0], fields[min(1, len(fields) - 1)]) for fields in lines if fields]
    return {pair for pair in found if not pair[0].startswith("#")}


def _read_words(path: Path) -> set[Any]:
    return set(_read_text(path).split())


def _read_text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        raise InputError(f"{path} cannot be read. Check the path of the list.") from None
    except UnicodeDecodeError:
        raise DataError(f"{path} is not a list in UTF-8. Write it again.") from None
