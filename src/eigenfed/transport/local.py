"""Sites in this process, on threads: every message still crosses as bytes."""

import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext
from typing import Any, Protocol

from eigenfed.arrays import Arrays
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.protocol.core import Call
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import WHY, Message, check_wire
from eigenfed.transport.rounds import RoundRecord


class Answering(Protocol):
    """Anything that answers an ask in bytes: a `Site`, or a way to one."""

    def answer(self, data: bytes) -> bytes:
        """Answer one ask; ConnectionError where it cannot be reached."""


class LocalTransport:
    """Asks the sites of one process, several at a time, with BLAS on one thread for each.

    Parameters
    ----------
    sites : mapping of str to Answering
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that are sent to sites.
    workers : int, optional
        How many sites to ask at a time; as many as there are processors by default.
    run : str, optional
        Name of the run, to take up one that was interrupted; a new one by default.
    deadline_s : float, optional
        How long to wait for the replies to an ask that says nothing of it; without end by default.
    callback : callable, optional
        Called with each `RoundRecord` as it is over.

    Attributes
    ----------
    bytes_up, bytes_down : int
        Bytes from and to all sites.
    floats_up : int
        Numbers in the replies.
    rounds : int
        Asks so far.
    log : list of Asked
        What went where, ask by ask.

    Notes
    -----
    Sites answer nothing before a run is opened with a study: `open_with` takes the message that
    opens it, which every site is sent before its first request.
    """

    def __init__(
        self,
        sites: Mapping[str, Answering],
        *,
        wire: str = "float64",
        workers: int | None = None,
        run: str | None = None,
        deadline_s: float | None = None,
        callback: Callable[[RoundRecord], None] | None = None,
    ) -> None:
        if not sites:
            raise InputError("sites is empty and must name at least one site. Add a site.")
        check_wire(wire)
        self._sites = dict(sorted(sites.items()))
        self._wire = wire
        self._workers = min(workers or os.cpu_count() or 1, len(sites))
        self._run = run or uuid.uuid4().hex
        self._deadline_s = deadline_s
        self._callback = callback
        self.log: list[RoundRecord] = []
        self.bytes_up = self.bytes_down = self.floats_up = self.rounds = 0
        self._opening: bytes | None = None
        self._open: set[str] = set()

    def open_with(self, opening: bytes) -> None:
        """Take the message that opens the run at every site."""
        self._opening = opening

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    @property
    def run(self) -> str:
        """Name of the run."""
        return self._run

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Yield the replies in sorted order of sites."""
        unknown = set(call.to or ()) - set(self._sites)
        if unknown:
            raise ProtocolError(
                f"{call.op!r} is addressed to {sorted(unknown)}, which are no sites of this run. "
                "Address those that are."
            )
        names = [name for name in self._sites if call.to is None or name in call.to]
        wait = self._deadline_s if call.deadline_s is None else call.deadline_s
        ends = None if wait is None else time.monotonic() + wait
        self.rounds += 1
        lost: list[str] = []
        sizes: dict[str, tuple[int, int]] = {}
        try:
            yield from self._replies(names, round_, call, ends, sizes, lost)
        finally:
            self._write_down(round_, call, sizes, lost)
        needed = len(names) if call.quorum is None else call.quorum
        if len(names) - len(lost) < needed:
            raise SiteLost(tuple(lost), call.op, round_)

    def _replies(
        self,
        names: list[str],
        round_: int,
        call: Call[Any],
        ends: float | None,
        sizes: dict[str, tuple[int, int]],
        lost: list[str],
    ) -> Iterator[tuple[str, Arrays]]:
        """Yield the replies, and note how large they and the asks were, and who is lost."""
        with one_blas_thread if self._workers > 1 else nullcontext():
            for name, waiting in self._waiting(names, round_, call, bounded=ends is None):
                left = None if ends is None else max(ends - time.monotonic(), 0.0)
                try:
                    sent_bytes, data = waiting.result(left)
                except (ConnectionError, FutureTimeout):
                    lost.append(name)
                else:
                    sizes[name] = (sent_bytes, len(data))
                    yield name, self._received(name, round_, call, sent_bytes, data)

    def _write_down(
        self, round_: int, call: Call[Any], sizes: dict[str, tuple[int, int]], lost: list[str]
    ) -> None:
        sent = {name: down for name, (down, _) in sizes.items()}
        received = {name: up for name, (_, up) in sizes.items()}
        self.log.append(RoundRecord(round_, call.op, sent, received, tuple(lost), call.residual))
        if self._callback is not None:
            self._callback(self.log[-1])

    def _waiting(
        self, names: list[str], round_: int, call: Call[Any], *, bounded: bool
    ) -> Iterator[tuple[str, "Future[tuple[int, bytes]]"]]:
        """Yield each site's answer to come, in order, with few of them in hand at a time.

        A reply may be large: only as many are held as keep the workers busy. With a deadline all
        sites are asked at once, so that none is late because of another.
        """
        ahead = 2 * self._workers if bounded else len(names)
        # What is the same for all sites is written once; it may be all of a large basis.
        common = None if call.differs else self._written(round_, call, "")
        pool = ThreadPoolExecutor(self._workers if bounded else len(names))
        held: deque[tuple[str, Future[tuple[int, bytes]]]] = deque()
        try:
            for name in names:
                held.append((name, pool.submit(self._one, name, round_, call, common)))
                if len(held) >= ahead:
                    yield held.popleft()
            yield from held
        finally:
            pool.shutdown(wait=False, cancel_futures=True)

    def _one(
        self, name: str, round_: int, call: Call[Any], common: bytes | None
    ) -> tuple[int, bytes]:
        site = self._sites[name]
        if self._opening is not None and name not in self._open:
            opened = Message.from_bytes(site.answer(self._opening), "reply", "refusal")
            if opened.kind == "refusal":
                raise SiteRefused(name, opened.label, "open", round_, WHY.get(opened.label, ""))
            self._open.add(name)
        sent = self._written(round_, call, name) if common is None else common
        reply = site.answer(sent, intact=True) if type(site) is Site else site.answer(sent)
        return len(sent), reply

    def _written(self, round_: int, call: Call[Any], name: str) -> bytes:
        arrays = call.for_site(name)
        return Message("request", self._run, round_, call.op, arrays).to_bytes(self._wire)

    def _received(
        self, name: str, round_: int, call: Call[Any], sent_bytes: int, data: bytes
    ) -> Arrays:
        # A checksum takes as long as a sparse product: only what comes from elsewhere is checked.
        intact = type(self._sites[name]) is Site
        reply = Message.from_bytes(data, "reply", "refusal", intact=intact)
        if reply.kind == "refusal":
            why = WHY.get(reply.label, "")
            raise SiteRefused(name, reply.label, call.op, round_, why)
        if (reply.run, reply.round_, reply.label) != (self._run, round_, call.op):
            raise ProtocolError(
                f"Site {name!r} answered another ask than {call.op!r} of round {round_}. "
                "Use the same release of eigenfed everywhere."
            )
        self.bytes_down += sent_bytes
        self.bytes_up += len(data)
        self.floats_up += sum(array.size for array in reply.arrays.values())
        return reply.arrays
