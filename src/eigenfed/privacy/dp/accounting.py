"""Privacy accounting for Gaussian noise: conversions between mu, epsilon and delta.

A release of a value of sensitivity D with Gaussian noise of standard deviation s is
``mu``-Gaussian-DP with ``mu = D / s``, and any adaptive sequence of such releases composes to
``sqrt(sum mu^2)``. A single mu represents the whole curve of (epsilon, delta) pairs::

    delta(epsilon) = Phi(mu / 2 - epsilon / mu) - e^epsilon Phi(-mu / 2 - epsilon / mu)

which is tight (Balle and Wang, 2018; Dong, Roth and Su, 2019) and not limited to epsilon below 1.
Results are rounded towards more privacy, in the last digits.

The implementation is our own because all noise in eigenfed is Gaussian: the closed form takes
microseconds and is exact where general accountants discretise. Tests compare it with dp-accounting
and with the curve in high precision.
"""

import math
from collections.abc import Callable, Iterable
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

import numpy as np

from eigenfed.errors import Argument, InputError, Name

_PRECISION = 1e-13
_LARGEST_MU = 1e6
_SMALL_MU = 0.5
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(16)


def delta_of(epsilon: float, mu: float) -> float:
    """Return the least delta at which mu-Gaussian-DP is (epsilon, delta)-DP.

    Examples
    --------
    >>> round(delta_of(1.0, 1.0), 6)
    0.126937
    """
    if mu == 0.0:
        return 0.0
    if math.isinf(mu):
        return 1.0
    if mu < _SMALL_MU:
        return _delta_of_small(epsilon, mu)
    from scipy.special import log_ndtr  # loaded on use: ledgers without a spend need none of it

    inside = float(log_ndtr(mu / 2 - epsilon / mu))
    outside = epsilon + float(log_ndtr(-mu / 2 - epsilon / mu))
    return max(-math.exp(inside) * math.expm1(min(outside - inside, 0.0)), 0.0)


def _delta_of_small(epsilon: float, mu: float) -> float:
    """Return delta for small mu by quadrature: the two terms of the curve would cancel.

    With phi the normal density and R = Phi(-t) / phi(t) its Mills ratio, delta is
    ``phi(a) (R(a) - R(b))`` for ``a, b = epsilon / mu -+ mu / 2``, and ``-R'(t) = 1 - t R(t)``.
    """
    from scipy.special import erfcx

    t = epsilon / mu + mu / 2 * _NODES
    falls = 1.0 - t * (math.sqrt(math.pi / 2) * erfcx(t / math.sqrt(2.0)))
    first = epsilon / mu - mu / 2
    density = math.exp(-first * first / 2) / math.sqrt(2.0 * math.pi)
    return max(density * mu / 2 * float(_WEIGHTS @ falls), 0.0)


def epsilon_of(delta: float, mu: float) -> float:
    """Return the least epsilon at which mu-Gaussian-DP is (epsilon, delta)-DP.

    Examples
    --------
    >>> round(epsilon_of(1e-5, 1 / 3.7306316), 6)
    1.0
    """
    _check_delta(delta)
    if not mu >= 0.0:
        raise InputError(
            Argument("mu", mu),
            " must be at least 0",
            remedy="Pass sensitivity / standard deviation.",
        )
    if mu > _LARGEST_MU:
        return math.inf
    if delta_of(0.0, mu) <= delta:
        return 0.0
    highest = mu * mu / 2 + mu * math.sqrt(-2 * math.log(delta))
    found = _find_root(lambda e: delta_of(e, mu) - delta, 0.0, highest)
    return found * (1 + 10 * _PRECISION)


@lru_cache(maxsize=256, typed=True)
def mu_of(epsilon: float, delta: float) -> float:
    """Return the largest mu that is (epsilon, delta)-DP; noise needs ``sensitivity / mu``.

    Examples
    --------
    >>> round(1 / mu_of(1.0, 1e-5), 4)
    3.7306
    """
    check_epsilon(epsilon)
    _check_delta(delta)
    # Written with `not` because delta_of is NaN for an epsilon that overflows.
    if not delta_of(epsilon, _LARGEST_MU) > delta:
        raise InputError(
            Argument("epsilon", float(epsilon)),
            " requires almost no noise",
            remedy=("Lower ", Name("epsilon"), " to below 1e6."),
        )
    high = 1.0
    while delta_of(epsilon, high) > delta:
        high /= 2
    while delta_of(epsilon, high) <= delta:
        high *= 2
    found = _find_root(lambda m: delta_of(epsilon, m) - delta, high / 2, high)
    return found * (1 - 10 * _PRECISION)


def _find_root(function: Callable[[float], float], low: float, high: float) -> float:
    # Loaded on use: every site imports this module, and those without noise never need it.
    from scipy.optimize import brentq

    return float(brentq(function, low, high, xtol=1e-300, rtol=_PRECISION, maxiter=1000))


def compose(mus: Iterable[float]) -> float:
    """Return the total mu of a sequence of releases, each of which may depend on earlier ones.

    Examples
    --------
    >>> compose([3.0, 4.0])
    5.0
    """
    return math.hypot(*mus)


def format_loss(value: float, digits: int = 3) -> str:
    """Return an epsilon, delta or mu as text, rounded up: a promise must not exceed the guarantee.

    An excess of one part in 1e9 is taken for rounding.

    Examples
    --------
    >>> format_loss(1.2441), format_loss(1.0), format_loss(1.0 + 1e-12), format_loss(math.inf)
    ('1.25', '1', '1', 'inf')
    """
    if not 0.0 < value < math.inf:
        return f"{value:g}"
    upwards = Context(prec=digits, rounding=ROUND_CEILING)
    return f"{float(upwards.create_decimal(Decimal(value * (1.0 - 1e-9)))):.{digits}g}"


def check_epsilon(epsilon: float) -> None:
    """Raise InputError unless epsilon is a finite number above 0."""
    if not is_number(epsilon) or not 0.0 < epsilon < math.inf:
        raise InputError(
            Argument("epsilon", epsilon),
            " must be a finite number above 0",
            remedy="Pass 1.0, for example.",
        )


def check_delta(delta: float) -> None:
    """Raise InputError unless delta is a number between 0 and 1, exclusive."""
    if not is_number(delta):
        raise InputError(
            Argument("delta", delta),
            " must be a number between 0 and 1",
            remedy="Pass 1e-6, for example.",
        )
    _check_delta(delta)


def _check_delta(delta: float) -> None:
    if not 0.0 < delta < 1.0:
        raise InputError(
            Argument("delta", float(delta)),
            " must be above 0 and below 1: Gaussian noise cannot achieve 0",
            remedy="Pass much less than one over the number of rows.",
        )


def is_number(value: object) -> bool:
    """Return whether a value is an int or a float, and not a bool."""
    return isinstance(value, (int, float)) and not isinstance(value, bool)
