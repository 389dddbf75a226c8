"""What a method is: its options, its script for a site, its run and its cost, declared once.

A method is a frozen dataclass whose fields are its options. `all_methods` has the classes by name;
the estimator, the command line, study files, forecasts, reports and the documentation read it, and
nothing else lists methods.

What costs of methods are made of: blocks of rows, the leakage meter, threads.

The factors with which methods use them were measured, and tests hold them to within 30 % of real
peaks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from importlib import import_module
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

import numpy as np

from eigenfed.errors import Argument, Aside, InputError, Parts, Pass
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.operations import Op

if TYPE_CHECKING:
    from eigenfed.protocol.core import Total
    from eigenfed.protocol.exact.moments import Moments
    from eigenfed.protocol.study import Study


AUTO = "auto"
"""The name by which the cheapest method is asked for."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a run, from which its cost follows.

    Attributes
    ----------
    rows : int
        Of the largest site.
    features, components, sites : int
    secure : bool
        Whether sums are made by secure aggregation.
    products : int or None
        Rounds of products, where they are known; otherwise a method reckons with its usual number.
    certify : bool
    cores : int
        How many threads work on blocks of rows, and on replies.
    """

    rows: int
    features: int
    components: int
    sites: int
    secure: bool = False
    products: int | None = None
    certify: bool = True
    cores: int = 1

    def column_bytes(self, count: float) -> float:
        """Return the bytes of so many directions."""
        return 8.0 * self.features * count

    @property
    def square_bytes(self) -> float:
        """Bytes of a matrix of features by features."""
        return self.column_bytes(self.features)

    @property
    def rows_bytes(self) -> float:
        """Bytes of the rows of the largest site, dense."""
        return self.column_bytes(self.rows)


@dataclass(frozen=True)
class Cost:
    """What a method takes.

    Attributes
    ----------
    rounds : int
        Rounds of sums after the moments.
    answered : int
        Directions about which a site answers in all, d where it sends its whole scatter.
    numbers : float
        Numbers that one site sends.
    site_bytes, coordinator_bytes : float
        Memory, that of a site beside its rows.
    work : float
        Multiplications at the largest site and then at the coordinator. Those with few columns
        count `SKINNY` times, since they wait for memory.
    """

    rounds: int
    answered: int
    numbers: float
    site_bytes: float
    coordinator_bytes: float
    work: float


class Method(ABC):
    """One way to find principal components over sites.

    Attributes
    ----------
    name : str
        As people write it.
    summary : str
        One line for help, documentation and report.
    citation : str or None
        The paper it is from; None for ours.
    ops : tuple of Op
        The operations of a site that its script names, besides those every method has.
    private : bool
        Whether it also runs under differential privacy.
    own_directions : bool
        Whether sites answer about directions that follow from their own rows.
    iterates : bool
        Whether it takes as many rounds as the spectrum needs.
    random_start : bool
        Whether it starts from public random numbers.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    citation: ClassVar[str | None] = None
    ops: ClassVar[tuple[Op[Any, Any], ...]]
    private: ClassVar[bool] = False
    own_directions: ClassVar[bool] = False
    iterates: ClassVar[bool] = False
    random_start: ClassVar[bool] = False

    @abstractmethod
    def script(self, study: "Study", d: int) -> Script:
        """Return what a site is asked after the moments."""

    @abstractmethod
    def run(self, run: "Run") -> Protocol[Decomposition]:
        """Run the coordinator's half."""

    @abstractmethod
    def cost(self, shape: Shape) -> Cost:
        """Return what it takes."""

    def sums_only(self) -> bool:
        """Whether sums over sites are all it needs, so that secure aggregation can carry it."""
        return True

    def instead_of(self) -> Parts:
        """Return what to do where only sums can be had."""
        return Pass("method", "covariance"), " or ", Argument("method", "krylov"), "."

    def as_argument(self) -> Argument:
        """Return the method as the argument of a message."""
        return Argument("method", self if self.options else self.name)

    def width(self, k: int, d: int) -> int:
        """Return the most directions that one request may bring."""
        return min(k, d)

    def keeps_scatter(self) -> bool:
        """Whether a site should keep its whole scatter when it first reads its rows."""
        return False

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults."""
        defaults = {f.name: f.default for f in fields(self)}  # type: ignore[arg-type]
        return {
            name: value
            for name, value in asdict(self).items()  # type: ignore[call-overload]
            if value != defaults[name]
        }

    def __repr__(self) -> str:
        """Return the method as Python would make it."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({given})"


@dataclass(eq=False)
class Run:
    """What every method is handed.

    Attributes
    ----------
    study : Study
        With the method itself, never "auto".
    moments : Moments
    sites : tuple of str
    rng : numpy Generator
        For public starts.
    total : Total
        How sums over sites are made.
    has_begun : bool
        Whether the sites have been sent what the first request about the rows brings.
    """

    study: "Study"
    moments: "Moments"
    sites: tuple[str, ...]
    rng: np.random.Generator
    total: "Total"
    has_begun: bool = False

    def frame(self) -> dict[str, Any]:
        """Return what the first request about the rows brings; nothing after that."""
        fields = {} if self.has_begun else self.moments.frame
        self.has_begun = True
        return fields

    @property
    def k(self) -> int:
        """Number of components."""
        return self.study.components

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.moments.mean)

    @property
    def tol(self) -> float:
        """Largest residual, relative to the first eigenvalue."""
        return self.study.tol

    @property
    def certify(self) -> bool:
        """Whether to ask for what a certificate takes."""
        return self.study.certify


_METHODS: dict[str, type[Method]] = {}


def all_methods() -> Mapping[str, type[Method]]:
    """Return all methods by name, in the order in which they are shown.

    Examples
    --------
    >>> list(all_methods())
    ['covariance', 'krylov', 'randomized', 'subspace', 'power', 'merge']
    """
    import_module("eigenfed.protocol.methods")
    return MappingProxyType(_METHODS)


def register(cls: type[Method]) -> None:
    """Enter a method under its name.

    Raises
    ------
    InputError
        If the name is taken.
    """
    if cls.name in _METHODS or cls.name == AUTO:
        raise InputError(f"There is a method {cls.name!r} already. Name it differently.")
    _METHODS[cls.name] = cls


@contextmanager
def registered(cls: type[Method]) -> Iterator[None]:
    """Have a method entered for a while."""
    all_methods()
    register(cls)
    try:
        yield
    finally:
        del _METHODS[cls.name]


def method_named(name: object, options: Mapping[str, Any] | None = None) -> Method:
    """Return a method by its name, with options.

    Raises
    ------
    InputError
        If there is no such method, or an option that it does not have or does not take.

    Examples
    --------
    >>> method_named("power", {"local_steps": 2}).local_steps
    2
    """
    cls = all_methods().get(name) if isinstance(name, str) else None
    if cls is None:
        listed = ", ".join(map(repr, (AUTO, *all_methods())))
        raise InputError(
            Argument("method", name),
            f" must be one of {listed}",
            Aside(", or a value such as Power(local_steps=4)"),
            remedy="Pass one of them.",
        )
    known = option_types(cls)
    for option, value in (options or {}).items():
        if option not in known:
            listed = f"It has {', '.join(known)}" if known else "It has none"
            raise InputError(f"The method {name!r} has no option {option!r}", remedy=f"{listed}.")
        _check_type(cls.name, option, value, known[option])
    return cls(**(options or {}))


def option_types(cls: type[Method]) -> dict[str, tuple[type[Any], ...]]:
    """Return the types that each option of a method may have.

    Examples
    --------
    >>> option_types(all_methods()["covariance"])
    {'precision': (<class 'str'>,)}
    """
    hints = get_type_hints(cls)
    return {f.name: get_args(hints[f.name]) or (hints[f.name],) for f in fields(cls)}  # type: ignore[arg-type]


def option_defaults(cls: type[Method]) -> dict[str, Any]:
    """Return the default of each option of a method."""
    return {f.name: f.default for f in fields(cls) if f.default is not MISSING}  # type: ignore[arg-type]


def read_option(cls: type[Method], option: str, text: str) -> Any:
    """Read the value of an option as people type it; text that fits no type stays text.

    Examples
    --------
    >>> power = all_methods()["power"]
    >>> read_option(power, "decay", "false"), read_option(power, "align", "sign")
    (False, 'sign')
    """
    kinds = option_types(cls).get(option, (str,))
    if NoneType in kinds and text.lower() == "none":
        return None
    if bool in kinds and text.lower() in ("true", "false"):
        return text.lower() == "true"
    for kind in (int, float):
        if kind in kinds:
            try:
                return kind(text)
            except ValueError:
                continue
    return text


def _check_type(name: str, option: str, value: object, kinds: tuple[type[Any], ...]) -> None:
    number = float in kinds and isinstance(value, int) and not isinstance(value, bool)
    if type(value) not in kinds and not number:
        words = " or ".join("None" if kind is NoneType else kind.__name__ for kind in kinds)
        raise InputError(
            Argument(option, value),
            f" of the method {name!r} must be of type {words}",
            remedy="Pass one.",
        )


def as_method(method: "Method | str") -> "Method | str":
    """Return "auto", or the method that a name stands for."""
    if isinstance(method, Method):
        return method
    if method == AUTO:
        return AUTO
    return method_named(method)


SKINNY = 4.0
"""How many times longer a multiplication takes with few columns: it waits for memory."""

_BLOCK_BYTES = 12 << 20
_METER_BYTES = 128 << 20


def block_bytes(shape: Shape) -> float:
    """Return the bytes of the rows that are worked on at a time."""
    return min(shape.rows_bytes, float(_BLOCK_BYTES))


def block_count(shape: Shape) -> int:
    """Return how many blocks of rows the largest site has."""
    return int(-(-shape.rows_bytes // _BLOCK_BYTES))


def meter_bytes(shape: Shape, answered: int) -> float:
    """Return the bytes of the directions that the leakage meter keeps."""
    return min(shape.column_bytes(answered), float(_METER_BYTES))


def replies_in_hand(shape: Shape) -> int:
    """Return how many replies a coordinator holds at a time."""
    return min(shape.sites, 2 * shape.cores + 1)


def product_site_bytes(shape: Shape, answered: int, known: int) -> float:
    """Return what a site needs for products: the meter keeps directions and images.

    Parameters
    ----------
    shape : Shape
    answered : int
        Directions answered about in all.
    known : int
        Directions that the certificate is about.
    """
    meter = meter_bytes(shape, answered)
    return 2.0 * meter + max(
        1.4 * shape.column_bytes(known) + block_bytes(shape),
        min(block_count(shape), shape.cores) * block_bytes(shape),
    )


def product_work(shape: Shape, answered: int, width: int) -> float:
    """Return the multiplications of products: with the rows and back, and keeping blocks apart."""
    d = float(shape.features)
    return answered * (SKINNY * 4.0 * shape.rows * d + 4.0 * d * max(width, answered / 2.0))


def iterated_cost(shape: Shape, width: int, rounds: int, held: float) -> Cost:
    """Return what one block of directions a round takes.

    Parameters
    ----------
    shape : Shape
    width : int
        Directions of a block.
    rounds : int
        Usual number of rounds, where the shape does not tell it.
    held : float
        How many blocks the coordinator holds, beside the replies that come in.
    """
    rounds = shape.products or rounds
    answered = rounds * width
    return Cost(
        rounds + shape.certify,
        answered,
        float(shape.features) * answered,
        product_site_bytes(shape, answered, width),
        (held + replies_in_hand(shape)) * shape.column_bytes(width),
        product_work(shape, answered, width),
    )
