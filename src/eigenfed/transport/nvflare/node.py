"""The site's end: starts FLARE's client, and answers what comes through it."""

import threading
from collections.abc import Callable
from pathlib import Path


class NvflareNode:
    """The connection of a site to its coordinator; a context manager.

    Parameters
    ----------
    kit : Path
        Kit of `create_site_kit`, which is checked first.
    answer : callable
        Takes a request and returns the reply, both as bytes. Called by one thread at a time. What
        it raises stays here: the coordinator hears of a fault, without any text.
    home : Path
        Folder for what the engine writes; emptied at the start.
    log : Path
        File for the output of the engine.

    Raises
    ------
    ProtocolError
        If the kit is not hardened or FLARE is not installed.
    """

    def __init__(
        self, kit: Path, answer: Callable[[bytes], bytes], *, home: Path, log: Path
    ) -> None:
        raise NotImplementedError

    def __enter__(self) -> "NvflareNode":
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def run(self, stop: threading.Event) -> None:
        """Keep the client running, restarting it as needed, until `stop` is set."""
        raise NotImplementedError

    def state(self) -> str:
        """Return in a few words how things stand, to show to people."""
        raise NotImplementedError
