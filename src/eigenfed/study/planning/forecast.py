"""Forecast of a study: rounds, bytes, memory, time, leakage and accuracy.

Rounds, bytes and leakage come from model runs of the real protocol (`trial_runs`), accuracy under
noise from `noise_forecast`. Memory and time follow from the cost model of the method, whose factors
were measured; tests check them to within 30 % of real peaks.
"""

import os
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from eigenfed.data.loci import Loci
from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.source import Source
from eigenfed.data.steps import as_steps, count_features
from eigenfed.errors import Argument, InputError, Name
from eigenfed.estimators.setting_conflicts import (
    check_prepared,
    check_private,
    check_scaled,
    check_secure,
)
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.sampling import largest_by_chance
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.cost_rates import time_eigen, time_lanczos, time_scatter
from eigenfed.protocol.method import (
    AUTO,
    Cost,
    Method,
    Shape,
    as_method,
    block_bytes,
    product_s,
    replies_in_hand,
)
from eigenfed.protocol.method_registry import choose_method
from eigenfed.protocol.study import GENOTYPE, TOL, Study
from eigenfed.study.planning.assumed_spectra import (
    Spectrum,
    assume_spectra,
    make_geometric_spectrum,
    make_spectrum,
)
from eigenfed.study.planning.noise_forecast import NoiseEffect, assume_offset, forecast_noise
from eigenfed.study.planning.traffic import TrafficTrace
from eigenfed.study.planning.trial_runs import (
    Traffic,
    forecast_preparation,
    forecast_secure_traffic,
    trace_exact_run,
    trace_private_run,
)
from eigenfed.study.planning.variant_traffic import (
    WindowProducts,
    count_products,
    forecast_products,
)

_PACKED = 0.25
"""Bytes of a genotype in a file."""
_MODEST = 4.0
"""How many times longer a modest machine takes than the one that costs were measured on."""


def estimate_private_cost(method: Method, shape: Shape) -> Cost:
    """Return the cost of a method under differential privacy.

    Parameters
    ----------
    method : Method
        One that sends the whole covariance, or one that iterates, with two products of twice as
        many directions as components.
    shape : Shape

    Examples
    --------
    >>> from eigenfed import Covariance
    >>> shape = Shape(rows=3000, features=2000, components=4, sites=3)
    >>> estimate_private_cost(Covariance(), shape).site_bytes
    166400000.0
    """
    d, block = float(shape.features), block_bytes(shape)
    if not method.iterates:
        square = shape.square_bytes
        return Cost(
            1,
            shape.features,
            d * (d + 1) / 2,
            max(5.2 * square, 5.0 * block + square),
            (2.0 + 0.5 * replies_in_hand(shape)) * square,
            time_scatter(shape.rows, d, shape.density),
            time_eigen(d, shape.components),
        )
    rounds, width = shape.products or 2, min(2 * shape.components, shape.features)
    wide, answered = shape.column_bytes(width), rounds * width
    return Cost(
        rounds,
        answered,
        d * answered,
        max(5.0 * block + 1.9 * wide, 12.0 * wide),
        (6.0 + replies_in_hand(shape)) * wide,
        product_s(shape, answered, rounds),
        time_lanczos(d, width, width) * rounds,
    )


def estimate_compute_s(cost: Cost) -> float:
    """Return the seconds of arithmetic at the largest site and then at the coordinator.

    Examples
    --------
    >>> from eigenfed import Covariance
    >>> shape = Shape(rows=5000, features=1000, components=4, sites=3)
    >>> round(estimate_compute_s(Covariance().cost(shape)), 1)
    0.8
    """
    return _MODEST * (cost.site_s + cost.coordinator_s)


def estimate_network_s(
    rounds: float, all_bytes: float, latency_ms: float | None, bandwidth_mbps: float | None
) -> float:
    """Return the seconds spent on the network: one latency per round, and all bytes on one link.

    The coordinator's link carries the messages of all sites, one after the other.

    Examples
    --------
    >>> estimate_network_s(10, 1_000_000, latency_ms=40, bandwidth_mbps=8)
    1.4
    """
    waiting = 0.0 if latency_ms is None else rounds * latency_ms / 1e3
    sending = 0.0 if bandwidth_mbps is None else 8.0 * all_bytes / (bandwidth_mbps * 1e6)
    return waiting + sending


def _without_public(privacy: Privacy | None) -> Privacy | None:
    """Return the privacy of a model, whose rows are near the public centre and have all entries."""
    if privacy is None:
        return None
    return replace(privacy, if_missing="mean", public_center=None, public_scale=None)


@dataclass(frozen=True)
class Question:
    """A study to forecast.

    Attributes
    ----------
    rows : dict of str to int
        Number of rows of each site.
    features, components : int
        Features are counted before a preparation.
    method : Method or str
        A method, its name, or "auto".
    center, secure, by_site : bool
    scale : bool or "genotype"
    privacy : Privacy or None
    latency_ms : float or None
        Round-trip time between the coordinator and a site.
    bandwidth_mbps : float or None
        Bandwidth of the coordinator's link.
    decay : float or None
        Ratio of each eigenvalue to the one before.
    spectrum : tuple of float, or None
        Decreasing eigenvalues, followed by zeros. Without `decay` and `spectrum`, three spectra are
        assumed.
    prepare : tuple of PrepareStep
        Steps that prepare the rows; the eigenvalues are those of prepared rows.
    tol : float
    stop : {"all", "separated"}
    loci : Loci or None
        Where the variants of genotypes lie, if there is a manifest.
    offset : float or None
        With privacy: distance of the mean of the rows from the public centre, or from 0, relative
        to their spread; see `assume_offset`.
    rule : float, "auto" or None
        What was asked for in place of `components`, which is then the number expected from it.

    Examples
    --------
    >>> Question({"north": 3000, "south": 900}, features=120, components=4).n
    3900
    """

    rows: dict[str, int]
    features: int
    components: int
    method: Method | str = AUTO
    center: bool = True
    scale: bool | str = False
    secure: bool = False
    by_site: bool = False
    privacy: Privacy | None = None
    latency_ms: float | None = None
    bandwidth_mbps: float | None = None
    decay: float | None = None
    spectrum: tuple[float, ...] | None = None
    prepare: tuple[PrepareStep, ...] = ()
    tol: float = TOL
    stop: str = "all"
    loci: Loci | None = None
    offset: float | None = None
    rule: float | str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "method", as_method(self.method))
        object.__setattr__(self, "prepare", as_steps(self.prepare))

    @property
    def n(self) -> int:
        """Number of rows of all sites."""
        return sum(self.rows.values())

    @property
    def width(self) -> int:
        """Number of features after the preparation."""
        return count_features(self.prepare, self.features)

    @property
    def study(self) -> Study:
        """The study that the sites would run."""
        return Study(
            tuple(sorted(self.rows)),
            self.components,
            self.method,
            center=self.center,
            scale=self.scale,
            secure=self.secure,
            by_site=self.by_site,
            privacy=_without_public(self.privacy),
            prepare=self.prepare,
            tol=self.tol,
            stop=self.stop,
        )

    @cached_property
    def products(self) -> WindowProducts | None:
        """Most products of neighbouring variants; None if there are none, or nothing is known."""
        return count_products(self.study, self.features, self.loci)

    @property
    def shape(self) -> Shape:
        """The sizes that costs depend on."""
        return Shape(
            rows=max(self.rows.values()),
            features=self.width,
            components=self.components,
            sites=len(self.rows),
            secure=self.study.masked,
            cores=os.cpu_count() or 1,
        )


@dataclass(frozen=True)
class Case:
    """The forecast for one spectrum.

    Attributes
    ----------
    spectrum : str
        "given", or the name of the assumed spectrum.
    traffic : Traffic
    seconds : float
    site_bytes, coordinator_bytes : float
        Memory; that of a site does not include its rows.
    rank_fraction, variance_fraction : float
        Expected value of `FederatedPCA.leakage_`.
    kept : NoiseEffect or None
        What noise leaves of the components; None without noise, or without components to find.
    """

    spectrum: str
    traffic: Traffic
    seconds: float
    site_bytes: float
    coordinator_bytes: float
    rank_fraction: float
    variance_fraction: float
    kept: NoiseEffect | None


@dataclass(frozen=True)
class Forecast:
    """The forecast of a study.

    Attributes
    ----------
    question : Question
    method : Method
        The method that would be used.
    why : str
        Why it would be used.
    rows_bytes : int
        Memory of the largest site's rows if they are dense, or size of its file of genotypes.
    cases : tuple of Case
        One for a given spectrum, or three for the assumed spectra.
    """

    question: Question
    method: Method
    why: str
    rows_bytes: int
    cases: tuple[Case, ...]

    @property
    def rounds(self) -> tuple[int, int]:
        """The fewest and the most rounds over the cases."""
        found = [case.traffic.rounds for case in self.cases]
        return min(found), max(found)

    @property
    def noise_share(self) -> float:
        """The fraction of the variance that a component of independent features may explain."""
        n, d = self.question.n - bool(self.question.center), self.question.width
        return min(largest_by_chance(max(n, 1.0), d) / d, 1.0)

    @property
    def above_noise(self) -> int | None:
        """How many components of a given spectrum explain more; None if none is given."""
        if self.question.spectrum is None and self.question.decay is None:
            return None
        (spectrum,) = list_spectra(self.question)
        values = spectrum.at(np.arange(spectrum.rank))
        return int(np.count_nonzero(values > self.noise_share * spectrum.trace))


def forecast(question: Question) -> Forecast:
    """Forecast the cost and accuracy of a study.

    Parameters
    ----------
    question : Question

    Raises
    ------
    InputError
        If a fit would refuse the study.

    Examples
    --------
    >>> question = Question({"north": 3000, "south": 900}, features=120, components=4)
    >>> found = forecast(question)
    >>> found.method, found.rounds, found.cases[0].rank_fraction
    (Covariance(), (2, 2), 1.0)
    """
    _check(question)
    method, why = choose_method(question.study, question.shape)
    # Fixed here: with the fewer features of a model, "auto" might choose another method.
    study = question.study.with_method(method)
    if question.privacy is not None:
        check_scaled(study)
    spectra = list_spectra(question)
    if question.privacy is None:
        added = forecast_preparation(study, question.rows, question.features)
        if question.products is not None:
            added = added.plus(forecast_products(study, question.rows, question.products))
        plain = replace(study, prepare=())
        runs = [
            (trace, traffic.plus(added))
            for trace, traffic in (_trace_run(plain, question.rows, found) for found in spectra)
        ]
    else:
        # The traffic of a private run does not depend on the spectrum.
        runs = [trace_private_run(study, question.rows, question.features)] * len(spectra)
    cases = tuple(
        _forecast_case(question, study, spectrum, trace, traffic)
        for spectrum, (trace, traffic) in zip(spectra, runs, strict=True)
    )
    entry = _PACKED if question.scale == GENOTYPE else 8.0
    rows_bytes = round(max(question.rows.values()) * question.features * entry)
    return Forecast(question, method, why, rows_bytes, cases)


def _trace_run(
    study: Study, rows: dict[str, int], spectrum: Spectrum
) -> tuple[TrafficTrace, Traffic]:
    trace = trace_exact_run(study, rows, spectrum)
    if not study.secure:
        return trace, Traffic.of(trace, rows)
    return trace, forecast_secure_traffic(study, rows, spectrum, trace.products)


def _estimate_cost(question: Question, method: Method, products: int) -> Cost:
    shape = replace(question.shape, products=products or None)
    return method.cost(shape) if question.privacy is None else estimate_private_cost(method, shape)


def _forecast_case(
    question: Question, study: Study, spectrum: Spectrum, trace: TrafficTrace, traffic: Traffic
) -> Case:
    cost = _estimate_cost(question, study.chosen, trace.products)
    seconds = estimate_compute_s(cost) + estimate_network_s(
        traffic.rounds, traffic.all_bytes, question.latency_ms, question.bandwidth_mbps
    )
    effect = None
    if question.privacy is not None and spectrum.has_components:
        offset = assume_offset(question.privacy, question.offset)
        effect = forecast_noise(study, question.rows, spectrum, offset=offset)
    # The centred rows of a site span at most n - 1 directions, which then hold all its variance.
    smallest = min(question.rows.values())
    few = 0 < smallest - 1 <= trace.directions
    directions = trace.directions
    held = cost.site_bytes
    if question.products is not None:
        held = max(held, question.products.site_bytes(max(question.rows.values())))
        directions += question.products.directions(smallest)
    return Case(
        spectrum.name,
        traffic,
        seconds,
        held,
        cost.coordinator_bytes,
        min(directions / question.width, 1.0),
        1.0 if few else trace.variance_fraction,
        effect,
    )


def list_spectra(question: Question) -> tuple[Spectrum, ...]:
    """Return the spectrum that is given, or the three that are assumed."""
    n, d = question.n, question.width
    rank = max(min(n - 1 if question.center else n, d), 1)
    if question.spectrum is not None:
        return (make_spectrum(question.spectrum, d, rank),)
    if question.decay is not None:
        return (make_geometric_spectrum(question.decay, d, rank),)
    return assume_spectra(n, d, question.components, rank)


def _check(question: Question) -> None:
    """Refuse what a fit would refuse, and what cannot be forecast."""
    if not question.rows:
        raise InputError("rows names no site. Give the number of rows of each site.")
    for site, n in question.rows.items():
        check_count(f"rows[{site!r}]", n, "Leave out sites without rows.")
    check_count("features", question.features, "Give the number of features.")
    k, most = question.components, min(question.n, question.width)
    check_count("n_components", k, "Request at least one component.")
    if k > most:
        raise InputError(
            Argument("n_components", k),
            f" must be at most {most}, the smaller of the numbers of rows ({question.n}) and "
            f"features ({question.width})",
            remedy=("Lower ", Name("n_components"), "."),
        )
    check_prepared(question.study, {})
    if question.secure:
        check_secure(len(question.rows), "samples", question.method)
    _check_spectrum(question, k)
    if question.privacy is not None:
        sites: dict[str, Source] = {name: Source(np.zeros((1, 1))) for name in question.rows}
        question.privacy.frame(question.features)
        check_private(
            _without_public(question.privacy),
            sites,
            split="samples",
            method=question.method,
            secure=question.secure,
        )
        question.privacy.check_rows(question.n)


def _check_spectrum(question: Question, k: int) -> None:
    given, decay = question.spectrum, question.decay
    if given is not None and decay is not None:
        raise InputError("spectrum and decay both define the eigenvalues. Give one of them.")
    if decay is not None and not 0.0 < decay <= 1.0:
        raise InputError(
            Argument("decay", decay),
            " must be above 0 and at most 1",
            remedy="Pass 0.9, for example.",
        )
    if given is not None and (len(given) < k or given[k - 1] <= 0.0):
        raise InputError(
            Name("spectrum"),
            f" must have at least {k} eigenvalues above 0, one for each component",
            remedy=("Give more, or lower ", Name("n_components"), "."),
        )
