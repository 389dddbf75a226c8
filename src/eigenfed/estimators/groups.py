"""One table split into sites, by a label for each row."""

from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.errors import InputError

Rows = slice | npt.NDArray[np.intp]
"""Which rows of a table are of a site."""


def group_rows(groups: npt.ArrayLike | None, n: int) -> dict[str, Rows]:
    """Return the rows of each site, as slices where a site's rows are evenly spaced.

    Parameters
    ----------
    groups : array-like of shape (n,) or None
        Labels of any kind, which become the names of sites as text; None puts all rows into one.
    n : int
        Number of rows.

    Raises
    ------
    InputError
        If there is not one label for each row.

    Examples
    --------
    >>> found = group_rows(["a", "b", "a", "b", "b"], n=5)
    >>> found["a"], found["b"]
    (slice(0, 3, 2), array([1, 3, 4]))
    """
    if groups is None:
        return {"all": slice(0, n)}
    labels = np.asarray(groups)
    if labels.shape != (n,):
        raise InputError(
            f"groups has shape {labels.shape} and must be ({n},), the site of each row. Reshape it."
        )
    _check_present(labels)
    if labels.dtype == object:
        # Labels of several kinds have no order.
        labels = labels.astype(str)
    return {str(label): _as_slice(np.flatnonzero(labels == label)) for label in np.unique(labels)}


def _check_present(labels: npt.NDArray[Any]) -> None:
    """Refuse rows without a site."""
    if labels.dtype == object:
        missing = np.fromiter(map(_is_missing, labels), bool, len(labels))
    elif labels.dtype.kind in "fcmM":
        missing = labels != labels
    else:
        return
    if missing.any():
        count, first = np.count_nonzero(missing), np.flatnonzero(missing)[0]
        raise InputError(
            f"groups has no site for {count} of {len(labels)} rows, first for row {first}. "
            "Give every row a site, or drop those rows."
        )


def _is_missing(label: Any) -> bool:
    """Return whether a label is None, NaN, or pandas' NA or NaT."""
    return label is None or type(label).__name__ in ("NAType", "NaTType") or bool(label != label)


def _as_slice(places: npt.NDArray[np.intp]) -> Rows:
    """Return increasing places as a slice if they are evenly spaced, and as they are otherwise."""
    steps = np.diff(places)
    if (steps != steps[:1]).any():
        return places
    return slice(int(places[0]), int(places[-1]) + 1, int(steps[0]) if len(steps) else 1)
