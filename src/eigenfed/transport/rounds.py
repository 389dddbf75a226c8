"""What a transport remembers of its asks: how much went where, and what was known."""

from dataclasses import dataclass


@dataclass(frozen=True)
class RoundRecord:
    """One ask of a run. When it happened is not told: noise does not cover how long answers take.

    Attributes
    ----------
    round : int
        From 0.
    op : str
    sent, received : dict of str to int
        Bytes to and from each site that was heard, as they crossed.
    lost : tuple of str
        Sites that did not answer.
    residual : float or None
        Largest residual of the components before the ask, relative to the first eigenvalue, where
        the coordinator knew it.

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
    residual: float | None = None

    @property
    def bytes_up(self) -> int:
        """Bytes from all sites."""
        return sum(self.received.values())

    @property
    def bytes_down(self) -> int:
        """Bytes to all sites."""
        return sum(self.sent.values())
