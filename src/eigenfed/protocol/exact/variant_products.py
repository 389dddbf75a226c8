"""Sums of products of neighbouring variants, from which their correlations over all sites follow.

===========  ==================================================================================
coordinator  sums over sites: the weight of people; for every two variants of a window, the
             product of their centred copies, over all people. These are entries of the scatter off
             its diagonal
site         the variants that passed the filters before, and their means over all sites
===========  ==================================================================================

Windows follow from the study and from where the variants lie, which all sites know: a request does
not name them. Products are sent tile by tile, from the first variant to the last, each once.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from eigenfed.arrays import Array, Integers
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import Loci
from eigenfed.data.source import Source
from eigenfed.data.variant_steps import PruneLd
from eigenfed.errors import InputError
from eigenfed.linalg.genotype_codes import pack_mask
from eigenfed.linalg.genotype_pairs import load_pair_kernel, make_planes, multiply_pairs
from eigenfed.linalg.ld_pruning import are_sorted, find_window_ends
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.revealed_products import RevealedEntries
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.exact.stages import check_subset
from eigenfed.protocol.operations import (
    Answer,
    Limits,
    Request,
    State,
    Terms,
    VariantState,
    check_finite,
    op,
)
from eigenfed.protocol.study import Study

TILE_PAIRS = 1 << 20
"""Most products in a reply, unless a single variant has more."""
_LARGEST_COPIES = 2.0


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VariantProductsReply:
    """Weight of the people, and sums of products of the pairs of a tile, in their order."""

    weight: float
    products: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class VariantProductsRequest(Request[VariantProductsReply]):
    """Request the products of the next tile of variants.

    Attributes
    ----------
    passed : ndarray of int64 or None
        Variants that passed the filters, in increasing order; sent with the first request.
    mean : ndarray or None
        Mean numbers of copies of those variants, over all sites; sent with the first request.
    """

    passed: Integers | None = None
    mean: Array | None = None

    op, reply = "variant_products", VariantProductsReply
    # The means decide how far the products lie from integers.
    noisy: ClassVar[bool] = True
    counts: ClassVar[frozenset[str]] = frozenset({"weight"})

    def check(self, terms: Terms, state: State) -> None:
        """Refuse variants or means that are not valid or sent again, and a tile after the last."""
        if state.variants is None or terms.loci is None:
            raise InputError("Counts of genotypes come before products.")
        known = state.variants.passed
        if (self.passed is None, self.mean is None) != ((known is not None),) * 2:
            raise InputError("The variants and their means are sent once, with the first request.")
        if self.passed is not None and self.mean is not None:
            check_subset("passed", self.passed, terms.d)
            check_finite("mean", self.mean, self.passed.shape, largest=_LARGEST_COPIES)
            if not (self.mean >= 0.0).all():
                raise InputError("mean must be at least 0.")
            known = self.passed
        if known is None or state.variants.start >= len(known):
            raise InputError("There is no further tile of variants.")
        if not are_sorted(terms.loci.chromosome, terms.loci.position):
            raise InputError("The variants must be in the order of their positions.")

    def apply_to(self, terms: Terms, state: State) -> State:
        """Return the state with the variants and their means."""
        if self.passed is None:
            return state
        return replace(state, variants=VariantState(self.passed, self.mean))

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return how many directions reveal as many numbers as the tile has."""
        ends = find_ends(terms.study, _find_passed(terms, state))
        start = 0 if state.variants is None else state.variants.start
        return count_entries(ends, start, terms).worth(terms.d)

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the bound on a sum of products of numbers of magnitude 2 at most."""
        return {"weight": limits.weight, "products": _LARGEST_COPIES**2 * limits.weight}


def find_ends(study: Study, loci: Loci) -> Integers:
    """Return where the window ends that each variant begins, as the study defines windows."""
    step = next(step for step in study.prepare if isinstance(step, PruneLd))
    return find_window_ends(
        loci.chromosome, loci.position, variants=step.variants, bases=step.bases
    )


def find_tile_end(ends: Integers, start: int) -> int:
    """Return the place after the last variant of the tile that begins at `start`."""
    pairs = np.cumsum(ends[start:] - np.arange(start, len(ends)) - 1)
    return start + max(1, int(np.searchsorted(pairs, TILE_PAIRS, side="right")))


def count_entries(ends: Integers, start: int, terms: Terms) -> RevealedEntries:
    """Return how many entries of the scatter a tile reveals.

    The scatter of n people has a rank below n. Windows of more variants than that overlap in blocks
    that determine all of it, and so all entries are counted.
    """
    widths = ends - np.arange(len(ends))
    if widths.max(initial=0) > terms.n:
        return RevealedEntries(terms.d * (terms.d + 1) // 2)
    stop = find_tile_end(ends, start)
    return RevealedEntries(int(widths[start:stop].sum()) - (stop - start))


def _find_passed(terms: Terms, state: State) -> Loci:
    if terms.loci is None or state.variants is None or state.variants.passed is None:
        raise InputError("The variants whose products are sent are not known.")
    return terms.loci.take(state.variants.passed)


@op(
    Release(
        "products of neighbouring variants",
        "1 + pairs in a window",
        Leaves.SUM_ONLY,
        Reveals.ENTRIES,
    )
)
def variant_products(
    source: Source, request: VariantProductsRequest, state: State, terms: Terms
) -> Answer[VariantProductsReply]:
    """Return the sums of products of the next tile, and count them as entries of the scatter."""
    ends, known = find_ends(terms.study, _find_passed(terms, state)), state.variants
    if known is None or known.passed is None or known.mean is None:
        raise InputError("The variants whose products are sent are not known.")
    start, stop = known.start, find_tile_end(ends, known.start)
    products = _multiply(
        source.X.select_variants(known.passed), source.weights, known.mean, ends, start, stop
    )
    reply = VariantProductsReply(weight=source.total_weight, products=products)
    state = replace(state, variants=replace(known, start=stop))
    return Answer(reply, state, entries=count_entries(ends, start, terms))


def _multiply(
    table: Genotypes, weights: Array | None, mean: Array, ends: Integers, start: int, stop: int
) -> Array:
    """Return the products of some variants with all that follow them in their windows."""
    people = table.people if weights is None else table.people[weights > 0.0]
    reach = slice(start, int(ends[stop - 1]))
    mask = pack_mask(people, table.packed.shape[1])
    planes = make_planes(table.tile(reach), mask, table.swapped[reach])
    partners = ends[start:stop] - start
    return multiply_pairs(planes, mean[reach], partners, len(people), load_pair_kernel())


OPS = (variant_products,)
