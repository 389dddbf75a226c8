"""Sites that hold different features of the same rows.

===========  ==================================================================================
coordinator  sums over sites of D D' P, n x l: vectors with one entry for each row, so it sees
             sample-side vectors; the loadings of each site
site         P, the row-side vectors requested
===========  ==================================================================================

The covariance between features of two sites is never formed. The n x n matrix of inner products
of rows is a sum over sites; its leading eigenvectors are found as in `krylov`. Each site centres
and scales its own columns, which it holds completely. Rows must be matched beforehand.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.packed_rows import view_rows
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.orthonormal import complete_rows, flip_signs, orthonormalise_rows
from eigenfed.linalg.remainder import Factor
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.revealed_products import RevealedProducts
from eigenfed.protocol.core import Call, Protocol, Total, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.accuracy import widen_certificate
from eigenfed.protocol.exact.certificate import RemainderReply, bound_remainder, select_known
from eigenfed.protocol.exact.krylov import Krylov, lanczos
from eigenfed.protocol.exact.moments import Moments
from eigenfed.protocol.exact.products import ProductReply, Products
from eigenfed.protocol.exact.rounding import bound_rounding, count_roundings
from eigenfed.protocol.exact.stages import find_scale
from eigenfed.protocol.gate.script import Script, optional, repeat, sequence
from eigenfed.protocol.operations import Answer, Request, State, Terms, check_integer, op
from eigenfed.protocol.study import Study

_COVERED = 1e-6
"""Largest norm of the part of a unit row-side vector outside the products of the run."""


@dataclass(frozen=True, eq=False, repr=False)
class Columns:
    """How a site's columns are centred and scaled.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,)
    trace : float
        Total sum of squares of the centred and scaled columns.
    """

    mean: Array
    scale: Array
    trace: float


def _prepare_columns(source: Source, state: State, terms: Terms) -> tuple[Prepared, Columns, State]:
    """Return the site's columns, centred and scaled as the study says."""
    own = state.own
    if not isinstance(own, Columns):
        study = terms.study
        mean, scale = compute_own_moments(
            source, center=bool(study.center), scale=bool(study.scale)
        )
        trace = float(Prepared(source, mean, scale).squares().sum())
        own = Columns(mean, scale, trace)
        state = replace(state, own=own)
    return Prepared(source, own.mean, own.scale), own, state


def compute_own_moments(source: Source, *, center: bool, scale: bool) -> tuple[Array, Array]:
    """Compute the mean and standard deviation of each column over its observed entries, (d,)."""
    totals = source.totals()
    mean = totals.mean if center else np.zeros(source.d)
    if not scale:
        return mean, np.ones(source.d)
    squares = view_rows(source, mean, np.ones(source.d)).squares()
    return mean, find_scale(mean, squares, totals.observed)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowProductRequest(Request[ProductReply]):
    """Request D D' times row-side vectors.

    Attributes
    ----------
    basis : ndarray of shape (n, l)
        Orthonormal columns, one row for each row of the table.
    """

    basis: Array

    op, reply = "row_product", ProductReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse too many vectors, of another shape, or not orthonormal."""
        most = Krylov().width(terms.k, terms.n)
        terms.check_directions("basis", self.basis, most, terms.n)

    def directions(self) -> Array:
        """Return the row-side vectors."""
        return self.basis

    def with_directions(self, directions: Array) -> "RowProductRequest":
        """Return the same request about other vectors."""
        return replace(self, basis=directions)


@op(Release("row-side products", "n x l + 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def row_product(
    source: Source, request: RowProductRequest, state: State, terms: Terms
) -> Answer[ProductReply]:
    """Return D D' times row-side vectors, and the trace."""
    view, own, state = _prepare_columns(source, state, terms)
    images = view.multiply(view.adjoint(request.basis))
    state = replace(state, blocks=(*state.blocks, request.basis))
    reply = ProductReply(product=images, trace=own.trace)
    return Answer(reply, state, RevealedProducts(request.basis, images, own.trace))


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class RowRemainderRequest(Request[RemainderReply]):
    """Request the largest eigenvalue of D D' outside the row-side vectors revealed.

    Attributes
    ----------
    products : int
        How many products count, from the last one backwards: the bound is outside their vectors.
    """

    products: int

    op, reply = "row_remainder", RemainderReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a number of products that the run has not had."""
        check_integer("products", self.products, 1, len(state.blocks))


@op(Release("largest remaining eigenvalue", "1", Leaves.SUM_ONLY, Reveals.REMAINDER))
def row_remainder(
    source: Source, request: RowRemainderRequest, state: State, terms: Terms
) -> Answer[RemainderReply]:
    """Return the largest eigenvalue of D D' outside the row-side vectors revealed."""
    view, own, state = _prepare_columns(source, state, terms)

    factor = Factor(source.d, source.n, view.adjoint, view.multiply)
    known = select_known(state, request.products)
    return Answer(bound_remainder(factor, known, own.trace, terms.study), state)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class LoadingsReply:
    """A site's part of the components, not normalised, with its means and scales.

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
    """Request D' times unit row-side vectors.

    Attributes
    ----------
    sided : ndarray of shape (n, k)
        Orthonormal columns within the span of the vectors multiplied in this run. With other
        vectors, such as those of single rows, the reply would be the rows themselves.
    """

    sided: Array

    op, reply = "loadings", LoadingsReply

    def check(self, terms: Terms, state: State) -> None:
        """Refuse vectors outside the span of those multiplied in this run."""
        terms.check_directions("sided", self.sided, min(terms.k, terms.n), terms.n)
        outside = self.sided
        for block in state.blocks * 2:
            outside = outside - block @ (block.T @ outside)
        if not np.sqrt(np.sum(outside**2, axis=0)).max() <= _COVERED:
            raise InputError("sided must lie in the span of the vectors multiplied in this run.")

    def directions(self) -> Array:
        """Return the row-side vectors."""
        return self.sided

    def with_directions(self, directions: Array) -> "LoadingsRequest":
        """Return the same request about other vectors."""
        return replace(self, sided=directions)


@op(Release("loadings, means and scales", "d x k + 2 d", Leaves.EXACT, Reveals.DIRECTIONS))
def loadings(
    source: Source, request: LoadingsRequest, state: State, terms: Terms
) -> Answer[LoadingsReply]:
    """Return D' times unit row-side vectors: the site's part of the components."""
    view, own, state = _prepare_columns(source, state, terms)
    part = view.adjoint(request.sided)
    reply = LoadingsReply(loadings=part, mean=own.mean, scale=own.scale)
    return Answer(reply, state, RevealedProducts(request.sided, view.multiply(part), own.trace))


OPS = (row_product, row_remainder, loadings)


def features_script(study: Study) -> Script:
    """Return the script of a site if features are split over sites."""
    products = repeat("row_product", 1, study.max_rounds)
    return sequence(products, optional("row_remainder"), "loadings")


def features_pca(
    study: Study, n: int, rng: np.random.Generator, total: Total
) -> Protocol[Decomposition]:
    """Run a federated PCA of features that are split over sites, by block Lanczos on rows.

    Parameters
    ----------
    study : Study
    n : int
        Number of rows, the same and in the same order at every site.
    rng : numpy Generator
        For the first block.
    total : Total
        How sums over sites are made.

    Returns
    -------
    Decomposition
        Its components are the sites' loadings, concatenated in sorted order of sites.
    """
    products = Products(
        Moments(float(n), np.zeros(n), np.ones(n)),
        total,
        dict,
        RowRemainderRequest,
        RowProductRequest,
    )
    k = study.k
    found = yield from lanczos(products, k, study, rng)
    # Vectors that complete rows of low rank are outside the span of the products: skip them.
    inside = found.variances > 0.0
    inside[0] = True
    replies = yield from call_each(Call(LoadingsRequest(sided=found.components[inside].T)))
    parts = [replies[site] for site in sorted(replies)]
    whole = np.vstack([part.loadings for part in parts])
    # A component without variance has no loadings, and is replaced by a completion.
    norms = np.sqrt(np.sum(whole**2, axis=0))
    kept = norms > np.sqrt(np.finfo(float).eps) * max(float(norms.max(initial=0.0)), 1e-300)
    vt = complete_rows(orthonormalise_rows((whole[:, kept] / norms[kept]).T), k)
    mean, scale = (np.concatenate([getattr(p, name) for p in parts]) for name in ("mean", "scale"))
    grade = found.certificate
    if grade is not None and found.total_variance > 0.0:
        # The coordinator learns only now how far from zero the rows are.
        about_zero = bound_rounding(Moments(float(n), mean, scale), found.total_variance)
        rounding = bound_rounding(products.moments, found.total_variance)
        # Products with rows are sums over the features, of which there may be many more.
        about_zero *= count_roundings(float(max(n, len(mean)))) / count_roundings(float(n))
        # Of a variance near the least numbers, the bound has not counted the rounding at all.
        factor = about_zero / rounding if rounding > float(np.finfo(float).tiny) else math.inf
        grade = widen_certificate(grade, max(factor, 1.0), study.tol)
    return replace(
        found,
        certificate=grade,
        components=flip_signs(vt),
        mean=mean,
        scale=scale,
        method="krylov",
        why="features are split over sites, and only products of rows are sums over sites",
    )
