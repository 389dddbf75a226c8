"""`eigenfed coordinate` with streams, its sites in the same process."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from command_line import eigenfed
from eigenfed.cli import collect_run
from eigenfed.cli.watching import WatchedRun
from eigenfed.linalg.summary import Summary
from eigenfed.transport.local import Answering
from network_parties import NAMES
from network_programs import wait_until
from network_streams import METHOD, StreamNetwork


class Direct:
    """Carries bundles to sites of this process."""

    def __init__(self, network: StreamNetwork) -> None:
        self._network = network

    def connect(self, site: str) -> Answering:
        return self._network.carry_to(site)

    def present(self) -> frozenset[str]:
        return frozenset(NAMES)


@pytest.fixture(autouse=True)
def direct(monkeypatch: pytest.MonkeyPatch) -> list[StreamNetwork]:
    """Let the command reach the network in the list, and wait for nothing."""
    networks: list[StreamNetwork] = []

    @contextmanager
    def open_carrier(*_: object, **__: object) -> Iterator[Direct]:
        yield Direct(networks[0])

    monkeypatch.setattr("eigenfed.study.network.engines.open_carrier", open_carrier)
    for name in ("_POLL_S", "_RETRY_S", "_TICK_S"):
        monkeypatch.setattr(collect_run, name, 0.01)
    return networks


def coordinate(network: StreamNetwork, *words: str) -> Result:
    home = network.parties.home
    study = home / "coordinator" / "study.toml"
    files = ("-o", home / "result", "--summary", home / "all.summary", "--force")
    return eigenfed("coordinate", study, *files, *words)


def count(network: StreamNetwork) -> float:
    path = network.parties.home / "all.summary"
    return Summary.from_bytes(path.read_bytes()).n if path.exists() else 0.0


def test_one_result_is_written_and_the_next_call_has_what_is_new(
    tmp_path: Path, direct: list[StreamNetwork]
) -> None:
    direct.append(StreamNetwork(tmp_path))
    first = coordinate(direct[0])
    assert first.exit_code == 0, first.output
    assert "Result 1: 60 rows of island, north, south." in first.stderr
    assert (tmp_path / "result" / "report.html").exists()
    again = coordinate(direct[0])
    assert again.exit_code == 0, again.output
    assert count(direct[0]) == 60
    direct[0].grow("south", 40)
    assert coordinate(direct[0]).exit_code == 0
    assert count(direct[0]) == 80
    assert [len(site.results) for site in direct[0].sites.values()] == [1, 2, 1]


def test_streams_are_followed_until_all_sites_have_sent_what_they_may(
    tmp_path: Path, direct: list[StreamNetwork]
) -> None:
    method = '{ name = "merge", max_summaries = 2 }'
    direct.append(StreamNetwork(tmp_path, method=method))
    network = direct[0]
    failures = iter([ConnectionError("away")])

    def carry(name: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
        if name == "north" and (failure := next(failures, None)):
            raise failure
        return answer(data)

    network.carry = carry

    def grow() -> None:
        wait_until(lambda: count(network) == 60, "the first result")
        for name in NAMES:
            network.grow(name, 40)

    thread = threading.Thread(target=grow)
    thread.start()
    done = coordinate(network, "--follow", "--watch")
    thread.join()
    assert done.exit_code == 0, done.output
    assert "All sites have sent as many summaries as the study allows" in done.stderr
    assert count(network) == 120
    for name in NAMES:
        assert network.released(name) == [(1, 20.0), (2, 40.0)]


def test_a_site_that_refuses_does_not_keep_others_from_being_followed(
    tmp_path: Path, direct: list[StreamNetwork]
) -> None:
    direct.append(StreamNetwork(tmp_path, method='{ name = "merge", max_summaries = 2 }'))
    network = direct[0]
    study = tmp_path / "coordinator" / "study.toml"
    study.write_text(study.read_text().replace("seed = 7", "seed = 7\nquorum = 2"))
    for path in (tmp_path / "north" / "network" / "approved").iterdir():
        path.unlink()
    refused = coordinate(network)
    assert refused.exit_code == 3, refused.output
    assert "Site 'north' refused 'summarise_stream'" in refused.stderr

    def stop() -> None:
        wait_until(lambda: count(network) == 40, "a result of the others")
        os.kill(os.getpid(), signal.SIGTERM)

    before: Any = signal.getsignal(signal.SIGTERM)
    thread = threading.Thread(target=stop)
    thread.start()
    done = coordinate(network, "--follow")
    thread.join()
    assert done.exit_code == 0, done.output
    assert "Site north sends no summary." in done.stderr
    assert "The study is not among those that the site has approved" in done.stderr
    assert "40 rows of island, south" in done.stderr
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_nobody_expected_ends_the_command(tmp_path: Path, direct: list[StreamNetwork]) -> None:
    direct.append(StreamNetwork(tmp_path))

    def carry(name: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
        if name == "south":
            raise FileNotFoundError("a file that was there a moment ago")
        return answer(data)

    direct[0].carry = carry
    done = coordinate(direct[0], "--follow")
    assert done.exit_code == 1
    assert "Unexpected FileNotFoundError" in done.stderr


def test_sites_beyond_the_quorum_are_waited_for_with_patience(
    tmp_path: Path, direct: list[StreamNetwork]
) -> None:
    direct.append(StreamNetwork(tmp_path))
    network = direct[0]
    study = tmp_path / "coordinator" / "study.toml"
    study.write_text(study.read_text().replace("seed = 7", "seed = 7\nquorum = 2"))
    (tmp_path / "north" / "rows.summary").unlink()
    done = coordinate(network, "--patience", "0.3")
    assert done.exit_code == 0, done.output
    assert count(network) == 40


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (("--new",), "--new is about runs that were interrupted"),
        (("--follow", "--once"), "--follow stays up, and --once does not"),
    ],
)
def test_options_that_make_no_sense_for_streams_are_refused(
    words: tuple[str, ...], text: str, tmp_path: Path, direct: list[StreamNetwork]
) -> None:
    direct.append(StreamNetwork(tmp_path))
    done = coordinate(direct[0], *words)
    assert done.exit_code == 2
    assert text in done.stderr


def test_other_studies_have_no_summaries_to_follow(
    tmp_path: Path, direct: list[StreamNetwork]
) -> None:
    direct.append(StreamNetwork(tmp_path))
    study = tmp_path / "coordinator" / "study.toml"
    study.write_text(study.read_text().replace(METHOD, '"auto"'))
    for option in ("--follow", "--summary"):
        words = (option,) if option == "--follow" else (option, tmp_path / "a.summary")
        done = eigenfed("coordinate", study, "-o", tmp_path / "result", *words)
        assert done.exit_code == 2
        assert f"{option} requires a study that merges summaries of streams" in done.stderr


def test_a_live_page_has_a_result_only_where_there_is_one(
    tmp_path: Path, direct: list[StreamNetwork], monkeypatch: pytest.MonkeyPatch
) -> None:
    direct.append(StreamNetwork(tmp_path))
    asked, ends = threading.Event(), list[tuple[str, str]]()
    monkeypatch.setattr(WatchedRun, "end", lambda _, *state: ends.append(state))

    def carry(*_: object) -> bytes:
        asked.set()
        raise ConnectionError("away")

    def stop() -> None:
        asked.wait()
        os.kill(os.getpid(), signal.SIGTERM)

    direct[0].carry = carry
    thread = threading.Thread(target=stop)
    thread.start()
    done = coordinate(direct[0], "--follow", "--watch")
    thread.join()
    assert done.exit_code == 0, done.output
    assert ends[0][0] == "stopped"
    assert ends[0][1].startswith("No summary has come from island, north, south yet.")
