"""Memory as forecast beside traced peaks of real runs, and the arithmetic of time."""

import os
import tracemalloc
from contextlib import nullcontext
from dataclasses import dataclass, field

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from eigenfed.data.source import Source
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.core import drive
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, unpack
from eigenfed.protocol.method import Shape, find_method
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Opening, Study
from eigenfed.study.planning.forecast import estimate_network_s, estimate_private_cost
from eigenfed.transport.local import Answering, LocalTransport

SITES = ("a", "b", "c")


@dataclass(eq=False)
class Taped:
    """Answers as a site does, and keeps asks and replies."""

    site: Answering
    asks: list[bytes] = field(default_factory=list)
    replies: list[bytes] = field(default_factory=list)

    def answer(self, data: bytes) -> bytes:
        self.asks.append(data)
        self.replies.append(self.site.answer(data))
        return self.replies[-1]


class Played:
    """Answers from a tape, with bytes that count as new."""

    def __init__(self, replies: list[bytes]) -> None:
        self._replies = iter(replies)

    def answer(self, data: bytes) -> bytes:
        return bytes(bytearray(next(self._replies)))


def taped(
    study: Study, sources: dict[str, Source]
) -> tuple[dict[str, Taped], LocalTransport, Decomposition]:
    run = federation(study, sources, Conditions())
    tapes = {name: Taped(site) for name, site in run.sites.items()}
    transport = LocalTransport(tapes, run=run.transport.run)
    transport.open_with(run.opening)
    rng = np.random.default_rng(1)
    return tapes, transport, drive(pca(run.study, rng=rng, total=run.total), transport)


def peaks(
    n: int, d: int, k: int, method: str, privacy: Privacy | None
) -> tuple[int, int, Decomposition]:
    """Trace one site, then the coordinator, each by itself against a tape of the other."""
    rng = np.random.default_rng(0)
    spread = np.sqrt(0.9 ** np.arange(d))
    # Only one site is traced; others send replies of the same shapes from few rows.
    rows = {name: n if name == "a" else min(n, 200) for name in SITES}
    # Rows far from zero are centred block by block, which takes the memory that is forecast.
    sources = {name: Source(9.0 + rng.standard_normal((rows[name], d)) * spread) for name in SITES}
    study = Study(SITES, k, method, privacy=privacy)
    tapes, transport, found = taped(study, sources)
    ledger, policy = None, Policy()
    if privacy is not None:
        ledger, policy = Ledger(None), Policy(budget=Budget(privacy.epsilon, privacy.delta))
    coordinator = unpack(Opening, Message.from_bytes(tapes["a"].asks[0], "open").arrays).coordinator
    site = Site("a", sources["a"], coordinator=coordinator.tobytes(), ledger=ledger, policy=policy)
    tracemalloc.start()
    for call in tapes["a"].asks:
        site.answer(bytes(bytearray(call)))
    at_site = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    played = LocalTransport(
        {name: Played(tape.replies) for name, tape in tapes.items()}, run=transport.run
    )
    played.open_with(tapes["a"].asks[0])
    protocol = pca(study, rng=np.random.default_rng(1))
    tracemalloc.start()
    drive(protocol, played)
    at_coordinator = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return at_site, at_coordinator, found


@pytest.mark.parametrize(
    ("n", "d", "k", "method", "private"),
    [
        (7000, 1200, 4, "covariance", False),
        (1300, 1300, 4, "covariance", False),
        (150, 25_000, 6, "krylov", False),
        (150, 5_000, 6, "factors", False),
        (100, 3_000, 8, "randomized", False),
        (100, 2_000, 6, "subspace", False),
        (100, 1_500, 8, "power", False),
        (150, 5_000, 15, "merge", False),
        (1000, 400, 4, "covariance", True),
        (250, 2_500, 20, "power", True),
    ],
)
def test_memory_is_within_thirty_percent(
    n: int, d: int, k: int, method: str, private: bool
) -> None:
    privacy = Privacy(9.0, 1e-6, trust="local") if private else None
    cores = os.cpu_count() or 1
    # Only a table of several blocks is spread over threads, which each hold one.
    with threadpool_limits(cores, user_api="blas") if n == 7000 else nullcontext():
        at_site, at_coordinator, found = peaks(n, d, k, method, privacy)
    shape = Shape(n, d, k, len(SITES), products=found.products or None, cores=cores)
    chosen = find_method(method)
    cost = estimate_private_cost(chosen, shape) if private else chosen.cost(shape)
    assert cost.site_bytes == pytest.approx(at_site, rel=0.3)
    assert cost.coordinator_bytes == pytest.approx(at_coordinator, rel=0.3)


def test_time_on_the_wire_is_rounds_and_bytes() -> None:
    assert estimate_network_s(10, 5_000_000, latency_ms=40, bandwidth_mbps=20) == pytest.approx(
        0.4 + 2.0
    )
    assert estimate_network_s(10, 5_000_000, latency_ms=None, bandwidth_mbps=20) == pytest.approx(
        2.0
    )
    assert estimate_network_s(10, 5_000_000, latency_ms=40, bandwidth_mbps=None) == pytest.approx(
        0.4
    )
