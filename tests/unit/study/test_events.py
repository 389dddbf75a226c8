"""A run that tells of its asks changes nothing else about the run."""

import numpy as np
import pytest
from sklearn.base import clone

from eigenfed import FederatedPCA, Policy, SiteLost, SiteRefused
from eigenfed.protocol.core import TOTAL, Ask, Protocol
from eigenfed.protocol.result import Decomposition
from eigenfed.study.events import Asked, ToldPCA

X = np.random.default_rng(0).standard_normal((90, 5)) * [5, 4, 3, 2, 1]
SITES = {"a": X[:30], "b": X[30:60], "c": X[60:]}


@pytest.mark.parametrize("settings", [{}, {"method": "krylov"}, {"secure": True}])
def test_telling_changes_nothing(settings: dict[str, object]) -> None:
    told = ToldPCA(2, random_state=0, **settings).fit_sites(SITES)  # type: ignore[arg-type]
    silent = FederatedPCA(2, random_state=0, **settings).fit_sites(SITES)  # type: ignore[arg-type]
    np.testing.assert_allclose(told.components_, silent.components_, atol=1e-12)
    assert told.n_rounds_ == silent.n_rounds_ == len(told.events_)
    assert [event.round for event in told.events_] == list(range(told.n_rounds_))
    up = sum(event.payload_bytes_up for event in told.events_)
    down = sum(event.payload_bytes_down for event in told.events_)
    assert 0 < up < told.bytes_up_
    assert 0 < down < told.bytes_down_


def test_payloads_are_those_of_all_sites() -> None:
    told = ToldPCA(2).fit_sites(SITES)
    scatter = told.events_[-1]
    assert scatter == Asked(1, "scatter", 3, 3 * 2 * 5 * 8, scatter.payload_bytes_up)
    assert scatter.payload_bytes_up >= 3 * 15 * 8


def test_each_ask_is_told_as_it_happens() -> None:
    heard: list[Asked] = []
    told = ToldPCA(2, method="krylov")
    told.on_ask = heard.append
    told.fit_sites(SITES)
    assert heard == told.events_
    told.fit_sites(SITES)
    assert len(told.events_) == len(heard) // 2


def test_it_is_cloned_as_any_estimator() -> None:
    assert (
        clone(ToldPCA(3, method="krylov")).get_params() == ToldPCA(3, method="krylov").get_params()
    )


def test_a_refusal_ends_the_run_as_ever() -> None:
    with pytest.raises(SiteRefused, match="leakage"):
        ToldPCA(2).fit_sites(SITES, policies={"a": Policy(max_rank_fraction=0.1)})


def test_a_lost_site_is_told_and_handed_on() -> None:
    def patient() -> Protocol[Decomposition]:
        try:
            yield Ask("first", {"basis": np.zeros(4)})
        except SiteLost:
            replies = yield Ask("second", to=("a", "b"))
        return Decomposition(replies[TOTAL]["x"], *(np.ones(1),) * 3, 1.0, 1.0, 1)

    told = ToldPCA()
    told.events_ = []
    run = told._told(patient(), ("a", "b", "c"))
    assert next(run).op == "first"
    assert run.throw(SiteLost(("c",), "first", 0)).op == "second"
    with pytest.raises(StopIteration) as end:
        run.send({TOTAL: {"x": np.zeros(2)}})
    assert end.value.value.components.tolist() == [0.0, 0.0]
    assert told.events_ == [Asked(0, "first", 3, 96, 0, ("c",)), Asked(1, "second", 2, 0, 32)]
