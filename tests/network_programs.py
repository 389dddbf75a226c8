"""Coordinator and sites as programs of their own, which tests start, kill and start again."""

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_PATIENCE_S = 120.0


_PAUSING = """
import sys
from eigenfed.cli.main import main
from eigenfed.transport.remote import RemoteTransport

record = RemoteTransport._record_round

def record_and_wait(transport, round_, *rest):
    record(transport, round_, *rest)
    print("round", round_, file=sys.stdout, flush=True)
    sys.stdin.readline()

RemoteTransport._record_round = record_and_wait
main()
"""


class Program:
    """An `eigenfed` command in a process group of its own.

    With `pauses`, a coordinator waits after each round, before the round is kept, until `go_on`.
    """

    def __init__(self, folder: Path, *words: str, pauses: bool = False) -> None:
        self._log = folder / f"{words[0]}.log"
        command = ["-c", _PAUSING] if pauses else ["-m", "eigenfed"]
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, *command, *words],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.PIPE if pauses else subprocess.DEVNULL,
                start_new_session=True,
                env={**os.environ, "OPENBLAS_NUM_THREADS": "1"},
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_running(self) -> bool:
        return self._process.poll() is None

    def kill(self) -> None:
        """End it at once, with all that it has started in its session."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()

    def kill_alone(self) -> None:
        """End the process at once, and nothing that it has started."""
        self._process.kill()
        self._process.wait()

    def wait_for_round(self) -> int | None:
        """Return the round that is over, when one is; None if the program has ended."""
        assert self._process.stdout is not None
        assert select.select([self._process.stdout], [], [], _PATIENCE_S)[0], self.log
        word, _, number = self._process.stdout.readline().decode().partition(" ")
        return int(number) if word == "round" else None

    def go_on(self) -> None:
        """Let a coordinator that pauses go on."""
        assert self._process.stdin is not None
        self._process.stdin.write(b"\n")
        self._process.stdin.flush()

    def freeze(self) -> None:
        os.killpg(self._process.pid, signal.SIGSTOP)

    def thaw(self) -> None:
        os.killpg(self._process.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Ask it to stop, as a service manager does."""
        self._process.terminate()
        return self._process.wait(_PATIENCE_S)

    def finish(self) -> tuple[int, str]:
        """Wait for its end; return the exit code and the output."""
        out, _ = self._process.communicate(timeout=_PATIENCE_S)
        return self._process.returncode, out.decode()

    @property
    def log(self) -> str:
        return self._log.read_text()


@contextmanager
def keep_programs() -> Iterator[Callable[..., Program]]:
    """Yield a function that starts programs; none of them is left at the end."""
    started: list[Program] = []

    def start(folder: Path, *words: str, pauses: bool = False) -> Program:
        program = Program(folder, *words, pauses=pauses)
        started.append(program)
        return program

    try:
        yield start
    finally:
        for program in started:
            program.kill()


def wait_until(condition: Callable[[], Any], what: str) -> None:
    """Wait until something is so, and fail the test if it never is."""
    ends = time.monotonic() + _PATIENCE_S
    while not condition():
        assert time.monotonic() < ends, f"{what} did not happen"
        time.sleep(0.02)


def wait_for_file(folder: Path, pattern: str) -> None:
    """Wait until a folder has a file of such a name."""
    wait_until(lambda: list(folder.glob(pattern)), pattern)


def count_rounds(folder: Path) -> int:
    """Return how many rounds the coordinator has written down, over all of its runs."""
    return sum(
        len(path.read_text().splitlines()) for path in (folder / "network/runs").glob("*.jsonl")
    )


def read_facts(folder: Path) -> dict[str, Any]:
    facts: dict[str, Any] = json.loads((folder / "result.json").read_text())
    return facts
