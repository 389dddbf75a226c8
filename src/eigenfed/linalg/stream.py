"""A summary of a stream of rows, available at any time, whatever the batches.

With an adaptive rank ([Grammenos2020] eq. 4), and with running means over the observed entries for
streams with missing values.
"""

import math
from copy import copy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.linalg.scatter import Scatter
from eigenfed.linalg.summary import Summary, chunk_rows

_EXACT_CHUNK_ROWS = 256
EXACT_FEATURES = 512
_EXACT_RATIO = 8
_LEAST_OVERSAMPLE = 8
_MOST_GROWTH = 4

Core = Summary | Scatter


@dataclass(frozen=True)
class StreamSettings:
    """Settings of a stream.

    Attributes
    ----------
    k : int
        Initial number of directions reported.
    oversample : int or None
        Directions tracked beyond those reported; None tracks as many again, and at least 8.
    centered : bool
        Whether rows are centred at their mean.
    forgetting : float
        A row that is t rows old has weight ``forgetting**t``.
    exact : bool
        Keep the whole d x d scatter instead of leading directions.
    energy : (float, float) or None
        Bounds of the adaptive rank; None keeps the rank fixed.
    components : int, float, "all", "auto" or None
        What the number of components shown follows from, where that is not `k`.
    """

    k: int
    oversample: int | None = None
    centered: bool = True
    forgetting: float = 1.0
    exact: bool = False
    energy: tuple[float, float] | None = None
    components: int | float | str | None = None

    def tracked(self, k: int) -> int:
        """Return how many directions to track when `k` are reported."""
        return k + (max(k, _LEAST_OVERSAMPLE) if self.oversample is None else self.oversample)


def is_scatter_small(d: int, settings: StreamSettings) -> bool:
    """Return whether the whole scatter of d features is about as cheap as leading directions.

    Examples
    --------
    >>> is_scatter_small(50, StreamSettings(k=2)), is_scatter_small(20_000, StreamSettings(k=2))
    (True, False)
    """
    return d <= max(EXACT_FEATURES, _EXACT_RATIO * settings.tracked(settings.k))


@dataclass(frozen=True, eq=False, repr=False)
class Observed:
    """Weight and mean of the observed entries of each feature.

    Attributes
    ----------
    n : ndarray of shape (d,)
        Sum of the weights of the rows in which the feature was observed.
    mean : ndarray of shape (d,)
        Its mean over those rows; 0 if there were none.

    Examples
    --------
    >>> import numpy as np
    >>> nan = float("nan")
    >>> seen = Observed(np.zeros(2), np.zeros(2)).fold(np.array([[1.0, nan], [3.0, nan]]), None, 1)
    >>> seen.n, seen.mean
    (array([2., 0.]), array([2., 0.]))
    """

    n: Array
    mean: Array

    @classmethod
    def from_complete_rows(cls, n: float, mean: Array) -> "Observed":
        """Return the weights and means of rows of weight `n` without missing entries."""
        return cls(np.full(len(mean), n), mean)

    def merge(self, other: "Observed") -> "Observed":
        """Return the weights and means of both sets of rows."""
        n = self.n + other.n
        fraction = self.n / np.where(n > 0, n, 1.0)
        return Observed(n, other.mean + fraction * (self.mean - other.mean))

    def fold(self, rows: Array, weights: Array | None, decay: float) -> "Observed":
        """Add rows, NaN where an entry is missing; earlier weights are scaled by ``decay**2``."""
        is_observed: npt.NDArray[np.bool_] = ~np.isnan(rows)
        entry_weights = is_observed * (1.0 if weights is None else weights[:, None])
        n_block = entry_weights.sum(axis=0)
        n = decay * decay * self.n + n_block
        divisor = np.where(n > 0, n, 1.0)
        gap = np.where(is_observed, rows - self.mean, 0.0)
        return Observed(n, self.mean + (entry_weights * gap).sum(axis=0) / divisor)


class Stream:
    """A summary that grows row by row.

    Rows are buffered and added in chunks at fixed positions of the stream, so the batches in which
    they arrive do not change the result, to the last bit. Reading the summary adds the buffered
    rows to a copy and does not move those positions.

    Parameters
    ----------
    d : int
        Number of features.
    settings : StreamSettings

    Examples
    --------
    >>> import numpy as np
    >>> stream = Stream(2, StreamSettings(k=1))
    >>> stream.push(np.array([[1.0, 0.0], [3.0, 0.0]]))
    >>> stream.summary().mean
    array([2., 0.])
    """

    def __init__(self, d: int, settings: StreamSettings) -> None:
        self.d = d
        self.settings = settings
        self.k = settings.k
        self.n_seen = 0
        self.n_missing = np.zeros(d, dtype=np.int64)
        self._limit = min(d, _MOST_GROWTH * settings.k)
        self._core: Core
        if settings.exact:
            self._core = Scatter.empty(d, centered=settings.centered)
            self._chunk = _EXACT_CHUNK_ROWS
        else:
            rank = settings.tracked(settings.k)
            self._core = Summary.empty(d, rank, centered=settings.centered)
            # There are no more directions than features, however many may be tracked.
            self._chunk = chunk_rows(min(rank, d))
        self._observed: Observed | None = None
        self._rows = np.empty((0, d))
        self._weights: Array | None = None
        self._count = 0
        self._view: Summary | None = None

    def push(self, rows: Any, weights: Array | None = None, *, missing: bool = False) -> None:
        """Add rows.

        Parameters
        ----------
        rows : ndarray or sparse row matrix of shape (b, d)
            Real numbers, finite or NaN.
        weights : ndarray of shape (b,) or None
        missing : bool
            Whether entries may be NaN, that is, missing.
        """
        total = rows.shape[0]
        self._view = None
        self.n_seen += total
        if self._can_append(rows, total) and weights is None and not missing:
            self._rows[self._count : self._count + total] = rows
            self._count += total
            return
        if missing and self._observed is None:
            self._observed = Observed.from_complete_rows(self._core.n, self._core.mean)
        start = 0
        while start < total:
            stop = min(start + self._chunk - self._count, total)
            piece = _to_dense(rows[start:stop])
            if missing:
                self.n_missing += np.isnan(piece).sum(axis=0)
            part = None if weights is None else weights[start:stop]
            if stop - start == self._chunk:
                self._flush(piece.astype(np.float64, copy=False), part)
            else:
                self._buffer(piece, part)
            start = stop

    def summary(self) -> Summary:
        """Return the summary of all rows so far, with the tracked directions."""
        if self._view is None:
            core, _ = self._complete()
            rank = self.settings.tracked(self.k)
            self._view = core.summary(rank) if isinstance(core, Scatter) else core.truncate(rank)
        return self._view

    def factor(self) -> Array:
        """Return rows whose inner products are the scatter that is kept, (r, d)."""
        core, _ = self._complete()
        if isinstance(core, Scatter):
            return core.factor()
        summary = self.summary()
        return summary.s[:, None] * summary.vt

    def sine_bound(self, k: int | None = None) -> float:
        """Bound the sine of the largest angle between the reported directions and the pooled ones.

        Parameters
        ----------
        k : int, optional
            Number of directions reported, if it is not that of the settings.

        Notes
        -----
        Computed before `summary` truncates: the directions it drops are known, so they need not
        enter the bound as lost.
        """
        core, _ = self._complete()
        k = self.k if k is None else k
        if isinstance(core, Scatter):
            return core.sine_bound(k, self.n_seen)
        return core.sine_bound(k, self.n_seen) if len(core.s) >= k else math.inf

    def merge(self, other: "Stream | Summary") -> None:
        """Add the rows of another stream or summary, which is not changed.

        Parameters
        ----------
        other : Stream or Summary
            Of the same features. A summary counts as ``round(n)`` rows.
        """
        core, observed = self._complete()
        added, added_observed = (other, None) if isinstance(other, Summary) else other._complete()
        if observed is not None or added_observed is not None:
            here = observed or Observed.from_complete_rows(core.n, core.mean)
            there = added_observed or Observed.from_complete_rows(added.n, added.mean)
            core = _move_unobserved(core, here, there)
            added = _move_unobserved(added, there, here)
            observed = here.merge(there)
        self._core, self._observed = _merge(core, added), observed
        self._count = 0
        self._view = None
        self.n_seen += round(other.n) if isinstance(other, Summary) else other.n_seen
        if isinstance(other, Stream):
            self.n_missing = self.n_missing + other.n_missing

    def reorder(self, columns: npt.NDArray[np.intp]) -> "Stream":
        """Return a copy with the features reordered, as `Summary.reorder` does."""
        other = copy(self)
        other._core = self._core.reorder(columns)
        if self._observed is not None:
            other._observed = Observed(self._observed.n[columns], self._observed.mean[columns])
        other._rows = self._rows[:, columns]
        other._weights = None if self._weights is None else self._weights.copy()
        other.n_missing = self.n_missing[columns]
        other._view = None
        return other

    def _can_append(self, rows: Any, total: int) -> bool:
        """Return whether rows can be appended to the buffer: the fast path of single rows."""
        return (
            0 < self._count < self._chunk - total
            and self._weights is None
            and type(rows) is np.ndarray
        )

    def _buffer(self, piece: Any, weights: Array | None) -> None:
        start, stop = self._count, self._count + len(piece)
        if len(self._rows) == 0:
            self._rows = np.empty((self._chunk, self.d))
        self._rows[start:stop] = piece
        if weights is not None and self._weights is None:
            self._weights = np.ones(self._chunk)
        if self._weights is not None:
            self._weights[start:stop] = 1.0 if weights is None else weights
        self._count = stop
        if stop == self._chunk:
            self._flush(*self._buffered())

    def _buffered(self) -> tuple[Array, Array | None]:
        weights = None if self._weights is None else self._weights[: self._count]
        return self._rows[: self._count], weights

    def _complete(self) -> tuple[Core, Observed | None]:
        """Return the state with the buffered rows added; the stream itself is not changed."""
        return self._fold(*self._buffered()) if self._count else (self._core, self._observed)

    def _flush(self, rows: Array, weights: Array | None) -> None:
        self._core, self._observed = self._fold(rows, weights)
        self._count = 0
        if self.settings.energy is not None:
            self._adapt(self.settings.energy)

    def _fold(self, rows: Array, weights: Array | None) -> tuple[Core, Observed | None]:
        core, observed, decay = self._core, self._observed, 1.0
        if self.settings.forgetting < 1.0:
            # Rows of the chunk fade by their age; earlier rows fade by the whole chunk. The state
            # holds singular values, whose squares are weights, hence the square root in `decay`.
            ages = np.arange(len(rows) - 1, -1, -1, dtype=np.float64)
            fading: Array = np.power(self.settings.forgetting, ages)
            weights = fading if weights is None else fading * weights
            decay = self.settings.forgetting ** (len(rows) / 2)
        if observed is not None:
            before, observed = observed, observed.fold(rows, weights, decay)
            rows = np.where(np.isnan(rows), observed.mean, rows)
            core = _move_unobserved(core, before, observed)
        return core.fold(rows, weights, decay), observed

    def _adapt(self, energy: tuple[float, float]) -> None:
        core = self._core
        tracked = core.summary(self._limit + 1) if isinstance(core, Scatter) else core
        self.k = adapt_rank(tracked.s, self.k, energy, self._limit)
        if isinstance(core, Summary):
            self._core = core.truncate(self.settings.tracked(self.k))


def _to_dense(rows: Any) -> npt.NDArray[Any]:
    # Not issparse: importing scipy.sparse is too much for a device that has dense rows only.
    dense: npt.NDArray[Any] = rows.toarray() if hasattr(rows, "toarray") else rows
    return dense


def _move_unobserved(core: Core, here: Observed, there: Observed) -> Core:
    """Set the mean of features never observed here to their mean over there.

    Such a feature is constant in all rows so far, so its mean carries no information; left at 0
    it would look like a shift when the first value arrives.
    """
    return replace(core, mean=np.where((here.n == 0) & (there.n > 0), there.mean, core.mean))


def _merge(core: Core, added: Core) -> Core:
    if isinstance(core, Scatter):
        return core.merge(Scatter.from_summary(added) if isinstance(added, Summary) else added)
    return core.merge(added.summary(core.rank) if isinstance(added, Scatter) else added)


def adapt_rank(s: Array, rank: int, energy: tuple[float, float], limit: int) -> int:
    """Change the rank by at most one so that the last direction's energy ratio stays in bounds.

    The ratio is ``s[rank-1] / sum(s[:rank])`` ([Grammenos2020] eq. 4). Above the upper bound the
    rank grows; below the lower bound the last direction is considered noise and the rank shrinks.

    [Grammenos2020] grows by appending a canonical vector, which is not orthogonal to the basis.
    Here more directions are tracked than reported, and growing reports one more of them; if no
    further direction has any energy, the rank does not change.

    Parameters
    ----------
    s : ndarray of shape (r,)
        Singular values of all tracked directions, largest first.
    rank : int
        Directions reported now.
    energy : (float, float)
        Lower and upper bound. The "1 and 10" of [Grammenos2020] are percent: (0.01, 0.10).
    limit : int
        Largest number of directions to report.

    Returns
    -------
    int
        From 1 to `limit`.

    Examples
    --------
    >>> import numpy as np
    >>> adapt_rank(np.array([3.0, 2.0, 1.0]), 2, (0.01, 0.10), limit=4)
    3
    >>> adapt_rank(np.array([300.0, 2.0, 1.0]), 2, (0.01, 0.10), limit=4)
    1
    """
    lower, upper = energy
    total = float(s[:rank].sum())
    last = float(s[rank - 1]) if rank <= len(s) else 0.0
    if last > upper * total and rank < limit and rank < len(s):
        return rank + 1
    if last < lower * total and rank > 1:
        return rank - 1
    return rank
