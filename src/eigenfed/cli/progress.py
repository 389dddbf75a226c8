"""How far a run is: rounds, residual, bytes and time left, on a terminal and only there."""

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
    """What is known of a run from its asks so far.

    Attributes
    ----------
    tol : float
        The residual at which it is done.
    clock : callable
        Gives seconds.

    Examples
    --------
    >>> from eigenfed.transport.rounds import RoundRecord
    >>> seconds = iter([0.0, 2.0, 4.0])
    >>> rounds = Rounds(tol=1e-8, clock=lambda: next(seconds))
    >>> rounds.take(RoundRecord(0, "product", {"a": 10}, {"a": 990}, residual=1e-2))
    >>> rounds.take(RoundRecord(1, "product", {"a": 10}, {"a": 990}, residual=1e-5))
    >>> rounds.text
    'round 2, product; residual 1.0e-05; 2.0 kB; about 2 s left'
    """

    tol: float
    clock: Callable[[], float] = time.monotonic
    _asks: int = 0
    _bytes: int = 0
    _op: str = ""
    _last_s: float = 0.0
    _seen: list[tuple[float, float]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._last_s = self.clock()

    def take(self, asked: "RoundRecord") -> None:
        """Learn of an ask that is over."""
        self._asks += 1
        self._bytes += asked.bytes_up + asked.bytes_down
        self._op = asked.op
        self._last_s = self.clock()
        if asked.residual is not None and 0.0 < asked.residual < math.inf:
            self._seen.append((self._last_s, asked.residual))

    @property
    def done(self) -> float | None:
        """What share of the way residuals have fallen, in digits; None if that is unknown."""
        if len(self._seen) < 2:
            return None
        first, last = self._seen[0][1], self._seen[-1][1]
        if first <= self.tol or last >= first:
            return None
        return min(math.log(first / last) / math.log(first / self.tol), 1.0)

    @property
    def left_s(self) -> float | None:
        """How long it may still take, if residuals go on to fall as they did; None if unknown."""
        if self.done is None:
            return None
        return (1.0 / self.done - 1.0) * (self._seen[-1][0] - self._seen[0][0])

    @property
    def text(self) -> str:
        """All of it in a line."""
        if not self._asks:
            return "reading rows, and the first round"
        parts = [f"round {self._asks}, {self._op}"]
        if self._seen:
            parts.append(f"residual {self._seen[-1][1]:.1e}")
        parts.append(size(self._bytes))
        if self.left_s is not None:
            parts.append(f"about {math.ceil(self.left_s)} s left")
        return "; ".join(parts)


@contextmanager
def shown(
    text: Callable[[], str], done: Callable[[], float | None] = lambda: None
) -> Iterator[None]:
    """Show a line that changes, from a second after the beginning, and take it away at the end.

    Parameters
    ----------
    text : callable
        Asked a few times a second.
    done : callable, optional
        Gives the share that is done, for a bar; None where it is unknown.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.progress_bar import ProgressBar
    from rich.spinner import Spinner
    from rich.table import Table
    from rich.text import Text

    spinner = Spinner("dots")

    def line() -> Table:
        share = done()
        bar = [] if share is None else [ProgressBar(completed=100.0 * share, width=16)]
        grid = Table.grid(padding=(0, 1))
        grid.add_row(spinner, *bar, Text(text(), overflow="ellipsis", no_wrap=True))
        return grid

    live = Live(
        get_renderable=line,
        console=Console(stderr=True),
        transient=True,
        redirect_stdout=False,
        redirect_stderr=False,
        refresh_per_second=8,
    )
    begins = threading.Timer(_AFTER_S, live.start)
    begins.daemon = True
    begins.start()
    try:
        yield
    finally:
        begins.cancel()
        begins.join()
        live.stop()
