"""What a transport records of each round, and the log lines that it writes.

The log says which run, round and operation, which sites answered, and how many bytes in which
shapes; it never holds a value of a message. At INFO there is one line for each round, at DEBUG one
for each message.
"""

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from eigenfed.arrays import Arrays

if TYPE_CHECKING:
    from eigenfed.protocol.core import Call

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RoundRecord:
    """One round of a run. It holds no times: noise does not hide how long answers take.

    Attributes
    ----------
    round : int
        From 0.
    op : str
        The operation that was requested.
    sent, received : dict of str to int
        Bytes to and from each site that answered.
    lost : tuple of str
        Sites that did not answer.
    angle : float or None
        Largest estimated angle of a component before the round, in degrees, where the coordinator
        knew it.

    Examples
    --------
    >>> RoundRecord(0, "moments", {"a": 120}, {"a": 480, "b": 480}).bytes_up
    960
    """

    round: int
    op: str
    sent: dict[str, int]
    received: dict[str, int]
    lost: tuple[str, ...] = ()
    angle: float | None = None

    @property
    def bytes_up(self) -> int:
        """Bytes from all sites."""
        return sum(self.received.values())

    @property
    def bytes_down(self) -> int:
        """Bytes to all sites."""
        return sum(self.sent.values())


def log_round(run: str, record: RoundRecord) -> None:
    """Log a round that is over, at INFO."""
    _log.info(
        "run %s round %d %s: %d sites answered, %d lost%s, %d bytes up, %d bytes down",
        run,
        record.round,
        record.op,
        len(record.received),
        len(record.lost),
        f" ({', '.join(record.lost)})" if record.lost else "",
        record.bytes_up,
        record.bytes_down,
    )


def log_refusal(run: str, round_: int, op: str, site: str, code: str) -> None:
    """Log the code with which a site refused a request, at INFO."""
    _log.info("run %s round %d %s: site %s refused with the code %s", run, round_, op, site, code)


def log_message(
    run: str, round_: int, call: "Call[Any]", site: str, reply: Arrays, sizes: tuple[int, int]
) -> None:
    """Log one request and its reply by shapes and bytes, sent and received, at DEBUG."""
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug(
            "run %s round %d %s: site %s was sent %d bytes %s and replied %d bytes %s",
            run,
            round_,
            call.op,
            site,
            sizes[0],
            _shapes(call.for_site(site)),
            sizes[1],
            _shapes(reply),
        )


def _shapes(arrays: Arrays) -> dict[str, tuple[int, ...]]:
    return {name: array.shape for name, array in arrays.items()}
