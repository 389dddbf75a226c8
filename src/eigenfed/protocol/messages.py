"""Messages as bytes, the same in one process and on a wire: checked, bounded, never pickled.

Codes with which a site refuses, and what each of them means.

A code is all that leaves a site when something goes wrong inside. What it means is the same
everywhere, so that whoever gets one can be told without the site telling more. None of them
depends on what is in the rows: whatever fails once rows were touched is `aborted`.

Typed values as named arrays, and back: the one codec of requests and replies.

A request or a reply is a frozen dataclass. Its fields are arrays (float64, int64 or uint8) or
single numbers, which travel as arrays of one entry; a field that is None, or a flag that is down by
default, does not travel. What is read back has exactly the fields of its type, each of its own
dtype: anything else is refused.
"""

from dataclasses import MISSING, dataclass, fields
from functools import cache
from types import NoneType, UnionType
from typing import Any, NamedTuple, TypeVar, get_args, get_type_hints

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays, Container, Scalar
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
        Which run it belongs to.
    round_ : int
    label : str
        The operation; of a refusal, its code.
    arrays : mapping of str to ndarray

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

    def to_bytes(self, wire: str = "float64") -> bytes:
        """Serialise, with floats in the precision of the wire."""
        scalars: dict[str, Scalar] = {
            "run": self.run,
            "round": self.round_,
            "label": self.label,
        }
        arrays = {name: _on_wire(array, wire) for name, array in self.arrays.items()}
        return Container(self.kind, VERSION, scalars, arrays).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes, *kinds: str, intact: bool = False) -> "Message":
        """Read and check a message of one of the kinds.

        Parameters
        ----------
        data : bytes
        *kinds : str
        intact : bool, default=False
            Whether the bytes never left the process, so that their checksum must fit.

        Raises
        ------
        DataError
            If it is malformed, too long, of another kind or another version.
        """
        if len(data) > MAX_BYTES:
            raise DataError(f"The message has {len(data)} bytes and may have {MAX_BYTES}. Cut it.")
        kind = next((k for k in kinds if f'"kind": "{k}"'.encode() in data[:64]), kinds[0])
        container = Container.from_bytes(data, kind=kind, version=VERSION, intact=intact)
        fields = container.scalars
        if {name: type(value) for name, value in fields.items()} != _FIELDS:
            raise DataError("The message lacks a field or has a foreign one. Use one release.")
        arrays = {
            name: a.astype(np.float64) if a.dtype == np.float32 else a
            for name, a in container.arrays.items()
        }
        return cls(kind, str(fields["run"]), int(fields["round"]), str(fields["label"]), arrays)


def check_wire(wire: str) -> None:
    """Refuse a precision that messages do not have."""
    if wire not in ("float64", "float32"):
        raise InputError(f"wire={wire!r} must be 'float64' or 'float32'. Pass one of them.")


_FIELDS = {"run": str, "round": int, "label": str}


def _on_wire(array: npt.NDArray[Any], wire: str) -> npt.NDArray[Any]:
    single = wire == "float32" and array.dtype == np.float64
    return array.astype(np.float32) if single else array


WHY: dict[str, str] = {
    **TEXTS,
    "malformed": "A message lacks a field, or has one of another shape or type.",
    "closed": "The run is not open at the site: a run is opened with a study, and closed after "
    "too many refusals.",
    "restarted": "The site was started again since the run was opened. Start another run.",
    "unsigned": "The study is not signed by the coordinator whose key the site has pinned.",
    "unapproved": "The study is not among those that the site has approved.",
    "other_sites": "The study's sites are not those of the site's own roster, or lack this site.",
    "method": "The policy does not allow the study's method.",
    "not_a_sum": "The study wants secure aggregation, which its method does not work with.",
    "unmasked": "The policy lets replies leave inside secure aggregation only.",
    "exact": "The rows have a privacy budget, and this study has no noise. Add [privacy] to it.",
    "no_budget": "The site has no privacy budget, and without one no reply with noise leaves.",
    "untrusted": "The policy lets nobody else add the noise.",
    "collusion": "The policy wants noise that is enough without more colluding sites.",
    "count": "The site takes only some of its rows, and the study publishes how many. Write "
    'count = "private" in its [privacy].',
    "weights": "The rows have weights, which a private study cannot take.",
    "no_identity": "The site has no identity and no roster, and secure aggregation needs both.",
    "few_rows": "The site has fewer rows than its policy wants.",
    "held": "Too many runs on these rows were aborted. Somebody at the site must release them: "
    "eigenfed ledger release.",
    "script": "The study's method does not ask this now.",
    "invalid": "A field of the request does not fit the study or the run.",
    "answered": "The round was answered with another request.",
    "rounds": "The policy allows no more rounds.",
    "leakage": "The answers so far and this one would tell more than the policy allows.",
    "aborted": "The site has ended the run: something failed that depends on its rows. Its own log "
    "says what.",
    "stopped": "The site's ledger is not the one that it knew. The site stays stopped until "
    "somebody restores the ledger.",
    "sum": "No keys were made and shared for this sum, or it is not the one at hand.",
    "sum_again": "Keys, shares, a mask or an opening were asked for a second time.",
    "signature": "Something is not signed by whom it is said to come from, or not for this.",
    "shares": "Sealed shares are missing, or were not made for this site, sum and run.",
    "few_sites": "Fewer sites take part or have signed than the sum needs.",
    "survivors": "The list of sites is not one that this site can be in, or not the one it signed.",
    "thin": "So many neighbours on the ring are gone that a few colluding sites might cut it.",
    "isolates": "Beside earlier sums over the same rows this one would tell of few sites alone.",
    "ledger": "What leaves is recorded in a ledger, and the site has none that can be used.",
    "runs": "The policy allows no more runs on these rows.",
}
"""What each code means."""


def refusal(code: str) -> Refusal:
    """Return the refusal with a code, and with what it means."""
    kind = BudgetExceeded if code == "budget" else Refusal
    return kind(code, WHY[code])


Integers = npt.NDArray[np.int64]
Bytes = npt.NDArray[np.uint8]

T = TypeVar("T")


class _Kind(NamedTuple):
    """How one field travels."""

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
    """Write a typed value as named arrays.

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
    for field in _layout(kind):
        given = getattr(value, field.name)
        if given is None or (given is False and not field.required):
            continue
        single = field.kind.single is not None
        packed[field.name] = np.array([given], field.kind.dtype) if single else given
    return packed


def unpack(cls: type[T], arrays: Arrays) -> T:
    """Read what `pack` wrote.

    Raises
    ------
    DataError
        If a field is missing, foreign, of another dtype, or not one number where it must be.
    """
    kind: Any = cls
    layout = _layout(kind)
    given: dict[str, Any] = {}
    for field in layout:
        array = arrays.get(field.name)
        if array is not None:
            given[field.name] = _read(field, array)
        elif field.required:
            raise DataError(f"The field {field.name!r} is missing. Use one release of eigenfed.")
    if len(given) < len(arrays):
        raise DataError(f"{cls.__name__} has no such field. Use one release of eigenfed.")
    return cls(**given)


def _read(field: _Field, array: npt.NDArray[Any]) -> Any:
    kind = field.kind
    if array.dtype != np.dtype(kind.dtype) or (kind.single is not None and array.shape != (1,)):
        raise DataError(
            f"The field {field.name!r} has another type or shape than this release writes. Use "
            "one release of eigenfed."
        )
    return array if kind.single is None else kind.single(array[0])


@cache
def _layout(cls: Any) -> tuple[_Field, ...]:
    """Return how the fields of a dataclass travel, in their order."""
    hints = get_type_hints(cls)
    return tuple(
        _Field(field.name, _KINDS[_present(hints[field.name])], field.default is MISSING)
        for field in fields(cls)
    )


def _present(hint: Any) -> Any:
    """Return the type of a field where it is there."""
    if isinstance(hint, UnionType):
        (kind,) = (part for part in get_args(hint) if part is not NoneType)
        return kind
    return hint
