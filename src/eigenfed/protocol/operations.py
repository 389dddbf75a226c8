"""Operations of a site: typed requests, pure functions, and a declaration of what leaves.

A request says what it needs to be admitted before a row is touched: that its fields fit the run
(`Request.check`), which directions it asks about (`Request.directions`), within which bounds its
reply lies in a secure sum (`Request.bounds`) and how much noise it takes (`Request.noise`). None of
this is believed from the wire: shapes follow from the site's features and the study.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_type_hints

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.leakage import Answered
from eigenfed.privacy.release import Release
from eigenfed.privacy.secagg.fixed_point import Bound

if TYPE_CHECKING:
    from eigenfed.protocol.study import Study


ORTHONORMAL = 1e-8
"""How far the inner products of directions may be from those of an orthonormal set."""
NARROW_ORTHONORMAL = 1e-5
"""The same where floats crossed in single precision."""
LARGEST = 1e150
"""No number of a request is larger: squares of larger ones overflow."""

R = TypeVar("R")
Q = TypeVar("Q", bound="Request[Any]")


@dataclass(frozen=True)
class Limits:
    """What one site can bring at most, in a run whose sums need bounds.

    Attributes
    ----------
    entry : float
        Magnitude of an entry, and of a deviation from a mean.
    weight : float
        Sum of the weights of its rows.
    parties : int
        Number of sites.
    d : int
        Number of features.
    most : float
        No less than the total squared deviation of all rows.
    """

    entry: float
    weight: float
    parties: int
    d: int
    most: float = np.inf

    @property
    def squares(self) -> float:
        """Largest sum of squared deviations of one feature."""
        return self.weight * self.entry**2


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """The mean and scale through which a run sees the rows, and what follows from them.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,)
    trace : float
        Total squared deviation about the mean, in units of the scale.
    raw_trace : float
        Total squared deviation about the site's own mean, in the units of the rows: what the
        leakage meter compares with.
    shift : ndarray of shape (d,)
        Root of the weight times the site's own mean less the run's.
    """

    mean: Array
    scale: Array
    trace: float
    raw_trace: float
    shift: Array

    def answered(self, directions: Array, images: Array) -> Answered:
        """Return what the meter counts: directions (d, l), and the scatter times them."""
        return Answered(directions, images, self.raw_trace, self.scale, self.shift)


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """What a site keeps between the rounds of one run.

    Attributes
    ----------
    totals : tuple or None
        What `moments` answered: weight, observed weight and total of each feature.
    scatter : OwnScatter or None
        The site's scatter about its own mean, kept so that the rows are read once.
    declared : tuple of int, or None
        The powers of two that `magnitude` answered, of entries and of the weight.
    limits : Limits or None
        What the sites have agreed on.
    sent : tuple of ndarray, or None
        The run's mean and scale, once they were sent.
    frame : Frame or None
        What follows from them at this site, once it was needed.
    blocks : tuple of ndarray
        Directions of the products answered in this run, in order.
    own : object
        Whatever the method's own operations keep.
    """

    totals: tuple[float, Array, Array] | None = None
    scatter: OwnScatter | None = None
    declared: tuple[int, int] | None = None
    limits: Limits | None = None
    sent: tuple[Array, Array] | None = None
    frame: Frame | None = None
    blocks: tuple[Array, ...] = ()
    own: object = None

    @property
    def sent_frame(self) -> tuple[Array, Array]:
        """The run's mean and scale."""
        if self.sent is None:
            raise InputError("The first request about the rows brings the mean and scale.")
        return self.sent


@dataclass(frozen=True)
class Terms:
    """What a site knows of a run, apart from its rows.

    Attributes
    ----------
    study : Study
        What the site has approved, with the method that the run uses.
    n, d : int
        Numbers of the site's rows and features.
    parties : int
        Number of sites in a secure sum; 0 where sums are plain.
    narrow : bool
        Whether floats cross in single precision.
    """

    study: "Study"
    n: int
    d: int
    parties: int = 0
    narrow: bool = False

    @property
    def k(self) -> int:
        """Number of components."""
        return self.study.components

    def check_vector(self, name: str, value: Array) -> None:
        """Refuse what is not one finite number for each feature."""
        check_finite(name, value, (self.d,))

    def check_directions(
        self,
        name: str,
        value: Array,
        most: int,
        size: int | None = None,
        tolerance: float = ORTHONORMAL,
    ) -> None:
        """Refuse what is not from 1 to `most` orthonormal columns, one row for each feature."""
        rows = self.d if size is None else size
        if value.ndim != 2 or value.shape[0] != rows or not 1 <= value.shape[1] <= most:
            raise InputError(f"{name} must have {rows} rows and 1 to {most} columns.")
        check_finite(name, value, value.shape)
        tolerance = NARROW_ORTHONORMAL if self.narrow else tolerance
        inner = value.T @ value
        inner.flat[:: len(inner) + 1] -= 1.0
        if not np.abs(inner).max() <= tolerance:
            raise InputError(f"The columns of {name} must be orthonormal.")


def check_finite(name: str, value: Array, shape: tuple[int, ...]) -> None:
    """Refuse an array of another shape, or with a number that is not finite or very large."""
    if value.shape != shape:
        raise InputError(f"{name} must have the shape {shape}.")
    # Written so that NaN, which is not at most anything, is refused.
    if value.size and not max(float(value.max()), -float(value.min())) <= LARGEST:
        raise InputError(f"{name} must hold finite numbers of moderate size.")


def check_integer(name: str, value: int, least: int, most: int) -> None:
    """Refuse an integer outside its range."""
    if not least <= value <= most:
        raise InputError(f"{name} must be from {least} to {most}.")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request(Generic[R]):
    """What a coordinator asks of a site; `R` is the type of the reply.

    Attributes
    ----------
    op : str
        Name of the operation, of each class.
    reply : type
        Type of the reply, of each class.
    """

    op: ClassVar[str]
    reply: ClassVar[type[Any]]

    def check(self, terms: Terms, state: State) -> None:
        """Refuse fields that do not fit the run; rows are never looked at.

        Raises
        ------
        InputError
            Its text stays at the site.
        """

    def agreed(self, terms: Terms, state: State) -> State:
        """Return the state with what this request brings that later ones rest on."""
        return state

    def directions(self) -> Array | None:
        """Return the directions (d, l) that it brings and asks about."""
        return None

    def about(self: Q, directions: Array) -> Q:
        """Return the same request about other directions."""
        return self

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return how many directions it asks about that follow from the rows."""
        return 0

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return the largest magnitude of one site's entries, for each array of the reply."""
        return {}

    def noise(self, terms: Terms, state: State) -> Noise | None:
        """Return the noise that makes the reply private; None where it leaves without."""
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Generic[R]):
    """What an operation brings.

    Attributes
    ----------
    reply : object
        What leaves the site, once the gate lets it.
    state : State
        What the site keeps for later rounds of the same run.
    revealed : Answered or None
        What the leakage meter counts, where the reply reveals directions.
    """

    reply: R
    state: State
    revealed: Answered | None = None


Run = Callable[[Source, Q, State, Terms], Answer[R]]


@dataclass(frozen=True)
class Op(Generic[Q, R]):
    """A function ``run(source, request, state, terms)``, its request, and its declaration."""

    name: str
    request: type[Q]
    run: Run[Q, R]
    release: Release


def op(release: Release) -> Callable[[Run[Q, R]], Op[Q, R]]:
    """Declare an operation: its name is the function's, its request the type of the argument.

    Examples
    --------
    >>> from dataclasses import dataclass
    >>> from eigenfed.privacy.release import Leaves, Release, Reveals
    >>> @dataclass(frozen=True)
    ... class Size:
    ...     n: int
    >>> class SizeRequest(Request[Size]):
    ...     op, reply = "size", Size
    >>> @op(Release("number of rows", "1", Leaves.EXACT, Reveals.SIZE))
    ... def size(source: Source, request: SizeRequest, state: State, terms: Terms) -> Answer[Size]:
    ...     return Answer(Size(source.n), state)
    >>> size.name, size.request.__name__
    ('size', 'SizeRequest')
    """

    def declared(run: Run[Q, R]) -> Op[Q, R]:
        hints = get_type_hints(run)
        request = hints["request"]
        if request.op != run.__name__:
            raise InputError(
                f"The request of {run.__name__!r} names the operation {request.op!r}. Rename one."
            )
        return Op(run.__name__, request, run, release)

    return declared
