"""Frames on a socket, and processes that do not outlive their parent."""

import os
import signal
import socket
import stat
import subprocess
import sys
import threading
import time
from io import BytesIO
from pathlib import Path

import pytest

from eigenfed.transport.nvflare import warden, wire
from eigenfed.transport.nvflare.warden import Ward, descendants
from eigenfed.transport.nvflare.wire import FrameSocket, FrameTooLong, connect_to, listen_at


@pytest.mark.parametrize("deep", [False, True])
def test_frames_come_out_as_they_went_in_however_long_the_path(tmp_path: Path, deep: bool) -> None:
    folder = tmp_path / ("x" * 60) / ("y" * 60) if deep else tmp_path
    folder.mkdir(parents=True, exist_ok=True)
    with listen_at(folder / "s") as listener:
        assert stat.S_IMODE((folder / "s").stat().st_mode) == 0o600
        near = connect_to(folder / "s", 5.0)
        accepted, _ = listener.accept()
        far = FrameSocket(accepted)
        for header, body in (
            ({"a": 1}, b""),
            ({"b": ["ü"]}, bytes(1 << 20)),
            ({"c": None}, os.urandom(3 << 20)),
            ({}, b"x"),
        ):
            sender = threading.Thread(target=near.send, args=(header, body))
            sender.start()
            received, data = far.receive()
            assert received == header
            assert bytes(data) == body
            sender.join()
        near.close()
        near.close()
        with pytest.raises(ConnectionError, match="is closed"):
            far.receive()
        with pytest.raises(ConnectionError, match="is gone"):
            far.send({}, bytes(1 << 20))
        far.close()
    with pytest.raises(ConnectionError, match="Nobody listens"):
        connect_to(folder / "s")


def test_what_is_no_frame_ends_the_connection(tmp_path: Path) -> None:
    with listen_at(tmp_path / "s") as listener:
        near = connect_to(tmp_path / "s", 0.2)
        accepted, _ = listener.accept()
        with accepted:
            accepted.sendall(wire._LENGTHS.pack(1 << 30, 0))
            with pytest.raises(ConnectionError, match="does not send frames"):
                near.receive()
            with pytest.raises(ConnectionError, match="is gone"):  # in time
                near.receive()
            part = os.memfd_create("part")
            start = wire._LENGTHS.pack(2, 5 << 20) + b"{}"
            socket.send_fds(accepted, [start], [part])
            os.close(part)
            with pytest.raises(ConnectionError, match="sent part of a frame"):
                near.receive()
            accepted.sendall(start)
            with pytest.raises(ConnectionError, match="does not send frames"):
                near.receive()
        near.close()


def family(log: Path) -> Ward:
    """A command whose grandchild has left its session, as FLARE's jobs have."""
    ward = Ward(
        ["sh", "-c", "setsid sleep 300 & echo started; sleep 300"],
        environment=os.environ,
        folder=log.parent,
        log=log,
    )
    while "started" not in log.read_text() or len(descendants(ward.pid)) < 3:
        time.sleep(0.02)
    return ward


def gone(pids: list[int]) -> bool:
    until = time.monotonic() + 10.0
    while any(Path(f"/proc/{pid}").exists() for pid in pids) and time.monotonic() < until:
        time.sleep(0.02)
    return not any(Path(f"/proc/{pid}").exists() for pid in pids)


def test_a_warden_leaves_nobody_behind(tmp_path: Path) -> None:
    ended = family(tmp_path / "a")
    below = descendants(ended.pid)
    assert ended.is_running()
    ended.end()
    assert not ended.is_running()
    assert gone(below)

    orphaned = family(tmp_path / "b")
    below = descendants(orphaned.pid)
    os.kill(below[0], signal.SIGKILL)
    assert gone(below)
    orphaned.end()

    frozen = family(tmp_path / "c")
    below = descendants(frozen.pid)
    os.kill(frozen.pid, signal.SIGSTOP)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("eigenfed.transport.nvflare.warden._GRACE_S", 0.2)
        frozen.end()
    assert gone(below)


def test_a_log_begins_again_when_it_is_long_and_no_longer_part_is_kept(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_bytes(b"before\n")
    lines = [b"%04d\n" % number for number in range(1000)]
    warden._write_log(BytesIO(b"".join(lines)), log, most=100)
    kept = (tmp_path / "log.1").read_bytes() + log.read_bytes()
    assert b"".join(lines).endswith(kept)
    assert {path.name for path in tmp_path.iterdir()} == {"log", "log.1"}
    assert all(path.stat().st_size <= 100 for path in tmp_path.iterdir())
    # A disk that is full does not hold up the command.
    (tmp_path / "none").touch()
    output = BytesIO(b"lost\n")
    warden._write_log(output, tmp_path / "none" / "log")
    assert not output.read()


def test_a_command_allocates_no_more_than_it_may(tmp_path: Path) -> None:
    log = tmp_path / "log"
    code = (
        "import sys; len(bytearray(1 << int(sys.argv[1]))); print('has', sys.argv[1], flush=True)"
    )
    both = f"{code}; bytearray(1 << 32)"
    ward = Ward(
        [sys.executable, "-c", both, "26"],
        environment=os.environ,
        folder=tmp_path,
        log=log,
        memory=1 << 30,
    )
    while ward.is_running():
        time.sleep(0.02)
    ward.end()
    assert "has 26" in log.read_text()
    assert "MemoryError" in log.read_text()


def test_a_command_ends_with_a_parent_that_is_killed(tmp_path: Path) -> None:
    code = (
        "import os, time; from pathlib import Path;"
        "from eigenfed.transport.nvflare.warden import Ward;"
        "w = Ward(['sleep', '300'], environment=os.environ, folder=Path('.'), log=Path('log'));"
        "print(w.pid, flush=True); time.sleep(300)"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], cwd=tmp_path, stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        warden = int(parent.stdout.readline())
        while not (below := descendants(warden)):
            time.sleep(0.02)
        parent.kill()
    assert gone([warden, *below])


def test_a_frame_that_is_too_long_is_not_read_and_the_next_one_is(tmp_path: Path) -> None:
    with listen_at(tmp_path / "s") as listener:
        near = connect_to(tmp_path / "s", 5.0)
        far = FrameSocket(listener.accept()[0])
        near.send({"a": 1}, bytes(3 << 20))
        near.send({"a": 2}, bytes(2 << 20))
        with pytest.raises(FrameTooLong) as found:
            far.receive(2 << 20)
        assert (found.value.header, found.value.size) == ({"a": 1}, 3 << 20)
        header, body = far.receive(2 << 20)
        assert (header, len(body)) == ({"a": 2}, 2 << 20)
        near.close()
        far.close()
