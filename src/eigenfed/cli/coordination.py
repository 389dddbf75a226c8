"""What ``eigenfed coordinate`` has open while it runs a study of any kind."""

import threading
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from eigenfed.cli.output import Console

if TYPE_CHECKING:
    from eigenfed.cli.watching import WatchedRun
    from eigenfed.study.config import StudyFile
    from eigenfed.study.network.engines import Carrier
    from eigenfed.transport.engine import Callback

DELIVERY_S = 20.0
"""Time for sites to take the result, before the command ends."""


@dataclass(frozen=True)
class Coordination:
    """A running command.

    Attributes
    ----------
    console : Console
    study : StudyFile
    carrier : Carrier
        The engine of the study, which is up.
    out : Path
        The result folder.
    stop : threading.Event
        Set to end whatever waits for sites.
    patience_s : float
        How long to wait for sites beyond the quorum.
    watched : WatchedRun or None
        The live page, if there is one.
    """

    console: Console
    study: "StudyFile"
    carrier: "Carrier"
    out: Path
    stop: threading.Event
    patience_s: float
    watched: "WatchedRun | None" = None

    def follow(self, callback: "Callback | None" = None) -> "Callback | None":
        """Return a callback for finished rounds that the live page hears of too."""
        return callback if self.watched is None else self.watched.follow(callback)
