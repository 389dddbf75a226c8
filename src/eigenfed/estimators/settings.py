"""Constructor arguments of the estimators, checked when data arrive, as scikit-learn asks."""

from contextlib import suppress
from numbers import Real
from typing import Any

import numpy as np
from sklearn.utils import check_random_state

from eigenfed.errors import Argument, InputError, Name
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.stream import Stream, StreamSettings
from eigenfed.privacy.private_stream import PrivateStream
from eigenfed.privacy.terms import Privacy

_RANKS = ("fixed", "adaptive")
_MEMORIES = ("auto", "low_rank", "gram")
_EXACT_FEATURES = 512
_EXACT_RATIO = 8


def stream_settings(params: dict[str, Any], d: int) -> StreamSettings:
    """Check the arguments and say how to keep the stream.

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
    k, oversample = params["n_components"], params["oversample"]
    check_count("n_components", k, "Ask for one component or more.")
    if k > d:
        raise InputError(
            Argument("n_components", k),
            f" must be at most {d}, the number of features (n_features={d})",
            remedy=("Lower ", Name("n_components"), "."),
        )
    if oversample is not None:
        check_count("oversample", oversample, "Pass None to track twice n_components.", least=0)
    _check_forgetting(params["forgetting"])
    check_flag("center", params["center"])
    check_seed(params["random_state"])
    adaptive = params["rank"] == "adaptive"
    settings = StreamSettings(
        k=int(k),
        oversample=None if oversample is None else int(oversample),
        centered=params["center"],
        forgetting=float(params["forgetting"]),
        energy=_checked_energy(params["energy"]) if adaptive else None,
    )
    few = d <= max(_EXACT_FEATURES, _EXACT_RATIO * settings.tracked(settings.k))
    exact = {"auto": few and not adaptive, "low_rank": False, "gram": True}[params["memory"]]
    return StreamSettings(**{**vars(settings), "exact": exact})


def stream_for(params: dict[str, Any], d: int) -> Stream | PrivateStream:
    """Check the arguments and begin a stream, with noise at its end or without."""
    settings, privacy = stream_settings(params, d), params["privacy"]
    if privacy is None:
        return Stream(d, settings)
    if not isinstance(privacy, Privacy):
        raise InputError(
            f"privacy is a {type(privacy).__name__} and must be None or a Privacy. "
            "Pass Privacy(epsilon=1.0, delta=1e-6), say."
        )
    if settings.energy is not None or settings.forgetting != 1.0:
        raise InputError(
            "privacy goes with rank='fixed' and forgetting=1.0 only. Drop the other setting."
        )
    if params["memory"] == "gram" or params["oversample"] is not None:
        raise InputError(
            "privacy keeps a sketch of four directions a component: memory='gram' and oversample "
            "do not go with it. Drop them."
        )
    for name in ("colluders", "dropouts"):
        if getattr(privacy, name):
            raise InputError(
                Argument(name, getattr(privacy, name)),
                " is for sites, and a stream is one party",
                remedy="Pass 0.",
            )
    seed = check_random_state(params["random_state"]).randint(2**31 - 1)
    return PrivateStream(d, settings.k, privacy, settings.centered, np.random.default_rng(seed))


def check_flag(name: str, value: Any) -> None:
    """Refuse what is neither True nor False."""
    if not isinstance(value, bool):
        raise InputError(
            Argument(name, value), " must be True or False", remedy="Pass one of them."
        )


def check_choice(name: str, value: Any, choices: tuple[str, ...]) -> None:
    """Refuse what is not one of the choices."""
    if value not in choices:
        listed = ", ".join(map(repr, choices))
        raise InputError(
            Argument(name, value), f" must be one of {listed}", remedy="Pass one of them."
        )


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
            " must be None, a whole number or a numpy RandomState",
            remedy="Pass one of them.",
        ) from None


def _checked_energy(value: Any) -> tuple[float, float]:
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
