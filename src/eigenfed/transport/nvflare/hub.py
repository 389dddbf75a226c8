"""The coordinator's end: starts FLARE's server, and asks sites through it."""

from collections.abc import Sequence
from pathlib import Path

from eigenfed.transport.local import Answering


class NvflareHub:
    """The connection of a coordinator to its sites, by a server of its own; a context manager.

    Parameters
    ----------
    kit : Path
        Kit of `create_server_kit`, which is checked first.
    sites : sequence of str
        Names of the sites.
    home : Path
        Folder for what the engine writes; emptied at the start.
    log : Path
        File for the output of the engine.
    silence_s : float, default=30.0
        A site of which nothing is heard for so long is lost.

    Raises
    ------
    ProtocolError
        If the kit is not hardened, FLARE is not installed, or the server does not start.
    """

    def __init__(
        self, kit: Path, sites: Sequence[str], *, home: Path, log: Path, silence_s: float = 30.0
    ) -> None:
        raise NotImplementedError

    def __enter__(self) -> "NvflareHub":
        raise NotImplementedError

    def __exit__(self, *exc: object) -> None:
        raise NotImplementedError

    def connect(self, site: str) -> Answering:
        """Return the connection to a site, whose ``answer`` retries across restarts.

        ``answer`` raises ConnectionError where nothing was heard of the site for `silence_s`.
        """
        raise NotImplementedError

    def present(self) -> frozenset[str]:
        """Return the sites that were heard of in the last few seconds."""
        raise NotImplementedError

    def wait_for(self, sites: Sequence[str], *, timeout_s: float) -> frozenset[str]:
        """Wait until all these sites are present, or the time is over; return those that are."""
        raise NotImplementedError
