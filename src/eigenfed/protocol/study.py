"""What sites agree to compute: the study that a site approves and a coordinator signs.

A run is opened with the study itself, in canonical bytes, signed by the coordinator for that run.
A site answers nothing outside a run that was opened so, and within it only the script of the
study's method (`eigenfed.protocol.gate`). In one process the estimator opens a study of its own
through the same door.
"""

import hashlib
import json
import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np

from eigenfed.errors import DataError, EigenfedError, InputError
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.published_claims import PUBLISHED, Published
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.privacy.secagg.masking import context
from eigenfed.protocol.messages import Bytes, Message, pack
from eigenfed.protocol.method import AUTO, Method, as_method, method_named

_FORMAT = 1
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Study:
    """What is computed, how far it goes, and what it guarantees.

    Attributes
    ----------
    sites : tuple of str
        Who may take part.
    components : int
    method : Method or "auto"
    name : str
    split : {"samples", "features"}
    center, scale : bool
    secure : bool
        Whether replies leave only inside secure aggregation.
    by_site : bool
        Whether each site tells, at the end, where its rows lie on the components.
    privacy : Privacy, Published or None
    tol : float
        Largest residual, relative to the first eigenvalue.
    stop : {"all", "separated"}
    max_rounds : int
        Most rounds of products.
    certify : bool
    wire : {"float64", "float32"}
        Precision of the floats in messages.
    features : str
        Digest of the names of the features, where they are agreed on.

    Examples
    --------
    >>> study = Study(("a", "b"), 2)
    >>> Study.from_bytes(study.to_bytes()) == study
    True
    """

    sites: tuple[str, ...]
    components: int
    method: Method | str = AUTO
    name: str = "study"
    split: str = "samples"
    center: bool = True
    scale: bool = False
    secure: bool = False
    by_site: bool = False
    privacy: Privacy | Published | None = None
    tol: float = 2e-8
    stop: str = "all"
    max_rounds: int = 50
    certify: bool = True
    wire: str = "float64"
    features: str = ""

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", as_method(self.method))
        for kind, names in _TYPES.items():
            if any(type(getattr(self, name)) is not kind for name in names):
                raise InputError(f"{', '.join(names)} of a study must be of type {kind.__name__}.")
        if len({name for name in self.sites if type(name) is str}) < len(self.sites):
            raise InputError("sites of a study must be different names.")
        if type(self.tol) not in (int, float) or not 0.0 <= self.tol < math.inf:
            raise InputError("tol of a study must be a finite number of at least 0.")
        if self.components < 1 or self.max_rounds < 1 or not self.sites:
            raise InputError("A study needs a site, a component and a round at least.")
        for option, choices in _CHOICES.items():
            if getattr(self, option) not in choices:
                raise InputError(f"{option} of a study must be one of {', '.join(choices)}.")

    @property
    def masked(self) -> bool:
        """Whether sums are made by secure aggregation."""
        return self.secure or (
            isinstance(self.privacy, Privacy) and self.privacy.trust == "secure_sum"
        )

    @property
    def chosen(self) -> Method:
        """The method, where it is not left open."""
        if isinstance(self.method, str):
            raise InputError("The method of a run must be chosen before it is opened.")
        return self.method

    def with_method(self, method: Method) -> "Study":
        """Return the study with the method that a run uses."""
        return replace(self, method=method)

    def to_bytes(self) -> bytes:
        """Write it, the same study always as the same bytes."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        record |= {"format": _FORMAT, "sites": list(self.sites)}
        record |= {"method": _written_method(self.method), "privacy": _written_terms(self.privacy)}
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Study":
        """Read what `to_bytes` wrote.

        Raises
        ------
        DataError
            If it is no study of this format, written in this way.
        """
        try:
            if len(data) > _MOST_BYTES:
                raise ValueError
            record = json.loads(data)
            if record.pop("format") != _FORMAT:
                raise ValueError
            record["sites"] = tuple(record["sites"])
            record["method"] = _read_method(record["method"])
            record["privacy"] = _read_terms(record["privacy"])
            study = cls(**record)
            same = study.to_bytes() == data
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError, EigenfedError):
            same = False
        if not same:
            raise DataError(
                "The data are no study as this release writes it. Use one release of eigenfed."
            )
        return study

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes: what people read to one another when they approve it."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


_TYPES: dict[type[Any], tuple[str, ...]] = {
    int: ("components", "max_rounds"),
    bool: ("center", "scale", "secure", "by_site", "certify"),
    str: ("name", "split", "stop", "wire", "features"),
    tuple: ("sites",),
}
_CHOICES = {
    "split": ("samples", "features"),
    "stop": ("all", "separated"),
    "wire": ("float64", "float32"),
}


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Opening:
    """What opens a run at a site.

    Attributes
    ----------
    study : ndarray of uint8
        The study, as `Study.to_bytes` writes it.
    method : ndarray of uint8
        The method that the run uses, with its options: the study's, or one that "auto" may choose.
    coordinator : ndarray of uint8, shape (32,)
        The coordinator's public key.
    signature : ndarray of uint8, shape (64,)
        Its signature of the run, the study and the method.
    """

    study: Bytes
    method: Bytes
    coordinator: Bytes
    signature: Bytes


def open_message(run: str, study: Study, method: Method | str, coordinator: Identity) -> bytes:
    """Return the message that opens a run of a study.

    Parameters
    ----------
    run : str
        Name of the run.
    study : Study
    method : Method or "auto"
        What the run uses; "auto" only where a published mechanism is a method of its own.
    coordinator : Identity
    """
    described = json.dumps(_written_method(method), sort_keys=True).encode("ascii")
    parts = study.to_bytes(), described
    signature = coordinator.sign(opening_statement(run, *parts))
    opening = Opening(
        study=_bytes(parts[0]),
        method=_bytes(parts[1]),
        coordinator=_bytes(coordinator.public),
        signature=_bytes(signature),
    )
    return Message("open", run, 0, "open", pack(opening)).to_bytes()


def opening_statement(run: str, study: bytes, method: bytes) -> bytes:
    """Return what a coordinator signs to open a run."""
    return context("open", run, study, method)


def opened_method(data: bytes) -> Method | str:
    """Read the method of an opening.

    Raises
    ------
    DataError
        If it is none.
    """
    try:
        return _read_method(json.loads(data))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, EigenfedError):
        pass
    raise DataError("The opening of a run names no method. Use one release of eigenfed.")


def _bytes(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _written_method(method: Method | str) -> dict[str, Any]:
    if isinstance(method, str):
        return {"name": method}
    return {"name": method.name, "options": method.options}


def _read_method(record: dict[str, Any]) -> Method | str:
    name = record["name"]
    return AUTO if name == AUTO else method_named(name, record["options"])


def _written_terms(privacy: Privacy | Published | None) -> dict[str, Any] | None:
    if privacy is None:
        return None
    record = {field.name: getattr(privacy, field.name) for field in fields(privacy)}
    plain = {n: dict(v) if hasattr(v, "keys") else v for n, v in record.items()}
    return {"kind": type(privacy).__name__, **plain}


def _read_terms(record: dict[str, Any] | None) -> Privacy | Published | None:
    if record is None:
        return None
    kind = record.pop("kind")
    listed: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
    return Privacy(**listed) if kind == "Privacy" else PUBLISHED[kind](**listed)
