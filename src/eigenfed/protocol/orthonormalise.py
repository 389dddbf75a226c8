"""Orthonormal vectors that are split over sites: each site has its rows of G, and keeps them.

===========  ==================================================================================
coordinator  sums over sites of inner products of G's columns: k x k (`cholesky_qr2`), or a norm
             and up to k - 1 products at a time (`gram_schmidt`)
site         the triangles, norms and products that change G; what G is made of (`opened`)
===========  ==================================================================================

Inner products are in the weights of the rows, so that sqrt(W) G has orthonormal columns. Where
G = D H they are H' S H, S the scatter, so they are counted as if the product S H had left: with
H of the asker's choice they would otherwise be a way round the meter.

What a site keeps between rounds: ``sided``, its rows of G; where G was made of directions H,
``behind``, those, and ``factor``, the k x k matrix T with ``G T = D H``.
"""

import hashlib
import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.errors import ProtocolError
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.products import prepared
from eigenfed.protocol.totals import Total

_OF_DIRECTIONS = ("behind", "factor")
_PASSES = 6
_SETTLED = 1e-13
_FINE = 1e-14
_CLOSE = 0.1
_EPS = float(np.finfo(float).eps)

_NEARLY_ONE = 8.0
"""Bound on the norm of columns that were made orthonormal, and of what rounding makes of them where
G is near to dependent. A bound that is too wide costs bits of fixed point, one that is too narrow
the run."""
LARGEST_DRAW = 10.0
"""No normal number of a random start is larger, but for one in 10^22."""


def opened(source: Source, payload: Arrays, state: Arrays) -> Arrays:
    """Return the state with G as the ask wants it: made anew, changed, or as it was.

    Parameters
    ----------
    source : Source
    payload : mapping of str to ndarray
        ``basis`` (d, k) makes G = D basis; ``seed`` (1,) and ``width`` (1,) draw it; then
        ``triangle`` (k, k) divides it from the right.
    state : mapping of str to ndarray
    """
    if "basis" in payload:
        view, state = prepared(source, payload, state)
        basis = payload["basis"]
        state = {**state, "sided": view.multiply(basis), "behind": basis}
        state["factor"] = np.eye(basis.shape[1])
    if "seed" in payload:
        _, state = prepared(source, payload, state)
        state = {name: array for name, array in state.items() if name not in _OF_DIRECTIONS}
        state["sided"] = _drawn(source, payload["seed"], int(payload["width"][0]))
    if "triangle" in payload:
        upper = payload["triangle"]
        state = _changed(state, _divided(state["sided"], upper), upper)
    return state


def _drawn(source: Source, seed: Array, k: int) -> Array:
    """Draw G from the seed and the site's own rows.

    With the rows in the seed, sites draw apart without a name or an extra round, and nobody else
    knows G: the combinations of rows that leave could otherwise be solved for the rows of a site
    that has fewer of them than k. Sites with the same rows draw the same, which costs no rank.
    """
    mark = hashlib.blake2b(digest_size=32)
    for rows, _ in source.blocks():
        mark.update(rows.tobytes())
    words = np.frombuffer(mark.digest(), np.uint32)
    return np.random.default_rng([*seed, *words]).standard_normal((source.n, k))


def _divided(columns: Array, upper: Array) -> Array:
    """Return ``columns @ inv(upper)``, with zeros where the diagonal of `upper` has them."""
    if len(columns) == 0:
        return columns
    gone = upper.diagonal() == 0.0
    answer: Array = solve_triangular(upper + np.diag(gone), columns.T, trans="T").T
    answer[:, gone] = 0.0
    return answer


def _changed(state: Arrays, sided: Array, factor: Array) -> Arrays:
    """Replace G by `sided`, where the old G is the new one times `factor`."""
    state = {**state, "sided": sided}
    return state | ({"factor": factor @ state["factor"]} if "factor" in state else {})


def _weighted(source: Source, columns: Array) -> Array:
    return columns if source.weights is None else columns * source.weights[:, None]


def _counted(source: Source, reply: Arrays, state: Arrays) -> Answer:
    """Answer with numbers about G, counted with the directions that G is made of, if it is."""
    if "behind" not in state:
        none = np.zeros((source.d, 0))
        return Answer(reply, state, none, none)
    view = Prepared(source, state["mean"], state["scale"])
    images = view.adjoint(state["sided"]) @ state["factor"]
    return Answer(reply, state, state["behind"], images, float(state["trace"][0]))


@op(Release("inner products of row vectors", "k x k", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_gram(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return all inner products of the site's columns of G."""
    state = opened(source, payload, state)
    sided = state["sided"]
    return _counted(source, {"gram": sided.T @ _weighted(source, sided)}, state)


@op(Release("squared norm of a row vector", "1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_norm(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Make the next column orthogonal to those before it and return its squared norm."""
    state = opened(source, payload, state)
    onto = payload["onto"]
    i, factor = len(onto), np.eye(state["sided"].shape[1])
    factor[:i, i] = onto
    sided = state["sided"].copy()
    sided[:, i] -= sided[:, :i] @ onto
    last = sided[:, i : i + 1]
    norm = (last.T @ _weighted(source, last))[0]
    return _counted(source, {"norm": norm}, _changed(state, sided, factor))


@op(Release("a row vector on those before it", "up to k - 1", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def sided_onto(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the next column's coefficients on the columns before it."""
    norms = payload["norms"]
    i = len(norms)
    column = _weighted(source, state["sided"][:, i : i + 1])
    onto = (state["sided"][:, :i].T @ column)[:, 0] / norms
    return _counted(source, {"onto": onto}, state)


@op(Release("nothing", "0", Leaves.SUM_ONLY, Reveals.COUNTS))
def sided_close(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Change G a last time; nothing leaves."""
    return Answer({}, opened(source, payload, state))


OPS = (sided_gram, sided_norm, sided_onto, sided_close)


@dataclass(frozen=True, eq=False)
class Orthonormal:
    """Vectors that are orthonormal once the sites have had the closing.

    Attributes
    ----------
    triangle : ndarray of shape (k, k)
        The old G is the new one times this. A row of zeros stands for a column that depends on
        those before it: that column of the new G is zero.
    closing : mapping of str to ndarray
        What the sites still need: goes with the next ask about G.
    """

    triangle: Array
    closing: Arrays


def cholesky_qr2(total: Total, *, most: float = math.inf) -> Protocol[Array]:
    """Orthonormalise G in two sums of k x k numbers, more only where G is near to dependent.

    Ours. One pass of Cholesky QR errs by the unit roundoff times the squared condition of G; the
    second starts from there and leaves 1e-15. A column whose part outside the others cannot be
    told from rounding is only freed of them in that pass and left to the next; once it is below
    the rounding of the column itself, it is made zero.

    Parameters
    ----------
    total : Total
        How sums are made.
    most : float
        No less than any squared norm of a column of G; for sums that need bounds.

    Returns
    -------
    ndarray of shape (k, k)
        The triangle R, of which G was the new G times R.
    """
    done = yield from cholesky_steps(total, {}, most)
    yield from closed(total, done)
    return done.triangle


def gram_schmidt(k: int, total: Total, *, most: float = math.inf) -> Protocol[Array]:
    """Orthonormalise G of k columns by 003 Alg. 2, as printed: 2 k - 1 sums.

    It is classical Gram-Schmidt: orthogonality is lost with the squared condition of G. The last
    norm goes to the sites in a message that nothing answers (its lines 22 to 26). Returns the
    triangle as `cholesky_qr2` does.

    Raises
    ------
    ProtocolError
        If a column depends on those before it, where the printed algorithm divides by nothing.
    """
    done = yield from gram_schmidt_steps(k, total, {}, most)
    yield from closed(total, done)
    return done.triangle


def closed(total: Total, done: Orthonormal) -> Protocol[None]:
    """Have the sites change G a last time; nothing comes back."""
    yield from total(Ask("sided_close", done.closing, bounds={}))


def cholesky_steps(total: Total, opening: Arrays, most: float) -> Protocol[Orthonormal]:
    """Run `cholesky_qr2` up to its closing, with `opening` in the first ask."""
    gram = yield from _gram(total, opening, most)
    nothing = (8 * len(gram) * _EPS) ** 2 * gram.diagonal()
    triangle: Array = np.eye(len(gram))
    for step in range(_PASSES):
        if not np.isfinite(gram).all():
            break
        # The triangle's diagonal is the unit in which the columns are measured by now.
        alive = triangle.diagonal() ** 2 * gram.diagonal() > nothing
        upper, least = _cholesky(gram, alive)
        triangle = upper @ triangle
        if step > 0 and least > _CLOSE:
            return Orthonormal(triangle, {"triangle": upper})
        gram = yield from _gram(total, {"triangle": upper}, _NEARLY_ONE**2)
    raise ProtocolError(
        f"The vectors at the sites are not orthonormal after {_PASSES} passes, or their inner "
        "products leave the range of float64. Rescale the features."
    )


def _gram(total: Total, change: Arrays, most: float) -> Protocol[Array]:
    """Change G, and return the inner products of its columns, of all sites.

    Where sums are in fixed point, one bound for all leaves short columns few digits. They are asked
    for again then, each within what was found and the error: by Cauchy and Schwarz no inner product
    exceeds the root of the two squared norms' product.
    """
    ask = Ask("sided_gram", change, bounds={"gram": most})
    gram: Array = (yield from total(ask))["gram"]
    error = total.error(most)
    if not total.bounded or np.all(error <= _FINE * gram.diagonal()):
        return gram
    norms = np.sqrt(np.maximum(gram.diagonal(), 0.0) + 2.0 * error)
    finer = {"gram": np.outer(norms, norms) * (1.0 + 1e-6)}
    return (yield from total(Ask("sided_gram", bounds=finer)))["gram"]


def _cholesky(gram: Array, alive: npt.NDArray[np.bool_]) -> tuple[Array, float]:
    """Factor as far as the digits go; also the smallest remainder relative to a squared norm.

    A column that is not alive has a row and column of zeros; one whose remainder is mere
    rounding has its norm on the diagonal and nothing to its right.
    """
    rest, upper, least = gram.copy(), np.zeros_like(gram), 1.0
    for j in np.flatnonzero(alive):
        ratio = float(rest[j, j] / gram[j, j])
        least = min(least, ratio)
        if ratio > _SETTLED:
            upper[j, j:] = rest[j, j:] / np.sqrt(rest[j, j])
            upper[j, ~alive] = 0.0
            rest -= np.outer(upper[j], upper[j])
        else:
            upper[j, j] = np.sqrt(gram[j, j])
    return upper, least


def gram_schmidt_steps(k: int, total: Total, opening: Arrays, most: float) -> Protocol[Orthonormal]:
    """Run `gram_schmidt` up to its closing, with `opening` in the first ask."""
    norms, unit = np.zeros(0), np.eye(k)
    most *= _NEARLY_ONE
    for i in range(k):
        onto = np.zeros(0)
        if i > 0:
            ask = Ask("sided_onto", {"norms": norms}, bounds={"onto": np.sqrt(most / norms)})
            onto = (yield from total(ask))["onto"]
        payload = {"onto": onto} | (opening if i == 0 else {})
        answer = yield from total(Ask("sided_norm", payload, bounds={"norm": most}))
        norm = float(answer["norm"][0])
        before = norm + float(onto**2 @ norms)
        if not norm > max((8 * k * _EPS) ** 2 * before, 2.0 * float(total.error(most))):
            raise ProtocolError(
                f"Column {i} of the vectors at the sites depends on those before it, and "
                "Gram-Schmidt cannot go on. Ask for fewer components, or for 'cholesky'."
            )
        unit[:i, i] = onto
        norms = np.append(norms, norm)
    scale = np.diag(np.sqrt(norms))
    return Orthonormal(scale @ unit, {"triangle": scale})


def orthonormal_columns(columns: Array) -> Array:
    """Orthonormalise (d, k) columns at the coordinator, with the signs of Gram-Schmidt.

    Examples
    --------
    >>> import numpy as np
    >>> orthonormal_columns(np.array([[2.0, 1.0], [0.0, 3.0]]))
    array([[1., 0.],
           [0., 1.]])
    """
    q, r = np.linalg.qr(columns)
    signed: Array = q * np.where(r.diagonal() < 0.0, -1.0, 1.0) + 0.0
    return signed
