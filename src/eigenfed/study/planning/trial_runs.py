"""The model runs behind a forecast: few sites, features and rounds represent many."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.steps import SelectVariable
from eigenfed.data.variant_steps import Matched
from eigenfed.protocol.exact.covariance import Covariance
from eigenfed.protocol.secure.aggregation import AHEAD
from eigenfed.protocol.study import Study
from eigenfed.study.planning.assumed_spectra import Spectrum
from eigenfed.study.planning.traffic import (
    TrafficTrace,
    simulate_preparation,
    simulate_private_traffic,
    simulate_traffic,
)

_FEATURES, _FEW_FEATURES, _MOST_FEATURES = 1000, 200, 12_000
_LEAST_BLOCK = 8
_PLAIN_SITES, _SECURE_SITES = 3, 5
_FIRST_PRODUCTS = 10
_NEVER = 1e-300


@dataclass(frozen=True)
class Traffic:
    """Amount of traffic in a run.

    Attributes
    ----------
    rounds : int
    up, down : int
        Most bytes sent, and most bytes received, by any site.
    all_bytes : int
        Bytes from and to all sites.
    largest : int
        Bytes of the largest message.
    """

    rounds: int
    up: int
    down: int
    all_bytes: int
    largest: int

    @classmethod
    def of(cls, trace: TrafficTrace, rows: dict[str, int]) -> "Traffic":
        """Sum up a trace, in which the smallest model site represents all sites left out."""
        sites = trace.sum_by_site()
        smallest = min(sites, key=lambda name: rows[name])
        others = (len(rows) - len(sites)) * sum(sites[smallest])
        return cls(
            trace.rounds,
            max(up for up, _ in sites.values()),
            max(down for _, down in sites.values()),
            sum(map(sum, sites.values())) + others,
            trace.largest,
        )

    def plus(self, more: "Traffic") -> "Traffic":
        """Return the traffic of two runs, one after the other."""
        return replace(
            self,
            rounds=self.rounds + more.rounds,
            up=self.up + more.up,
            down=self.down + more.down,
            all_bytes=self.all_bytes + more.all_bytes,
            largest=max(self.largest, more.largest),
        )

    def minus(self, part: "Traffic") -> "Traffic":
        """Return the traffic without that of a part; `largest` is unknown, and 0.

        Examples
        --------
        >>> Traffic(5, 14, 20, 110, 9).minus(Traffic(3, 10, 20, 90, 8))
        Traffic(rounds=2, up=4, down=0, all_bytes=20, largest=0)
        """
        return Traffic(
            self.rounds - part.rounds,
            self.up - part.up,
            self.down - part.down,
            self.all_bytes - part.all_bytes,
            0,
        )

    def extrapolate(self, later: "Traffic", times: float) -> "Traffic":
        """Return ``self + times * (later - self)``.

        Examples
        --------
        >>> Traffic(3, 10, 20, 90, 8).extrapolate(Traffic(5, 14, 20, 110, 9), 2.0)
        Traffic(rounds=7, up=18, down=20, all_bytes=130, largest=10)
        """
        pairs = zip(vars(self).values(), vars(later).values(), strict=True)
        return Traffic(*(round(here + times * (there - here)) for here, there in pairs))


def trace_exact_run(study: Study, rows: dict[str, int], spectrum: Spectrum) -> TrafficTrace:
    """Run an exact study on a few model sites, without secure aggregation.

    Parameters
    ----------
    study : Study
        With its method.
    rows : dict of str to int
        Number of rows of each site.
    spectrum : Spectrum

    Examples
    --------
    >>> from eigenfed.study.planning.assumed_spectra import make_geometric_spectrum
    >>> study = Study(("a", "b"), 4, "krylov")
    >>> spectrum = make_geometric_spectrum(0.8, 300, 300)
    >>> trace_exact_run(study, {"a": 900, "b": 500}, spectrum).rounds
    7
    """
    method, k = study.chosen, study.k
    # Directions that sites choose themselves differ by chance, as the rows of the sites do.
    drawn = method.own_directions
    # Otherwise all sites get the same requests, and one represents all.
    rows = select_largest(rows, _PLAIN_SITES if drawn else 1)
    least = 10 * k
    if method.iterates and not drawn:
        least = max(_FEATURES, min(60 * max(k, _LEAST_BLOCK), _MOST_FEATURES))
    features = _choose_features(spectrum.d, max(least, _FEW_FEATURES))
    values = spectrum.values(features)
    trace = simulate_traffic(replace(study, secure=False), rows, values, spectrum.d, drawn=drawn)
    if trace.directions == features:
        return replace(trace, directions=spectrum.d, variance_fraction=1.0)
    seen = trace.variance_fraction * float(values.sum()) / spectrum.trace
    return replace(trace, variance_fraction=min(seen, 1.0))


def forecast_secure_traffic(
    study: Study, rows: dict[str, int], spectrum: Spectrum, products: int
) -> Traffic:
    """Forecast the traffic of a run with secure aggregation and this number of products.

    The traffic of a site for keys and secret shares is linear in the number of sites. Keys are
    exchanged for `AHEAD` sums at a time, so that the traffic is periodic in the number of products.
    """
    features = _choose_features(spectrum.d, 20 * max(study.k, _LEAST_BLOCK + 2))
    values = spectrum.values(features)

    def measure(sites: dict[str, int], count: int) -> Traffic:
        # A tolerance that is never reached fixes the number of products.
        forced = replace(study, tol=_NEVER, max_rounds=count)
        return Traffic.of(simulate_traffic(forced, sites, values, spectrum.d), sites)

    if not study.chosen.iterates or products <= _FIRST_PRODUCTS:
        return extrapolate_sites(rows, lambda sites: measure(sites, max(products, 1)))
    periods, first = divmod(products - 2, AHEAD)
    return extrapolate_sites(
        rows,
        lambda sites: measure(sites, first + 2).extrapolate(
            measure(sites, first + 2 + AHEAD), periods
        ),
    )


def forecast_preparation(study: Study, rows: dict[str, int], d: int) -> Traffic:
    """Forecast what the preparation of rows adds to the traffic of a run.

    It is the difference between model runs with and without the steps over all sites. Steps within
    a row cause no traffic. Products of neighbouring variants are left out (`variant_traffic`).

    Parameters
    ----------
    study : Study
    rows : dict of str to int
        Number of rows of each site.
    d : int
        Number of features before the preparation.

    Examples
    --------
    >>> study = Study(("a", "b"), 2, prepare=["log1p", "select:100", "standardize"])
    >>> forecast_preparation(study, {"a": 90, "b": 50}, 1000).rounds
    4
    """
    if not study.federated_steps:
        return Traffic(0, 0, 0, 0, 0)
    width, features = study.width(d), _choose_features(d, _FEW_FEATURES)
    # Primes again, and fewer than before the selection.
    kept = features if width == d else _choose_features(width, features // 2)
    steps: tuple[PrepareStep, ...] = tuple(
        replace(step, n_features=kept, flavor="variance")
        if isinstance(step, SelectVariable)
        else step
        for step in study.federated_steps
    )
    if study.filters_variants:
        steps = (Matched(),)  # all counts are sent at once, whatever is decided from them
    # The covariance of one component is the shortest run.
    bare = replace(study, method=Covariance(), components=1, scale=False, by_site=False, prepare=())

    real = {features: d, kept: width}

    def measure(sites: dict[str, int], counted: dict[str, int]) -> Traffic:
        names = list(sites)
        whole = simulate_preparation(replace(bare, prepare=steps), names, real, features)
        alone = simulate_preparation(bare, names, real, kept)
        return Traffic.of(whole, counted).minus(Traffic.of(alone, counted))

    if study.secure:
        return extrapolate_sites(rows, lambda sites: measure(sites, sites))
    return measure(select_largest(rows, 1), rows)


def trace_private_run(study: Study, rows: dict[str, int], d: int) -> tuple[TrafficTrace, Traffic]:
    """Run the private protocol on model sites: its requests do not depend on the rows."""
    features = _choose_features(d, max(_FEW_FEATURES, 4 * study.k))
    traces: list[TrafficTrace] = []

    def measure(sites: dict[str, int]) -> Traffic:
        traces.append(simulate_private_traffic(study, list(sites), features, d))
        return Traffic.of(traces[-1], sites)

    traffic = extrapolate_sites(rows, measure)
    return traces[-1], traffic


def extrapolate_sites(
    rows: dict[str, int], measure: Callable[[dict[str, int]], Traffic]
) -> Traffic:
    """Measure with all sites, or extrapolate linearly from three and five sites to many."""
    if len(rows) <= _SECURE_SITES:
        return measure(rows)
    few, more = (measure(select_largest(rows, n)) for n in (_PLAIN_SITES, _SECURE_SITES))
    times = (len(rows) - _PLAIN_SITES) / (_SECURE_SITES - _PLAIN_SITES)
    traffic = few.extrapolate(more, times)
    return replace(traffic, all_bytes=(traffic.up + traffic.down) * len(rows))


def select_largest(rows: dict[str, int], count: int) -> dict[str, int]:
    """Return the sites with most rows, which represent the others."""
    names = sorted(rows, key=lambda name: rows[name], reverse=True)[:count]
    return {name: rows[name] for name in sorted(names)}


def _choose_features(d: int, least: int) -> int:
    """Return how many features represent d: a prime, to differ from other array lengths.

    Examples
    --------
    >>> _choose_features(150, 200), _choose_features(10**7, 200)
    (150, 211)
    """
    features = least
    while any(features % divisor == 0 for divisor in range(2, int(features**0.5) + 1)):
        features += 1
    return min(features, d)
