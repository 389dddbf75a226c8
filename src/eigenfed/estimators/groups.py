"""One table whose rows belong to sites."""

from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.errors import InputError


def rows_by_site(groups: npt.ArrayLike | None, n: int) -> dict[str, Any]:
    """Return the rows of each site, as slices where a site's rows stand together.

    Examples
    --------
    >>> rows_by_site(["a", "b", "a"], n=3)["a"]
    array([0, 2])
    """
    if groups is None:
        return {"all": slice(0, n)}
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(
            f"groups has shape {labels.shape} and must be ({n},), the site of each row. Reshape it."
        )
    found = {}
    for label in np.unique(labels):
        rows = np.flatnonzero(labels == label)
        together = rows[-1] - rows[0] + 1 == len(rows)
        found[str(label)] = slice(rows[0], rows[-1] + 1) if together else rows
    return found
