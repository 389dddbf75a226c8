"""The server of a live page: read-only, on this machine only, for whoever has its address.

===========  ==================================================================================
address      a random token in the path; any other path is not found
machine      127.0.0.1 only, and requests must name it: a web page elsewhere that resolves its own
             name to this machine is refused
reader       may get the page and its state; can change nothing, and hold up nothing but itself
===========  ==================================================================================
"""

import logging
import re
import secrets
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, cast

from eigenfed.errors import InputError
from eigenfed.report.live_page import LIVE_POLICY, LiveView, render_live, render_update

_log = logging.getLogger(__name__)

ADDRESS = "127.0.0.1"
STATE = "state.json"
_LOCAL = re.compile(r"(127\.0\.0\.1|localhost)(:\d{1,5})?", re.ASCII | re.IGNORECASE)
_READERS = 32
_SILENCE_S, _CROWDED_S = 10.0, 0.5
_FOLLOWED_S, _LAST_LOOK_S = 7.0, 3.0
_HEADERS = {
    "Content-Security-Policy": LIVE_POLICY,
    "Cache-Control": "no-store",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Referrer-Policy": "no-referrer",
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
}


class WatchServer(ThreadingHTTPServer):
    """Serves one live page.

    Parameters
    ----------
    view : callable
        Returns what the page shows now; called from threads.
    port : int, default=0
        0 chooses a free one.

    Attributes
    ----------
    token : str
    """

    daemon_threads = True
    block_on_close = False

    def __init__(self, view: Callable[[], LiveView], port: int = 0) -> None:
        self.view = view
        self.token = secrets.token_urlsafe(24)
        self._read_at = float("-inf")
        self._was_read_to_the_end = threading.Event()
        self._free = threading.BoundedSemaphore(_READERS)
        super().__init__((ADDRESS, port), PageReader)

    @property
    def url(self) -> str:
        """The address of the page."""
        return f"http://{ADDRESS}:{self.server_address[1]}/{self.token}/"

    def begin_read(self) -> LiveView:
        """Note that a reader follows the page, and return the state for it."""
        self._read_at = time.monotonic()
        return self.view()

    def end_read(self, view: LiveView) -> None:
        """Note that a reader has got a state."""
        if view.is_over:
            self._was_read_to_the_end.set()

    def await_last_read(self) -> None:
        """Wait a moment for a reader who has been following to get the last state."""
        if time.monotonic() - self._read_at < _FOLLOWED_S:
            self._was_read_to_the_end.wait(_LAST_LOOK_S)

    def verify_request(self, request: Any, client_address: Any) -> bool:
        """Take a connection unless too many stay open."""
        return self._free.acquire(timeout=_CROWDED_S)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Answer in a thread of its own, and make room for another reader."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Ignore a reader that went away, and go on whatever else failed."""
        error = sys.exception()
        if not isinstance(error, ConnectionError):
            _log.warning("the live page could not be sent: %s", type(error).__name__)


class PageReader(BaseHTTPRequestHandler):
    """Answers one request for a live page."""

    timeout = _SILENCE_S
    server_version = "eigenfed"
    sys_version = ""

    def do_GET(self) -> None:
        """Send the page or its state."""
        self._answer(with_body=True)

    def do_HEAD(self) -> None:
        """Send the headers only."""
        self._answer(with_body=False)

    def _answer(self, *, with_body: bool) -> None:
        server = cast(WatchServer, self.server)
        if not self._is_local():
            self.send_error(HTTPStatus.FORBIDDEN)
            return
        _, token, name = parts if len(parts := self.path.split("/")) == 3 else ("", "", "")
        if not secrets.compare_digest(token.encode(), server.token.encode()):
            self.send_error(HTTPStatus.NOT_FOUND)
        elif name == "":
            self._send(render_live(server.view()), "text/html; charset=utf-8", with_body)
        elif name == STATE:
            view = server.begin_read()
            self._send(render_update(view), "application/json", with_body)
            server.end_read(view)
        else:
            self.send_error(HTTPStatus.NOT_FOUND)

    def _is_local(self) -> bool:
        """Return whether the request names this machine, under any port: it may be forwarded."""
        hosts = self.headers.get_all("Host") or []
        return len(hosts) == 1 and _LOCAL.fullmatch(hosts[0]) is not None

    def _send(self, body: bytes, kind: str, with_body: bool) -> None:
        tag = f'"{sha256(body).hexdigest()[:32]}"'
        is_known = self.headers.get("If-None-Match") == tag
        self.send_response(HTTPStatus.NOT_MODIFIED if is_known else HTTPStatus.OK)
        self.send_header("ETag", tag)
        self._finish(body, kind, with_body and not is_known)

    def _finish(self, body: bytes, kind: str, with_body: bool) -> None:
        for name, value in _HEADERS.items():
            self.send_header(name, value)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if with_body:
            self.wfile.write(body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Refuse a request, without repeating any of it."""
        status = HTTPStatus(code)
        if status is HTTPStatus.NOT_IMPLEMENTED:
            status = HTTPStatus.METHOD_NOT_ALLOWED
        self.send_response(status)
        if status is HTTPStatus.METHOD_NOT_ALLOWED:
            self.send_header("Allow", "GET, HEAD")
        with_body = self.command != "HEAD"
        self._finish(f"{status.phrase}\n".encode("ascii"), "text/plain; charset=utf-8", with_body)

    def log_message(self, format: str, *args: Any) -> None:
        """Log nothing: the path holds the token."""


@contextmanager
def serve_page(view: Callable[[], LiveView], port: int = 0) -> Iterator[str]:
    """Serve a live page while the context lasts, and yield its address.

    At the end, a reader who has been following is given a moment to get the last state.

    Parameters
    ----------
    view : callable
        Returns what the page shows now.
    port : int, default=0
        0 chooses a free one.

    Raises
    ------
    InputError
        If the port cannot be used.
    """
    try:
        server = WatchServer(view, port)
    except OSError as error:
        raise InputError(
            f"--watch-port {port} cannot be used ({error.strerror}). Choose another, or leave it "
            "out for one that is free."
        ) from None
    thread = threading.Thread(target=server.serve_forever, args=(0.1,), daemon=True)
    thread.start()
    try:
        yield server.url
    finally:
        server.await_last_read()
        server.shutdown()
        thread.join()
        server.server_close()
