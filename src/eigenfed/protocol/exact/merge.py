"""One-shot merge: each site summarises its own rows, and the coordinator merges the summaries.

===========  ==================================================================================
coordinator  from each site alone: weight, mean, the leading singular values and directions of its
             rows about that mean, total sum of squares, and a bound on what is missing
site         the mean and scale of all rows; the number of directions follows from the study
===========  ==================================================================================

One request, and no sum: a merge needs the directions of each site with their singular values, so
secure aggregation cannot carry it. The result is exact if the directions sent cover the rank of
each site's rows, and close to exact if their spectrum decays.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.compress import compress
from eigenfed.linalg.orthonormal import complete_rows, flip_signs
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.cost_rates import time_lanczos
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import finish_with_product, make_products
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows, view_about_own_mean
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.stream_summary import INSIDE, SummaryReply
from eigenfed.protocol.exact.stream_summary import OPS as STREAM_OPS
from eigenfed.protocol.gate.script import Script, optional, sequence
from eigenfed.protocol.method import (
    Cost,
    Method,
    Run,
    Shape,
    block_bytes,
    block_count,
    product_s,
)
from eigenfed.protocol.operations import Answer, State, Terms, op
from eigenfed.protocol.study import Study

_POWERS = {"none": 0.0, "sqrt": 0.5}
_NEARLY_ORTHONORMAL = 1e-3
_EPS = float(np.finfo(float).eps)
_ROUNDINGS, _COARSEST = 16.0, 1e-4
"""Largest rounding error of a singular vector, in units of the roundoff times the ratio of the
largest singular value to its own; and the error from which it is not sent."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SummaryRequest(FramedRequest):
    """Request a summary of the rows; its number of directions follows from the study's method."""

    op, reply = "summarise", SummaryReply

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return the number of directions of the summary."""
        return summary_rank(terms)


def summary_rank(terms: Terms) -> int:
    """Return the number of directions that a site sends."""
    method = terms.study.chosen
    options = method if isinstance(method, Merge) else Merge()
    return min(options.rank(terms.k), terms.d)


@op(Release("summary of rows", "l (d + 1) + d + 3", Leaves.EXACT, Reveals.DIRECTIONS))
def summarise(
    source: Source, request: SummaryRequest, state: State, terms: Terms
) -> Answer[SummaryReply]:
    """Return the summary of the site's rows about their own mean, scaled as in the run."""
    view, frame, state = prepare_rows(source, state)
    rank = summary_rank(terms)
    around, away = view_about_own_mean(source, state)
    summary = _round_summary(around.summary(INSIDE * rank)).truncate(rank)
    reply = SummaryReply.of(replace(summary, mean=summary.mean + away), rank)
    if terms.study.centers_by_site:
        # Rows centred by the site's own mean have none but rounding, which stays.
        reply = replace(reply, mean=np.zeros(terms.d))
    # These directions were not requested, but they are eigenvectors of the scatter about the
    # site's mean: with their singular values and that mean, the product of the scatter with them
    # is known. It is metered about the mean of all sites, as every other reply of the run.
    directions = summary.vt.T
    return Answer(reply, state, frame.answered(directions, view.product(directions)))


OPS = (summarise,)


def _round_summary(summary: Summary) -> Summary:
    """Round directions to the digits that a decomposition gives, and leave out those without any.

    Digits below the rounding errors follow from the order of the rows, and not from their scatter.
    Beside a feature that the coordinator's scale makes huge, they are those of a single row.
    """
    if not len(summary.s):
        return summary
    errors = _ROUNDINGS * _EPS * summary.s[0] / summary.s
    kept = summary.truncate(int(np.count_nonzero(errors < _COARSEST)))
    steps = 2.0 ** np.ceil(np.log2(errors[: len(kept.s)]))[:, None]
    # Zeros without signs, which would be those of the digits left out.
    return replace(kept, vt=np.round(kept.vt / steps) * steps + 0.0)


@dataclass(frozen=True, repr=False)
class Merge(Method):
    """One-shot merge: every site sends a summary once, and the coordinator merges them.

    Attributes
    ----------
    weighting : {"sigma", "sqrt", "none"}
        Factors of a site's unit directions before all are decomposed together. "sigma": their
        singular values, with a row for the shift between the sites' means, as `Summary.merge`;
        "none": 1, [Hartebrodt2022] Alg. 4 as printed; "sqrt": the roots of their singular values,
        its published code. The last two are for comparison: they lose the shift of the means,
        since each site's directions are about its own mean, and overweight weak directions.
    oversample : int or None
        Directions that each site sends beyond k; None sends 2 k in all.
    max_summaries : int or None
        For sites whose data are summaries of streams, and for these only: how many summaries of its
        stream each of them sends at most, each when the site has one. None merges rows, once.
    min_new_rows : int or None
        Fewest rows between two summaries of a stream: their difference reveals the scatter of these
        rows alone. A site requires at least the ``min_rows`` of its policy in any case.

    Examples
    --------
    >>> Merge().rank(10), Merge(oversample=5).rank(10)
    (20, 15)
    >>> Merge(max_summaries=12, min_new_rows=100).merges_streams()
    True
    """

    name: ClassVar[str] = "merge"
    summary: ClassVar[str] = "one summary from each site, merged: one round, close to exact"
    citation: ClassVar[str | None] = "Grammenos et al. 2020, Alg. 2; Hartebrodt et al. 2022, Alg. 4"
    ops = (*OPS, *PRODUCT_OPS, *CERTIFICATE_OPS, *STREAM_OPS)
    own_directions: ClassVar[bool] = True

    weighting: str = "sigma"
    oversample: int | None = None
    max_summaries: int | None = None
    min_new_rows: int | None = None

    def __post_init__(self) -> None:
        if self.weighting not in ("sigma", *_POWERS):
            raise InputError(
                f"weighting={self.weighting!r} must be 'sigma', 'sqrt' or 'none'. "
                "Pass 'sigma' for the correct result."
            )
        if self.oversample is not None and (
            type(self.oversample) is not int or self.oversample < 0
        ):
            raise InputError(
                f"oversample={self.oversample!r} must be an integer of at least 0. "
                "Pass None to send twice as many directions as components."
            )
        for name in ("max_summaries", "min_new_rows"):
            count = getattr(self, name)
            if count is not None and (type(count) is not int or count < 1):
                raise InputError(
                    f"{name}={count!r} must be an integer of at least 1. Leave it out to merge "
                    "rows, once."
                )
        if self.max_summaries is None and self.min_new_rows is not None:
            raise InputError(
                f"min_new_rows={self.min_new_rows} requires max_summaries: it is about summaries "
                "of streams. Add max_summaries, or drop it."
            )
        if self.max_summaries is not None and self.weighting != "sigma":
            raise InputError(
                f"weighting={self.weighting!r} cannot be combined with max_summaries: summaries of "
                "streams are merged with their singular values. Drop weighting."
            )

    def merges_streams(self) -> bool:
        """Return whether sites send summaries of streams."""
        return self.max_summaries is not None

    def rank(self, k: int) -> int:
        """Return the number of directions that each site sends for k components."""
        return k + (k if self.oversample is None else self.oversample)

    def sums_only(self) -> bool:
        """Whether sums over sites are enough: no, it merges the summaries of single sites."""
        return False

    def width(self, k: int, d: int) -> int:
        """Return the number of directions kept of the merged summary."""
        return min(self.rank(k), d)

    def script(self, study: Study, d: int) -> Script:
        """Return the script: a summary, and the requests of the certificate."""
        if self.merges_streams():
            return sequence("summarise_stream")
        return sequence("summarise", optional("product"), optional("remainder"))

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Request a summary from every site once and merge them.

        With `certify`, one product with all merged directions and one round for the bound follow;
        the product also improves the components, by Rayleigh-Ritz. Without it, "sigma" ends after
        the one request: lower bounds on the variances, and the total variance, follow from the
        merged summary. The other weightings do not know variances and always request one product,
        with their k directions.
        """
        k, moments = run.k, run.moments
        replies = yield from call_each(Call(SummaryRequest(**run.frame())))
        products = make_products(run)
        if self.weighting != "sigma" or run.certify:
            basis = _merge_directions(replies, run.d, k, self).T
            return (
                yield from finish_with_product(
                    products, basis, k, tol=run.tol, certify=bool(run.certify)
                )
            )
        merged, s, vt = _merge_summaries(replies, run.d, self.rank(k))
        components = flip_signs(complete_rows(vt[:k], min(k, merged.d)))
        squares = np.zeros(len(components))
        squares[: len(s[:k])] = s[:k] ** 2
        return Decomposition(
            components,
            squares / products.divisor,
            moments.mean,
            moments.scale,
            moments.n,
            (merged.energy + merged.n * float(merged.mean @ merged.mean)) / products.divisor,
            products=0,
        )

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of the summaries, of which the coordinator holds one for each site."""
        width = self.width(shape.components, shape.features)
        wide, block = shape.column_bytes(width), block_bytes(shape)
        if self.merges_streams():
            numbers, merging = float(shape.features) * (width + 1), (6.0 + 1.7 * shape.sites) * wide
            merging_s = time_lanczos(shape.features, width, width) * shape.sites
            return Cost(0, width, numbers, 2.0 * wide, merging, 0.0, merging_s)
        return Cost(
            1 + 2 * bool(shape.certify),
            2 * width,
            float(shape.features) * (width + 1),
            max(8.0 * wide + block, min(block_count(shape), 1.7) * block),
            (6.0 + 1.7 * shape.sites) * wide,
            4.0 * product_s(shape, width, 1),
            time_lanczos(shape.features, width, width) * shape.sites,
        )


def request_merged_basis(run: Run, k: int, options: Merge) -> Protocol[Array]:
    """Request every site's summary and return a merged basis to start an iteration from.

    [Hartebrodt2022] section 3.3 (AI-FULL) starts from its Alg. 4, which is unweighted; the default
    here is the weighted merge with the shift of the means.

    Returns
    -------
    ndarray of shape (d, k)
        Orthonormal columns, completed if the sites have too few directions.
    """
    replies = yield from call_each(Call(SummaryRequest(**run.frame())))
    basis: Array = _merge_directions(replies, run.d, k, options)[:k].T
    return basis


def _merge_directions(replies: dict[str, SummaryReply], d: int, k: int, options: Merge) -> Array:
    """Return the merged directions, (m, d): with "sigma" all that are kept, otherwise k."""
    if options.weighting == "sigma":
        vt = _merge_summaries(replies, d, options.rank(k))[2]
    else:
        power = _POWERS[options.weighting]
        parts = [part.s[:, None] ** power * part.vt for part in _read_summaries(replies, d)]
        vt = compress(np.concatenate(parts), k)[1]
    return complete_rows(vt, max(min(k, d), len(vt)))


def _merge_summaries(
    replies: dict[str, SummaryReply], d: int, rank: int
) -> tuple[Summary, Array, Array]:
    """Return the merged summary, and its singular values and directions about the run's mean.

    Rows were centred at the run's mean, so the merged mean is 0 up to rounding, unless the run
    does not centre: then the scatter about 0 has one more direction, that of the mean.
    """
    merged = Summary.empty(d, INSIDE * rank)
    for part in _read_summaries(replies, d):
        merged = merged.merge(part)
    rows = [merged.s[:, None] * merged.vt, math.sqrt(merged.n) * merged.mean[None]]
    s, vt, _ = compress(np.concatenate(rows), rank)
    return merged, s, vt


def _read_summaries(replies: dict[str, SummaryReply], d: int) -> Iterable[Summary]:
    for site in sorted(replies):
        yield _read_summary(site, replies[site], d)


def _read_summary(site: str, reply: SummaryReply, d: int) -> Summary:
    """Check a reply and return it as a summary.

    After messages in single precision the directions are orthonormal to 1e-7 only. That is enough:
    everything computed from them is decomposed again, in full precision.
    """
    r, vt = reply.s.size, reply.vt
    shapes = (reply.mean.shape, reply.s.shape, vt.shape)
    are_finite = all(np.isfinite(array).all() for array in (reply.mean, reply.s, vt))
    are_weights = all(0.0 <= number < math.inf for number in (reply.n, reply.energy, reply.lost))
    if shapes != ((d,), (r,), (r, d)) or not are_finite or not are_weights:
        raise ProtocolError(
            f"The summary of site {site!r} has fields that do not match {d} features, or numbers "
            "that are not finite or negative. Use the same release and features everywhere."
        )
    if np.abs(vt @ vt.T - np.eye(r)).max(initial=0.0) > _NEARLY_ORTHONORMAL:
        raise ProtocolError(
            f"The directions of site {site!r} are not orthonormal. "
            "Use the same release of eigenfed everywhere."
        )
    kept = reply.s > 0.0
    return Summary(
        reply.n, reply.mean, reply.s[kept], vt[kept], reply.energy, reply.lost, max(r, 1)
    )
