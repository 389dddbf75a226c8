"""The rank that the data ask for (000 eq. 4)."""

from eigenfed.arrays import Array


def adapted_rank(s: Array, rank: int, energy: tuple[float, float], limit: int) -> int:
    """Move the rank by at most one so that the last direction's share stays within bounds.

    The share is ``s[rank-1] / sum(s[:rank])``. Above the upper bound the data have more to show
    and the rank grows; below the lower one the last direction is noise and the rank shrinks.

    000 grows by appending a canonical vector, which is not orthogonal to the basis. Here more
    directions are tracked than are shown, and growing shows one more of them; where none has
    any energy, the rank stays.

    Parameters
    ----------
    s : ndarray of shape (r,)
        Singular values of all tracked directions, largest first.
    rank : int
        Directions shown now.
    energy : (float, float)
        Lower and upper bound. The "1 and 10" of 000 are percent: (0.01, 0.10).
    limit : int
        Most directions to show.

    Returns
    -------
    int
        From 1 to `limit`.

    Examples
    --------
    >>> import numpy as np
    >>> adapted_rank(np.array([3.0, 2.0, 1.0]), 2, (0.01, 0.10), limit=4)
    3
    >>> adapted_rank(np.array([300.0, 2.0, 1.0]), 2, (0.01, 0.10), limit=4)
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
