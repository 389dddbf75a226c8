"""Operations of a site: typed requests, pure functions, and a declaration of what leaves.

A request determines everything the gate needs to admit it before a row is read: whether its fields
are valid for the run (`Request.check`), along which directions it reveals the covariance
(`Request.directions`), the bounds of its reply in secure aggregation (`Request.bounds`) and its
noise (`Request.noise`). The site computes all of these itself, from its own features and the study;
none is taken from the message.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, ClassVar, Generic, TypeVar, get_type_hints

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.data.feature_totals import FeatureTotals
from eigenfed.data.loci import Loci
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.prepared import Prepared
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.shifted_rows import ShiftedRows
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.linalg.remembered import remember_last
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.release import Release
from eigenfed.privacy.revealed_products import RevealedEntries, RevealedProducts
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.component_count import bound_count, count_per_request

if TYPE_CHECKING:
    from eigenfed.protocol.study import Study


ORTHONORMAL = 1e-8
"""Largest error allowed in the inner products of directions that must be orthonormal."""
NARROW_ORTHONORMAL = 1e-5
"""The same for directions that were sent in single precision."""
LARGEST = 1e150
"""Largest magnitude of a number in a request: squares of larger ones would overflow."""

R = TypeVar("R")
Q = TypeVar("Q", bound="Request[Any]")


@dataclass(frozen=True)
class Limits:
    """Largest contribution of one site to a sum, in a run whose sums need bounds.

    Attributes
    ----------
    entry : float
        Largest magnitude of an entry, before and after centring.
    weight : float
        Largest sum of the weights of the site's rows.
    parties : int
        Number of sites.
    d : int
        Number of features.
    most : float
        Upper bound on the total sum of squares of all centred rows.
    """

    entry: float
    weight: float
    parties: int
    d: int
    most: float = np.inf

    @property
    def squares(self) -> float:
        """Largest sum of squares of one centred feature."""
        return self.weight * self.entry**2


@dataclass(frozen=True, eq=False, repr=False)
class Frame:
    """The mean and scale of a run, and what follows from them at one site.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,)
    trace : float
        Total sum of squares of the centred and scaled rows.
    spread : ndarray of shape (d,)
        Sum of squares of each feature about the site's own mean, in the units of the rows, to whose
        total the leakage meter relates the revealed variance; 0 for features constant up to
        rounding.
    shift : ndarray of shape (d,)
        Square root of the weight times the difference of the site's own mean and the run's mean,
        or that of the near rows of `shifted`.
    near : bool
        Whether the run's mean is no larger than the spread of the site's rows about it.
    rest : ndarray of shape (d,), or None
        What is subtracted after the mean, as in `eigenfed.data.prepared.Prepared`.
    around : Prepared or None
        The rows about the site's own mean, if the run's is so far from features with gaps that
        products about it have lost the digits that the leakage meter needs.
    shifted : ShiftedRows or None
        The rows about the run's mean, if it is as far from any feature.
    """

    mean: Array
    scale: Array
    trace: float
    spread: Array
    shift: Array
    near: bool = False
    rest: Array | None = None
    around: Prepared | None = None
    shifted: ShiftedRows | None = None

    @property
    def near_trace(self) -> float:
        """The trace, without what a distant mean adds to it."""
        if self.shifted is None:
            return self.trace
        return float((self.spread / self.shifted.scale**2).sum())

    def answered(self, directions: Array, images: Array) -> RevealedProducts:
        """Return what the leakage meter counts: directions (d, l) and the scatter times them."""
        shift, along = self.shift if self._is_moved else None, None
        if self.around is not None:
            images, shift = self.around.product(directions), None
        elif self.shifted is not None:
            near = self.shifted.near_product(directions)
            if shift is None:
                images, shift, along = near
            else:
                images = self.shifted.near_rows.join_parts(near)
        scale = self.scale if self._is_scaled else None
        trace = float(self.spread.sum())
        return RevealedProducts(
            directions, images, trace, scale, shift, spread=self.spread, along=along
        )

    @cached_property
    def _is_scaled(self) -> bool:
        return bool((self.scale != 1.0).any())

    @cached_property
    def _is_moved(self) -> bool:
        return bool(self.shift.any())


@dataclass(frozen=True, eq=False, repr=False)
class VariantState:
    """How far the quality control of variants has come at one site.

    Attributes
    ----------
    passed : ndarray of int64 or None
        Variants that passed the filters, whose products are sent next.
    mean : ndarray or None
        Their mean numbers of copies over all sites.
    start : int
        Place, among those that passed, of the first variant whose products were not sent yet.
    """

    passed: npt.NDArray[np.int64] | None = None
    mean: Array | None = None
    start: int = 0


@dataclass(frozen=True, eq=False, repr=False)
class State:
    """State of a site between the rounds of one run.

    Attributes
    ----------
    preparation : Preparation
        The steps of the study, with the figures received so far.
    variants : VariantState or None
        What the quality control of variants has settled, once their counts were sent.
    totals : FeatureTotals or None
        Reply to `moments`.
    scatter : OwnScatter or None
        The site's scatter about its own mean, kept so that the rows are read once.
    declared : tuple of int, or None
        Reply to `magnitude`: powers of two that bound the entries and the weight.
    limits : Limits or None
        Limits that the sites have agreed on.
    constant : ndarray of bool, shape (d,), or None
        Which features the reply to `squares` has called constant: they count as nothing then.
    sent : tuple of ndarray, or None
        The run's mean and scale, once they were received.
    centers_itself : bool
        Whether the site's own mean takes the place of the run's, which is 0.
    single : bool
        Whether genotypes are multiplied in single precision.
    frame : Frame or None
        What follows from them at this site, once it was computed.
    blocks : tuple of ndarray
        Directions of the products answered in this run, in order.
    own : object
        State of the method's own operations.
    """

    preparation: Preparation = field(default_factory=Preparation)
    variants: VariantState | None = None
    totals: FeatureTotals | None = None
    scatter: OwnScatter | None = None
    declared: tuple[int, int] | None = None
    limits: Limits | None = None
    constant: npt.NDArray[np.bool_] | None = None
    sent: tuple[Array, Array] | None = None
    centers_itself: bool = False
    single: bool = False
    frame: Frame | None = None
    blocks: tuple[Array, ...] = ()
    own: object = None

    @property
    def sent_frame(self) -> tuple[Array, Array]:
        """The run's mean and scale."""
        if self.sent is None:
            raise InputError("The first request about the rows must carry the mean and scale.")
        return self.sent


@dataclass(frozen=True)
class Terms:
    """What a site knows about a run, apart from the content of its rows.

    Attributes
    ----------
    study : Study
        The study that the site approved, with the method of the run.
    n, d : int
        Numbers of the site's rows, and of their features after the steps applied so far.
    parties : int
        Number of sites in secure aggregation; 0 without it.
    narrow : bool
        Whether floats are sent in single precision.
    loci : Loci or None
        Where the variants of genotypes lie; None for other rows.
    """

    study: "Study"
    n: int
    d: int
    parties: int = 0
    narrow: bool = False
    loci: Loci | None = None

    @property
    def k(self) -> int:
        """Largest number of components."""
        return bound_count(self.study.components, self.d)

    @property
    def block(self) -> int:
        """Number of components that a request is made for."""
        return count_per_request(self.study.components, self.d)

    def check_vector(self, name: str, value: Array) -> None:
        """Raise InputError unless `value` has one finite number per feature."""
        check_finite(name, value, (self.d,))

    def check_directions(
        self,
        name: str,
        value: Array,
        most: int,
        size: int | None = None,
        tolerance: float = ORTHONORMAL,
    ) -> None:
        """Raise InputError unless `value` has 1 to `most` orthonormal columns.

        Parameters
        ----------
        name : str
        value : ndarray of shape (size, l)
        most : int
        size : int, optional
            Number of rows; None means the number of features.
        tolerance : float
            Largest error of the inner products, in double precision.
        """
        rows = self.d if size is None else size
        if value.ndim != 2 or value.shape[0] != rows or not 1 <= value.shape[1] <= most:
            raise InputError(f"{name} must have {rows} rows and 1 to {most} columns.")
        tolerance = NARROW_ORTHONORMAL if self.narrow else tolerance
        # Negated so that NaN is refused as well.
        if not _measure_defect(value) <= tolerance:
            raise InputError(f"The columns of {name} must be orthonormal.")


@remember_last
def _measure_defect(columns: Array) -> float:
    """Return the largest error of inner products; NaN or infinite where columns are not finite."""
    with np.errstate(all="ignore"):
        inner = columns.T @ columns
    inner.flat[:: len(inner) + 1] -= 1.0
    return float(np.abs(inner).max())


def check_finite(
    name: str, value: Array, shape: tuple[int, ...], *, largest: float = LARGEST
) -> None:
    """Raise InputError for another shape, or a number that is not finite or is very large."""
    if value.shape != shape:
        raise InputError(f"{name} must have the shape {shape}.")
    # Negated so that NaN is refused as well.
    if value.size and not max(float(value.max()), -float(value.min())) <= largest:
        raise InputError(f"{name} must hold finite numbers of magnitude at most {largest:g}.")


def check_integer(name: str, value: int, least: int, most: int) -> None:
    """Raise InputError for an integer outside its range."""
    if not least <= value <= most:
        raise InputError(f"{name} must be from {least} to {most}.")


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Request(Generic[R]):
    """A coordinator's request to a site; `R` is the type of the reply.

    Attributes
    ----------
    op : str
        Name of the operation, a class attribute.
    reply : type
        Type of the reply, a class attribute.
    noisy : bool
        Whether secure aggregation adds noise before it rounds the reply, a class attribute: where
        the request decides how large the numbers are, how they are rounded would reveal them.
    counts : frozenset of str
        Arrays of the reply to which it adds none in any case: a class attribute.
    """

    op: ClassVar[str]
    reply: ClassVar[type[Any]]
    noisy: ClassVar[bool] = False
    counts: ClassVar[frozenset[str]] = frozenset()

    def check(self, terms: Terms, state: State) -> None:
        """Check that the fields are valid for the run, without looking at the rows.

        Raises
        ------
        InputError
            If they are not. Its text stays at the site.
        """

    def apply_to(self, terms: Terms, state: State) -> State:
        """Return the state with the values of this request that later requests rely on."""
        return state

    def directions(self) -> Array | None:
        """Return the directions (d, l) in the request along which the reply reveals the scatter."""
        return None

    def with_directions(self: Q, directions: Array) -> Q:
        """Return the same request for other directions."""
        return self

    def own_directions(self, terms: Terms, state: State) -> int:
        """Return how many directions the reply reveals that the site computes from its rows."""
        return 0

    def bounds(self, limits: Limits) -> Mapping[str, Bound]:
        """Return, for each array of the reply, the largest magnitude of one site's entries."""
        return {}

    def list_noisy(self, reply: Arrays) -> frozenset[str]:
        """Return which arrays of a reply secure aggregation adds noise to before it rounds them."""
        return frozenset(reply) - self.counts if self.noisy else frozenset()

    def noise(self, terms: Terms, state: State) -> Noise | None:
        """Return the noise to add to the reply; None if it leaves without noise."""
        return None


@dataclass(frozen=True, eq=False, repr=False)
class Answer(Generic[R]):
    """Result of an operation.

    Attributes
    ----------
    reply : object
        The reply, before the gate adds noise or masks.
    state : State
        State for later rounds of the same run.
    revealed : RevealedProducts or None
        What the leakage meter counts, if the reply reveals the scatter along some directions.
    entries : RevealedEntries or None
        The same, if it reveals single entries of the scatter.
    """

    reply: R
    state: State
    revealed: RevealedProducts | None = None
    entries: RevealedEntries | None = None


Run = Callable[[Source, Q, State, Terms], Answer[R]]


@dataclass(frozen=True)
class Op(Generic[Q, R]):
    """An operation: ``run(source, request, state, terms)``, its request and its declaration."""

    name: str
    request: type[Q]
    run: Run[Q, R]
    release: Release


def op(release: Release) -> Callable[[Run[Q, R]], Op[Q, R]]:
    """Declare an operation, named after the function, for the type of its `request` argument.

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

    def declare(run: Run[Q, R]) -> Op[Q, R]:
        hints = get_type_hints(run)
        request = hints["request"]
        if request.op != run.__name__:
            raise InputError(
                f"The request of {run.__name__!r} names the operation {request.op!r}. Rename one."
            )
        return Op(run.__name__, request, run, release)

    return declare
