"""The chain of hashes that ties a ledger's events together, and what checking it can find.

A change, a removal, an insertion or a swap anywhere breaks the chain there or one event later.
Two things it cannot find by itself: events cut off at the end, and a chain written anew by
somebody who may write to the file. Both are found against a head that was noted elsewhere, as the
head file is (see `witness`): a ledger only grows, so every head it ever had stays in it.
"""

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from eigenfed.errors import DataError
from eigenfed.privacy.events import BEFORE_FIRST, Event, Opened, chained


class Row(NamedTuple):
    """An event as it is stored."""

    number: int
    body: bytes
    hash: bytes


class Link(NamedTuple):
    """An event whose place in the chain was checked, and its hash."""

    event: Event
    hash: bytes


@dataclass(frozen=True)
class Verdict:
    """What checking a ledger found.

    Attributes
    ----------
    events : int
        How many events are sound, from the first on.
    head : str
        Hash of the last of them, to be noted elsewhere.
    broken_at : int or None
        Number of the first event that is not.
    why : str
        Empty if all is sound.
    witnessed : bool
        Whether a head file was there to compare with.

    Examples
    --------
    >>> Verdict(events=4, head="9b2c", broken_at=5, why="it was changed").text
    'Broken at event 5: it was changed.'
    """

    events: int
    head: str
    broken_at: int | None = None
    why: str = ""
    witnessed: bool = False

    @property
    def sound(self) -> bool:
        """Whether nothing was found."""
        return not self.why

    @property
    def text(self) -> str:
        """The verdict as a sentence."""
        if self.sound:
            return f"{self.events} events, sound, up to head {self.head}."
        return f"Broken at event {self.broken_at}: {self.why}."


class Broken(DataError):
    """The ledger is not what it was: nothing may leave until a person has acted.

    Attributes
    ----------
    number : int
        Of the first event that does not fit.
    why : str
    """

    def __init__(self, number: int, why: str, text: str = "") -> None:
        self.number = number
        self.why = why
        super().__init__(
            text
            or f"The ledger is broken at event {number}: {why}. Nothing may be spent on it. "
            "Restore the last copy that verifies, and find out who changed it."
        )


def links(rows: Iterable[Row], number: int = 0, head: bytes = BEFORE_FIRST) -> Iterator[Link]:
    """Check events in order, those that follow event `number` of hash `head`.

    Raises
    ------
    Broken
        At the first that does not fit.

    Examples
    --------
    >>> body = Event(1, "2026-11-15T12:00:00+00:00", Opened(1, "an id")).to_bytes()
    >>> row = Row(1, body, chained(BEFORE_FIRST, body))
    >>> [link.event.number for link in links([row])]
    [1]
    """
    for row in rows:
        number += 1
        if row.number != number:
            raise Broken(number, "it is not there")
        try:
            event = Event.from_bytes(row.body)
        except DataError as error:
            raise Broken(number, "its bytes are not those of an event") from error
        if event.number != number:
            raise Broken(number, f"it was written as event {event.number}")
        if chained(head, row.body) != row.hash:
            raise Broken(number, "it, or the event before it, was changed")
        if isinstance(event.what, Opened) != (number == 1):
            raise Broken(number, "a ledger opens with its first event and no other")
        head = row.hash
        yield Link(event, head)


def digest(data: bytes) -> str:
    """Return SHA-256 of what is kept beside the chain, as events hold it.

    Examples
    --------
    >>> digest(b"reply")[:8]
    '5782b186'
    """
    return hashlib.sha256(data).hexdigest()
