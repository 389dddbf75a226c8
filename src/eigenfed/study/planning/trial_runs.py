"""Which model runs a forecast makes, and how few sites, features and rounds stand for many."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from eigenfed.protocol.secure.aggregation import AHEAD
from eigenfed.protocol.study import Study
from eigenfed.study.planning.noise_forecast import Spectrum
from eigenfed.study.planning.traffic import TrafficTrace, simulate_private_traffic, simulate_traffic

_FEATURES, _FEW_FEATURES, _MOST_FEATURES = 1000, 200, 12_000
_LEAST_BLOCK = 8
_PLAIN_SITES, _SECURE_SITES = 3, 5
_FIRST_PRODUCTS = 10
_NEVER = 1e-300


@dataclass(frozen=True)
class Traffic:
    """What crosses the wire in a run.

    Attributes
    ----------
    rounds : int
        Asks to the sites.
    up, down : int
        Bytes from and to the site that has most of them.
    all_bytes : int
        From and to all sites.
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
        """Count a talk, in which the smallest model also stands for all sites left out."""
        sites = trace.of_sites()
        smallest = min(sites, key=lambda name: rows[name])
        others = (len(rows) - len(sites)) * sum(sites[smallest])
        return cls(
            trace.rounds,
            max(up for up, _ in sites.values()),
            max(down for _, down in sites.values()),
            sum(map(sum, sites.values())) + others,
            trace.largest,
        )

    def onwards(self, later: "Traffic", times: float) -> "Traffic":
        """Go on in a straight line: from here past a later one, so many times as far.

        Examples
        --------
        >>> Traffic(3, 10, 20, 90, 8).onwards(Traffic(5, 14, 20, 110, 9), 2.0)
        Traffic(rounds=7, up=18, down=20, all_bytes=130, largest=10)
        """
        pairs = zip(vars(self).values(), vars(later).values(), strict=True)
        return Traffic(*(round(here + times * (there - here)) for here, there in pairs))


def exact_talk(study: Study, rows: dict[str, int], spectrum: Spectrum) -> TrafficTrace:
    """Run an exact study on a few model sites with plain sums.

    Parameters
    ----------
    study : Study
        With its method.
    rows : dict of str to int
        Numbers of rows of all sites.
    spectrum : Spectrum

    Examples
    --------
    >>> from eigenfed.study.planning.noise_forecast import falling
    >>> study = Study(("a", "b"), 4, "krylov")
    >>> exact_talk(study, {"a": 900, "b": 500}, falling(0.8, 300, 300)).rounds
    8
    """
    method, k = study.chosen, study.components
    # There sites answer about directions of their own, which differ as the sites do by chance.
    drawn = method.own_directions
    # Elsewhere plain sums ask all sites the same, and one stands for all.
    rows = _largest(rows, _PLAIN_SITES if drawn else 1)
    least = 10 * k
    if method.iterates and not drawn:
        least = max(_FEATURES, min(60 * max(k, _LEAST_BLOCK), _MOST_FEATURES))
    features = _standing(spectrum.d, max(least, _FEW_FEATURES))
    values = spectrum.values(features)
    trace = simulate_traffic(replace(study, secure=False), rows, values, spectrum.d, drawn=drawn)
    if trace.directions == features:
        return replace(trace, directions=spectrum.d, variance_fraction=1.0)
    seen = trace.variance_fraction * float(values.sum()) / spectrum.trace
    return replace(trace, variance_fraction=min(seen, 1.0))


def secure_traffic(
    study: Study, rows: dict[str, int], spectrum: Spectrum, products: int
) -> Traffic:
    """Count what crosses with secure sums, given how many products it takes.

    Keys and shares grow in proportion to the sites. Keys are made for some sums at a time, so that
    traffic goes on alike after as many.
    """
    features = _standing(spectrum.d, 20 * max(study.components, _LEAST_BLOCK + 2))
    values = spectrum.values(features)

    def counted(sites: dict[str, int], count: int) -> Traffic:
        forced = replace(study, tol=_NEVER, max_rounds=count)
        return Traffic.of(simulate_traffic(forced, sites, values, spectrum.d), sites)

    if not study.chosen.iterates or products <= _FIRST_PRODUCTS:
        return _by_sites(rows, lambda sites: counted(sites, max(products, 1)))
    periods, first = divmod(products - 2, AHEAD)
    return _by_sites(
        rows,
        lambda sites: counted(sites, first + 2).onwards(counted(sites, first + 2 + AHEAD), periods),
    )


def private_talk(study: Study, rows: dict[str, int], d: int) -> tuple[TrafficTrace, Traffic]:
    """Run the private protocol on model sites: its asks are the same whatever the rows are."""
    features = _standing(d, max(_FEW_FEATURES, 4 * study.components))
    talks: list[TrafficTrace] = []

    def counted(sites: dict[str, int]) -> Traffic:
        talks.append(simulate_private_traffic(study, list(sites), features, d))
        return Traffic.of(talks[-1], sites)

    traffic = _by_sites(rows, counted)
    return talks[-1], traffic


def _by_sites(rows: dict[str, int], counted: Callable[[dict[str, int]], Traffic]) -> Traffic:
    """Count with all sites, or go on from three and five to many."""
    if len(rows) <= _SECURE_SITES:
        return counted(rows)
    few, more = (counted(_largest(rows, count)) for count in (_PLAIN_SITES, _SECURE_SITES))
    times = (len(rows) - _PLAIN_SITES) / (_SECURE_SITES - _PLAIN_SITES)
    found = few.onwards(more, times)
    each = found.up + found.down
    return replace(found, all_bytes=each * len(rows))


def _largest(rows: dict[str, int], count: int) -> dict[str, int]:
    names = sorted(rows, key=lambda name: rows[name], reverse=True)[:count]
    return {name: rows[name] for name in sorted(names)}


def _standing(d: int, least: int) -> int:
    """Return how many features stand for d: a prime, which is the length of nothing else.

    Examples
    --------
    >>> _standing(150, 200), _standing(10**7, 200)
    (150, 211)
    """
    features = least
    while any(features % divisor == 0 for divisor in range(2, int(features**0.5) + 1)):
        features += 1
    return min(features, d)
