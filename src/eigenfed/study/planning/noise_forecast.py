"""Forecast of what noise leaves of the components.

The coordinator of the private protocol runs unchanged: it splits the budget, searches for radii,
calibrates and decomposes. The sites are replaced by a model (`_SimulatedSites`) that returns the
sums of Gaussian rows with the given eigenvalues, plus as much noise as sites would add.

Many features are represented by few. The spectral norm of a noise matrix grows with the square root
of the number of features, so the signal is divided by the square root of the ratio instead.
"""

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array, Integers
from eigenfed.errors import ProtocolError
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.dp.norm_counts import encode_counts, near_radii, wide_radii
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.secagg.fixed_point import Bound
from eigenfed.protocol.core import Call, Protocol
from eigenfed.protocol.exact.spectrum import pack_symmetric
from eigenfed.protocol.messages import pack
from eigenfed.protocol.operations import Limits, R, Request, State, Terms
from eigenfed.protocol.private.budget_schedule import require_privacy
from eigenfed.protocol.private.private_pca import private_pca
from eigenfed.protocol.private.private_site import (
    BallRequest,
    CountReply,
    CountRequest,
    GridRequest,
    MomentReply,
    MomentRequest,
    NormsReply,
    NormsRequest,
    RowsReply,
    ScreeReply,
    ScreeRequest,
    Sketched,
    SketchReply,
    SketchRequest,
    StartReply,
    StartRequest,
    TotalReply,
    TotalRequest,
)
from eigenfed.protocol.private.reply_noise import START_GRID
from eigenfed.protocol.study import Study
from eigenfed.study.planning.assumed_spectra import Spectrum

_MATRIX_FEATURES, _PRODUCT_FEATURES = 1000, 20_000
_DRAWN_NUMBERS, _PRODUCT_NUMBERS = 400_000, 2_000_000
_RUNS, _FEW_RUN_FEATURES = 8, 300
_LEAST_SIGNAL = 3.0
_CLIP_LENGTH = 1.25
"""Assumed length of a public clip, relative to the root mean square of the norms of the rows:
nearly all of them are shorter."""


@dataclass(frozen=True)
class NoiseEffect:
    """What noise leaves of the components.

    Attributes
    ----------
    captured : float or None
        Variance along the noisy components relative to that along the best components; None if the
        run would fail before it has any.
    ratio : float or None
        Standard deviation of the noise on an entry times the square root of the number of features,
        relative to the largest eigenvalue. Above 1, no component can be told from noise: the
        threshold of Baik, Ben Arous and Peche (2005).
    problem : str
        Why the run would fail; empty if it would not.
    signal : float or None
        Squared cosine of the first component with the one without noise. The variance captured
        can be large without it: where the mean is not found, its error takes the first place.
    """

    captured: float | None
    ratio: float | None
    problem: str = ""
    signal: float | None = None


OFFSET, OFFSET_FROM_PUBLIC = 5.0, 1.0
"""Assumed distance of the mean of the rows from 0, and from a public centre, relative to their
spread: measurements such as weights or blood pressures lie about that far from 0."""


def assume_offset(privacy: Privacy | None, offset: float | None) -> float:
    """Return the offset that is given, or the one that is assumed.

    Examples
    --------
    >>> assume_offset(None, None), assume_offset(None, 2.0)
    (5.0, 2.0)
    """
    if offset is not None:
        return offset
    is_known = privacy is not None and privacy.public_center is not None
    return OFFSET_FROM_PUBLIC if is_known else OFFSET


def forecast_noise(
    study: Study, rows: dict[str, int], spectrum: Spectrum, *, offset: float | None = None
) -> NoiseEffect:
    """Forecast how much variance the components of a private run capture.

    Parameters
    ----------
    study : Study
        With its privacy and its method.
    rows : dict of str to int
        Number of rows of each site.
    spectrum : Spectrum
    offset : float, optional
        Distance of the mean of the rows from the public centre, or from 0 if there is none,
        relative to the square root of their total variance. By default `OFFSET_FROM_PUBLIC` or
        `OFFSET`.

    Examples
    --------
    >>> from eigenfed import Privacy
    >>> from eigenfed.study.planning.assumed_spectra import make_geometric_spectrum
    >>> rows = {"a": 30_000, "b": 30_000, "c": 30_000}
    >>> study = Study(("a", "b", "c"), 2, "covariance", privacy=Privacy(1.0, 1e-6))
    >>> found = forecast_noise(study, rows, make_geometric_spectrum(0.5, 20, 20))
    >>> found.captured > 0.95, found.ratio < 0.1
    (True, True)
    """
    k, privacy = study.k, require_privacy(study)
    offset = assume_offset(privacy, offset)
    privacy = replace(privacy, public_center=None, public_scale=None, if_missing="mean")
    if privacy.clip is not None:
        # Eigenvalues are relative to the largest, and a clip in the units of the rows is not.
        distance = offset if study.center else 0.0
        clip = _CLIP_LENGTH * math.sqrt(spectrum.trace * (1.0 + distance**2))
        privacy = replace(privacy, clip=clip)
    if privacy.trust == "central":
        # A trusted coordinator adds the noise once, like a single site with local noise.
        privacy, rows = replace(privacy, trust="local"), {"all": sum(rows.values())}
    if study.scale:
        privacy = replace(privacy, shares={**(privacy.shares or {}), "scree": 0.0})
    model = replace(study, sites=tuple(rows), privacy=privacy, scale=False)
    features = min(spectrum.d, _MATRIX_FEATURES)
    if study.chosen.iterates:
        most = max(_PRODUCT_NUMBERS // k, 4 * k)
        features = min(spectrum.d, _PRODUCT_FEATURES, most)
    runs = []
    # With many features, noise averages out within one run.
    for seed in range(_RUNS if features <= _FEW_RUN_FEATURES else 1):
        # A fixed seed: no real rows are involved, and the same question gets the same forecast.
        rng = np.random.default_rng(seed)
        sites = _SimulatedSites(model, rows, spectrum, features, rng, offset)
        try:
            components = _run(model, sites)
        except ProtocolError as error:
            return NoiseEffect(None, None, str(error))
        if study.scale and sites.least_signal < _LEAST_SIGNAL:
            problem = "The variances of the features would be lost in their noise."
            return NoiseEffect(None, None, problem)
        kept = float(np.sum(components**2 @ sites.values))
        runs.append((kept, sites.ratio, float(components[0, 0] ** 2)))
    captured, ratio, signal = (float(mean) for mean in np.mean(runs, axis=0))
    return NoiseEffect(min(captured / spectrum.leading(k), 1.0), ratio, signal=signal)


def _run(study: Study, sites: "_SimulatedSites") -> Array:
    """Drive the private protocol and return its components.

    All of its requests are for sums, which `sites` answers, except the first, for numbers of rows.
    """
    protocol = private_pca(study, rng=sites.rng, total=sites, weigh=False)
    next(protocol)
    d, public = len(sites.values), require_privacy(study).count == "public"
    replies = {
        name: pack(RowsReply(d=d, n=n if public else None)) for name, n in sites.rows.items()
    }
    try:
        protocol.send(replies)
    except StopIteration as end:
        components: Array = end.value.components
        return components
    raise ProtocolError("The private protocol sent a request that a forecast cannot answer.")


class _SimulatedSites:
    """A `Total` that returns the noisy sums of sites with Gaussian rows.

    The axes are the eigenvectors, so that the covariance is diagonal.

    Attributes
    ----------
    values : ndarray of shape (features,)
        Eigenvalues.
    ratio : float
        Noise on the last second moment or product relative to its largest eigenvalue; see
        `NoiseEffect`.
    least_signal : float
        Mean variance of a feature relative to the standard deviation of its noise.
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
        offset: float,
    ) -> None:
        self.rows, self.rng = rows, rng
        self.summed = tuple(rows)
        self.values = spectrum.values(features)
        self.ratio = self.least_signal = math.inf
        self._n = sum(rows.values())
        self._d = spectrum.d
        self._stretch = math.sqrt(spectrum.d / features)
        self._omitted = max(spectrum.trace - float(self.values.sum()), 0.0)
        count = min(self._n, max(_DRAWN_NUMBERS // features, 64))
        self._drawn = rng.standard_normal((count, features)) * np.sqrt(self.values)
        # The norm of the mean is that with all features; its direction has no part in any axis
        # that is larger than in others.
        size = offset * math.sqrt(spectrum.trace) / self._stretch if study.center else 0.0
        self._mean = size * _draw_direction(features, rng)
        self._terms = Terms(study, self._n, len(self.values))
        self._state = State()
        self._parties = require_privacy(study).parties(len(rows))

    def agree(self, limits: Limits) -> None:
        """Ignore limits: noisy sums need none."""

    def error(self, bound: Bound) -> Array:
        """Return 0: rounding is negligible compared with noise."""
        return np.zeros(np.shape(bound))

    def __call__(self, call: Call[R]) -> Protocol[R]:
        """Answer a request for a noisy sum from the model, without any message."""
        yield from ()
        reply: R = self._reply(call.request, call.mu or math.inf)
        return reply

    def _reply(self, request: Request[Any], mu: float) -> Any:
        match request:
            case CountRequest():
                return self._release_count(request, mu, 1.0)
            case StartRequest():
                return self._release_start(request, mu)
            case NormsRequest():
                noise = self._site_noise(request)
                norms = np.sqrt(self._squared_norms(request))
                counts = self._count_norms(norms, near_radii(request.radius))
                return NormsReply(counts=_round(counts + self._draw_noise(noise, mu, len(counts))))
            case TotalRequest():
                return self._release_total(request, mu)
            case MomentRequest():
                return self._release_moment(request, mu)
            case SketchRequest():
                return self._release_product(request, mu)
            case ScreeRequest():
                # The forecast does not use the variances along the components.
                return ScreeReply(parts=np.zeros(len(request.components) + 1, np.int64))
        raise ProtocolError(f"A forecast cannot answer {request.op!r}.")

    def _release_count(self, request: Request[CountReply], mu: float, part: float) -> CountReply:
        noise = self._draw_noise(self._site_noise(request), mu, 1)
        return CountReply(count=_round(self._n * part * COUNT_UNIT + noise))

    def _release_start(self, request: StartRequest, mu: float) -> StartReply:
        noise = self._site_noise(request)
        rows = self._drawn + self._mean * self._stretch
        norms = np.sqrt(np.einsum("ij,ij->i", rows, rows) + self._omitted)
        parts = {
            "counts": self._count_norms(norms, wide_radii()),
            "total": (rows / norms[:, None]).mean(axis=0) * (self._n * START_GRID / self._stretch),
            "count": np.array([float(self._n * COUNT_UNIT)]),
        }
        noisy = {
            name: _round(parts[name] + sds * self._draw_noise(noise, mu, len(sds)))
            for name, sds in noise.relative.items()
        }
        return StartReply(**noisy)

    def _count_norms(self, norms: Array, radii: Array) -> Array:
        """Return the counts of all rows, as those of the drawn ones."""
        return encode_counts(norms, radii).astype(np.float64) * (self._n / len(norms))

    def _release_total(self, request: TotalRequest, mu: float) -> TotalReply:
        # Rows are symmetric about their mean: their clipped sum about `center` is the distance of
        # the centre from the mean, times the mean clipping factor.
        factor = float(np.sqrt(self._clip_squares(request)).mean())
        unit = factor * self._n * self._grid(request) / request.radius
        signal = (self._mean - request.center) * unit
        noise = self._draw_noise(self._site_noise(request), mu, len(self.values))
        return TotalReply(total=_round(signal + noise))

    def _release_moment(self, request: MomentRequest, mu: float) -> MomentReply:
        noise = self._site_noise(request)
        clipped, offset = self._clip_squares(request), self._mean_error(request)
        moment = np.diag(self._axis_variances(clipped)) + clipped.mean() * np.outer(offset, offset)
        signal = pack_symmetric(moment) * self._unit(request)
        # Noise beside the diagonal, which dominates, has 1 / sqrt(2) of the standard deviation.
        self._compare_noise(noise, mu, request, clipped, math.sqrt(0.5))
        drawn = noise.relative["triangle"] * self._draw_noise(noise, mu, len(signal))
        return MomentReply(triangle=_round(signal + drawn))

    def _release_product(self, request: SketchRequest, mu: float) -> SketchReply:
        basis, clip = request.basis, request.update_clip(self._state)
        noise = self._site_noise(request)
        clipped, offset = self._clip_squares(request), self._mean_error(request)
        squares = self._squared_norms(request) * clipped
        projected = np.sum(((self._drawn - offset) @ basis) ** 2, axis=1) * clipped
        if clip < 1.0:
            # Random directions also pick up variance of the features that the model leaves out.
            projected += self._omitted * clipped * basis.shape[1] / len(basis)
        # A row contributes x (x' basis): its norm is |x| |basis' x|, clipped a second time.
        sizes = np.sqrt(squares * projected) / request.radius**2
        clipped = clipped * np.minimum(1.0, clip / np.maximum(sizes, np.finfo(float).tiny))
        image = self._axis_variances(clipped)[:, None] * basis
        image += clipped.mean() * np.outer(offset, offset @ basis)
        self._compare_noise(noise, mu, request, clipped, 1.0)
        drawn = self._draw_noise(noise, mu, image.size).reshape(image.shape)
        self._state = replace(self._state, own=Sketched())
        return SketchReply(product=_round(image * self._unit(request) + drawn))

    def _site_noise(self, request: Request[Any]) -> Noise:
        """Return the noise that a site would add."""
        noise = request.noise(self._terms, self._state)
        if noise is None:
            raise ProtocolError(f"{request.op!r} has no noise.")
        return noise

    def _grid(self, request: GridRequest) -> int:
        return request.grid(len(self.values))

    def _mean_error(self, request: BallRequest) -> Array:
        """Return the error of the mean, scaled to its norm with all features."""
        return (request.center - self._mean) * self._stretch

    def _squared_norms(self, request: BallRequest) -> Array:
        """Return the squared norms of the rows about the centre."""
        centred = self._drawn - self._mean_error(request)
        squares: Array = np.einsum("ij,ij->i", centred, centred) + self._omitted
        return squares

    def _clip_squares(self, request: BallRequest) -> Array:
        """Return the factor by which clipping reduces the squared norm of each row."""
        squares = np.maximum(self._squared_norms(request), np.finfo(float).tiny)
        return np.minimum(1.0, request.radius**2 / squares)

    def _axis_variances(self, clipped: Array) -> Array:
        """Return the variances along the axes after clipping.

        The variances before clipping are known exactly: only the fraction that clipping leaves is
        estimated from the drawn rows.
        """
        squares = self._drawn**2
        before = np.maximum(squares.sum(axis=0), np.finfo(float).tiny)
        after: Array = self.values * (clipped @ squares) / before
        return after

    def _unit(self, request: GridRequest) -> float:
        """Return the factor from variances to sums of integers, reduced for omitted features."""
        per_row = (self._grid(request) / request.radius) ** 2
        return self._n * per_row / self._stretch

    def _compare_noise(
        self, noise: Noise, mu: float, request: GridRequest, clipped: Array, factor: float
    ) -> None:
        """Record the noise-to-signal ratio of a release."""
        sd, unit = self._noise_sd(noise, mu), self._unit(request)
        largest = float(self._axis_variances(clipped).max()) * unit
        self.ratio = factor * sd * math.sqrt(len(self.values)) / largest
        trace = float(clipped.mean()) * (float(self.values.sum()) + self._omitted)
        self.least_signal = trace / self._d * unit * self._stretch / sd

    def _noise_sd(self, noise: Noise, mu: float) -> float:
        # The noise is split over fewer parties than sites, as some may collude or drop out: the
        # sum over all sites has more noise than needed.
        return noise.sensitivity / mu * math.sqrt(len(self.rows) / self._parties)

    def _draw_noise(self, noise: Noise, mu: float, count: int) -> Array:
        return self.rng.standard_normal(count) * self._noise_sd(noise, mu)


def _draw_direction(d: int, rng: np.random.Generator) -> Array:
    drawn = rng.standard_normal(d)
    direction: Array = drawn / np.linalg.norm(drawn)
    return direction


def _round(values: Array) -> Integers:
    return np.rint(values).astype(np.int64)
