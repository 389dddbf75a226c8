"""The log of a run: bytes as they crossed, and every reply that left a site."""

import copy
import json
from pathlib import Path

import numpy as np
import pytest

from eigenfed import FederatedPCA, Privacy
from eigenfed.errors import DataError, SiteRefused
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.exact.power import Power
from eigenfed.report.html import write_pages
from eigenfed.study.results.result_folder import write_result
from eigenfed.study.results.run_log import read_log
from eigenfed.transport.rounds import RoundRecord

X = np.random.default_rng(0).standard_normal((90, 5)) * [5, 4, 3, 2, 1]
SITES = {name: X[i::3] + i for i, name in enumerate("abc")}


@pytest.mark.parametrize("settings", [{}, {"method": "krylov"}, {"secure": True}])
def test_bytes_by_ask_and_site_add_up_to_those_of_the_run(settings: dict[str, object]) -> None:
    pca = FederatedPCA(2, random_state=0, **settings).fit_sites(SITES)  # type: ignore[arg-type]
    assert [asked.round for asked in pca.rounds_] == list(range(pca.n_rounds_))
    assert sum(asked.bytes_up for asked in pca.rounds_) == pca.bytes_up_
    assert sum(asked.bytes_down for asked in pca.rounds_) == pca.bytes_down_


def test_what_left_each_site_is_what_came_from_it() -> None:
    pca = FederatedPCA(2, method="krylov").fit_sites(SITES, by_site=True)
    assert pca.egress_.keys() == SITES.keys()
    for site, left in pca.egress_.items():
        assert [entry.sent_bytes for entry in left] == [
            asked.received[site] for asked in pca.rounds_
        ]


def test_angles_fall_from_request_to_request() -> None:
    rows = np.random.default_rng(1).standard_normal((90, 60)) * 0.9 ** np.arange(60)
    pca = FederatedPCA(2, method="krylov", random_state=0).fit_sites({"a": rows})
    known = [asked.angle for asked in pca.rounds_ if asked.angle is not None]
    assert pca.certificate_ is not None
    assert len(known) >= 2
    # Nothing is known before the first block, and no angle while residuals exceed the gaps.
    assert [asked.angle for asked in pca.rounds_[-len(known) :]] == known
    assert np.all(np.diff([*known[-3:], np.degrees(pca.certificate_.angles.max())]) < 0.0)


@pytest.mark.parametrize("method", ["subspace", Power(local_steps=1)])
def test_other_iterations_tell_how_far_they_are(method: str | Power) -> None:
    rows = np.random.default_rng(1).standard_normal((90, 30)) * 0.8 ** np.arange(30)
    pca = FederatedPCA(1, method=method, random_state=0).fit_sites({"a": rows})
    known = [asked.angle for asked in pca.rounds_ if asked.angle is not None]
    assert known[-1] < known[0]


def test_each_ask_is_told_as_it_happens() -> None:
    heard: list[RoundRecord] = []
    pca = FederatedPCA(2, method="krylov").fit_sites(SITES, callback=heard.append)
    assert tuple(heard) == pca.rounds_


def test_a_refused_ask_is_told_too() -> None:
    heard: list[RoundRecord] = []
    with pytest.raises(SiteRefused, match="leakage"):
        FederatedPCA(2).fit_sites(
            SITES, policies={"a": Policy(max_rank_fraction=0.1)}, callback=heard.append
        )
    assert [asked.op for asked in heard] == ["moments", "scatter"]


def test_the_log_is_read_as_it_was_written(tmp_path: Path) -> None:
    pca = FederatedPCA(2).fit_sites(SITES)
    write_result(tmp_path / "out", pca, sites=SITES)
    events = read_log(tmp_path / "out")
    asks = [event for event in events if event["event"] == "request"]
    left = [event for event in events if event["event"] == "left"]
    assert [event["op"] for event in asks] == ["moments", "scatter"]
    assert sum(sum(event["bytes_up"].values()) for event in asks) == pca.bytes_up_
    assert sum(event["bytes"] for event in left) == pca.bytes_up_
    assert {event["reveals"] for event in left} == {"means", "scatter"}
    assert left[-1]["shapes"] == {"triangle": [15]}


@pytest.mark.parametrize("text", ["", "{}\n", "no json\n", json.dumps({"event": "start"}) + "\n"])
def test_a_log_that_is_not_whole_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.jsonl").write_text(text)
    with pytest.raises(DataError, match=r"run\.jsonl is missing or incomplete"):
        read_log(tmp_path)
    with pytest.raises(DataError, match="is missing"):
        read_log(tmp_path / "nowhere")


@pytest.mark.parametrize("privacy", [None, Privacy(8.0, 1e-6, trust="central")])
def test_no_digest_of_a_reply_stands_where_others_read(
    tmp_path: Path, privacy: Privacy | None
) -> None:
    """It would confirm a guess at the one row that is not known, also of sums without noise."""
    rows = {name: np.vstack([X] * 9) for name in "abc"}
    # A private run brings ledgers of its own.
    ledgers = {name: Ledger(None) for name in rows if privacy is None}
    pca = FederatedPCA(2, privacy=privacy).fit_sites(rows, ledgers=ledgers)
    write_result(tmp_path / "out", pca, sites="abc")
    write_pages(tmp_path / "out")
    texts = [path.read_text() for path in (tmp_path / "out").rglob("*.[hj][ts]*")]
    left = [entry.digest for site in pca.egress_.values() for entry in site]
    assert len(texts) > 3
    assert left
    assert all(left)
    assert not any(digest in text for digest in left for text in texts)


def test_a_copy_of_an_estimator_has_no_digest_either() -> None:
    pca = FederatedPCA(2).fit_sites(SITES, ledgers={name: Ledger(None) for name in SITES})
    kept = copy.copy(pca)
    assert all(entry.digest == "" for left in kept.egress_.values() for entry in left)
    assert [entry.op for entry in kept.egress_["a"]] == ["moments", "scatter"]
    assert all(entry.digest for left in pca.egress_.values() for entry in left)
