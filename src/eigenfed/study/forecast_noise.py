"""What noise would leave of the components: the real coordinator, with sites of made-up rows.

The private protocol runs as it is: it splits the budget, searches for radii, calibrates and
decomposes. In place of sites answers what Gaussian rows with the given eigenvalues would sum to,
with as much noise as sites would add. Many features are stood for by few: the noise of a matrix
grows with the root of their number, so that the sums are made smaller by as much instead.
"""

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import ProtocolError
from eigenfed.privacy.fixed_point import Bound
from eigenfed.privacy.noise import Noise
from eigenfed.privacy.radii import COUNT_UNIT
from eigenfed.privacy.sensitivity import RELATIONS
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.core import Ask, Protocol
from eigenfed.protocol.private import private_pca
from eigenfed.protocol.private_site import (
    noise_of_count,
    noise_of_product,
    noise_of_scatter,
    noise_of_total,
)
from eigenfed.study.forecast_spectrum import Spectrum

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


def kept(
    privacy: Privacy,
    rows: dict[str, int],
    spectrum: Spectrum,
    k: int,
    *,
    method: str,
    center: bool,
    scale: bool,
) -> Kept:
    """Forecast what a private PCA captures.

    Parameters
    ----------
    privacy : Privacy
    rows : dict of str to int
        Numbers of rows of the sites.
    spectrum : Spectrum
    k : int
        Number of components.
    method : {"covariance", "power"}
    center, scale : bool

    Examples
    --------
    >>> from eigenfed.study.forecast_spectrum import falling
    >>> rows, spectrum = {"a": 30_000, "b": 30_000, "c": 30_000}, falling(0.5, 20, 20)
    >>> found = kept(Privacy(1.0, 1e-6), rows, spectrum, 2, method="covariance", center=True,
    ...     scale=False)
    >>> found.captured > 0.95, found.ratio < 0.1
    (True, True)
    """
    if privacy.trust == "central":
        # One trusted party adds the noise once, as one site would for itself.
        privacy, rows = replace(privacy, trust="local"), {"all": sum(rows.values())}
    if scale:
        privacy = replace(privacy, shares={**(privacy.shares or {}), "scree": 0.0})
    features = min(spectrum.d, _MATRIX_FEATURES)
    if method == "power":
        most = max(_PRODUCT_NUMBERS // k, 4 * k)
        features = min(spectrum.d, _PRODUCT_FEATURES, most)
    found = []
    # With many features one run is as good as the mean of several.
    for seed in range(_RUNS if features <= _FEW_RUN_FEATURES else 1):
        # Seeded on purpose: this is a forecast about nobody's rows, and should not change.
        sites = _Modelled(rows, spectrum, features, np.random.default_rng(seed))
        try:
            components = _run(privacy, sites, k, method=method, center=center)
        except ProtocolError as error:
            return Kept(None, None, str(error))
        if scale and sites.least_signal < _LEAST_SIGNAL:
            return Kept(None, None, "The features' variances would not stand out of their noise.")
        found.append((float(np.sum(components**2 @ sites.values)), sites.ratio))
    captured, ratio = (float(mean) for mean in np.mean(found, axis=0))
    return Kept(min(captured / spectrum.leading(k), 1.0), ratio)


def _run(privacy: Privacy, sites: "_Modelled", k: int, *, method: str, center: bool) -> Array:
    """Drive the private protocol, whose only ask outside of sums is for the numbers of rows."""
    protocol = private_pca(
        privacy,
        k,
        method=method,
        center=center,
        scale=False,
        tol=2e-8,
        sites=tuple(sites.rows),
        rng=sites.rng,
        total=sites,
    )
    next(protocol)
    size = {"d": np.array([len(sites.values)])}
    try:
        protocol.send({name: {"n": np.array([n])} | size for name, n in sites.rows.items()})
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

    def __init__(
        self, rows: dict[str, int], spectrum: Spectrum, features: int, rng: np.random.Generator
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

    def error(self, bound: Bound) -> Array:
        """Return 0: rounding is nothing beside noise."""
        return np.zeros(np.shape(bound))

    def __call__(self, ask: Ask) -> Protocol[Arrays]:
        """Answer an ask for a noised sum, without asking anybody."""
        yield from ()
        answers = {
            "private_within": self._private_within,
            "private_total": self._private_total,
            "private_scatter": self._private_scatter,
            "private_product": self._private_product,
            "private_scree": self._private_scree,
        }
        return answers[ask.op](ask.payload)

    def _private_within(self, payload: Arrays) -> Arrays:
        within = np.mean(self._squares(payload) <= payload["radius"][0] ** 2)
        noise = self._noise(noise_of_count(_relation(payload)), payload, 1)
        return {"count": self._n * float(within) * COUNT_UNIT + noise}

    def _private_total(self, payload: Arrays) -> Arrays:
        # Rows lie about their mean alike on all sides: what is left of their sum is how far the
        # centre is from it, and noise.
        grid, radius = int(payload["grid"][0]), float(payload["radius"][0])
        shorter = float(np.sqrt(self._shortened(payload)).mean())
        left = -payload["center"] * (shorter * self._n * grid / radius)
        noise = noise_of_total(grid, _relation(payload))
        return {"total": left + self._noise(noise, payload, len(self.values))}

    def _private_scatter(self, payload: Arrays) -> Arrays:
        d, unit = len(self.values), self._unit(payload)
        noise = noise_of_scatter(int(payload["grid"][0]), d, _relation(payload))
        shorter = self._shortened(payload)
        away = self._away(payload)
        moment = np.diag(self._moment(shorter)) + shorter.mean() * np.outer(away, away)
        signal = moment[np.triu_indices(d)] * unit
        relative = noise.relative["triangle"]
        self._weigh(noise, payload, shorter, math.sqrt(0.5))
        return {"triangle": signal + relative * self._noise(noise, payload, len(signal))}

    def _private_product(self, payload: Arrays) -> Arrays:
        basis, grid = payload["basis"], int(payload["grid"][0])
        clip, width = float(payload["update_clip"][0]), basis.shape[1]
        noise = noise_of_product(grid, width, clip * grid**2, _relation(payload))
        shorter = self._shortened(payload)
        squares = self._squares(payload) * shorter
        onto = np.sum(((self._drawn - self._away(payload)) @ basis) ** 2, axis=1) * shorter
        if clip < 1.0:
            # Directions at random also meet what lies outside the features drawn.
            onto += self._elsewhere * shorter * width / len(basis)
        sizes = np.sqrt(squares * onto) / float(payload["radius"][0]) ** 2
        shorter = shorter * np.minimum(1.0, clip / np.maximum(sizes, np.finfo(float).tiny))
        away = self._away(payload)
        image = self._moment(shorter)[:, None] * basis
        image += shorter.mean() * np.outer(away, away @ basis)
        self._weigh(noise, payload, shorter, 1.0)
        drawn = self._noise(noise, payload, image.size).reshape(image.shape)
        return {"product": image * self._unit(payload) + drawn}

    def _private_scree(self, payload: Arrays) -> Arrays:
        # Variances are no part of the forecast.
        return {"parts": np.zeros(len(payload["components"]) + 1)}

    def _away(self, payload: Arrays) -> Array:
        """Return the error of the mean, as long as it is with all features."""
        away: Array = payload["center"] * self._stretch
        return away

    def _squares(self, payload: Arrays) -> Array:
        """Return squared lengths of rows about the centre."""
        around = self._drawn - self._away(payload)
        squares: Array = np.einsum("ij,ij->i", around, around) + self._elsewhere
        return squares

    def _shortened(self, payload: Arrays) -> Array:
        """Return what clipping leaves of the squared length of each row."""
        squares = np.maximum(self._squares(payload), np.finfo(float).tiny)
        return np.minimum(1.0, float(payload["radius"][0]) ** 2 / squares)

    def _moment(self, shorter: Array) -> Array:
        """Return the variances along the axes when rows count so much.

        What they are without is known: only the part that is left is taken from the rows drawn.
        """
        squares = self._drawn**2
        whole = np.maximum(squares.sum(axis=0), np.finfo(float).tiny)
        part: Array = self.values * (shorter @ squares) / whole
        return part

    def _unit(self, payload: Arrays) -> float:
        """Return what turns variances into sums of whole numbers, less for the features missing."""
        per_row = (float(payload["grid"][0]) / float(payload["radius"][0])) ** 2
        return self._n * per_row / self._stretch

    def _weigh(self, noise: Noise, payload: Arrays, shorter: Array, beside: float) -> None:
        """Compare noise and signal."""
        deviation, unit = self._deviation(noise, payload), self._unit(payload)
        largest = float(self._moment(shorter).max()) * unit
        self.ratio = beside * deviation * math.sqrt(len(self.values)) / largest
        trace = float(shorter.mean()) * (float(self.values.sum()) + self._elsewhere)
        self.least_signal = trace / self._d * unit * self._stretch / deviation

    def _deviation(self, noise: Noise, payload: Arrays) -> float:
        mu, parties = float(payload["privacy.mu"][0]), int(payload["privacy.parties"][0])
        return noise.sensitivity / mu * math.sqrt(len(self.rows) / parties)

    def _noise(self, noise: Noise, payload: Arrays, count: int) -> Array:
        return self.rng.standard_normal(count) * self._deviation(noise, payload)


def _relation(payload: Arrays) -> str:
    return RELATIONS[int(payload["privacy.relation"][0])]
