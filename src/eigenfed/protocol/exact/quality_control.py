"""Quality control of variants: the coordinator's half of the steps that filter genotypes.

The site's half is that of `variant_counts` and `variant_products`. All steps of a study are decided
here from sums over sites; the variants that are kept are then sent with the next request.
"""

import math

import numpy as np

from eigenfed.arrays import Flags, Integers
from eigenfed.data.loci import Loci
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.variant_filters import (
    Attrition,
    PooledCounts,
    filter_variants,
    format_attrition,
)
from eigenfed.data.variant_steps import PruneLd
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.ld_pruning import are_sorted, find_correlated, list_pairs, prune_pairs
from eigenfed.protocol.core import Call, Protocol, Total
from eigenfed.protocol.exact import variant_products
from eigenfed.protocol.exact.variant_counts import request_counts, variant_counts
from eigenfed.protocol.exact.variant_products import (
    VariantProductsRequest,
    find_ends,
    find_tile_end,
)
from eigenfed.protocol.study import Study

_SAME = 1e-9
"""Largest relative difference of the same weights: secure sums are rounded."""

OPS = (variant_counts, *variant_products.OPS)


def collect_variants(total: Total, study: Study, loci: Loci | None) -> Protocol[Preparation]:
    """Collect what the filters of a study need, and decide which variants are kept.

    Parameters
    ----------
    total : Total
        How sums over sites are made.
    study : Study
    loci : Loci or None
        Where the variants of the study lie.

    Returns
    -------
    Preparation
        With the variants that are kept, and what each step has removed.

    Raises
    ------
    ProtocolError
        If no variant is left, with a table of what each step has removed.
    """
    if loci is None:
        raise InputError("The steps for variants require genotypes. Pass .bed files.")
    counts = yield from request_counts(total, study)
    if len(loci) != len(counts.one):
        raise ProtocolError("The sites have other variants than the study. Use one manifest.")
    kept, table = filter_variants(study.prepare, counts, loci)
    _check_left(table, study)
    step = study.prepare[-1]
    if isinstance(step, PruneLd):
        kept = yield from _prune(total, study, counts, loci, kept)
        left = int(kept.sum())
        table = (*table, Attrition(step.text, table[-1].left - left, left))
        _check_left(table, study)
    return Preparation(
        study.prepare,
        np.flatnonzero(kept),
        attrition=table,
        matched=counts.matched,
        weight=counts.weight,
    )


def _check_left(table: tuple[Attrition, ...], study: Study) -> None:
    least = study.components if isinstance(study.components, int) else 1
    left = table[-1].left
    if left >= least:
        return
    lines = "\n".join(format_attrition(table))
    few = (
        "No variant is left" if not left else f"{least} components need more variants than are left"
    )
    raise ProtocolError(f"{few}:\n{lines}\nRelax the step that removes most.")


def check_same_people(counted: float, summed: float) -> None:
    """Refuse a sum over other people than those whose genotypes were counted.

    Parameters
    ----------
    counted, summed : float
        Weights of the people in both sums.

    Examples
    --------
    >>> check_same_people(300.0, 279.0)
    Traceback (most recent call last):
    eigenfed.errors.ProtocolError: Genotypes of 300 people were counted, and a later sum is over ...
    """
    if not math.isclose(counted, summed, rel_tol=_SAME, abs_tol=_SAME):
        raise ProtocolError(
            f"Genotypes of {counted:.10g} people were counted, and a later sum is over "
            f"{summed:.10g}: a site left the run, or its file has changed. The variants would be "
            "filtered by other people than the components describe. Run the study again."
        )


def _prune(
    total: Total, study: Study, counts: PooledCounts, loci: Loci, kept: Flags
) -> Protocol[Flags]:
    """Return which variants are kept of those so far, so that none are correlated in a window."""
    if not are_sorted(loci.chromosome, loci.position):
        raise InputError(
            "The variants must be sorted by chromosome and position for the step 'ld'. Sort the "
            "files, or the manifest."
        )
    passed = np.flatnonzero(kept)
    step = study.prepare[-1]
    r2 = step.r2 if isinstance(step, PruneLd) else 1.0
    ends, squares = find_ends(study, loci.take(passed)), counts.squares[passed]
    request = VariantProductsRequest(passed=passed, mean=counts.mean[passed])
    ones: list[Integers] = []
    others: list[Integers] = []
    start = 0
    while start < len(passed):
        reply = yield from total(Call(request))
        products = reply.products
        check_same_people(counts.weight, reply.weight)
        stop = find_tile_end(ends, start)
        one, other = list_pairs(ends, start, stop)
        if len(products) != len(one):
            raise ProtocolError("The sites sent other products than requested. Use one release.")
        correlated = find_correlated(one, other, products, squares, r2)
        ones.append(one[correlated])
        others.append(other[correlated])
        request, start = VariantProductsRequest(), stop
    frequency = counts.minor_frequency[passed]
    chosen = prune_pairs(np.concatenate(ones), np.concatenate(others), ends, frequency)
    # A variant without variance has no correlation, and no place in a component.
    found = np.zeros_like(kept)
    found[passed[chosen & (squares > 0.0)]] = True
    return found
