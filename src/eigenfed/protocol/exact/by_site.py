"""Where each site's rows lie on the components: shows components that only separate sites.

===========  ==================================================================================
coordinator  from each site alone: its weight, and the mean and mean square of its rows' scores
site         the components, and the mean and scale of all rows
===========  ==================================================================================

The request comes after the components are found, so it reveals the scatter only along directions
that are revealed already. A site that replies only through secure aggregation refuses it.
"""

from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition, SiteLevel
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import prepare_rows
from eigenfed.protocol.exact.site_vectors import Sided
from eigenfed.protocol.method import Run
from eigenfed.protocol.operations import Answer, State, Terms, op


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LevelReply:
    """Weight of the rows, and the mean and mean square of their scores.

    Attributes
    ----------
    weight : float
    mean, square : ndarray of shape (k,)
    """

    weight: float
    mean: Array
    square: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LevelRequest(FramedRequest):
    """Request the moments of a site's scores on the components.

    Attributes
    ----------
    basis : ndarray of shape (d, k)
        The components.
    """

    basis: Array

    op, reply = "own_level", LevelReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse more directions than there are components."""
        super().check(terms, state)
        terms.check_directions("basis", self.basis, min(terms.k, terms.d))

    def directions(self) -> Array:
        """Return the components."""
        return self.basis

    def with_directions(self, directions: Array) -> "LevelRequest":
        """Return the same request about other directions."""
        return replace(self, basis=directions)


@op(Release("weight, and moments of the scores", "1 + 2 k", Leaves.EXACT, Reveals.DIRECTIONS))
def own_level(
    source: Source, request: LevelRequest, state: State, terms: Terms
) -> Answer[LevelReply]:
    """Return the weight of the rows, and the mean and mean square of their scores."""
    view, frame, state = prepare_rows(source, state)
    basis = request.basis
    own = Sided.multiply(view, basis)
    images = view.product(basis) if own.shifted is not None else own.adjoin(view)
    weights = np.ones(source.n) if source.weights is None else source.weights
    weight = float(weights.sum())
    per = max(weight, np.finfo(float).tiny)
    reply = LevelReply(
        weight=weight,
        mean=weights @ own.rows / per + own.level,
        square=np.sum(basis * images, axis=0) / per,
    )
    return Answer(reply, state, frame.answered(basis, images))


OPS = (own_level,)


def request_levels(run: Run, found: Decomposition) -> Protocol[dict[str, SiteLevel]]:
    """Request from each site the moments of its scores on the components found."""
    replies = yield from call_each(Call(LevelRequest(basis=found.components.T, **run.frame())))
    return {
        site: SiteLevel(reply.weight, reply.mean, reply.square) for site, reply in replies.items()
    }


@dataclass(frozen=True, eq=False)
class BySite:
    """Comparison of the sites, by component.

    Attributes
    ----------
    explained : ndarray of shape (k,)
        Fraction of each component's variance that is between the sites' means: near 1, the
        component separates sites and does little else.
    contribution : dict of str to ndarray of shape (k,)
        Fraction of each component's sum of squares contributed by a site's rows.
    shift : dict of str to ndarray of shape (k,)
        The site's mean score, in standard deviations of all rows' scores.
    """

    explained: Array
    contribution: dict[str, Array]
    shift: dict[str, Array]


def compare_sites(by_site: dict[str, SiteLevel]) -> BySite:
    """Compare the sites' scores: variance between sites, contributions and shifts.

    Examples
    --------
    >>> import numpy as np
    >>> low = SiteLevel(10.0, np.array([-1.0]), np.array([2.0]))
    >>> high = SiteLevel(10.0, np.array([1.0]), np.array([2.0]))
    >>> found = compare_sites({"low": low, "high": high})
    >>> found.explained, found.contribution["low"], found.shift["high"].round(3)
    (array([0.5]), array([0.5]), array([0.707]))
    """
    whole = np.sum([level.weight * level.square for level in by_site.values()], axis=0)
    weight = sum(level.weight for level in by_site.values())
    between = np.sum([level.weight * level.mean**2 for level in by_site.values()], axis=0)
    safe = np.where(whole > 0.0, whole, 1.0)
    sd = np.sqrt(safe / max(weight, np.finfo(float).tiny))
    return BySite(
        np.minimum(between / safe, 1.0),
        {site: level.weight * level.square / safe for site, level in by_site.items()},
        {site: level.mean / sd for site, level in by_site.items()},
    )
