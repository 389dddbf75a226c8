"""The events of a ledger: a closed set of kinds, their fields, and their bytes.

The meaning of an event never changes. A kind is never renamed or reused, and its fields are never
added to, removed or reinterpreted: anything new gets a kind of its own, and the ledger's format a
new version. Readers refuse kinds that they do not know. Format 1 has the kinds opened, budgeted,
spent, unsound, replied, refused and summed; format 2 has a head file (see `witness`) and all
others but summarised, which format 3 adds.

============  ==========================  =====================================================
kind          fields                      meaning
============  ==========================  =====================================================
opened        version, ledger             the ledger was created, in this format, with this identity
upgraded      version                     the ledger was upgraded to this format from an older one
budgeted      dataset, budget             this budget replaced any earlier one of the data set
spent         key, mu, sensitivity, sd,   this much was paid for one reply, before the reply
              relation, mechanism         existed; it counts whether or not the reply ever left
unsound       key, mechanism              a reply without a privacy guarantee was allowed
replied       key, release, shapes,       this reply was made ready to send: its declaration,
              sent_bytes, digest, spend,  shapes, length and SHA-256; the number and mu of the
              mu, meter                   event that paid for it (null: it is exact); SHA-256 of
                                          the leakage meter after it (null: unchanged)
refused       key, code                   a request was refused, with this code
refused_more  dataset, run                further refusals in this run are not recorded
summed        key, sites                  the site took part in secure aggregation with these sites
run_opened    dataset, run, study,        the site joined a run of the study with this digest,
              coordinator                 requested by the holder of this key (hexadecimal)
aborted       dataset, run, round_, op    the run was aborted: an operation failed after it had
                                          read rows
released      dataset, by                 a person released the hold after aborted runs: why
summarised    dataset, run, study,        this version of a stream's summary leaves in this run: the
              version, weight, digest     weight of its rows, and its SHA-256 as the site keeps it
============  ==========================  =====================================================

Every event also has its number (1, 2, 3, ... without gaps) and the time of writing. Its bytes are
ASCII JSON with sorted keys and no spaces. Its hash is the SHA-256 of the previous hash followed by
those bytes; 32 zero bytes precede the first event.
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
    """The kinds of events; the table above explains them."""

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
    SUMMARISED = "summarised"


@dataclass(frozen=True)
class Opened:
    """The ledger was created."""

    kind: ClassVar[Kind] = Kind.OPENED
    version: int
    ledger: str

    def __post_init__(self) -> None:
        check_count("version", self.version, "Take the version of the format.")
        check_name("ledger", self.ledger)


@dataclass(frozen=True)
class Upgraded:
    """The ledger was upgraded to another format."""

    kind: ClassVar[Kind] = Kind.UPGRADED
    version: int

    def __post_init__(self) -> None:
        check_count("version", self.version, "Take the version of the format.", least=2)


@dataclass(frozen=True)
class Budgeted:
    """A data set was given a budget, the first or a new one."""

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
    key : ReplyKey
    mu : float
    sensitivity, sd : float
        Sensitivity and standard deviation of the noise, in the same units; mu is at least their
        ratio.
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
                "less would understate the loss. Derive mu from the noise that is drawn."
            )


@dataclass(frozen=True)
class Unsound:
    """A reply without a privacy guarantee was allowed."""

    kind: ClassVar[Kind] = Kind.UNSOUND
    key: ReplyKey
    mechanism: str

    def __post_init__(self) -> None:
        check_name("mechanism", self.mechanism)


@dataclass(frozen=True)
class Replied:
    """A reply was made ready to send."""

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
    """A request was refused."""

    kind: ClassVar[Kind] = Kind.REFUSED
    key: ReplyKey
    code: str

    def __post_init__(self) -> None:
        check_name("code", self.code)


@dataclass(frozen=True)
class RefusedMore:
    """Further refusals in a run are not recorded."""

    kind: ClassVar[Kind] = Kind.REFUSED_MORE
    dataset: str
    run: str

    def __post_init__(self) -> None:
        _check_names(self)


@dataclass(frozen=True)
class Summed:
    """The site took part in a secure aggregation."""

    kind: ClassVar[Kind] = Kind.SUMMED
    key: ReplyKey
    sites: frozenset[str]

    def __post_init__(self) -> None:
        if not self.sites:
            raise InputError("sites=[] must contain the sites of the sum. Pass all of them.")
        for site in self.sites:
            check_name("sites", site)


@dataclass(frozen=True)
class RunOpened:
    """The site joined a run.

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
    """A run was aborted at the site, after an operation had read rows."""

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
    """A person released the hold on a data set after aborted runs."""

    kind: ClassVar[Kind] = Kind.RELEASED
    dataset: str
    by: str

    def __post_init__(self) -> None:
        _check_names(self)


@dataclass(frozen=True)
class Summarised:
    """A summary of a stream was chosen to leave in a run.

    Attributes
    ----------
    dataset, run : str
    study : str
        Digest of the study.
    version : int
        From 1, over all studies: the same version is the same summary.
    weight : float
        Total weight of the rows in it.
    digest : str
        SHA-256 of the summary as the site keeps it.
    """

    kind: ClassVar[Kind] = Kind.SUMMARISED
    dataset: str
    run: str
    study: str
    version: int
    weight: float
    digest: str

    def __post_init__(self) -> None:
        for name in ("dataset", "run", "study", "digest"):
            check_name(name, getattr(self, name))
        check_count("version", self.version, "Count summaries from 1.")
        check_positive("weight", self.weight)
        object.__setattr__(self, "weight", float(self.weight))


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
    | Summarised
)


@dataclass(frozen=True)
class Event:
    """One event of a ledger.

    Attributes
    ----------
    number : int
    when : str
        Time in UTC, in ISO 8601 format.
    what : Opened, Upgraded, Budgeted, Spent, Unsound, Replied, Refused, RefusedMore, Summed, \
RunOpened, Aborted, Released or Summarised

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
        """The kind of event."""
        return self.what.kind

    def to_bytes(self) -> bytes:
        """Serialise the event; equal events give equal bytes."""
        record = {"number": self.number, "when": self.when, "kind": self.kind.value}
        record |= _to_json(self.what)
        text = json.dumps(record, sort_keys=True, separators=(",", ":"), allow_nan=False)
        return text.encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Event":
        """Read the output of `to_bytes`.

        Raises
        ------
        DataError
            If the kind is unknown, a field is missing, unknown or out of range, or the bytes are
            not exactly those that `to_bytes` writes.
        """
        try:
            record = json.loads(data)
            number, when = record.pop("number"), record.pop("when")
            event = cls(number, when, _parse_content(_KINDS[Kind(record.pop("kind"))], record))
            valid = event.to_bytes() == data
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError):
            valid = False
        if not valid:
            raise DataError(
                "An event is not as this release writes it. Read the ledger with the release that "
                "wrote it, or restore a copy from before it was changed."
            )
        return event


def chain_hash(previous: bytes, body: bytes) -> bytes:
    """Return the hash of an event with bytes `body` after the event with hash `previous`.

    Examples
    --------
    >>> chain_hash(BEFORE_FIRST, b"{}").hex()[:8]
    'fb1634c4'
    """
    return hashlib.sha256(previous + body).digest()


_ROUNDING = 1e-9
_KINDS: dict[Kind, type[What]] = {cls.kind: cls for cls in get_args(What)}


def _to_json(value: Any) -> Any:
    """Convert a value to JSON types; the field ``round_`` is named round there."""
    if is_dataclass(value):
        return {f.name.rstrip("_"): _to_json(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, frozenset):
        return sorted(value)
    if isinstance(value, Mapping):
        return {name: list(shape) for name, shape in value.items()}
    return value


def _parse_content(cls: type[What], record: dict[str, Any]) -> What:
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
