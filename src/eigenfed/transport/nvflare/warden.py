"""A process that ends with its parent, and takes everything below it along, however deep.

``python -m eigenfed.transport.nvflare.warden LOG MEMORY COMMAND...`` runs a command until it ends,
or until standard input is closed, which the kernel does when the parent is killed. Then every
process that descends from the command is killed: FLARE starts job processes that outlive it
otherwise. They are found because Linux hands orphans to the warden. Should the warden itself be
killed, the command is killed by the kernel.

The warden also bounds what the command takes: its output goes through the warden to a log that
begins again when it is long, with the part before kept as ``<log>.1``; and no process of it
allocates more than MEMORY bytes, unless that is 0.
"""

import ctypes
import os
import resource
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import IO

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_GRACE_S = 10.0
_MOST_LOG_BYTES = 8 << 20
_LONGEST_LINE = 1 << 16


class Ward:
    """A command that runs under a warden, as seen by the parent.

    Parameters
    ----------
    command : sequence of str
    environment : mapping of str to str
    folder : Path
        Working folder.
    log : Path
        File that output is appended to, and that begins again when it is long.
    memory : int, default=0
        Bytes that each of its processes may allocate; 0 sets no limit.
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        environment: Mapping[str, str],
        folder: Path,
        log: Path,
        memory: int = 0,
    ) -> None:
        with open(log, "ab") as output:
            self._warden = subprocess.Popen(
                [sys.executable, "-m", __name__, str(log.resolve()), str(memory), *command],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=folder,
                env=dict(environment),
                start_new_session=True,
            )

    @property
    def pid(self) -> int:
        """Process number of the warden."""
        return self._warden.pid

    def is_running(self) -> bool:
        """Return whether the command still runs."""
        return self._warden.poll() is None

    def end(self) -> None:
        """Kill the command and all that descends from it, and wait until they are gone."""
        if self._warden.stdin is not None:
            with suppress(OSError):
                self._warden.stdin.close()
        try:
            self._warden.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            # Only a warden that was stopped by a signal is that late.
            for pid in [self.pid, *descendants(self.pid)]:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            self._warden.wait()


def descendants(pid: int) -> list[int]:
    """Return the processes that descend from a process."""
    children: dict[int, list[int]] = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            with suppress(OSError, IndexError):  # it may just have ended
                # The name of the program, in parentheses, may contain anything.
                fields = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                children.setdefault(int(fields[1]), []).append(int(folder.name))
    found = list(children.get(pid, ()))
    for child in found:  # it grows
        found.extend(children.get(child, ()))
    return found


def main(words: Sequence[str]) -> int:
    """Be a warden: run the command of these words, and return its exit code."""
    log, memory, command = Path(words[0]), int(words[1]), words[2:]
    if memory:
        resource.setrlimit(resource.RLIMIT_DATA, (memory, memory))
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
    )
    threading.Thread(target=_end_with_parent, args=(child.pid,), daemon=True).start()
    writer = threading.Thread(target=_write_log, args=(child.stdout, log), daemon=True)
    writer.start()
    code = child.wait()
    while below := descendants(os.getpid()):
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
    writer.join(_GRACE_S)
    return abs(code)


def _write_log(output: IO[bytes], log: Path, most: int = _MOST_LOG_BYTES) -> None:
    """Append output to a log, of which two parts of at most so many bytes are kept."""
    while line := output.readline(_LONGEST_LINE):
        # The command must not wait for a disk that is full.
        with suppress(OSError):
            if log.exists() and log.stat().st_size + len(line) > most:
                log.replace(log.with_name(f"{log.name}.1"))
            with open(log, "ab") as file:
                file.write(line)


def _end_with_parent(child: int) -> None:
    """Kill the command when standard input ends, as it does when the parent is gone."""
    while os.read(0, 1):
        pass
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
