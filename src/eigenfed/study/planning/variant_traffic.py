"""Traffic of products of neighbouring variants, which the step ``ld`` sums over all sites.

How many products there are follows from where variants lie, or from a window that is a number of
variants. Steps that decide from counts are assumed to remove nothing, so that the forecast is an
upper bound; those that decide from places are applied.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.data.loci import Loci
from eigenfed.data.long_range_ld import find_in_regions
from eigenfed.data.variant_steps import Autosomes, ExcludeLongRangeLd, Matched, PruneLd
from eigenfed.privacy.revealed_products import RevealedEntries
from eigenfed.protocol.exact.covariance import Covariance
from eigenfed.protocol.exact.variant_products import find_ends, find_tile_end
from eigenfed.protocol.secure.aggregation import AHEAD
from eigenfed.protocol.study import Study
from eigenfed.study.planning.traffic import simulate_preparation
from eigenfed.study.planning.trial_runs import Traffic, extrapolate_sites, select_largest

_VARIANTS = 211
_NUMBER = 8
_PLANE_BYTES = 2
"""Of a genotype as bits, with those that they are made from."""
_SUM = ("variant_products", "sum_survivors", "sum_unmask")
_KEYS = ("sum_keys", "sum_shares")


@dataclass(frozen=True)
class WindowProducts:
    """How many products of variants in a window there are at most.

    Attributes
    ----------
    variants : int
        Variants whose products are summed.
    pairs : int
        Products of two of them.
    tiles : int
        Replies in which they are sent.
    widest : int
        Variants in the largest window.
    reach : int
        Variants of the largest tile, with those that follow in its windows.
    """

    variants: int
    pairs: int
    tiles: int
    widest: int
    reach: int

    def site_bytes(self, rows: int) -> int:
        """Return the memory that a site needs for them, next to its packed genotypes."""
        products = 2 * self.pairs // max(self.tiles, 1) + 4 * self.variants
        return _PLANE_BYTES * rows * self.reach + _NUMBER * products

    def directions(self, rows: int) -> int:
        """Return how many directions reveal as many numbers about a site with so many rows.

        Windows of more variants than people determine the whole covariance, as in a site's meter.
        """
        if self.widest > rows:
            return self.variants
        return RevealedEntries(self.pairs).worth(self.variants)


def count_products(study: Study, d: int, loci: Loci | None) -> WindowProducts | None:
    """Count the products of neighbouring variants that a study sums at most.

    Parameters
    ----------
    study : Study
    d : int
        Number of variants.
    loci : Loci or None
        Where they lie, if there is a manifest.

    Returns
    -------
    WindowProducts or None
        None without the step ``ld``, or if windows have a length and nothing is known of places.

    Examples
    --------
    >>> study = Study(("a", "b"), 2, prepare=["ld:50:0.1"])
    >>> count_products(study, 1000, None).pairs
    47775
    >>> count_products(Study(("a", "b"), 2, prepare=["ld:1000kb"]), 1000, None) is None
    True
    """
    step = next((step for step in study.prepare if isinstance(step, PruneLd)), None)
    if step is None or (loci is None and step.variants is None):
        return None
    if loci is None:
        loci = Loci(np.ones(d, dtype=np.int64), np.arange(d))
    else:
        loci = _keep_places(study, loci)
    ends = find_ends(study, loci)
    widths = ends - np.arange(len(ends))
    start = tiles = reach = 0
    while start < len(ends):
        stop = find_tile_end(ends, start)
        start, tiles, reach = stop, tiles + 1, max(reach, int(ends[stop - 1]) - start)
    pairs, widest = int(widths.sum()) - len(ends), int(widths.max(initial=0))
    return WindowProducts(len(ends), pairs, tiles, widest, reach)


def _keep_places(study: Study, loci: Loci) -> Loci:
    """Return the variants that steps keep which decide from places alone."""
    for step in study.prepare:
        if isinstance(step, Autosomes):
            loci = loci.take(loci.autosomal)
        elif isinstance(step, ExcludeLongRangeLd):
            loci = loci.take(~find_in_regions(loci, step.build))
    return loci


def forecast_products(study: Study, rows: dict[str, int], found: WindowProducts) -> Traffic:
    """Forecast what products of neighbouring variants add to the traffic of a run.

    One sum of a model run is measured, and what it has besides products counts for every tile.

    Parameters
    ----------
    study : Study
    rows : dict of str to int
        Number of rows of each site.
    found : WindowProducts

    Examples
    --------
    >>> study = Study(("a", "b"), 2, prepare=["ld:50:0.1"])
    >>> found = count_products(study, 1000, None)
    >>> forecast_products(study, {"a": 90, "b": 50}, found).rounds
    1
    """
    bare = replace(study, method=Covariance(), components=1, scale=False, by_site=False)
    model = replace(bare, prepare=(Matched(), PruneLd("2", 1.0)))

    def measure(ops: Sequence[str]) -> Traffic:
        return extrapolate_sites(rows, lambda sites: _measure_rounds(model, sites, ops))

    if study.secure:
        one, keys = measure(_SUM), measure(_KEYS)
    else:
        one = _measure_rounds(model, select_largest(rows, 1), _SUM)
        keys = Traffic(0, 0, 0, 0, 0)
    batches = found.tiles // AHEAD
    requested = 2 * _NUMBER * _VARIANTS
    up = found.tiles * (one.up - _NUMBER * (_VARIANTS - 1)) + _NUMBER * found.pairs
    down = found.tiles * (one.down - requested) + 2 * _NUMBER * found.variants
    up, down = up + batches * keys.up, down + batches * keys.down
    return Traffic(
        found.tiles * one.rounds + batches * keys.rounds,
        up,
        down,
        (up + down) * len(rows),
        max(2 * _NUMBER * found.variants, _NUMBER * found.pairs // max(found.tiles, 1)),
    )


def _measure_rounds(study: Study, sites: dict[str, int], ops: Sequence[str]) -> Traffic:
    """Return the traffic of successive rounds of a model run, the first of each operation."""
    trace = simulate_preparation(study, list(sites), {}, _VARIANTS)
    order = [(e.round, e.op) for e in trace.exchanges]
    start = min(round_ for round_, op in order if op == ops[0])
    rounds = {min((r for r, name in order if name == op and r >= start), default=-1) for op in ops}
    chosen = tuple(e for e in trace.exchanges if e.round in rounds)
    return Traffic.of(replace(trace, exchanges=chosen), sites)
