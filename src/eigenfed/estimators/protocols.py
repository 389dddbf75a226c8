"""Which protocol a fit runs."""

import numpy as np

from eigenfed.privacy.published import Published
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.features import features_pca
from eigenfed.protocol.pca import Plan, pca
from eigenfed.protocol.private import private_pca
from eigenfed.protocol.published import published_pca
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total


def protocol_of(
    plan: Plan,
    privacy: Privacy | Published | None,
    sites: tuple[str, ...],
    total: Total,
    rng: np.random.Generator,
    *,
    rows: int | None = None,
) -> Protocol[Decomposition]:
    """Return the coordinator's half of a fit.

    Parameters
    ----------
    plan : Plan
    privacy : Privacy, Published or None
    sites : tuple of str
    total : Total
        How sums over sites are made.
    rng : numpy Generator
        For public starts.
    rows : int, optional
        How many rows all sites share, where they hold different features of them.

    Examples
    --------
    >>> from eigenfed.protocol.totals import plain_sum
    >>> next(protocol_of(Plan(2), None, ("a",), plain_sum, np.random.default_rng(0))).op
    'moments'
    """
    if isinstance(privacy, Published):
        return published_pca(privacy, plan.k, sites=sites, rng=rng, center=plan.center)
    if privacy is not None:
        return private_pca(
            privacy,
            plan.k,
            method=str(plan.method),
            center=plan.center,
            scale=plan.scale,
            tol=plan.tol,
            sites=sites,
            rng=rng,
            total=total,
        )
    if rows is None:
        return pca(plan, sites=sites, rng=rng, total=total)
    return features_pca(
        rows,
        plan.k,
        center=plan.center,
        scale=plan.scale,
        tol=plan.tol,
        stop=plan.stop,
        max_rounds=plan.max_rounds,
        certify=plan.certify,
        rng=rng,
        total=total,
    )
