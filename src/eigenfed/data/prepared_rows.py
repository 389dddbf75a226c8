"""Rows after the steps of a preparation, without a second table of dense rows.

Dense rows are prepared block by block whenever they are read, unless the result is small. Sparse
rows stay sparse: their entries that are not stored stay 0 through every step, and only the values
of the others are computed, once. For the last step that needs a change of origin: the standardised
entry ``z = clip((x - mean) / sd, -c, c)`` of a 0 is a number ``z0`` for each feature. Components do
not depend on the origin, so sites work with ``z - z0``, which is 0 where x is 0 and lies between
-2 c and 2 c, and `Preparation.origin` is added to the mean at the end.

A step is defined for every row, so that none fails at a site, where failing would reveal something:
of negative entries, which estimators refuse, totals and logarithms are those of the magnitudes.
"""

from dataclasses import dataclass, replace
from functools import cached_property
from hashlib import sha256
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Array, Integers
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.source import LazyTable, Source, split_stored
from eigenfed.data.steps import (
    Log1p,
    NormalizeCounts,
    SelectVariable,
    Standardize,
    count_features,
    filters_variants,
    write_steps,
)
from eigenfed.data.variant_filters import Attrition
from eigenfed.data.variant_steps import VariantStep
from eigenfed.errors import InputError, Name
from eigenfed.linalg.sparse_rows import (
    ScatteredSparse,
    gather,
    merge_duplicates,
    slice_rows,
    split_rows,
)

_BLOCK_BYTES = 12 << 20
_PARTS, _LEAST_ENTRIES = 32, 1 << 17
"""Into how many parts sparse rows are split to prepare them, and how many entries each has."""
_SMALL = 0.2
"""Prepared rows are stored if they need at most this fraction of the memory of the rows."""


@dataclass(frozen=True, eq=False, repr=False)
class Preparation:
    """Steps, with the figures over all sites that are known so far.

    Attributes
    ----------
    steps : tuple of PrepareStep
    selected : ndarray of int64 or None
        Positions of the features that are kept, in increasing order.
    center, spread : ndarray of shape (d,) or None
        Means and standard deviations for the last step.
    attrition : tuple of Attrition
        How many variants of genotypes each step has removed, as far as that is known.
    matched : ndarray of int64 or None
        How variants were matched to the study's manifest, over all sites, in the order of
        `eigenfed.data.harmonise.CLASSES`.
    weight : float or None
        Weight of the people whose genotypes were counted, if they were.

    Examples
    --------
    >>> known = Preparation((NormalizeCounts(10.0), Log1p()))
    >>> known.apply(np.array([[1.0, 3.0]])).round(3)
    array([[1.253, 2.14 ]])
    """

    steps: tuple[PrepareStep, ...] = ()
    selected: Integers | None = None
    center: Array | None = None
    spread: Array | None = None
    attrition: tuple[Attrition, ...] = ()
    matched: Integers | None = None
    weight: float | None = None

    @property
    def missing(self) -> PrepareStep | None:
        """The first step whose figures are not known; None if all are."""
        for step in self.steps:
            if isinstance(step, SelectVariable | VariantStep) and self.selected is None:
                return step
            if isinstance(step, Standardize) and self.center is None:
                return step
        return None

    @cached_property
    def key(self) -> str:
        """Text that tells preparations apart; empty without steps.

        The figures that were received are part of it: they are not fixed by the steps, and with
        others the same directions reveal something else about the rows.
        """
        figures = [self.selected, self.center, self.spread]
        given = [sha256(figure.tobytes()).digest() for figure in figures if figure is not None]
        mark = ["figures:" + sha256(b"".join(given)).hexdigest()] if given else []
        return " ".join([*write_steps(self.steps), *mark])

    @property
    def filters_variants(self) -> bool:
        """Whether the steps filter the variants of genotypes."""
        return filters_variants(self.steps)

    @property
    def clip(self) -> float | None:
        """Largest magnitude of entries after all steps, about the origin; None if unknown."""
        last = self.steps[-1] if self.steps else None
        known = isinstance(last, Standardize) and self.center is not None
        return last.clip if known and isinstance(last, Standardize) else None

    @cached_property
    def bounds_digest(self) -> str:
        """Digest of the bounds at which entries are clipped; empty while there are none.

        The bound of a feature also depends on which features are selected, and on the steps.
        """
        return "" if self.clip is None else sha256(self.key.encode()).hexdigest()

    def width(self, d: int) -> int:
        """Return the number of features, of d, that rows have as far as figures are known."""
        if self.selected is None:
            return d
        return len(self.selected) if self.filters_variants else count_features(self.steps, d)

    def with_selected(self, selected: Integers) -> "Preparation":
        """Return the preparation with the features to keep."""
        return replace(self, selected=selected)

    def with_moments(self, center: Array, spread: Array) -> "Preparation":
        """Return the preparation with the means and standard deviations of its last step."""
        return replace(self, center=center, spread=spread)

    @cached_property
    def active(self) -> tuple[PrepareStep, ...]:
        """The steps that can be applied, a selection before logarithms: the result is the same."""
        stop = len(self.steps) if self.missing is None else self.steps.index(self.missing)
        found = list(self.steps[:stop])
        if self.filters_variants:
            return tuple(found[-1:])  # together they make one selection
        place = next((i for i, s in enumerate(found) if isinstance(s, SelectVariable)), 0)
        while place and isinstance(found[place - 1], Log1p):
            found[place - 1 : place + 1] = found[place], found[place - 1]
            place -= 1
        return tuple(found)

    @cached_property
    def origin(self) -> Array | None:
        """Standardised entries of 0, to be added to prepared rows; None for nothing."""
        return None if self.center is None else self._standardize(0.0, *self._moments)

    @property
    def _moments(self) -> tuple[Array, Array]:
        if self.center is None or self.spread is None:
            raise InputError("The figures of the last step are not known.")
        return self.center, self.spread

    def _standardize(self, values: Any, center: Array, spread: Array) -> Array:
        clip = next(step.clip for step in self.steps if isinstance(step, Standardize))
        found: Array = np.clip((values - center) / spread, -clip, clip)
        return found

    def apply(self, rows: npt.NDArray[Any]) -> Array:
        """Return dense rows after the steps, (m, width)."""
        found: Array = rows.astype(np.float64, copy=False)
        for step in self.active:
            match step:
                case NormalizeCounts(target=target):
                    total = np.nansum(np.abs(found), axis=1)
                    found = found / np.where(total > 0.0, total, target)[:, None] * target
                case Log1p():
                    found = _log1p(found)
                case SelectVariable() | VariantStep():
                    found = found[:, self.selected]
                case Standardize():
                    zero = self._standardize(0.0, *self._moments)
                    found = self._standardize(found, *self._moments) - zero
        return found

    def transform(self, rows: Any) -> Array:
        """Return some rows, dense or sparse, after all steps, as dense standardised entries."""
        is_sparse: bool = sparse.issparse(rows)
        found: Array = self.apply_sparse(rows).toarray() if is_sparse else self.apply(rows)
        return found if self.origin is None else found + self.origin

    def apply_sparse(self, rows: Any) -> Any:
        """Return sparse rows after the steps, a csr_array of float64.

        Each step changes a row by itself, and some rows are changed at a time.
        """
        found = gather(rows) if isinstance(rows, ScatteredSparse) else sparse.csr_array(rows)
        if not found.has_canonical_format:
            # The logarithm of an entry is not the sum of those of its parts.
            found = merge_duplicates(found.astype(np.float64))
        spans = list(split_rows(found.indptr, max(_LEAST_ENTRIES, found.nnz // _PARTS)))
        if len(spans) <= 1:
            return self._apply_to_part(found)
        parts = (self._apply_to_part(slice_rows(found, slice(*span))) for span in spans)
        if self.selected is not None:
            return sparse.vstack(list(parts), format="csr")
        values = np.empty(found.nnz)
        for (start, stop), part in zip(spans, parts, strict=True):
            values[found.indptr[start] : found.indptr[stop]] = part.data
        return sparse.csr_array((values, found.indices, found.indptr), shape=found.shape)

    def _apply_to_part(self, rows: Any) -> Any:
        found = rows.astype(np.float64, copy=False)
        for step in self.active:
            values = found.data
            match step:
                case NormalizeCounts(target=target):
                    total = _sum_magnitudes(found)
                    by_row = np.where(total > 0.0, total, target)
                    values = values / np.repeat(by_row, np.diff(found.indptr)) * target
                case Log1p():
                    values = _log1p(values)
                case SelectVariable() | VariantStep():
                    found = found[:, self.selected]
                    continue
                case Standardize():
                    center, spread = (figure[found.indices] for figure in self._moments)
                    values = self._standardize(values, center, spread)
                    values -= self._standardize(0.0, center, spread)
            found = sparse.csr_array((values, found.indices, found.indptr), shape=found.shape)
        return found

    def embed(self, directions: Array, d: int, fill: float = 0.0) -> Array:
        """Return numbers about the selected features as numbers about all d features."""
        if self.selected is None:
            return directions
        whole = np.full((d, *directions.shape[1:]), fill)
        whole[self.selected] = directions
        return whole


@dataclass(frozen=True, eq=False, repr=False)
class PreparedTable(LazyTable):
    """Dense rows that are prepared when they are read.

    Attributes
    ----------
    rows : ndarray of shape (n, d)
    preparation : Preparation
    """

    rows: npt.NDArray[Any]
    preparation: Preparation

    dtype = np.dtype(np.float64)

    def __post_init__(self) -> None:
        n, d = self.rows.shape
        object.__setattr__(self, "shape", (n, self.preparation.width(d)))

    def __getitem__(self, span: slice) -> Array:
        """Return some rows, prepared in blocks of at most 12 MB."""
        start, stop, _ = span.indices(len(self.rows))
        size = max(1, _BLOCK_BYTES // (8 * self.rows.shape[1]))
        found = np.empty((max(stop - start, 0), self.shape[1]))
        for first in range(start, stop, size):
            last = min(first + size, stop)
            found[first - start : last - start] = self.preparation.apply(self.rows[first:last])
        return found


def prepare_source(source: Source, preparation: Preparation) -> Source:
    """Return a source of the rows after the steps whose figures are known.

    Dense rows are prepared anew each time they are read, unless the prepared rows need at most
    12 MB or a fifth of the memory of the rows. Sparse rows are prepared once: the values take
    8 bytes for each stored entry, and the positions are shared unless features are selected.

    Examples
    --------
    >>> source = Source.of(sparse.csr_array([[0.0, 3.0], [1.0, 1.0]]))
    >>> prepare_source(source, Preparation((NormalizeCounts(6.0),))).X.toarray()
    array([[0., 6.],
           [3., 3.]])
    """
    if not preparation.active:
        return source
    names = source.names
    if names is not None and preparation.selected is not None:
        names = tuple(names[place] for place in preparation.selected)
    if isinstance(source.X, Genotypes):
        return Source(source.X[:, preparation.selected], source.weights, names)
    if source.is_sparse:
        return Source(preparation.apply_sparse(source.X), source.weights, names)
    table = PreparedTable(source.X, preparation)
    small = table.nbytes <= max(_BLOCK_BYTES, _SMALL * source.X.nbytes)
    return Source(table[:] if small else table, source.weights, names)


def is_negative(X: Any, steps: tuple[PrepareStep, ...]) -> bool:
    """Return whether an entry is below 0 and some step allows none.

    Parameters
    ----------
    X : ndarray or sparse array of shape (n, d)
    steps : tuple of PrepareStep

    Examples
    --------
    >>> is_negative(np.array([[-1.0]]), (Log1p(),)), is_negative(np.array([[-1.0]]), ())
    (True, False)
    """
    if not any(step.needs_counts for step in steps):
        return False
    return any(bool((part < 0.0).any()) for part in split_stored(X))


def make_count_error(name: str) -> InputError:
    """Return the error about a table with negative entries."""
    return InputError(
        f"{name} holds negative entries, and ",
        Name("prepare"),
        " has a step for counts, which are at least 0",
        remedy=(
            "Pass counts, or leave out the steps normalize and log1p and the flavors seurat "
            "and cell_ranger of select."
        ),
    )


def _log1p(values: Array) -> Array:
    """Return log(1 + x); for negative entries, the logarithm of the magnitude with their sign."""
    found: Array = np.log1p(np.abs(values))
    return np.copysign(found, values, out=found)


def _sum_magnitudes(rows: Any) -> Array:
    """Return the total of each sparse row, over observed entries."""
    values = np.abs(rows.data)
    values[np.isnan(values)] = 0.0
    place = np.repeat(np.arange(rows.shape[0]), np.diff(rows.indptr))
    return np.bincount(place, values, minlength=rows.shape[0]).astype(np.float64, copy=False)
