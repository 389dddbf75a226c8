"""Uses of a ledger in processes that die: run as a script, driven by lines of JSON.

The script loads eigenfed once and forks for each order, as starting anew takes seconds. A forked
process does a job on a ledger, says on the shared output what it did, and ends or is killed.
"""

import hashlib
import json
import os
import resource
import secrets
import signal
import sqlite3
import sys
import time
import traceback
from types import FrameType
from typing import Any

import scipy.optimize  # noqa: F401  # loaded before the forks, each of which would load it anew

from eigenfed.errors import EigenfedError
from eigenfed.privacy.ledger.events import Spent
from eigenfed.privacy.ledger.ledger import Budget, Ledger, Refusal, ReplyKey
from eigenfed.privacy.release import Leaves, Release, Reveals

RELEASE = Release("scatter", "d x d", Leaves.NOISED, Reveals.NOISE)
TERMS: dict[str, Any] = {
    "sensitivity": 1.0,
    "sd": 10.0,
    "relation": "replace_one",
    "mechanism": "gaussian",
}
MU = 0.1
ROUNDS = 3


def say(*words: object) -> None:
    os.write(1, (" ".join(map(str, words)) + "\n").encode())


def rounds(path: str, name: str, crowd: int) -> None:
    """Answer some rounds as the gate does; every reply has noise of its own."""
    with Ledger(path, create=True) as ledger:
        ledger.set_budget("cohort", Budget(epsilon=2.0, delta=1e-6))
        for round_ in range(ROUNDS):
            key = ReplyKey("cohort", "run", round_, "scatter", ask_digest=f"ask{round_}")
            reply = ledger.reply(key)
            if reply is None:
                ledger.spend(key, MU, **TERMS)
                noisy = secrets.token_bytes(6000)
                shapes = {"scatter": (5, 5)}
                reply = ledger.commit(key, noisy, RELEASE, shapes, paid=True, meter=counted)
            say("sent", round_, hashlib.sha256(reply).hexdigest())


def counted(meter: bytes | None) -> bytes:
    return (meter or b"") + b"+"


def hammer(path: str, name: str, crowd: int) -> None:
    """Spend in rounds of a run of its own until refused, once all of the crowd have begun."""
    with Ledger(path) as ledger:
        for round_ in range(1000):
            key = ReplyKey("cohort", name, round_, "scatter", ask_digest="ask")
            ledger.spend(key, MU, **TERMS)
            say("spent", name, round_)
            while len(runs(ledger)) < crowd:
                time.sleep(0.002)


def runs(ledger: Ledger) -> set[str]:
    return {e.what.key.run for e in ledger.events if isinstance(e.what, Spent)}


def look(path: str, name: str, crowd: int) -> None:
    """Open a ledger for reading."""
    with Ledger(path, readonly=True) as ledger:
        say("events", ledger.verify().events, ledger.verify().intact)


JOBS = {"rounds": rounds, "hammer": hammer, "look": look}


class Fate:
    """Counts steps of one sort, and kills the process at one of them."""

    def __init__(self, at: int) -> None:
        self.at = at
        self.count = 0

    def step(self) -> None:
        self.count += 1
        if self.count == self.at:
            os.kill(os.getpid(), signal.SIGKILL)

    def at_lines(self) -> None:
        """Take each line of Python in the ledger and in the job as a step."""

        def traced(frame: FrameType, event: str, arg: object) -> Any:
            if "eigenfed/privacy" not in frame.f_code.co_filename and frame.f_globals is not HERE:
                return None
            if event == "line":
                self.step()
            return traced

        sys.settrace(traced)

    def at_instructions(self) -> None:
        """Take each instruction of SQLite's machine as a step."""
        connect = sqlite3.connect

        def watched(*args: Any, **kwargs: Any) -> sqlite3.Connection:
            connection: sqlite3.Connection = connect(*args, **kwargs)
            connection.set_progress_handler(self.step, 1)
            return connection

        sqlite3.connect = watched  # type: ignore[assignment]


def limit_files(size: int, *, deadly: bool) -> None:
    """Let files grow to a size only: a write beyond it kills, or fails as on a full disk."""
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL if deadly else signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))


def run(order: dict[str, Any], name: str) -> None:
    fate = Fate(order.get("at", 0))
    match order.get("by"):
        case "lines":
            fate.at_lines()
        case "instructions":
            fate.at_instructions()
        case "writes":
            limit_files(order["at"], deadly=True)
        case "full":
            limit_files(order["at"], deadly=False)
        case "stranger" if os.geteuid() == 0:
            os.setgid(65534)
            os.setuid(65534)
        case _:
            pass
    try:
        JOBS[order["job"]](order["path"], name, len(order.get("names", ["only"])))
    except Refusal as refusal:
        say("refused", name, refusal.code)
    except EigenfedError as error:
        say("error", name, type(error).__name__)
    sys.settrace(None)
    say("steps", fate.count)


def serve() -> None:
    for line in sys.stdin:
        order = json.loads(line)
        children = []
        for name in order.get("names", ["only"]):
            child = os.fork()
            if child == 0:
                try:
                    run(order, name)
                except BaseException:
                    traceback.print_exc()
                    os._exit(1)
                os._exit(0)
            children.append(child)
        statuses = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
        say("end", *statuses)


HERE = globals()

if __name__ == "__main__":
    serve()
