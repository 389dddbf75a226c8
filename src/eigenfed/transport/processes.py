"""A source through a pipe, in checked parts of a few megabytes.

Sites in processes of their own: nothing is shared with them but a pipe that carries bytes.

===========  ==================================================================================
coordinator  replies as bytes; at the end, each site's meter
site         its own source, policy, meter and identity, handed over once at the start; then asks
             as bytes
===========  ==================================================================================

A source crosses the pipe in checked parts of a few megabytes and is put together in the child, so
neither side holds a second table. Shared memory would save the copy, but it is 64 MB in a default
container and a process that writes beyond that is killed without a word.
"""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Container
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import check_wire
from eigenfed.transport.local import LocalTransport

VERSION = 1
_PART_BYTES = 4 << 20


def send_source(pipe: Connection, source: Source) -> None:
    """Send a source in parts, each a `Container`: dense or sparse, with weights and names."""
    X = source.X
    # Rows of the other memory order would go through other BLAS kernels, with other last bits.
    turned = not source.is_sparse and X.flags.f_contiguous and not X.flags.c_contiguous
    arrays: dict[str, npt.NDArray[Any]] = {"X": X.T if turned else X}
    if source.is_sparse:
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    if source.weights is not None:
        arrays["weights"] = source.weights
    described = {
        "shape": X.shape,
        "turned": bool(turned),
        "names": source.names,
        "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
    }
    header = Container("source", VERSION, {}, {"described": as_bytes(described)})
    pipe.send_bytes(header.to_bytes())
    for array in arrays.values():
        step = max(1, _PART_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            part = array[start : start + step]
            sent = part if part.dtype.kind == "f" else part.astype(np.int64)
            pipe.send_bytes(Container("part", VERSION, {}, {"part": sent}).to_bytes())


def receive_source(pipe: Connection) -> Source:
    """Put together what `send_source` sent."""
    header = Container.from_bytes(pipe.recv_bytes(), kind="source", version=VERSION)
    described = json.loads(header.arrays["described"].tobytes())
    arrays = {}
    for name, dtype, shape in described["arrays"]:
        arrays[name] = array = np.empty(shape, dtype)
        start = 0
        while start < len(array):
            part = Container.from_bytes(pipe.recv_bytes(), kind="part", version=VERSION)
            rows = part.arrays["part"]
            array[start : start + len(rows)] = rows
            start += len(rows)
    X: Any = arrays.get("X")
    if X is None:
        stored = (arrays["data"], arrays["indices"], arrays["indptr"])
        X = sparse.csr_array(stored, shape=tuple(described["shape"]))
    names = described["names"]
    return Source(X.T if described["turned"] else X, arrays.get("weights"), names and tuple(names))


def as_bytes(values: Any) -> npt.NDArray[np.uint8]:
    """JSON as an array: a header has no room for the names of a million features."""
    return np.frombuffer(json.dumps(values).encode(), np.uint8)


_READY, _END = b"ready", b"end"
_GRACE_S = 2.0
_METER_S = 30.0


class ProcessTransport(LocalTransport):
    """Asks sites that live in child processes, each with BLAS on one thread.

    The children are fresh interpreters, so a script that makes this transport must do so under
    ``if __name__ == "__main__":``. Use it as a context manager, or call `close`; children whose
    parent ends without that end by themselves. The processors are shared out among them. Results
    are bit-equal to those of `LocalTransport` where that one has BLAS on one thread too, as it has
    with two sites or more on two processors or more.

    Parameters
    ----------
    sources : mapping of str to Source
        The rows of each site.
    coordinator : bytes
        Public key of the coordinator, which every site pins.
    approved : frozenset of str, optional
        Digests of the studies that the sites have approved; None approves every study of that
        coordinator that the policies allow.
    policies : mapping of str to Policy, optional
    meters : mapping of str to Meter, optional
        What earlier runs on a site's data have answered.
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that are sent, both ways.
    workers : int, optional
        How many sites to ask at a time; all of them by default.
    identities : mapping of str to Identity, optional
        Signing keys of all sites, for secure sums; their roster is handed to each.
    ledgers : mapping of str to path, optional
        Where sites keep their ledgers; without one, a site lets no reply with noise out.
    run : str, optional
        Name of the run, as in its transcript; a new one by default.

    Attributes
    ----------
    meters : dict of str to Meter
        After `close`: what each site has answered in all. A site that was lost, or was still at
        work, has none: what it had been asked must be taken as answered.

    Raises
    ------
    ProtocolError
        If a child does not start.
    """

    def __init__(
        self,
        sources: Mapping[str, Source],
        *,
        coordinator: bytes,
        approved: frozenset[str] | None = None,
        policies: Mapping[str, Policy] | None = None,
        meters: Mapping[str, Meter] | None = None,
        wire: str = "float64",
        workers: int | None = None,
        identities: Mapping[str, Identity] | None = None,
        ledgers: Mapping[str, str | os.PathLike[str]] | None = None,
        run: str | None = None,
    ) -> None:
        policies, meters, ledgers = policies or {}, meters or {}, ledgers or {}
        _check(sources, {"policies": policies, "meters": meters, "ledgers": ledgers}, wire)
        _check_identities(sources, identities)
        roster = None if identities is None else Roster.of(identities)
        trusted = {
            "coordinator": coordinator.hex(),
            "approved": None if approved is None else sorted(approved),
        }
        self.meters: dict[str, Meter] = {}
        self._children: dict[str, _Child] = {}
        try:
            threads = max(1, (os.cpu_count() or 1) // max(1, len(sources)))
            for name in sources:  # all start first, since each takes a while
                self._children[name] = _Child(name, threads)
            for name, source in sources.items():
                policy = policies.get(name, Policy())
                key = None if identities is None else identities[name]
                self._children[name].hand_over(
                    source,
                    policy,
                    meters.get(name),
                    wire,
                    identity=key,
                    roster=roster,
                    ledger=ledgers.get(name),
                    trusted=trusted,
                )
            super().__init__(self._children, wire=wire, workers=workers or len(sources), run=run)
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ProcessTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Fetch the meters and end the children; asked afterwards, all sites are lost."""
        ended = {name: child.end() for name, child in self._children.items()}
        self._children = {}
        self.meters |= {name: Meter.from_bytes(data) for name, data in ended.items() if data}


class _Child:
    """The way to one site: a process and the near end of its pipe."""

    def __init__(self, name: str, threads: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._name = name
        self._lock = threading.Lock()
        self._ready = False
        self._pipe, far = context.Pipe()
        self._process = context.Process(
            target=_serve, args=(far, threads), name=f"eigenfed site {name}", daemon=True
        )
        try:
            self._process.start()
        except (OSError, RuntimeError, AssertionError) as error:
            # multiprocessing says by an assertion that a daemon may not have children.
            self._pipe.close()
            raise self._not_started() from error
        finally:
            far.close()

    def hand_over(
        self,
        source: Source,
        policy: Policy,
        meter: Meter | None,
        wire: str,
        *,
        identity: Identity | None,
        roster: Roster | None,
        ledger: str | os.PathLike[str] | None,
        trusted: Mapping[str, Any],
    ) -> None:
        """Send all that the site needs, and wait until it is there."""
        keys = {} if roster is None else roster.keys
        settings = {
            "name": self._name,
            "wire": wire,
            "policy": {
                **asdict(policy),
                "methods": None if policy.methods is None else sorted(policy.methods),
            },
            **trusted,
            "roster": {name: key.hex() for name, key in keys.items()},
            "ledger": None if ledger is None else os.path.abspath(ledger),
        }
        arrays = {"settings": as_bytes(settings)}
        if meter is not None:
            arrays["meter"] = np.frombuffer(meter.to_bytes(), np.uint8)
        if identity is not None:
            arrays["identity"] = np.frombuffer(identity.to_bytes(), np.uint8)
        try:
            self._pipe.send_bytes(Container("site", VERSION, {}, arrays).to_bytes())
            send_source(self._pipe, source)
            self._ready = self._pipe.recv_bytes() == _READY
        except (EOFError, OSError) as error:
            raise self._not_started() from error

    def answer(self, data: bytes) -> bytes:
        """Bring an ask to the site and its answer back; ConnectionError where it is gone."""
        # An ask whose deadline passed still waits for its answer: the next one must queue.
        with self._lock:
            try:
                self._pipe.send_bytes(data)
                return self._pipe.recv_bytes()
            except (EOFError, OSError) as error:
                raise ConnectionError(f"The process of site {self._name!r} is gone.") from error

    def end(self) -> bytes | None:
        """End the process, by force where it must be; return its meter if it still gives one."""
        meter = None
        if self._ready and self._lock.acquire(timeout=_GRACE_S):
            with suppress(EOFError, OSError):
                self._pipe.send_bytes(_END)
                meter = self._pipe.recv_bytes() if self._pipe.poll(_METER_S) else None
                self._process.join(_GRACE_S)
            self._lock.release()
        self._process.kill()
        self._process.join()
        with self._lock:  # whoever still waits for an answer learns first that there is none
            self._pipe.close()
        return meter

    def _not_started(self) -> ProtocolError:
        return ProtocolError(
            f"The process of site {self._name!r} did not start. Call from a file, under "
            '`if __name__ == "__main__":`, in a process that may have children and has memory '
            "for the site's rows."
        )


def _serve(pipe: Connection, threads: int) -> None:
    """Be a site until the parent says so, or is gone."""
    threadpool_limits(limits=threads, user_api="blas")
    # An interrupt from the keyboard reaches the whole group; the parent is the one to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    with one_blas_thread, suppress(EOFError, ConnectionError):
        site = _received_site(pipe)
        pipe.send_bytes(_READY)
        while (data := pipe.recv_bytes()) != _END:
            pipe.send_bytes(site.answer(data))
        pipe.send_bytes(site.meter.to_bytes())


def _received_site(pipe: Connection) -> Site:
    arrays = Container.from_bytes(pipe.recv_bytes(), kind="site", version=VERSION).arrays
    settings = json.loads(arrays["settings"].tobytes())
    fields = settings["policy"]
    identity = roster = None
    if "identity" in arrays:
        identity = Identity.from_bytes(arrays["identity"].tobytes())
        roster = Roster({name: bytes.fromhex(key) for name, key in settings["roster"].items()})
    budget = fields["budget"] and Budget(**fields["budget"])
    methods = None if fields["methods"] is None else frozenset(fields["methods"])
    approved = settings["approved"]
    return Site(
        settings["name"],
        receive_source(pipe),
        coordinator=bytes.fromhex(settings["coordinator"]),
        approved=None if approved is None else frozenset(approved),
        policy=Policy(**{**fields, "methods": methods, "budget": budget}),
        meter=Meter.from_bytes(arrays["meter"].tobytes()) if "meter" in arrays else None,
        ledger=settings["ledger"] and Ledger(settings["ledger"]),
        wire=settings["wire"],
        identity=identity,
        roster=roster,
    )


def _check(
    sources: Mapping[str, Source], given: Mapping[str, Mapping[str, Any]], wire: str
) -> None:
    for what, named in given.items():
        unknown = sorted(named.keys() - sources.keys())
        if unknown:
            raise InputError(
                f"{what} names {unknown[0]!r}, which is no site of sources. Use the same names."
            )
    check_wire(wire)


def _check_identities(
    sources: Mapping[str, Source], identities: Mapping[str, Identity] | None
) -> None:
    if identities is not None and identities.keys() != sources.keys():
        raise InputError(
            "identities must name the sites of sources, all of them and no others. "
            "Make one for each site, or pass none."
        )
