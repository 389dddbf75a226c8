"""Missing entries are at the mean that the coordinator sends: with another one it sees more.

The product with a feature and a distant mean is the sum over the rows in which the feature is
observed: where a single row lacks it, the difference to the totals is that row.
"""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.study import Study
from hostile import Lone

N, D = 40, 12


def ask(lone: Lone, run: str, far: float, basis: Array) -> Any:
    lone.open(run)
    lone.round_ = -1
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["count"]
    mean[3] += far
    return lone.request(ProductRequest(basis=basis, mean=mean, scale=np.ones(D)))


def table(*, gap: bool) -> Array:
    rows = np.random.default_rng(0).standard_normal((N, D))
    rows[7, 3] = np.nan if gap else 0.0
    return rows


@pytest.mark.parametrize("gap", [False, True])
def test_another_mean_shows_other_sums_of_rows_with_gaps(gap: bool) -> None:
    policy = Policy(max_rank_fraction=0.5)
    lone, basis = (
        Lone.of(table(gap=gap), Study(("a",), 3, "krylov"), policy=policy),
        np.eye(D)[:, :3],
    )
    assert ask(lone, "one", 0.0, basis).kind == "reply"
    assert ask(lone, "again", 0.0, basis).kind == "reply"
    assert lone.site.meter.rank_fraction == pytest.approx(3 / D)
    assert ask(lone, "two", 2.0, basis).kind == "reply"
    assert lone.site.meter.rank_fraction == pytest.approx((6 if gap else 3) / D)
    kept = Meter.from_bytes(lone.site.meter.to_bytes())
    assert kept.rank_fraction == lone.site.meter.rank_fraction
    assert ask(lone, "three", 4.0, basis).code == ("leakage" if gap else "")


def test_together_two_means_may_determine_all_of_the_variance() -> None:
    lone = Lone.of(
        table(gap=True), Study(("a",), 1, "krylov"), policy=Policy(max_variance_fraction=0.99)
    )
    basis = np.eye(D)[:, :1]
    assert ask(lone, "one", 0.0, basis).kind == "reply"
    assert ask(lone, "again", 0.0, basis).kind == "reply"
    assert ask(lone, "two", 2.0, basis).code == "leakage"
