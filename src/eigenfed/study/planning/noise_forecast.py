"""Eigenvalues that a forecast reckons with: given, or assumed at three steepnesses.

What noise would leave of the components: the real coordinator, with sites of made-up rows.

The private protocol runs as it is: it splits the budget, searches for radii, calibrates and
decomposes. In place of sites answers what Gaussian rows with the given eigenvalues would sum to,
with as much noise as sites would add. Many features are stood for by few: the noise of a matrix
grows with the root of their number, so that the sums are made smaller by as much instead.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.special import digamma

from eigenfed.arrays import Array
from eigenfed.errors import ProtocolError
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.messages import Integers, pack
from eigenfed.protocol.operations import Limits, R, Request, State, Terms
from eigenfed.protocol.private.budget_schedule import terms_of
from eigenfed.protocol.private.private_pca import private_pca
from eigenfed.protocol.private.private_site import (
    BallRequest,
    CountReply,
    CountRequest,
    GridRequest,
    MomentReply,
    MomentRequest,
    RowsReply,
    ScreeReply,
    ScreeRequest,
    Sketched,
    SketchReply,
    SketchRequest,
    TotalReply,
    TotalRequest,
    WithinRequest,
)
from eigenfed.protocol.study import Study

_STEEP = 0.1
_CURVE_POINTS = 20_001


@dataclass(frozen=True, eq=False)
class Spectrum:
    """Eigenvalues of a covariance by falling size, never all of them in memory.

    Attributes
    ----------
    name : str
        How it falls, in a word.
    d : int
        Number of features.
    rank : int
        How many eigenvalues there are above 0.
    at : callable
        Eigenvalues at places below the rank.
    trace : float
        The sum of all.
    has_components : bool
        Whether there is anything to find: of pure noise, any directions are as good.
    """

    name: str
    d: int
    rank: int
    at: Callable[[npt.NDArray[np.int64]], Array]
    trace: float
    has_components: bool = True

    def values(self, count: int) -> Array:
        """Return so many eigenvalues: all, or the largest and a sample of the others.

        What a method sees of a spectrum is where it begins and how it goes on, so that few features
        with such eigenvalues stand for many.

        Examples
        --------
        >>> falling(0.5, d=1000, rank=999).values(4)
        array([1.00000000e+000, 5.00000000e-001, 2.50000000e-001, 3.05493...e-151])
        """
        places = np.arange(min(count, self.d))
        if self.rank > count:
            head = count - count // 2
            rest = np.linspace(head, self.rank, count // 2, endpoint=False).astype(np.int64)
            places = np.concatenate([places[:head], rest])
        found, there = np.zeros(len(places)), places < self.rank
        found[there] = self.at(places[there])
        return found

    def leading(self, k: int) -> float:
        """Return the sum of the first k."""
        return float(self.at(np.arange(min(k, self.rank))).sum())


def listed(given: Sequence[float], d: int, rank: int) -> Spectrum:
    """Take eigenvalues as they are given, and the rest as 0."""
    known = np.asarray(given[: min(d, rank)], dtype=np.float64) / given[0]
    there = int(np.count_nonzero(known))
    return Spectrum("given", d, there, lambda places: known[places], float(known.sum()))


def falling(share: float, d: int, rank: int, name: str = "given") -> Spectrum:
    """Let each eigenvalue be a share of the one before.

    Examples
    --------
    >>> falling(0.5, d=3, rank=3).trace
    1.75
    """
    trace = float(rank) if share == 1.0 else -math.expm1(rank * math.log(share)) / (1.0 - share)

    def at(places: npt.NDArray[np.int64]) -> Array:
        values: Array = share ** places.astype(np.float64)
        # Below the least normal number a feature would be constant.
        return np.maximum(values, np.finfo(np.float64).tiny)

    return Spectrum(name, d, rank, at, trace)


def assumed(n: int, d: int, k: int, rank: int) -> tuple[Spectrum, ...]:
    """Return spectra that others lie between, in how many rounds they take.

    Parameters
    ----------
    n : int
        Number of rows.
    d, k, rank : int

    Returns
    -------
    steep, usual, flat : Spectrum
        The components wanted and nothing else, each a tenth of the one before; one over its
        place; pure noise.
    """
    harmonic = float(digamma(rank + 1.0)) + np.euler_gamma
    usual = Spectrum("usual", d, rank, lambda places: np.reciprocal(places + 1.0), harmonic)
    return falling(_STEEP, d, min(k, rank), "steep"), usual, _noise(n, d, rank)


def _noise(n: int, d: int, rank: int) -> Spectrum:
    """Eigenvalues of rows without any structure, by the law of Marchenko and Pastur."""
    ratio = min(d, n) / max(d, n)
    low, high = (1.0 - math.sqrt(ratio)) ** 2, (1.0 + math.sqrt(ratio)) ** 2
    # Substituting x = middle - half cos(t) makes the density smooth at both ends.
    t = np.linspace(0.0, math.pi, _CURVE_POINTS)
    half = (high - low) / 2
    x = np.maximum((high + low) / 2 - half * np.cos(t), np.finfo(np.float64).tiny)
    density = np.sin(t) ** 2 / x
    below = np.concatenate([[0.0], np.cumsum((density[1:] + density[:-1]) / 2)])
    below /= below[-1]

    def at(places: npt.NDArray[np.int64]) -> Array:
        return np.interp(1.0 - (places + 0.5) / rank, below, x)

    return Spectrum("flat", d, rank, at, float(rank), has_components=False)


_MATRIX_FEATURES, _PRODUCT_FEATURES = 1000, 20_000
_DRAWN_NUMBERS, _PRODUCT_NUMBERS = 400_000, 2_000_000
_RUNS, _FEW_RUN_FEATURES = 8, 300
_LEAST_SIGNAL = 3.0


@dataclass(frozen=True)
class Kept:
    """What is left of the components under noise.

    Attributes
    ----------
    captured : float or None
        Variance along the noised components over that along the best; None where the run would
        end before there are any.
    ratio : float or None
        Size of the noise over the largest eigenvalue: above 1, no component stands out of it.
    problem : str
        What would end the run.
    """

    captured: float | None
    ratio: float | None
    problem: str = ""


def kept(study: Study, rows: dict[str, int], spectrum: Spectrum) -> Kept:
    """Forecast what a private PCA captures.

    Parameters
    ----------
    study : Study
        With its privacy and its method.
    rows : dict of str to int
        Numbers of rows of the sites.
    spectrum : Spectrum

    Examples
    --------
    >>> from eigenfed import Privacy
    >>> from eigenfed.study.planning.noise_forecast import falling
    >>> rows, spectrum = {"a": 30_000, "b": 30_000, "c": 30_000}, falling(0.5, 20, 20)
    >>> study = Study(("a", "b", "c"), 2, "covariance", privacy=Privacy(1.0, 1e-6))
    >>> found = kept(study, rows, spectrum)
    >>> found.captured > 0.95, found.ratio < 0.1
    (True, True)
    """
    k, privacy = study.components, terms_of(study)
    if privacy.trust == "central":
        # One trusted party adds the noise once, as one site would for itself.
        privacy, rows = replace(privacy, trust="local"), {"all": sum(rows.values())}
    if study.scale:
        privacy = replace(privacy, shares={**(privacy.shares or {}), "scree": 0.0})
    model = replace(study, sites=tuple(rows), privacy=privacy, scale=False)
    features = min(spectrum.d, _MATRIX_FEATURES)
    if study.chosen.iterates:
        most = max(_PRODUCT_NUMBERS // k, 4 * k)
        features = min(spectrum.d, _PRODUCT_FEATURES, most)
    found = []
    # With many features one run is as good as the mean of several.
    for seed in range(_RUNS if features <= _FEW_RUN_FEATURES else 1):
        # Seeded on purpose: this is a forecast about nobody's rows, and should not change.
        sites = _Modelled(model, rows, spectrum, features, np.random.default_rng(seed))
        try:
            components = _run(model, sites)
        except ProtocolError as error:
            return Kept(None, None, str(error))
        if study.scale and sites.least_signal < _LEAST_SIGNAL:
            return Kept(None, None, "The features' variances would not stand out of their noise.")
        found.append((float(np.sum(components**2 @ sites.values)), sites.ratio))
    captured, ratio = (float(mean) for mean in np.mean(found, axis=0))
    return Kept(min(captured / spectrum.leading(k), 1.0), ratio)


def _run(study: Study, sites: "_Modelled") -> Array:
    """Drive the private protocol, whose only ask outside of sums is for the numbers of rows."""
    protocol = private_pca(study, rng=sites.rng, total=sites)
    next(protocol)
    d, public = len(sites.values), terms_of(study).count == "public"
    replies = {
        name: pack(RowsReply(d=d, n=n if public else None)) for name, n in sites.rows.items()
    }
    try:
        protocol.send(replies)
    except StopIteration as end:
        components: Array = end.value.components
        return components
    raise ProtocolError("The private protocol asks for what a forecast does not know.")


class _Modelled:
    """Sums that sites with Gaussian rows would give, with their noise: a `Total`.

    Attributes
    ----------
    values : ndarray of shape (features,)
        Eigenvalues, along the axes.
    ratio : float
        Size of the noise on the last second moment or product over its largest eigenvalue.
    least_signal : float
        Mean variance of a feature over the deviation of its noise.
    """

    bounded = True
    limits: Limits | None = None

    def __init__(
        self,
        study: Study,
        rows: dict[str, int],
        spectrum: Spectrum,
        features: int,
        rng: np.random.Generator,
    ) -> None:
        self.rows, self.rng = rows, rng
        self.summed = tuple(rows)
        self.values = spectrum.values(features)
        self.ratio = self.least_signal = math.inf
        self._n = sum(rows.values())
        self._d = spectrum.d
        self._stretch = math.sqrt(spectrum.d / features)
        self._elsewhere = max(spectrum.trace - float(self.values.sum()), 0.0)
        count = min(self._n, max(_DRAWN_NUMBERS // features, 64))
        self._drawn = rng.standard_normal((count, features)) * np.sqrt(self.values)
        self._terms = Terms(study, self._n, len(self.values))
        self._state = State()
        self._parties = terms_of(study).parties(len(rows))

    def agree(self, limits: Limits) -> None:
        """Take limits, of which noised sums need none."""

    def error(self, bound: Bound) -> Array:
        """Return 0: rounding is nothing beside noise."""
        return np.zeros(np.shape(bound))

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Answer a request for a noised sum, without asking anybody."""
        yield from ()
        reply: R = self._reply(call.request, call.mu or math.inf)
        return reply

    def _reply(self, request: Request[Any], mu: float) -> Any:
        match request:
            case CountRequest():
                return self._counted(request, mu, 1.0)
            case WithinRequest():
                within = np.mean(self._squares(request) <= request.radius**2)
                return self._counted(request, mu, float(within))
            case TotalRequest():
                return self._total(request, mu)
            case MomentRequest():
                return self._scatter(request, mu)
            case SketchRequest():
                return self._product(request, mu)
            case ScreeRequest():
                # Variances are no part of the forecast.
                return ScreeReply(parts=np.zeros(len(request.components) + 1, np.int64))
        raise ProtocolError(f"A forecast does not know {request.op!r}.")

    def _counted(self, request: Request[CountReply], mu: float, part: float) -> CountReply:
        noise = self._noise(self._needed(request), mu, 1)
        return CountReply(count=_integers(self._n * part * COUNT_UNIT + noise))

    def _total(self, request: TotalRequest, mu: float) -> TotalReply:
        # Rows lie about their mean alike on all sides: what is left of their sum is how far the
        # centre is from it, and noise.
        shorter = float(np.sqrt(self._shortened(request)).mean())
        left = -request.center * (shorter * self._n * self._grid(request) / request.radius)
        noise = self._noise(self._needed(request), mu, len(self.values))
        return TotalReply(total=_integers(left + noise))

    def _scatter(self, request: MomentRequest, mu: float) -> MomentReply:
        d, noise = len(self.values), self._needed(request)
        shorter, away = self._shortened(request), self._away(request)
        moment = np.diag(self._moment(shorter)) + shorter.mean() * np.outer(away, away)
        signal = moment[np.triu_indices(d)] * self._unit(request)
        self._weigh(noise, mu, request, shorter, math.sqrt(0.5))
        drawn = noise.relative["triangle"] * self._noise(noise, mu, len(signal))
        return MomentReply(triangle=_integers(signal + drawn))

    def _product(self, request: SketchRequest, mu: float) -> SketchReply:
        basis, noise, clip = request.basis, self._needed(request), request.update_clip(self._state)
        shorter, away = self._shortened(request), self._away(request)
        squares = self._squares(request) * shorter
        onto = np.sum(((self._drawn - away) @ basis) ** 2, axis=1) * shorter
        if clip < 1.0:
            # Directions at random also meet what lies outside the features drawn.
            onto += self._elsewhere * shorter * basis.shape[1] / len(basis)
        sizes = np.sqrt(squares * onto) / request.radius**2
        shorter = shorter * np.minimum(1.0, clip / np.maximum(sizes, np.finfo(float).tiny))
        image = self._moment(shorter)[:, None] * basis
        image += shorter.mean() * np.outer(away, away @ basis)
        self._weigh(noise, mu, request, shorter, 1.0)
        drawn = self._noise(noise, mu, image.size).reshape(image.shape)
        self._state = replace(self._state, own=Sketched())
        return SketchReply(product=_integers(image * self._unit(request) + drawn))

    def _needed(self, request: Request[Any]) -> Noise:
        """Return the noise that a site would add."""
        noise = request.noise(self._terms, self._state)
        if noise is None:
            raise ProtocolError(f"{request.op!r} has no noise.")
        return noise

    def _grid(self, request: GridRequest) -> int:
        return request.grid(len(self.values))

    def _away(self, request: BallRequest) -> Array:
        """Return the error of the mean, as long as it is with all features."""
        return request.center * self._stretch

    def _squares(self, request: BallRequest) -> Array:
        """Return squared lengths of rows about the centre."""
        around = self._drawn - self._away(request)
        squares: Array = np.einsum("ij,ij->i", around, around) + self._elsewhere
        return squares

    def _shortened(self, request: BallRequest) -> Array:
        """Return what clipping leaves of the squared length of each row."""
        squares = np.maximum(self._squares(request), np.finfo(float).tiny)
        return np.minimum(1.0, request.radius**2 / squares)

    def _moment(self, shorter: Array) -> Array:
        """Return the variances along the axes when rows count so much.

        What they are without is known: only the part that is left is taken from the rows drawn.
        """
        squares = self._drawn**2
        whole = np.maximum(squares.sum(axis=0), np.finfo(float).tiny)
        part: Array = self.values * (shorter @ squares) / whole
        return part

    def _unit(self, request: GridRequest) -> float:
        """Return what turns variances into sums of integers, less for the features missing."""
        per_row = (self._grid(request) / request.radius) ** 2
        return self._n * per_row / self._stretch

    def _weigh(
        self, noise: Noise, mu: float, request: GridRequest, shorter: Array, beside: float
    ) -> None:
        """Compare noise and signal."""
        deviation, unit = self._deviation(noise, mu), self._unit(request)
        largest = float(self._moment(shorter).max()) * unit
        self.ratio = beside * deviation * math.sqrt(len(self.values)) / largest
        trace = float(shorter.mean()) * (float(self.values.sum()) + self._elsewhere)
        self.least_signal = trace / self._d * unit * self._stretch / deviation

    def _deviation(self, noise: Noise, mu: float) -> float:
        return noise.sensitivity / mu * math.sqrt(len(self.rows) / self._parties)

    def _noise(self, noise: Noise, mu: float, count: int) -> Array:
        return self.rng.standard_normal(count) * self._deviation(noise, mu)


def _integers(values: Array) -> Integers:
    return np.rint(values).astype(np.int64)
