"""What live pages show, as it happens: a run and a site, and never a value of a row."""

import logging
import re
import signal
import threading
import time
import urllib.request
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from command_line import as_csv, eigenfed
from eigenfed.cli import site_run, watching
from eigenfed.cli.output import Console
from eigenfed.cli.watching import LogLines, WatchedRun, WatchedSite, keep_log, watch_run, watch_site
from eigenfed.errors import InputError, SiteLost
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.messages import Message
from eigenfed.report.live_page import LiveView
from eigenfed.study.network.approvals import approve_study
from eigenfed.study.network.roster_file import read_roster
from eigenfed.transport.bundles import COORDINATOR, name_site, sign_bundle
from eigenfed.transport.remote import RoundJournal
from eigenfed.transport.rounds import RoundRecord
from live_views import round_of
from network_parties import NAMES, Parties

CANARY = 777_077_707.125
"""Too long to be met by chance in the digests of pages."""
FEATURES = ("age", "bmi", "hdl")


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    """Three sites that have joined, with rows around the canary."""
    parties = Parties.start(tmp_path)
    rng = np.random.default_rng(0)
    for name in NAMES:
        folder = tmp_path / name
        as_csv(
            folder / "rows.csv", CANARY + rng.standard_normal((30, 3)) * [0.3, 0.2, 0.1], FEATURES
        )
        (folder / "site.toml").write_text(
            f'name = "{name}"\ndata = "rows.csv"\nledger = "{name}.ledger"\n'
            "[policy]\nmin_rows = 5\n"
        )
        Ledger(folder / f"{name}.ledger", create=True).close()
    parties.join()
    for name in NAMES:
        approve_study(parties.study, parties.site(name))
    return parties


class Readers:
    """People who read every page that is served, until its end."""

    def __init__(self) -> None:
        self.urls: list[str] = []
        self.served: list[bytes] = []
        self._threads: list[threading.Thread] = []

    def follow(self, url: str) -> None:
        self.urls.append(url)
        self._threads.append(threading.Thread(target=self._read, args=(url,), daemon=True))
        self._threads[-1].start()

    def _read(self, url: str) -> None:
        state = b""
        while b'"over": true' not in state[:20]:
            for path in ("", "state.json"):
                with urllib.request.urlopen(url + path, timeout=30) as reply:
                    state = reply.read()
                    self.served.append(str(reply.headers).encode() + state)
            time.sleep(0.05)

    def join(self) -> bytes:
        for thread in self._threads:
            thread.join(30)
            assert not thread.is_alive()
        return b"\n".join(self.served)


def test_a_study_is_watched_at_both_ends_and_no_value_is_served(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    stops: list[Callable[..., None]] = []
    readers = Readers()
    monkeypatch.setattr(signal, "signal", lambda _, stop: stops.append(stop) if stop else None)
    monkeypatch.setattr(watching, "_print_address", readers.follow)
    ports = {"north": 0, "south": None, "island": None}
    sites = [
        threading.Thread(
            target=site_run.serve_until_stopped,
            args=(Console(quiet=True), parties.home / name / "site.toml", port),
            daemon=True,
        )
        for name, port in ports.items()
    ]
    for thread in sites:
        thread.start()
    out = parties.home / "result"
    try:
        study = parties.home / "coordinator" / "study.toml"
        run = eigenfed("coordinate", study, "-o", out, "--watch")
        assert run.exit_code == 0, run.output
        logging.getLogger("eigenfed.protocol").info("still logged for %s", "north")
    finally:
        for stop in stops:
            stop()
        for thread in sites:
            thread.join(30)
    served = readers.join()
    assert len(readers.urls) == 2
    assert not re.search(rb"77707770|7\.77\d*e\+08", served)
    for found in (b'"phase": "done"', b"What leaves this site", b"secret shares", b"heart"):
        assert found in served
    finals = [body for body in readers.served if b'"over": true' in body]
    assert len(finals) == 2
    journal = RoundJournal(next((study.parent / "network" / "runs").glob("*.jsonl")))
    assert b'"n_rounds": %d' % len(journal.rounds) in b"".join(finals)
    assert b"still logged for north" in b"".join(finals)
    assert "--watch" not in (out / "result.json").read_text()
    ledger = Ledger(parties.home / "north" / "north.ledger", readonly=True)
    assert ledger.totals("data").text.encode() in b"".join(finals)


def bundle(site: str, round_: int, *, run: str = "r1", kind: str = "request") -> bytes:
    message = Message(kind, run, round_, "product", {}).to_bytes()
    return sign_bundle(message, Identity.generate(), sender=COORDINATOR, recipient=name_site(site))


class FakeCarrier:
    """Carries nothing: it notes what it is asked, and looks at the page meanwhile."""

    def __init__(self) -> None:
        self.here = frozenset(NAMES[:2])
        self.during: Callable[[], object] = lambda: None
        self.reached = True

    def connect(self, site: str) -> "FakeCarrier":
        return self

    def present(self) -> frozenset[str]:
        return self.here

    def answer(self, data: bytes) -> bytes:
        self.during()
        if not self.reached:
            raise ConnectionError
        return data


def states(view: LiveView) -> dict[str, str]:
    return {site["name"]: site["state"] for site in view.facts["sites"]}


@pytest.fixture
def nvflare(tmp_path: Path) -> Parties:
    return Parties.start(tmp_path, engine='engine = "nvflare"\n[network]\nhost = "localhost"\n')


def test_a_run_is_followed_from_its_sites_to_its_result(nvflare: Parties, tmp_path: Path) -> None:
    carrier, seen = FakeCarrier(), list[LiveView]()
    watched = WatchedRun(nvflare.study, tmp_path, LogLines())
    assert watched.view().facts["phase"] == "starting"
    connect = watched.connect(carrier)
    assert watched.view().facts["phase"] == "waiting"
    assert states(watched.view()) == {"north": "in", "south": "in", "island": "missing"}
    carrier.during = lambda: seen.append(watched.view())
    connect("north").answer(bundle("north", 3))
    assert seen[0].facts["words"] == "Round 4, product: waiting for north."
    assert states(seen[0])["north"] == "asked"
    assert states(watched.view())["north"] == "in"
    told: list[RoundRecord] = []
    add = watched.follow(told.append)
    for number in (3, 4, 5, 6):
        add(round_of(number, lost=("south",) if number == 5 else ()))
    assert [record.round for record in told] == [3, 4, 5, 6]
    assert watched.view().facts["bytes_up"] == sum(record.bytes_up for record in told)
    assert watched.view().facts["left_s"] is not None
    assert watched.view().facts["angle"] == told[-1].angle
    add(round_of(7, lost=("south",)))
    assert states(watched.view())["south"] == "lost"
    assert [site["missed"] for site in watched.view().facts["sites"]] == [0, 2, 0]
    connect("north").answer(bundle("north", 8, kind="close"))
    assert watched.view().facts["words"] == "Sending the result."
    watched.finish(Path("result"))
    carrier.here = frozenset()
    watched.end("stopped", "too late")
    last = watched.view()
    assert last.is_over
    assert (last.facts["phase"], last.facts["words"]) == ("done", "The result is in result.")
    assert states(last)["north"] == "in"


def test_a_resumed_run_has_its_earlier_rounds_and_a_new_run_has_none(
    nvflare: Parties, tmp_path: Path
) -> None:
    journal = RoundJournal(tmp_path / "r1.jsonl")
    for number in range(4):
        journal.add(round_of(number), {})
    watched = WatchedRun(nvflare.study, tmp_path, LogLines())
    connection = watched.connect(FakeCarrier())("north")
    connection.answer(bundle("north", 4))
    watched.follow(None)(round_of(4))
    assert [record["round"] for record in watched.view().facts["rounds"]] == [0, 1, 2, 3, 4]
    connection.answer(bundle("north", 0, run="r2", kind="open"))
    assert watched.view().facts["rounds"] == []
    assert watched.view().facts["run"] == "r2"


def test_by_files_a_site_is_in_once_it_has_replied(tmp_path: Path) -> None:
    watched = WatchedRun(Parties.start(tmp_path).study, tmp_path, LogLines())
    carrier = FakeCarrier()
    carrier.here = frozenset(NAMES)
    connect = watched.connect(carrier)
    carrier.reached = False
    with pytest.raises(ConnectionError):
        connect("south").answer(bundle("south", 0))
    carrier.reached = True
    connect("north").answer(bundle("north", 0))
    assert states(watched.view()) == {"north": "in", "south": "missing", "island": "missing"}


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (SiteLost(("island",), "product", 3), "island"),
        (KeyboardInterrupt(), "It was interrupted."),
        (ValueError(CANARY), "It failed."),
    ],
)
def test_a_page_says_why_its_run_ended(
    nvflare: Parties, error: BaseException, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail() -> None:
        with watch_run(nvflare.study, nvflare.home, 0) as watched:
            kept.append(watched)
            raise error

    kept: list[WatchedRun] = []
    with pytest.raises(type(error)):
        fail()
    facts = kept[0].view().facts
    assert facts["phase"] == "stopped"
    assert words in facts["words"]
    assert str(CANARY) not in facts["words"]
    assert capsys.readouterr().err.startswith(
        "eigenfed: Live page, for this machine only: http://127.0.0.1:"
    )


def test_a_site_counts_what_it_refuses(parties: Parties) -> None:
    file = parties.site("north")
    roster = read_roster(file.network / "roster.json")
    watched = WatchedSite(file, LogLines())
    assert watched.view().facts["phase"] == "starting"
    with pytest.raises(ConnectionError):
        watched.answer(b"")
    _, service, signed = site_run._open(Console(quiet=True), file)
    service.open_all()
    answering = watched.connect(service, roster, signed)
    room = 65_540 - bundle("north", 0, run="").index(b"\n", 18)
    long = bundle("north", 0, run="r" * room)
    sent = [answering.answer(data) for data in (b"no bundle", bundle("north", 0), long)]
    facts = watched.view().facts
    assert facts["refused"] == {"malformed": 1, "unsigned": 1}
    assert facts["sent_bytes"] == sum(map(len, sent))
    assert facts["approved"] == ("heart",)
    assert facts["spent"]["spends"] == 0
    watched.end("The site was stopped.")
    assert watched.view().is_over


def test_a_site_without_a_ledger_is_still_shown(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: Any) -> None:
        raise InputError("The ledger cannot be read.")

    file = parties.site("north")
    watched = WatchedSite(file, LogLines())
    roster, service, signed = site_run._open(Console(quiet=True), file)
    watched.connect(service, roster, signed)
    monkeypatch.setattr(Ledger, "totals", fail)
    assert watched.view().facts["spent"] is None


def test_a_site_that_fails_says_so(parties: Parties) -> None:
    def fail() -> None:
        with watch_site(parties.site("north"), 0) as watched:
            kept.append(watched)
            raise ValueError(CANARY)

    kept: list[WatchedSite] = []
    with pytest.raises(ValueError, match=str(CANARY)):
        fail()
    assert kept[0].view().page.verdicts[0].words.startswith("It failed.")


def test_the_last_log_lines_are_kept_without_tracebacks() -> None:
    log = logging.getLogger("eigenfed.gate")
    with keep_log() as kept:
        log.info("round %d\nis over", 3)
        log.debug("not kept")
        try:
            raise ValueError(CANARY)
        except ValueError:
            log.exception("op %s failed", "product")
        log.info("x" * 2_000)
        for number in range(400):
            log.info("line %d", number)
            if number == 1:
                early = kept.lines
    assert [line[9:] for line in early[:2]] == ["round 3 is over", "op product failed"]
    assert str(CANARY) not in "".join(early)
    assert len(early[2]) < 500
    assert len(kept.lines) == 300
    assert not logging.getLogger("eigenfed").isEnabledFor(logging.INFO)
    assert kept not in logging.getLogger("eigenfed").handlers


def test_log_lines_are_kept_until_the_last_page_ends() -> None:
    log = logging.getLogger("eigenfed")
    level = log.level
    with ExitStack() as first, ExitStack() as second:
        run, site = first.enter_context(keep_log()), second.enter_context(keep_log())
        log.info("both")
        first.close()
        log.info("one")
        assert [len(run.lines), len(site.lines)] == [1, 2]
        second.close()
        assert log.level == level
        assert not log.isEnabledFor(logging.INFO)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (["--watch-port", "8000"], "--watch-port requires --watch"),
        (["--watch", "--once"], "--once does not wait"),
    ],
)
def test_options_that_would_be_ignored_are_refused(
    parties: Parties, words: list[str], error: str
) -> None:
    study = parties.home / "coordinator" / "study.toml"
    site = parties.home / "north" / "site.toml"
    for command in (["coordinate", study, "-o", parties.home / "out"], ["site", "run", site]):
        found = eigenfed(*command, *words)
        assert found.exit_code == 2
        assert error in str(found.exception) or error in found.stderr
