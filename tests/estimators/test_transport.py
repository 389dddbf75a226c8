"""Where sites live changes nothing but the precision of messages, and what the log says of them."""

import json
import logging
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA
from sklearn.utils.estimator_checks import parametrize_with_checks

from command_line import eigenfed
from eigenfed import (
    Budget,
    Covariance,
    FederatedPCA,
    InputError,
    Policy,
    Privacy,
    PrivacyError,
    SiteRefused,
)
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.transport import Local, Processes
from eigenfed.transport.engine import SiteSetup, as_engine
from oracles import power_law

X = power_law(240, 12, 1.0, seed=3) + 5.0
SITES = {"a": X[:100], "b": X[100:180], "c": X[180:]}
METHODS = ("covariance", Covariance(precision="single"), "krylov")


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [FederatedPCA(transport=Local(workers=2))]
)
def test_scikit_learn_contract(estimator: FederatedPCA, check: Any) -> None:
    check(estimator)


def test_parameters_are_kept_as_they_are_and_cloned() -> None:
    given: dict[str, Any] = {
        "transport": Processes(deadline_s=9.0),
        "transcript": Path("run.transcript"),
    }
    pca = FederatedPCA(**given)
    assert {name: pca.get_params()[name] for name in given} == given
    assert pca.transport is given["transport"]
    assert {name: clone(pca).get_params()[name] for name in given} == given


def test_processes_give_the_same_bits_rounds_and_leakage() -> None:
    policies = {"a": Policy(max_rounds=20)}
    here, there = (
        FederatedPCA(2, method="krylov", random_state=0, transport=transport).fit_sites(
            {name: SITES[name] for name in ("a", "b")}, policies=policies, by_site=True
        )
        for transport in ("local", "processes")
    )
    np.testing.assert_array_equal(here.components_, there.components_)
    assert here.rounds_ == there.rounds_
    assert here.leakage_ == there.leakage_
    assert here.by_site_ is not None
    assert there.by_site_ is not None
    assert here.by_site_.keys() == there.by_site_.keys()
    assert {n: len(left) for n, left in here.egress_.items()} == {
        n: len(left) for n, left in there.egress_.items()
    }


def test_children_pay_in_the_ledgers_they_are_given(tmp_path: Path) -> None:
    ledgers = {name: Ledger(tmp_path / name, create=True) for name in SITES}
    for ledger in ledgers.values():
        ledger.set_budget("cohort", Budget(1.0, 1e-5))
    privacy = Privacy(1.0, 1e-5)
    pca = FederatedPCA(1, privacy=privacy, transport="processes")
    pca.fit_sites(SITES, ledgers=ledgers, datasets=dict.fromkeys(SITES, "cohort"))
    for ledger in ledgers.values():
        assert ledger.totals("cohort").epsilon == pytest.approx(1.0, rel=1e-6)
        assert ledger.verify().intact
    with pytest.raises(InputError, match=r"^The ledger of site 'a' is kept in memory"):
        pca.fit_sites(
            SITES,
            ledgers={"a": Ledger(None)},
            policies={"a": Policy(budget=Budget(1.0, 1e-5))},
        )


@pytest.mark.parametrize("method", METHODS, ids=str)
def test_a_float32_wire_halves_bytes_and_is_counted_by_the_certificate(method: Any) -> None:
    rows = np.random.default_rng(0).standard_normal((900, 60)) * np.linspace(9.0, 0.5, 60)
    exact = PCA(3).fit(rows)
    groups = np.arange(900) % 3
    double = FederatedPCA(3, method=method, random_state=0).fit(rows, groups=groups)
    single = FederatedPCA(3, method=method, random_state=0, transport=Local(wire="float32"))
    single.fit(rows, groups=groups)
    if method == "covariance":
        assert single.bytes_up_ < 0.55 * double.bytes_up_
    angle = np.arcsin(sines(single.components_, exact.components_)[0])
    assert np.degrees(angle) < 1e-4
    assert single.certificate_ is not None
    assert angle <= single.certificate_.angle_bound
    assert not single.certificate_.converged.any()
    assert np.all(single.certificate_.residuals < 1e-4)


@pytest.mark.parametrize("seed", range(190, 200))
def test_digits_that_small_squares_lose_on_a_float32_wire_are_counted(seed: int) -> None:
    """Squares of 1e-20 are below the least normal number: one of these had too small a bound."""
    X = np.random.default_rng(seed).standard_normal((19, 2)) * [1e-20, 1e-15]
    standard = (X - X.mean(axis=0)) / X.std(axis=0)
    exact = np.linalg.svd(standard)[2][:1]
    pca = FederatedPCA(1, scale=True, method="factors", transport=Local(wire="float32"))
    pca.fit(X, groups=np.arange(19) // 10)
    assert pca.certificate_ is not None
    assert sines(pca.components_, exact)[0] <= np.sin(pca.certificate_.angle_bound)


@pytest.mark.parametrize(
    ("parameters", "named"),
    [
        ({"secure": True}, "secure=True"),
        ({"privacy": Privacy(1.0, 1e-5)}, "privacy"),
        ({"privacy": Privacy(1.0, 1e-5, trust="local")}, "privacy"),
        ({"split": "features"}, "split='features'"),
    ],
)
def test_a_float32_wire_is_refused_where_it_would_do_harm(
    parameters: dict[str, Any], named: str
) -> None:
    keys = {name: np.arange(60) for name in SITES} if "split" in parameters else None
    tables = {name: table[:60] for name, table in SITES.items()}
    pca = FederatedPCA(1, transport=Local(wire="float32"), **parameters)
    message = f"^wire='float32' cannot be combined with {named}: .* Pass wire='float64'"
    with pytest.raises(InputError, match=message):
        pca.fit_sites(tables, keys=keys)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: as_engine("email"), "^transport='email' must be None, 'local', 'processes' or a"),
        (lambda: as_engine(3), "^transport=3 must be None"),
        (lambda: Local(wire="float16"), "^wire='float16' must be 'float64' or 'float32'"),
        (lambda: Local(workers=0), "^workers=0 must be"),
        (lambda: Processes(deadline_s=0.0), r"^deadline_s=0\.0 must be above 0, in seconds"),
    ],
)
def test_wrong_values_are_refused(make: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        make()


@pytest.mark.parametrize(
    ("n", "d", "density", "in_turn"),
    [
        (2_000, 400, 1.0, True),
        (2_000, 600, 1.0, False),
        (2_000, 300, 0.2, True),
        (2_000, 300, 0.3, False),
        (400, 15_000, 0.025, True),
        (400, 15_000, 0.05, False),
    ],
)
def test_sites_work_in_turn_where_threads_would_hardly_save_time(
    n: int, d: int, density: float, in_turn: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    rng = np.random.default_rng(0)
    rows: Any = rng.random((n, d))
    if density < 1.0:
        rows = sparse.random_array((n, d), density=density, rng=rng, format="csr")
    public = Identity.generate().public
    setups = {name: SiteSetup(name, Source(rows), public) for name in "ab"}
    for workers, found in ((None, 1 if in_turn else 2), (1, 1), (2, 2)):
        assert Local(workers=workers).connect(setups, wire="float64")._workers == found


def test_the_constructor_checks_nothing_and_fit_does() -> None:
    pca = FederatedPCA(transport="email")
    with pytest.raises(InputError, match=r"^transport='email' must be"):
        pca.fit(X)


def test_the_command_line_has_both_options(tmp_path: Path) -> None:
    files = []
    for name in ("a", "b"):
        files.append(str(tmp_path / f"{name}.npy"))
        np.save(files[-1], SITES[name])
    options = ("-k", "2", "--seed", "0", "--json")
    record = tmp_path / "run.transcript"
    plain = eigenfed("fit", *files, *options)
    other = eigenfed(
        "fit", *files, *options, "--transport", "processes", "--transcript", str(record)
    )
    assert (plain.exit_code, other.exit_code) == (0, 0), other.output
    one, two = (json.loads(run.stdout) for run in (plain, other))
    assert one.pop("run") != two.pop("run")
    assert one == two
    assert record.exists()
    nowhere = eigenfed("fit", *files, *options, "--transcript", str(tmp_path / "no" / "file"))
    assert nowhere.exit_code == 2
    assert "--transcript" in nowhere.stderr


CANARY = 8123456.25


def marked() -> dict[str, Array]:
    """Sites with one number that no log may hold."""
    return {name: np.vstack([table, np.full(12, CANARY)]) for name, table in SITES.items()}


def test_each_round_is_one_line_of_the_log(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger="eigenfed"):
        pca = FederatedPCA(2, method="krylov", random_state=0).fit_sites(marked())
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == pca.n_rounds_
    first = pca.rounds_[0]
    assert lines[0].endswith(
        f" round 0 moments: 3 sites answered, 0 lost, {first.bytes_up} bytes up, "
        f"{first.bytes_down} bytes down"
    )


@pytest.mark.parametrize(
    "parameters",
    [
        {"method": "covariance"},
        {"method": "krylov", "secure": True},
        {"privacy": Privacy(1.0, 1e-5)},
    ],
    ids=["exact", "secure", "private"],
)
def test_messages_are_logged_by_shape_and_never_by_value(
    parameters: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.DEBUG, logger="eigenfed"):
        pca = FederatedPCA(2, random_state=0, **parameters).fit_sites(marked())
    debug = [record.getMessage() for record in caplog.records if record.levelno == logging.DEBUG]
    assert any("'total': (12,)" in line for line in debug)
    sent = [line for line in debug if " was sent " in line]
    assert len(sent) == sum(len(record.received) for record in pca.rounds_)
    everything = " ".join(record.getMessage() + str(record.args) for record in caplog.records)
    assert "8123456" not in everything
    assert "8.123" not in everything
    assert "array(" not in everything


def test_a_refusal_is_logged_by_its_code(caplog: pytest.LogCaptureFixture) -> None:
    policies = {"b": Policy(max_rank_fraction=0.2)}
    with caplog.at_level(logging.INFO, logger="eigenfed"), pytest.raises(SiteRefused):
        FederatedPCA(2, method="covariance").fit_sites(marked(), policies=policies)
    lines = [record.getMessage() for record in caplog.records]
    assert any(line.endswith("scatter: site b refused with the code leakage") for line in lines)
    assert any(line.endswith("'scatter' refused with the code leakage") for line in lines)


def test_lost_sites_are_logged_by_name(caplog: pytest.LogCaptureFixture) -> None:
    from eigenfed.transport.rounds import RoundRecord, log_round

    with caplog.at_level(logging.INFO, logger="eigenfed"):
        log_round("r", RoundRecord(4, "product", {"a": 10}, {"a": 20}, ("b", "c")))
    assert caplog.records[0].getMessage() == (
        "run r round 4 product: 1 sites answered, 2 lost (b, c), 20 bytes up, 10 bytes down"
    )


def test_a_ledger_without_a_budget_is_refused_before_anything_is_spent() -> None:
    ledger, pca = Ledger(None), FederatedPCA(1, privacy=Privacy(1.0, 1e-5))
    with pytest.raises(PrivacyError, match=r"^The ledger of site 'a' has no budget"):
        pca.fit_sites(SITES, ledgers={"a": ledger})
    assert not ledger.totals("data").spends
    ledger.set_budget("data", Budget(3.0, 1e-5))
    pca.fit_sites(SITES, ledgers={"a": ledger})
    assert ledger.totals("data").epsilon == pytest.approx(1.0, rel=1e-6)
