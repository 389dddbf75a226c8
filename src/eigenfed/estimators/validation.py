"""Data given to an estimator: scikit-learn's checks, our messages, no data value in any of them."""

import math
from typing import Any

import numpy as np
from scipy.sparse import issparse
from sklearn.utils import get_tags
from sklearn.utils.validation import validate_data

from eigenfed.errors import Argument, InputError, Parts, Pass
from eigenfed.estimators.frames import aligned
from eigenfed.linalg.checks import check_unmasked, too_large

_LARGEST = 1e150

# scikit-learn's own texts for these quote the data.
_TEXTS: dict[str, Parts] = {
    "Complex data": "Complex data not supported: X must hold real numbers. Pass the real part.",
    "Expected 2D array": (
        "X must have 2 dimensions, rows and features. Reshape your data with X.reshape(1, -1) "
        "if it is one record."
    ),
    "infinity": (
        "X holds infinity or a number too large for its dtype, and must be finite or NaN. "
        "Drop or clip those entries."
    ),
    "contains NaN": (
        *("X holds NaN, which is imputed by the mean, and ", Argument("center", False)),
        *(" keeps none. Impute it first or ", Pass("center", True), "."),
    ),
    "inhomogeneous": (
        "X has rows of different lengths and must be a table. Give every row the same length."
    ),
    "string": "X holds text and must hold numbers. Convert or drop those columns.",
}


def validated(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check a batch and return it as a float array or a sparse row matrix.

    Parameters
    ----------
    estimator : estimator
        Takes or already has ``n_features_in_`` and, from data frames, ``feature_names_in_``.
    X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
    reset : bool
        Whether this is the first batch, which sets the features.

    Returns
    -------
    ndarray or csr_matrix of shape (n_samples, n_features)
        float64 or float32, finite apart from NaN, and without NaN where the estimator refuses it.
    """
    names = None if reset else getattr(estimator, "feature_names_in_", None)
    check_unmasked("X", X)
    # One pass over a plain table tells that all is well; what is not, the closer looks tell.
    plain = type(X) is np.ndarray and X.dtype in (np.float64, np.float32)
    sound = plain and _has_finite_squares(X)
    try:
        checked = validate_data(
            estimator,
            aligned(X, names),
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=not sound and _finite_rule(estimator),
        )
    except InputError:
        raise
    except OverflowError:
        raise _explained("infinity") from None
    except ValueError as error:
        raise _explained(str(error)) from None
    if not sound and not is_bounded(stored_values(checked)):
        raise too_large()
    return checked


def _finite_rule(estimator: Any) -> bool | str:
    """Say in scikit-learn's terms which entries to refuse."""
    return "allow-nan" if get_tags(estimator).input_tags.allow_nan else True


def _has_finite_squares(values: Any) -> bool:
    """Say whether the squares of all entries have a finite sum: then each is finite and bounded."""
    with np.errstate(over="ignore", invalid="ignore"):
        return math.isfinite(float(np.vdot(values, values)))


def stored_values(X: Any) -> Any:
    """Return the entries that are stored: all of a dense array's, the explicit of a sparse one."""
    sparse: bool = issparse(X)
    return X.data if sparse else X


def is_bounded(values: Any) -> bool:
    """Say whether all entries but NaN can be squared and summed in float64."""
    if values.dtype == np.float32 or _has_finite_squares(values):
        return True  # single precision ends far below the limit
    return not bool((np.abs(values) > _LARGEST).any())


def _explained(text: str) -> InputError:
    """Return the error that says in our words what scikit-learn says in its own."""
    for mark, message in _TEXTS.items():
        if mark in text:
            return InputError(*(message if isinstance(message, tuple) else (message,)))
    if "is expecting" in text:
        return InputError(text, " Pass the features of the first batch.")
    return InputError(text)
