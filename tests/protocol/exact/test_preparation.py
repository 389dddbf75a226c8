"""Preparation at the gate: what a site admits, what leaves it, and what the meter counts."""

from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.data.steps import as_steps
from eigenfed.errors import ProtocolError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.revealed_products import RevealedProducts
from eigenfed.protocol.core import drive
from eigenfed.protocol.exact.magnitude import MagnitudeRequest
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.messages import Message
from eigenfed.protocol.published import AnalyzeGauss
from eigenfed.protocol.study import Study
from federation import Talk, coordinated, gate, gates, opened, run, study_of, talk
from secured import secured

D = 6
STEPS = ["normalize:100", "select:3:variance", "log1p", "standardize:2"]


def counts(n: int = 31, seed: int = 0) -> Array:
    return np.random.default_rng(seed).poisson([1, 4, 9, 2, 30, 3], (n, D)).astype(np.float64)


def begun(policy: Policy | None = None, **settings: Any) -> Talk:
    """A run whose first stage is over: the features are to be selected next."""
    asked = talk(gate("a", counts(), policy=policy), 2, "krylov", prepare=STEPS, **settings)
    total = asked.reply(MomentsRequest()).total
    asked.reply(SquaresRequest(mean=total / 31))
    return asked


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"selected": np.array([0, 2])},
        {"selected": np.array([0, 2, 6])},
        {"selected": np.array([-1, 2, 5])},
        {"selected": np.array([2, 0, 5])},
        {"selected": np.array([2, 2, 5])},
        {"selected": np.array([0, 2**62, 2**63 - 1])},
        {"selected": np.array([[0, 1, 2]])},
        {"selected": np.array([0, 2, 4]), "center": np.zeros(3), "spread": np.ones(3)},
        {"center": np.zeros(3), "spread": np.ones(3)},
    ],
)
def test_a_selection_is_as_the_study_has_it(figures: dict[str, Any]) -> None:
    asked = begun()
    assert asked.code(MomentsRequest(**figures)) == "invalid"
    reply = asked.reply(MomentsRequest(selected=np.array([0, 2, 4])))
    assert reply.total.shape == (3,)
    # Shapes are those of the selected features from here on.
    assert asked.code(SquaresRequest(mean=np.zeros(D))) == "invalid"
    asked.reply(SquaresRequest(mean=reply.total / 31))


@pytest.mark.parametrize(
    "figures",
    [
        {},
        {"selected": np.array([0, 1, 2])},
        {"center": np.zeros(3)},
        {"spread": np.ones(3)},
        {"center": np.zeros(D), "spread": np.ones(D)},
        {"center": np.zeros(3), "spread": np.array([1.0, 0.0, 1.0])},
        {"center": np.zeros(3), "spread": np.array([1.0, -1.0, 1.0])},
        {"center": np.array([0.0, np.nan, 0.0]), "spread": np.ones(3)},
        {"center": np.zeros(3), "spread": np.full(3, np.inf)},
    ],
)
def test_figures_of_a_standardisation_are_checked(figures: dict[str, Any]) -> None:
    asked = begun()
    total = asked.reply(MomentsRequest(selected=np.array([0, 2, 4]))).total
    asked.reply(SquaresRequest(mean=total / 31))
    assert asked.code(MomentsRequest(**figures)) == "invalid"
    asked.reply(MomentsRequest(center=total / 31, spread=np.ones(3)))
    assert asked.code(MomentsRequest(center=total / 31, spread=np.ones(3))) == "script"


def test_figures_come_when_they_are_due() -> None:
    asked = talk(gate("a", counts()), 2, "krylov", prepare=STEPS)
    early = MomentsRequest(selected=np.array([0, 2, 4]))
    assert asked.code(early) == "invalid"
    asked.reply(MomentsRequest())
    # The variances of a stage are never skipped, nor the stage itself.
    assert asked.code(early) == "script"
    frame: dict[str, Any] = {"mean": np.zeros(D), "scale": np.ones(D)}
    assert asked.code(ProductRequest(basis=np.eye(D)[:, :2], **frame)) == "script"
    plain = talk(gate("a", counts()), 2, "krylov", run="other")
    plain.reply(MomentsRequest())
    assert plain.code(MomentsRequest(selected=np.array([0, 2, 4]))) == "script"


@pytest.mark.parametrize(
    "settings",
    [
        {"prepare": ["standardize"], "scale": True},
        {"prepare": ["standardize"], "center": False},
        {"prepare": ["select:3"], "privacy": Privacy(1.0, 1e-6, trust="local")},
        {"prepare": ["log1p"], "privacy": AnalyzeGauss(1.0, 1e-6), "method": "auto"},
        {"prepare": ["log1p"], "split": "features", "method": "krylov"},
    ],
)
def test_a_site_takes_no_part_in_what_cannot_be_combined(settings: dict[str, Any]) -> None:
    study = Study(("a",), 2, **{"method": "covariance"} | settings)
    assert Talk(gate("a", counts()), study).opens() == "prepare"


def test_a_site_allows_the_steps_of_its_policy() -> None:
    policy = Policy(steps=frozenset({"log1p"}))
    site = gate("a", counts(), policy=policy)
    assert Talk(site, study_of(["a"], 2, prepare=STEPS)).opens() == "prepare"
    assert Talk(site, study_of(["a"], 2, prepare=["log1p"]), "second").opens() == ""


def test_row_totals_do_not_leave() -> None:
    """Nor any other number of a single row: entries, prepared entries, their sums."""
    tables = {"a": counts(37, 1), "b": counts(41, 2)}
    for X in tables.values():
        X += np.random.default_rng(9).uniform(0.0, 0.5, X.shape)
    study = study_of(tables, 2, "krylov", prepare=STEPS, tol=1e-10, by_site=True)
    sites, seen = gates(tables), dict[str, list[bytes]]()
    for name, site in sites.items():
        seen[name] = []

        def tap(data: bytes, *, intact: bool = False, site: Any = site, name: str = name) -> bytes:
            reply: bytes = type(site).answer(site, data, intact=intact)
            seen[name].append(reply)
            return reply

        site.answer = tap  # type: ignore[method-assign]
    found = drive(coordinated(study), opened(sites, study))
    for name, X in tables.items():
        totals = X.sum(axis=1)
        prepared = found.preparation.transform(X)
        secret = np.concatenate(
            [
                *(part.ravel() for part in (X, X / totals[:, None] * 100, prepared)),
                *(totals, 1 / totals, 100 / totals, prepared.sum(axis=1)),
                (prepared @ found.components.T).ravel(),
            ]
        )
        hidden = set(secret.tolist()) - {2.0, -2.0}
        assert len(seen[name]) > 6
        for data in seen[name]:
            for array in Message.from_bytes(data, "reply", "refusal", intact=True).arrays.values():
                assert not {37, 41} & set(array.shape)
                assert not hidden & set(array.astype(np.float64).ravel().tolist())


def test_the_magnitude_of_clipped_entries_is_that_of_the_clip() -> None:
    declared = []
    for factor in (1.0, 1000.0):
        tables = {name: factor * counts(20, seed) for seed, name in enumerate("abc")}
        federation = secured(tables)
        study = federation.study(prepare=["standardize:2"])
        transport = federation.transport(study)
        drive(coordinated(study, total=federation.total(transport)), transport)
        site = federation.sites["a"]
        declared.append(site._runs[transport.run].state.declared)
        assert [entry.op for entry in site.egress].count("magnitude") == 2
    assert declared == [(2, 5), (2, 5)]
    assert MagnitudeRequest().op == "magnitude"


def test_the_meter_counts_directions_of_every_selection() -> None:
    """A selection shows the same directions in other features: what it adds is counted anew."""
    site, eye = gate("a", counts()), np.eye(3)
    for place, selected in enumerate(([0, 1, 2], [3, 4, 5], [0, 1, 2])):
        asked = talk(site, 2, "krylov", run=f"r{place}", prepare=["select:3:variance"])
        mean = asked.reply(MomentsRequest()).total / 31
        asked.reply(SquaresRequest(mean=mean))
        asked.reply(MomentsRequest(selected=np.array(selected)))
        frame: dict[str, Any] = {"mean": mean[selected], "scale": np.ones(3)}
        images = asked.reply(ProductRequest(basis=eye[:, :1], **frame)).product
        assert images.shape == (3, 1)
    assert site.meter.basis.shape == (D, 1)
    np.testing.assert_array_equal(np.flatnonzero(np.abs(site.meter.basis).sum(axis=1)), [0])
    assert site.meter.rank_fraction == 1.0
    assert site.meter.variance_fraction == 1.0


def test_the_limit_on_directions_holds_for_selected_features() -> None:
    asked = begun(Policy(max_rank_fraction=0.5))
    total = asked.reply(MomentsRequest(selected=np.array([0, 2, 4]))).total
    squares = asked.reply(SquaresRequest(mean=total / 31)).squares
    figures: dict[str, Any] = {"center": total / 31, "spread": np.sqrt(squares / 31)}
    mean = asked.reply(MomentsRequest(**figures)).total / 31
    frame: dict[str, Any] = {"mean": mean, "scale": np.ones(3)}
    assert asked.code(ProductRequest(basis=np.eye(3)[:, :2], **frame)) == "leakage"
    asked.reply(ProductRequest(basis=np.eye(3)[:, :1], **frame))


def test_ranks_add_up_over_preparations() -> None:
    revealed = RevealedProducts(np.eye(4)[:, :1], 3 * np.eye(4)[:, :1], 6.0)
    raw = Meter.empty(4).answered(revealed)
    other = raw.about("log1p", 4)
    assert other.rank == 1
    assert other.variance_fraction == 1.0
    assert raw.about("5d41", 4, others=True).variance_fraction == pytest.approx(0.5)
    assert other.answered(revealed).rank == 2
    back = other.answered(revealed).about("", 4)
    assert back.rank == 2
    again = Meter.from_bytes(back.to_bytes())
    assert again.rank == again.other_rank == 2
    assert again.variance_fraction == 1.0
    assert raw.about("", 4) is raw
    assert raw.about("", 2).rank_fraction == 0.5
    assert b"other_rank" not in raw.to_bytes()


def test_a_site_clips_at_few_bounds() -> None:
    """Sums of entries clipped at bounds of the coordinator's choice would find single entries."""
    ledger = Ledger(None)
    site = gate("a", counts(), policy=Policy(max_clips=2), ledger=ledger)
    codes = []
    for place, low in enumerate([1.0, 2.0, 1.0, 3.0, 2.0]):
        asked = talk(site, 1, "krylov", run=f"r{place}", prepare=["standardize:1"])
        mean = asked.reply(MomentsRequest()).total / 31
        asked.reply(SquaresRequest(mean=mean))
        reply = asked.request(MomentsRequest(center=np.full(D, low), spread=np.ones(D)))
        codes.append(reply.label if reply.kind == "refusal" else "")
    assert codes == ["", "", "", "leakage", ""]
    kept = ledger.meter("data")
    assert kept is not None
    assert Meter.from_bytes(kept).clip_count == site.meter.clip_count == 2


def test_counts_below_zero_are_found_by_the_coordinator() -> None:
    tables = {"a": counts() - 50.0, "b": counts() - 50.0}
    with pytest.raises(ProtocolError, match="flavor='seurat' compares variances with means"):
        run(tables, 2, prepare=["select:3"])


def test_variances_are_those_about_the_mean_also_without_centring() -> None:
    X = counts() + np.array([0, 0, 0, 0, 0, 1000.0])
    ran = run({"a": X[:10], "b": X[10:]}, 2, prepare=as_steps(["select:2:variance"]), center=False)
    np.testing.assert_array_equal(ran.found.preparation.selected, [2, 4])
