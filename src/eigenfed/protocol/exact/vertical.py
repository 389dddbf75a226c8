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

from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import completed_rows, orthonormalise_rows, signed_rows
from eigenfed.privacy.leakage import Answered
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import RemainderReply, largest_outside, outside_of
from eigenfed.protocol.exact.krylov import Krylov, lanczos
from eigenfed.protocol.exact.moments import Moments
from eigenfed.protocol.exact.products import ProductReply, Products
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.operations import Answer, Request, State, Terms, op
from eigenfed.protocol.study import Study

_COVERED = 1e-6


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """A site's columns through their own mean and scale.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,)
    trace : float
        Total squared deviation.
    """

    mean: Array
    scale: Array
    trace: float


def _columns(source: Source, state: State, terms: Terms) -> tuple[Prepared, Columns, State]:
    """Return the site's columns through their own mean and scale, as the study wants them."""
    own = state.own
    if not isinstance(own, Columns):
        study = terms.study
        mean, scale = own_moments(source, center=study.center, scale=study.scale)
        trace = float(Prepared(source, mean, scale).squares().sum())
        own = Columns(mean, scale, trace)
        state = replace(state, own=own)
    return Prepared(source, own.mean, own.scale), own, state


def own_moments(source: Source, *, center: bool, scale: bool) -> tuple[Array, Array]:
    """Mean and standard deviation of each column over its observed entries, (d,) each."""
    _, count, total = source.totals()
    observed = np.maximum(count, 1.0)
    mean = total / observed if center else np.zeros(source.d)
    if not scale:
        return mean, np.ones(source.d)
    spread = np.sqrt(Prepared(source, mean, np.ones(source.d)).squares() / observed)
    return mean, np.where(spread > 10 * np.finfo(float).eps * np.abs(mean), spread, 1.0)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowProductRequest(Request[ProductReply]):
    """Ask for D D' times row-side vectors.

    Attributes
    ----------
    basis : ndarray of shape (n, l)
        Orthonormal columns, one row for each row of the table.
    """

    basis: Array

    op, reply = "row_product", ProductReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse vectors of another shape, or that are not orthonormal."""
        most = Krylov().width(terms.k, terms.n)
        terms.check_directions("basis", self.basis, most, terms.n)

    def directions(self) -> Array:
        """Return the row-side vectors."""
        return self.basis

    def about(self, directions: Array) -> "RowProductRequest":
        """Return the same request about other vectors."""
        return replace(self, basis=directions)


@op(Release("row-side products", "n x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def row_product(
    source: Source, request: RowProductRequest, state: State, terms: Terms
) -> Answer[ProductReply]:
    """Return D D' times row-side vectors, and the trace."""
    view, own, state = _columns(source, state, terms)
    images = view.multiply(view.adjoint(request.basis))
    state = replace(state, blocks=(*state.blocks, request.basis))
    reply = ProductReply(product=images, trace=own.trace)
    return Answer(reply, state, Answered(request.basis, images, own.trace))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowRemainderRequest(Request[RemainderReply]):
    """Ask for the largest eigenvalue of D D' outside row-side vectors answered about.

    Attributes
    ----------
    last : bool
        Whether those of the last product are meant, or those of all products of the run.
    """

    last: bool

    op, reply = "row_remainder", RemainderReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse where no product was answered yet."""
        if not state.blocks:
            raise InputError("A remainder is asked for after products.")


@op(Release("largest remaining eigenvalue", "1", Leaves.SUM_ONLY, Reveals.BOUND))
def row_remainder(
    source: Source, request: RowRemainderRequest, state: State, terms: Terms
) -> Answer[RemainderReply]:
    """Largest eigenvalue of D D' outside the given row-side vectors."""
    view, own, state = _columns(source, state, terms)

    def apply(vectors: Array) -> Array:
        return view.multiply(view.adjoint(vectors))

    largest = largest_outside(apply, outside_of(state, last=request.last), own.trace)
    return Answer(RemainderReply(largest=largest), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LoadingsReply:
    """A site's part of the components, unscaled, with its means and scales.

    Attributes
    ----------
    loadings : ndarray of shape (d, k)
    mean, scale : ndarray of shape (d,)
    """

    loadings: Array
    mean: Array
    scale: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LoadingsRequest(Request[LoadingsReply]):
    """Ask for D' times unit row-side vectors.

    Attributes
    ----------
    sided : ndarray of shape (n, k)
        Orthonormal columns within the span of the products of this run: with other vectors, such
        as those of single rows, the reply would be the rows themselves.
    """

    sided: Array

    op, reply = "loadings", LoadingsReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse vectors that the products of the run did not lead to."""
        terms.check_directions("sided", self.sided, min(terms.k, terms.n), terms.n)
        outside = self.sided
        for block in state.blocks * 2:
            outside = outside - block @ (block.T @ outside)
        if not np.sqrt(np.sum(outside**2, axis=0)).max() <= _COVERED:
            raise InputError("sided must lie within what the products of this run were about.")

    def directions(self) -> Array:
        """Return the row-side vectors."""
        return self.sided

    def about(self, directions: Array) -> "LoadingsRequest":
        """Return the same request about other vectors."""
        return replace(self, sided=directions)


@op(Release("loadings, means and scales", "d x k + 2 d", Leaves.EXACT, Reveals.DIRECTIONS))
def loadings(
    source: Source, request: LoadingsRequest, state: State, terms: Terms
) -> Answer[LoadingsReply]:
    """Return D' times unit row-side vectors: the site's part of the components, unscaled."""
    view, own, state = _columns(source, state, terms)
    part = view.adjoint(request.sided)
    reply = LoadingsReply(loadings=part, mean=own.mean, scale=own.scale)
    return Answer(reply, state, Answered(request.sided, view.multiply(part), own.trace))


OPS = (row_product, row_remainder, loadings)


def features_script(study: Study) -> Script:
    """Return what a site is asked where features are split."""
    products = repeat("row_product", 1, study.max_rounds)
    return sequence(products, optional("row_remainder"), "loadings")


def features_pca(
    study: Study, n: int, rng: np.random.Generator, total: Total
) -> Protocol[Decomposition]:
    """Run a federated PCA of features that are split over sites.

    Parameters
    ----------
    study : Study
    n : int
        Number of rows, the same and in the same order at every site.
    rng : numpy Generator
        For the first block.
    total : Total
        How sums are made.

    Returns
    -------
    Decomposition
        Its components join the sites' loadings in sorted order of sites.
    """
    products = Products(
        Moments(float(n), np.zeros(n), np.ones(n)),
        total,
        dict,
        RowRemainderRequest,
        RowProductRequest,
    )
    k = study.components
    found = yield from lanczos(products, k, study, rng)
    # What completes the components where rows have few directions was never asked about.
    inside = found.variances > 0.0
    inside[0] = True
    replies = yield from call_each(Call(LoadingsRequest(sided=found.components[inside].T)))
    parts = [replies[site] for site in sorted(replies)]
    whole = np.vstack([part.loadings for part in parts])
    # A component without variance has no loadings; its place is kept by a completion.
    sizes = np.sqrt(np.sum(whole**2, axis=0))
    kept = sizes > np.sqrt(np.finfo(float).eps) * max(float(sizes.max(initial=0.0)), 1e-300)
    vt = completed_rows(orthonormalise_rows((whole[:, kept] / sizes[kept]).T), k)
    return replace(
        found,
        components=signed_rows(vt),
        mean=np.concatenate([part.mean for part in parts]),
        scale=np.concatenate([part.scale for part in parts]),
        method="krylov",
        why="features are split over sites: products of rows are the sums there are",
    )
