"""[Grammenos2020] and its supplement: SuLQ, MOD-SuLQ and Streaming MOD-SuLQ.

SuLQ and MOD-SuLQ are a trusted curator's (`mechanism`). Streaming MOD-SuLQ tracks directions
through noisy batches at each site and merges them ([Grammenos2020] Alg. 1 to 3).

===========  ==================================================================================
coordinator  of Streaming MOD-SuLQ, from each site alone: U S of the directions tracked, d x r
site         the mean and the bound; all else follows from the study
===========  ==================================================================================

Departures from what is printed: the slice in Alg. 3 has the factor B, as in eq. 7; the rank grows
by a direction that is already tracked, as in `linalg.stream`; and Alg. 2 is computed as the SVD of
both factors side by side (eq. 2), to which it is equivalent.
"""

import math
from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.orthonormal import complete_rows
from eigenfed.linalg.stream import adapt_rank
from eigenfed.privacy.published_claims import (
    CovarianceNoise,
    check_one_of,
    check_positive,
    choose_rank,
    root_of_log,
)
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.script import Script, sequence
from eigenfed.protocol.operations import Answer, Op, State, Terms, op
from eigenfed.protocol.published.bounded import (
    Bounded,
    BoundedRequest,
    get_published,
    iterate_bounded_blocks,
)
from eigenfed.protocol.published.continuous_noise import draw_normal
from eigenfed.protocol.published.mechanism import CuratorMechanism, FactorReply, Mechanism

_ROOT_2_PI = math.sqrt(2.0 * math.pi)


@dataclass(frozen=True)
class SuLQ(CuratorMechanism):
    """SuLQ ([Grammenos2020] section 3.3): independent noise on all entries of ``X'X / n``.

    A trusted curator adds noise of standard deviation ``sqrt(8) d log(d / delta) / (n epsilon)``,
    not symmetric; the components are leading left singular vectors. Neighbours: one row
    replaced. It claims (epsilon, delta), which holds with far more noise than needed at practical
    epsilon, and fails at very large ones.

    Parameters
    ----------
    epsilon, delta : float
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm.

    Examples
    --------
    >>> truth = SuLQ(1.0, 1e-5, clip=1.0).truth([1000], 20, k=2, center=False)
    >>> truth.holds, round(truth.true_epsilon, 4)
    (True, 0.0037)
    """

    @property
    def is_symmetric(self) -> bool:
        """Whether the noise is a symmetric matrix: no."""
        return False

    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on ``X'X / n``, as printed."""
        return math.sqrt(8.0) * d * math.log(d / self.delta) / (n * self.epsilon)

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Explain the true epsilon."""
        return _MUCH_NOISE


@dataclass(frozen=True)
class ModSuLQ(CuratorMechanism):
    """MOD-SuLQ, [Grammenos2020] eq. 5 and 6: a trusted curator's symmetric noise on ``X'X / n``.

    Neighbours: one row replaced. It claims (epsilon, delta). The claim is true and the calibration
    wasteful: the noise grows with d, while the sensitivity does not. The triangle of the noise is
    mirrored here; the published code mirrors that of the data and releases it without noise.

    Parameters
    ----------
    epsilon, delta : float
    formula : {"6", "8", "17"}, default="6"
        Symmetric noise by [Grammenos2020] eq. 6, with leading eigenvectors; or independent noise
        by [Grammenos2020] eq. 8 or [Grammenos2020, supplement] eq. 17, with leading left singular
        vectors. Eq. 8 has a slip in its second term, ``sqrt(2 / (epsilon n))``; eq. 17, with
        ``sqrt(2 / epsilon) / n``, follows from the proof.
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm.

    Examples
    --------
    >>> round(ModSuLQ(1.0, 0.01).noise_sd(n=1000, d=20), 4)
    0.0903
    >>> ModSuLQ(1.0, 0.01, clip=1.0).truth([1000], 20, k=2, center=False).holds
    True
    """

    _: KW_ONLY
    formula: str = "6"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of("formula", self.formula, ("6", "8", "17"))

    @property
    def is_symmetric(self) -> bool:
        """Whether the noise is a symmetric matrix: with eq. 6."""
        return self.formula == "6"

    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on ``X'X / n``, as printed."""
        if not self.is_symmetric:
            return _asymmetric_sd(self.formula, self.epsilon, self.delta, n, d)
        root = root_of_log((d * d + d) / (2.0 * self.delta * _ROOT_2_PI), self.delta)
        return ((d + 1) * root / self.epsilon + 1.0 / math.sqrt(self.epsilon)) / n

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Explain the true epsilon."""
        return _MUCH_NOISE


@dataclass(frozen=True)
class StreamingModSuLQ(CovarianceNoise, Mechanism):
    """Streaming MOD-SuLQ, [Grammenos2020] Alg. 1 to 3 and Lemma 2: noisy batches, merged.

    A site takes b rows at a time, adds independent noise (the mask) to ``B'B / b`` in slices of c
    columns (eq. 7; Alg. 3 as printed lacks the factor B), tracks r directions through slices and
    batches, and reports them once; the coordinator merges the reports in order. Rows that do not
    fill a batch are not used. Neighbours: one row replaced; batches are disjoint, so one
    (epsilon, delta) is claimed for the whole stream. With rows added or removed it would fail:
    every later batch would shift.

    Lemma 2.1 holds, with far more noise than needed. Lemma 2.2 as printed is false: it inverts a
    bracket, so that one row is said to be enough for d=20, epsilon=1, delta=0.01 and a mask of 0.1,
    where the true epsilon is 132. The published code also calibrates to the number of rows of the
    whole stream instead of the batch; that variant is not offered.

    Parameters
    ----------
    epsilon, delta : float
    batch : int, optional
        Rows b of a batch. With a mask, by default the least that Lemma 2.2 requires.
    formula : {"8", "17"}, optional
        Standard deviation by [Grammenos2020] eq. 8 (default) or [Grammenos2020, supplement] eq. 17,
        with n = b. Cannot be combined with a mask.
    mask : float, optional
        The fixed standard deviation of Lemma 2.2, for which a batch must be large enough.
    minimum : {"printed", "corrected"}, optional
        The least batch size of Lemma 2.2, with its bracket inverted as printed (default), or not.
        Requires a mask.
    rank : int, optional
        Directions r that are tracked; twice the components by default.
    columns : int, optional
        Columns c of a slice; r by default. Requires ``merge="printed"``.
    energy : pair of float, optional
        Bounds alpha and beta of eq. 4 by which the rank adapts, as fractions: the paper's 1 and 10
        are percent. None keeps the rank fixed. When the rank grows, one more of the tracked
        directions is kept, not a canonical vector that is not orthogonal to them.
    merge : {"printed", "corrected"}, default="printed"
        "printed" merges singular values of noisy covariances, which adds their squares.
        "corrected" symmetrises the whole noisy matrix, keeps its positive eigenvalues l and
        merges ``sqrt(b l)``, which adds covariances; it needs d x d numbers at a site.
    clip : float, optional
        Public bound on norms; without it rows are divided by their largest norm.

    Examples
    --------
    >>> paper = StreamingModSuLQ(1.0, 0.01, mask=0.1, clip=1.0)
    >>> paper.batch_size(d=20), round(paper.truth([500], 20, k=2, center=False).true_epsilon)
    (1, 132)
    >>> StreamingModSuLQ(1.0, 0.01, mask=0.1, minimum="corrected").batch_size(d=20)
    3534
    """

    _: KW_ONLY
    batch: int | None = None
    formula: str | None = None
    mask: float | None = None
    minimum: str | None = None
    rank: int | None = None
    columns: int | None = None
    energy: tuple[float, float] | None = None
    merge: str = "printed"

    def __post_init__(self) -> None:
        super().__post_init__()
        check_one_of("formula", self.formula, (None, "8", "17"))
        check_one_of("minimum", self.minimum, (None, "printed", "corrected"))
        check_one_of("merge", self.merge, ("printed", "corrected"))
        for name in ("batch", "rank", "columns"):
            if getattr(self, name) is not None:
                check_count(name, getattr(self, name), "Leave it out for its default.")
        self._check_mask()
        if self.columns is not None and self.merge == "corrected":
            raise InputError(
                f"columns={self.columns} must be None with merge='corrected', which uses the "
                "whole matrix. Omit it."
            )
        if self.energy is not None:
            low, high = self.energy
            if not 0.0 <= low < high <= 1.0:
                raise InputError(
                    f"energy={self.energy!r} must be two fractions, the smaller one first. "
                    "Pass (0.01, 0.10) for the paper's 1 and 10 percent."
                )

    def _check_mask(self) -> None:
        if self.mask is None:
            if self.batch is None:
                raise InputError("batch=None requires a mask. Pass the number of rows of a batch.")
            if self.minimum is not None:
                raise InputError(
                    f"minimum={self.minimum!r} requires a mask. Omit it, or pass mask."
                )
            return
        check_positive("mask", self.mask, "Pass None to use the formula.")
        if self.formula is not None:
            raise InputError(
                f"formula={self.formula!r} must be None with a mask, which replaces it. "
                "Omit one of them."
            )

    @property
    def is_symmetric(self) -> bool:
        """Whether the noise is a symmetric matrix: no."""
        return False

    def least_batch(self, d: int) -> float:
        """Return T of Lemma 2.2, the number of rows for which the mask is said to be enough."""
        if self.mask is None:
            raise InputError("mask=None has no least batch size. Pass the mask of Lemma 2.2.")
        bracket = _bracket(self.epsilon, self.delta, d) + math.sqrt(2.0 / self.epsilon)
        return bracket / self.mask if self.minimum == "corrected" else 1.0 / (self.mask * bracket)

    def batch_size(self, d: int) -> int:
        """Return the number of rows b of a batch, for d features."""
        if self.mask is None:
            return self.batch or 1
        least = max(1, math.ceil(self.least_batch(d)))
        if self.batch is not None and self.batch < least:
            raise InputError(
                f"batch={self.batch} must be at least {least}, which Lemma 2.2 requires. "
                "Omit it, or raise the mask."
            )
        return self.batch or least

    def noise_sd(self, n: int, d: int) -> float:
        """Return the standard deviation of the noise on a batch of n rows, as printed."""
        if self.mask is not None:
            return self.mask
        return _asymmetric_sd(self.formula or "8", self.epsilon, self.delta, n, d)

    def rank_for(self, k: int, d: int) -> int:
        """Return how many directions are tracked."""
        return choose_rank(self.rank, k, d)

    def released_rows(self, rows: Sequence[int], d: int) -> int:
        """Return the number of rows of one release: those of a batch."""
        return self.batch_size(d)

    def reason(self, rows: Sequence[int], d: int, k: int) -> str:
        """Explain the true epsilon."""
        if self.mask is None:
            return _MUCH_NOISE
        if self.minimum == "corrected":
            return "Lemma 2.2 with its bracket as it follows from 2.1. " + _MUCH_NOISE
        return (
            f"Lemma 2.2 as printed inverts its bracket and states that batches of "
            f"{self.batch_size(d)} rows are enough for this mask."
        )

    @classmethod
    def operations(cls) -> tuple[Op[Any, Any], ...]:
        """Return the operation that tracks directions."""
        return (masked_stream,)

    def script(self) -> Script:
        """Return the script: one report of tracked directions."""
        return sequence("masked_stream")

    def run(self, ground: Bounded, k: int, rng: np.random.Generator) -> Protocol[Decomposition]:
        """Merge the directions that sites have tracked, in the order of their names.

        Variances are the squares of the merged singular values over the rows used, as
        [Grammenos2020] reads them; with ``merge="printed"`` those are not singular values of rows.
        """
        d, size, rank = ground.d, self.batch_size(ground.d), self.rank_for(k, ground.d)
        replies = yield from call_each(Call(MaskedStreamRequest(**ground.fields)))
        used = sum(n // size * size for n in ground.rows.values())
        if not used:
            raise ProtocolError(
                f"No site fills a batch of {size} rows. Use more rows, or lower the batch size."
            )
        factors = [_drop_zero_columns(replies[site].factor) for site in ground.rows]
        rank = max(rank, *(factor.shape[1] for factor in factors))
        merged = np.zeros((d, 0))
        for factor in factors:
            u, s = _merge_factors(merged, factor)
            merged = u[:, :rank] * s[:rank]
        vt = complete_rows(u[:, :k].T, k)
        values = np.zeros(k)
        values[: len(s[:k])] = s[:k] ** 2 / used
        return ground.decomposition(vt.T, values, total=np.nan, products=1)


_MUCH_NOISE = (
    "The noise is calibrated for d^2 entries one by one and grows with d; the sensitivity, "
    "sqrt(2)/n in Frobenius norm, does not."
)


def _bracket(epsilon: float, delta: float, d: int) -> float:
    """Return the term that eq. 8, eq. 17 and Lemma 2.2 share."""
    return 4.0 * d / epsilon * root_of_log(d * d / (delta * _ROOT_2_PI), delta)


def _asymmetric_sd(formula: str, epsilon: float, delta: float, n: int, d: int) -> float:
    """Return omega of [Grammenos2020] eq. 8 or [Grammenos2020, supplement] eq. 17."""
    last = math.sqrt(2.0 / (epsilon * n)) if formula == "8" else math.sqrt(2.0 / epsilon) / n
    return _bracket(epsilon, delta, d) / n + last


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class MaskedStreamRequest(BoundedRequest):
    """Request the directions that a site tracks through noisy batches."""

    op, reply = "masked_stream", FactorReply


@op(Release("directions of masked batches", "d x l", Leaves.PUBLISHED, Reveals.SCATTER))
def masked_stream(
    source: Source, request: MaskedStreamRequest, state: State, terms: Terms
) -> Answer[FactorReply]:
    """Track directions through the batches that the site's rows fill ([Grammenos2020] Alg. 3)."""
    value = get_published(terms.study)
    if not isinstance(value, StreamingModSuLQ):
        raise InputError("The study's mechanism is not Streaming MOD-SuLQ.")
    size, rank = value.batch_size(source.d), value.rank_for(terms.k, source.d)
    sd, tracked = value.noise_sd(size, source.d), np.zeros((source.d, 0))
    columns = (value.columns or rank) if value.merge == "printed" else None
    for start in range(0, source.n - size + 1, size):
        inside = Source(source.X[start : start + size])
        batch = np.concatenate(list(iterate_bounded_blocks(inside, request.mean, request.bound)))
        if columns is not None:
            masked = _mask_slices(batch, sd, rank, columns)
        else:
            masked = _mask_whole(batch, sd, rank)
        u, s = _merge_factors(masked, tracked)
        if value.energy is not None:
            rank = adapt_rank(s, min(rank, len(s)), value.energy, source.d)
        tracked = u[:, :rank] * s[:rank]
    # The reply has its largest possible width whatever the rows are, so that its length reveals
    # nothing: columns of zeros do not change a merge.
    width = source.d if value.energy is not None else min(rank, source.d)
    factor = np.zeros((source.d, width))
    factor[:, : tracked.shape[1]] = tracked
    return Answer(FactorReply(factor=factor), state)


def _drop_zero_columns(factor: Array) -> Array:
    """Drop the columns with which a site has padded its reply."""
    return factor[:, (factor != 0.0).any(axis=0)]


def _mask_slices(batch: Array, sd: float, rank: int, columns: int) -> Array:
    """Return U S of the noisy covariance, its slices merged one by one, (d, r)."""
    b, d = batch.shape
    factor = np.zeros((d, 0))
    for start in range(0, d, columns):
        part = batch.T @ batch[:, start : start + columns] / b
        u, s = _merge_factors(factor, part + draw_normal(part.shape, sd))
        factor = u[:, :rank] * s[:rank]
    return factor


def _mask_whole(batch: Array, sd: float, rank: int) -> Array:
    """Return U S, ``S = sqrt(b l)`` with l the positive eigenvalues of the symmetric part."""
    b, d = batch.shape
    masked = batch.T @ batch / b + draw_normal((d, d), sd)
    values, vectors = np.linalg.eigh((masked + masked.T) / 2)
    values, vectors = values[: -rank - 1 : -1], vectors[:, : -rank - 1 : -1]
    scaled: Array = vectors * np.sqrt(b * np.maximum(values, 0.0))
    return scaled


def _merge_factors(first: Array, second: Array) -> tuple[Array, Array]:
    """Compute the SVD of two factors side by side ([Grammenos2020] eq. 2), without forgetting."""
    u, s, _ = np.linalg.svd(np.hstack([first, second]), full_matrices=False)
    return u, s
