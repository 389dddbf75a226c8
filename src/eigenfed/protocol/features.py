"""Sites that hold different features of the same rows.

===========  ==================================================================================
coordinator  sums over sites of D D' P, n x l: vectors with one entry for each row, so it sees
             the rows' side; the loadings of each site where it asks for them
site         P, the row-side vectors asked about
===========  ==================================================================================

The covariance between features of two sites is never formed; the n x n matrix of inner products
of rows is a sum over sites, and its leading eigenvectors are found as in `krylov`. Each site
centres and scales its own columns, which it has whole. Rows must be matched before.
"""

from dataclasses import replace

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.linalg.orthonormal import completed_rows, orthonormal_rows, signed_rows
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.certificate import largest_outside
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.krylov import lanczos
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.products import Products
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total


def _columns(source: Source, payload: Arrays, state: Arrays) -> tuple[Prepared, Arrays]:
    """Return the site's columns through their own mean and scale, which the first ask chooses."""
    if "own_mean" not in state:
        center, scale = payload["how"]
        mean, spread = own_moments(source, center=bool(center), scale=bool(scale))
        state = {**state, "own_mean": mean, "own_scale": spread}
        trace = Prepared(source, mean, spread).squares().sum()
        state = {**state, "trace": np.array([trace])}
    return Prepared(source, state["own_mean"], state["own_scale"]), state


def own_moments(source: Source, *, center: bool, scale: bool) -> tuple[Array, Array]:
    """Mean and standard deviation of each column over its observed entries, (d,) each."""
    _, count, total = source.totals()
    observed = np.maximum(count, 1.0)
    mean = total / observed if center else np.zeros(source.d)
    if not scale:
        return mean, np.ones(source.d)
    spread = np.sqrt(Prepared(source, mean, np.ones(source.d)).squares() / observed)
    return mean, np.where(spread > 10 * np.finfo(float).eps * np.abs(mean), spread, 1.0)


@op(Release("row-side products", "n x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def row_product(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return D D' times row-side vectors, and the trace."""
    view, state = _columns(source, payload, state)
    images = view.multiply(view.adjoint(payload["basis"]))
    reply = {"product": images, "trace": state["trace"]}
    return Answer(reply, state, payload["basis"], images, float(state["trace"][0]))


@op(Release("largest remaining eigenvalue", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def row_remainder(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Largest eigenvalue of D D' outside the given row-side vectors."""
    view, state = _columns(source, payload, state)

    def apply(vectors: Array) -> Array:
        return view.multiply(view.adjoint(vectors))

    largest = largest_outside(apply, payload["known"], float(state["trace"][0]))
    return Answer({"largest": np.array([largest])}, state)


@op(Release("loadings, means and scales", "d x k + 2 d", Leaves.EXACT, Reveals.DIRECTIONS))
def loadings(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return D' times unit row-side vectors: the site's part of the components, unscaled."""
    view, state = _columns(source, payload, state)
    sided = payload["sided"]
    part = view.adjoint(sided)
    reply = {"loadings": part, "mean": state["own_mean"], "scale": state["own_scale"]}
    return Answer(reply, state, sided, view.multiply(part), float(state["trace"][0]))


OPS = (row_product, row_remainder, loadings)


def features_pca(
    n: int,
    k: int,
    *,
    center: bool,
    scale: bool,
    tol: float,
    stop: str,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
    total: Total,
) -> Protocol[Decomposition]:
    """Run a federated PCA of features that are split over sites.

    Parameters
    ----------
    n : int
        Number of rows, the same and in the same order at every site.
    k : int
        Number of components.
    center, scale : bool
    tol, stop, max_rounds, certify, rng, total
        As for `krylov`.

    Returns
    -------
    Decomposition
        Its components join the sites' loadings in sorted order of sites.
    """
    products = Products(
        Moments(float(n), np.zeros(n), np.ones(n)),
        total,
        op="row_product",
        outside="row_remainder",
        first={"how": np.array([center, scale], dtype=np.float64)},
    )
    found = yield from lanczos(
        products, k, tol=tol, stop=stop, max_rounds=max_rounds, certify=certify, rng=rng
    )
    replies = yield Ask("loadings", {"sided": found.components.T})
    parts = [replies[site] for site in sorted(replies)]
    whole = np.vstack([part["loadings"] for part in parts])
    # A component without variance has no loadings; its place is kept by a completion.
    sizes = np.sqrt(np.sum(whole**2, axis=0))
    kept = sizes > np.sqrt(np.finfo(float).eps) * max(float(sizes.max(initial=0.0)), 1e-300)
    vt = completed_rows(orthonormal_rows((whole[:, kept] / sizes[kept]).T), k)
    return replace(
        found,
        components=signed_rows(vt),
        mean=np.concatenate([part["mean"] for part in parts]),
        scale=np.concatenate([part["scale"] for part in parts]),
        method="krylov",
        why="features are split over sites: products of rows are the sums there are",
    )
