"""A private stream: one pass over rows in O(d l) memory, released once with noise.

**Warm-up.** The first rows are used to find a clipping radius (`RadiusStep`) and a first mean
(`MeanStep`) privately. Each step uses rows of its own, which nothing else uses: a row is in one
step only, so each step may spend the whole budget (parallel composition). Rows are identified by
their place in the stream, so this holds for replacing a row, not for inserting one.

**Release.** The stream keeps ``Y = sum x (Q'x)'`` with public orthonormal directions Q (d x l) and
rows x that are centred, clipped and rounded to integers. One release of Y with noise gives the
components; the rest is post-processing. The mean of the rows about the first mean is released too,
and Y is corrected for it.
"""

import math
from dataclasses import dataclass
from threading import Lock
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from eigenfed.arrays import Array, Integers
from eigenfed.errors import InputError, Name, PrivacyError
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.dp.clipping import (
    compute_coefficients,
    round_to_grid,
    row_norms,
    sketch_slack,
    subtract_center,
)
from eigenfed.privacy.dp.discrete_gaussian import Draw, Noise, discrete_gaussian
from eigenfed.privacy.dp.sensitivity import (
    COUNT_UNIT,
    NARROW_STEPS,
    WIDE_STEPS,
    WIDEST,
    count_sensitivity,
    search_radius,
    second_moment_sensitivity,
    sketch_sensitivity,
    sum_sensitivity,
)
from eigenfed.privacy.guarantee import Statement, state_stream_guarantee
from eigenfed.privacy.privacy_terms import Privacy, check_stream_terms

_MEAN_GRID = 1 << 20
# A step takes as many rows as are this many standard deviations of its noise (of a count, which
# has sd 1 / mu, and of a sum of d features, whose noise has norm about sqrt(d) / mu).
_COUNT_SDS = 12.0
_MEAN_SDS = 8.0


class RadiusStep:
    """A binary search for a quantile of the row norms, with new rows for each noisy count.

    Parameters
    ----------
    center : ndarray of shape (d,)
    low, high : float
        Range of the search, as powers of two.
    counts : int
        Number of counts; they divide the range into ``2**counts`` cells.
    quantile : float
        Fraction of the rows that the radius should contain.
    mu : float
        Privacy parameter of each count.
    relation : str
    draw : callable
        Source of noise.

    Attributes
    ----------
    room : int
        Number of rows that the step still needs.
    """

    def __init__(
        self,
        center: Array,
        low: float,
        high: float,
        *,
        counts: int,
        quantile: float,
        mu: float,
        relation: str,
        draw: Draw = discrete_gaussian,
    ) -> None:
        self._center, self._low, self._high = center, low, high
        self._counts, self._quantile, self._mu, self._draw = counts, quantile, mu, draw
        self._noise = Noise(COUNT_UNIT * count_sensitivity(relation))
        self._block = math.ceil(_COUNT_SDS / mu)
        self._below, self._above = 0, 1 << counts
        self._count = 0
        self.room = self._block * counts

    @property
    def radius(self) -> float:
        """The middle of the remaining range."""
        return self._edge((self._below + self._above) / 2)

    @property
    def upper(self) -> float:
        """The upper end of the remaining range, which contains at least the quantile."""
        return self._edge(self._above)

    @property
    def at_end(self) -> bool:
        """Whether the search ended at an end of the range, which is then too narrow."""
        return self._below == 0 or self._above == 1 << self._counts

    def take(self, rows: Array) -> None:
        """Count rows, at most `room` of them."""
        while len(rows):
            wanted = (self.room - 1) % self._block + 1
            here, rows = rows[:wanted], rows[wanted:]
            middle = self._edge((self._below + self._above) // 2)
            self._count += int((row_norms(subtract_center(here, self._center)) <= middle).sum())
            self.room -= len(here)
            if self.room % self._block == 0:
                self._halve_range()

    def _halve_range(self) -> None:
        exact = {"count": np.array([self._count * COUNT_UNIT])}
        count = int(self._noise.add_to(exact, self._mu, 1, self._draw)["count"][0])
        self._count = 0
        middle = (self._below + self._above) // 2
        if count >= self._quantile * self._block * COUNT_UNIT:
            self._above = middle
        else:
            self._below = middle

    def _edge(self, i: float) -> float:
        return search_radius(i, self._low, self._high, self._counts)


class MeanStep:
    """The noisy mean of rows that are clipped to a radius about a centre.

    Parameters
    ----------
    center : ndarray of shape (d,)
    radius : float
    mu : float
        Privacy parameter of the mean.
    relation : str
    draw : callable
        Source of noise.

    Attributes
    ----------
    room : int
        Number of rows that the step still needs.
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
        self._n = self.room = math.ceil(_MEAN_SDS * math.sqrt(d) / mu)
        if self._n * _MEAN_GRID >= 1 << 53:
            raise InputError(
                f"{d} features are too many for a private mean. Centre the rows first."
            )

    def take(self, rows: Array) -> None:
        """Add rows, at most `room` of them."""
        self._total += round_to_grid(
            subtract_center(rows, self._center), self._radius, _MEAN_GRID
        ).sum(axis=0)
        self.room -= len(rows)

    def mean(self) -> Array:
        """Return the mean with noise; to be called once, when `room` is 0."""
        noise = Noise(sum_sensitivity(_MEAN_GRID, self._relation))
        exact = {"total": self._total.astype(np.int64)}
        total = noise.add_to(exact, self._mu, 1, self._draw)["total"]
        mean: Array = self._center + total * (self._radius / _MEAN_GRID / self._n)
        return mean


_GRID = 1 << 13
_ROWS = 4096
_WIDTH = 4
_UPDATE_MARGIN = 1.5
_MEAN_QUANTILE, _CLIP_QUANTILE = 0.5, 0.2
_MEANS = 2
"""Number of means in the warm-up: the first, of rows clipped about zero, is biased towards zero if
rows lie far from it; the second, about the first, is not."""
_REACH = 4.0

_PICKLED = ("d", "k", "n_seen", "n_missing", "statement", "_held")
"""Attributes in a copy or a pickle of a released stream."""


@dataclass
class _Sums:
    """Exact sums, which exist only until the release.

    Attributes
    ----------
    sketch : ndarray of shape (d, l)
    total : ndarray of shape (d,)
    squares : ndarray of shape (2,)
        Squared norms of the clipped rows, and what clipping has removed from them.
    rows : int
        Number of rows in the sums.
    """

    sketch: Integers
    total: Integers
    squares: Integers
    rows: int = 0

    def wipe(self) -> None:
        """Overwrite the sums with zeros."""
        for exact in (self.sketch, self.total, self.squares):
            exact.fill(0)


class PrivateStream:
    """A stream of rows that is released once, as a summary with noise.

    Before the release it holds exact sums and can be neither copied nor pickled. The release wipes
    them, so it cannot be repeated with other noise, and a copy or a pickle contains only the
    released summary and its statement.

    Parameters
    ----------
    d, k : int
        Numbers of features and of components.
    privacy : Privacy
    centered : bool
        Whether to find a mean privately; otherwise rows are not centred.
    rng : numpy Generator
        For the public directions; noise never comes from it.
    draw : callable
        Source of noise; `discrete_gaussian`, except in tests.

    Attributes
    ----------
    n_seen : int
        Number of rows so far.
    statement : Statement or None
        The guarantee, after the release.

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
        check_stream_terms(privacy)
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
        self._start_warm_up()

    def push(self, rows: Any, weights: Array | None = None, *, missing: bool = False) -> None:
        """Add rows to the stream.

        Parameters
        ----------
        rows : ndarray or sparse matrix of shape (b, d)
        weights, missing
            Refused: there is no guarantee with either.
        """
        if weights is not None or missing:
            what = "sample_weight" if weights is not None else "NaN"
            raise PrivacyError(f"{what} is not possible under privacy. Drop it, or fill it in.")
        is_sparse: bool = issparse(rows)
        with self._lock:
            if isinstance(self._held, Summary):
                raise PrivacyError(
                    "The stream was released and its budget is spent: no row can be added. "
                    "Start a new stream."
                )
            for start in range(0, rows.shape[0], _ROWS):
                part = rows[start : start + _ROWS]
                dense = np.asarray(part.toarray() if is_sparse else part, dtype=np.float64)
                self._take(dense, self._held)
            self.n_seen += rows.shape[0]

    def summary(self) -> Summary:
        """Return the released summary; the first call draws the noise and ends the stream."""
        with self._lock:
            if isinstance(self._held, _Sums):
                sums = self._held
                self._held = self._finish(sums)
                sums.wipe()
            return self._held

    def check_released(self) -> None:
        """Raise PrivacyError while there are exact sums, which must not be copied or pickled."""
        if isinstance(self._held, _Sums):
            raise PrivacyError(
                "A private stream that is not released holds exact sums: it can be neither copied "
                "nor pickled. Read components_ first, which releases it once, with noise; clone "
                "copies the parameters only."
            )

    def __getstate__(self) -> dict[str, Any]:
        self.check_released()
        return {name: getattr(self, name) for name in _PICKLED}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state, _lock=Lock())

    def _finish(self, sums: _Sums) -> Summary:
        if self._step is not None:
            raise InputError(
                f"The stream has {self.n_seen} rows and needs {self._step.room} more to find a "
                "clip and a mean privately",
                remedy=("Add more rows, or pass a public ", Name("clip"), "."),
            )
        self._privacy.check_rows(self.n_seen)
        return self._release(sums)

    def _start_warm_up(self) -> None:
        """Set the first step of the warm-up, if there is one."""
        if self._privacy.clip is None:
            self._step = self._make_radius_step(*WIDEST, WIDE_STEPS)
        elif self._centered:
            self._step = self._make_mean_step(self._clip)

    def _make_radius_step(self, low: float, high: float, counts: int) -> RadiusStep:
        return RadiusStep(
            self._mean,
            low,
            high,
            counts=counts,
            quantile=_MEAN_QUANTILE if self._needs_mean else _CLIP_QUANTILE,
            mu=self._privacy.mu,
            relation=self._privacy.relation,
            draw=self._draw,
        )

    def _make_mean_step(self, radius: float) -> MeanStep:
        privacy = self._privacy
        return MeanStep(
            self._mean, radius, mu=privacy.mu, relation=privacy.relation, draw=self._draw
        )

    @property
    def _needs_mean(self) -> bool:
        return self._centered and self._averaged < _MEANS

    def _take(self, rows: Array, sums: _Sums) -> None:
        while self._step is not None and len(rows):
            here, rows = rows[: self._step.room], rows[self._step.room :]
            self._step.take(here)
            if self._step.room == 0:
                self._step = self._next_step(self._step)
        if len(rows):
            self._add(rows, sums)

    def _next_step(self, step: RadiusStep | MeanStep) -> RadiusStep | MeanStep | None:
        """Store the result of a step of the warm-up and return the next; None ends the warm-up."""
        if isinstance(step, MeanStep):
            self._mean = step.mean()
            self._averaged += 1
            if self._privacy.clip is not None:
                return None
            # About the mean, norms are smaller: search the octaves around and below the old radius.
            middle = math.log2(self._radius)
            return self._make_radius_step(middle - 3, middle + 1, NARROW_STEPS)
        wide = math.isnan(self._radius)
        if wide and step.at_end:
            raise InputError(
                f"According to noisy counts, the norms of the rows are not between 2^{WIDEST[0]:g} "
                f"and 2^{WIDEST[1]:g}",
                remedy=("Pass a public ", Name("clip"), ", or rows in other units."),
            )
        if self._needs_mean:
            self._radius = step.upper if wide else step.radius
            return self._make_mean_step(self._radius)
        self._clip = step.radius
        return None

    def _add(self, rows: Array, sums: _Sums) -> None:
        centred = subtract_center(rows, self._mean)
        clipped = round_to_grid(centred, self._clip, _GRID)
        update = clipped.T @ compute_coefficients(clipped, self._basis, self._update_clip)
        sums.sketch += update.astype(np.int64)
        sums.total += clipped.sum(axis=0).astype(np.int64)
        # Squared norms after clipping, and the excess of the squared norms before it, up to _REACH
        # times the clip: together at most (_REACH * _GRID)^2 for a row, which bounds sensitivity.
        inner = np.einsum("ij,ij->i", clipped, clipped)
        reached = np.floor(np.minimum(row_norms(centred) / self._clip, _REACH) ** 2 * _GRID**2)
        beyond = np.maximum(np.minimum(reached, (_REACH * _GRID) ** 2) - inner, 0.0)
        sums.squares += np.array([inner.sum(), beyond.sum()], dtype=np.int64)
        sums.rows += len(rows)

    def _release(self, sums: _Sums) -> Summary:
        privacy = self._privacy
        split = privacy.split(["mean"] * self._centered + ["covariance", "scree"])
        sensitivity = sketch_sensitivity(_GRID, self._update_clip, privacy.relation)
        sensitivity += sketch_slack(_GRID, sums.sketch.shape[1])
        sketch = self._add_noise(sums.sketch, sensitivity, split["covariance"])
        unit, n = self._clip / _GRID, max(sums.rows, 1)
        shift = np.zeros(self.d)
        if split.get("mean"):
            total_sensitivity = sum_sensitivity(_GRID, privacy.relation)
            shift = self._add_noise(sums.total, total_sensitivity, split["mean"]) / n
        self.statement = state_stream_guarantee(privacy, n=self.n_seen, budget=split)
        # From here on everything is post-processing of released values.
        centred = sketch - n * np.outer(shift, shift @ self._basis)
        inner, beyond = self._release_energies(sums.squares, split["scree"])
        energy = max(inner - n * float(shift @ shift), 0.0)
        growth = (1.0 + min(beyond, _REACH**2)) * self.n_seen / n
        return self._decompose(
            centred * unit**2, energy * unit**2, growth, self._mean + shift * unit
        )

    def _release_energies(self, squares: Integers, fraction: float) -> tuple[float, float]:
        """Return the noised energy of the clipped rows, and the relative energy beyond the clip.

        The two exact numbers of a row are at least 0 and add up to at most ``(_REACH * _GRID)^2``.
        """
        if not fraction:
            return 0.0, 0.0
        sensitivity = second_moment_sensitivity(_REACH * _GRID, self._privacy.relation)
        inner, beyond = self._add_noise(squares, sensitivity, fraction).astype(np.float64)
        return max(inner, 1.0), max(beyond, 0.0) / max(inner, 1.0)

    def _add_noise(self, exact: Integers, sensitivity: float, fraction: float) -> Integers:
        """Return sums with noise for a fraction of the budget (of mu squared)."""
        mu = self._privacy.mu * math.sqrt(fraction)
        noised: Integers = Noise(sensitivity).add_to({"": exact}, mu, 1, self._draw)[""]
        return noised

    def _decompose(self, sketch: Array, energy: float, growth: float, mean: Array) -> Summary:
        """Turn the noised sketch into components; its singular values estimate eigenvalues.

        They are scaled up for the rows of the warm-up, which are not in the sketch, and for the
        energy that clipping has removed. That is assumed to be distributed over the directions
        like the rest, since clipping does not change the direction of a row.
        """
        left, s, _ = np.linalg.svd(sketch, full_matrices=False)
        inside = s[: self.k] * growth
        energy = max(energy * growth, float(inside.sum()))
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
