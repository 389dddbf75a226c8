"""Coordinator and sites as programs of their own, which tests start, kill and start again."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

_PATIENCE_S = 120.0


class Program:
    """An `eigenfed` command in a process group of its own."""

    def __init__(self, folder: Path, *words: str) -> None:
        self._log = folder / f"{words[0]}.log"
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "eigenfed", *words],
                cwd=folder,
                stdout=subprocess.PIPE,
                stderr=log,
                stdin=subprocess.DEVNULL,
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
        if self._process.stdout is not None:
            self._process.stdout.close()

    def kill_alone(self) -> None:
        """End the process at once, and nothing that it has started."""
        self._process.kill()
        self._process.wait()

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

    def start(folder: Path, *words: str) -> Program:
        program = Program(folder, *words)
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
