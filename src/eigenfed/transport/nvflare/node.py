"""The site's end: starts FLARE's client, and answers what comes through it."""

import logging
import os
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from eigenfed.errors import ProtocolError
from eigenfed.protocol.messages import MAX_BYTES
from eigenfed.transport.nvflare.engine_home import (
    bound_memory,
    check_installed,
    prepare_home,
    start_engine,
)
from eigenfed.transport.nvflare.handshake import Unreachable, check_connection
from eigenfed.transport.nvflare.hardening import (
    check_hardened,
    is_of_site,
    read_address,
    read_site,
)
from eigenfed.transport.nvflare.warden import Ward
from eigenfed.transport.nvflare.wire import FrameSocket, FrameTooLong, listen_at

logger = logging.getLogger(__name__)

_RETRY_S = 2.0
_TICK_S = 0.25
_HEARD_S = 12.0
_PROBE_S = 5.0
_FIRST_S = 30.0
_STUCK_S = 120.0
_HUNG_UP, _REGISTERED = b"CLIENT: finished connection", b"Successfully registered client"
_UNANSWERED, _MOST_UNANSWERED = b"re-challenge after", 3
"""What FLARE's client logs when the server hangs up on it, and every two seconds without an answer.

A server that does not accept the name of a client does one or the other, and gives no reason.
"""


class NvflareNode:
    """The connection of a site to its coordinator; a context manager.

    Parameters
    ----------
    kit : Path
        Kit of `create_site_kit`, which is checked first.
    answer : callable
        Takes a request and returns the reply, both as bytes. Called by one thread at a time. What
        it raises stays here: the coordinator hears of a fault, without any text.
    home : Path
        Folder for what the engine writes; emptied at the start.
    log : Path
        File that the output of the engine is appended to.
    largest : callable, optional
        Returns how many bytes a request may have now; a longer one is not read. By default there
        is no limit.
    notice : callable, optional
        Takes a line for people: what is wrong, what was restarted. By default it is logged.

    Raises
    ------
    ProtocolError
        If the kit is not hardened, is not of a site, or FLARE is not installed.
    InputError
        If there is a space in the path of `home`, which FLARE could not use.
    """

    def __init__(
        self,
        kit: Path,
        answer: Callable[[bytes], bytes],
        *,
        home: Path,
        log: Path,
        largest: Callable[[], int] = lambda: MAX_BYTES,
        notice: Callable[[str], None] = logger.warning,
    ) -> None:
        check_installed()
        check_hardened(kit)
        if not is_of_site(kit):
            raise ProtocolError(f"The kit {kit.name!r} is the coordinator's. Name the site's.")
        self._kit, self._answer, self._home, self._log = kit, answer, home, log
        self._largest, self._notice = largest, notice
        self._answering = threading.Lock()
        self._heard = float("-inf")
        self._problem = "not started"
        self._client: Ward | None = None

    def __enter__(self) -> "NvflareNode":
        prepare_home(self._kit, self._home)
        self._socket = self._home / "node.sock"
        self._listener = listen_at(self._socket)
        threading.Thread(target=self._accept, daemon=True, name="eigenfed node").start()
        return self

    def __exit__(self, *exc: object) -> None:
        if self._client is not None:
            self._client.end()
        self._listener.close()
        self._socket.unlink(missing_ok=True)

    def run(self, stop: threading.Event) -> None:
        """Keep the client running, restarting it as needed, until `stop` is set.

        Raises
        ------
        ConnectionError
            If the server and this site do not accept each other's certificates, which no waiting
            would change. A server that cannot be reached is waited for.
        """
        while not stop.is_set():
            try:
                check_connection(self._kit)
            except Unreachable as error:
                self._report(str(error))
                stop.wait(_RETRY_S)
                continue
            try:
                self._log.touch()
                self._begun_log = self._log.stat().st_ino, self._log.stat().st_size
                workspace = prepare_home(self._kit, self._home)
                self._client = start_engine(
                    self._kit,
                    workspace,
                    socket=self._socket,
                    log=self._log,
                    memory=bound_memory(self._largest()),
                )
            except OSError as error:
                self._report(f"The client of FLARE cannot be started ({error.strerror}).")
                stop.wait(_RETRY_S)
                continue
            self._report("")
            self._watch(self._client, stop)
            self._client.end()

    def _watch(self, client: Ward, stop: threading.Event) -> None:
        """Return when the client has to be started again: it ended, or lost the server for good.

        The client would try to reconnect for ever, at growing intervals.
        """
        begun = probed = time.monotonic()
        while not stop.wait(_TICK_S):
            now = time.monotonic()
            quiet = now - max(begun, self._heard)
            is_new = self._heard < begun and now - begun < _FIRST_S and not self._problem
            if is_new and self._is_turned_away():
                self._report(
                    f"The coordinator does not register site {read_site(self._kit)!r}: it does not "
                    "take a site of this name from here. Ask there whom the certificate is for."
                )
            if not client.is_running():
                self._report("The client of FLARE ended, and is started again.")
                return
            if quiet > _STUCK_S:
                self._report("Nothing is heard of the coordinator; the client is started again.")
                return
            if quiet > _HEARD_S and now - probed > _PROBE_S:
                probed = now
                try:
                    check_connection(self._kit)
                except ConnectionError:
                    return

    def _is_turned_away(self) -> bool:
        """Return whether the server is there, and does not let the client register."""
        number, place = self._begun_log
        with suppress(FileNotFoundError), open(self._log, "rb") as file:
            file.seek(place if os.fstat(file.fileno()).st_ino == number else 0)
            said = file.read()
            refused = _HUNG_UP in said or said.count(_UNANSWERED) >= _MOST_UNANSWERED
            if refused and _REGISTERED not in said:
                # A server that was ended hangs up as well, and cannot be reached then.
                with suppress(ConnectionError):
                    check_connection(self._kit)
                    return True
        return False

    def state(self) -> str:
        """Return in a few words how things stand, to show to people."""
        host, port = read_address(self._kit)
        if time.monotonic() - self._heard < _HEARD_S:
            return f"connected to {host}:{port}"
        return self._problem or f"connecting to {host}:{port}"

    def _report(self, problem: str) -> None:
        if problem and problem != self._problem:
            self._notice(problem)
        self._problem = problem

    def _accept(self) -> None:
        while True:
            try:
                connected, _ = self._listener.accept()
            except OSError:
                return
            far = FrameSocket(connected)
            threading.Thread(target=self._serve, args=(far,), daemon=True).start()

    def _serve(self, far: FrameSocket) -> None:
        """Answer pings and requests of one connection, until it is closed."""
        try:
            while True:
                self._serve_one(far)
        except (ConnectionError, KeyError, ValueError):
            far.close()

    def _serve_one(self, far: FrameSocket) -> None:
        try:
            header, data = far.receive(self._largest())
        except FrameTooLong as found:
            self._notice(
                f"A message of {found.size} bytes was not read: the approved studies need at most "
                f"{self._largest()}."
            )
            far.send({"is": "failure"})
            return
        if header["do"] == "ping":
            if header["heard"]:
                self._heard = time.monotonic()
            far.send({"is": "here"})
        else:
            self._reply(far, bytes(data))

    def _reply(self, far: FrameSocket, data: bytes) -> None:
        try:
            with self._answering:
                reply = self._answer(data)
        except Exception:
            logger.exception("The site could not answer a request.")
            far.send({"is": "failure"})
        else:
            far.send({"is": "answer"}, reply)
