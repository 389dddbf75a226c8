"""The server of live pages: for this machine and whoever has the address, and for nobody else."""

import http.client
import json
import logging
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest

from eigenfed.cli import watch_server
from eigenfed.cli.watch_server import serve_page
from eigenfed.errors import InputError
from eigenfed.report.live_page import LiveView
from eigenfed.report.live_run import view_run
from live_views import ended, run_at

VIEW = view_run(run_at(6))


@pytest.fixture
def url(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    monkeypatch.setattr(watch_server, "_LAST_LOOK_S", 0.0)
    with serve_page(lambda: VIEW) as address:
        yield address


def ask(
    url: str, path: str | None = None, method: str = "GET", **headers: str
) -> tuple[http.client.HTTPResponse, bytes]:
    """Ask the server of a page for a path, by default that of the page."""
    where = urlsplit(url)
    with closing(http.client.HTTPConnection(where.netloc, timeout=10)) as far:
        names = {name.replace("_", "-"): value for name, value in headers.items()}
        far.request(method, where.path if path is None else path, headers=names)
        reply = far.getresponse()
        return reply, reply.read()


def connect(url: str) -> socket.socket:
    where = urlsplit(url)
    return socket.create_connection((str(where.hostname), where.port or 0), timeout=10)


def send(url: str, request: bytes) -> bytes:
    """Send bytes to the server of a page, and return all that comes back."""
    with connect(url) as far:
        far.sendall(request)
        return b"".join(iter(lambda: far.recv(65536), b""))


def test_the_page_and_its_state_are_served_under_the_token(url: str) -> None:
    reply, page = ask(url)
    assert reply.status == 200
    assert b"Study heart" in page
    state, body = ask(url + "state.json")
    assert state.headers["Content-Type"] == "application/json"
    assert json.loads(body)["facts"]["run"] == run_at(6).run


def test_headers_forbid_everything_that_the_page_does_not_need(url: str) -> None:
    headers = ask(url)[0].headers
    policy = headers["Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; style-src 'sha256-")
    assert "unsafe" not in policy
    assert "http" not in policy
    assert "frame-ancestors 'none'" in policy
    assert headers["Cache-Control"] == "no-store"
    assert headers["Referrer-Policy"] == "no-referrer"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Set-Cookie"] is None
    assert headers["Access-Control-Allow-Origin"] is None
    assert headers["Server"].strip() == "eigenfed"


def test_without_the_token_nothing_is_found(url: str) -> None:
    token = urlsplit(url).path.strip("/")
    wrong = token[:-1] + ("a" if token[-1] != "a" else "b")
    paths = ("/", "//", "/state.json", f"/{wrong}/", f"/{token[:-1]}/", f"/{token}x/", "/%C3%A9/")
    beside = (
        f"/{token}",
        f"/{token}/other",
        f"/{token}/../{token}/",
        f"/{token}//",
        f"/./{token}/",
    )
    for path in (*paths, *beside):
        reply, body = ask(url, path)
        assert (reply.status, body) == (404, b"Not Found\n"), path
        assert reply.headers["Content-Security-Policy"]
    assert len(token) >= 32
    with serve_page(lambda: VIEW) as other:
        assert urlsplit(other).path != urlsplit(url).path


@pytest.mark.parametrize(
    "host",
    ["evil.example", "evil.example:80", "127.0.0.1.evil.example", "127.0.0.1@evil.example", ""],
)
def test_a_request_that_names_another_host_is_refused(url: str, host: str) -> None:
    assert ask(url, Host=host)[0].status == 403


def test_the_host_may_be_local_under_any_port(url: str) -> None:
    assert ask(url, Host="localhost")[0].status == 200
    assert ask(url, Host="localhost:9000")[0].status == 200


@pytest.mark.parametrize("hosts", [b"", b"Host: localhost\r\nHost: evil.example\r\n"])
def test_there_is_exactly_one_host(url: str, hosts: bytes) -> None:
    path = urlsplit(url).path.encode()
    assert send(url, b"GET %b HTTP/1.0\r\n%b\r\n" % (path, hosts)).startswith(b"HTTP/1.0 403 ")


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE"])
def test_nothing_can_be_done_but_reading(url: str, method: str) -> None:
    reply, body = ask(url, method=method)
    assert (reply.status, reply.headers["Allow"]) == (405, "GET, HEAD")
    assert body == b"Method Not Allowed\n"


def test_head_sends_the_headers_only(url: str) -> None:
    reply, body = ask(url, method="HEAD")
    assert (reply.status, body) == (200, b"")
    assert int(reply.headers["Content-Length"]) == len(ask(url)[1])
    assert ask(url, "/", method="HEAD")[1] == b""


def test_a_state_that_is_known_is_not_sent_again(url: str) -> None:
    tag = ask(url + "state.json")[0].headers["ETag"]
    reply, body = ask(url + "state.json", If_None_Match=tag)
    assert (reply.status, body) == (304, b"")
    assert ask(url + "state.json", If_None_Match='"other"')[0].status == 200


def test_what_is_no_request_is_refused_without_repeating_it(url: str) -> None:
    path = b"/<script>" * 9_000
    for line in (b"<script>", b"<script> / HTTP/1.0", b"GET /\xe9<script> HTTP/1.0", path):
        assert b"<script>" not in send(url, line + b"\r\nHost: localhost\r\n\r\n")
    assert ask(url)[0].status == 200


def test_readers_at_the_same_time_see_the_same(url: str) -> None:
    with ThreadPoolExecutor(12) as pool:
        found = set(pool.map(lambda _: ask(url + "state.json")[1], range(16)))
    assert len(found) == 1


def test_readers_that_hang_hold_up_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch_server, "_READERS", 4)
    with serve_page(lambda: VIEW) as url, ExitStack() as hanging:
        for _ in range(3):
            hanging.enter_context(connect(url)).sendall(b"GET /half-a-req")
        assert ask(url)[0].status == 200
        last = hanging.enter_context(connect(url))
        last.sendall(b"GET %b HTTP/1.0\r\n" % urlsplit(url).path.encode())
        assert send(url, b"") == b""
        last.sendall(b"Host: localhost\r\n\r\n")
        assert last.recv(13) == b"HTTP/1.0 200 "
    assert not [thread for thread in threading.enumerate() if "serve_forever" in thread.name]


def test_somebody_who_follows_gets_the_last_state() -> None:
    current, seen = [VIEW], list[bool]()
    read = threading.Event()

    def follow(url: str) -> None:
        while not (seen and seen[-1]):
            seen.append(json.loads(ask(url + "state.json")[1])["over"])
            read.set()

    with ThreadPoolExecutor(1) as pool:
        with serve_page(lambda: current[0]) as url:
            following = pool.submit(follow, url)
            assert read.wait(10)
            current[0] = view_run(ended(run_at(6)))
        following.result()
    assert seen[0] is False
    assert seen[-1] is True


def test_a_port_that_is_taken_is_named(url: str) -> None:
    port = urlsplit(url).port or 0
    with (
        pytest.raises(InputError, match=f"--watch-port {port} cannot be used"),
        serve_page(lambda: VIEW, port),
    ):
        pass


def test_a_page_that_fails_does_not_end_the_server(caplog: pytest.LogCaptureFixture) -> None:
    views = iter([None, VIEW])

    def view() -> LiveView:
        found = next(views)
        if found is None:
            raise ValueError("7770777.125")
        return found

    with serve_page(view) as url, caplog.at_level(logging.WARNING):
        with pytest.raises((http.client.HTTPException, ConnectionError)):
            ask(url)
        assert ask(url)[0].status == 200
    assert [record.getMessage() for record in caplog.records] == [
        "the live page could not be sent: ValueError"
    ]
    assert "7770777" not in caplog.text
