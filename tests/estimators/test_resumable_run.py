"""A fit with a transcript ends where it would have, however it was interrupted."""

import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed import (
    Budget,
    Covariance,
    FederatedPCA,
    InputError,
    Policy,
    Privacy,
    PrivacyError,
    ProtocolError,
    SiteRefused,
)
from eigenfed.arrays import Array
from eigenfed.estimators import resumable_run
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.protocol.published import DPdisPCA
from eigenfed.transport import Local
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.transcript import Transcript
from hostile import identities_of
from oracles import power_law
from secured import fixed_keys

X = power_law(240, 10, 1.0, seed=3) + 5.0
SITES = {"a": X[:100], "b": X[100:180], "c": X[180:]}
EXACT: tuple[Any, ...] = (
    *("covariance", "factors", "krylov", "randomized", "subspace", "power", "merge"),
    Covariance(precision="single"),
)


class Interrupted(Exception):
    """Somebody has stopped the program."""


def stop_at(round_: int) -> Callable[[RoundRecord], None]:
    """Stop in a round, when its replies are there and nobody has kept them."""

    def callback(record: RoundRecord) -> None:
        if record.round == round_:
            raise Interrupted

    return callback


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.transcript"


@pytest.fixture(autouse=True)
def nothing_paused() -> Iterator[None]:
    resumable_run._paused.clear()
    with fixed_keys(identities_of(SITES)):
        yield
    for paused in resumable_run._paused:
        paused.run.transport.close()
    resumable_run._paused.clear()


def interrupt(pca: FederatedPCA, at: int, sites: Any = SITES, **more: Any) -> None:
    with pytest.raises(Interrupted):
        pca.fit_sites(sites, callback=stop_at(at), **more)


def forget_sites() -> None:
    """Be another process, which has none of the sites."""
    resumable_run._paused.clear()


def assert_same(got: FederatedPCA, expected: FederatedPCA) -> None:
    for name in ("components_", "explained_variance_", "mean_", "scale_"):
        np.testing.assert_array_equal(getattr(got, name), getattr(expected, name))
    assert (got.method_, got.reason_) == (expected.method_, expected.reason_)
    assert got.leakage_ == expected.leakage_
    assert got.rounds_ == expected.rounds_
    assert {n: len(left) for n, left in got.egress_.items()} == {
        n: len(left) for n, left in expected.egress_.items()
    }


@pytest.mark.parametrize("are_gone", [False, True], ids=["same process", "new process"])
@pytest.mark.parametrize("method", EXACT, ids=str)
def test_any_exact_method_resumes_bit_equal(method: Any, are_gone: bool, path: Path) -> None:
    whole = FederatedPCA(3, method=method, scale=True, random_state=0).fit_sites(SITES)
    for at in {1, whole.n_rounds_ - 1}:
        path.unlink(missing_ok=True)
        pca = FederatedPCA(3, method=method, scale=True, random_state=0, transcript=path)
        interrupt(pca, at)
        if are_gone:
            forget_sites()
        assert_same(pca.fit_sites(SITES), whole)
    with pytest.warns(UserWarning, match=r"^All rounds come from the transcript .*: the result"):
        again = pca.fit_sites(SITES)
    assert_same(again, whole)


def test_the_rounds_that_are_recorded_are_not_asked_again(path: Path) -> None:
    pca = FederatedPCA(3, method="krylov", transcript=path)
    interrupt(pca, 2)
    seen: list[int] = []
    pca.fit_sites(SITES, callback=lambda record: seen.append(record.round))
    assert seen[0] == 2
    assert [record.round for record in pca.rounds_] == list(range(pca.n_rounds_))


def test_without_a_random_state_the_start_is_that_of_the_transcript(path: Path) -> None:
    pca = FederatedPCA(3, method="krylov", transcript=path)
    interrupt(pca, 2)
    forget_sites()
    first = pca.fit_sites(SITES).components_
    with pytest.warns(UserWarning, match="no site was asked"):
        np.testing.assert_array_equal(pca.fit_sites(SITES).components_, first)


def test_one_table_and_features_at_sites_resume_too(path: Path) -> None:
    groups = np.arange(240) % 3
    whole = FederatedPCA(3, method="krylov", random_state=1).fit(X, groups=groups)
    record = Path(f"{path}.rows")
    pca = FederatedPCA(3, method="krylov", random_state=1, transcript=str(record))
    pca.fit(X, groups=groups)
    assert_same(pca, whole)
    parts = {"left": X[:, :4], "right": X[:, 4:]}
    keys = {name: np.arange(240) for name in parts}
    whole = FederatedPCA(2, split="features", random_state=1).fit_sites(parts, keys=keys)
    for are_gone in (False, True):
        path.unlink(missing_ok=True)
        pca = FederatedPCA(2, split="features", random_state=1, transcript=path)
        interrupt(pca, 2, parts, keys=keys)
        if are_gone:
            forget_sites()
        assert_same(pca.fit_sites(parts, keys=keys), whole)


@pytest.mark.parametrize("at", [4, 11])
def test_secure_aggregation_resumes_at_its_sites(at: int, path: Path) -> None:
    whole = FederatedPCA(2, method="krylov", secure=True, random_state=0).fit_sites(SITES)
    pca = FederatedPCA(2, method="krylov", secure=True, random_state=0, transcript=path)
    interrupt(pca, at)
    assert_same(pca.fit_sites(SITES), whole)
    with pytest.warns(UserWarning, match="no site was asked"):
        assert_same(pca.fit_sites(SITES), whole)


@pytest.mark.parametrize("trust", ["secure_sum", "local"])
def test_a_resumed_private_run_draws_and_pays_once(trust: str, path: Path, tmp_path: Path) -> None:
    ledgers = {name: Ledger(tmp_path / name, create=True) for name in SITES}
    policy = Policy(max_runs=1, budget=Budget(40.0, 1e-5))
    given: dict[str, Any] = {"ledgers": ledgers, "policies": dict.fromkeys(SITES, policy)}
    privacy = Privacy(40.0, 1e-5, trust=trust)
    pca = FederatedPCA(1, privacy=privacy, transcript=path)
    interrupt(pca, 5, **given)
    found = pca.fit_sites(SITES, **given).components_
    for ledger in ledgers.values():
        assert ledger.totals("data").epsilon == pytest.approx(40.0, rel=1e-6)
    # The result is there again from the file alone, though no ledger would pay for another run.
    forget_sites()
    with pytest.warns(UserWarning, match="no site was asked"):
        np.testing.assert_array_equal(pca.fit_sites(SITES, **given).components_, found)
    pca = FederatedPCA(1, privacy=privacy)
    with pytest.raises(SiteRefused, match="'budget'"):
        pca.fit_sites(SITES, ledgers=ledgers)


def test_a_published_mechanism_draws_no_second_noise(path: Path) -> None:
    pca = FederatedPCA(1, privacy=DPdisPCA(1.0, 1e-5, clip=9.0), transcript=path)
    first = pca.fit_sites(SITES).components_
    with pytest.warns(UserWarning, match="no site was asked"):
        np.testing.assert_array_equal(pca.fit_sites(SITES).components_, first)


@pytest.mark.parametrize(
    ("parameters", "lost"),
    [
        ({"secure": True, "method": "krylov"}, "the secrets of their masks"),
        ({"privacy": Privacy(1.0, 1e-5)}, "the secrets of their masks"),
        ({"privacy": Privacy(4.0, 1e-5, trust="local")}, "what they had paid for"),
    ],
)
def test_masked_and_private_runs_are_refused_where_their_sites_are_gone(
    parameters: dict[str, Any], lost: str, path: Path
) -> None:
    pca = FederatedPCA(1, transcript=path, **parameters)
    interrupt(pca, 5)
    forget_sites()
    message = f"^The sites of the interrupted run are gone, and with them {lost}: .* Delete "
    with pytest.raises(PrivacyError, match=message):
        pca.fit_sites(SITES)


def test_noise_of_the_coordinator_cannot_be_replayed(path: Path) -> None:
    pca = FederatedPCA(1, privacy=Privacy(1.0, 1e-5, trust="central"), transcript=path)
    with pytest.raises(PrivacyError, match=r"^transcript cannot be combined with privacy that has"):
        pca.fit_sites(SITES)
    assert not path.exists()


@pytest.mark.parametrize("are_gone", [False, True], ids=["same process", "new process"])
def test_other_rows_are_noticed(are_gone: bool, path: Path) -> None:
    pca = FederatedPCA(3, method="krylov", transcript=path)
    interrupt(pca, 2)
    if are_gone:
        forget_sites()
    changed = SITES | {"b": SITES["b"] + 1e-3}
    with pytest.raises(ProtocolError, match=r"^The sites answer round 0 differently from"):
        pca.fit_sites(changed)
    pca.fit_sites(SITES)
    assert pca.method_ == "krylov"


def test_another_policy_means_other_sites(path: Path) -> None:
    strict = dict.fromkeys(SITES, Policy(max_rank_fraction=0.5))
    pca = FederatedPCA(3, method="krylov", random_state=0, transcript=path)
    with pytest.raises(SiteRefused, match="'leakage'"):
        pca.fit_sites(SITES, policies=strict)
    with pytest.raises(SiteRefused, match="'leakage'"):
        pca.fit_sites(SITES, policies=strict)
    whole = FederatedPCA(3, method="krylov", random_state=0).fit_sites(SITES)
    np.testing.assert_array_equal(pca.fit_sites(SITES).components_, whole.components_)


@pytest.mark.parametrize(
    "changed",
    [{"n_components": 2}, {"tol": 1e-6}, {"random_state": 1}, {"transport": Local(wire="float32")}],
    ids=str,
)
def test_another_study_is_refused(changed: dict[str, Any], path: Path) -> None:
    pca = FederatedPCA(3, random_state=0, transcript=path).fit_sites(SITES)
    before = path.read_bytes()
    message = "^transcript='.*' is the transcript of a run with other settings, sites or features"
    with pytest.raises(InputError, match=message):
        pca.set_params(**changed).fit_sites(SITES)
    with pytest.raises(InputError, match=message):
        FederatedPCA(3, random_state=0, transcript=path).fit_sites({"a": X, "b": X})
    with pytest.raises(InputError, match=message):
        FederatedPCA(3, random_state=0, transcript=path).fit_sites(
            {name: table[:, :9] for name, table in SITES.items()}
        )
    assert path.read_bytes() == before


def test_a_transcript_that_is_not_the_estimator_s_is_refused(path: Path) -> None:
    Transcript(path).close()
    with pytest.raises(InputError, match="is the transcript of a run with other settings"):
        FederatedPCA(1, transcript=path).fit_sites(SITES)


@pytest.mark.parametrize("transport", ["local", "processes"])
def test_a_path_that_cannot_be_written_is_refused(transport: str, tmp_path: Path) -> None:
    pca = FederatedPCA(1, transcript=tmp_path / "no" / "file", transport=transport)
    with pytest.raises(InputError, match=r"^transcript='.*' cannot be written: No such file"):
        pca.fit_sites({"a": X})
    with pytest.raises(InputError, match=r"^transcript has type int and must be a path or None"):
        FederatedPCA(1, transcript=3).fit_sites(SITES)  # type: ignore[arg-type]


def test_only_the_last_interrupted_run_keeps_its_sites(path: Path) -> None:
    one, other = (
        FederatedPCA(2, method="krylov", secure=True, transcript=f"{path}{i}") for i in range(2)
    )
    interrupt(one, 5)
    interrupt(other, 5)
    other.fit_sites(SITES)
    with pytest.raises(PrivacyError, match="are gone"):
        one.fit_sites(SITES)
    assert not resumable_run._paused


def test_children_wait_for_a_run_that_is_resumed(path: Path) -> None:
    given: dict[str, Any] = {"method": "krylov", "random_state": 0, "transport": "processes"}
    whole = FederatedPCA(2, method="krylov", secure=True, random_state=0).fit_sites(SITES)
    pca = FederatedPCA(2, secure=True, transcript=path, **given)
    interrupt(pca, 7)
    assert_same(pca.fit_sites(SITES), whole)


def test_a_program_that_was_killed_resumes_in_another(path: Path, tmp_path: Path) -> None:
    table = tmp_path / "rows.npy"
    np.save(table, X)
    script = (
        "import os, sys, numpy as np\n"
        "from eigenfed import FederatedPCA\n"
        "X = np.load(sys.argv[1])\n"
        "sites = {'a': X[:100], 'b': X[100:180], 'c': X[180:]}\n"
        "pca = FederatedPCA(3, method='krylov', random_state=0, transcript=sys.argv[2])\n"
        "pca.fit_sites(sites, callback=lambda record: record.round == 2 and os._exit(9))\n"
    )
    done = subprocess.run([sys.executable, "-c", script, table, path], check=False)
    assert done.returncode == 9
    whole = FederatedPCA(3, method="krylov", random_state=0).fit_sites(SITES)
    pca = FederatedPCA(3, method="krylov", random_state=0, transcript=path)
    assert_same(pca.fit_sites(SITES), whole)


def test_a_run_cut_off_before_its_account_reveals_its_result_and_claims_nothing(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Transcript, account: object) -> None:
        raise OSError("disk full")

    pca = FederatedPCA(2, secure=True, random_state=0, transcript=path)
    with monkeypatch.context() as patch:
        patch.setattr(Transcript, "finish", fail)
        with pytest.raises(OSError, match="disk full"):
            pca.fit_sites(SITES)
    with pytest.warns(UserWarning, match="no site was asked"):
        pca.fit_sites(SITES)
    whole = FederatedPCA(2, secure=True, random_state=0).fit_sites(SITES)
    np.testing.assert_array_equal(pca.components_, whole.components_)
    assert pca.rounds_ == ()
    assert tuple(pca.leakage_) == (1.0, 1.0)


def test_sparse_rows_weights_and_gaps_are_compared(path: Path) -> None:
    from scipy import sparse

    gaps: Array = SITES["a"].copy()
    gaps[3, 4] = np.nan
    tables: dict[str, Any] = {"a": gaps, "b": sparse.csr_array(SITES["b"]), "c": SITES["c"]}
    weights = {"c": np.arange(1.0, 61.0)}
    pca = FederatedPCA(2, method="krylov", secure=True, random_state=0, transcript=path)
    interrupt(pca, 6, tables, sample_weight=weights)
    pca.fit_sites(tables, sample_weight=weights)
    path.unlink()
    interrupt(pca, 6, tables, sample_weight=weights)
    with pytest.raises(PrivacyError, match="are gone"):
        pca.fit_sites(tables, sample_weight={"c": np.arange(2.0, 62.0)})
