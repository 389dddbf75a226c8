"""One-shot merge: each site summarises its own rows, and the coordinator joins the summaries.

===========  ==================================================================================
coordinator  of each site on its own: weight, mean, the leading singular values and directions of
             its rows about that mean, total squared deviation, and a bound on what is missing
site         the mean and scale of all rows; how many directions are wanted follows from the study
===========  ==================================================================================

One ask, and no sum: a merge needs each site's directions beside its own singular values, so no
secure sum can carry them. What a site keeps back limits the answer, which is exact where the
directions sent cover the rows' rank and close to it where their spectrum falls.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.compress import compress
from eigenfed.linalg.orthonormal import completed_rows, signed_rows
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import finished, products_of
from eigenfed.protocol.exact.moments import FramedRequest, framed
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.gate.script import Script, optional, sequence
from eigenfed.protocol.method import (
    Cost,
    Method,
    Run,
    Shape,
    block_bytes,
    block_count,
    product_work,
)
from eigenfed.protocol.operations import Answer, State, Terms, op
from eigenfed.protocol.study import Study

_POWERS = {"none": 0.0, "sqrt": 0.5}
_NEARLY_ORTHONORMAL = 1e-3
# Folding in at twice the rank that is sent or kept makes truncation on the way negligible, and
# costs no message: digits at k = 10 capture 0.9999 so, and 0.9997 without.
_INSIDE = 2


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SummaryReply:
    """A summary of rows, about their own mean and in the run's units.

    Attributes
    ----------
    n : float
    mean : ndarray of shape (d,)
    s : ndarray of shape (r,)
    vt : ndarray of shape (r, d)
    energy, lost : float
    """

    n: float
    mean: Array
    s: Array
    vt: Array
    energy: float
    lost: float


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class SummaryRequest(FramedRequest):
    """Ask for a summary of the rows, of as many directions as the study's method says."""

    op, reply = "summarise", SummaryReply

    def own_directions(self, terms: Terms, state: State) -> int:
        """Count the directions of the summary."""
        return summary_rank(terms)


def summary_rank(terms: Terms) -> int:
    """Return how many directions a site sends."""
    method = terms.study.chosen
    options = method if isinstance(method, Merge) else Merge()
    return min(options.rank(terms.k), terms.d)


@op(Release("summary of rows", "l (d + 1) + d + 3", Leaves.EXACT, Reveals.DIRECTIONS))
def summarise(
    source: Source, request: SummaryRequest, state: State, terms: Terms
) -> Answer[SummaryReply]:
    """Return the summary of the site's rows, about their own mean and in the run's units."""
    view, frame, state = framed(source, state)
    rank = summary_rank(terms)
    summary = view.summary(_INSIDE * rank).truncate(rank)
    # Rows of few directions fill the rest with directions of no variance: how long a reply is must
    # not tell how many they have.
    s = np.zeros(rank)
    s[: len(summary.s)] = summary.s
    reply = SummaryReply(
        n=summary.n,
        mean=summary.mean,
        s=s,
        vt=completed_rows(summary.vt, rank),
        energy=summary.energy,
        lost=summary.lost,
    )
    # Nobody asked about these directions, but they are eigenvectors of the scatter about the
    # site's mean, so with their squares and the mean sent it is as if its product with them had
    # been answered. It is counted about the mean of all sites, as every other answer of the run.
    directions = summary.vt.T
    return Answer(reply, state, frame.answered(directions, view.product(directions)))


OPS = (summarise,)


@dataclass(frozen=True, repr=False)
class Merge(Method):
    """One-shot merge: every site sends a summary once, and the coordinator merges them.

    Attributes
    ----------
    weighting : {"sigma", "sqrt", "none"}
        What a site's unit directions are multiplied by before all are decomposed together: their
        singular values, with a row for the shift between the sites' means ("sigma",
        `Summary.merge`); nothing ([Hartebrodt2022] Alg. 4 as printed); the roots of their singular
        values (its published code). The last two are comparators: they lose the shift of the means,
        since each site's directions are about its own, and count weak directions too much.
    oversample : int or None
        Directions that each site sends beyond the components wanted; None sends twice as many.

    Examples
    --------
    >>> Merge().rank(10), Merge(oversample=5).rank(10)
    (20, 15)
    """

    name: ClassVar[str] = "merge"
    summary: ClassVar[str] = "one summary from each site, merged: one round, close to exact"
    citation: ClassVar[str | None] = "Grammenos et al. 2020, Alg. 2; Hartebrodt et al. 2022, Alg. 4"
    ops = (*OPS, *PRODUCT_OPS, *CERTIFICATE_OPS)
    own_directions: ClassVar[bool] = True

    weighting: str = "sigma"
    oversample: int | None = None

    def __post_init__(self) -> None:
        if self.weighting not in ("sigma", *_POWERS):
            raise InputError(
                f"weighting={self.weighting!r} must be 'sigma', 'sqrt' or 'none'. "
                "Take 'sigma' for the right answer."
            )
        if self.oversample is not None and (
            type(self.oversample) is not int or self.oversample < 0
        ):
            raise InputError(
                f"oversample={self.oversample!r} must be an integer of at least 0. "
                "Pass None to send twice as many directions as components."
            )

    def rank(self, k: int) -> int:
        """Return how many directions each site sends for k components."""
        return k + (k if self.oversample is None else self.oversample)

    def sums_only(self) -> bool:
        """Whether sums are all it needs: no, it merges the summaries of single sites."""
        return False

    def width(self, k: int, d: int) -> int:
        """Return how many directions are kept of the merged summary."""
        return min(self.rank(k), d)

    def script(self, study: Study, d: int) -> Script:
        """Return a summary, and what the certificate takes."""
        return sequence("summarise", optional("product"), optional("remainder"))

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Ask every site for its summary once and merge them.

        With `certify`, one product round with all merged directions and one for the bound follow;
        the product improves the components too, by Rayleigh and Ritz. Without, "sigma" ends after
        the one ask: variances, from below, and total variance follow from the merged summary. The
        other weightings know no variances and always ask for one product, with their k directions.
        """
        k, moments = run.k, run.moments
        replies = yield from call_each(Call(SummaryRequest(**run.frame())))
        products = products_of(run)
        if self.weighting != "sigma" or run.certify:
            basis = _directions(replies, run.d, k, self).T
            return (yield from finished(products, basis, k, tol=run.tol, certify=run.certify))
        merged, s, vt = _merged(replies, run.d, self.rank(k))
        components = signed_rows(completed_rows(vt[:k], min(k, merged.d)))
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
        """Count summaries, of which the coordinator holds one of each site."""
        width = self.width(shape.components, shape.features)
        wide, block = shape.column_bytes(width), block_bytes(shape)
        return Cost(
            1 + 2 * shape.certify,
            2 * width,
            float(shape.features) * (width + 1),
            max(8.0 * wide + block, min(block_count(shape), 1.7) * block),
            (6.0 + 1.7 * shape.sites) * wide,
            product_work(shape, 2 * width, width),
        )


def one_shot_basis(run: Run, k: int, options: Merge) -> Protocol[Array]:
    """Ask every site for its summary once and return a basis to start an iteration from.

    [Hartebrodt2022] section 3.3 (AI-FULL) starts from Alg. 4; the default weighting here is the
    right one.

    Returns
    -------
    ndarray of shape (d, k)
        Orthonormal columns; where sites have too few directions, a completion of them.
    """
    replies = yield from call_each(Call(SummaryRequest(**run.frame())))
    basis: Array = _directions(replies, run.d, k, options)[:k].T
    return basis


def _directions(replies: dict[str, SummaryReply], d: int, k: int, options: Merge) -> Array:
    """Return the merged directions, (m, d): all that are kept of "sigma", k of the others."""
    if options.weighting == "sigma":
        vt = _merged(replies, d, options.rank(k))[2]
    else:
        power = _POWERS[options.weighting]
        parts = [part.s[:, None] ** power * part.vt for part in _summaries(replies, d)]
        vt = compress(np.concatenate(parts), k)[1]
    return completed_rows(vt, max(min(k, d), len(vt)))


def _merged(replies: dict[str, SummaryReply], d: int, rank: int) -> tuple[Summary, Array, Array]:
    """Return the merged summary, and its singular values and directions about the run's mean.

    Rows came centred about the run's mean, so the merged mean is 0 but for rounding, unless the
    run does not centre: then the scatter about 0 has one direction more, that of the mean.
    """
    merged = Summary.empty(d, _INSIDE * rank)
    for part in _summaries(replies, d):
        merged = merged.merge(part)
    rows = [merged.s[:, None] * merged.vt, math.sqrt(merged.n) * merged.mean[None]]
    s, vt, _ = compress(np.concatenate(rows), rank)
    return merged, s, vt


def _summaries(replies: dict[str, SummaryReply], d: int) -> Iterable[Summary]:
    for site in sorted(replies):
        yield _summary(site, replies[site], d)


def _summary(site: str, reply: SummaryReply, d: int) -> Summary:
    """Make a summary of a reply; a single-precision wire leaves its directions orthonormal to 1e-7.

    That is enough: whatever is made of them is decomposed again, to full precision.
    """
    r, vt = len(reply.s), reply.vt
    shapes = (reply.mean.shape, reply.s.shape, vt.shape)
    arrays = (reply.mean, reply.s, vt, np.array([reply.n, reply.energy, reply.lost]))
    if shapes != ((d,), (r,), (r, d)) or not all(np.isfinite(array).all() for array in arrays):
        raise ProtocolError(
            f"The summary of site {site!r} has fields that do not fit {d} features, or numbers "
            "that are not finite. Use the same release and features everywhere."
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
