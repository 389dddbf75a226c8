"""Where each site's rows lie on the components: what is a site and what is a finding.

===========  ==================================================================================
coordinator  of each site on its own: its weight, and the mean and mean square of its rows' scores
site         the components, and the mean and scale of all rows
===========  ==================================================================================

The components are found before this is asked, so that what it tells of the scatter lies within
directions that were answered about already. A site that keeps its replies for secure sums refuses.
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.products import prepared
from eigenfed.protocol.result import Decomposition, SiteLevel


@op(Release("weight, and moments of the scores", "1 + 2 k", Leaves.EXACT, Reveals.DIRECTIONS))
def own_level(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the weight of the rows, and the mean and mean square of their scores."""
    view, state = prepared(source, payload, state)
    basis = payload["basis"]
    images = view.product(basis)
    weight = float(source.n if source.weights is None else source.weights.sum())
    per = max(weight, np.finfo(float).tiny)
    reply = {
        "weight": np.array([weight]),
        "mean": (view.adjoint(np.ones((source.n, 1))).T @ basis)[0] / per,
        "square": np.sum(basis * images, axis=0) / per,
    }
    return Answer(reply, state, basis, images, float(state["trace"][0]))


OPS = (own_level,)


def levels(found: Decomposition) -> Protocol[dict[str, SiteLevel]]:
    """Ask each site where its rows lie on the components that were found."""
    payload = {"basis": found.components.T, "mean": found.mean, "scale": found.scale}
    replies = yield Ask("own_level", payload)
    return {
        site: SiteLevel(float(reply["weight"][0]), reply["mean"], reply["square"])
        for site, reply in replies.items()
    }


@dataclass(frozen=True, eq=False)
class BySite:
    """How the sites' levels add up, by component.

    Attributes
    ----------
    explained : ndarray of shape (k,)
        Share of each component's variance that is between the sites' means: near 1, the component
        tells sites apart and little else.
    contribution : dict of str to ndarray of shape (k,)
        Share of each component's sum of squares that a site's rows bring.
    shift : dict of str to ndarray of shape (k,)
        The site's mean score, in deviations of all rows' scores.
    """

    explained: Array
    contribution: dict[str, Array]
    shift: dict[str, Array]


def compared(levels: dict[str, SiteLevel]) -> BySite:
    """Compare the sites.

    Examples
    --------
    >>> import numpy as np
    >>> low = SiteLevel(10.0, np.array([-1.0]), np.array([2.0]))
    >>> high = SiteLevel(10.0, np.array([1.0]), np.array([2.0]))
    >>> found = compared({"low": low, "high": high})
    >>> found.explained, found.contribution["low"], found.shift["high"].round(3)
    (array([0.5]), array([0.5]), array([0.707]))
    """
    whole = np.sum([level.weight * level.square for level in levels.values()], axis=0)
    weight = sum(level.weight for level in levels.values())
    between = np.sum([level.weight * level.mean**2 for level in levels.values()], axis=0)
    safe = np.where(whole > 0.0, whole, 1.0)
    deviation = np.sqrt(safe / max(weight, np.finfo(float).tiny))
    return BySite(
        np.minimum(between / safe, 1.0),
        {site: level.weight * level.square / safe for site, level in levels.items()},
        {site: level.mean / deviation for site, level in levels.items()},
    )
