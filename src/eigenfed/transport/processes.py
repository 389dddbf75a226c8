"""Sites in child processes: nothing is shared with them but a pipe that carries bytes.

===========  ==================================================================================
coordinator  replies as bytes; at the end, what left each site and its leakage meter
site         its own rows, policy, meter and identity, handed over once at the start; then
             messages as bytes
===========  ==================================================================================

Rows cross the pipe in checked parts of a few megabytes and are put together in the child, so
neither side holds a second copy of the table. Shared memory would save the copy, but a default
container has 64 MB of it and kills a process that writes beyond that without any message.
"""

import json
import multiprocessing
import os
import signal
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass
from multiprocessing import resource_tracker
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse
from threadpoolctl import threadpool_limits

from eigenfed.arrays import Container
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import Loci
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError
from eigenfed.linalg.sparse_rows import gather
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import check_wire
from eigenfed.transport.engine import Callback, Engine, SiteSetup
from eigenfed.transport.local import LocalTransport
from eigenfed.transport.run_account import SiteAccount, egress_from_json, egress_to_json

_VERSION = 1
_PART_BYTES = 4 << 20
_READY, _END = b"ready", b"end"
_GRACE_S = 2.0
_EXIT_S = 10.0
_ACCOUNT_S = 30.0


@dataclass(frozen=True, kw_only=True)
class Processes(Engine):
    """Sites in child processes of this machine, one each.

    The children are fresh interpreters, so a script must call ``fit`` under
    ``if __name__ == "__main__":``. A child takes a second or two to start and is handed its rows
    through a pipe. A ledger given to a site must be a file, which the child opens itself.

    Attributes
    ----------
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats in messages. "float32" halves the bytes. Its rounding turns
        components by about 1e-4 degrees or less; the certificate counts it, with residuals of
        about 1e-5, so that a smaller ``tol`` is not met. It cannot be combined with secure
        aggregation, privacy or ``split="features"``.
    deadline_s : float, optional
        How long to wait for the answers to a request, in seconds; without limit by default.

    Examples
    --------
    >>> from eigenfed import FederatedPCA
    >>> pca = FederatedPCA(2, transport=Processes(deadline_s=600.0))
    """

    def connect(
        self,
        setups: Mapping[str, SiteSetup],
        *,
        wire: str,
        deadline_s: float | None = None,
        callback: Callback | None = None,
    ) -> "ProcessTransport":
        """Start a child for each site and hand its rows over."""
        wait = self.deadline_s if deadline_s is None else deadline_s
        return ProcessTransport(setups, wire=wire, deadline_s=wait, callback=callback)


class ProcessTransport(LocalTransport):
    """Exchanges messages with sites in child processes, which share the processors.

    Use it as a context manager, or call `close`; children whose parent ends without that end by
    themselves. Results are bit-equal to those of `LocalTransport` where that one uses one BLAS
    thread too, as it does with two sites or more on two processors or more.

    Parameters
    ----------
    setups : mapping of str to SiteSetup
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats that are sent, both ways.
    workers : int, optional
        How many sites work at a time; all of them by default.
    run, deadline_s, callback
        As in `LocalTransport`.

    Attributes
    ----------
    accounts : dict of str to SiteAccount
        After `close`: what left each site, and its meter. A site that was lost, or was still at
        work, has none: whatever it was asked must be taken as answered.

    Raises
    ------
    InputError
        If a ledger is kept in memory, where a child cannot reach it.
    ProtocolError
        If a child does not start.
    """

    def __init__(
        self,
        setups: Mapping[str, SiteSetup],
        *,
        wire: str = "float64",
        workers: int | None = None,
        run: str | None = None,
        deadline_s: float | None = None,
        callback: Callback | None = None,
    ) -> None:
        check_wire(wire)
        for setup in setups.values():
            _check_ledger(setup)
        self._accounts: dict[str, SiteAccount] = {}
        self._children: dict[str, _Child] = {}
        try:
            threads = max(1, (os.cpu_count() or 1) // max(1, len(setups)))
            for name in setups:  # all start first, since each takes a while
                self._children[name] = _Child(name, threads)
            for name, setup in setups.items():
                self._children[name].hand_over(setup, wire)
            super().__init__(
                self._children,
                wire=wire,
                workers=workers or len(setups),
                run=run,
                deadline_s=deadline_s,
                callback=callback,
            )
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> "ProcessTransport":
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    @property
    def accounts(self) -> dict[str, SiteAccount]:
        """What left each site, once the transport is closed."""
        return self._accounts

    def close(self) -> None:
        """Fetch the accounts and end the children; requests after that find all sites lost."""
        ended = {name: child.end() for name, child in self._children.items()}
        self._children = {}
        self._accounts |= {name: found for name, found in ended.items() if found is not None}
        super().close()


def _check_ledger(setup: SiteSetup) -> None:
    if setup.ledger is not None and setup.ledger.files is None:
        raise InputError(
            f"The ledger of site {setup.name!r} is kept in memory, where a child process cannot "
            "write to it. Pass a Ledger that is a file, or transport='local'."
        )


class _Child:
    """The connection to one site: a process and the near end of its pipe."""

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
            with _holding_interrupts():
                self._process.start()
        except (OSError, RuntimeError, AssertionError) as error:
            # multiprocessing reports by an assertion that a daemon may not have children.
            self._pipe.close()
            raise self._not_started() from error
        finally:
            far.close()

    def hand_over(self, setup: SiteSetup, wire: str) -> None:
        """Send all that the site is made of, and wait until it is ready."""
        try:
            self._pipe.send_bytes(_encode_setup(setup, wire))
            send_source(self._pipe, setup.source)
            self._ready = self._pipe.recv_bytes() == _READY
        except (EOFError, OSError) as error:
            raise self._not_started() from error

    def answer(self, data: bytes) -> bytes:
        """Send a message and return the site's answer; ConnectionError where it is gone."""
        # A request whose deadline passed still waits for its answer: the next one must queue.
        with self._lock:
            try:
                self._pipe.send_bytes(data)
                return self._pipe.recv_bytes()
            except (EOFError, OSError) as error:
                raise ConnectionError(f"The process of site {self._name!r} is gone.") from error

    def end(self) -> SiteAccount | None:
        """End the process, by force if necessary; return its account if it still gives one."""
        data = None
        if self._ready and self._lock.acquire(timeout=_GRACE_S):
            with suppress(EOFError, OSError):
                self._pipe.send_bytes(_END)
                data = self._pipe.recv_bytes() if self._pipe.poll(_ACCOUNT_S) else None
                # With its account sent, the child has only its interpreter to end, which may take
                # seconds on a busy machine.
                self._process.join(_GRACE_S if data is None else _EXIT_S)
            self._lock.release()
        self._process.kill()
        self._process.join()
        with self._lock:  # a thread that still waits for an answer must first find that none comes
            self._pipe.close()
        return None if data is None else _decode_account(data)

    def _not_started(self) -> ProtocolError:
        return ProtocolError(
            f"The process of site {self._name!r} did not start. Call from a file, under "
            '`if __name__ == "__main__":`, in a process that may have children and has memory '
            "for the site's rows."
        )


@contextmanager
def _holding_interrupts() -> Iterator[None]:
    """Start children with interrupts blocked: until `_serve` they would print a traceback."""
    # The tracker starts first: started with a child, it would unblock interrupts for that one.
    resource_tracker.ensure_running()
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _serve(pipe: Connection, threads: int) -> None:
    """Be a site until the parent ends it, or is gone."""
    # An interrupt from the keyboard reaches the whole group; the parent is the one to act on it.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threadpool_limits(limits=threads, user_api="blas")
    with one_blas_thread, suppress(EOFError, ConnectionError):
        site = _receive_site(pipe)
        pipe.send_bytes(_READY)
        while (data := _receive(pipe)) != _END:
            pipe.send_bytes(site.answer(data))
        pipe.send_bytes(_encode_account(site))


def _receive(pipe: Connection) -> bytes:
    """Return the next message; EOFError also where the parent ended within one."""
    try:
        return pipe.recv_bytes()
    except OSError as error:
        raise EOFError from error


def _encode_setup(setup: SiteSetup, wire: str) -> bytes:
    """Write all that a site is made of, except its rows."""
    policy, roster = setup.policy, setup.roster
    files = None if setup.ledger is None else setup.ledger.files
    settings = {
        "name": setup.name,
        "wire": wire,
        "coordinator": setup.coordinator.hex(),
        "approved": None if setup.approved is None else sorted(setup.approved),
        "policy": {
            **asdict(policy),
            "methods": None if policy.methods is None else sorted(policy.methods),
        },
        "ledger": files and [os.path.abspath(file) for file in files],
        "pays": setup.pays,
        "dataset": setup.dataset,
        "filtered": setup.filtered,
        "roster": None if roster is None else {n: key.hex() for n, key in roster.keys.items()},
    }
    arrays = {"settings": _as_bytes(settings)}
    if setup.meter is not None:
        arrays["meter"] = np.frombuffer(setup.meter.to_bytes(), np.uint8)
    if setup.identity is not None:
        arrays["identity"] = np.frombuffer(setup.identity.to_bytes(), np.uint8)
    return Container("site", _VERSION, {}, arrays).to_bytes()


def _receive_site(pipe: Connection) -> Site:
    arrays = Container.from_bytes(_receive(pipe), kind="site", version=_VERSION).arrays
    settings = json.loads(arrays["settings"].tobytes())
    fields, roster, files = settings["policy"], settings["roster"], settings["ledger"]
    budget = fields["budget"] and Budget(**fields["budget"])
    methods = None if fields["methods"] is None else frozenset(fields["methods"])
    approved = settings["approved"]
    setup = SiteSetup(
        settings["name"],
        receive_source(pipe),
        bytes.fromhex(settings["coordinator"]),
        None if approved is None else frozenset(approved),
        Policy(**{**fields, "methods": methods, "budget": budget}),
        Meter.from_bytes(arrays["meter"].tobytes()) if "meter" in arrays else None,
        None if files is None else Ledger(files[0], witness=files[1]),
        settings["pays"],
        settings["dataset"],
        Identity.from_bytes(arrays["identity"].tobytes()) if "identity" in arrays else None,
        None if roster is None else Roster({n: bytes.fromhex(key) for n, key in roster.items()}),
        settings["filtered"],
    )
    return setup.make(settings["wire"])


def _encode_account(site: Site) -> bytes:
    arrays = {
        "meter": np.frombuffer(site.meter.to_bytes(), np.uint8),
        "egress": _as_bytes(egress_to_json(tuple(site.egress))),
    }
    return Container("account", _VERSION, {}, arrays).to_bytes()


def _decode_account(data: bytes) -> SiteAccount:
    arrays = Container.from_bytes(data, kind="account", version=_VERSION).arrays
    egress = egress_from_json(json.loads(arrays["egress"].tobytes()))
    return SiteAccount(egress, Meter.from_bytes(arrays["meter"].tobytes()))


_PACKED = ("packed", "people", "places", "swapped")
_LOCI = ("chromosome", "position", "matched")


def send_source(pipe: Connection, source: Source) -> None:
    """Send a source in parts, each a `Container`: rows of any kind, with weights and names."""
    X = gather(source.X)
    # Rows in the other memory order would take other BLAS kernels, with other last bits.
    turned = isinstance(X, np.ndarray) and X.flags.f_contiguous and not X.flags.c_contiguous
    arrays: dict[str, npt.NDArray[Any]] = {"X": X.T if turned else X}
    if isinstance(X, Genotypes):
        arrays = {name: getattr(X, name) for name in _PACKED}
        loci = {name: getattr(X.loci, name, None) for name in _LOCI}
        arrays |= {name: array for name, array in loci.items() if array is not None}
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
    header = Container("source", _VERSION, {}, {"described": _as_bytes(described)})
    pipe.send_bytes(header.to_bytes())
    for array in arrays.values():
        step = max(1, _PART_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            part = array[start : start + step]
            is_sendable = part.dtype.kind == "f" or part.dtype == np.uint8
            sent = part if is_sendable else part.astype(np.int64)
            pipe.send_bytes(Container("part", _VERSION, {}, {"part": sent}).to_bytes())


def receive_source(pipe: Connection) -> Source:
    """Put together what `send_source` sent."""
    header = Container.from_bytes(_receive(pipe), kind="source", version=_VERSION)
    described = json.loads(header.arrays["described"].tobytes())
    arrays = {}
    for name, dtype, shape in described["arrays"]:
        arrays[name] = array = np.empty(shape, dtype)
        start = 0
        while start < len(array):
            part = Container.from_bytes(_receive(pipe), kind="part", version=_VERSION)
            rows = part.arrays["part"]
            array[start : start + len(rows)] = rows
            start += len(rows)
    X: Any = arrays.get("X")
    if "packed" in arrays:
        loci = {name: arrays[name] for name in _LOCI if name in arrays}
        X = Genotypes(
            **{name: arrays[name] for name in _PACKED}, loci=Loci(**loci) if loci else None
        )
    elif X is None:
        stored = (arrays["data"], arrays["indices"], arrays["indptr"])
        X = sparse.csr_array(stored, shape=tuple(described["shape"]))
    names = described["names"]
    return Source(X.T if described["turned"] else X, arrays.get("weights"), names and tuple(names))


def _as_bytes(values: Any) -> npt.NDArray[np.uint8]:
    """Write JSON as an array: a header has no room for the names of a million features."""
    return np.frombuffer(json.dumps(values).encode(), np.uint8)
