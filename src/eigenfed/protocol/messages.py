"""Messages as bytes, the same in one process and on a wire: checked, bounded, never pickled."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Arrays, Container, Scalar
from eigenfed.errors import DataError, InputError

VERSION = 1
MAX_BYTES = 1 << 34


@dataclass(frozen=True, eq=False, repr=False)
class Message:
    """The opening of a run, a request to one site, its reply, or its refusal.

    Attributes
    ----------
    kind : {"open", "ask", "reply", "refusal"}
    run : str
        Which run it belongs to.
    round_ : int
    label : str
        The operation; of a refusal, its code.
    arrays : mapping of str to ndarray

    Examples
    --------
    >>> import numpy as np
    >>> data = Message("ask", "r1", 0, "moments", {}).to_bytes()
    >>> Message.from_bytes(data, "ask").label
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
