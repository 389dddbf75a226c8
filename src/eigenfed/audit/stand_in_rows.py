"""Rows that stand in for those of other sites in an attack, and how near a guess comes to a site's.

Genotypes are drawn variant by variant from frequencies: those that the attacked site has, so that
filters of variants decide as they would among similar sites.
"""

from dataclasses import replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.packed_rows import view_rows
from eigenfed.data.prepared import Prepared
from eigenfed.data.prepared_rows import Preparation, prepare_source
from eigenfed.data.source import Source
from eigenfed.linalg.genotype_codes import pack_copies
from eigenfed.privacy.leakage import Meter

_LIAR_ROWS, _LIAR_VARIANTS = 200, 240
_TILE = 1024
_MISSING = 0.01


def take_some(source: Source, least: int) -> Source:
    """Return a part of a site's rows that is small enough for many copies of the site.

    Parameters
    ----------
    source : Source
    least : int
        Number of rows that the site must have to take part. Genotypes stay packed, so that all
        people are taken, with some of their variants.

    Examples
    --------
    >>> take_some(Source.of(np.ones((900, 3))), least=10).n
    200
    """
    if isinstance(source.X, Genotypes):
        step = -(-source.d // _LIAR_VARIANTS)
        places = np.arange(0, source.d, step)
        names = None if source.names is None else tuple(source.names[place] for place in places)
        return Source(source.X.select_variants(places), source.weights, names)
    count = min(source.n, max(_LIAR_ROWS, least))
    weights = None if source.weights is None else source.weights[:count]
    return Source(source.X[:count], weights, source.names)


def simulate_rows(source: Source, seed: int, *, counts: bool = False) -> Source:
    """Return random rows of the same shape and the same largest entry.

    Genotypes have the frequencies of the site: a site with others could exceed the bounds of secure
    sums that the site has declared, and then leave the run.

    Parameters
    ----------
    source : Source
    seed : int
    counts : bool
        Whether entries must not be negative.
    """
    if isinstance(source.X, Genotypes):
        return replace(source, X=_draw_genotypes(source.X, seed))
    rng = np.random.default_rng(seed)
    rows = rng.uniform(-0.5, 0.5, (source.n, source.d))
    largest = max((float(np.nanmax(np.abs(b), initial=0.0)) for b, _ in source.blocks()), default=0)
    rows *= largest
    if rows.size:
        rows.flat[0] = largest
    return Source(np.abs(rows) if counts else rows, source.weights, source.names)


def _find_frequencies(table: Genotypes) -> Array:
    """Return the frequencies of the counted alleles, (d,), never 0 or 1."""
    found: Array = (table.counts.copies + 0.5) / (2.0 * table.counts.observed + 1.0)
    return found


def _draw_genotypes(table: Genotypes, seed: int) -> Genotypes:
    """Draw people, with missing genotypes, at the variants that the site has."""
    rng = np.random.default_rng(seed)
    frequencies = _find_frequencies(table)
    n, d = table.shape
    packed = np.empty((d, -(-n // 4)), dtype=np.uint8)
    for start in range(0, d, _TILE):
        part = frequencies[start : start + _TILE]
        copies = rng.binomial(2, part, (n, len(part))).astype(np.int8)
        copies[rng.random(copies.shape) < _MISSING] = -1
        packed[start : start + _TILE] = pack_copies(copies)
    return replace(
        table,
        packed=packed,
        people=np.arange(n),
        places=np.where(table.places < 0, -1, np.arange(d)),
        swapped=np.zeros(d, dtype=np.bool_),
    )


def compare_guess(meter: Meter, source: Source, known: Preparation) -> float | None:
    """Return the relative error of the best guess of a site's scatter; None if there is none.

    Parameters
    ----------
    meter : Meter
        What the guess is made from.
    source : Source
        The site's rows.
    known : Preparation
        How they were prepared.
    """
    if meter.whole:
        return 0.0
    if not meter.basis.shape[1]:
        return None
    inner = meter.basis.T @ meter.images
    images = meter.images if known.selected is None else meter.images[known.selected]
    root = np.linalg.pinv((inner + inner.T) / 2, hermitian=True).astype(np.float64)
    rows = prepare_source(source, known)
    mean = rows.totals().mean
    if isinstance(rows.X, Genotypes):
        return _compare_packed(rows, mean, images, root)
    truth = Prepared(rows, mean, np.ones(rows.d)).scatter()
    size = float(np.linalg.norm(truth))
    return float(np.linalg.norm(images @ root @ images.T - truth)) / size if size else None


def _compare_packed(rows: Source, mean: Array, images: Array, root: Array) -> float | None:
    """Compare without a matrix of variants x variants, of which there may be very many."""
    spread = root @ (images.T @ images)
    overlap = root @ (images.T @ view_rows(rows, mean, np.ones(rows.d)).product(images))
    size = _square_scatter(rows, mean)
    # With T the scatter and G = A R A' the guess: |G - T|^2 = |G|^2 - 2 <G, T> + |T|^2.
    away = float(np.trace(spread @ spread) - 2.0 * np.trace(overlap)) + size
    return float(np.sqrt(max(away, 0.0) / size)) if size else None


def _square_scatter(rows: Source, mean: Array) -> float:
    """Return the squared norm of D'W D, which is that of the people x people matrix of the same."""
    weights = np.ones(rows.n) if rows.weights is None else rows.weights
    products = np.zeros((rows.n, rows.n))
    for start in range(0, rows.d, _TILE):
        span = slice(start, start + _TILE)
        part = np.nan_to_num(rows.X.dosages(span) - mean[span]) * np.sqrt(weights)[:, None]
        products += part @ part.T
    return float(np.sum(products**2))
