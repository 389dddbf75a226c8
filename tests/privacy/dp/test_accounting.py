"""The tight Gaussian curve, against dp-accounting and against forty digits."""

import math

import mpmath
import numpy as np
import pytest
from dp_accounting import get_sigma_gaussian
from dp_accounting.dp_event import ComposedDpEvent, GaussianDpEvent
from dp_accounting.pld import PLDAccountant, privacy_loss_mechanism
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.errors import InputError
from eigenfed.privacy.dp.accounting import compose, delta_of, epsilon_of, mu_of

EPSILONS = (0.01, 0.1, 0.5, 1.0, 2.0, 4.0, 8.0, 30.0)
DELTAS = (1e-2, 1e-5, 1e-8, 1e-12)


def exact_delta(epsilon: float, mu: float) -> mpmath.mpf:
    with mpmath.workdps(60):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)
        return mpmath.ncdf(m / 2 - e / m) - mpmath.exp(e) * mpmath.ncdf(-m / 2 - e / m)


@pytest.mark.parametrize("delta", DELTAS)
@pytest.mark.parametrize("epsilon", EPSILONS)
def test_noise_is_that_of_the_analytic_gaussian_mechanism(epsilon: float, delta: float) -> None:
    assert 1 / mu_of(epsilon, delta) == pytest.approx(get_sigma_gaussian(epsilon, delta), rel=1e-6)


@pytest.mark.parametrize("mu", [0.05, 0.3, 1.0, 3.0])
@pytest.mark.parametrize("delta", [1e-2, 1e-5, 1e-9])
def test_epsilon_is_that_of_the_privacy_loss_distribution(mu: float, delta: float) -> None:
    loss = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu)
    epsilon = epsilon_of(delta, mu)
    assert loss.get_delta_for_epsilon(epsilon) == pytest.approx(delta, rel=1e-6)
    assert delta_of(epsilon, mu) == pytest.approx(delta, rel=1e-9)


def test_releases_compose_as_dp_accounting_composes_them() -> None:
    mus = [0.2, 0.5, 0.1, 0.4]
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    accountant.compose(ComposedDpEvent([GaussianDpEvent(1 / mu) for mu in mus]))
    numeric = accountant.get_epsilon(1e-5)
    # Its grid of privacy losses is pessimistic by up to a step for each release.
    assert numeric - 4e-3 <= epsilon_of(1e-5, compose(mus)) <= numeric


@pytest.mark.parametrize(
    ("epsilon", "sd"), [(0.1, 30.75), (0.5, 7.03), (1, 3.731), (2, 1.994), (4, 1.081), (8, 0.600)]
)
def test_noise_at_delta_1e_5_is_what_was_found_before(epsilon: float, sd: float) -> None:
    assert 1 / mu_of(epsilon, 1e-5) == pytest.approx(sd, rel=1e-3)


@given(
    epsilon=st.floats(-8, 4).map(lambda e: 10.0**e),
    delta=st.floats(-40, -0.01).map(lambda e: 10.0**e),
)
def test_mu_errs_on_the_side_of_privacy_and_hardly(epsilon: float, delta: float) -> None:
    mu = mu_of(epsilon, delta)
    assert exact_delta(epsilon, mu) <= delta
    assert exact_delta(epsilon, mu * (1 + 1e-7)) > delta


@given(
    mu=st.floats(-5, 2).map(lambda e: 10.0**e),
    delta=st.floats(-40, -0.01).map(lambda e: 10.0**e),
)
def test_epsilon_errs_on_the_side_of_privacy_and_hardly(mu: float, delta: float) -> None:
    epsilon = epsilon_of(delta, mu)
    assert exact_delta(epsilon, mu) <= delta * (1 + 1e-15)
    if epsilon > 0.0:
        assert exact_delta(epsilon * (1 - 1e-7), mu) > delta


@given(
    epsilon=st.floats(0, 100),
    mu=st.floats(-3, 1.5).map(lambda e: 10.0**e),
)
def test_delta_is_right_to_ten_digits(epsilon: float, mu: float) -> None:
    exact = float(exact_delta(epsilon, mu))
    assert delta_of(epsilon, mu) == pytest.approx(exact, rel=1e-10, abs=1e-290)


@pytest.mark.parametrize("delta", DELTAS)
def test_there_and_back_is_where_one_began(delta: float) -> None:
    for epsilon in EPSILONS:
        assert epsilon_of(delta, mu_of(epsilon, delta)) == pytest.approx(epsilon, rel=1e-11)


def test_more_is_allowed_where_more_is_spent() -> None:
    grid = np.geomspace(1e-3, 100, 60)
    assert np.all(np.diff([mu_of(e, 1e-6) for e in grid]) > 0)
    assert np.all(np.diff([mu_of(1.0, d) for d in np.geomspace(1e-30, 0.5, 60)]) > 0)
    assert np.all(np.diff([epsilon_of(1e-6, m) for m in grid]) > 0)
    assert np.all(np.diff([delta_of(1.0, m) for m in np.geomspace(0.1, 8, 60)]) > 0)
    assert np.all(np.diff([delta_of(e, 1.0) for e in np.linspace(0, 8, 60)]) < 0)


def test_extremes_have_their_limits() -> None:
    assert delta_of(1.0, 0.0) == 0.0
    assert delta_of(1.0, math.inf) == 1.0
    assert epsilon_of(1e-5, 0.0) == 0.0
    assert epsilon_of(0.5, 0.01) == 0.0
    assert epsilon_of(1e-5, math.inf) == math.inf
    assert 0.0 < mu_of(1e-9, 1e-300) < mu_of(1e5, 0.999)
    assert compose([]) == 0.0
    assert compose([0.3, math.inf]) == math.inf


def test_composition_is_of_squares_in_any_order() -> None:
    assert compose([0.1] * 100) == pytest.approx(1.0, rel=1e-14)
    assert compose([1e-200, 1e-200]) == pytest.approx(math.sqrt(2) * 1e-200, rel=1e-14)


@pytest.mark.parametrize("epsilon", [0.0, -1.0, math.inf, math.nan, True, "1"])
def test_what_is_no_epsilon_is_refused(epsilon: float) -> None:
    with pytest.raises(InputError, match="epsilon="):
        mu_of(epsilon, 1e-5)


@pytest.mark.parametrize("delta", [0.0, 1.0, -1e-5, 2.0, math.nan])
def test_what_is_no_delta_is_refused(delta: float) -> None:
    with pytest.raises(InputError, match="delta="):
        mu_of(1.0, delta)
    with pytest.raises(InputError, match="delta="):
        epsilon_of(delta, 1.0)


def test_no_noise_at_all_is_refused() -> None:
    for epsilon in (1e15, 1e300):
        with pytest.raises(InputError, match="below 1e6"):
            mu_of(epsilon, 1e-5)
    for mu in (-1.0, math.nan):
        with pytest.raises(InputError, match="mu="):
            epsilon_of(1e-5, mu)
