"""What "auto" stands for: by predicted cost, within what policies, sums and privacy allow."""

from dataclasses import replace
from typing import Any

import pytest

from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.exact.covariance import Covariance
from eigenfed.protocol.exact.factors import Factors
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.method import Method, Shape
from eigenfed.protocol.method_registry import choose_method, may_choose, predict_seconds
from federation import study_of


def shape(rows: int, features: int, sites: int = 5, k: int = 10, **more: Any) -> Shape:
    """Rows are those of all sites together."""
    return Shape(rows=rows // sites, features=features, components=k, sites=sites, **more)


def chosen(at: Shape, *policies: Policy, **settings: Any) -> str:
    study = study_of(map(str, range(at.sites)), at.components, "auto", **settings)
    method, reason = choose_method(study, at, policies)
    assert may_choose(study, method)
    assert str(at.features) in reason or "policy" in reason
    return method.name


@pytest.mark.parametrize(
    ("rows", "features", "method"),
    [
        (200, 2000, "factors"),
        (2000, 2000, "krylov"),
        (957, 14_079, "krylov"),
        (60_000, 784, "covariance"),
        (1_000_000, 30, "covariance"),
        (150, 4, "covariance"),
        (9, 2, "covariance"),
    ],
)
def test_the_cheaper_method_is_chosen(rows: int, features: int, method: str) -> None:
    at = shape(rows, features, k=min(10, features))
    assert chosen(at) == method
    seconds = {m.name: predict_seconds(m, at) for m in (Covariance(), Factors(), Krylov())}
    assert seconds[method] <= 1.2 * min(seconds.values())


def test_of_methods_that_cost_the_same_the_one_with_fewer_rounds_is_taken() -> None:
    at = shape(60_000, 784)
    costs = [predict_seconds(method, at) for method in (Covariance(), Krylov())]
    assert max(costs) < 1.2 * min(costs)
    assert chosen(at) == "covariance"


def test_sparse_rows_are_multiplied_and_not_unpacked() -> None:
    assert chosen(shape(60_000, 784)) == "covariance"
    assert chosen(shape(60_000, 784, density=0.01)) == "krylov"
    assert chosen(shape(559, 32_786, density=0.02)) == "krylov"


def test_blocks_are_narrow_where_rows_are_sparse_and_rounds_are_cheap() -> None:
    at = shape(20_000, 20_000, k=20, density=0.003)

    def block(at: Shape, **settings: Any) -> int | None:
        study = study_of(map(str, range(at.sites)), at.components, "auto", **settings)
        method, _ = choose_method(study, at)
        assert isinstance(method, Krylov)
        assert may_choose(study, method)
        return method.block

    assert block(at) == block(at, certify=False) == 4
    assert block(shape(559, 32_786, density=0.02)) == 4
    assert block(shape(559, 32_786, k=3, density=0.02)) is None
    assert block(shape(20_000, 20_000, k=20)) == 8
    assert block(shape(20_000, 20_000, k=8)) is None
    assert block(at, stop="separated") is None
    assert block(at, split="features") is None
    assert block(replace(at, secure=True), secure=True) is None
    assert not may_choose(study_of("ab", 20, "auto", split="features"), Krylov(block=5))


@pytest.mark.parametrize("sites", [1, 2, 20])
def test_few_features_are_sent_whole_whatever_the_number_of_sites(sites: int) -> None:
    assert chosen(shape(2000, 10, sites, k=2)) == "covariance"


def test_a_policy_may_leave_one_method_only() -> None:
    tall, wide = shape(60_000, 784), shape(200, 2000)
    assert chosen(tall, Policy(methods=frozenset({"krylov"}))) == "krylov"
    assert chosen(wide, Policy(methods=frozenset({"covariance"}))) == "covariance"
    assert chosen(wide, Policy(max_rank_fraction=0.5)) == "krylov"
    assert chosen(tall, Policy(), Policy(methods=frozenset({"krylov", "power"}))) == "krylov"


def test_a_limit_on_leakage_rules_out_the_whole_covariance() -> None:
    tall = shape(60_000, 784)
    assert chosen(tall, Policy(max_rank_fraction=0.5)) == "krylov"
    assert chosen(tall, Policy(), Policy(max_variance_fraction=0.9)) == "krylov"


def test_where_no_policy_leaves_a_method_the_cheapest_is_asked_for_and_refused_there() -> None:
    none = Policy(methods=frozenset({"merge"}))
    assert chosen(shape(60_000, 784), none) == "covariance"


def test_masks_are_part_of_the_price() -> None:
    plain = shape(2000, 600)
    masked = shape(2000, 600, secure=True)
    for method in (Covariance(), Krylov()):
        assert predict_seconds(method, masked) > predict_seconds(method, plain)
    assert chosen(masked, secure=True) in ("covariance", "krylov")
    assert chosen(shape(200, 2000, secure=True), secure=True) == "krylov"
    assert chosen(shape(60_000, 784, secure=True), secure=True) == "covariance"


def test_under_privacy_a_matrix_is_noised_while_it_can_be_sent() -> None:
    privacy = Privacy(1.0, 1e-6, clip=1.0)
    assert chosen(shape(200, 2000), privacy=privacy) == "covariance"
    assert chosen(shape(200, 2001), privacy=privacy) == "power"
    assert chosen(shape(200, 5000), privacy=privacy, scale=True) == "covariance"


def test_split_by_features_is_by_products() -> None:
    assert chosen(shape(60_000, 78), split="features") == "krylov"


@pytest.mark.parametrize("method", [Covariance(), Krylov(), Power(2)])
def test_a_method_that_is_named_is_taken(method: Method) -> None:
    study = study_of("ab", 2, method)
    none = (Policy(methods=frozenset()),)
    assert choose_method(study, shape(200, 2000), none) == (method, "requested by name")


def test_auto_never_stands_for_options() -> None:
    study = study_of("ab", 2, "auto")
    assert not may_choose(study, Covariance(precision="single"))
    assert not may_choose(study, Power())
    private = study_of("ab", 2, "auto", privacy=Privacy(1.0, 1e-6, clip=1.0))
    assert may_choose(private, Power())
    assert not may_choose(private, Power(2))
    assert not may_choose(private, Krylov())
