"""Whether a record shows in what is released: yes in exact components of few rows, no under DP."""

import math
from collections.abc import Callable

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.audit.membership import (
    Fitted,
    Membership,
    audit_membership,
    captured_fraction,
    max_advantage,
)
from eigenfed.errors import InputError
from eigenfed.privacy.dp.accounting import delta_of, mu_of
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.study import Study
from private_runs import run

pytestmark = pytest.mark.usefixtures("seeded_noise")

K, D = 6, 40
POOL: Array = np.random.default_rng(0).standard_normal((300, D))
RECORD = POOL[0]


def exact(rows: Array) -> Decomposition:
    """An exact PCA through a site."""
    return run(Study(("s",), K, "covariance", certify=False), {"s": rows}).found


def private(epsilon: float, delta: float, clip: float) -> Callable[[Array], Decomposition]:
    """A private one with a public clip."""
    privacy = Privacy(epsilon, delta, clip=clip, trust="local", shares={"scree": 0.0})
    study = Study(("s",), K, "covariance", privacy=privacy)

    def fit(rows: Array) -> Decomposition:
        return run(study, {"s": rows}).found

    return fit


def attack(fit: Callable[[Array], Fitted], **terms: object) -> Membership:
    settings = {"size": 10, "trials": 120, "rng": np.random.default_rng(1)} | terms
    return audit_membership(fit, POOL[1:], RECORD, **settings)  # type: ignore[arg-type]


def test_exact_components_of_few_rows_show_who_was_in() -> None:
    found = attack(exact)
    assert found.advantage > 0.6
    assert found.estimate > found.advantage


def test_the_same_attack_on_private_components_stays_within_the_claim() -> None:
    claimed = (1.0, 1e-3)
    found = attack(private(*claimed, clip=8.0), claimed=claimed)
    assert (
        found.allowed == pytest.approx(max_advantage(*claimed)) == pytest.approx(0.4627, abs=1e-4)
    )
    assert not found.refutes
    assert found.estimate < 0.4627


def test_with_next_to_no_noise_the_attack_is_back() -> None:
    """The same code at an epsilon that promises nothing: it is the noise that protects."""
    found = attack(private(2000.0, 1e-3, clip=8.0), claimed=(1.0, 1e-3))
    assert found.refutes


def test_among_many_rows_one_is_hardly_seen() -> None:
    pool = np.random.default_rng(3).standard_normal((4000, D))
    found = audit_membership(
        exact, pool, RECORD, size=1000, trials=60, rng=np.random.default_rng(4)
    )
    assert found.estimate < 0.5
    assert found.advantage < 0.3


def test_a_record_that_is_pushed_away_is_seen_as_well() -> None:
    """A score that falls where the record is in is turned round by the attack."""
    found = attack(exact, score=lambda fitted, record: -captured_fraction(fitted, record))
    assert found.advantage > 0.6


def test_the_certificate_is_below_the_advantage_as_often_as_it_says() -> None:
    """Scores that are mu apart: the best threshold has the advantage 2 Phi(mu / 2) - 1."""
    truth = delta_of(0.0, 1.0)
    rng = np.random.default_rng(2)

    def fit(rows: Array) -> Decomposition:
        value = float(rows[-1, 0] == 1.0) + rng.standard_normal()
        return Decomposition(np.eye(1), np.ones(1), np.array([value]), np.ones(1), 1.0, 1.0, 0)

    def mean(fitted: Fitted, _: Array) -> float:
        return float(fitted.mean[0])

    found = [
        audit_membership(
            fit, np.zeros((5, 1)), np.ones(1), size=2, trials=200, rng=rng, score=mean
        ).advantage
        for _ in range(60)
    ]
    assert np.mean(np.array(found) > truth) <= 0.1
    assert np.mean(found) > 0.3 * truth


@pytest.mark.parametrize("epsilon", [1e-6, 0.1, 1.0, 5.0, 800.0])
def test_the_bound_is_that_of_the_claim_and_no_gaussian_exceeds_it(epsilon: float) -> None:
    delta = 1e-3
    bound = max_advantage(epsilon, delta)
    if epsilon < 100:
        odds = math.exp(epsilon)
        assert bound == pytest.approx((odds - 1 + 2 * delta) / (odds + 1))
    assert delta_of(0.0, mu_of(epsilon, delta)) <= bound <= 1.0


def test_captured_is_one_in_the_span_and_nothing_outside() -> None:
    fitted = Decomposition(np.eye(2, 3), np.ones(2), np.ones(3), np.ones(3), 9.0, 2.0, 1)
    assert captured_fraction(fitted, np.array([3.0, -2.0, 1.0])) == pytest.approx(1.0)
    assert captured_fraction(fitted, np.array([1.0, 1.0, 7.0])) == 0.0
    assert captured_fraction(fitted, np.ones(3)) == 1.0


def test_what_was_found_is_said() -> None:
    assert "Certified advantage of at least 0.25 (95%" in Membership(0.25, 0.3, 0.95, 100).text
    assert "allows" not in Membership(0.25, 0.3, 0.95, 100).text
    assert "is not refuted" in Membership(0.25, 0.3, 0.95, 100, allowed=0.4).text


@pytest.mark.parametrize(
    ("changed", "about"),
    [
        ({"size": 0}, "size=0"),
        ({"size": 300}, "at most 299"),
        ({"trials": 19}, "trials=19"),
        ({"confidence": 1.0}, "confidence="),
    ],
)
def test_an_attack_that_could_not_be_run_is_refused(changed: dict[str, object], about: str) -> None:
    with pytest.raises(InputError, match=about):
        attack(exact, **changed)


def test_a_record_of_other_features_is_refused() -> None:
    for pool, record in ((POOL, np.zeros(3)), (RECORD, RECORD)):
        with pytest.raises(InputError, match="pool must have shape"):
            audit_membership(exact, pool, record, size=5, trials=20, rng=np.random.default_rng(0))
