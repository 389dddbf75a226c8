"""Checks of what an estimator is given: rows, and constructor arguments once rows arrive.

Rows go through scikit-learn's checks, with messages of our own: scikit-learn's may quote the data.
"""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from sklearn.utils import check_array, check_random_state, get_tags
from sklearn.utils.validation import validate_data

from eigenfed.data.source import stored
from eigenfed.errors import Argument, InputError, Name, Parts, Pass
from eigenfed.estimators.frames import (
    find_non_numeric,
    non_numeric_columns_error,
    refuse_annotated,
    refuse_dates,
    refuse_other_frames,
)
from eigenfed.estimators.inputs import align_columns
from eigenfed.linalg.checks import (
    check_choice,
    check_count,
    check_flag,
    check_unmasked,
    has_finite_squares,
    is_bounded,
    make_missing_error,
    make_range_error,
)
from eigenfed.linalg.sparse_rows import merge_duplicates
from eigenfed.linalg.stream import EXACT_FEATURES, Stream, StreamSettings, is_scatter_small
from eigenfed.privacy.dp.private_stream import PrivateStream
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.component_count import Components, as_components

_RANKS = ("fixed", "adaptive")
_MEMORIES = ("auto", "low_rank", "gram")

# What to say instead of scikit-learn's messages that hold these words.
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
    "inhomogeneous": (
        "X has rows of different lengths and must be a table. Give every row the same length."
    ),
    "string": "X holds text and must hold numbers. Convert or drop those columns.",
}


def validate_rows(estimator: Any, X: Any, *, reset: bool) -> Any:
    """Check a batch and return it as a float array or a sparse row matrix.

    Parameters
    ----------
    estimator : estimator
        Its ``n_features_in_`` and, from data frames, ``feature_names_in_`` are set or compared.
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
    refuse_annotated(X)
    refuse_other_frames(X)
    refuse_dates(X)
    # For a plain array one pass finds that all is well; otherwise the full checks say what is not.
    is_float = type(X) is np.ndarray and X.dtype in (np.float64, np.float32)
    is_plain = is_float and has_finite_squares(X)
    with _explaining(X, estimator):
        checked = validate_data(
            estimator,
            align_columns(X, names),
            reset=reset,
            accept_sparse="csr",
            dtype=[np.float64, np.float32],
            ensure_all_finite=not is_plain and _finite_rule(estimator),
        )
    if sparse.issparse(checked):
        checked = merge_duplicates(checked)
    if not is_plain and not is_bounded(stored(checked)):
        raise make_range_error()
    return checked


def validate_scores(X: Any) -> npt.NDArray[Any]:
    """Check scores, (n, k), and return them as a finite float array."""
    with _explaining(X):
        scores: npt.NDArray[Any] = check_array(
            X, dtype=[np.float64, np.float32], ensure_all_finite=False
        )
    if not np.isfinite(scores).all():
        raise InputError("X holds NaN or infinity and must be finite. Drop those rows.")
    return scores


@contextmanager
def _explaining(X: Any, estimator: Any = None) -> Iterator[None]:
    """Raise our errors in place of scikit-learn's and numpy's, which may quote the data."""
    try:
        yield
    except InputError:
        raise
    except OverflowError:
        raise _explain("infinity") from None
    except (ValueError, TypeError) as error:
        columns = [] if "Complex data" in str(error) else find_non_numeric(X)
        if columns:
            raise non_numeric_columns_error(columns) from None
        if isinstance(error, TypeError):
            raise
        if "contains NaN" in str(error):
            raise make_missing_error(by_choice=hasattr(estimator, "center")) from None
        raise _explain(str(error)) from None


def _finite_rule(estimator: Any) -> bool | str:
    """Return in scikit-learn's terms which entries to refuse."""
    return "allow-nan" if get_tags(estimator).input_tags.allow_nan else True


def _explain(text: str) -> InputError:
    """Return the error with our message in place of scikit-learn's."""
    for mark, message in _TEXTS.items():
        if mark in text:
            return InputError(*(message if isinstance(message, tuple) else (message,)))
    if "is expecting" in text:
        return InputError(text, " Pass the features that it was fitted with.")
    return InputError(text)


def stream_settings(params: dict[str, Any], d: int) -> StreamSettings:
    """Check the arguments and return how to keep the stream.

    Parameters
    ----------
    params : dict
        The constructor's arguments.
    d : int
        Number of features.

    Returns
    -------
    StreamSettings
    """
    check_choice("rank", params["rank"], _RANKS)
    check_choice("memory", params["memory"], _MEMORIES)
    energy = _check_energy(params["energy"])
    k, oversample = params["n_components"], params["oversample"]
    components = as_components(k)
    if not isinstance(components, int):
        return _settings_of_all(params, components, d)
    if k > d:
        raise InputError(
            Argument("n_components", k),
            f" must be at most {d}, the number of features (n_features={d})",
            remedy=("Lower ", Name("n_components"), "."),
        )
    if oversample is not None:
        check_count("oversample", oversample, "Pass None to track twice n_components.", least=0)
    _check_forgetting(params["forgetting"])
    for name in ("center", "whiten"):
        check_flag(name, params[name])
    check_seed(params["random_state"])
    adaptive = params["rank"] == "adaptive"
    settings = StreamSettings(
        k=int(k),
        oversample=None if oversample is None else int(oversample),
        centered=params["center"],
        forgetting=float(params["forgetting"]),
        energy=energy if adaptive else None,
    )
    few = is_scatter_small(d, settings)
    exact = {"auto": few and not adaptive, "low_rank": False, "gram": True}[params["memory"]]
    return StreamSettings(**{**vars(settings), "exact": exact})


def _settings_of_all(params: dict[str, Any], components: Components, d: int) -> StreamSettings:
    """Return the settings of a stream whose number of components is found when it is read.

    That needs the whole spectrum.
    """
    for name in ("center", "whiten"):
        check_flag(name, params[name])
    _check_forgetting(params["forgetting"])
    check_seed(params["random_state"])
    is_small = d <= EXACT_FEATURES and params["memory"] == "auto"
    if params["privacy"] is not None:
        raise InputError("privacy requires n_components as an integer. Pass one.")
    if (
        params["rank"] != "fixed"
        or params["oversample"] is not None
        or not (is_small or params["memory"] == "gram")
    ):
        raise InputError(
            Argument("n_components", params["n_components"]),
            " requires the whole scatter: rank='fixed', no oversample, and memory='gram' or up to "
            f"{EXACT_FEATURES} features",
            remedy=(Pass("memory", "gram"), ", or an integer."),
        )
    return StreamSettings(
        k=d,
        oversample=0,
        centered=params["center"],
        forgetting=float(params["forgetting"]),
        exact=True,
        components=components,
    )


def make_stream(params: dict[str, Any], d: int) -> Stream | PrivateStream:
    """Check the arguments and begin a stream, with or without noise at its end."""
    settings, privacy = stream_settings(params, d), params["privacy"]
    if privacy is None:
        return Stream(d, settings)
    if not isinstance(privacy, Privacy):
        raise InputError(
            f"privacy has type {type(privacy).__name__} and must be None or a Privacy. "
            "Pass, for example, Privacy(epsilon=1.0, delta=1e-6)."
        )
    if settings.energy is not None or settings.forgetting != 1.0:
        raise InputError(
            "privacy requires rank='fixed' and forgetting=1.0. Drop the other setting."
        )
    if params["memory"] == "gram" or params["oversample"] is not None:
        raise InputError(
            "privacy keeps a sketch of four directions a component and cannot be combined with "
            "memory='gram' or oversample. Drop them."
        )
    for name in ("colluders", "dropouts"):
        if getattr(privacy, name):
            raise InputError(
                Argument(name, getattr(privacy, name)),
                " is about several sites, and a stream is one party",
                remedy="Pass 0.",
            )
    seed = check_random_state(params["random_state"]).randint(2**31 - 1)
    return PrivateStream(d, settings.k, privacy, settings.centered, np.random.default_rng(seed))


def _check_forgetting(value: Any) -> None:
    is_number = isinstance(value, int | float | np.integer | np.floating)
    if not is_number or isinstance(value, bool) or not 0.0 < value <= 1.0:
        raise InputError(
            Argument("forgetting", value),
            " must be a number above 0 and at most 1",
            remedy="Pass 1.0 to forget nothing.",
        )


def check_seed(value: Any) -> None:
    """Refuse what scikit-learn does not take as a random state."""
    try:
        check_random_state(value)
    except ValueError:
        raise InputError(
            Argument("random_state", value),
            " must be None, an integer or a numpy RandomState",
            remedy="Pass one of them.",
        ) from None


def _check_energy(value: Any) -> tuple[float, float]:
    lower, upper = 0.0, 0.0
    with suppress(OverflowError, TypeError, ValueError):
        if all(isinstance(bound, Real) for bound in value):
            lower, upper = (float(bound) for bound in value)
    if not 0.0 < lower < upper < 1.0:
        raise InputError(
            Argument("energy", value),
            " must be two numbers with 0 < lower < upper < 1",
            remedy="Pass (0.01, 0.10) for the bounds of one and ten percent.",
        )
    return lower, upper
