"""Studies: what is computed, as approved by the sites and signed by the coordinator.

A run is opened with the study itself, in canonical bytes, signed by the coordinator for that run.
A site answers only within a run that was opened in this way, and within it only the requests of
the script of the study's method (`eigenfed.protocol.gate`). The estimators, which run all sites in
one process, open a study of their own in the same way.
"""

import hashlib
import json
import math
from copy import copy
from dataclasses import dataclass, fields
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.steps import as_steps, build_step, count_features, filters_variants
from eigenfed.errors import Argument, DataError, EigenfedError, InputError, Part
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import PUBLISHED, Published
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.privacy.secagg.masking import context
from eigenfed.protocol.component_count import Components, check_components
from eigenfed.protocol.messages import Bytes, Message, pack
from eigenfed.protocol.method import AUTO, Method, as_method, find_method

GENOTYPE = "genotype"
"""Scaling by the standard deviation that follows from the frequency of an allele."""
BY_SITE = "site"
"""Centring by which each site subtracts its own mean."""
TOL, GENOTYPE_TOL = 1e-4, 0.05
"""Default angles at which a run stops, in degrees: genotypes are multiplied in single precision."""
_FORMAT = 1
_MOST_BYTES = 1 << 20


@dataclass(frozen=True)
class Study:
    """What is computed, to which accuracy, and under which guarantee.

    Attributes
    ----------
    sites : tuple of str
        Names of the sites that take part.
    components : int, float, "all" or "auto"
        Their number, a fraction of the variance, all, or as many as stand out from noise;
        `eigenfed.protocol.component_count` has the rules.
    method : Method or "auto"
    name : str
    split : {"samples", "features"}
    center : bool or "site"
        Whether rows are centred: at the mean of all rows, not, or each at the mean of its site.
    scale : bool or "genotype"
        Whether features are divided by their standard deviations, or by those that genotypes have
        at the frequency of their alleles over all sites.
    secure : bool
        Whether replies leave only inside secure aggregation.
    by_site : bool
        Whether each site finally reports the mean and mean square of its scores.
    privacy : Privacy, Published or None
    tol : float
        Largest angle of a converged component to its eigenvector, in degrees.
    stop : {"all", "separated"}
    max_rounds : int
        Largest number of rounds of products.
    certify : {"auto", "rigorous", False}
        How much the certificate may cost; True is read as "auto".
    wire : {"float64", "float32"}
        Precision of the floats in messages.
    features : str
        Digest of the feature names, if they are agreed on; otherwise empty.
    prepare : tuple of PrepareStep
        Steps that prepare the rows before all else.

    Examples
    --------
    >>> study = Study(("a", "b"), 2)
    >>> Study.from_bytes(study.to_bytes()) == study
    True
    """

    sites: tuple[str, ...]
    components: Components
    method: Method | str = AUTO
    name: str = "study"
    split: str = "samples"
    center: bool | str = True
    scale: bool | str = False
    secure: bool = False
    by_site: bool = False
    privacy: Privacy | Published | None = None
    tol: float = TOL
    stop: str = "all"
    max_rounds: int = 50
    certify: str | bool = "auto"
    wire: str = "float64"
    features: str = ""
    prepare: tuple[PrepareStep, ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", as_method(self.method))
        object.__setattr__(self, "prepare", as_steps(self.prepare))
        object.__setattr__(self, "certify", "auto" if self.certify is True else self.certify)
        for kind, names in _TYPES.items():
            if any(type(getattr(self, name)) is not kind for name in names):
                raise InputError(f"{', '.join(names)} of a study must be of type {kind.__name__}.")
        if len({name for name in self.sites if type(name) is str}) < len(self.sites):
            raise InputError("sites of a study must be distinct names.")
        if type(self.tol) not in (int, float) or not 0.0 <= self.tol < math.inf:
            raise InputError("tol of a study must be a finite number of at least 0.")
        check_components(self.components)
        if type(self.center) is not bool and self.center != BY_SITE:
            raise InputError("center of a study must be True, False or 'site'.")
        if self.centers_by_site and (self.privacy is not None or self.split == "features"):
            raise InputError(
                "center='site' of a study cannot be combined with privacy or split features."
            )
        if type(self.scale) is not bool and self.scale != GENOTYPE:
            raise InputError("scale of a study must be True, False or 'genotype'.")
        if self.scale == GENOTYPE and (
            self.center is not True
            or self.privacy is not None
            or (self.prepare and not self.filters_variants)
            or self.split == "features"
        ):
            raise InputError(
                "scale='genotype' of a study needs rows that are centred at one mean, and cannot "
                "be combined with privacy, split features or steps other than those for variants."
            )
        if self.max_rounds < 1 or not self.sites:
            raise InputError("A study must have at least one site and one round.")
        if self.split == "features" and not isinstance(self.components, int):
            raise InputError("components of a study whose features are split must be an integer.")
        for option, choices in _CHOICES.items():
            if getattr(self, option) not in choices:
                raise InputError(f"{option} of a study must be one of {', '.join(choices)}.")
        if self.certify is not False and self.certify not in ("auto", "rigorous"):
            raise InputError("certify of a study must be 'auto', 'rigorous' or False.")

    @cached_property
    def names(self) -> frozenset[str]:
        """The sites, for a quick look whether one takes part."""
        return frozenset(self.sites)

    @property
    def masked(self) -> bool:
        """Whether sums are made by secure aggregation."""
        return self.secure or (
            isinstance(self.privacy, Privacy) and self.privacy.trust == "secure_sum"
        )

    @property
    def centers_by_site(self) -> bool:
        """Whether each site centres its rows by its own mean."""
        return self.center == BY_SITE

    @property
    def is_single(self) -> bool:
        """Whether sites multiply in single precision: genotypes, unless all must be rigorous."""
        return self.scale == GENOTYPE and self.certify != "rigorous"

    @property
    def federated_steps(self) -> tuple[PrepareStep, ...]:
        """The steps of the preparation that need figures over all sites."""
        return tuple(step for step in self.prepare if step.federated)

    @property
    def step_conflict(self) -> tuple[Part, ...]:
        """What the preparation cannot be combined with, and why, for a message; or nothing."""
        federated = [step.name for step in self.federated_steps]
        standardizes = "standardize" in federated
        if not self.prepare:
            return ()
        if self.split == "features":
            return Argument("split", "features"), ": a row is not at one site"
        if isinstance(self.privacy, Published):
            return "a published mechanism, which is run as its paper prints it", ""
        if self.privacy is not None and federated:
            return (
                "privacy",
                f": {federated[0]!r} needs means and variances without noise; steps within a row "
                "can be combined with it",
            )
        if standardizes and self.scale:
            return Argument("scale", True), ": 'standardize' divides by the standard deviation"
        if federated and self.centers_by_site:
            return Argument("center", BY_SITE), f": {federated[0]!r} needs the means of all sites"
        if standardizes and not self.center:
            return Argument("center", False), ": 'standardize' subtracts the mean"
        return ()

    @property
    def stream_conflict(self) -> str:
        """The setting that summaries of streams cannot be merged with; or nothing."""
        needed: dict[str, Any] = {
            "split": "samples",
            "center": True,
            "scale": False,
            "secure": False,
            "by_site": False,
            "privacy": None,
            "prepare": (),
            "wire": "float64",
        }
        if not isinstance(self.components, int):
            return "components"
        return next((name for name in needed if getattr(self, name) != needed[name]), "")

    @property
    def filters_variants(self) -> bool:
        """Whether the preparation filters the variants of genotypes."""
        return filters_variants(self.prepare)

    def width(self, d: int) -> int:
        """Return the number of features, of d, that rows have after the preparation.

        If it filters variants, that number depends on the rows, and this is the largest.
        """
        return count_features(self.prepare, d)

    @property
    def k(self) -> int:
        """The number of components; InputError if the study does not give one."""
        if not isinstance(self.components, int):
            raise InputError("components of this study must be an integer.")
        return self.components

    @property
    def chosen(self) -> Method:
        """The method; InputError if it is still "auto"."""
        if isinstance(self.method, str):
            raise InputError("The method of a run must be chosen before it is opened.")
        return self.method

    def with_method(self, method: Method) -> "Study":
        """Return the study with the method of a run."""
        # A copy and not `replace`: the other fields are valid already, and checking them again at
        # every one of many sites takes time that grows with the square of their number. In one
        # process all sites ask for the same one, which is kept.
        known: Study | None = self.__dict__.get("_with_method")
        if known is not None and known.method is method:
            return known
        study = copy(self)
        for derived in ("digest", "_with_method"):
            study.__dict__.pop(derived, None)
        object.__setattr__(study, "method", method)
        object.__setattr__(self, "_with_method", study)
        return study

    def to_bytes(self) -> bytes:
        """Serialise; equal studies have equal bytes."""
        record = {field.name: getattr(self, field.name) for field in fields(self)}
        record |= {"format": _FORMAT, "sites": list(self.sites)}
        record |= {
            "method": _describe_method(self.method),
            "privacy": _describe_privacy(self.privacy),
            "prepare": [{"name": step.name, "options": step.options} for step in self.prepare],
        }
        return json.dumps(record, sort_keys=True, separators=(",", ":")).encode("ascii")

    @classmethod
    def from_bytes(cls, data: bytes) -> "Study":
        """Read what `to_bytes` wrote.

        Raises
        ------
        DataError
            If the bytes are not exactly what `to_bytes` writes.
        """
        try:
            study = _parse_study(data)
        except (AttributeError, KeyError, RecursionError, TypeError, ValueError, EigenfedError):
            study = None
        if study is None:
            raise DataError(
                "The data are not a study as written by this release. Use one release of eigenfed."
            )
        return study

    @cached_property
    def digest(self) -> str:
        """SHA-256 of its bytes, in hexadecimal: what people compare when they approve a study."""
        return hashlib.sha256(self.to_bytes()).hexdigest()


@lru_cache(maxsize=4)
def _parse_study(data: bytes) -> Study:
    """Parse a study; cached, since in one process every site of a run is sent the same bytes."""
    if len(data) > _MOST_BYTES:
        raise ValueError
    record = json.loads(data)
    if record.pop("format") != _FORMAT:
        raise ValueError
    record["sites"] = tuple(record["sites"])
    record["method"] = _parse_method(record["method"])
    record["privacy"] = _parse_privacy(record["privacy"])
    record["prepare"] = [build_step(**step) for step in record["prepare"]]
    study = Study(**record)
    # One study, one digest: another spelling of the same JSON is refused.
    if study.to_bytes() != data:
        raise ValueError
    return study


_TYPES: dict[type[Any], tuple[str, ...]] = {
    int: ("max_rounds",),
    bool: ("secure", "by_site"),
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
    """Content of the message that opens a run at a site.

    Attributes
    ----------
    study : ndarray of uint8
        The study, as `Study.to_bytes` writes it.
    method : ndarray of uint8
        The method of the run, with its options: the study's, or one that "auto" may choose.
    coordinator : ndarray of uint8, shape (32,)
        The coordinator's public key.
    signature : ndarray of uint8, shape (64,)
        Its signature of the run's name, the study and the method.
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
        The method of the run; "auto" only if the study uses a published mechanism, which is a
        method of its own.
    coordinator : Identity
    """
    parts = study.to_bytes(), json.dumps(_describe_method(method), sort_keys=True).encode("ascii")
    signature = coordinator.sign(opening_statement(run, *parts))
    opening = Opening(
        study=_as_array(parts[0]),
        method=_as_array(parts[1]),
        coordinator=_as_array(coordinator.public),
        signature=_as_array(signature),
    )
    return Message("open", run, 0, "open", pack(opening)).to_bytes()


def opening_statement(run: str, study: bytes, method: bytes) -> bytes:
    """Return the statement that a coordinator signs to open a run."""
    return context("open", run, study, method)


def read_method(data: bytes) -> Method | str:
    """Read the method of an opening.

    Raises
    ------
    DataError
        If it does not describe a method.
    """
    try:
        return _parse_method(json.loads(data))
    except (AttributeError, KeyError, RecursionError, TypeError, ValueError, EigenfedError):
        pass
    raise DataError(
        "The opening of a run does not name a known method. Use one release of eigenfed."
    )


def _as_array(data: bytes) -> Bytes:
    return np.frombuffer(data, np.uint8)


def _describe_method(method: Method | str) -> dict[str, Any]:
    if isinstance(method, str):
        return {"name": method}
    return {"name": method.name, "options": method.options}


def _parse_method(record: dict[str, Any]) -> Method | str:
    name = record["name"]
    return AUTO if name == AUTO else find_method(name, record["options"])


def _describe_privacy(privacy: Privacy | Published | None) -> dict[str, Any] | None:
    if privacy is None:
        return None
    record = {field.name: getattr(privacy, field.name) for field in fields(privacy)}
    plain = {n: dict(v) if hasattr(v, "keys") else v for n, v in record.items()}
    return {"kind": type(privacy).__name__, **plain}


def _parse_privacy(record: dict[str, Any] | None) -> Privacy | Published | None:
    if record is None:
        return None
    kind = record.pop("kind")
    listed: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in record.items()}
    return Privacy(**listed) if kind == "Privacy" else PUBLISHED[kind](**listed)
