"""The whole covariance in one round, as a factor with as many rows as a site has.

===========  ==================================================================================
coordinator  from each site alone: a factor F with F'F = D'W D, min(n, d) x d numbers
site         the mean and scale of all rows
===========  ==================================================================================

Where rows are few and features many, a scatter has low rank. Its factor has n d numbers instead of
d (d + 1) / 2, and the components of all sites follow from the inner products of the factors' rows.

A factor must reveal the scatter and nothing else. The rows themselves would be one, and so may be
what a decomposition of them returns: with singular values that are tied, singular vectors depend on
the algorithm, which starts from the rows. So the factor here is a function of the scatter S alone.
With Omega a public random matrix of d x n, ``D Omega = Q T`` with T triangular and its diagonal
positive, and ``F = Q'D``, it is ``T'F = Omega'S`` where T is the Cholesky factor of
``Omega'S Omega``. Q is orthogonal, so that F'F equals S to rounding however small singular values
are.

Rounding must not decide about Q either. Beside a feature that the coordinator's scale or mean makes
huge, all others would be rounded away; of rows that are then equal everyone knows Q, and F would be
the rows themselves. So a row of Omega is divided by the norm of its feature's column, which S has
on its diagonal, and rows about a distant mean are rotated about their own.
"""

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import LEAST_NORM, Prepared
from eigenfed.data.shifted_rows import ShiftedRows
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError
from eigenfed.linalg.orthonormal import column_norms, flip_signs
from eigenfed.linalg.remainder import UpperBound
from eigenfed.linalg.stacked_rows import StackedRows, leading_pairs
from eigenfed.linalg.threads import limit_threads
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import TOTAL, Call, Protocol, call_each
from eigenfed.protocol.cost_rates import time_eigen, time_products, time_scatter, time_square
from eigenfed.protocol.decomposition import FURTHER, Certificate, Decomposition
from eigenfed.protocol.exact.accuracy import RitzValues, make_certificate
from eigenfed.protocol.exact.frame import FramedRequest
from eigenfed.protocol.exact.frame_rows import view_site
from eigenfed.protocol.exact.rounding import bound_rounding, bound_wire_error
from eigenfed.protocol.exact.spectrum import count_components, decompose_covariance
from eigenfed.protocol.gate.script import Script, sequence
from eigenfed.protocol.messages import unpack
from eigenfed.protocol.method import Cost, Method, Run, Shape, block_bytes, product_s
from eigenfed.protocol.operations import Answer, State, Terms, op
from eigenfed.protocol.study import Study

_ROWS_AT_ONCE = 512
"""Rows of factors that the coordinator collects before it multiplies them."""
_SAFE_SQUARES = 1e-200, 1e200
_FEW_NUMBERS = 1 << 17
"""Public random numbers that are kept for other sites of the same process, 1 MB."""


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScatterFactorReply:
    """A factor of the scatter, min(n, d) x d."""

    factor: Array


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class ScatterFactorRequest(FramedRequest):
    """Request a factor of the scatter."""

    op, reply = "scatter_factor", ScatterFactorReply


@op(Release("factor of the covariance", "min(n, d) x d", Leaves.EXACT, Reveals.SCATTER))
def scatter_factor(
    source: Source, request: ScatterFactorRequest, state: State, terms: Terms
) -> Answer[ScatterFactorReply]:
    """Return a factor of the site's scatter about the mean of all sites."""
    view, state = view_site(source, state)
    return Answer(ScatterFactorReply(factor=factorise(view)), state)


OPS = (scatter_factor,)


def factorise(view: Prepared) -> Array:
    """Compute F with ``F'F = D'W D`` from nothing but that scatter, min(n, d) x d.

    Examples
    --------
    >>> rows = np.random.default_rng(0).standard_normal((4, 9))
    >>> view = Prepared(Source.of(rows), np.zeros(9), np.ones(9))
    >>> turned = Prepared(Source.of(np.linalg.qr(np.ones((4, 4)) - 3 * np.eye(4)).Q @ rows),
    ...                   np.zeros(9), np.ones(9))
    >>> bool(np.allclose(factorise(view).T @ factorise(view), rows.T @ rows))
    True
    >>> bool(np.allclose(factorise(view), factorise(turned)))
    True
    """
    source = view.source
    if source.n > source.d:
        values, vectors = np.linalg.eigh(view.scatter())
        whole: Array = np.sqrt(np.maximum(values, 0.0))[:, None] * vectors.T
        return flip_signs(whole)
    roots = None if source.weights is None else np.sqrt(source.weights)[:, None]
    spans = view.column_spans()
    if spans:
        return _factorise_columns(view, spans, roots)
    if isinstance(view, ShiftedRows):
        return _factorise_shifted(view, roots)
    rotation = _rotate(view.multiply(_scale_public(view)), roots)
    return np.ascontiguousarray(view.adjoint(rotation).T)


def _factorise_shifted(view: ShiftedRows, roots: Array | None) -> Array:
    """Compute the factor of rows about a distant mean.

    With that mean, rows times public numbers would be rounded to equal rows: their rotation would
    be known to everyone, and the factor would be the rows themselves. So the rows about their own
    mean are rotated, of whose factor the last row is 0, as they have one dimension less than there
    are rows. The distance of the means takes its place.
    """
    source, near = view.source, view.near_rows
    # What is left of the mean of the near rows: rounding, and more where entries are missing.
    left = view.near_sums / max(source.total_weight, np.finfo(float).tiny)
    public = _scale_public(near)
    rotation = _rotate(near.multiply(public) - left @ public, roots)
    weights = np.ones(source.n) if source.weights is None else source.weights
    factor = np.ascontiguousarray(near.adjoint(rotation).T)
    factor -= np.outer(weights @ rotation, left)
    factor[-1] = math.sqrt(source.total_weight) * (view.shift + left)
    return factor


def _scale_public(view: Prepared) -> Array:
    """Return the public numbers, (d, n), divided by the norms of the features' columns."""
    # Before the scale, with which squares may be too large or too small.
    norms = np.sqrt(replace(view, scale=np.ones(view.source.d)).squares()) / view.scale
    return _divide_by_norms(_draw_public(view.source.d, view.source.n), norms)


def _divide_by_norms(public: Array, norms: Array) -> Array:
    """Divide rows of public numbers by norms, but for features that are 0."""
    divided: Array = public * (1.0 / np.where(norms > LEAST_NORM, norms, 1.0))[:, None]
    return divided


def _measure_columns(block: Array) -> Array:
    """Return the norms of columns, by their squares unless these are too large or too small."""
    with np.errstate(over="ignore", under="ignore"):
        squares = np.einsum("ij,ij->j", block, block)
    is_safe = _SAFE_SQUARES[0] < squares.min() and squares.max() < _SAFE_SQUARES[1]
    return np.sqrt(squares) if is_safe else column_norms(block)


def _rotate(sided: Array, roots: Array | None) -> Array:
    """Return the rotation of rows times public numbers, divided by the roots of their weights.

    The adjoint multiplies by the weights, of which the scatter has one root on each side.
    """
    weighted = sided if roots is None else sided * roots
    with limit_threads(4.0 * sided.size * len(sided)):
        rotation = _find_rotation(weighted)
    if roots is None:
        return rotation
    return np.divide(rotation, roots, out=np.zeros_like(rotation), where=roots > 0.0)


def _factorise_columns(view: Prepared, spans: list[slice], roots: Array | None) -> Array:
    """Compute the factor of rows that lie in one array, with little memory beside the result."""
    n, d = view.source.n, view.source.d

    def take(span: slice) -> Array:
        block = view.column_block(span)
        return block if roots is None else block * roots

    # Small rows are one block, which is not centred twice.
    blocks = [take(span) for span in spans] if len(spans) == 1 else None
    with limit_threads(4.0 * n * n * d):
        sided = np.zeros((n, n))
        for block, public in zip(blocks or map(take, spans), _draw_parts(n, spans), strict=True):
            sided += block @ _divide_by_norms(public, _measure_columns(block))
        turn = _find_rotation(sided).T
        if blocks is not None:
            return turn @ blocks[0]
        factor = np.empty((n, d))
        for span in spans:
            factor[:, span] = turn @ take(span)
    return factor


def _find_rotation(sided: Array) -> Array:
    """Return the orthogonal Q of ``sided = Q T``, T triangular with a diagonal that is positive."""
    rotation, triangle = np.linalg.qr(sided)
    rotation *= np.where(triangle.diagonal() < 0.0, -1.0, 1.0)
    return rotation


def _draw_public(d: int, n: int) -> Array:
    """Draw d x n numbers that everyone can draw: only degenerate ones would be a problem."""
    public: Array = next(_draw_parts(n, [slice(0, d)]))
    return public


def _draw_parts(n: int, spans: list[slice]) -> Iterator[Array]:
    """Yield some rows at a time of what `_draw_public` returns."""
    d = spans[-1].stop
    if d * n <= _FEW_NUMBERS:
        yield from (_draw_once(d, n)[span] for span in spans)
        return
    rng = np.random.default_rng(d)
    for span in spans:
        yield _center(rng.random((span.stop - span.start, n), dtype=np.float32))


@lru_cache(maxsize=2)
def _draw_once(d: int, n: int) -> Array:
    public = _center(np.random.default_rng(d).random((d, n), dtype=np.float32))
    public.flags.writeable = False
    return public


def _center(drawn: npt.NDArray[np.float32]) -> Array:
    """Return uniform numbers between 0 and 1 as numbers about 0."""
    public: Array = np.subtract(drawn, 0.5, dtype=np.float64)
    return public


@dataclass(frozen=True, repr=False)
class Factors(Method):
    """The whole covariance in one round, as a factor with as many rows as a site has.

    Examples
    --------
    >>> Factors().cost(Shape(rows=20, features=1000, components=3, sites=5)).numbers
    20000.0
    """

    name: ClassVar[str] = "factors"
    summary: ClassVar[str] = (
        "the whole covariance in one round, as factors: best where rows are few"
    )
    ops = OPS
    automatic: ClassVar[bool] = True

    def script(self, study: Study, d: int) -> Script:
        """Return the script: one factor."""
        return sequence("scatter_factor")

    def finds_count(self) -> bool:
        """Whether the number of components may depend on the rows: yes, all of them are known."""
        return True

    def sums_only(self) -> bool:
        """Whether sums over sites are enough: no, factors are not added up."""
        return False

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Request a factor from every site, and decompose them together."""
        call = Call(ScatterFactorRequest(**run.frame()))
        if run.moments.n > run.d:
            # More rows than features in all: the covariance is smaller than all factors.
            answer = yield replace(call, summed=True, fold=partial(_sum_squares, run.d))
            matrix = answer[TOTAL]["inner"] / run.moments.divisor
            return _decompose_matrix(matrix, run)
        replies = yield from call_each(call)
        return _decompose(_stack(replies, run.d), run)

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of factors, and of products on their shorter side."""
        n, d = float(min(shape.rows, shape.features)), float(shape.features)
        everything = n * shape.sites
        square = min(everything, d)
        return Cost(
            1,
            shape.features,
            n * d,
            3.0 * shape.column_bytes(n) + block_bytes(shape),
            2.0 * shape.column_bytes(min(everything, d + n))
            + (shape.column_bytes(_ROWS_AT_ONCE) if everything > d else 0.0),
            _time_factor(shape) + 6e-9 * n * d,
            time_square(square, max(everything, d))
            + time_eigen(square, shape.components)
            + time_products(square, d, 1.0, 2 * shape.components, 2),
        )


def _time_factor(shape: Shape) -> float:
    """Return a site's seconds: two products, or a whole scatter if it has more rows than that."""
    if shape.rows <= shape.features:
        return product_s(shape, shape.rows, 2)
    d = shape.features
    return time_scatter(shape.rows, d, shape.density) + time_eigen(d, d)


def _stack(replies: dict[str, ScatterFactorReply], d: int) -> StackedRows:
    """Return the factors of all sites as one, which is a factor of the sum of their scatters."""
    for site, reply in replies.items():
        _check_columns(f" of site {site!r}", reply.factor, d)
    return StackedRows([reply.factor for reply in replies.values()])


def _check_columns(owner: str, rows: Array, d: int) -> None:
    if rows.ndim != 2 or rows.shape[1] != d:
        raise ProtocolError(
            f"The factor{owner} does not have {d} columns. Use the same features at all sites."
        )


def _sum_squares(d: int, answers: Iterator[tuple[str, Arrays]]) -> Arrays:
    """Return the sum of the scatters of all sites from their factors.

    Factors of few rows are collected first: a product of many rows takes less time than many
    products, each of which has to be added up.
    """
    total, held, count = np.zeros((d, d)), np.empty((_ROWS_AT_ONCE, d)), 0
    for site, reply in answers:
        rows = unpack(ScatterFactorReply, reply).factor
        _check_columns(f" of site {site!r}", rows, d)
        if count + len(rows) > _ROWS_AT_ONCE:
            _add_square(total, held[:count])
            count = 0
        if len(rows) > _ROWS_AT_ONCE:
            _add_square(total, rows)
        else:
            held[count : count + len(rows)] = rows
            count += len(rows)
    _add_square(total, held[:count])
    return {"inner": total}


def _add_square(total: Array, rows: Array) -> None:
    with limit_threads(float(rows.size) * len(total)):
        total += rows.T @ rows


def _decompose_matrix(matrix: Array, run: Run) -> Decomposition:
    """Compute the leading components of a covariance that is known completely."""
    moments = run.moments
    return decompose_covariance(
        matrix,
        count_components(run, matrix),
        mean=moments.mean,
        scale=moments.scale,
        n=moments.n,
        tol=run.tol,
        rounding=_bound_error(run, float(matrix.trace())),
    )


def _decompose(rows: StackedRows, run: Run) -> Decomposition:
    """Compute the leading components of the covariance, and certify them.

    The covariance is ``rows' rows`` divided by the number of rows of data less one.
    """
    moments, divisor = run.moments, run.moments.divisor
    n, d = rows.shape
    with limit_threads(2.0 * n * d * min(n, d)):
        inner = rows.square_shorter_side()
        k, variance = count_components(run, inner / divisor), float(inner.trace()) / divisor
        squares, vt = leading_pairs(rows, inner, k, FURTHER)
        values = squares / divisor
        residual = rows.adjoint(rows.multiply(vt.T)) / divisor - vt.T * values[:k]
    grade = _certify(residual, values[: k + 1], vt, variance, run)
    return Decomposition(
        vt,
        values[:k],
        moments.mean,
        moments.scale,
        moments.n,
        variance,
        products=1,
        certificate=grade,
        further=values[k:],
    )


def _certify(residual: Array, values: Array, vt: Array, variance: float, run: Run) -> Certificate:
    """Certify components by Davis-Kahan; the whole spectrum is known, so the bound is the estimate.

    Factors that were sent in single precision are off by that much, as every eigenvalue is then.
    """
    k, rounding = len(vt), _bound_error(run, variance)
    if len(values) == k < run.d:
        # Fewer rows than features leave directions without variance.
        values = np.append(values, 0.0)
    norms = np.append(column_norms(residual), 0.0)[: len(values)]
    above = float(values[k]) + rounding if len(values) > k else -math.inf
    return make_certificate(
        RitzValues(values, norms, k, rounding),
        span=float(np.linalg.norm(residual, 2)),
        above=UpperBound(above, 0.0),
        vt=vt,
        variance=variance,
        tol=run.tol,
    )


def _bound_error(run: Run, variance: float) -> float:
    """Bound the error of the covariance that the factors give."""
    return bound_rounding(run.moments, variance) + bound_wire_error(run.moments, variance, 1)
