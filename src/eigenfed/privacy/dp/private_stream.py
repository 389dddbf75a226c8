"""What a private stream must know before it can begin: a radius, and a mean, from its first rows.

Each step looks at rows of its own, which nothing else ever sees. A row is in one step only, so
that each step may spend the whole budget (parallel composition; rows are told apart by their
place in the stream, so this holds where a row is replaced, not where one is inserted).

A stream that is released once, with noise: a clipped sketch in memory of order d l.

Kept is ``Y = sum x (Q'x)'`` with public orthonormal directions Q (d x l) and clipped rows x about a
private mean, in whole numbers. One release of Y with noise gives the components; what comes after
is post-processing. The first rows of the stream go into finding the radius and a first mean
(`warmup`); the mean of the others about it is released too, and Y is moved to it.
"""

import math
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from eigenfed.arrays import Array
from eigenfed.errors import InputError, Name, PrivacyError
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.dp.clipping import about, lengths, on_grid, sketch_slack, sketched
from eigenfed.privacy.dp.discrete_gaussian import Draw, Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    NARROW_ASKS,
    WIDE_ASKS,
    WIDEST,
    edge,
    of_count,
    of_second_moment,
    of_sketch,
    of_total,
)
from eigenfed.privacy.guarantee import Privacy, Statement, stream_statement

_MEAN_GRID = 1 << 20
_COUNT_DEVIATIONS = 12.0
_MEAN_DEVIATIONS = 8.0


class RadiusStep:
    """A binary search for the radius that holds a part of the rows, on fresh rows for each count.

    Parameters
    ----------
    center : ndarray of shape (d,)
    low, high : float
        Between which powers of two to look.
    asks : int
        How many counts; they cut the range into ``2**asks``.
    quantile : float
        The part to hold.
    mu : float
        What each count spends.
    relation : str
    draw : callable

    Attributes
    ----------
    room : int
        How many rows it still takes.
    """

    def __init__(
        self,
        center: Array,
        low: float,
        high: float,
        *,
        asks: int,
        quantile: float,
        mu: float,
        relation: str,
        draw: Draw = discrete_gaussian,
    ) -> None:
        self._center, self._low, self._high = center, low, high
        self._asks, self._quantile, self._mu, self._draw = asks, quantile, mu, draw
        self._noise = Noise(COUNT_UNIT * of_count(relation))
        self._block = math.ceil(_COUNT_DEVIATIONS / mu)
        self._below, self._above = 0, 1 << asks
        self._count = 0
        self.room = self._block * asks

    @property
    def radius(self) -> float:
        """The middle of what is left of the range."""
        return self._edge((self._below + self._above) / 2)

    @property
    def upper(self) -> float:
        """The upper end of what is left of the range, which holds the part at least."""
        return self._edge(self._above)

    @property
    def at_end(self) -> bool:
        """Whether the search ended at an end of the range: the range is wrong."""
        return self._below == 0 or self._above == 1 << self._asks

    def take(self, rows: Array) -> None:
        """Look at rows, at most as many as there is room for."""
        while len(rows):
            wanted = (self.room - 1) % self._block + 1
            here, rows = rows[:wanted], rows[wanted:]
            middle = self._edge((self._below + self._above) // 2)
            self._count += int((lengths(about(here, self._center)) <= middle).sum())
            self.room -= len(here)
            if self.room % self._block == 0:
                self._halve()

    def _halve(self) -> None:
        exact = {"count": np.array([self._count * COUNT_UNIT])}
        count = int(self._noise.added(exact, self._mu, 1, self._draw)["count"][0])
        self._count = 0
        middle = (self._below + self._above) // 2
        if count >= self._quantile * self._block * COUNT_UNIT:
            self._above = middle
        else:
            self._below = middle

    def _edge(self, i: float) -> float:
        return edge(i, self._low, self._high, self._asks)


class MeanStep:
    """The noisy mean of rows about a centre, clipped to a radius.

    Parameters
    ----------
    center : ndarray of shape (d,)
    radius : float
    mu : float
    relation : str
    draw : callable

    Attributes
    ----------
    room : int
        How many rows it still takes.
    """

    def __init__(
        self,
        center: Array,
        radius: float,
        *,
        mu: float,
        relation: str,
        draw: Draw = discrete_gaussian,
    ) -> None:
        self._center, self._radius = center, radius
        self._mu, self._relation, self._draw = mu, relation, draw
        d = len(center)
        self._total = np.zeros(d)
        self._n = self.room = math.ceil(_MEAN_DEVIATIONS * math.sqrt(d) / mu)
        if self._n * _MEAN_GRID >= 1 << 53:
            raise InputError(f"{d} features are too many for a private mean. Centre beforehand.")

    def take(self, rows: Array) -> None:
        """Add rows, at most as many as there is room for."""
        self._total += on_grid(about(rows, self._center), self._radius, _MEAN_GRID).sum(axis=0)
        self.room -= len(rows)

    def mean(self) -> Array:
        """Draw the noise; called once, when there is no more room."""
        noise = Noise(of_total(_MEAN_GRID, self._relation))
        exact = {"total": self._total.astype(np.int64)}
        total = noise.added(exact, self._mu, 1, self._draw)["total"]
        mean: Array = self._center + total * (self._radius / _MEAN_GRID / self._n)
        return mean


_GRID = 1 << 13
_ROWS = 4096
_WIDTH = 4
_UPDATE_MARGIN = 1.5
_MEAN_QUANTILE, _CLIP_QUANTILE = 0.5, 0.2
_MEANS = 2
"""The first mean is short where rows lie far from zero; one about it is not."""
_REACH = 4.0

_KEPT = ("d", "k", "n_seen", "n_missing", "statement", "_held")
"""What a copy or a pickle of a released stream has."""

Whole = npt.NDArray[np.int64]


@dataclass
class _Sums:
    """What is known exactly, until the release.

    Attributes
    ----------
    sketch : ndarray of shape (d, l)
    total : ndarray of shape (d,)
    squares : ndarray of shape (2,)
    rows : int
        How many went in.
    """

    sketch: Whole
    total: Whole
    squares: Whole
    rows: int = 0

    def wipe(self) -> None:
        """Overwrite all of it."""
        for exact in (self.sketch, self.total, self.squares):
            exact.fill(0)


class PrivateStream:
    """Rows in, one noised summary out.

    Until it is released it holds exact sums, and can be neither copied nor pickled. The release
    wipes them: it cannot be made twice with other noise, and a copy or a pickle has no more than
    the release and its statement.

    Parameters
    ----------
    d, k : int
        Numbers of features and of components.
    privacy : Privacy
    centered : bool
        Whether to find a mean privately; without, rows are taken as they are.
    rng : numpy Generator
        For the public directions; noise never comes from it.
    draw : callable
        Source of noise: `discrete_gaussian`, except in tests.

    Attributes
    ----------
    n_seen : int
    statement : Statement or None
        What is guaranteed, once released.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).standard_normal((4000, 5)) * [9, 1, 1, 1, 1]
    >>> stream = PrivateStream(5, 1, Privacy(2.0, 1e-6), False, np.random.default_rng(0))
    >>> stream.push(rows)
    >>> bool(abs(stream.summary().vt[0, 0]) > 0.9)
    True
    """

    def __init__(
        self,
        d: int,
        k: int,
        privacy: Privacy,
        centered: bool,
        rng: np.random.Generator,
        draw: Draw = discrete_gaussian,
    ) -> None:
        self.d, self.k, self.n_seen = d, k, 0
        self.n_missing: npt.NDArray[np.int64] = np.zeros(d, dtype=np.int64)
        self.statement: Statement | None = None
        self._privacy, self._centered, self._draw = privacy, centered, draw
        width = min(_WIDTH * k, d)
        self._basis = np.linalg.qr(rng.standard_normal((d, width))).Q
        self._update_clip = min(1.0, _UPDATE_MARGIN * math.sqrt(width / d)) * _GRID**2
        self._held: _Sums | Summary = _Sums(
            np.zeros((d, width), dtype=np.int64),
            np.zeros(d, dtype=np.int64),
            np.zeros(2, dtype=np.int64),
        )
        self._lock = Lock()
        self._mean = np.zeros(d)
        self._clip = math.nan if privacy.clip is None else privacy.clip
        self._radius = math.nan
        self._averaged = 0
        self._step: RadiusStep | MeanStep | None = None
        self._begin()

    def push(self, rows: Any, weights: Array | None = None, *, missing: bool = False) -> None:
        """Take rows in.

        Parameters
        ----------
        rows : ndarray or sparse matrix of shape (b, d)
        weights, missing
            There is no guarantee with either: they are refused.
        """
        if weights is not None or missing:
            what = "sample_weight" if weights is not None else "NaN"
            raise PrivacyError(f"{what} is not possible under privacy. Drop it, or fill it in.")
        is_sparse: bool = issparse(rows)
        with self._lock:
            if isinstance(self._held, Summary):
                raise PrivacyError(
                    "The stream was released and its budget is spent: no row can be added. "
                    "Begin another one."
                )
            for start in range(0, rows.shape[0], _ROWS):
                part = rows[start : start + _ROWS]
                dense = np.asarray(part.toarray() if is_sparse else part, dtype=np.float64)
                self._take(dense, self._held)
            self.n_seen += rows.shape[0]

    def summary(self) -> Summary:
        """Return the release; the first call draws the noise and ends the stream."""
        with self._lock:
            if isinstance(self._held, _Sums):
                sums = self._held
                self._held = self._ended(sums)
                sums.wipe()
            return self._held

    def check_released(self) -> None:
        """Refuse to be copied or pickled as long as there are exact sums.

        Raises
        ------
        PrivacyError
        """
        if isinstance(self._held, _Sums):
            raise PrivacyError(
                "A private stream that is not released holds exact sums: it can be neither copied "
                "nor pickled. Read components_ first, which releases it with noise, once; clone "
                "copies the parameters alone."
            )

    def __getstate__(self) -> dict[str, Any]:
        self.check_released()
        return {name: getattr(self, name) for name in _KEPT}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def _ended(self, sums: _Sums) -> Summary:
        if self._step is not None:
            raise InputError(
                f"The stream has {self.n_seen} rows and needs {self._step.room} more to find a "
                "clip and a mean privately",
                remedy=("Take more rows in, or pass a public ", Name("clip"), "."),
            )
        self._privacy.check_rows(self.n_seen)
        return self._release(sums)

    def _begin(self) -> None:
        """Set the first step of the warm-up, where one is needed."""
        if self._privacy.clip is None:
            self._step = self._search(*WIDEST, WIDE_ASKS)
        elif self._centered:
            self._step = self._averaging(self._clip)

    def _search(self, low: float, high: float, asks: int) -> RadiusStep:
        return RadiusStep(
            self._mean,
            low,
            high,
            asks=asks,
            quantile=_MEAN_QUANTILE if self._wants_mean else _CLIP_QUANTILE,
            mu=self._privacy.mu,
            relation=self._privacy.relation,
            draw=self._draw,
        )

    def _averaging(self, radius: float) -> MeanStep:
        privacy = self._privacy
        return MeanStep(
            self._mean, radius, mu=privacy.mu, relation=privacy.relation, draw=self._draw
        )

    @property
    def _wants_mean(self) -> bool:
        return self._centered and self._averaged < _MEANS

    def _take(self, rows: Array, sums: _Sums) -> None:
        while self._step is not None and len(rows):
            here, rows = rows[: self._step.room], rows[self._step.room :]
            self._step.take(here)
            if self._step.room == 0:
                self._step = self._after(self._step)
        if len(rows):
            self._add(rows, sums)

    def _after(self, step: RadiusStep | MeanStep) -> RadiusStep | MeanStep | None:
        """Take what a step has found and return the next."""
        if isinstance(step, MeanStep):
            self._mean = step.mean()
            self._averaged += 1
            if self._privacy.clip is not None:
                return None
            middle = math.log2(self._radius)
            return self._search(middle - 3, middle + 1, NARROW_ASKS)
        wide = math.isnan(self._radius)
        if wide and step.at_end:
            raise InputError(
                f"The norms of the rows are not between 2^{WIDEST[0]:g} and 2^{WIDEST[1]:g}, as "
                "far as noisy counts tell",
                remedy=("Pass a public ", Name("clip"), ", or rows in other units."),
            )
        if self._wants_mean:
            self._radius = step.upper if wide else step.radius
            return self._averaging(self._radius)
        self._clip = step.radius
        return None

    def _add(self, rows: Array, sums: _Sums) -> None:
        around = about(rows, self._mean)
        whole = on_grid(around, self._clip, _GRID)
        sums.sketch += (whole.T @ sketched(whole, self._basis, self._update_clip)).astype(np.int64)
        sums.total += whole.sum(axis=0).astype(np.int64)
        inner = np.einsum("ij,ij->i", whole, whole)
        reached = np.floor(np.minimum(lengths(around) / self._clip, _REACH) ** 2 * _GRID**2)
        beyond = np.maximum(np.minimum(reached, (_REACH * _GRID) ** 2) - inner, 0.0)
        sums.squares += np.array([inner.sum(), beyond.sum()], dtype=np.int64)
        sums.rows += len(rows)

    def _release(self, sums: _Sums) -> Summary:
        privacy = self._privacy
        split = privacy.split(["mean"] * self._centered + ["covariance", "scree"])
        change = of_sketch(_GRID, self._update_clip, privacy.relation)
        change += sketch_slack(_GRID, sums.sketch.shape[1])
        sketch = self._noised(sums.sketch, change, split["covariance"])
        unit, n = self._clip / _GRID, max(sums.rows, 1)
        shift = np.zeros(self.d)
        if split.get("mean"):
            shift = self._noised(sums.total, of_total(_GRID, privacy.relation), split["mean"]) / n
        self.statement = stream_statement(privacy, n=self.n_seen, budget=split)
        centred = sketch - n * np.outer(shift, shift @ self._basis)
        inner, beyond = self._energies(sums.squares, split["scree"])
        around = max(inner - n * float(shift @ shift), 0.0)
        grown = (1.0 + min(beyond, _REACH**2)) * self.n_seen / n
        return self._decomposed(
            centred * unit**2, around * unit**2, grown, self._mean + shift * unit
        )

    def _energies(self, squares: Whole, share: float) -> tuple[float, float]:
        """Squared lengths of the rows, clipped as in the sketch, and the part that this cuts off.

        Two numbers of at least 0 a row that add up to at most the squared reach.
        """
        if not share:
            return 0.0, 0.0
        change = of_second_moment(_REACH * _GRID, self._privacy.relation)
        inner, beyond = self._noised(squares, change, share).astype(np.float64)
        return max(inner, 1.0), max(beyond, 0.0) / max(inner, 1.0)

    def _noised(
        self, exact: npt.NDArray[np.int64], sensitivity: float, share: float
    ) -> npt.NDArray[np.int64]:
        mu = self._privacy.mu * math.sqrt(share)
        noised: npt.NDArray[np.int64] = Noise(sensitivity).added({"": exact}, mu, 1, self._draw)[""]
        return noised

    def _decomposed(self, sketch: Array, energy: float, grown: float, mean: Array) -> Summary:
        """Turn the noised sketch into directions; its singular values stand for eigenvalues.

        They grow by the rows that are not in it, and by what clipping has cut off of the squared
        lengths, which is taken to lie along the directions as the rest does: rows are clipped to
        their direction.
        """
        left, s, _ = np.linalg.svd(sketch, full_matrices=False)
        inside = s[: self.k] * grown
        energy = max(energy * grown, float(inside.sum()))
        return Summary(
            float(self.n_seen),
            mean,
            np.sqrt(inside),
            left[:, : self.k].T.copy(),
            energy,
            max(energy - float(inside.sum()), 0.0),
            self.k,
            self._centered,
        )
