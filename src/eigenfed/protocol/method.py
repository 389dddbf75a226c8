"""Methods: the base class, options, and the cost model.

A method is a frozen dataclass whose fields are its options. It declares its operations and script
for a site, the coordinator's half of its run, and its cost. `all_methods` returns the classes by
name; the estimator, the command line, study files, forecasts, reports and the documentation read
it, and nothing else lists methods.

The functions at the end are what costs are made of: memory of blocks of rows, of the leakage meter
and of replies, and the time of products. Their factors were measured; tests check that predicted
memory is within 30 % of measured peaks.
"""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import MISSING, asdict, dataclass, fields
from functools import cache
from importlib import import_module
from types import MappingProxyType, NoneType
from typing import TYPE_CHECKING, Any, ClassVar, get_args, get_type_hints

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import limit_block_bytes
from eigenfed.errors import Argument, Aside, InputError, Parts, Pass
from eigenfed.protocol.component_count import find_count
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.cost_rates import time_lanczos, time_products
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.operations import Op

if TYPE_CHECKING:
    from eigenfed.protocol.core import Total
    from eigenfed.protocol.exact.moments import Moments
    from eigenfed.protocol.study import Study


AUTO = "auto"
"""Name that lets eigenfed choose the cheapest method."""


@dataclass(frozen=True)
class Shape:
    """Sizes of a run, which determine its cost.

    Attributes
    ----------
    rows : int
        Rows of the largest site.
    features, components, sites : int
    secure : bool
        Whether sums are computed by secure aggregation.
    products : int or None
        Rounds of products, if known; otherwise a method assumes its usual number.
    certify : "auto", "rigorous" or False
    cores : int
        Number of threads that work on blocks of rows, and on replies.
    density : float
        Fraction of the entries that are stored, if rows are sparse; 1 if they are dense.
    """

    rows: int
    features: int
    components: int
    sites: int
    secure: bool = False
    products: int | None = None
    certify: str | bool = "auto"
    cores: int = 1
    density: float = 1.0

    def column_bytes(self, count: float) -> float:
        """Return the bytes of `count` directions."""
        return 8.0 * self.features * count

    @property
    def square_bytes(self) -> float:
        """Bytes of a matrix of features by features."""
        return self.column_bytes(self.features)

    @property
    def rows_bytes(self) -> float:
        """Bytes of the rows of the largest site, as a dense array."""
        return self.column_bytes(self.rows)


@dataclass(frozen=True)
class Cost:
    """Predicted cost of a run.

    Attributes
    ----------
    rounds : int
        Rounds of sums after the moments.
    answered : int
        Number of directions along which a site reveals its scatter; d if it sends all of it.
    numbers : float
        Numbers that one site sends.
    site_bytes, coordinator_bytes : float
        Memory; for a site, in addition to its rows.
    site_s, coordinator_s : float
        Seconds of one processor for arithmetic, at the largest site and at the coordinator;
        messages come on top.
    """

    rounds: int
    answered: int
    numbers: float
    site_bytes: float
    coordinator_bytes: float
    site_s: float
    coordinator_s: float


@dataclass(frozen=True, repr=False)
class Method(ABC):
    """A method to compute principal components over sites.

    Attributes
    ----------
    name : str
        Name in arguments, study files and results.
    summary : str
        One line for help, documentation and report.
    citation : str or None
        The paper it is from; None for our own.
    ops : tuple of Op
        The operations of its script, in addition to those that every method has.
    private : bool
        Whether it also runs under differential privacy.
    own_directions : bool
        Whether sites reveal their scatter along directions that they compute from their own rows.
    iterates : bool
        Whether the number of rounds depends on the spectrum.
    random_start : bool
        Whether it starts from public random numbers.
    automatic : bool
        Whether "auto" may choose it, with its default options, where it costs least.
    """

    name: ClassVar[str]
    summary: ClassVar[str]
    citation: ClassVar[str | None] = None
    ops: ClassVar[tuple[Op[Any, Any], ...]]
    private: ClassVar[bool] = False
    own_directions: ClassVar[bool] = False
    iterates: ClassVar[bool] = False
    random_start: ClassVar[bool] = False
    automatic: ClassVar[bool] = False

    @abstractmethod
    def script(self, study: "Study", d: int) -> Script:
        """Return the script of a site after the moments."""

    @abstractmethod
    def run(self, run: "Run") -> Protocol[Decomposition]:
        """Return the coordinator's half."""

    @abstractmethod
    def cost(self, shape: Shape) -> Cost:
        """Return the predicted cost."""

    def merges_streams(self) -> bool:
        """Return whether sites send summaries of streams, again and again, instead of answering."""
        return False

    def sums_only(self) -> bool:
        """Return whether sums over sites suffice, so that it works with secure aggregation."""
        return True

    def instead_of(self) -> Parts:
        """Return the remedy to suggest where only sums over sites are available."""
        return Pass("method", "covariance"), " or ", Argument("method", "krylov"), "."

    def as_argument(self) -> Argument:
        """Return the method as an argument for an error message."""
        return Argument("method", self if self.options else self.name)

    def finds_count(self) -> bool:
        """Return whether it can find the number of components from the rows."""
        return False

    def width(self, k: int, d: int) -> int:
        """Return the largest number of directions in one request."""
        return min(k, d)

    def fit_to(self, shape: Shape) -> "Method":
        """Return the method with the options that "auto" considers for these sizes."""
        return self

    def may_become(self, method: "Method") -> bool:
        """Return whether "auto" may choose this method in the form of another value."""
        return self == method

    def keeps_scatter(self) -> bool:
        """Return whether a site should keep its whole scatter when it first reads its rows."""
        return False

    def keeps_directions(self, study: "Study") -> bool:
        """Return whether a site should keep the directions of products, for a certificate."""
        return True

    @property
    def options(self) -> dict[str, Any]:
        """The options that differ from their defaults, by name."""
        defaults = {f.name: f.default for f in fields(self)}
        return {name: value for name, value in asdict(self).items() if value != defaults[name]}

    def __repr__(self) -> str:
        """Return the Python expression that creates the method."""
        given = ", ".join(f"{name}={value!r}" for name, value in self.options.items())
        return f"{type(self).__name__}({given})"


@dataclass(eq=False)
class Run:
    """What a method is given to run.

    Attributes
    ----------
    study : Study
        With the method itself, never "auto".
    moments : Moments
    sites : tuple of str
    rng : numpy Generator
        For public random starts.
    total : Total
        How sums over sites are computed.
    has_begun : bool
        Whether the sites have received the mean and scale.
    """

    study: "Study"
    moments: "Moments"
    sites: tuple[str, ...]
    rng: np.random.Generator
    total: "Total"
    has_begun: bool = False

    def frame(self) -> dict[str, Any]:
        """Return the mean and scale for the first request about the rows; nothing after that."""
        fields = {} if self.has_begun else self.moments.frame
        self.has_begun = True
        return fields

    @property
    def k(self) -> int:
        """Number of components, where it does not depend on the rows."""
        found = self.find_count(np.zeros(0), 0.0)
        if found is None:
            raise InputError("The number of components must not depend on the rows here.")
        return found

    def find_count(self, values: Array, total: float) -> int | None:
        """Return the number of components, or None if more eigenvalues are needed to tell.

        Parameters
        ----------
        values : ndarray of shape (m,)
            Leading eigenvalues, largest first.
        total : float
            Sum of all eigenvalues.
        """
        return find_count(self.study.components, values, total=total, n=self.moments.n, d=self.d)

    @property
    def d(self) -> int:
        """Number of features."""
        return len(self.moments.mean)

    @property
    def tol(self) -> float:
        """Largest angle of a converged component, in degrees."""
        return self.study.tol

    @property
    def certify(self) -> str | bool:
        """Which certificate to compute: "auto", "rigorous", or False for none."""
        return self.study.certify


_METHODS: dict[str, type[Method]] = {}


def all_methods() -> Mapping[str, type[Method]]:
    """Return all methods by name, in the order in which they are shown.

    Examples
    --------
    >>> list(all_methods())
    ['covariance', 'factors', 'krylov', 'randomized', 'subspace', 'power', 'merge']
    """
    import_module("eigenfed.protocol.method_registry")
    return MappingProxyType(_METHODS)


def register(cls: type[Method]) -> None:
    """Register a method under its name.

    Raises
    ------
    InputError
        If the name is taken.
    """
    if cls.name in _METHODS or cls.name == AUTO:
        raise InputError(f"A method named {cls.name!r} is already registered. Use another name.")
    _METHODS[cls.name] = cls


@contextmanager
def registered(cls: type[Method]) -> Iterator[None]:
    """Return a context in which a method is registered."""
    all_methods()
    register(cls)
    try:
        yield
    finally:
        del _METHODS[cls.name]


def find_method(name: object, options: Mapping[str, Any] | None = None) -> Method:
    """Return a method by its name, with options.

    Raises
    ------
    InputError
        If there is no such method or option, or an option is of another type.

    Examples
    --------
    >>> find_method("power", {"local_steps": 2}).local_steps
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


@cache
def option_types(cls: type[Method]) -> dict[str, tuple[type[Any], ...]]:
    """Return the types that each option of a method may have.

    Examples
    --------
    >>> option_types(all_methods()["covariance"])
    {'precision': (<class 'str'>,)}
    """
    hints = get_type_hints(cls)
    return {f.name: get_args(hints[f.name]) or (hints[f.name],) for f in fields(cls)}


def option_defaults(cls: type[Method]) -> dict[str, Any]:
    """Return the default of each option of a method."""
    return {f.name: f.default for f in fields(cls) if f.default is not MISSING}


def read_option(cls: type[Method], option: str, text: str) -> Any:
    """Convert the text of an option to one of its types; text that fits none is returned as is.

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
    """Return "auto" or a method, from either or from a method's name."""
    if isinstance(method, Method):
        return method
    if method == AUTO:
        return AUTO
    return find_method(method)


_METER_BYTES = 128 << 20


def block_bytes(shape: Shape) -> float:
    """Return the bytes of one block of rows; blocks are of even sizes."""
    return shape.rows_bytes / max(block_count(shape), 1)


def block_count(shape: Shape) -> int:
    """Return the number of blocks of rows at the largest site."""
    return int(-(-shape.rows_bytes // limit_block_bytes(shape.rows, shape.features)))


def meter_bytes(shape: Shape, answered: int) -> float:
    """Return the bytes of the directions that the leakage meter keeps."""
    return min(shape.column_bytes(answered), float(_METER_BYTES))


def replies_in_hand(shape: Shape) -> int:
    """Return the number of replies that a coordinator holds at a time."""
    return min(shape.sites, 2 * shape.cores + 1)


def product_site_bytes(shape: Shape, answered: int, known: int) -> float:
    """Return the bytes that a site needs for products and for the leakage meter.

    Parameters
    ----------
    shape : Shape
    answered : int
        Number of directions revealed in all.
    known : int
        Number of directions that the certificate covers.
    """
    # The meter keeps directions and their images.
    meter = meter_bytes(shape, answered)
    return 2.0 * meter + max(
        1.4 * shape.column_bytes(known) + block_bytes(shape),
        min(block_count(shape), shape.cores) * block_bytes(shape),
    )


def product_s(shape: Shape, answered: float, calls: float) -> float:
    """Return a site's seconds for products with so many directions, moments and checks included."""
    moments = 2.0 * time_products(shape.rows, shape.features, shape.density, 1, 1)
    products = time_products(shape.rows, shape.features, shape.density, answered, calls)
    return moments + products


def iterated_cost(shape: Shape, width: int, rounds: int, held: float) -> Cost:
    """Return the cost of a method that sends one block of directions per round.

    Parameters
    ----------
    shape : Shape
    width : int
        Number of directions in a block.
    rounds : int
        Usual number of rounds, used if the shape does not give it.
    held : float
        Number of blocks that the coordinator holds, in addition to incoming replies.
    """
    rounds = shape.products or rounds
    answered = rounds * width
    return Cost(
        rounds + bool(shape.certify),
        answered,
        float(shape.features) * answered,
        product_site_bytes(shape, answered, width),
        (held + replies_in_hand(shape)) * shape.column_bytes(width),
        product_s(shape, answered, rounds),
        time_lanczos(shape.features, width, width) * rounds,
    )
