"""One-shot merge: each site summarises its own rows, and the coordinator joins the summaries.

===========  ==================================================================================
coordinator  of each site on its own: weight, mean, the leading singular values and directions of
             its rows about that mean, total squared deviation, and a bound on what is missing
site         the mean and scale of all rows, and how many directions are wanted
===========  ==================================================================================

One ask, and no sum: a merge needs each site's directions beside its own singular values, so no
secure sum can carry them. What a site keeps back limits the answer, which is exact where the
directions sent cover the rows' rank and close to it where their spectrum falls.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.compress import compress
from eigenfed.linalg.orthonormal import completed_rows, signed_rows
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol, Replies
from eigenfed.protocol.finish import finished
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.products import Products, prepared
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total

_POWERS = {"none": 0.0, "sqrt": 0.5}
_NEARLY_ORTHONORMAL = 1e-3
# Folding in at twice the rank that is sent or kept makes truncation on the way negligible, and
# costs no message: digits at k = 10 capture 0.9999 so, and 0.9997 without.
_INSIDE = 2


@dataclass(frozen=True)
class Merge:
    """How summaries are merged.

    Attributes
    ----------
    weighting : {"sigma", "sqrt", "none"}
        What a site's unit directions are multiplied by before all are decomposed together:
        their singular values, with a row for the shift between the sites' means ("sigma",
        `Summary.merge`); nothing (003 Alg. 4 as printed); the roots of their singular values
        (its published code). The last two are comparators: they lose the shift of the means,
        since each site's directions are about its own, and count weak directions too much.
    oversample : int or None
        Directions that each site sends beyond the components wanted; None sends twice as many.

    Examples
    --------
    >>> Merge().rank(10), Merge(oversample=5).rank(10)
    (20, 15)
    """

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
                f"oversample={self.oversample!r} must be a whole number of at least 0. "
                "Pass None to send twice as many directions as components."
            )

    def rank(self, k: int) -> int:
        """Return how many directions each site sends for k components."""
        return k + (k if self.oversample is None else self.oversample)


@op(Release("summary of rows", "l (d + 1) + d + 3", Leaves.EXACT, Reveals.DIRECTIONS))
def summarise(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the summary of the site's rows, about their own mean and in the run's units."""
    view, state = prepared(source, payload, state)
    rank = min(int(payload["rank"][0]), source.d)
    summary = view.summary(_INSIDE * rank).truncate(rank)
    reply = {
        "n": np.array([summary.n]),
        "mean": summary.mean,
        "s": summary.s,
        "vt": summary.vt,
        "energy": np.array([summary.energy]),
        "lost": np.array([summary.lost]),
    }
    # Nobody asked about these directions, but they are eigenvectors of the scatter about the
    # site's mean, so with their squares and the mean sent it is as if its product with them had
    # been answered. It is counted about the mean of all sites, as every other answer of the run.
    directions = summary.vt.T
    return Answer(reply, state, directions, view.product(directions), summary.energy)


OPS = (summarise,)


def merge(
    moments: Moments, k: int, *, options: Merge, tol: float, certify: bool, total: Total
) -> Protocol[Decomposition]:
    """Ask every site for its summary once and merge them.

    With `certify`, one product round with all merged directions and one for the bound follow; the
    product improves the components too, by Rayleigh and Ritz. Without, "sigma" ends after the
    one ask: variances, from below, and total variance follow from the merged summary. The other
    weightings know no variances and always ask for one product, with their k directions.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components.
    options : Merge
    tol : float
        Residual at which a component counts as converged.
    certify : bool
        Ask twice more, for the certificate.
    total : Total
        How sums are made, of which the merge itself has none.
    """
    replies = yield _ask(moments, k, options)
    products = Products(moments, total)
    if options.weighting != "sigma" or certify:
        basis = _directions(replies, len(moments.mean), k, options).T
        return (yield from finished(products, basis, k, tol=tol, certify=certify))
    merged, s, vt = _merged(replies, len(moments.mean), options.rank(k))
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


def one_shot_basis(moments: Moments, k: int, *, options: Merge) -> Protocol[Array]:
    """Ask every site for its summary once and return a basis to start an iteration from.

    003 section 3.3 (AI-FULL) starts from Alg. 4; the default weighting here is the right one.

    Parameters
    ----------
    moments : Moments
    k : int
    options : Merge

    Returns
    -------
    ndarray of shape (d, k)
        Orthonormal columns; where sites have too few directions, a completion of them.
    """
    replies = yield _ask(moments, k, options)
    basis: Array = _directions(replies, len(moments.mean), k, options)[:k].T
    return basis


def _ask(moments: Moments, k: int, options: Merge) -> Ask:
    return Ask("summarise", {**moments.arrays, "rank": np.array([options.rank(k)])})


def _directions(replies: Replies, d: int, k: int, options: Merge) -> Array:
    """Return the merged directions, (m, d): all that are kept of "sigma", k of the others."""
    if options.weighting == "sigma":
        vt = _merged(replies, d, options.rank(k))[2]
    else:
        power = _POWERS[options.weighting]
        parts = [part.s[:, None] ** power * part.vt for part in _summaries(replies, d)]
        vt = compress(np.concatenate(parts), k)[1]
    return completed_rows(vt, max(min(k, d), len(vt)))


def _merged(replies: Replies, d: int, rank: int) -> tuple[Summary, Array, Array]:
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


def _summaries(replies: Replies, d: int) -> Iterable[Summary]:
    for site in sorted(replies):
        yield _summary(site, replies[site], d)


def _summary(site: str, reply: Arrays, d: int) -> Summary:
    """Make a summary of a reply; a single-precision wire leaves its directions orthonormal to 1e-7.

    That is enough: whatever is made of them is decomposed again, to full precision.
    """
    r = len(reply["s"])
    shapes = {"n": (1,), "mean": (d,), "s": (r,), "vt": (r, d), "energy": (1,), "lost": (1,)}
    if {name: array.shape for name, array in reply.items()} != shapes or not all(
        np.isfinite(array).all() for array in reply.values()
    ):
        raise ProtocolError(
            f"The summary of site {site!r} has fields that do not fit {d} features, or numbers "
            "that are not finite. Use the same release and features everywhere."
        )
    vt = reply["vt"]
    if np.abs(vt @ vt.T - np.eye(r)).max(initial=0.0) > _NEARLY_ORTHONORMAL:
        raise ProtocolError(
            f"The directions of site {site!r} are not orthonormal. "
            "Use the same release of eigenfed everywhere."
        )
    n, energy, lost = (float(reply[name][0]) for name in ("n", "energy", "lost"))
    return Summary(n, reply["mean"], reply["s"], vt, energy, lost, max(r, 1))
