"""Frequent Directions: a matrix sketch with a deterministic bound on its error."""

import numpy as np

from eigenfed.arrays import Array
from eigenfed.baselines.tracker import RowBuffer, SubspaceTracker, check_integer


class FrequentDirections(SubspaceTracker):
    """Principal directions of a sketch B, with few rows, of all rows A so far.

    For every k < `sketch_size`, any stream and any order of rows, the sketch satisfies::

        0 <= A'A - B'B <= ||A - A_k||_F^2 / (sketch_size - k) * I

    where A_k is the best approximation of rank k. For k = `n_components` the projection on
    `components_` leaves at most (1 + k / (sketch_size - k)) ||A - A_k||_F^2 of the energy. This
    is the fast variant of [2]_: rows are collected in a buffer of 2 * `sketch_size`; a full
    buffer is rotated to its singular directions, and their squares are reduced by the
    `sketch_size`-th largest, which frees at least half of it. Rows are taken as given and are not
    centred.

    Parameters
    ----------
    n_components : int
        Directions to report, k.
    sketch_size : int, optional
        The parameter of the bound; at least k + 1. By default 2k, as in
        [Grammenos2020, supplement] section D.1.

    References
    ----------
    .. [1] E. Liberty. Simple and deterministic matrix sketching. KDD 2013.
    .. [2] M. Ghashami, E. Liberty, J. M. Phillips, D. P. Woodruff. Frequent Directions: simple
       and deterministic matrix sketching. SIAM Journal on Computing 45(5), 2016.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).standard_normal((500, 4)) * [9.0, 3.0, 1.0, 0.1]
    >>> tracker = FrequentDirections(n_components=1, sketch_size=3).partial_fit(rows)
    >>> tracker.components_.round(1) + 0.0
    array([[1., 0., 0., 0.]])
    >>> tracker.sketch_.shape
    (2, 4)
    """

    def __init__(self, n_components: int, *, sketch_size: int | None = None) -> None:
        super().__init__(n_components)
        chosen = 2 * self.n_components if sketch_size is None else sketch_size
        self.sketch_size = check_integer("sketch_size", chosen, least=self.n_components + 1)

    @property
    def sketch_(self) -> Array:
        """The sketch B, at most `sketch_size` - 1 rows of d entries, largest first.

        Buffered rows are included, so the bound covers every row seen. Reading it changes nothing.
        """
        self._require_rows("sketch_")
        return self._shrink()

    def _start(self, d: int) -> None:
        self._buffer = RowBuffer(2 * self.sketch_size, d)

    def _absorb(self, block: Array) -> None:
        while len(block):
            block = self._buffer.take(block)
            if self._buffer.is_full:
                self._buffer.restart(self._shrink())

    def _basis(self) -> Array:
        return self._rotate()[1][: self.n_components]

    def _rotate(self) -> tuple[Array, Array]:
        _, singular_values, directions = np.linalg.svd(self._buffer.rows, full_matrices=False)
        return singular_values, directions

    def _shrink(self) -> Array:
        singular_values, directions = self._rotate()
        kept = _shrink_values(singular_values, self.sketch_size)
        kept = kept[kept > 0]
        return kept[:, None] * directions[: len(kept)]


def _shrink_values(singular_values: Array, sketch_size: int) -> Array:
    if len(singular_values) < sketch_size:  # fewer features than rows: the sketch is exact
        return singular_values
    kept, least = singular_values[: sketch_size - 1], singular_values[sketch_size - 1]
    # sqrt(kept**2 - least**2) without cancellation
    shrunk: Array = np.sqrt(kept - least) * np.sqrt(kept + least)
    return shrunk
