"""A number about what known directions leave is little, and many of them determine all the rest."""

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Reveals
from eigenfed.protocol.exact.certificate import RemainderRequest
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.study import Study
from hostile import Lone

N, D, K = 40, 12, 2
KNOWN = 6


def count_answered(policy: Policy) -> tuple[int, Meter]:
    """Ask what parts of the same few directions leave, run after run; return how many answer."""
    rng = np.random.default_rng(0)
    lone = Lone.of(
        rng.standard_normal((N, D)),
        Study(("a",), K, "krylov", certify="rigorous", max_rounds=1),
        policy=policy,
    )
    for number in range(30):
        lone.open(f"run {number}")
        lone.round_ = -1
        lone.reply(MomentsRequest())
        turn: Array = np.linalg.qr(rng.standard_normal((KNOWN, KNOWN))).Q
        basis = np.eye(D)[:, :KNOWN] @ turn[:, : KNOWN - (number > 0)]
        shown = lone.request(ProductRequest(basis=basis, mean=np.zeros(D), scale=np.ones(D)))
        if shown.kind == "refusal" or lone.request(RemainderRequest(products=1)).code:
            return number, lone.site.meter
    return 30, lone.site.meter


@pytest.mark.parametrize(
    "policy", [Policy(max_rank_fraction=KNOWN / D), Policy(max_variance_fraction=0.99)]
)
def test_as_many_remainders_as_a_direction_has_numbers_are_one_too_many(policy: Policy) -> None:
    """The largest eigenvalue outside parts of 8 of 16 directions, 150 times, gave the other 8."""
    answered, meter = count_answered(policy)
    assert answered == meter.remainders == D - KNOWN - 1
    assert meter.rank_fraction == KNOWN / D


def test_without_a_limit_remainders_are_counted() -> None:
    answered, meter = count_answered(Policy())
    assert answered == 30
    # Beside 6 known directions of 12 there are 21 numbers to be known.
    assert meter.rank_fraction == meter.variance_fraction == 1.0
    again = Meter.from_bytes(meter.to_bytes())
    assert (again.remainders, again.rank) == (30, D)


def test_remainders_are_not_forgotten_with_other_features() -> None:
    counted = Meter.empty(4)
    for _ in range(3):
        counted = counted.count_reply(Reveals.REMAINDER, None)
    assert counted.of_features("5d41", 4).of_features("7d79", 3).remainder_rank == 1
