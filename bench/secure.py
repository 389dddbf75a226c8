"""Secure aggregation against plain sums: time, processor time of a site, bytes."""

import time
from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np

from bench.table import Line, fastest
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.privacy.secagg.fixed_point import error
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import Call, Protocol, Total, call_each, drive, plain_sum
from eigenfed.protocol.exact.magnitude import MagnitudeRequest, compute_limits
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import LocalTransport

_WORDS = 1 << 20
_BOUND = 8.0


class Timed:
    """A site that measures the processor time of its masked replies."""

    def __init__(self, site: Site) -> None:
        self.site = site
        self.busy_s = 0.0

    def answer(self, data: bytes) -> bytes:
        """Answer a request, and measure the time."""
        start = time.thread_time()
        answer = self.site.answer(data)
        if Message.from_bytes(data, "request", "open").label == "moments":
            self.busy_s += time.thread_time() - start
        return answer


class Sum(NamedTuple):
    """A sum over sites, how it came about, and the least processor time of a reply."""

    total: Array
    transport: LocalTransport
    busy_s: float


def sources(count: int, words: int) -> dict[str, Source]:
    rng = np.random.default_rng(0)
    # A reply has two numbers for each feature: its total, and how many rows have it.
    return {f"s{i:02}": Source.of(rng.uniform(-1, 1, (1, words // 2))) for i in range(count)}


def summed(rows: Mapping[str, Source], *, secure: bool) -> Sum:
    """Sum the totals of sites once; keys are made for this sum alone."""
    study = Study(tuple(sorted(rows)), 1, "krylov", secure=secure)
    coordinator = Identity.generate()
    identities = {name: Identity.generate() for name in rows}
    roster = Roster.of(identities)
    sites = {
        name: Timed(
            Site(
                name,
                source,
                coordinator=coordinator.public,
                identity=identities[name],
                roster=roster,
            )
        )
        for name, source in rows.items()
    }
    transport = LocalTransport(sites)
    transport.open_with(open_message(transport.run, study, study.method, coordinator))
    total: Total = SecureSum(roster, run=transport.run, ahead=1) if secure else plain_sum
    found = drive(totals(total, study), transport)
    return Sum(found, transport, min(site.busy_s for site in sites.values()))


def totals(total: Total, study: Study) -> Protocol[Array]:
    """Sum totals, and before that learn magnitudes where sums need bounds: nothing else."""
    request = MomentsRequest()
    if total.bounded:
        replies = yield from call_each(Call(MagnitudeRequest()))
        entry = max(reply.entry for reply in replies.values())
        weight = max(reply.weight for reply in replies.values())
        total.agree(compute_limits(entry, weight, len(study.sites), 1))
        request = MomentsRequest(entry=entry, weight=weight)
    return (yield from total(Call(request))).total


def is_right(found: Array, rows: Mapping[str, Source]) -> bool:
    exact = np.sum([source.X[0] for source in rows.values()], axis=0)
    return bool(np.abs(found - exact).max() <= error(_BOUND, len(rows)) + 1e-14)


def large_sums() -> Iterator[Line]:
    rows = sources(10, _WORDS)
    safe, plain = fastest(lambda: summed(rows, secure=True), lambda: summed(rows, secure=False))
    runs = [summed(rows, secure=True) for _ in range(3)]
    right = all(is_right(run.total, rows) for run in runs)
    yield Line(
        "secure / plain sum, 10 sites x 8 MB",
        safe / plain,
        "at most",
        5.0,
        right,
        f"{safe:.2f} s / {plain:.2f} s",
    )
    milliseconds = 1e3 * min(run.busy_s for run in runs)
    yield Line(
        "processor time of a masked reply, 10 sites x 8 MB, in ms",
        milliseconds,
        "at most",
        60.0,
        right,
        f"{milliseconds:.0f} ms for 10 streams of 8 MB, fixed point and the message",
    )
    sent = runs[0].transport.bytes_up / (10 * 8 * _WORDS)
    yield Line("bytes up / packed integers, 10 sites x 8 MB", sent, "at most", 1.1, right, "")


def many_sites() -> Line:
    few, many = sources(17, 1 << 17), sources(50, 1 << 17)
    runs = {len(rows): summed(rows, secure=True) for rows in (few, many) for _ in range(2)}
    right = is_right(runs[17].total, few) and is_right(runs[50].total, many)
    of_17, of_50 = (1e3 * runs[count].busy_s for count in (17, 50))
    return Line(
        "processor time of a masked 1 MB, 50 sites / 17",
        of_50 / of_17,
        "report",
        0.0,
        right,
        f"{of_50:.1f} ms with 32 neighbours / {of_17:.1f} ms with 12",
    )


def lines() -> Iterator[Line]:
    yield from large_sums()
    yield many_sites()
