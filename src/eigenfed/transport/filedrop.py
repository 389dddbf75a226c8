"""Messages as files in a folder, for sites that have no network: mail, SFTP or a courier.

::

    to-north/<run>-00003-product.request      written by the coordinator, read by site north
    from-north/<run>-00003-product.reply      written by site north, read by the coordinator

Each file is a bundle: signed, with a manifest that a person can read before it leaves
(``eigenfed drop show``). Files may come late, twice, in another order or under another name; what
counts is the manifest. A file that was altered is reported once and otherwise ignored, as if it had
not come. Nothing is lost when a program ends: it finds the files when it is started again.
"""

import hashlib
import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

from eigenfed.data.safe_files import open_regular, write_at_once
from eigenfed.errors import DataError
from eigenfed.protocol.messages import MAX_BYTES
from eigenfed.transport.bundles import (
    MOST_START_BYTES,
    Bundle,
    Manifest,
    digest_start,
    read_manifest,
    read_start,
)
from eigenfed.transport.local import Answering

_log = logging.getLogger(__name__)

_POLL_S = 0.1
_AGAIN_S = 1.0
_REQUEST, _REPLY = ".request", ".reply"


def to_site(drop: Path, site: str) -> Path:
    """Return the folder of requests to a site."""
    return drop / f"to-{site}"


def from_site(drop: Path, site: str) -> Path:
    """Return the folder of replies of a site."""
    return drop / f"from-{site}"


def name_bundle(manifest: Manifest) -> str:
    """Return the name of a bundle's file, without its suffix.

    It consists of the run's name, the round and the operation, and of nothing from the rows. Who
    wrote the bundle is not known yet, so that no character may lead to another folder, and no name
    may be longer than a folder can hold.
    """
    kind = manifest.operation if manifest.kind == "request" else manifest.kind
    return f"{_make_safe(manifest.run)}-{max(manifest.round, 0):05d}-{_make_safe(kind)}"


def _make_safe(text: str) -> str:
    return "".join(c if c.isascii() and (c.isalnum() or c in "-_") else "_" for c in text[:64])


class _Seen(NamedTuple):
    """A file as it was when it was read, and its manifest unless it was altered."""

    stamp: tuple[int, int]
    manifest: Manifest | None


class BundleFolder:
    """The bundles in a folder, each file read once unless it changes.

    Parameters
    ----------
    folder : Path
        Created if it does not exist.
    suffix : str
        Of the files to read.
    largest : callable, optional
        Returns how many bytes a file may have now; a longer one is not read, and is reported once.
    """

    def __init__(
        self, folder: Path, suffix: str, largest: Callable[[], int] = lambda: MAX_BYTES
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._folder = folder
        self._suffix = suffix
        self._largest = largest
        self._seen: dict[str, _Seen] = {}

    def read(self) -> Iterator[tuple[Path, Manifest]]:
        """Yield the bundles that are there now, in order of their names."""
        for path in sorted(self._folder.glob(f"*{self._suffix}")):
            manifest = self._read_once(path)
            if manifest is not None:
                yield path, manifest

    def _read_once(self, path: Path) -> Manifest | None:
        try:
            status = path.stat()
            stamp = status.st_mtime_ns, status.st_size
            known = self._seen.get(path.name)
            if known is None or known.stamp != stamp:
                known = _Seen(stamp, _read_manifest(path, self._largest()))
                self._seen[path.name] = known
            return known.manifest
        except OSError:
            # It was removed, or is still being copied: look again later.
            return None


def _read_manifest(path: Path, largest: int) -> Manifest | None:
    try:
        return Bundle.from_bytes(read_bounded(path, largest)).manifest
    except FileTooLong as error:
        _log.warning("%s", error)
    except DataError:
        _log.warning("%s is incomplete or was altered, and is ignored", path.name)
    return None


class FileTooLong(OSError):
    """A file is longer than a message may be, and was not read."""


def read_bounded(path: Path, largest: int) -> bytes:
    """Return the content of a file, unless it is longer than `largest` bytes.

    Raises
    ------
    FileTooLong
        Before any of it is read.
    OSError
        If it is not a regular file: a pipe would be waited for without end.
    """
    with open_regular(path) as file:
        size = os.fstat(file.fileno()).st_size
        if size > largest:
            raise FileTooLong(
                f"{path.name} has {size} bytes and may have at most {largest}: it is not read"
            )
        return file.read(size)


class DropConnection:
    """The coordinator's connection to one site by files.

    Parameters
    ----------
    drop : Path
        The drop folder.
    site : str
    stop : threading.Event
        Set to give up waiting.
    wait : bool, default=True
        Whether to wait for replies; otherwise a reply that is not there means a lost site.
    largest : int, optional
        How many bytes a reply may have; the file of a longer one is not read.
    """

    def __init__(
        self,
        drop: Path,
        site: str,
        stop: threading.Event,
        *,
        wait: bool = True,
        largest: int = MAX_BYTES,
    ) -> None:
        self._site = site
        self._out = to_site(drop, site)
        self._out.mkdir(parents=True, exist_ok=True)
        self._replies = BundleFolder(from_site(drop, site), _REPLY, lambda: largest)
        self._stop = stop
        self._wait = wait
        self._largest = largest
        self._refused: list[Path] = []

    def answer(self, data: bytes) -> bytes:
        """Write a request, and return the reply when it is there.

        Raises
        ------
        ConnectionError
            If it is not there and nobody waits for it.
        """
        bundle = Bundle.from_bytes(data)
        path = self._out / f"{name_bundle(bundle.manifest)}{_REQUEST}"
        if not _holds(path, data):
            write_at_once(path, data)
        answers = bundle.manifest.sha256, digest_start(data)
        while True:
            for found, reply in self._replies.read():
                if reply.answers in answers:
                    self._refused = [path, found] if reply.kind == "refusal" else []
                    return read_bounded(found, self._largest)
            if not self._wait or self._stop.wait(_POLL_S):
                raise ConnectionError(f"Site {self._site!r} has not replied to {path.name} yet.")

    def forget_refusal(self) -> None:
        """Remove the last request and the refusal of it, if it was refused.

        The site answers the request anew when it is written again.
        """
        for path in self._refused:
            path.unlink(missing_ok=True)
        self._refused = []

    def clear(self, run: str, *, keep_result: bool = False) -> None:
        """Remove the files of a run that is over; they hold what the site replied.

        With `keep_result`, the file that brings the result stays: the site has not taken it yet.
        """
        _remove_run(self._out, _REQUEST, run, ("close",) if keep_result else ())
        _remove_run(from_site(self._out.parent, self._site), _REPLY, run, largest=self._largest)


class DropInbox:
    """The site's end: answers requests that come as files.

    Parameters
    ----------
    drop : Path
        The drop folder.
    site : str
    answer : Answering
        Takes bundles, and returns bundles.
    largest : callable, optional
        Returns how many bytes a request may have now; the file of a longer one is not read.
    """

    def __init__(
        self,
        drop: Path,
        site: str,
        answer: Answering,
        largest: Callable[[], int] = lambda: MAX_BYTES,
    ) -> None:
        self._requests = BundleFolder(to_site(drop, site), _REQUEST, largest)
        self._out = from_site(drop, site)
        self._out.mkdir(parents=True, exist_ok=True)
        self._answer = answer
        self._largest = largest
        self._done: set[str] = set()
        self._refused: dict[str, Manifest] = {}
        self._later: dict[str, float] = {}

    def answer_all(self) -> int:
        """Answer the requests that are there and have no reply; return how many they were.

        Requests are answered in the order of their rounds, whatever their files are called. One
        that the site cannot answer yet stays as it is, and is looked at again later.
        """
        waiting = sorted(self._requests.read(), key=lambda found: _order(found[1]))
        count, failed = 0, None
        for path, manifest in waiting:
            try:
                count += self._answer_one(path, manifest)
            except OSError as error:
                failed = failed or error
        if failed is not None:
            raise failed
        return count

    def _answer_one(self, path: Path, manifest: Manifest) -> bool:
        """Answer a request, unless it has a reply or is to be looked at later."""
        reply = self._out / f"{name_bundle(manifest)}{_REPLY}"
        if manifest.sha256 in self._done or _answers(reply, manifest.sha256, path):
            return False
        if time.monotonic() < self._later.get(manifest.sha256, 0.0):
            return False
        if self._refused.get(path.name) is manifest:
            return False
        request = read_bounded(path, self._largest())
        data = self._answer.answer(request)
        if _waits(data):
            self._later[manifest.sha256] = time.monotonic() + _AGAIN_S
            return False
        answered = _read_answer(data)
        if answered is None or answered.answers != manifest.sha256:
            # Only this bundle is refused, since its signature is another's. The message may still
            # come as the coordinator has signed it, and the reply to it is in another file.
            mark = digest_start(request)[:16]
            reply = reply.with_name(f"{name_bundle(manifest)}-{mark}{_REPLY}")
        write_at_once(reply, data)
        if answered is None or answered.kind == "refusal":
            # The cause may be removed: when the request is brought again, it is answered anew.
            self._refused[path.name] = manifest
        else:
            self._done.add(manifest.sha256)
        return True

    def serve(self, stop: threading.Event) -> None:
        """Answer requests as they come, until `stop` is set."""
        while not stop.is_set():
            try:
                self.answer_all()
            except OSError as error:
                # A full disk or a folder that is away for a moment: the request is still there.
                _log.warning("the drop folder cannot be used: %s", error.strerror)
                stop.wait(_POLL_S)
            stop.wait(_POLL_S)


def _order(manifest: Manifest) -> tuple[bool, bool, str, int]:
    # An opening has round 0, as the first request has, and must come before it.
    return manifest.kind != "open", manifest.kind == "close", manifest.run, manifest.round


def _waits(reply: bytes) -> bool:
    """Return whether a site says that it will answer later."""
    manifest = _read_answer(reply)
    return manifest is not None and (manifest.kind, manifest.operation) == ("refusal", "waiting")


def _read_answer(reply: bytes) -> Manifest | None:
    try:
        return read_manifest(reply)
    except DataError:
        return None


def _answers(path: Path, asked: str, request: Path) -> bool:
    """Return whether a file is an intact reply to a request; little of it is in memory.

    A refusal is none once the request was brought again.
    """
    try:
        with open_regular(path) as file:
            written = os.fstat(file.fileno()).st_mtime_ns
            manifest, start = read_start(file.read(MOST_START_BYTES))
            file.seek(start)
            whole = hashlib.file_digest(file, "sha256").hexdigest()
        is_stale = manifest.kind == "refusal" and request.stat().st_mtime_ns > written
    except (OSError, DataError):
        return False
    return manifest.answers == asked and manifest.sha256 == whole and not is_stale


def _holds(path: Path, data: bytes) -> bool:
    """Return whether a file has exactly this content."""
    try:
        return read_bounded(path, len(data)) == data
    except OSError:
        return False


def _remove_run(
    folder: Path,
    suffix: str,
    run: str,
    kept: tuple[str, ...] = (),
    *,
    largest: int = MAX_BYTES,
) -> None:
    for path, manifest in BundleFolder(folder, suffix, lambda: largest).read():
        if manifest.run == run and manifest.kind not in kept:
            path.unlink(missing_ok=True)
