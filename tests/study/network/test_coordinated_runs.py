"""Studies between a coordinator and sites that keep nothing in common but files and messages."""

import errno
import os
import threading
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.messages import Message
from eigenfed.study.network.approvals import approve_study, withdraw_study
from eigenfed.study.network.results_sent import read_sent_files
from eigenfed.study.network.site_service import forget_runs
from eigenfed.study.results.result_folder import read_result, write_result
from eigenfed.transport.bundles import COORDINATOR, Bundle, name_site, sign_bundle
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.transcript import Transcript
from network_parties import NAMES
from network_programs import wait_until
from network_runs import PRIVATE, Network

Answer = Callable[[bytes], bytes]

SETTINGS = {
    "covariance": {"method": "covariance"},
    "krylov, secure": {"method": "krylov", "study": "secure = true\n"},
    "merge": {"method": "merge", "study": "scale = true\n"},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_a_run_between_machines_gives_the_bits_of_a_run_in_one_process(
    settings: dict[str, Any], tmp_path: Path
) -> None:
    network = Network(tmp_path, **settings)
    found, together = network.run().estimator, network.fit_together()
    assert found.components_.tobytes() == together.components_.tobytes()
    assert np.array_equal(found.explained_variance_, together.explained_variance_)
    assert found.n_samples_ == together.n_samples_
    assert (found.n_rounds_, found.bytes_up_) == (together.n_rounds_, together.bytes_up_)
    kinds = {site: [left.op for left in sent] for site, sent in together.egress_.items()}
    assert {s: [left.op for left in sent] for s, sent in found.egress_.items()} == kinds
    assert found.engine_ == "files"


def test_the_result_reaches_the_sites_with_their_own_scores_and_the_run_is_forgotten(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path / "home", study="secure = true\n")
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    out = tmp_path / "result"
    write_result(out, run.estimator, sites=run.sites, study="heart")
    assert not (out / "scores").exists()
    secret = network.sites["north"].ledger.recall("data", run.run)
    assert secret is not None
    assert coordinator.finish(run, read_sent_files(out)) == {}
    for name, site in network.sites.items():
        (folder,) = site.results
        found = read_result(folder)
        scores = np.load(folder / "scores" / f"{name}.npy")
        own = run.estimator.transform_aligned(network.rows[name])
        assert np.allclose(scores, own, atol=1e-6)
        assert [path.name for path in (folder / "scores").glob("*.npy")] == [f"{name}.npy"]
        assert found.facts["sites"] == sorted(NAMES)
        for table in ("loadings.csv", "variances.csv"):
            assert (folder / table).read_bytes() == (out / table).read_bytes()
        assert site.ledger.recall("data", run.run) is None
        path = network.parties.site(name).ledger
        assert path is not None
        assert secret.secret not in path.read_bytes()
    assert coordinator.finish(run, read_sent_files(out)) == {}, "it may be told twice"


class Killed(Exception):
    """The coordinator's process has ended."""


def kill_at(round_: int) -> Any:
    def end(record: RoundRecord) -> None:
        if record.round == round_:
            raise Killed

    return end


def test_a_coordinator_that_ends_at_any_round_goes_on_to_the_same_bits(tmp_path: Path) -> None:
    calm = Network(tmp_path / "calm", method="krylov", study="secure = true\n")
    expected = calm.run().estimator
    network = Network(tmp_path / "rough", method="krylov", study="secure = true\n")
    together = network.fit_together()
    for round_ in range(expected.n_rounds_ - 1):
        with pytest.raises(Killed):
            network.run(callback=kill_at(round_))
    run = network.run()
    assert run.resumed
    assert run.estimator.components_.tobytes() == together.components_.tobytes()
    assert run.estimator.n_rounds_ == expected.n_rounds_
    assert run.estimator.bytes_up_ == expected.bytes_up_
    for name in NAMES:
        kinds = [[e.kind for e in n.sites[name].ledger.events] for n in (calm, network)]
        assert kinds[0] == kinds[1]


def test_a_coordinator_that_ends_before_its_result_is_written_asks_nobody_again(
    tmp_path: Path,
) -> None:
    network = Network(tmp_path / "home", study=PRIVATE)
    first = network.run()
    spent = network.sites["north"].ledger.totals("data").spends
    coordinator = network.coordinator()
    again = coordinator.run(NAMES)
    assert (again.run, again.resumed) == (first.run, True)
    assert again.estimator.components_.tobytes() == first.estimator.components_.tobytes()
    assert network.sites["north"].ledger.totals("data").spends == spent
    runs = tmp_path / "home" / "coordinator" / "network" / "runs"
    assert list(runs.glob("*.transcript"))
    coordinator.finish(again, {})
    assert not list(runs.glob("*.transcript"))


def test_a_private_run_that_is_interrupted_is_paid_for_once(tmp_path: Path) -> None:
    calm = Network(tmp_path / "calm", study=PRIVATE)
    rounds = calm.run().estimator.n_rounds_
    network = Network(tmp_path / "rough", study=PRIVATE)
    for round_ in (2, rounds // 2, rounds - 2):
        with pytest.raises(Killed):
            network.run(callback=kill_at(round_))
        for site in network.sites.values():
            site.restart()
    assert np.isfinite(network.run().estimator.components_).all()
    totals = [n.sites["north"].ledger.totals("data") for n in (calm, network)]
    assert totals[0].mu == totals[1].mu
    assert totals[0].spends == totals[1].spends


def test_a_run_goes_on_without_a_site_that_is_lost_if_the_quorum_is_left(tmp_path: Path) -> None:
    network = Network(tmp_path, method="krylov", study="quorum = 2\n")
    asked = []

    def lose(name: str, answer: Answer, data: bytes) -> bytes:
        asked.append(name)
        if name == "south" and asked.count(name) > 2:
            raise ConnectionError
        return answer(data)

    network.carry = lose
    run = network.run()
    assert run.sites == ("island", "north")
    together = network.fit_together(("north", "island"))
    assert run.estimator.components_.tobytes() == together.components_.tobytes()


def test_too_few_sites_are_named_and_the_run_can_be_resumed(tmp_path: Path) -> None:
    network = Network(tmp_path)
    with pytest.raises(InputError, match=r"requires quorum = 3 sites, and 1 can be reached: north"):
        network.run(("north",))

    def lose(name: str, answer: Answer, data: bytes) -> bytes:
        if name == "south":
            raise ConnectionError
        return answer(data)

    network.carry = lose
    with pytest.raises(SiteLost, match="south"):
        network.run()
    network.carry = lambda name, answer, data: answer(data)
    run = network.run()
    assert run.resumed
    assert run.estimator.components_.tobytes() == network.fit_together().components_.tobytes()


def test_an_absent_site_is_left_out_from_the_start(tmp_path: Path) -> None:
    network = Network(tmp_path, study="quorum = 2\n")
    run = network.run(("north", "south"))
    assert run.sites == ("north", "south")
    assert run.estimator.n_samples_ == 80


@pytest.mark.parametrize("lie", ["another site's name", "another key", "another request"])
def test_an_answer_that_is_not_by_the_site_to_this_request_is_refused(
    lie: str, tmp_path: Path
) -> None:
    network = Network(tmp_path)
    kept: dict[str, bytes] = {}

    def forge(name: str, answer: Answer, data: bytes) -> bytes:
        reply: bytes = answer(data)
        if name != "south":
            return reply
        if lie == "another site's name":
            return network.sites["north"].answer(data)
        if lie == "another request":
            return kept.setdefault("first", reply)
        bundle = Bundle.from_bytes(reply)
        return sign_bundle(
            bundle.message,
            Identity.generate(),
            sender=name_site("south"),
            recipient=COORDINATOR,
            answers=bundle.manifest.answers,
        )

    network.carry = forge
    reasons = {
        "another site's name": "is not from it",
        "another key": "is not signed by its key in the roster",
        "another request": "answers another request",
    }
    with pytest.raises(ProtocolError, match=f"'south' {reasons[lie]}"):
        network.run()


def test_a_site_answers_nobody_but_its_coordinator(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network(tmp_path)
    seen: list[bytes] = []

    def listen(name: str, answer: Answer, data: bytes) -> bytes:
        seen.append(data)
        return answer(data)

    network.carry = listen
    network.run()
    message = Bundle.from_bytes(seen[-1]).message
    stranger = Identity.generate()
    site = network.sites["north"]
    caplog.clear()
    forged = sign_bundle(message, stranger, sender=COORDINATOR, recipient=name_site("north"))
    to_others = next(d for d in seen if Bundle.from_bytes(d).manifest.recipient != "site north")
    for data, code in ((forged, "unsigned"), (to_others, "unsigned"), (b"noise", "malformed")):
        refused = Message.from_bytes(Bundle.from_bytes(site.answer(data)).message, "refusal")
        assert refused.label == code
    told = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert told == [
        "a message was refused: it is not signed by the coordinator for this site",
        "a message was refused: it is not signed by the coordinator for this site",
        "a message was refused: it is damaged, or of another release",
    ]


def test_a_study_that_a_site_has_not_approved_or_withdrew_is_not_answered(tmp_path: Path) -> None:
    network = Network(tmp_path)
    digest = network.parties.study.study.digest
    withdraw_study(network.parties.site("south"), digest)
    with pytest.raises(SiteRefused) as refused:
        network.run()
    assert (refused.value.site, refused.value.code) == ("south", "unapproved")


def test_a_site_needs_a_ledger_and_its_own_place_in_the_roster(tmp_path: Path) -> None:
    network = Network(tmp_path)
    file = tmp_path / "north" / "site.toml"
    text = file.read_text()
    file.write_text(text.replace('ledger = "north.ledger"\n', ""))
    with pytest.raises(InputError, match="ledger is required between machines"):
        network.sites["north"].restart()
    file.write_text(text.replace('name = "north"', 'name = "south"'))
    with pytest.raises(InputError, match="does not have 'south' with the key of this site"):
        network.sites["north"].restart()


def test_a_result_with_a_foreign_file_is_not_written(tmp_path: Path) -> None:
    network = Network(tmp_path)
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    missed = coordinator.finish(run, {"../../escape": b"x"})
    assert set(missed) == set(NAMES)
    assert not list(tmp_path.rglob("escape"))


@pytest.mark.parametrize("study", ["secure = true\n", PRIVATE], ids=["secure", "private"])
def test_a_full_disk_at_a_site_stops_the_run_and_not_for_good(study: str, tmp_path: Path) -> None:
    network = Network(tmp_path, study=study)
    site, counted = network.sites["south"], 0

    def limit_pages(most: int) -> None:
        connection = site.service._ledger._file._connection
        connection.execute(f"PRAGMA max_page_count = {most}")

    def fill(name: str, answer: Answer, data: bytes) -> bytes:
        nonlocal counted
        counted += name == "south"
        if counted == 2:
            limit_pages(1)
        return answer(data)

    network.carry = fill
    with pytest.raises(SiteRefused) as refused:
        network.run()
    assert refused.value.code == "ledger"
    network.carry = lambda name, answer, data: answer(data)
    limit_pages(1 << 30)
    run = network.run()
    assert run.resumed
    network.check_ledgers()
    if not study.startswith("["):
        assert run.estimator.components_.tobytes() == network.fit_together().components_.tobytes()


def test_a_full_disk_at_the_coordinator_stops_the_run_and_not_for_good(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(tmp_path, method="krylov")
    keep, kept = Transcript.keep, []

    def fill(record: Transcript, *arguments: Any) -> None:
        kept.append(1)
        if len(kept) == 2:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        keep(record, *arguments)

    monkeypatch.setattr(Transcript, "keep", fill)
    with pytest.raises(OSError, match="No space left"):
        network.run()
    run = network.run()
    assert run.resumed
    assert run.estimator.components_.tobytes() == network.fit_together().components_.tobytes()


def test_a_clock_that_jumps_changes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(tmp_path, method="krylov", study="secure = true\ndeadline_s = 600.0\n")
    years = iter([2050, 1999] * 100)
    monkeypatch.setattr(
        "eigenfed.privacy.ledger.event_log.EventLog._clock",
        property(lambda log: lambda: datetime(next(years), 1, 1, tzinfo=UTC), lambda log, _: None),
        raising=False,
    )
    for site in network.sites.values():
        site.restart()
    found = network.run().estimator
    assert found.components_.tobytes() == network.fit_together().components_.tobytes()
    network.check_ledgers()


def test_a_slow_site_is_waited_for_until_the_deadline_and_may_return(tmp_path: Path) -> None:
    network = Network(tmp_path, method="krylov", study="deadline_s = 2.0\n")
    held, released = threading.Event(), threading.Event()

    def hold(name: str, answer: Answer, data: bytes) -> bytes:
        if name == "south" and Bundle.from_bytes(data).manifest.operation == "product":
            held.set()
            released.wait(30.0)
        return answer(data)

    network.carry = hold
    with pytest.raises(SiteLost, match="south"):
        network.run()
    assert held.is_set()
    released.set()
    run = network.run()
    assert run.resumed
    assert run.estimator.components_.tobytes() == network.fit_together().components_.tobytes()


def test_the_name_of_a_run_leads_to_no_other_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    network = Network(tmp_path / "home")
    precious = tmp_path / "home" / "north" / "k"
    precious.mkdir()
    coordinator = network.coordinator()
    begin = coordinator._begin

    def begin_with_a_path(sites: tuple[str, ...]) -> Transcript:
        with begin(sites) as record:
            return Transcript(None, run="/../../k", about=record.about)

    monkeypatch.setattr(coordinator, "_begin", begin_with_a_path)
    monkeypatch.setattr(coordinator, "_runs", tmp_path / "a" / "b" / "c")
    (tmp_path / "a" / "b" / "c").mkdir(parents=True)
    run = coordinator.run(NAMES)
    write_result(tmp_path / "result", run.estimator, sites=run.sites, study="heart")
    assert coordinator.finish(run, read_sent_files(tmp_path / "result")) == {}
    assert precious.is_dir()
    assert list(precious.iterdir()) == []
    (folder,) = network.sites["north"].results
    assert folder.parent == tmp_path / "home" / "north" / "results"


def test_an_abandoned_run_is_forgotten_by_the_sites(tmp_path: Path) -> None:
    network = Network(tmp_path)
    with pytest.raises(Killed):
        network.run(callback=kill_at(0))
    assert all(site.ledger.recall_names("data") for site in network.sites.values())
    network.coordinator().abandon_begun()
    wait_until(
        lambda: not any(site.ledger.recall_names("data") for site in network.sites.values()),
        "the end of the run at all sites",
    )
    assert not network.run().resumed


def replay_all(network: Network, site: str, earlier: list[bytes]) -> set[str]:
    """Send a site what it was sent before, and return what came back: kinds and codes."""
    replies = [Bundle.from_bytes(network.sites[site].answer(data)).message for data in earlier]
    found = [Message.from_bytes(reply, "reply", "refusal") for reply in replies]
    return {message.label if message.kind == "refusal" else "reply" for message in found}


@pytest.mark.parametrize("study", ["secure = true\n", PRIVATE], ids=["secure", "private"])
def test_a_site_that_was_away_forgets_an_abandoned_run_when_a_newer_one_is_opened(
    study: str, tmp_path: Path
) -> None:
    network = Network(tmp_path, study=study)
    sent: list[bytes] = []

    def listen(name: str, answer: Answer, data: bytes) -> bytes:
        if name == "south":
            sent.append(data)
        return answer(data)

    network.carry = listen
    with pytest.raises(Killed):
        network.run(callback=kill_at(3))
    site = network.sites["south"]
    (first,) = site.ledger.recall_names("data")
    network.carry = lambda name, answer, data: b"" if name == "south" else answer(data)
    network.coordinator().abandon_begun()
    site.restart()
    assert site.ledger.recall_names("data") == (first,), "it was away"
    network.carry = lambda name, answer, data: answer(data)
    second = network.run().run
    assert site.ledger.recall_names("data") == (second,)
    before = [event.kind for event in site.ledger.events]
    assert replay_all(network, "south", sent) <= {"restarted", "closed", "forgotten"}
    site.restart()
    assert replay_all(network, "south", sent) <= {"restarted", "closed", "forgotten"}
    after = [event.kind for event in site.ledger.events]
    assert [kind for kind in after if kind.value != "refused"] == before


def test_a_run_of_which_nothing_is_heard_is_forgotten_after_days(tmp_path: Path) -> None:
    network = Network(tmp_path)
    with pytest.raises(Killed):
        network.run(callback=kill_at(0))
    site = network.sites["south"]
    assert site.service.end_idle() == 0
    later = datetime.now(UTC) + timedelta(days=31)
    site.service.ledger._clock = lambda: later
    assert site.service.end_idle() == 1
    assert site.ledger.recall_names("data") == ()
    with pytest.raises(SiteRefused) as refused:
        network.run()
    assert (refused.value.site, refused.value.code) == ("south", "restarted")
    network.coordinator().abandon_begun()
    assert not network.run().resumed


def test_withdrawing_a_study_ends_its_open_runs(tmp_path: Path) -> None:
    network = Network(tmp_path)
    with pytest.raises(Killed):
        network.run(callback=kill_at(0))
    site = network.parties.site("north")
    assert forget_runs(site, "0" * 64) == 0
    assert forget_runs(site, network.parties.study.study.digest) == 1
    assert network.sites["north"].ledger.recall_names("data") == ()


def test_without_restarts_a_missing_reply_ends_no_run(tmp_path: Path) -> None:
    network = Network(tmp_path, study="quorum = 2\n")

    def lose(name: str, answer: Answer, data: bytes) -> bytes:
        if name == "south":
            raise ConnectionError
        return answer(data)

    network.carry = lose
    with pytest.raises(SiteLost, match="south"):
        network.coordinator().run(NAMES, restarts=False)
    network.carry = lambda name, answer, data: answer(data)
    run = network.run()
    assert run.resumed
    assert run.sites == tuple(sorted(NAMES))


def test_a_study_whose_rows_cannot_be_opened_is_refused_and_others_are_not(tmp_path: Path) -> None:
    network = Network(tmp_path)
    service = network.sites["south"].service
    assert service.open_all() == {}
    (tmp_path / "south" / "rows.csv").unlink()
    network.sites["south"].restart()
    assert "rows.csv" in network.sites["south"].service.open_all()["heart"]
    with pytest.raises(SiteRefused) as refused:
        network.run()
    assert (refused.value.site, refused.value.code) == ("south", "unready")


@pytest.mark.parametrize("fault", ["changed", "no study", "open to others"])
def test_a_damaged_approval_is_refused_and_the_site_stays_up(fault: str, tmp_path: Path) -> None:
    network = Network(tmp_path)
    (copy,) = (tmp_path / "north" / "network" / "approved").glob("*.toml")
    text = copy.read_text()
    if fault == "open to others":
        copy.parent.chmod(0o777)
    else:
        copy.write_text("[" if fault == "no study" else text.replace("= 2", "= 3"))
    with pytest.raises(SiteRefused) as refused:
        network.run()
    assert (refused.value.site, refused.value.code) == ("north", "unready")
    copy.parent.chmod(0o700)
    copy.write_text(text)
    assert network.run().resumed


def test_a_damaged_ledger_is_refused_also_at_the_end_of_a_run(tmp_path: Path) -> None:
    network = Network(tmp_path)
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    ledger = tmp_path / "north" / "north.ledger"
    ledger.write_bytes(b"x" * ledger.stat().st_size)
    assert list(coordinator.finish(run, {})) == ["north"]


def test_two_studies_on_the_same_rows_share_one_leakage_meter(tmp_path: Path) -> None:
    network = Network(tmp_path, method="krylov", study="certify = false\n")
    first = network.run()
    file = network.parties.study.path
    file.write_text(file.read_text().replace("components = 2", "components = 1"))
    for name in NAMES:
        approve_study(network.parties.study, network.parties.site(name))
    network.run()
    for site in network.sites.values():
        one, other = site.service.served
        one.site.reload_meter()
        stored = site.ledger.meter("data")
        assert stored is not None
        assert one.site.meter.rank == other.site.meter.rank == Meter.from_bytes(stored).rank
        assert one.site.meter.rank >= first.estimator.components_.shape[0]


def change_study(network: Network, old: str, new: str) -> None:
    """Let all sites approve another study on the same rows."""
    file = network.parties.study.path
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    network.approve()


FEWER = (
    'features = ["age", "bmi", "hdl", "ldl", "sbp"]',
    'features = ["ldl", "bmi", "sbp", "hdl"]',
)
AS_MANY = ('"sbp"]', '"weight"]')


@pytest.mark.parametrize("change", [FEWER, AS_MANY], ids=["fewer", "as many"])
def test_studies_of_other_features_of_the_same_rows_never_count_for_less(
    change: tuple[str, str], tmp_path: Path
) -> None:
    network = Network(tmp_path, method="krylov", study="certify = false\n")
    for name in NAMES:
        file = tmp_path / name / "rows.csv"
        first, *rows = file.read_text().splitlines()
        more = [f"{row},{place % 7}" for place, row in enumerate(rows)]
        file.write_text("\n".join([f"{first},weight", *more]) + "\n")
        network.sites[name].restart()
    known = [0]
    for old, new in (("seed = 7", "seed = 8"), change, change[::-1], change):
        network.run()
        network.coordinator().abandon_begun()
        stored = network.sites["north"].ledger.meter("data")
        assert stored is not None
        meter = Meter.from_bytes(stored)
        known.append(meter.other_rank + meter.basis.shape[1])
        change_study(network, old, new)
    # The same study again reveals little; another set of features is counted in full.
    assert known[2] >= known[1] >= 2
    assert known[4] >= known[3] + 2 >= known[2] + 4
    assert meter.mixed
    assert meter.variance_fraction == 1.0
    # Whether a limit on the variance holds cannot be told any more: refused without the rows.
    site = tmp_path / "south" / "site.toml"
    site.write_text(
        site.read_text().replace("[policy]\n", "[policy]\nmax_variance_fraction = 0.9\n")
    )
    network.sites["south"].restart()
    with pytest.raises(SiteRefused) as refused:
        network.run()
    assert (refused.value.site, refused.value.code) == ("south", "leakage")
    network.check_ledgers()
