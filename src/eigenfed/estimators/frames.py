"""Columns of data frames, aligned by name and never by position."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from eigenfed.data.columns import listed as as_listed
from eigenfed.errors import InputError


def aligned(X: Any, names: Sequence[str] | None) -> Any:
    """Return a frame with its columns in the order of `names`; anything else as it is.

    Parameters
    ----------
    X : array-like, sparse matrix or data frame
    names : sequence of str or None
        The features' names; None where they have none.

    Raises
    ------
    InputError
        If the frame has a column twice, lacks one, or has one that is not in `names`.

    Examples
    --------
    >>> import pandas as pd
    >>> aligned(pd.DataFrame({"b": [1], "a": [2]}), ["a", "b"]).columns.tolist()
    ['a', 'b']
    """
    if not hasattr(X, "columns"):
        return X
    columns = list(X.columns)
    twice = [name for name, times in Counter(columns).items() if times > 1]
    if twice:
        raise InputError(f"X has the columns {listed(twice)} more than once. Rename or drop them.")
    if names is None or columns == list(names):
        return X
    check_names("X", columns, names)
    return X[list(names)]


def check_names(subject: str, given: Sequence[Any], names: Sequence[str]) -> None:
    """Refuse names that are not those of `names` in some order.

    Examples
    --------
    >>> check_names("X", ["a", "c"], ["a", "b"])
    Traceback (most recent call last):
    eigenfed.errors.InputError: X lacks the columns 'b' and has the unknown columns 'c'. ...
    """
    absent, extra = set(names) - set(given), set(given) - set(names)
    faults = [f"lacks the columns {listed(absent)}"] if absent else []
    faults += [f"has the unknown columns {listed(extra)}"] if extra else []
    if faults:
        raise InputError(
            f"{subject} {' and '.join(faults)}. Bring the {len(names)} columns that were there "
            "first, in any order."
        )


def listed(names: Iterable[Any]) -> str:
    """List names for a message in sorted order, the first few of them.

    Examples
    --------
    >>> listed(["b", "a"])
    "'a', 'b'"
    """
    return as_listed(sorted(map(str, names)))
