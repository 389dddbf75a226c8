"""The streaming block power method: one step of orthogonal iteration for each block."""

from eigenfed.arrays import Array
from eigenfed.baselines.tracker import (
    RowBuffer,
    SubspaceTracker,
    check_integer,
    check_seed,
    draw_basis,
    orthonormalise_rows,
)
from eigenfed.errors import InputError


class PowerStream(SubspaceTracker):
    """Subspace tracking by one power step for each block of rows.

    After every B rows x the basis Q, with orthonormal columns, becomes ([1]_, the
    block-stochastic orthogonal iteration)::

        Q <- QR(1/B * sum(x x') Q)

    Rows that do not fill a block are buffered, and have no effect until it is full. Under the
    spiked covariance model the error falls by a constant factor with each block, to a floor that
    larger blocks lower. Rows are taken as given and are not centred. Once converged, the
    directions are ordered by variance.

    Parameters
    ----------
    n_components : int
        Directions to track, k.
    block_size : int, optional
        Rows in a block, B; at least k. By default the number of features, d, as in
        [Grammenos2020, supplement] section D.1.
    random_state : int, optional
        Seed of the initial basis.

    Notes
    -----
    The paper adds each row to a sum of shape (d, k) and needs memory for that only. Here the B
    rows of a block are held and multiplied at once, however the rows arrive.

    References
    ----------
    .. [1] I. Mitliagkas, C. Caramanis, P. Jain. Memory limited, streaming PCA. NIPS 2013.

    Examples
    --------
    >>> import numpy as np
    >>> rows = np.random.default_rng(0).standard_normal((3000, 4)) * [0.1, 5.0, 0.2, 0.1]
    >>> tracker = PowerStream(n_components=1, block_size=300, random_state=0)
    >>> tracker.partial_fit(rows).components_.round(1) + 0.0
    array([[0., 1., 0., 0.]])
    >>> tracker.n_blocks_
    10
    """

    def __init__(
        self,
        n_components: int,
        *,
        block_size: int | None = None,
        random_state: int | None = None,
    ) -> None:
        super().__init__(n_components)
        if block_size is not None:
            block_size = check_integer("block_size", block_size, least=self.n_components)
        self.block_size = block_size
        self.random_state = check_seed(random_state)
        self.n_blocks_ = 0

    def _start(self, d: int) -> None:
        self._rows = draw_basis(self.n_components, d, self.random_state)
        self._block = RowBuffer(self.block_size or d, d)

    def _absorb(self, block: Array) -> None:
        while len(block):
            block = self._block.take(block)
            if self._block.is_full:
                self._power_step()

    def _basis(self) -> Array:
        if self.n_blocks_ == 0:
            raise InputError(
                f"components_ needs a full block of {len(self._block.rows)} rows and PowerStream "
                f"has seen {self._block.count}. Pass more rows or lower block_size."
            )
        return self._rows

    def _power_step(self) -> None:
        rows = self._block.rows
        self._rows = orthonormalise_rows((rows @ self._rows.T).T @ rows / len(rows))
        self._block.restart(rows[:0])
        self.n_blocks_ += 1
