"""How many components a study computes: a number, all, a fraction of variance, or by a rule.

A fraction and "auto" are decided by the coordinator from sums that it has anyway: leading
eigenvalues and the total variance. A site cannot know the number beforehand, so for it they mean up
to as many components as features. What it reveals stays limited as ever: by the width of each
request, the largest number of rounds, and its policy's limits on the directions and the variance
that it reveals.

"auto" is parallel analysis (Horn 1965): components are kept whose variance exceeds that of the
first component of pure noise with the same total variance, spread evenly over the features. Horn
draws such noise; here the 95 % quantile of its largest eigenvalue is computed (Johnstone 2001).
Strong components take variance that is then counted as noise, so that weak ones beside them may be
left out. Features in different units should be scaled.
"""

import math
from numbers import Integral
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError
from eigenfed.linalg.sampling import largest_by_chance

ALL, BY_RULE = "all", "auto"
Components = int | float | str
"""A number of components, a fraction of the variance, "all" or "auto"."""

_ROUNDING = 1e-9
"""Fraction of the total variance up to which sums of eigenvalues are taken for all of it."""
_OPEN_BLOCK = 32
"""Directions of a request where the number of components is not known: usually enough at once."""


def check_components(components: Components) -> None:
    """Raise InputError for what is not a number of components."""
    is_number = type(components) is int and components >= 1
    is_fraction = type(components) is float and 0.0 < components < 1.0
    if not is_number and not is_fraction and components not in (ALL, BY_RULE):
        raise InputError(
            "components of a study must be an integer of at least 1, a fraction of the variance "
            "between 0 and 1, 'all' or 'auto'."
        )


def is_open(components: Components) -> bool:
    """Return whether the number depends on the rows.

    Examples
    --------
    >>> [is_open(components) for components in (3, "all", 0.95, "auto")]
    [False, False, True, True]
    """
    return isinstance(components, float) or components == BY_RULE


def bound_count(components: Components, most: int) -> int:
    """Return the largest number of components that there can be."""
    return components if isinstance(components, int) else most


def count_per_request(components: Components, most: int) -> int:
    """Return the number of components that a request is made for."""
    return min(_OPEN_BLOCK, most) if is_open(components) else bound_count(components, most)


def as_components(k: Any) -> Components:
    """Check a number of components, and return it as a study has it; None means "all"."""
    if k is None or (isinstance(k, str) and k in (ALL, BY_RULE)):
        return k or ALL
    if isinstance(k, float | np.floating) and 0.0 < k < 1.0:
        return float(k)
    if isinstance(k, Integral) and not isinstance(k, bool) and int(k) >= 1:
        return int(k)
    raise InputError(
        Argument("n_components", k),
        " must be an integer of at least 1, a fraction of the variance between 0 and 1, None, "
        "'all' or 'auto'",
        remedy="Pass one of them.",
    )


def noise_edge(total: float, n: float, d: int) -> float:
    """Return the variance above which "auto" keeps a component; infinite for one row.

    Parameters
    ----------
    total : float
        Total variance.
    n : float
        Number of rows.
    d : int
        Number of features.

    Examples
    --------
    >>> round(noise_edge(100.0, n=1001, d=100), 3)
    1.752
    """
    return total / d * largest_by_chance(n - 1.0, d) if n >= 2.0 else math.inf


def find_count(
    components: Components, values: Array, *, total: float, n: float, d: int
) -> int | None:
    """Return the number of components, from the leading eigenvalues.

    Parameters
    ----------
    components : int, float, "all" or "auto"
        Of a fraction f, the fewest components with more than f of the variance, as in
        scikit-learn; "auto" gives at least one.
    values : ndarray of shape (m,)
        The leading eigenvalues that are known, largest first.
    total : float
        Sum of all eigenvalues.
    n : float
        Number of rows, or the sum of their weights, which may be less.
    d : int
        Number of features.

    Returns
    -------
    int or None
        None if more eigenvalues are needed to tell.

    Examples
    --------
    >>> values = np.array([6.0, 2.0, 1.0])
    >>> [find_count(share, values, total=10.0, n=50, d=5) for share in (0.5, 0.8, 0.95)]
    [1, 3, None]
    >>> find_count("auto", values, total=10.0, n=50, d=5)
    1
    """
    most = max(min(int(n), d), 1)
    if not is_open(components):
        return bound_count(components, most)
    if isinstance(components, float):
        reached = np.flatnonzero(np.cumsum(values) > components * total)
        found = int(reached[0]) + 1 if len(reached) else None
    else:
        above = int(np.count_nonzero(values > noise_edge(total, n, d)))
        found = max(above, 1) if above < len(values) else None
    if found is None and len(values) >= most:
        share = components if isinstance(components, float) else 1.0
        if len(values) >= d or float(values.sum()) >= (share - _ROUNDING) * total:
            return most
    return found
