"""What a ledger records: a closed set of kinds of events, their fields, and their bytes.

An event never changes meaning. A kind is never renamed or reused, and a field is never added to
one, removed, or read in another sense: what is new gets a kind of its own, and the ledger's format
another version. Readers refuse what they do not know. Format 1 has the kinds opened, budgeted,
spent, unsound, replied, refused and summed; format 2 has all, and a head file (see `witness`).

============  ==========================  =====================================================
kind          fields                      it happened that
============  ==========================  =====================================================
opened        version, ledger             the ledger began, in this format, with this identity
upgraded      version                     the ledger went over to this format from an older one
budgeted      dataset, budget             this total replaced whatever budget the data set had
spent         key, mu, sensitivity, sd,   this much was paid for one reply, before the reply
              relation, mechanism         existed; it counts whether or not the reply ever left
unsound       key, mechanism              a reply was let through about which nothing holds
replied       key, release, shapes,       this reply was made ready to leave: its declaration,
              sent_bytes, digest, spend,  shapes, length and SHA-256; the number and mu of the
              mu, meter                   event that paid for it (null: it is exact); SHA-256 of
                                          the leakage meter kept with it (null: as before)
refused       key, code                   an ask was refused, with this code
refused_more  dataset, run                further refusals in this run are not written down
summed        key, sites                  the site took part in a secure sum over these sites
run_opened    dataset, run, study,        the site began to take part in a run of the study of
              coordinator                 this digest, asked by the holder of this key (in hex)
aborted       dataset, run, round_, op    the run was ended here: something failed after rows
                                          were touched
released      dataset, by                 a person forgave the data set's aborted runs: why
============  ==========================  =====================================================

Every event also has its number (1, 2, 3, ... without a gap) and when it was written. Its bytes are
JSON in ASCII with sorted names and no spaces. Its hash is SHA-256 of the hash before it followed
by those bytes; 32 zero bytes come before the first.
"""

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from typing import Any, ClassVar, get_args

from eigenfed.errors import DataError, InputError
from eigenfed.linalg.checks import check_count
from eigenfed.privacy.ledger.entries import (
    Budget,
    Declared,
    ReplyKey,
    check_name,
    check_positive,
    check_relation,
)

BEFORE_FIRST = bytes(32)


class Kind(Enum):
    """The kinds of events; the table above says what each means."""

    OPENED = "opened"
    UPGRADED = "upgraded"
    BUDGETED = "budgeted"
    SPENT = "spent"
    UNSOUND = "unsound"
    REPLIED = "replied"
    REFUSED = "refused"
    REFUSED_MORE = "refused_more"
    SUMMED = "summed"
    RUN_OPENED = "run_opened"
    ABORTED = "aborted"
    RELEASED = "released"


@dataclass(frozen=True)
class Opened:
    """The ledger began."""

    kind: ClassVar[Kind] = Kind.OPENED
    version: int
    ledger: str

    def __post_init__(self) -> None:
        check_count("version", self.version, "Take the version of the format.")
        check_name("ledger", self.ledger)


@dataclass(frozen=True)
class Upgraded:
    """The ledger went over to another format."""

    kind: ClassVar[Kind] = Kind.UPGRADED
    version: int

    def __post_init__(self) -> None:
        check_count("version", self.version, "Take the version of the format.", least=2)


@dataclass(frozen=True)
class Budgeted:
    """A data set got a budget, its first or another one."""

    kind: ClassVar[Kind] = Kind.BUDGETED
    dataset: str
    budget: Budget

    def __post_init__(self) -> None:
        check_name("dataset", self.dataset)


@dataclass(frozen=True)
class Spent:
    """A reply was paid for: it is mu-Gaussian-DP under the relation.

    Attributes
    ----------
    key : Key
    mu : float
    sensitivity, sd : float
        Of what is released and of its noise, in the same units; mu is their ratio or more.
    relation : {"replace_one", "zero_out"}
    mechanism : str
    """

    kind: ClassVar[Kind] = Kind.SPENT
    key: ReplyKey
    mu: float
    sensitivity: float
    sd: float
    relation: str
    mechanism: str

    def __post_init__(self) -> None:
        for name in ("mu", "sensitivity", "sd"):
            check_positive(name, getattr(self, name))
            object.__setattr__(self, name, float(getattr(self, name)))
        check_relation(self.relation)
        check_name("mechanism", self.mechanism)
        if self.mu < (1.0 - _ROUNDING) * self.sensitivity / self.sd:
            raise InputError(
                f"mu={self.mu} must be at least sensitivity / sd = {self.sensitivity / self.sd}: "
                "less would count less than is spent. Take mu from the noise that is drawn."
            )


@dataclass(frozen=True)
class Unsound:
    """A reply was let through for which no guarantee holds."""

    kind: ClassVar[Kind] = Kind.UNSOUND
    key: ReplyKey
    mechanism: str

    def __post_init__(self) -> None:
        check_name("mechanism", self.mechanism)


@dataclass(frozen=True)
class Replied:
    """A reply was made ready to leave."""

    kind: ClassVar[Kind] = Kind.REPLIED
    key: ReplyKey
    release: Declared
    shapes: Mapping[str, tuple[int, ...]]
    sent_bytes: int
    digest: str
    spend: int | None
    mu: float | None
    meter: str | None

    def __post_init__(self) -> None:
        check_count("sent_bytes", self.sent_bytes, "Pass the reply's length.", least=0)
        check_name("digest", self.digest)


@dataclass(frozen=True)
class Refused:
    """An ask was refused."""

    kind: ClassVar[Kind] = Kind.REFUSED
    key: ReplyKey
    code: str

    def __post_init__(self) -> None:
        check_name("code", self.code)


@dataclass(frozen=True)
class RefusedMore:
    """Further refusals in a run are not written down."""

    kind: ClassVar[Kind] = Kind.REFUSED_MORE
    dataset: str
    run: str

    def __post_init__(self) -> None:
        _check_names(self)


@dataclass(frozen=True)
class Summed:
    """The site took part in a secure sum."""

    kind: ClassVar[Kind] = Kind.SUMMED
    key: ReplyKey
    sites: frozenset[str]

    def __post_init__(self) -> None:
        if not self.sites:
            raise InputError("sites=[] must name the sites of the sum. Pass all of them.")
        for site in self.sites:
            check_name("sites", site)


@dataclass(frozen=True)
class RunOpened:
    """The site began to take part in a run.

    Attributes
    ----------
    dataset, run : str
    study : str
        Digest of the study.
    coordinator : str
        The coordinator's key, in hexadecimal.
    """

    kind: ClassVar[Kind] = Kind.RUN_OPENED
    dataset: str
    run: str
    study: str
    coordinator: str

    def __post_init__(self) -> None:
        _check_names(self)


@dataclass(frozen=True)
class Aborted:
    """A run was ended at the site, after rows were touched."""

    kind: ClassVar[Kind] = Kind.ABORTED
    dataset: str
    run: str
    round_: int
    op: str

    def __post_init__(self) -> None:
        for name in ("dataset", "run", "op"):
            check_name(name, getattr(self, name))
        check_count("round_", self.round_, "Count rounds from 0.", least=0)


@dataclass(frozen=True)
class Released:
    """A person forgave a data set's aborted runs."""

    kind: ClassVar[Kind] = Kind.RELEASED
    dataset: str
    by: str

    def __post_init__(self) -> None:
        _check_names(self)


def _check_names(what: "RefusedMore | RunOpened | Released") -> None:
    for field in fields(what):
        check_name(field.name, getattr(what, field.name))


What = (
    Opened
    | Upgraded
    | Budgeted
    | Spent
    | Unsound
    | Replied
    | Refused
    | RefusedMore
    | Summed
    | RunOpened
    | Aborted
    | Released
)


@dataclass(frozen=True)
class Event:
    """One line of a ledger.

    Attributes
    ----------
    number : int
    when : str
        Time in UTC, as ISO 8601 writes it.
    what : Opened, Upgraded, Budgeted, Spent, Unsound, Replied, Refused, RefusedMore, Summed, \
RunOpened, Aborted or Released

    Examples
    --------
    >>> key = ReplyKey("cohort", "run 1", 0, "scatter", ask_digest="5d41", roster_digest="402a")
    >>> event = Event(7, "2026-11-15T12:00:00+00:00", Refused(key, "budget"))
    >>> Event.from_bytes(event.to_bytes()) == event
    True
    """

    number: int
    when: str
    what: What

    @property
    def kind(self) -> Kind:
        """What kind of event it is."""
        return self.what.kind

    def to_bytes(self) -> bytes:
        """Write it, the same event always as the same bytes."""
        record = {"number": self.number, "when": self.when, "kind": self.kind.value}
        record |= _plain(self.what)
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return text.encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Event":
        """Read what `to_bytes` wrote.

        Raises
        ------
        DataError
            If the kind is unknown, or a field is absent, foreign, out of range or written in
            another way.
        """
        try:
            record = json.loads(data)
            number, when = record.pop("number"), record.pop("when")
            event = cls(number, when, _what(_KINDS[Kind(record.pop("kind"))], record))
            sound = event.to_bytes() == data
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            sound = False
        if not sound:
            raise DataError(
                "An event is not as this release writes it. Read the ledger with the release that "
                "wrote it, or fetch a copy from before it was changed."
            )
        return event


def chained(previous: bytes, body: bytes) -> bytes:
    """Return the hash of an event of these bytes that follows the event of hash `previous`.

    Examples
    --------
    >>> chained(BEFORE_FIRST, b"{}").hex()[:8]
    'fb1634c4'
    """
    return hashlib.sha256(previous + body).digest()


_ROUNDING = 1e-9
_KINDS: dict[Kind, type[What]] = {cls.kind: cls for cls in get_args(What)}


def _plain(value: Any) -> Any:
    """Turn a value into what JSON has; ``round_`` is called round there."""
    if is_dataclass(value):
        return {f.name.rstrip("_"): _plain(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {name: list(shape) for name, shape in value.items()}
    return value


def _what(cls: type[What], record: dict[str, Any]) -> What:
    for name, read in _READ.items():
        if name in record:
            record[name] = read(record[name])
    if cls is Aborted:
        record["round_"] = record.pop("round")
    return cls(**record)


_READ: dict[str, Callable[[Any], object]] = {
    "key": lambda found: ReplyKey(round_=found.pop("round"), **found),
    "budget": lambda found: Budget(**found),
    "release": lambda found: Declared(**found),
    "shapes": lambda found: {name: tuple(shape) for name, shape in found.items()},
    "sites": frozenset,
}
