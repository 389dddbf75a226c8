"""The mergeable state of streaming and one-shot merging, and its file format.

It follows [Grammenos2020] Alg. 2, and Alg. 4 to 6 of its supplement.

A summary represents rows that are not stored: their weight, mean, leading singular vectors, total
energy, and a bound on what the vectors miss. With A the rows' scatter about their mean,
``0 <= A - vt.T @ diag(s**2) @ vt <= lost * I`` in the order of symmetric matrices. Decay, merging
and truncation preserve this invariant, so the bounds below hold for data that was read once and
discarded.

The papers merge subspaces of centred data. The row ``c * (mean1 - mean2)``, which they leave out,
carries the shift between the two parts; without it the merged subspace is wrong.

`eigenfed.linalg.summary_format` writes summaries to bytes and reads them.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.checks import (
    MOST_FEATURES,
    as_real_array,
    check_block,
    check_count,
    check_decay,
    check_weights,
    make_range_error,
)
from eigenfed.linalg.compress import center_rows, compress
from eigenfed.linalg.summary_format import LONGEST_NAME, are_names, read_fields, write_fields
from eigenfed.linalg.threads import limit_threads

_ROUNDINGS = 8
"""Machine epsilons of the energy by which each sum may be off."""


def bound_rounding(
    n: float,
    mean: Array,
    energy: float,
    directions: int,
    rows: float,
    updates: float | None = None,
) -> float:
    """Bound the error of a scatter by rounding: of its sums, and of means far from zero.

    Each update rounds the whole scatter, equal rows by the same amount in the same direction. The
    squares of each row may lose half of the least number.

    Parameters
    ----------
    n : float
        Sum of the rows' weights.
    mean : ndarray of shape (d,)
    energy : float
        Trace of the scatter.
    directions : int
        How many directions it has.
    rows : float
        Number of rows.
    updates : float, optional
        How often it has been rounded to an epsilon of its trace; once for each row by default.
    """
    updates = rows if updates is None else updates
    far = math.sqrt(n * energy) * float(np.linalg.norm(mean))
    limits = np.finfo(float)
    lost = (rows + updates) * len(mean) * float(limits.smallest_subnormal)
    sums = max(_ROUNDINGS * directions, updates) * energy
    return float(limits.eps) * (sums + _ROUNDINGS * far) + lost


@dataclass(frozen=True, eq=False, repr=False)
class Summary:
    """Weight, mean, leading directions and energy of rows that are not stored.

    Start with `Summary.empty`; every operation returns a new summary.

    Attributes
    ----------
    n : float
        Sum of the rows' weights: their number if no weights were given and nothing decayed.
    mean : ndarray of shape (d,)
        Weighted mean; zeros where `centered` is false.
    s : ndarray of shape (r,)
        Singular values of the centred rows, largest first.
    vt : ndarray of shape (r, d)
        Their right singular vectors, orthonormal rows.
    energy : float
        Sum of squares of the centred rows, including what `vt` misses.
    lost : float
        Bound on the squared singular values missed: ``s**2 <= pooled**2 <= s**2 + lost``.
    rank : int
        Maximum number of directions kept.
    centered : bool
        Whether rows are centred at their mean (PCA) or not (SVD).
    names : tuple of str or None
        Names of the features, by which summaries are matched where both have them.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import Summary
    >>> X = np.arange(12.0).reshape(4, 3) % 5
    >>> here = Summary.empty(d=3, rank=2).update(X[:3])
    >>> there = Summary.empty(d=3, rank=2).update(X[3:])
    >>> both = here.merge(there)
    >>> both.n, both.mean
    (4.0, array([2.  , 1.75, 1.5 ]))
    >>> pooled = np.linalg.svd(X - X.mean(axis=0), compute_uv=False)[:2]
    >>> bool(np.all(both.s**2 <= pooled**2 + 1e-12))
    True
    """

    n: float
    mean: Array
    s: Array
    vt: Array
    energy: float
    lost: float
    rank: int
    centered: bool = True
    names: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        for name in ("mean", "s", "vt"):
            view = getattr(self, name).view()
            view.setflags(write=False)
            object.__setattr__(self, name, view)

    def __repr__(self) -> str:
        return f"Summary(n={self.n:g}, d={self.d}, kept={len(self.s)}, rank={self.rank})"

    @classmethod
    def empty(cls, d: int, rank: int, *, centered: bool = True) -> "Summary":
        """Return the summary of no rows, the neutral element of `merge`.

        Parameters
        ----------
        d : int
            Number of features.
        rank : int
            Maximum number of directions to keep. Twice the number wanted in the end keeps a
            truncated stream close to the pooled result.
        centered : bool, default=True
            Centre rows at their mean (PCA) or not (SVD).
        """
        check_count("d", d, "Pass the number of features.")
        if d > MOST_FEATURES:
            raise InputError(
                f"d has {int(d).bit_length()} bits and must be at most {MOST_FEATURES}. "
                "Pass the number of features."
            )
        check_count("rank", rank, "Ask for one direction or more.")
        return cls(0.0, np.zeros(d), np.zeros(0), np.zeros((0, d)), 0.0, 0.0, rank, centered)

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.mean)

    @property
    def variance(self) -> Array:
        """Variance along each direction, (r,): ``s**2 / (n - 1)``, 0 when ``n <= 1``."""
        return self.s**2 / (self.n - 1) if self.n > 1 else np.zeros_like(self.s)

    @property
    def explained(self) -> Array:
        """Fraction of the total energy along each direction, (r,)."""
        return np.minimum(self.s**2 / self.energy, 1.0) if self.energy > 0 else 0.0 * self.s

    def sine_bound(self, k: int, rows: float | None = None) -> float:
        """Bound the sine of the largest angle between the first `k` directions and the pooled ones.

        The Davis-Kahan theorem with ``A - vt.T @ diag(s**2) @ vt <= lost``, to which rounding is
        added: that of the sums, and that of means far from zero. Infinite where the gap after `k`
        is too small for a bound.

        Parameters
        ----------
        k : int
            ``1 <= k <= len(s)``.
        rows : float, optional
            Number of rows, if weights or decay make `n` less than that: each may have been added
            alone, and rounded the sums once.
        """
        if not isinstance(k, Integral) or isinstance(k, bool) or not 1 <= k <= len(self.s):
            raise InputError(
                f"k={k!r} must be an integer from 1 to {len(self.s)}, the directions kept. "
                "Change k."
            )
        following = float(self.s[k]) ** 2 if k < len(self.s) else 0.0
        off = bound_error(self, rows)
        gap = float(self.s[k - 1]) ** 2 - following - off
        return off / gap if gap > 0 else math.inf

    def update(
        self, block: npt.ArrayLike, weights: npt.ArrayLike | None = None, *, decay: float = 1.0
    ) -> "Summary":
        """Add rows.

        Parameters
        ----------
        block : array-like of shape (b, d)
            Finite numbers; b may be 0. Large blocks are added in pieces.
        weights : array-like of shape (b,), optional
            Finite and not negative. A weight of 2 counts as the row given twice.
        decay : float in (0, 1], default=1.0
            Scales the earlier rows, as in `merge`.

        Returns
        -------
        Summary
        """
        rows = check_block(block, self.d)
        checked = None if weights is None else check_weights(weights, len(rows))
        check_decay(decay)
        summary = self
        step = chunk_rows(self.rank)
        for start in range(0, max(len(rows), 1), step):
            piece = slice(start, start + step)
            summary = summary.fold(
                rows[piece], None if checked is None else checked[piece], 1.0 if start else decay
            )
        return summary

    def fold(self, rows: Array, weights: Array | None, decay: float) -> "Summary":
        """Add rows in one step; `update` for arguments that have been checked.

        Parameters
        ----------
        rows : ndarray of shape (b, d)
            float64 and finite.
        weights : ndarray of shape (b,) or None
        decay : float
        """
        b, kept = len(rows), len(self.s)
        n = float(b) if weights is None else float(weights.sum())
        if n == 0.0:
            return self._decay(decay)
        stack = np.empty((kept + b + 1, self.d))
        with limit_threads(stack.size * len(stack)):
            mean = center_rows(rows, weights, centered=self.centered, out=stack[kept:-1])
            return self._join(stack, n, mean, decay)

    def merge(self, other: "Summary", decay: float = 1.0) -> "Summary":
        """Return the summary of both sets of rows.

        Parameters
        ----------
        other : Summary
            Of the same features: by name where both have names, or else in the same order.
        decay : float in (0, 1], default=1.0
            Scales this summary's singular values before the merge, so that its rows' weights
            shrink by ``decay**2``; `other` keeps its own.

        Returns
        -------
        Summary
            With the rank of this summary, and with names if both have them.
        """
        self._check_fits(other)
        check_decay(decay)
        other = self._align(other)
        if other.n == 0.0:
            return self._decay(decay)
        if self.n == 0.0:
            return other.truncate(self.rank)
        stack = np.empty((len(self.s) + len(other.s) + 1, self.d))
        np.multiply(other.s[:, None], other.vt, out=stack[len(self.s) : -1])
        with limit_threads(stack.size * len(stack)):
            joined = self._join(stack, other.n, other.mean, decay, other.missed, other.lost)
        return joined if other.names is not None else replace(joined, names=None)

    def with_names(self, names: Sequence[str] | None) -> "Summary":
        """Return the summary with names of its features.

        Parameters
        ----------
        names : sequence of str, or None
            One for each feature, each once.

        Examples
        --------
        >>> from eigenfed import Summary
        >>> here = Summary.empty(2, rank=1).update([[1.0, 2.0]]).with_names(["a", "b"])
        >>> there = Summary.empty(2, rank=1).update([[4.0, 3.0]]).with_names(["b", "a"])
        >>> here.merge(there).mean
        array([2., 3.])
        """
        given = None if names is None else tuple(map(str, names))
        if given is not None and not are_names(given, self.d):
            raise InputError(
                f"names must hold {self.d} different names of at most {LONGEST_NAME} characters, "
                "one for each feature. Name every feature once."
            )
        return replace(self, names=given)

    def truncate(self, rank: int) -> "Summary":
        """Keep at most `rank` directions, now and after later merges.

        Weight, mean and energy do not change; `lost` grows by the largest squared singular value
        dropped. A larger `rank` than the present one makes room for later rows.

        Parameters
        ----------
        rank : int

        Returns
        -------
        Summary
        """
        check_count("rank", rank, "Ask for one direction or more.")
        gone = float(self.s[rank]) ** 2 if rank < len(self.s) else 0.0
        cut = replace(self, s=self.s[:rank], vt=self.vt[:rank], rank=rank)
        return replace(cut, lost=min(self.lost + gone, cut.missed)) if gone else cut

    def reorder(self, columns: npt.ArrayLike) -> "Summary":
        """Reorder the features.

        Parameters
        ----------
        columns : array-like of int, shape (d,)
            Feature j of the result is feature ``columns[j]`` of this summary.

        Returns
        -------
        Summary
        """
        order = as_real_array("columns", columns)
        if order.dtype.kind not in "iu" or not np.array_equal(np.sort(order), np.arange(self.d)):
            raise InputError(
                f"columns must hold each number from 0 to {self.d - 1} once. Pass a permutation."
            )
        names = None if self.names is None else tuple(self.names[place] for place in order)
        return replace(self, mean=self.mean[order], vt=self.vt[:, order], names=names)

    @property
    def missed(self) -> float:
        """Energy outside the directions kept, ``energy - sum(s**2)``."""
        return max(self.energy - float(self.s @ self.s), 0.0)

    def to_bytes(self) -> bytes:
        """Serialise: versioned, with a checksum, without pickle.

        Examples
        --------
        >>> from eigenfed import Summary
        >>> data = Summary.empty(d=3, rank=2).update([[1.0, 2.0, 3.0]]).to_bytes()
        >>> Summary.from_bytes(data).mean
        array([1., 2., 3.])
        """
        return write_fields(vars(self))

    @classmethod
    def from_bytes(cls, data: bytes) -> "Summary":
        """Read a summary written by `to_bytes`.

        Parameters
        ----------
        data : bytes

        Returns
        -------
        Summary

        Raises
        ------
        DataError
            If the bytes are not a summary, are truncated, corrupt, of another version, or hold
            invalid numbers.
        """
        return cls(**read_fields(data))

    def _check_fits(self, other: "Summary") -> None:
        if other.d != self.d:
            raise InputError(
                f"A summary of {other.d} features cannot be merged into one of {self.d}. "
                "Merge summaries of the same features."
            )
        if other.centered != self.centered:
            kinds = "centred rows", "rows that were not centred"
            given, own = kinds if other.centered else kinds[::-1]
            raise InputError(
                f"A summary of {given} cannot be merged into one of {own}. Make both with the same "
                "choice."
            )

    def _align(self, other: "Summary") -> "Summary":
        """Return another summary with its features in the order of this one's, by their names."""
        if self.names is None or other.names is None or self.names == other.names:
            return other
        places = {name: place for place, name in enumerate(other.names)}
        absent = [name for name in self.names if name not in places]
        if absent:
            more = f" and {len(absent) - 3} more features" if len(absent) > 3 else ""
            them = "it" if len(absent) == 1 else "them"
            raise InputError(
                f"A summary without {', '.join(map(repr, absent[:3]))}{more} cannot be merged into "
                f"one with {them}. Merge summaries of the same features."
            )
        return other.reorder([places[name] for name in self.names])

    def _decay(self, decay: float) -> "Summary":
        if decay == 1.0:
            return self
        square = decay * decay
        if square * self.n == 0.0:
            empty = Summary.empty(self.d, self.rank, centered=self.centered)
            return replace(empty, names=self.names)
        return replace(
            self,
            n=square * self.n,
            s=decay * self.s,
            energy=square * self.energy,
            lost=square * self.lost,
        )

    def _join(
        self,
        stack: Array,
        n_other: float,
        mean_other: Array,
        decay: float,
        missed_other: float = 0.0,
        lost_other: float = 0.0,
    ) -> "Summary":
        """Merge with the rows in `stack`; its first r rows and its last row are filled in here.

        The last row carries the shift of the means: with weights n1 and n2 the scatter about the
        common mean exceeds the sum of the two scatters by ``n1 n2 / n`` times its outer product.
        """
        square = decay * decay
        n_self = square * self.n
        n = n_self + n_other
        shift = self.mean - mean_other
        np.multiply((decay * self.s)[:, None], self.vt, out=stack[: len(self.s)])
        np.multiply(math.sqrt(n_self / n * n_other), shift, out=stack[-1])
        with np.errstate(over="ignore"):
            energy = square * self.missed + missed_other + float(np.vdot(stack, stack))
        if not math.isfinite(energy):
            raise make_range_error()
        s, vt, discarded = compress(stack, self.rank, known=len(self.s))
        energy = max(energy, float(s @ s))
        lost = min(square * self.lost + lost_other + discarded, energy - float(s @ s))
        mean = mean_other + (n_self / n) * shift
        return Summary(n, mean, s, vt, energy, lost, self.rank, self.centered, self.names)


def bound_error(summary: Summary, rows: float | None = None) -> float:
    """Bound what a summary misses of the rows' scatter: what truncation lost, and rounding.

    Parameters
    ----------
    summary : Summary
    rows : float, optional
        As for `Summary.sine_bound`.
    """
    rows = summary.n if rows is None else rows
    return summary.lost + bound_rounding(
        summary.n, summary.mean, summary.energy, len(summary.s), rows
    )


def chunk_rows(rank: int) -> int:
    """Return how many rows to add at once: balances the small eigenproblem and the products."""
    return max(32, 5 * rank // 2)
