"""A process that ends with its parent, and takes everything below it along, however deep.

``python -m eigenfed.transport.nvflare.warden COMMAND...`` runs a command until it ends, or until
standard input is closed, which the kernel does when the parent is killed. Then every process that
descends from the command is killed: FLARE starts job processes that outlive it otherwise. They are
found because Linux hands orphans to the warden. Should the warden itself be killed, the command
is killed by the kernel.
"""

import ctypes
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

_PR_SET_PDEATHSIG, _PR_SET_CHILD_SUBREAPER = 1, 36
_GRACE_S = 10.0


class Ward:
    """A command that runs under a warden, as seen by the parent.

    Parameters
    ----------
    command : sequence of str
    environment : mapping of str to str
    folder : Path
        Working folder.
    log : Path
        File that output is appended to.
    """

    def __init__(
        self, command: Sequence[str], *, environment: Mapping[str, str], folder: Path, log: Path
    ) -> None:
        with open(log, "ab") as output:
            self._warden = subprocess.Popen(
                [sys.executable, "-m", __name__, *command],
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
        """Tell whether the command still runs."""
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


def main(command: Sequence[str]) -> int:
    """Be a warden: run the command, and return its exit code."""
    prctl = ctypes.CDLL(None).prctl
    prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    child = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        preexec_fn=lambda: prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0),
    )
    threading.Thread(target=_end_with_parent, args=(child.pid,), daemon=True).start()
    code = child.wait()
    while below := descendants(os.getpid()):
        for pid in below:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        with suppress(ChildProcessError):
            os.waitpid(-1, 0)
    return abs(code)


def _end_with_parent(child: int) -> None:
    """Kill the command when standard input ends, as it does when the parent is gone."""
    while os.read(0, 1):
        pass
    with suppress(ProcessLookupError):
        os.kill(child, signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
