"""Sites in this process, on threads: every message is still written and read as bytes."""

import os
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from contextlib import nullcontext
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, Protocol

from eigenfed.arrays import Arrays
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteLost, SiteRefused
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.protocol.core import Call
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import REFUSAL_TEXTS, Message, check_wire
from eigenfed.transport.engine import Callback, Engine, SiteSetup
from eigenfed.transport.rounds import RoundRecord, log_message, log_refusal, log_round
from eigenfed.transport.run_account import SiteAccount

_FEW_ENTRIES, _FEW_BY_FEATURE, _FEW_IN_ALL = 1 << 17, 16, 2_000_000
"""Entries of a site, in all and for each feature, and dense entries of all sites together.

Below these, sites work one after the other: a product takes a site less time than this process
takes to add up replies, or all is done in a moment. A second thread would save an eighth of the
time at most, and cost a fifth more processor time.
"""

_Wait = Callable[[float | None], tuple[int, bytes]]
"""Waits for the answer of a site, at most so many seconds: bytes sent, and the reply."""
_Waiting = tuple[str, Future[tuple[int, bytes]]]


class Answering(Protocol):
    """Anything that answers a message in bytes: a `Site`, or a connection to one."""

    def answer(self, data: bytes) -> bytes:
        """Answer one message; ConnectionError where the site cannot be reached."""


class LocalTransport:
    """Exchanges messages with sites from threads, several sites at a time, one BLAS thread each.

    Parameters
    ----------
    sites : mapping of str to Answering
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that are sent to sites.
    workers : int, optional
        How many sites work at a time; as many as there are processors by default.
    run : str, optional
        Name of the run; a new one by default.
    deadline_s : float, optional
        How long to wait for the replies to a request that sets no deadline itself; without limit
        by default.
    callback : callable, optional
        Called with each `RoundRecord` when the round is over.

    Attributes
    ----------
    bytes_up, bytes_down : int
        Bytes from and to all sites.
    floats_up : int
        Numbers in the replies.
    rounds : int
        Rounds so far.
    log : list of RoundRecord

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
        callback: Callback | None = None,
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
        # A checksum takes as long as a sparse product: it is for what leaves the process or is
        # recorded.
        self._seals = not all(type(site) is Site and not site.has_ledger for site in sites.values())
        self._opening: bytes | None = None
        self._open: set[str] = set()
        self._forgets = False

    def open_with(self, opening: bytes) -> None:
        """Take the message that opens the run at every site."""
        self._opening = opening

    def forget_replies(self) -> None:
        """Let sites of this process forget replies that have arrived: no round is repeated."""
        self._forgets = True

    @property
    def sites(self) -> tuple[str, ...]:
        """Names of the sites, sorted."""
        return tuple(self._sites)

    @property
    def run(self) -> str:
        """Name of the run."""
        return self._run

    @property
    def gates(self) -> dict[str, Site]:
        """The sites that live in this process."""
        return {name: site for name, site in self._sites.items() if isinstance(site, Site)}

    @property
    def accounts(self) -> dict[str, SiteAccount]:
        """What has left each site of this process."""
        return {
            name: SiteAccount(tuple(site.egress), site.meter) for name, site in self.gates.items()
        }

    def rewind(self, round_: int, deadline_s: float | None, callback: Callback | None) -> None:
        """Forget the log from a round on, which is about to be asked again.

        Parameters
        ----------
        round_ : int
            The first round that was not completed.
        deadline_s, callback
            As in the constructor, from now on.
        """
        self.log = [record for record in self.log if record.round < round_]
        self._deadline_s, self._callback = deadline_s, callback

    def close(self) -> None:
        """End the threads, once they are idle."""
        pool: ThreadPoolExecutor | None = self.__dict__.pop("_pool", None)
        if pool is not None:
            pool.shutdown(wait=False)

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        """Send a request, and yield the replies in sorted order of sites."""
        unknown = set(call.to or ()) - set(self._sites)
        if unknown:
            raise ProtocolError(
                f"{call.op!r} is addressed to {sorted(unknown)}, which are not sites of this run. "
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
            self._record_round(round_, call, sizes, lost)
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
        """Yield the replies; note in `sizes` and `lost` how large they were, and who is lost."""
        with one_blas_thread if len(self._sites) > 1 else nullcontext():
            for name, wait_for in self._submit(names, round_, call, bounded=ends is None):
                left = None if ends is None else max(ends - time.monotonic(), 0.0)
                try:
                    sent_bytes, data = wait_for(left)
                except (ConnectionError, FutureTimeout):
                    lost.append(name)
                else:
                    sizes[name] = (sent_bytes, len(data))
                    reply = self._decode_reply(name, round_, call, sent_bytes, data)
                    site = self._sites[name]
                    if self._forgets and isinstance(site, Site):
                        site.forget_reply(self._run)
                    yield name, reply

    def _record_round(
        self, round_: int, call: Call[Any], sizes: dict[str, tuple[int, int]], lost: list[str]
    ) -> None:
        sent = {name: down for name, (down, _) in sizes.items()}
        received = {name: up for name, (_, up) in sizes.items()}
        record = RoundRecord(round_, call.op, sent, received, tuple(lost), call.angle)
        self.log.append(record)
        log_round(self._run, record)
        if self._callback is not None:
            self._callback(record)

    def _submit(
        self, names: list[str], round_: int, call: Call[Any], *, bounded: bool
    ) -> Iterator[tuple[str, "_Wait"]]:
        """Yield each site and how to wait for its answer, in order; few answers are held at a time.

        A reply may be large: only as many are held as keep the workers busy. With a deadline all
        sites start at once, so that none is late because of another.
        """
        ahead = 2 * self._workers if bounded else len(names)
        # What is the same for all sites is encoded once: it may hold a large basis.
        common = None if call.differs else self._encode_request(round_, call, "")
        if bounded and self._workers == 1:
            for name in names:
                yield name, partial(self._exchange_now, name, round_, call, common)
            return
        pool = self._pool if bounded else ThreadPoolExecutor(len(names))
        held: deque[_Waiting] = deque()
        try:
            for name in names:
                held.append((name, pool.submit(self._exchange_one, name, round_, call, common)))
                if len(held) >= ahead:
                    yield _take_first(held)
            while held:
                yield _take_first(held)
        finally:
            for _, answer in held:
                answer.cancel()
            if not bounded:
                pool.shutdown(wait=False)

    @cached_property
    def _pool(self) -> ThreadPoolExecutor:
        """The threads of all rounds: to start them anew would take as long as many answers."""
        return ThreadPoolExecutor(self._workers)

    def _exchange_now(
        self, name: str, round_: int, call: Call[Any], common: bytes | None, _: float | None
    ) -> tuple[int, bytes]:
        return self._exchange_one(name, round_, call, common)

    def _exchange_one(
        self, name: str, round_: int, call: Call[Any], common: bytes | None
    ) -> tuple[int, bytes]:
        site = self._sites[name]
        if self._opening is not None and name not in self._open:
            first = (
                site.answer(self._opening, intact=True)
                if type(site) is Site
                else site.answer(self._opening)
            )
            intact = type(site) is Site
            opened = Message.from_bytes(first, "reply", "refusal", intact=intact)
            if opened.kind == "refusal":
                raise self._refused(name, opened.label, "open", round_)
            self._open.add(name)
        sent = self._encode_request(round_, call, name) if common is None else common
        reply = site.answer(sent, intact=True) if type(site) is Site else site.answer(sent)
        return len(sent), reply

    def _encode_request(self, round_: int, call: Call[Any], name: str) -> bytes:
        request = Message("request", self._run, round_, call.op, call.for_site(name))
        return request.to_bytes(self._wire, sealed=self._seals)

    def _decode_reply(
        self, name: str, round_: int, call: Call[Any], sent_bytes: int, data: bytes
    ) -> Arrays:
        intact = type(self._sites[name]) is Site
        reply = Message.from_bytes(data, "reply", "refusal", intact=intact)
        if reply.kind == "refusal":
            raise self._refused(name, reply.label, call.op, round_)
        if (reply.run, reply.round_, reply.label) != (self._run, round_, call.op):
            raise ProtocolError(
                f"Site {name!r} answered a request other than {call.op!r} of round {round_}. "
                "Use the same release of eigenfed everywhere."
            )
        self.bytes_down += sent_bytes
        self.bytes_up += len(data)
        self.floats_up += sum(array.size for array in reply.arrays.values())
        log_message(self._run, round_, call, name, reply.arrays, (sent_bytes, len(data)))
        return reply.arrays

    def _refused(self, name: str, code: str, op: str, round_: int) -> SiteRefused:
        log_refusal(self._run, round_, op, name, code if code in REFUSAL_TEXTS else "unknown")
        return SiteRefused(name, code, op, round_, REFUSAL_TEXTS.get(code, ""))


def _take_first(held: deque[_Waiting]) -> tuple[str, _Wait]:
    """Remove the first answer, so that its reply, which may be large, is held by nobody else."""
    name, answer = held.popleft()
    return name, answer.result


def _are_small(sources: Sequence[Source]) -> bool:
    """Return whether sites would hardly be done earlier if they worked at the same time."""
    sizes = [source.stored_size for source in sources]
    if sum(sizes) < _FEW_IN_ALL and not any(source.is_sparse for source in sources):
        return True
    return all(
        size < max(_FEW_ENTRIES, _FEW_BY_FEATURE * source.d)
        for size, source in zip(sizes, sources, strict=True)
    )


@dataclass(frozen=True, kw_only=True)
class Local(Engine):
    """Sites on threads of this process.

    Attributes
    ----------
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats in messages. "float32" halves the bytes. Its rounding turns
        components by about 1e-4 degrees or less; the certificate counts it, with residuals of
        about 1e-5, so that a smaller ``tol`` is not met. It cannot be combined with secure
        aggregation, privacy or ``split="features"``.
    deadline_s : float, optional
        How long to wait for the answers to a request, in seconds; without limit by default.
    workers : int, optional
        How many sites work at a time; by default as many as there are processors, or one if
        sites have so few entries that threads would hardly save time.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> X = np.random.default_rng(0).standard_normal((300, 60)) * np.linspace(3, 1, 60)
    >>> sites = {"a": X[:100], "b": X[100:]}
    >>> half = FederatedPCA(2, transport=Local(wire="float32")).fit_sites(sites)
    >>> round(half.bytes_up_ / FederatedPCA(2).fit_sites(sites).bytes_up_, 1)
    0.5
    """

    workers: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.workers is not None:
            check_count("workers", self.workers, "Pass None for one worker a processor.")

    @staticmethod
    def _count_workers(setups: Mapping[str, SiteSetup]) -> int | None:
        # Products of genotypes use all processors themselves, tile by tile.
        if all(isinstance(setup.source.X, Genotypes) for setup in setups.values()):
            return 1
        return 1 if _are_small([setup.source for setup in setups.values()]) else None

    def connect(
        self,
        setups: Mapping[str, SiteSetup],
        *,
        wire: str,
        deadline_s: float | None = None,
        callback: Callback | None = None,
    ) -> LocalTransport:
        """Make the sites in this process."""
        return LocalTransport(
            {name: setup.make(wire) for name, setup in setups.items()},
            wire=wire,
            workers=self.workers or self._count_workers(setups),
            deadline_s=self.deadline_s if deadline_s is None else deadline_s,
            callback=callback,
        )
