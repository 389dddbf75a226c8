"""Progress of a run on a terminal: rounds, accuracy, bytes and remaining time."""

import math
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.transport.rounds import RoundRecord

_AFTER_S = 1.0


@dataclass
class Rounds:
    """Progress of a run, estimated from its rounds so far.

    Attributes
    ----------
    tol : float
        The angle at which the run ends, in degrees.
    clock : callable
        Returns the time in seconds.

    Examples
    --------
    >>> from eigenfed.transport.rounds import RoundRecord
    >>> seconds = iter([0.0, 2.0, 4.0])
    >>> rounds = Rounds(tol=1e-8, clock=lambda: next(seconds))
    >>> rounds.add(RoundRecord(0, "product", {"a": 10}, {"a": 990}, angle=1e-2))
    >>> rounds.add(RoundRecord(1, "product", {"a": 10}, {"a": 990}, angle=1e-5))
    >>> rounds.text
    'round 2, product; within 1.0e-05 degrees; 2.0 kB; about 2 s left'
    """

    tol: float
    clock: Callable[[], float] = time.monotonic
    _rounds: int = 0
    _bytes: int = 0
    _op: str = ""
    _last_s: float = 0.0
    _angles: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last_s = self.clock()

    def add(self, record: "RoundRecord") -> None:
        """Take account of a finished round."""
        self._rounds += 1
        self._bytes += record.bytes_up + record.bytes_down
        self._op = record.op
        self._last_s = self.clock()
        if record.angle is not None and record.angle > 0.0:
            self._angles.append((self._last_s, record.angle))

    @property
    def done(self) -> float | None:
        """Fraction of the digits from the first angle to `tol` gained; None if unknown."""
        if len(self._angles) < 2:
            return None
        first, last = self._angles[0][1], self._angles[-1][1]
        if first <= self.tol or last >= first:
            return None
        return min(math.log(first / last) / math.log(first / self.tol), 1.0)

    @property
    def left_s(self) -> float | None:
        """Remaining seconds if the angle keeps falling at this rate; None if unknown."""
        if self.done is None:
            return None
        return (1.0 / self.done - 1.0) * (self._angles[-1][0] - self._angles[0][0])

    @property
    def text(self) -> str:
        """The progress line."""
        if not self._rounds:
            return "reading rows"
        parts = [f"round {self._rounds}, {self._op}"]
        if self._angles:
            parts.append(f"within {self._angles[-1][1]:.1e} degrees")
        parts.append(size(self._bytes))
        if self.left_s is not None:
            parts.append(f"about {math.ceil(self.left_s)} s left")
        return "; ".join(parts)


@contextmanager
def show_progress(
    text: Callable[[], str], done: Callable[[], float | None] = lambda: None
) -> Iterator[None]:
    """Show a progress line after one second, and remove it at the end.

    Parameters
    ----------
    text : callable
        Returns the line; called a few times a second.
    done : callable, optional
        Returns the finished fraction, for a bar; None if unknown.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    spinner = Spinner("dots")

    def draw_line() -> Table:
        fraction = done()
        bar = [] if fraction is None else [ProgressBar(completed=100.0 * fraction, width=16)]
        grid = Table.grid(padding=(0, 1))
        grid.add_row(spinner, *bar, Text(text(), overflow="ellipsis", no_wrap=True))
        return grid

    live = Live(
        get_renderable=draw_line,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=8,
    )
    start = threading.Timer(_AFTER_S, live.start)
    start.daemon = True
    start.start()
    try:
        yield
    finally:
        start.cancel()
        # A timer that has just fired may still be starting the display.
        start.join()
        live.stop()
