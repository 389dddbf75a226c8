"""The coordinator's end: starts FLARE's server, and asks sites through it."""

import logging
import os
import re
import secrets
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from eigenfed.errors import InputError, ProtocolError
from eigenfed.protocol.messages import MAX_BYTES
from eigenfed.transport.local import Answering
from eigenfed.transport.nvflare.engine_home import (
    bound_memory,
    check_installed,
    prepare_home,
    start_engine,
)
from eigenfed.transport.nvflare.hardening import check_hardened, is_of_site, read_address
from eigenfed.transport.nvflare.warden import Ward
from eigenfed.transport.nvflare.wire import Body, FrameSocket, FrameTooLong, Header, listen_at

logger = logging.getLogger(__name__)

_PRESENT_S = 8.0
_TOGETHER_S = 4.0
_LAUNCH_S = 20.0
_REPEAT_S = 60.0
_MOST_NOTICES = 256
_START_S = 60.0
_TICK_S = 0.25
_RETRY_S = 2.0
_UNKNOWN_CERTIFICATE = re.compile(r"Handshake failed.*CERTIFICATE_VERIFY_FAILED")
_OTHER_NAME = re.compile(r"authenticated as '([\w-]{1,80})' but claimed endpoint '([\w-]{1,80})")


class NvflareHub:
    """The connection of a coordinator to its sites, by a server of its own; a context manager.

    Parameters
    ----------
    kit : Path
        Kit of `create_server_kit`, which is checked first.
    sites : sequence of str
        Names of the sites; others that connect are not served.
    home : Path
        Folder for what the engine writes; emptied at the start.
    log : Path
        File that the output of the engine is appended to.
    silence_s : float, default=60.0
        A site of which nothing is heard for so long is lost. It starts when the hub does.
    largest : int, optional
        How many bytes a reply may have; a longer one is not read, and its site is lost.
    notice : callable, optional
        Takes a line for people: who was refused, what was restarted. By default it is logged.

    Raises
    ------
    ProtocolError
        If the kit is not hardened, is of a site, or FLARE is not installed.
    InputError
        If there is a space in the path of `home`, which FLARE could not use.
    """

    def __init__(
        self,
        kit: Path,
        sites: Sequence[str],
        *,
        home: Path,
        log: Path,
        silence_s: float = 60.0,
        largest: int = MAX_BYTES,
        notice: Callable[[str], None] = logger.warning,
    ) -> None:
        check_installed()
        check_hardened(kit)
        if is_of_site(kit):
            raise ProtocolError(f"The kit {kit.name!r} is of a site. Name the coordinator's.")
        self._kit, self._home, self._log = kit, home, log
        self._silence_s, self._largest, self._notice = silence_s, largest, notice
        self._noticed: dict[str, float] = {}
        self._changed = threading.Condition()
        self._sites = {name: _Site() for name in sites}
        self._connected: frozenset[str] = frozenset()
        self._launcher: FrameSocket | None = None
        self._controllers: list[FrameSocket] = []
        self._socket = home / "hub.sock"
        self._stop = threading.Event()
        self._supervisor: threading.Thread | None = None

    def __enter__(self) -> "NvflareHub":
        self._check_port()
        self._workspace = prepare_home(self._kit, self._home)
        self._listener = listen_at(self._socket)
        self._log.touch()
        self._read_log = self._log.stat().st_ino, self._log.stat().st_size
        self._server = self._start()
        self._begin(self._accept)
        try:
            self._await_server()
        except BaseException:
            self.__exit__()
            raise
        self._begun = time.monotonic()
        self._supervisor = self._begin(self._supervise)
        return self

    def __exit__(self, *exc: object) -> None:
        self._stop.set()
        with self._changed:
            self._changed.notify_all()
        if self._supervisor is not None:
            self._supervisor.join()
        self._server.end()
        self._listener.close()
        self._socket.unlink(missing_ok=True)

    def connect(self, site: str) -> Answering:
        """Return the connection to a site, whose ``answer`` retries across restarts.

        ``answer`` raises ConnectionError where nothing was heard of the site for `silence_s`, or
        the site could not answer. It may be repeated: a site answers the same request the same.
        """
        if site not in self._sites:
            raise InputError(f"site={site!r} must be one of the sites of the hub.")
        return _Connection(self, site)

    def present(self) -> frozenset[str]:
        """Return the sites that were heard of in the last few seconds."""
        now = time.monotonic()
        with self._changed:
            return frozenset(n for n, site in self._sites.items() if site.is_present(now))

    def wait_for(self, sites: Iterable[str], *, timeout_s: float) -> frozenset[str]:
        """Wait until all these sites are present, or the time is over; return those that are."""
        wanted = frozenset(sites)
        until = time.monotonic() + timeout_s
        while not wanted <= self.present() and time.monotonic() < until:
            with self._changed:
                self._changed.wait(_TICK_S)
        return wanted & self.present()

    def ask(self, site: str, data: bytes) -> bytes:
        """Ask a site, in as many attempts as restarts require."""
        key = secrets.token_hex(16)
        state = self._sites[site]
        with self._changed:
            state.awaited.add(key)
        try:
            while (reply := self._try(site, key, data)) is None:
                pass
            return reply
        finally:
            with self._changed:
                state.awaited.discard(key)
                state.replies.pop(key, None)

    def _try(self, site: str, key: str, data: bytes) -> bytes | None:
        """Ask a site once there is a way to it; None where it was lost meanwhile."""
        state = self._sites[site]
        with self._changed:
            while (controller := state.controller) is None:
                self._check_silence(site)
                self._changed.wait(_TICK_S)
            state.replies.pop(key, None)
        try:
            controller.send({"site": site, "key": key}, data)
        except ConnectionError:
            self._lose(controller)
        return self._await_reply(site, key, controller)

    def _await_reply(self, site: str, key: str, controller: FrameSocket) -> bytes | None:
        """Return the reply; None where the way to the site was lost, so that it is asked again."""
        state = self._sites[site]
        with self._changed:
            while key not in state.replies:
                if state.controller is not controller:
                    return None
                self._check_silence(site)
                self._changed.wait(_TICK_S)
            outcome, reply = state.replies.pop(key)
            if outcome == "failed":
                raise ConnectionError(f"Site {site!r} could not answer.")
            return reply if outcome == "answered" else None

    def _check_silence(self, site: str) -> None:
        if self._stop.is_set():
            raise ConnectionError("The connection to all sites is closed.")
        silent = time.monotonic() - max(self._begun, self._sites[site].heard)
        if silent > self._silence_s:
            raise ConnectionError(f"Nothing was heard of site {site!r} for {silent:.0f} s.")

    def _check_port(self) -> None:
        """Refuse a port that is taken: the engine would not report it."""
        host, port = read_address(self._kit)
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1" if host.startswith(("127.", "localhost")) else "", port))
            except OSError as error:
                raise ProtocolError(
                    f"Port {port} cannot be used ({error.strerror}). End the other coordinator, or "
                    "choose another port in the study file."
                ) from error

    def _await_server(self) -> None:
        until = time.monotonic() + _START_S
        with self._changed:
            while self._launcher is None:
                if not self._server.is_running() or time.monotonic() > until:
                    raise ProtocolError(
                        f"The server of FLARE did not start. {self._log.name} has its last words."
                    )
                self._changed.wait(_TICK_S)

    def _begin(self, work: Callable[[], None]) -> threading.Thread:
        thread = threading.Thread(target=work, daemon=True, name=f"eigenfed hub {work.__name__}")
        thread.start()
        return thread

    def _start(self) -> Ward:
        return start_engine(
            self._kit,
            self._workspace,
            socket=self._socket,
            log=self._log,
            memory=bound_memory(self._largest * len(self._sites)),
        )

    def _supervise(self) -> None:
        """Keep the server running, and a relay at every site that is connected."""
        first = 0.0
        while not self._stop.wait(_TICK_S):
            if not self._server.is_running():
                self._restart()
            self._follow_log()
            now = time.monotonic()
            with self._changed:
                waiting = sorted(
                    name
                    for name in self._connected & self._sites.keys()
                    if self._sites[name].needs_relay(now)
                )
                absent = self._sites.keys() - self._connected
            first = (first or now) if waiting else 0.0
            # Sites that come within seconds of each other share a job.
            if waiting and (not absent or now - first > _TOGETHER_S):
                self._launch(waiting, now)

    def _restart(self) -> None:
        self._report("The server of FLARE ended, and is started again.")
        self._server.end()
        try:
            self._workspace = prepare_home(self._kit, self._home)
            self._server = self._start()
        except OSError as error:
            self._report(f"The server of FLARE cannot be started ({error.strerror}).")
            self._stop.wait(_RETRY_S)

    def _follow_log(self) -> None:
        """Report who was refused, which only the engine's log has."""
        # The log begins again when it is long, and is not there for a moment.
        with suppress(FileNotFoundError), open(self._log, "rb") as file:
            number = os.fstat(file.fileno()).st_ino
            place = self._read_log[1] if self._read_log[0] == number else 0
            file.seek(place)
            for line in file:
                if not line.endswith(b"\n"):
                    break
                place += len(line)
                self._read_line(line.decode("utf-8", "replace"))
            self._read_log = number, place

    def _read_line(self, text: str) -> None:
        if _UNKNOWN_CERTIFICATE.search(text):
            self._report(
                "A connection was refused: its certificate is not from this study's authority."
            )
        elif found := _OTHER_NAME.search(text):
            self._report(
                f"A connection was refused: it has the certificate of site {found[1]!r}, and "
                f"claimed to be {found[2]!r}."
            )

    def _report(self, text: str) -> None:
        now = time.monotonic()
        if now - self._noticed.get(text, float("-inf")) > _REPEAT_S:
            if len(self._noticed) >= _MOST_NOTICES:
                self._noticed.clear()
            self._noticed[text] = now
            self._notice(text)

    def _launch(self, sites: list[str], now: float) -> None:
        launcher = self._launcher
        if launcher is not None:
            try:
                launcher.send({"sites": sites})
            except ConnectionError:
                return
            with self._changed:
                for name in sites:
                    self._sites[name].launched = now

    def _accept(self) -> None:
        while not self._stop.is_set():
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            far = FrameSocket(connected)
            threading.Thread(target=self._listen, args=(far,), daemon=True).start()

    def _listen(self, far: FrameSocket) -> None:
        """Receive what a launcher or a controller sends, until it is gone."""
        try:
            header, _ = far.receive()
            with self._changed:
                if header["from"] == "launcher":
                    self._launcher = far
                else:
                    self._controllers.append(far)
                self._changed.notify_all()
            while True:
                try:
                    self._take(far, *far.receive(self._largest))
                except FrameTooLong as found:
                    self._take(far, self._refuse_long(found), b"")
        except (ConnectionError, KeyError, ValueError):
            self._lose(far)

    def _refuse_long(self, found: FrameTooLong) -> Header:
        """Report a reply that is too long, and return it as one that failed."""
        self._report(
            f"Site {found.header.get('site')!r} sent {found.size} bytes, which were not read: the "
            f"study needs at most {self._largest}."
        )
        return {**found.header, "is": "failed"}

    def _take(self, far: FrameSocket, header: Header, body: Body) -> None:
        kind = header["is"]
        with self._changed:
            if kind == "connected":
                self._connected = frozenset(header["sites"])
                for name in self._connected & self._sites.keys():
                    self._sites[name].seen = time.monotonic() - header["sites"][name]
                for name in self._connected - self._sites.keys():
                    self._report(f"Site {name!r} is connected, but is no site of this study.")
            elif (site := self._sites.get(header["site"])) is None:
                return
            elif kind == "beat":
                self._take_beat(far, site)
            else:
                if header["key"] in site.awaited:
                    site.replies[header["key"]] = kind, bytes(body)
                if kind == "unreached" and site.controller is far:
                    site.lose()
            self._changed.notify_all()

    def _take_beat(self, far: FrameSocket, site: "_Site") -> None:
        """Note which controller reaches a site: of two, the newer; end one that reaches none."""
        order = self._controllers.index
        last = site.last_controller
        if last in self._controllers and far is not last and order(far) < order(last):
            return
        site.controller = site.last_controller = far
        site.heard = time.monotonic()
        if last is not None and last is not far:
            site.replies.clear()
            if all(other.last_controller is not last for other in self._sites.values()):
                last.close()

    def _lose(self, far: FrameSocket) -> None:
        """Forget a controller or a launcher that is gone; its sites wait for another."""
        with self._changed:
            if self._launcher is far:
                self._launcher, self._connected = None, frozenset()
            if far in self._controllers:
                self._controllers.remove(far)
            for site in self._sites.values():
                if site.controller is far:
                    site.lose()
            self._changed.notify_all()
        far.close()


@dataclass
class _Site:
    """What the hub knows of a site; times are those of a clock that never jumps."""

    controller: FrameSocket | None = None
    last_controller: FrameSocket | None = None
    heard: float = float("-inf")
    launched: float = float("-inf")
    seen: float = float("-inf")
    lost: float = float("-inf")
    awaited: set[str] = field(default_factory=set)
    replies: dict[str, tuple[str, bytes]] = field(default_factory=dict)

    def is_present(self, now: float) -> bool:
        return self.controller is not None and now - self.heard < _PRESENT_S

    def needs_relay(self, now: float) -> bool:
        """Whether a relay should be started there.

        Not before FLARE's client was heard of since the last one was lost: if the client is gone
        too, FLARE would wait for it.
        """
        waits = now - self.launched > _LAUNCH_S and self.seen > self.lost
        return waits and not self.is_present(now)

    def lose(self) -> None:
        """Note that the relay is gone."""
        self.controller, self.launched, self.lost = None, float("-inf"), time.monotonic()


class _Connection:
    """The connection to one site."""

    def __init__(self, hub: NvflareHub, site: str) -> None:
        self._hub, self._site = hub, site

    def answer(self, data: bytes) -> bytes:
        """Return the site's answer."""
        return self._hub.ask(self._site, data)
