"""The interface of the streaming baselines, and the checks of their arguments."""

from abc import ABC, abstractmethod
from typing import ClassVar, Self

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.orthonormal import flip_signs

# Spirit squares products of two entries: larger entries could overflow there.
MAX_MAGNITUDE = 1e60


class SubspaceTracker(ABC):
    """Base class: tracks an orthonormal basis of the principal subspace of a stream of rows.

    Rows are taken as given: nothing is centred or scaled. Any partition of the same rows into
    blocks gives the same result, bit for bit. An invalid block changes nothing.

    Parameters
    ----------
    n_components : int
        Directions to track, k; at most the number of features, d.

    Attributes
    ----------
    n_rows_ : int
        Number of rows seen.
    n_features_in_ : int
        Number of features of every block, d; 0 before the first.
    """

    _takes_missing: ClassVar[bool] = False

    def __init__(self, n_components: int) -> None:
        self.n_components = check_integer("n_components", n_components)
        self.n_rows_ = 0
        self.n_features_in_ = 0

    def partial_fit(self, X: npt.ArrayLike) -> Self:
        """Add the next rows of the stream.

        Parameters
        ----------
        X : array-like of shape (n, d)

        Returns
        -------
        Self

        Raises
        ------
        InputError
            If X is not a table of real numbers in range, or its number of features changes.
        """
        block = check_block(X, missing=self._takes_missing)
        self._begin_or_match(block.shape[1])
        self._absorb(block)
        self.n_rows_ += len(block)
        return self

    @property
    def components_(self) -> Array:
        """Orthonormal rows, shape (k, d); the entry of largest magnitude in each is positive.

        Raises
        ------
        InputError
            If there are no rows yet.
        """
        self._require_rows("components_")
        return flip_signs(self._basis())

    @abstractmethod
    def _start(self, d: int) -> None:
        """Initialise the state for d features."""

    @abstractmethod
    def _absorb(self, block: Array) -> None:
        """Add checked rows, shape (n, d)."""

    @abstractmethod
    def _basis(self) -> Array:
        """Return orthonormal rows of any signs, shape (k, d)."""

    def _begin_or_match(self, d: int) -> None:
        if self.n_rows_ == 0:
            self._require_room(d)
            self._start(d)
            self.n_features_in_ = d
        elif d != self.n_features_in_:
            raise InputError(
                f"X has {d} features and must have {self.n_features_in_}, as the first block had. "
                "Pass blocks with the same columns."
            )

    def _require_room(self, d: int) -> None:
        if self.n_components > d:
            raise InputError(
                f"n_components={self.n_components} must be at most {d}, the number of features. "
                "Lower n_components."
            )

    def _require_rows(self, attribute: str) -> None:
        if self.n_rows_ == 0:
            raise InputError(
                f"{attribute} needs at least 1 row and {type(self).__name__} has seen 0. "
                "Call partial_fit first."
            )


class RowBuffer:
    """A buffer of shape (capacity, d): the first `count` rows are in use and the others zero."""

    def __init__(self, capacity: int, d: int) -> None:
        self.rows: Array = np.zeros((capacity, d))
        self.count = 0

    @property
    def is_full(self) -> bool:
        """Whether the buffer is full."""
        return self.count == len(self.rows)

    def take(self, block: Array) -> Array:
        """Copy the rows that fit, and return the rest."""
        fitting = block[: len(self.rows) - self.count]
        self.rows[self.count : self.count + len(fitting)] = fitting
        self.count += len(fitting)
        return block[len(fitting) :]

    def restart(self, rows: Array) -> None:
        """Replace the content by these rows."""
        self.rows[:] = 0.0
        self.rows[: len(rows)] = rows
        self.count = len(rows)


def check_block(X: npt.ArrayLike, *, missing: bool) -> Array:
    """Convert X to a float64 table, or raise; NaN is allowed only if `missing` is true."""
    table = np.asarray(X)
    if table.dtype.kind not in "biuf":
        raise InputError(
            f"X has dtype {table.dtype} and must hold real numbers. Convert it to float64."
        )
    if table.ndim != 2 or table.size == 0:
        raise InputError(
            f"X has shape {table.shape} and must be a table with at least 1 row and 1 column. "
            "Pass rows x features."
        )
    # products of strided rows round differently: the memory layout must not change the result
    block: Array = np.ascontiguousarray(table, dtype=np.float64)
    if np.isnan(block).any() and not missing:
        raise InputError("X must not contain NaN. Drop or fill the rows with missing entries.")
    if (np.abs(block) > MAX_MAGNITUDE).any():
        raise InputError(
            f"X must have magnitudes of at most {MAX_MAGNITUDE:g}. Remove infinities or rescale X."
        )
    return block


def check_integer(name: str, value: int, *, least: int = 1) -> int:
    """Return the value as an int, or raise."""
    check_count(name, value, f"Change {name}.", least=least)
    return int(value)


def check_seed(random_state: int | None) -> int | None:
    """Return a seed for `numpy.random.default_rng`, or raise."""
    return None if random_state is None else check_integer("random_state", random_state, least=0)


def draw_basis(k: int, d: int, random_state: int | None) -> Array:
    """Draw orthonormal rows that span a uniformly random subspace, shape (k, d)."""
    gaussian = np.random.default_rng(random_state).standard_normal((d, k))
    return orthonormalise_rows(gaussian.T)


def orthonormalise_rows(rows: Array) -> Array:
    """Orthonormalise rows in order by Householder QR, shape (k, d) with k <= d.

    The result is orthonormal even if the rows are linearly dependent: dependent rows are replaced
    by directions orthogonal to all others.
    """
    basis: Array = np.linalg.qr(rows.T).Q.T
    return basis
