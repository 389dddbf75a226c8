"""Sites in processes of their own answer as sites in this one do, and never outlive their use.

A child takes a second or two to start, so the tests of lost and refusing sites share one crowd of
them, in which each has a site of its own to spoil.
"""

import multiprocessing
import multiprocessing.resource_tracker
import os
import signal
import subprocess
import sys
import threading
import uuid
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.revealed_products import RevealedProducts
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import Call, Protocol, Replies, drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.covariance import ScatterRequest
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.messages import Message
from eigenfed.protocol.operations import Request
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study
from eigenfed.transport.engine import SiteSetup
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.processes import ProcessTransport, receive_source, send_source
from federation import COORDINATOR, coordinated, gate, gates, opening, study_of
from oracles import pooled, power_law

T = TypeVar("T")
D = 12
FRAME: dict[str, Any] = {"mean": np.zeros(D), "scale": np.ones(D)}
CROWD = ("hanging", "killed", "limited")


def setups(
    sources: Mapping[str, Source],
    *,
    each: Mapping[str, Mapping[str, Any]] | None = None,
    **same: Any,
) -> dict[str, SiteSetup]:
    """What sites are made of: some settings are the same for all, others are of one site."""
    return {
        name: SiteSetup(name, source, COORDINATOR.public, **same, **(each or {}).get(name, {}))
        for name, source in sources.items()
    }


def started(sites: Mapping[str, SiteSetup], study: Study, **settings: Any) -> ProcessTransport:
    """Children for the sites, and a run of the study to be opened at them."""
    transport = ProcessTransport(sites, **settings)
    transport.open_with(opening(transport.run, study))
    return transport


def mixed() -> dict[str, Source]:
    """Two sites of all sorts: dense float32 by columns, and sparse; with gaps and weights."""
    X = power_law(200, D, 1.0, seed=3)
    rng = np.random.default_rng(4)
    X[rng.random(X.shape) < 0.1] = np.nan
    thin = sparse.csr_array(np.where(rng.random((80, D)) < 0.4, X[:80], 0.0))
    turned = np.asfortranarray(X[80:].astype(np.float32))
    return {
        "thin": Source.of(thin, weights=rng.uniform(0.5, 2.0, 80)),
        "turned": Source.of(turned, names=[f"x{i}" for i in range(D)]),
    }


def rows_of(name: str) -> Array:
    return power_law(40, D, 1.0, seed=len(name))


def children() -> dict[str, BaseProcess]:
    begin = "eigenfed site "
    active = multiprocessing.active_children()
    return {p.name.removeprefix(begin): p for p in active if p.name.startswith(begin)}


@pytest.fixture(scope="module")
def crowd() -> Iterator[ProcessTransport]:
    known = RevealedProducts(np.eye(D)[:, :3], np.eye(D)[:, :3], trace=float(D))
    limited = {
        "policy": Policy(max_rank_fraction=0.5, methods=frozenset({"krylov"})),
        "meter": Meter.empty(D).answered(known),
    }
    sources = {name: Source.of(rows_of(name)) for name in CROWD}
    transport = ProcessTransport(
        setups(sources, each={"limited": limited}), wire="float32", workers=3
    )
    processes = children()
    yield transport
    transport.close()
    assert not any(processes[name].is_alive() for name in CROWD)


def begin(transport: ProcessTransport, method: str = "krylov") -> None:
    """Have another run of the crowd's study opened with the next call."""
    transport._run = uuid.uuid4().hex
    transport._open.clear()
    study = study_of(CROWD, 3, method, scale=True, wire="float32")
    transport.open_with(opening(transport.run, study))


def asked(transport: ProcessTransport, call: Call[Any]) -> Replies:
    return dict(transport.exchange(transport.rounds, call))


def assert_equal(got: Decomposition, expected: Decomposition) -> None:
    for name in ("components", "variances", "mean", "scale", "total_variance"):
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name
    assert got.certificate is not None
    assert expected.certificate is not None
    assert np.array_equal(got.certificate.residuals, expected.certificate.residuals)
    assert got.certificate.angle_bound == expected.certificate.angle_bound


@pytest.mark.parametrize("method", ["krylov", "covariance"])
def test_results_counters_and_meters_are_those_of_the_local_transport(method: str) -> None:
    sources = mixed()
    study = study_of(sources, 3, method, scale=True, tol=1e-10, max_rounds=9)
    sites = gates(sources)
    local = LocalTransport(sites, workers=2, run="r7")
    local.open_with(opening("r7", study))
    expected = drive(coordinated(study, seed=5), local)
    transport = started(setups(sources), study, workers=2, run="r7")
    processes = {name: children()[name] for name in sources}
    try:
        assert transport.sites == ("thin", "turned")
        got = drive(coordinated(study, seed=5), transport)
        again = Message("request", "r7", 1, "moments", {}).to_bytes()
        refusal = Message.from_bytes(transport._sites["thin"].answer(again), "refusal")
    finally:
        transport.close()
    assert (refusal.run, refusal.label) == ("r7", "answered")
    assert_equal(got, expected)
    for counter in ("rounds", "bytes_up", "bytes_down", "floats_up"):
        assert getattr(transport, counter) == getattr(local, counter) > 0
    assert {n: a.meter.to_bytes() for n, a in transport.accounts.items()} == {
        n: s.meter.to_bytes() for n, s in sites.items()
    }
    assert {n: a.egress for n, a in transport.accounts.items()} == {
        n: tuple(replace(left, digest="") for left in s.egress) for n, s in sites.items()
    }
    assert [process.exitcode for process in processes.values()] == [0, 0]
    transport.close()
    assert sorted(transport.accounts) == ["thin", "turned"]
    with pytest.raises(SiteLost) as caught:
        asked(transport, Call(MomentsRequest()))
    assert caught.value.sites == ("thin", "turned")


def test_threads_of_a_busy_parent_may_run_and_fail_side_by_side() -> None:
    done = threading.Event()

    def churn() -> None:
        a = np.eye(100)
        while not done.wait(0.01):
            a @ a

    def run(name: str, protocol: Protocol[T]) -> T:
        study = study_of([name], 3, "krylov", tol=1e-10)
        with started(setups({name: Source.of(rows_of(name))}), study) as transport:
            return drive(protocol, transport)

    def failing() -> Protocol[None]:
        yield Call(MomentsRequest())
        assert "failing" in children()
        raise RuntimeError("own")

    noise = threading.Thread(target=churn)
    noise.start()
    working = coordinated(study_of(["working"], 3, "krylov", tol=1e-10), seed=5)
    try:
        with ThreadPoolExecutor(2) as pool:
            found = pool.submit(run, "working", working)
            failed = pool.submit(run, "failing", failing())
    finally:
        done.set()
        noise.join()
    with pytest.raises(RuntimeError, match="own"):
        failed.result()
    oracle, result = pooled(rows_of("working")), found.result()
    np.testing.assert_allclose(result.variances, oracle.s[:3] ** 2 / 39)
    cosines = np.abs(result.components @ oracle.vt[:3].T)
    np.testing.assert_allclose(cosines, np.eye(3), atol=1e-7)
    assert not children().keys() & {"working", "failing"}


def test_the_wire_sets_the_precision_both_ways(crowd: ProcessTransport) -> None:
    centre, only = np.full(D, 0.1), ("limited",)
    begin(crowd)
    asked(crowd, Call(MomentsRequest(), to=only))
    reply = asked(crowd, Call(SquaresRequest(mean=centre), to=only))["limited"]["squares"]
    around = rows_of("limited") - centre.astype(np.float32)
    expected = (around**2).sum(axis=0).astype(np.float32)
    np.testing.assert_allclose(reply, expected, rtol=1e-7)
    assert np.array_equal(reply.astype(np.float32), reply)


def test_a_killed_child_is_lost_by_name_and_the_other_goes_on(crowd: ProcessTransport) -> None:
    two = ("killed", "limited")
    begin(crowd)
    assert tuple(asked(crowd, Call(MomentsRequest(), to=two))) == two
    process = children()["killed"]
    os.kill(process.pid or 0, signal.SIGSTOP)
    # The call is under way when the timer ends the child that never reads it.
    timer = threading.Timer(0.2, process.kill)
    timer.start()
    for _ in range(2):
        begin(crowd)
        with pytest.raises(SiteLost, match=r"^No answer from killed to 'moments' in round") as lost:
            asked(crowd, Call(MomentsRequest(), to=two))
        assert lost.value.sites == ("killed",)
        timer.join()
    expected = rows_of("limited").sum(axis=0)
    for call in (Call(MomentsRequest(), to=two, quorum=1), Call(MomentsRequest(), to=("limited",))):
        begin(crowd)
        replies = asked(crowd, call)
        assert list(replies) == ["limited"]
        np.testing.assert_allclose(replies["limited"]["total"], expected, rtol=1e-5, atol=1e-6)


def test_a_child_that_hangs_is_lost_by_the_deadline(crowd: ProcessTransport) -> None:
    begin(crowd)
    os.kill(children()["hanging"].pid or 0, signal.SIGSTOP)
    with pytest.raises(SiteLost) as caught:
        asked(crowd, Call(MomentsRequest(), to=("hanging",), deadline_s=0.1))
    assert caught.value.sites == ("hanging",)


@pytest.mark.parametrize(
    ("method", "request_", "code"),
    [
        ("krylov", ScatterRequest(**FRAME), "script"),
        ("krylov", ProductRequest(basis=np.zeros((D + 1, 1)), **FRAME), "invalid"),
        ("krylov", ProductRequest(basis=np.eye(D)[:, 3:7], **FRAME), "leakage"),
        ("covariance", MomentsRequest(), "method"),
    ],
)
def test_policies_and_meters_arrive_and_refusals_come_back(
    crowd: ProcessTransport, method: str, request_: Request[Any], code: str
) -> None:
    begin(crowd, method)

    def requesting() -> None:
        for each in (MomentsRequest(), request_):
            asked(crowd, Call(each, to=("limited",)))

    with pytest.raises(SiteRefused) as caught:
        requesting()
    assert (caught.value.site, caught.value.code) == ("limited", code)


def test_meters_go_on_from_those_given_and_the_lost_have_none(crowd: ProcessTransport) -> None:
    lost = children().get("killed")
    if lost is not None:  # the tests before this may have run in another worker
        lost.kill()
    begin(crowd)
    asked(crowd, Call(MomentsRequest(), to=("limited",)))
    asked(crowd, Call(ProductRequest(basis=np.eye(D)[:, :5], **FRAME), to=("limited",)))
    crowd.close()
    assert "killed" not in crowd.accounts
    assert crowd.accounts["limited"].meter.rank_fraction == pytest.approx(5 / D)


def test_studies_that_were_not_approved_are_refused_by_the_children() -> None:
    agreed, other = study_of("a", 1), study_of("a", 2)
    approved = frozenset({agreed.digest})
    sites = setups({"a": Source.of(np.eye(3))}, approved=approved)
    with started(sites, other) as transport:
        with pytest.raises(SiteRefused, match="'unapproved'"):
            asked(transport, Call(MomentsRequest()))
        transport.open_with(opening(transport.run, agreed))
        assert list(asked(transport, Call(MomentsRequest()))) == ["a"]


def test_children_end_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    script = tmp_path / "killed.py"
    script.write_text(
        "import os, signal\n"
        "import numpy as np\n"
        "from eigenfed.data.source import Source\n"
        "from eigenfed.transport.engine import SiteSetup\n"
        "from eigenfed.transport.processes import ProcessTransport\n"
        "if __name__ == '__main__':\n"
        "    site = SiteSetup('a', Source.of(np.eye(3)), bytes(32))\n"
        "    transport = ProcessTransport({'a': site})\n"
        "    print('started', flush=True)\n"
        "    os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    # The child holds the output too: it ends only when both have.
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=120)
    assert done.stdout == "started\n", done.stderr
    assert done.returncode == -signal.SIGKILL


def test_a_child_that_cannot_run_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    multiprocessing.resource_tracker.ensure_running()
    monkeypatch.setattr("multiprocessing.spawn._python_exe", os.fsencode("/bin/false"))
    with pytest.raises(ProtocolError, match=r"^The process of site 'a' did not start\. Call from"):
        ProcessTransport(setups({"a": Source.of(np.eye(3))}))
    assert "a" not in children()


def test_a_parent_that_may_not_have_children_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    config = vars(multiprocessing.current_process())["_config"]
    monkeypatch.setitem(config, "daemon", True)
    with pytest.raises(ProtocolError, match="'a' did not start"):
        ProcessTransport(setups({"a": Source.of(np.eye(3))}))


def test_a_child_starts_with_interrupts_blocked(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []

    def start(_: object) -> None:
        seen.append(signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, ()))
        raise OSError

    monkeypatch.setattr("multiprocessing.context.SpawnProcess.start", start)
    with pytest.raises(ProtocolError, match="did not start"):
        ProcessTransport(setups({"a": Source.of(np.eye(3))}))
    assert seen == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())


def test_a_parent_that_ends_within_a_message_ends_the_child_without_an_error() -> None:
    near, far = multiprocessing.Pipe()
    os.write(near.fileno(), (1000).to_bytes(4, "big") + b"a part of it")
    near.close()
    with pytest.raises(EOFError), far:
        receive_source(far)


def test_wrong_arguments_are_refused() -> None:
    with pytest.raises(InputError, match=r"^wire='float16' must be 'float64' or 'float32'\."):
        ProcessTransport(setups(mixed()), wire="float16")


def test_a_ledger_in_memory_is_out_of_reach_of_a_child() -> None:
    with pytest.raises(InputError, match=r"^The ledger of site 'thin' is kept in memory, where a"):
        ProcessTransport(setups(mixed(), each={"thin": {"ledger": Ledger(None)}}))


def test_no_sites_are_refused() -> None:
    with pytest.raises(InputError, match="sites is empty"):
        ProcessTransport({})


def handed_over(source: Source) -> Source:
    near, far = multiprocessing.Pipe()
    with near, far, ThreadPoolExecutor(1) as pool:
        sending = pool.submit(send_source, near, source)
        received = receive_source(far)
        sending.result()
        assert not far.poll()
    return received


@pytest.mark.parametrize("part_bytes", [1, 100, 1 << 20])
@pytest.mark.parametrize(
    "source",
    [
        *mixed().values(),
        Source.of(power_law(9, D, 1.0), weights=np.arange(9.0)),
        Source.of(np.zeros((0, 3))),
        Source.of(sparse.csr_array((4, 3))),
        Source.of(np.arange(81.0).reshape(9, 9)[::2, ::3]),
    ],
    ids=["thin", "turned", "weights", "no rows", "no entries", "strided"],
)
def test_a_source_crosses_as_it_is_in_parts_of_any_size(
    source: Source, part_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("eigenfed.transport.processes._PART_BYTES", part_bytes)
    got = handed_over(source)
    assert (got.X.dtype, got.X.shape, got.names) == (source.X.dtype, source.X.shape, source.names)
    for name in ("data", "indices", "indptr") if source.is_sparse else ("X",):
        one, other = (getattr(s.X if s.is_sparse else s, name) for s in (got, source))
        assert one.dtype == other.dtype
        np.testing.assert_array_equal(one, other)
    if not source.is_sparse:
        assert got.X.flags.f_contiguous == source.X.flags.f_contiguous
    np.testing.assert_array_equal(got.weights, source.weights)


def test_names_beyond_the_room_of_a_header_cross() -> None:
    names = tuple(f"feature number {i:09d}" for i in range(60_000))
    assert handed_over(Source.of(np.ones((1, len(names))), names=names)).names == names


def test_a_private_pca_in_secure_sums_over_processes_spends_what_it_says(tmp_path: Path) -> None:
    names = ("a", "b", "c")
    rng = np.random.default_rng(0)
    sources = {name: Source.of(rng.standard_normal((2000, 3)) * [9, 1, 1]) for name in names}
    identities = {name: Identity.generate() for name in names}
    ledgers = {name: tmp_path / name for name in names}
    for path in ledgers.values():
        Ledger(path, create=True).close()
    policy = Policy(budget=Budget(1.0, 1e-5), secure_only=True)
    roster = Roster.of(identities)

    study = study_of(names, 1, "covariance", privacy=Privacy(1.0, 1e-5))

    def run(transport: LocalTransport) -> Decomposition:
        transport.open_with(opening(transport.run, study))
        total = SecureSum(roster, run=transport.run)
        return drive(coordinated(study, total=total), transport)

    each = {name: {"identity": identities[name], "ledger": Ledger(ledgers[name])} for name in names}
    with started(setups(sources, each=each, policy=policy, roster=roster), study) as transport:
        assert abs(run(transport).components[0, 0]) > 0.95
    for path in ledgers.values():
        ledger = Ledger(path, readonly=True)
        assert ledger.totals("data").epsilon == pytest.approx(1.0, rel=1e-6)
        assert ledger.verify().intact
    # What the children wrote down binds whoever opens it next.
    sites = {
        name: gate(
            name,
            source,
            policy=policy,
            identity=identities[name],
            roster=roster,
            ledger=Ledger(ledgers[name]),
        )
        for name, source in sources.items()
    }
    with pytest.raises(SiteRefused, match="'budget'"):
        run(LocalTransport(sites))
