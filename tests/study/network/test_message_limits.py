"""How long messages can be: honest ones fit, and of longer ones nothing is read or stored."""

import logging
import os
import threading
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pytest

from eigenfed.errors import InputError, SiteLost
from eigenfed.protocol.messages import Message
from eigenfed.protocol.study import open_message
from eigenfed.study.config import read_study
from eigenfed.study.network.engines import FileCarrier, answer_once, open_carrier
from eigenfed.study.network.key_files import read_identity
from eigenfed.study.network.message_limits import bound_reply, bound_request
from eigenfed.study.network.results_sent import close_message, read_sent_files
from eigenfed.study.network.roster_file import read_roster
from eigenfed.study.network.run_method import choose_run_method
from eigenfed.study.results.result_folder import write_result
from eigenfed.transport.bundles import COORDINATOR, MOST_START_BYTES, Bundle, name_site, sign_bundle
from network_parties import NAMES
from network_runs import PRIVATE, Network

SETTINGS = {
    "auto": ("covariance", ""),
    "factors": ("factors", ""),
    "krylov, secure": ("krylov", "secure = true\n"),
    "open": ("krylov", "by_site = true\n"),
    "power": ("power", "tol = 1.0\n"),
    "merge": ("merge", "scale = true\n"),
    "private": ("covariance", PRIVATE),
    "randomized": ("randomized", "certify = false\n"),
    "subspace": ("subspace", "tol = 1.0\n"),
}
HUGE = 1 << 42


@pytest.mark.parametrize("name", SETTINGS)
def test_messages_of_a_study_are_within_its_limits_and_those_are_not_loose(
    name: str, tmp_path: Path
) -> None:
    method, study = SETTINGS[name]
    network = Network(tmp_path, method=method, study=study)
    if name == "open":
        file = network.parties.study.path
        file.write_text(file.read_text().replace("components = 2", "components = 0.9"))
        network.approve()
    longest = {"there": 0, "back": 0}

    def measure(site: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
        reply = answer(data)
        longest["there"] = max(longest["there"], len(data))
        longest["back"] = max(longest["back"], len(reply))
        return reply

    network.carry = measure
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    write_result(tmp_path / "result", run.estimator, sites=run.sites, study="heart")
    assert coordinator.finish(run, read_sent_files(tmp_path / "result")) == {}
    asked = network.parties.study
    there = bound_request(asked) + MOST_START_BYTES
    back = bound_reply(asked, choose_run_method(asked, 3)[0].chosen) + MOST_START_BYTES
    assert longest["there"] <= there < 4 << 20
    assert longest["back"] <= back < 4 << 20


def test_limits_grow_with_the_study(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    names = [f"x{i}" for i in range(2000)]

    def bound(more: str) -> tuple[int, int]:
        file.write_text(f'name = "a"\nsites = ["b"]\nfeatures = {names}\n{more}')
        study = read_study(file)
        return bound_request(study), bound_reply(study, choose_run_method(study, 1)[0].chosen)

    few, more = bound('components = 2\nmethod = "krylov"\n'), bound("components = 300\n")
    assert more[0] - few[0] > 290 * 2000 * 8
    assert bound('components = 2\nmethod = "covariance"\n')[1] > 2000**2 * 8 > few[1]
    file.write_text('name = "a"\nsites = ["b"]\ncomponents = 2\n')
    with pytest.raises(InputError, match="list the features"):
        bound_request(read_study(file))


def sign_close(network: Network, site: str, run: str, size: int) -> bytes:
    """Return what a hostile coordinator sends: a result of any length, signed."""
    identity = read_identity(network.parties.home / "coordinator/network/coordinator.key")
    message = close_message(run, {"result.json": bytes(size)})
    return sign_bundle(message, identity, sender=COORDINATOR, recipient=name_site(site))


def test_a_result_longer_than_its_study_allows_is_refused_and_not_stored(tmp_path: Path) -> None:
    network = Network(tmp_path)
    run = network.run()
    most = bound_request(network.parties.study)
    answer = network.sites["north"].answer(sign_close(network, "north", run.run, most))
    refused = Message.from_bytes(Bundle.from_bytes(answer).message, "refusal")
    assert refused.label == "length"
    assert not (tmp_path / "north" / "results").exists()
    assert network.sites["north"].ledger.recall_names("data"), "the run is still open"


def test_no_result_is_taken_in_a_run_that_was_not_opened(tmp_path: Path) -> None:
    network = Network(tmp_path)
    coordinator = network.coordinator()
    run = coordinator.run(NAMES)
    write_result(tmp_path / "result", run.estimator, sites=run.sites, study="heart")
    assert coordinator.finish(run, read_sent_files(tmp_path / "result")) == {}
    study, identity = network.parties.study.study, network.coordinator()._identity
    service = network.sites["north"].service
    for name in ("x" * 300, "a\nb"):
        opening = open_message(name, study, study.method, identity)
        refused = Message.from_bytes(service.answer(opening), "refusal")
        assert refused.label == "malformed"
        close = close_message(name, read_sent_files(tmp_path / "result"))
        assert Message.from_bytes(service.answer(close), "refusal").label == "closed"
    assert len(list((tmp_path / "north" / "results").iterdir())) == 1
    assert not service._runs, "nor are names kept"


def test_a_file_that_is_too_long_is_not_read_by_the_site(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    network = Network(tmp_path)
    site, service = network.parties.site("north"), network.sites["north"]
    inbox = tmp_path / "coordinator" / "drop" / "to-north"
    inbox.mkdir(parents=True)
    sparse = inbox / "x.request"
    sparse.touch()
    os.truncate(sparse, HUGE)
    (inbox / "y.request").write_bytes(sign_close(network, "north", "run", 10))
    roster = read_roster(site.network / "roster.json")
    tracemalloc.start()
    with caplog.at_level(logging.WARNING):
        count = answer_once(site, roster, service, largest=service.service.bound_request)
    assert count == 1, "others are answered"
    assert f"x.request has {HUGE} bytes and may have at most" in caplog.text
    assert tracemalloc.get_traced_memory()[1] < 4 << 20
    tracemalloc.stop()


def test_a_file_that_is_too_long_is_not_read_by_the_coordinator(tmp_path: Path) -> None:
    network = Network(tmp_path)
    asked, stop = network.parties.study, threading.Event()
    folder = asked.path.parent / "network"
    with open_carrier(asked, folder, stop, wait=False) as carrier:
        assert isinstance(carrier, FileCarrier)
        for name in NAMES:
            sparse = tmp_path / "coordinator/drop" / f"from-{name}" / "x.reply"
            sparse.touch()
            os.truncate(sparse, HUGE)
        network.carry = lambda name, answer, data: carrier.connect(name).answer(data)
        tracemalloc.start()
        with pytest.raises(SiteLost):
            network.coordinator().run(NAMES, restarts=False)
        carrier.clear("run")
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
        tracemalloc.stop()


def test_a_study_that_cannot_be_read_allows_short_messages_only(tmp_path: Path) -> None:
    network = Network(tmp_path)
    site = network.parties.site("north")
    before = network.sites["north"].service.bound_request()
    for copy in (site.network / "approved").glob("*.toml"):
        copy.write_text("name = 3\n")
    network.sites["north"].restart()
    assert network.sites["north"].service.bound_request() < before
