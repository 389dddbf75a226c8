"""Messages between coordinator and sites: their bytes, their typed content, and refusal codes.

`Message` is the container, the same bytes within one process and over a network: versioned, with a
checksum, bounded in length, never pickled.

`pack` and `unpack` are the one codec for what a message carries. A request or a reply is a frozen
dataclass whose fields are arrays (float64, int64 or uint8) or single numbers, which travel as
arrays of one entry. A field that is None, or a flag that is False by default, does not travel. A
message must have exactly the fields of its type, each of its own dtype; anything else is refused.

`REFUSAL_TEXTS` and `refusal` define the codes with which a site refuses. A code is all that leaves
a site when something goes wrong there. Its meaning is fixed, so that a reader can be told the cause
without the site revealing more. No code depends on the content of the rows: whatever fails after
the rows were read is `aborted`.
"""

import threading
from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays, Container, Integers, Scalar
from eigenfed.errors import BudgetExceeded, DataError, InputError, Refusal
from eigenfed.privacy.ledger.entries import TEXTS

VERSION = 1
MAX_BYTES = 1 << 34


@dataclass(frozen=True, eq=False, repr=False)
class Message:
    """The opening of a run, a request to one site, its reply, or its refusal.

    Attributes
    ----------
    kind : {"open", "request", "reply", "refusal"}
    run : str
        Name of the run.
    round_ : int
    label : str
        Name of the operation; in a refusal, its code.
    arrays : mapping of str to ndarray
    intact : bool, default=False
        Whether it was read from bytes that never left this process.

    Examples
    --------
    >>> import numpy as np
    >>> data = Message("request", "r1", 0, "moments", {}).to_bytes()
    >>> Message.from_bytes(data, "request").label
    'moments'
    """

    kind: str
    run: str
    round_: int
    label: str
    arrays: Arrays
    intact: bool = False

    def to_bytes(self, wire: str = "float64", *, sealed: bool = True) -> bytes:
        """Serialise, with floats in the precision `wire`, and with a checksum if `sealed`."""
        scalars: dict[str, Scalar] = {
            "run": self.run,
            "round": self.round_,
            "label": self.label,
        }
        arrays = {name: _cast_floats(array, wire) for name, array in self.arrays.items()}
        return Container(self.kind, VERSION, scalars, arrays).to_bytes(sealed=sealed)

    @classmethod
    def from_bytes(cls, data: bytes, *kinds: str, intact: bool = False) -> "Message":
        """Read and check a message of one of the given kinds.

        Parameters
        ----------
        data : bytes
        *kinds : str
        intact : bool, default=False
            Whether the bytes never left this process, so that their checksum is not verified.

        Raises
        ------
        DataError
            If it is malformed, too long, or of another kind or version.
        """
        for known in (_recent.opening, _recent.request) if intact else ():
            if known is not None and known[0] is data and known[1].kind in kinds:
                return known[1]
        if len(data) > MAX_BYTES:
            raise DataError(f"The message has {len(data)} bytes and may have at most {MAX_BYTES}.")
        # The container starts with its kind; a cheap look there avoids parsing it twice.
        start = data[:64]
        kind = next((k for k in kinds if _mark_kind(k) in start), kinds[0])
        container = Container.from_bytes(data, kind=kind, version=VERSION, intact=intact)
        fields = container.scalars
        if {name: type(value) for name, value in fields.items()} != _FIELDS:
            raise DataError(
                "The message does not have fields of the expected names and types. Use one "
                "release of eigenfed."
            )
        arrays = {
            name: a.astype(np.float64) if a.dtype == np.float32 else a
            for name, a in container.arrays.items()
        }
        round_ = int(fields["round"])
        message = cls(kind, str(fields["run"]), round_, str(fields["label"]), arrays, intact)
        if intact and kind == "open":
            _recent.opening = data, message
        elif intact and kind == "request":
            _recent.request = data, message
        return message


@cache
def _mark_kind(kind: str) -> bytes:
    return f'"kind": "{kind}"'.encode()


class _Recent(threading.local):
    """The last opening and the last request that this thread has read, with their bytes.

    In one process all sites of a run are sent the same ones. Arrays of a message are read-only.
    """

    opening: tuple[bytes, Message] | None = None
    request: tuple[bytes, Message] | None = None


_recent = _Recent()


def check_wire(wire: str) -> None:
    """Raise InputError unless `wire` is a precision that messages can have."""
    if wire not in ("float64", "float32"):
        raise InputError(f"wire={wire!r} must be 'float64' or 'float32'. Pass one of them.")


_FIELDS = {"run": str, "round": int, "label": str}


def _cast_floats(array: npt.NDArray[Any], wire: str) -> npt.NDArray[Any]:
    if wire == "float64" or array.dtype != np.float64:
        return array
    try:
        with np.errstate(over="raise"):
            return array.astype(np.float32)
    except FloatingPointError:
        raise InputError(
            "A number of a message is larger than single precision allows, 3.4e38. Use the wire "
            "'float64', or larger units."
        ) from None


REFUSAL_TEXTS: dict[str, str] = {
    **TEXTS,
    "malformed": "The message has a missing field, or one of the wrong shape or type.",
    "length": "The message is longer than any that the study needs.",
    "closed": "The run is not open at the site: it was never opened with a study, or it was "
    "closed after too many refusals.",
    "restarted": "The site was restarted since the run was opened. Start a new run.",
    "unready": "The site cannot open its rows for this study. The site's own log has the cause.",
    "unsigned": "The study is not signed by the coordinator whose key the site has pinned.",
    "unapproved": "The study is not among those that the site has approved.",
    "other_sites": "The study's sites differ from the site's roster, or do not include this site.",
    "method": "The policy does not allow the study's method.",
    "prepare": "The policy does not allow a step of the study's preparation (standardize must be "
    "listed in its steps), or the study's other settings do not allow it.",
    "components": "A private study must give the number of components.",
    "not_a_sum": "The study requires secure aggregation, which its method does not support.",
    "unmasked": "The policy lets replies leave only inside secure aggregation.",
    "exact": "The rows have a privacy budget, and this study adds no noise. Add [privacy] to it.",
    "exact_left": "No epsilon holds for these rows: exact sums of them have left, and noise on "
    "further sums cannot undo that. Use rows of which nothing has left.",
    "no_budget": "The site has no privacy budget, without which no noised reply leaves.",
    "untrusted": "The policy does not trust the coordinator to add the noise.",
    "collusion": "The policy requires noise that withstands more colluding sites.",
    "count": "The site uses a selection of its rows, and the study publishes how many. Write "
    'count = "private" in its [privacy].',
    "public": "The study's public centre or scale does not have one number for each feature.",
    "weights": "The rows have weights, which a private study does not support.",
    "no_identity": "The site has no identity and no roster; secure aggregation requires both.",
    "few_rows": "The site has fewer rows than its policy requires.",
    "not_a_stream": "The study merges summaries of streams, and the site's data are rows; or the "
    "site's data are a summary, and the study needs rows.",
    "waiting": "The site's stream has not grown enough for another summary.",
    "used_up": "The site has sent as many summaries as the study allows.",
    "few_counted": "The site has too few people to send counts of their genotypes outside secure "
    "aggregation.",
    "held": "Too many runs on these rows were aborted. Someone at the site must release them: "
    "eigenfed ledger release.",
    "script": "The study's method does not send this request at this point.",
    "invalid": "A field of the request is not valid for the study or the run.",
    "answered": "The round was already answered, for another request.",
    "rounds": "The policy allows no more rounds.",
    "leakage": "With this reply the site would have revealed more than its policy allows.",
    "aborted": "The site ended the run because something failed that depends on its rows. The "
    "site's own log has the cause.",
    "stopped": "The site's ledger is not the one it last wrote. The site stays stopped until "
    "someone restores the ledger.",
    "sum": "No keys were made and shared for this sum, or it is not the current one.",
    "sum_again": "Keys, secret shares, a masked reply or an opening were requested a second time.",
    "signature": "A signature is missing, or is not by the stated site for this purpose.",
    "shares": "Sealed secret shares are missing, or not for this site, sum and run.",
    "few_sites": "Fewer sites take part, or have signed, than the sum requires.",
    "survivors": "The list of sites does not include this site, or is not the one it signed.",
    "thin": "So many neighbours on the ring are lost that a few colluding sites could cut it.",
    "isolates": "Combined with earlier sums over the same rows, this one would isolate few sites.",
    "ledger": "Replies must be recorded in a ledger, and the site has no usable one.",
    "runs": "The policy allows no more runs on these rows.",
}
"""Meaning of each refusal code."""


def refusal(code: str) -> Refusal:
    """Return the exception for a refusal code, with its meaning as the text."""
    kind = BudgetExceeded if code == "budget" else Refusal
    return kind(code, REFUSAL_TEXTS[code])


Bytes = npt.NDArray[np.uint8]

T = TypeVar("T")


class _Kind(NamedTuple):
    """How one field travels: its dtype, and the Python type if it is a single number."""

    dtype: str
    single: type[Any] | None


_KINDS: dict[Any, _Kind] = {
    Array: _Kind("f8", None),
    Integers: _Kind("i8", None),
    Bytes: _Kind("u1", None),
    float: _Kind("f8", float),
    int: _Kind("i8", int),
    bool: _Kind("u1", bool),
}


class _Field(NamedTuple):
    name: str
    kind: _Kind
    required: bool


def pack(value: object) -> Arrays:
    """Convert a request or a reply to named arrays.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> @dataclass(frozen=True)
    ... class Count:
    ...     n: int
    >>> pack(Count(3))
    {'n': array([3])}
    """
    packed: Arrays = {}
    kind: Any = type(value)
    for field in _field_layout(kind):
        given = getattr(value, field.name)
        if given is None or (given is False and not field.required):
            continue
        single = field.kind.single is not None
        packed[field.name] = np.array([given], field.kind.dtype) if single else given
    return packed


def unpack(cls: type[T], arrays: Arrays) -> T:
    """Convert named arrays back to a request or a reply.

    Raises
    ------
    DataError
        If a field is missing, unexpected, of another dtype, or not a single number where it must
        be one.
    """
    kind: Any = cls
    layout = _field_layout(kind)
    given: dict[str, Any] = {}
    for field in layout:
        array = arrays.get(field.name)
        if array is not None:
            given[field.name] = _read(field, array)
        elif field.required:
            raise DataError(f"The field {field.name!r} is missing. Use one release of eigenfed.")
    if len(given) < len(arrays):
        raise DataError(
            f"{cls.__name__} was sent with an unexpected field. Use one release of eigenfed."
        )
    return cls(**given)


def _read(field: _Field, array: npt.NDArray[Any]) -> Any:
    kind = field.kind
    if array.dtype != np.dtype(kind.dtype) or (kind.single is not None and array.shape != (1,)):
        raise DataError(
            f"The field {field.name!r} has an unexpected type or shape. Use one release of "
            "eigenfed."
        )
    return array if kind.single is None else kind.single(array[0])


@cache
def _field_layout(cls: Any) -> tuple[_Field, ...]:
    """Return how the fields of a dataclass travel, in order of definition."""
    hints = get_type_hints(cls)
    return tuple(
        _Field(field.name, _KINDS[_strip_none(hints[field.name])], field.default is MISSING)
        for field in fields(cls)
    )


def _strip_none(hint: Any) -> Any:
    """Return the type X of a field annotated as X or as X | None."""
    if isinstance(hint, UnionType):
        (kind,) = (part for part in get_args(hint) if part is not NoneType)
        return kind
    return hint
