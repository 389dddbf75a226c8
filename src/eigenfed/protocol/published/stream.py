"""Streaming MOD-SuLQ: directions tracked through masked batches, then merged (000 Alg. 1 to 3).

===========  ==================================================================================
coordinator  of each site on its own: U S of the directions tracked, d x r
site         the mean and the bound; all else follows from the study
===========  ==================================================================================

Departures from what is printed: Alg. 3's slice has the factor B that eq. 7 has; the rank grows by
a direction at hand, as in `linalg.adaptive`; and Alg. 2 is taken as the decomposition of both
factors side by side (eq. 2), which it computes.
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.adaptive import adapted_rank
from eigenfed.linalg.orthonormal import completed_rows
from eigenfed.privacy.published import StreamingModSuLQ
from eigenfed.privacy.published.noise import normal
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol, ask_each
from eigenfed.protocol.ops import Answer, State, Terms, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    bounded_blocks,
    published_value,
)
from eigenfed.protocol.published.covariances import FactorReply
from eigenfed.protocol.result import Decomposition


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MaskedStreamRequest(BoundedRequest):
    """Ask for the directions that a site tracked through masked batches."""

    op, reply = "masked_stream", FactorReply


@op(Release("directions of masked batches", "d x l", Leaves.PUBLISHED, Reveals.SCATTER))
def masked_stream(
    source: Source, request: MaskedStreamRequest, state: State, terms: Terms
) -> Answer[FactorReply]:
    """Track directions through the batches that the site's rows fill (000 Alg. 3)."""
    value = published_value(terms.study)
    if not isinstance(value, StreamingModSuLQ):
        raise InputError("The study's mechanism is no stream.")
    size, rank = value.batch_size(source.d), value.rank_for(terms.k, source.d)
    sd, tracked = value.noise_sd(size, source.d), np.zeros((source.d, 0))
    columns = (value.columns or rank) if value.merge == "printed" else None
    for start in range(0, source.n - size + 1, size):
        inside = Source(source.X[start : start + size])
        batch = np.concatenate(list(bounded_blocks(inside, request.mean, request.bound)))
        if columns is not None:
            masked = _masked_slices(batch, sd, rank, columns)
        else:
            masked = _masked_whole(batch, sd, rank)
        u, s = _side_by_side(masked, tracked)
        if value.energy is not None:
            rank = adapted_rank(s, min(rank, len(s)), value.energy, source.d)
        tracked = u[:, :rank] * s[:rank]
    # As long as it can get, whatever the rows are: columns of zeros change no merge.
    width = source.d if value.energy is not None else min(rank, source.d)
    factor = np.zeros((source.d, width))
    factor[:, : tracked.shape[1]] = tracked
    return Answer(FactorReply(factor=factor), state)


OPS = (masked_stream,)


def tracked_stream(ground: Bounded, k: int, value: StreamingModSuLQ) -> Protocol[Decomposition]:
    """Merge what sites tracked, in the order of their names.

    Variances are the squares of the merged singular values over the rows used, as 000 reads
    them; with ``merge="printed"`` those are no singular values of rows.
    """
    d, size, rank = ground.d, value.batch_size(ground.d), value.rank_for(k, ground.d)
    replies = yield from ask_each(Ask(MaskedStreamRequest(**ground.fields)))
    used = sum(n // size * size for n in ground.rows.values())
    if not used:
        raise ProtocolError(
            f"No site fills a batch of {size} rows. Bring more rows, or lower the batch size."
        )
    factors = [_without_zeros(replies[site].factor) for site in ground.rows]
    rank = max(rank, *(factor.shape[1] for factor in factors))
    merged = np.zeros((d, 0))
    for factor in factors:
        u, s = _side_by_side(merged, factor)
        merged = u[:, :rank] * s[:rank]
    vt = completed_rows(u[:, :k].T, k)
    values = np.zeros(k)
    values[: len(s[:k])] = s[:k] ** 2 / used
    return ground.decomposition(vt.T, values, total=np.nan, products=1)


def _without_zeros(factor: Array) -> Array:
    """Drop the columns with which a site has filled its reply up."""
    return factor[:, (factor != 0.0).any(axis=0)]


def _masked_slices(batch: Array, sd: float, rank: int, columns: int) -> Array:
    """Return U S of the masked covariance, its slices merged one by one: (d, r)."""
    b, d = batch.shape
    factor = np.zeros((d, 0))
    for start in range(0, d, columns):
        part = batch.T @ batch[:, start : start + columns] / b
        u, s = _side_by_side(factor, part + normal(part.shape, sd))
        factor = u[:, :rank] * s[:rank]
    return factor


def _masked_whole(batch: Array, sd: float, rank: int) -> Array:
    """Return U S with ``S = sqrt(b l)``, l the positive eigenvalues of the symmetric part."""
    b, d = batch.shape
    masked = batch.T @ batch / b + normal((d, d), sd)
    values, vectors = np.linalg.eigh((masked + masked.T) / 2)
    values, vectors = values[: -rank - 1 : -1], vectors[:, : -rank - 1 : -1]
    scaled: Array = vectors * np.sqrt(b * np.maximum(values, 0.0))
    return scaled


def _side_by_side(first: Array, second: Array) -> tuple[Array, Array]:
    """Decompose two factors beside one another (000 eq. 2), without forgetting."""
    u, s, _ = np.linalg.svd(np.hstack([first, second]), full_matrices=False)
    return u, s
