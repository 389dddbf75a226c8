"""Bytes with a header on a Unix socket, between our processes and FLARE's on the same machine.

A frame is the lengths of header and body (4 and 8 bytes, big-endian), the header as JSON, and the
body. A body of more than a megabyte does not go through the socket, which would copy it twice, but
is a file in memory whose descriptor does. The socket has mode 0600 in a folder of mode 0700;
nothing is ever pickled.
"""

import json
import mmap
import os
import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

Header = dict[str, Any]
Body = bytes | bytearray | memoryview

_LENGTHS = struct.Struct(">IQ")
_LARGEST_HEADER = 1 << 20
_LARGEST_BODY = 1 << 36
_BY_DESCRIPTOR = 1 << 20
_LONGEST_PATH = 100


class FrameTooLong(ConnectionError):
    """A frame whose body is longer than was allowed. It was not read; the next frame can be.

    Attributes
    ----------
    header : dict
    size : int
        Length of the body, in bytes.
    """

    def __init__(self, header: Header, size: int) -> None:
        super().__init__(f"A frame of {size} bytes was not read.")
        self.header, self.size = header, size


class FrameSocket:
    """A connected Unix socket that frames are sent through and received from.

    Several threads may send; one receives. Both raise ConnectionError once the other end is gone.
    """

    def __init__(self, connected: socket.socket) -> None:
        self._socket = connected
        self._sending = threading.Lock()

    def send(self, header: Header, body: Body = b"") -> None:
        """Send a frame."""
        head = json.dumps(header).encode()
        start = _LENGTHS.pack(len(head), len(body)) + head
        files = [_in_memory(body)] if len(body) > _BY_DESCRIPTOR else []
        try:
            with self._sending:
                sent = socket.send_fds(self._socket, [start], files)
                # Not where nothing is left: the other end may have all it wants, and be gone.
                if sent < len(start):
                    self._socket.sendall(start[sent:])
                if body and not files:
                    self._socket.sendall(body)
        except OSError as error:
            raise ConnectionError("The other end of the socket is gone.") from error
        finally:
            for file in files:
                os.close(file)

    def receive(self, largest: int = _LARGEST_BODY) -> tuple[Header, bytearray | memoryview]:
        """Wait for a frame; a large body is a read-only view.

        A body of more than `largest` bytes, and of more than a megabyte, raises `FrameTooLong`
        before any of it is read.
        """
        lengths, files = self._read_start()
        try:
            head_size, body_size = _LENGTHS.unpack(lengths)
            by_descriptor = body_size > _BY_DESCRIPTOR
            if (
                head_size > _LARGEST_HEADER
                or body_size > _LARGEST_BODY
                or len(files) != by_descriptor
            ):
                raise ConnectionError("The other end of the socket does not send frames.")
            header = json.loads(self._read(head_size))
            if by_descriptor:
                if body_size > largest:
                    raise FrameTooLong(header, body_size)
                if os.fstat(files[0]).st_size != body_size:
                    raise ConnectionError("The other end of the socket sent part of a frame.")
                return header, memoryview(mmap.mmap(files[0], body_size, prot=mmap.PROT_READ))
            return header, self._read(body_size)
        finally:
            for file in files:
                os.close(file)

    def close(self) -> None:
        """Close the socket, which ends what other threads wait for."""
        with suppress(OSError):  # the other end may have been faster
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()

    def _read_start(self) -> tuple[bytes, list[int]]:
        """Read the lengths, and the descriptors that come with them."""
        try:
            start, files, _, _ = socket.recv_fds(self._socket, _LENGTHS.size, 1)
        except OSError as error:
            raise ConnectionError("The other end of the socket is gone.") from error
        if not start:
            raise ConnectionError("The other end of the socket is closed.")
        return start + self._read(_LENGTHS.size - len(start)), list(files)

    def _read(self, size: int) -> bytearray:
        data = bytearray(size)
        view = memoryview(data)
        done = 0
        while done < size:
            try:
                count = self._socket.recv_into(view[done:])
            except OSError as error:
                raise ConnectionError("The other end of the socket is gone.") from error
            if not count:
                raise ConnectionError("The other end of the socket is closed.")
            done += count
        return data


def _in_memory(body: Body) -> int:
    """Return the descriptor of a file in memory with these bytes."""
    file = os.memfd_create("eigenfed")
    view = memoryview(body)
    done = 0
    while done < len(view):
        done += os.write(file, view[done:])
    return file


def listen_at(path: Path) -> socket.socket:
    """Listen on a Unix socket that only our own user can connect to."""
    path.unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    with _short_path(path) as address:
        listener.bind(address)
    path.chmod(0o600)  # before anybody can connect
    listener.listen(64)
    return listener


def connect_to(path: Path, timeout_s: float | None = None) -> FrameSocket:
    """Connect to a Unix socket; ConnectionError where nobody listens."""
    connected = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    connected.settimeout(timeout_s)
    try:
        with _short_path(path) as address:
            connected.connect(address)
    except OSError as error:
        connected.close()
        raise ConnectionError("Nobody listens at the socket.") from error
    return FrameSocket(connected)


@contextmanager
def _short_path(path: Path) -> Iterator[str]:
    """Yield a path to the same file that is short enough for the address of a socket."""
    if len(os.fsencode(path)) <= _LONGEST_PATH:
        yield str(path)
        return
    folder = os.open(path.parent, os.O_RDONLY)
    try:
        yield f"/proc/self/fd/{folder}/{path.name}"
    finally:
        os.close(folder)
