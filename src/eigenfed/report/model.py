"""Scores of a site's rows, for figures: where they lie, and few enough of them to draw.

What a report shows, read from a result folder and nothing else.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.readers.npy import mapped
from eigenfed.errors import DataError
from eigenfed.report.fact_rules import check_events, check_facts
from eigenfed.study.results.result_folder import Result, read_result
from eigenfed.study.results.run_log import read_log

POINTS_SHOWN = 4000
DIRECTIONS_SHOWN = 6
_BLOCK_ROWS = 65536


@dataclass(frozen=True, eq=False)
class SiteScores:
    """Where a site's rows lie on the components.

    Attributes
    ----------
    rows : int
    mean, deviation : ndarray of shape (k,)
        Of the scores; the deviation is about the site's own mean.
    points : ndarray of shape (m, l)
        The scores of some rows, evenly spaced, on the first components.
    """

    rows: int
    mean: Array
    deviation: Array
    points: Array


def read_scores(folder: Path, sites: Iterable[str], k: int) -> dict[str, SiteScores]:
    """Read the scores of those sites whose scores are in a result folder.

    Raises
    ------
    DataError
        If a file is damaged or has other components.
    """
    paths = {site: folder / "scores" / f"{site}.npy" for site in sites}
    return {site: _read(path, k) for site, path in paths.items() if path.exists()}


def _read(path: Path, k: int) -> SiteScores:
    try:
        scores = mapped(path)
    except (OSError, DataError):
        raise _unreadable(path) from None
    if scores.dtype not in (np.float64, np.float32) or scores.ndim != 2 or scores.shape[1] != k:
        raise _unreadable(path)
    with np.errstate(all="ignore"):
        mean, deviation = _moments(scores)
    if not (np.isfinite(mean).all() and np.isfinite(deviation).all()):
        raise _unreadable(path)
    return SiteScores(len(scores), mean, deviation, spaced(scores, POINTS_SHOWN))


def _moments(scores: npt.NDArray[Any]) -> tuple[Array, Array]:
    n = max(len(scores), 1)
    blocks = range(0, len(scores), _BLOCK_ROWS)
    total = np.zeros(scores.shape[1])
    for start in blocks:
        total += scores[start : start + _BLOCK_ROWS].sum(axis=0, dtype=np.float64)
    mean = total / n
    square = np.zeros(scores.shape[1])
    for start in blocks:
        square += np.square(scores[start : start + _BLOCK_ROWS] - mean).sum(axis=0)
    return mean, np.sqrt(square / n)


def spaced(scores: npt.NDArray[Any], most: int) -> Array:
    """Take at most so many rows, evenly spaced, on the first components.

    Examples
    --------
    >>> spaced(np.arange(10.0).reshape(10, 1), 4).ravel()
    array([0., 3., 6., 9.])
    """
    step = max(-(-len(scores) // most), 1)
    return np.array(scores[::step, :DIRECTIONS_SHOWN], dtype=np.float64)


def _unreadable(path: Path) -> DataError:
    return DataError(
        f"{path} cannot be read, or is not of this result. Fit again, or take the file away."
    )


COMPONENTS_SHOWN, FEATURES_SHOWN = 10, 15


@dataclass(frozen=True)
class Component:
    """A component's variance, its share of all variance, and the share up to it."""

    place: int
    variance: float
    share: float | None
    cumulative: float | None


@dataclass(frozen=True)
class Loadings:
    """The features that weigh most on a component, by falling weight."""

    place: int
    features: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Round:
    """One ask: bytes to and from all sites, who was lost, and the residual before it."""

    place: int
    op: str
    bytes_down: int
    bytes_up: int
    lost: tuple[str, ...]
    residual: float | None


@dataclass(frozen=True)
class Reply:
    """One reply that left a site."""

    place: int
    op: str
    masked: bool
    shapes: dict[str, tuple[int, ...]]
    bytes: int


@dataclass(frozen=True)
class Left:
    """All replies to one kind of ask, over rounds and sites."""

    op: str
    what: str
    leaves: str
    reveals: str
    masked: bool
    shapes: tuple[str, ...]
    replies: int
    bytes: dict[str, int]


@dataclass(frozen=True)
class SiteLine:
    """What a site gave, and how many rows it has where that was told."""

    name: str
    rows: float | None
    bytes_up: int
    bytes_down: int
    replies: int


@dataclass(frozen=True)
class SiteSpread:
    """How sites lie on the components; see `eigenfed.protocol.exact.by_site.BySite`.

    `by_chance` is what sites that differ in nothing would be expected to explain.
    """

    explained: tuple[float, ...]
    contribution: dict[str, tuple[float, ...]]
    shift: dict[str, tuple[float, ...]]
    by_chance: float


@dataclass(frozen=True, eq=False)
class Report:
    """All that the pages of a result show.

    Attributes
    ----------
    facts : dict
        What ``result.json`` says.
    components : tuple of Component
    loadings : tuple of Loadings
        Of the first components.
    rounds : tuple of Round
    left : tuple of Left
    replies : dict of str to tuple of Reply
        By site.
    sites : tuple of SiteLine
    by_site : BySite or None
    scores : dict of str to SiteScores
        Of all sites whose scores are in the folder.
    """

    facts: dict[str, Any]
    components: tuple[Component, ...]
    loadings: tuple[Loadings, ...]
    rounds: tuple[Round, ...]
    left: tuple[Left, ...]
    replies: dict[str, tuple[Reply, ...]]
    sites: tuple[SiteLine, ...]
    by_site: SiteSpread | None
    scores: dict[str, SiteScores]

    @property
    def shown_scores(self) -> dict[str, SiteScores]:
        """Those that the page for everybody may show: of sites that opted in, never private."""
        if self.facts["privacy"] is not None:
            return {}
        return {s: self.scores[s] for s in self.facts["shown_scores"] if s in self.scores}

    @property
    def converged(self) -> int | None:
        """How many components have converged; None where nobody looked."""
        grade = self.facts["certificate"]
        return None if grade is None else sum(grade["converged"])


def read_report(folder: Path) -> Report:
    """Read what a report shows.

    Parameters
    ----------
    folder : Path
        Of a result.

    Raises
    ------
    DataError
        If the folder holds no whole result.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> from eigenfed.study.results.result_folder import (write_result)
    >>> pca = FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = write_result(Path(home, "out"), pca, sites=["a", "b"])
    ...     report = read_report(Path(home, "out"))
    >>> [left.op for left in report.left], report.sites[0].replies
    (['moments', 'scatter'], 2)
    """
    result, log = read_result(folder), read_log(folder)
    with whole_run(folder):
        return _report(folder, result, log)


@contextmanager
def whole_run(folder: Path) -> Iterator[None]:
    """Say of what cannot be shown that the folder holds no whole result."""
    try:
        yield
    except DataError:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        raise DataError(
            f"result.json and run.jsonl in {folder} are not those of one whole run. Fit again, or "
            "fetch a whole copy."
        ) from None


def _report(folder: Path, result: Result, log: list[dict[str, Any]]) -> Report:
    facts = result.facts
    check_facts(facts)
    check_events(log, facts["sites"])
    _check_names(facts["sites"])
    requests = [event for event in log if event["event"] == "request"]
    left = [event for event in log if event["event"] == "left"]
    return Report(
        facts,
        tuple(_components(facts["eigenvalues"], facts["ratios"])),
        tuple(_loadings(result)),
        tuple(_round(call) for call in requests),
        tuple(_left(left)),
        {site: tuple(_replies(left, site)) for site in facts["sites"]},
        tuple(_site(facts, requests, left, site) for site in facts["sites"]),
        _by_site(facts),
        read_scores(folder, facts["sites"], facts["k"]) if facts["scores"] else {},
    )


def _check_names(sites: list[str]) -> None:
    """Sites name files in the folder: a name must not lead out of it."""
    if any(Path(site).name != site for site in sites):
        raise ValueError


def _components(variances: Sequence[float], shares: Sequence[float | None]) -> Iterable[Component]:
    kept: float | None = 0.0
    for place, (variance, share) in enumerate(zip(variances, shares, strict=True), start=1):
        kept = None if share is None or kept is None else kept + share
        yield Component(place, variance, share, kept)


def _loadings(result: Result) -> Iterable[Loadings]:
    d = result.components.shape[1]
    for place, row in enumerate(result.components[:COMPONENTS_SHOWN], start=1):
        weights = np.abs(row)
        most = np.argpartition(-weights, min(FEATURES_SHOWN, d) - 1)[:FEATURES_SHOWN]
        order = most[np.lexsort((most, -weights[most]))]
        names = [f"x{i}" if result.names is None else result.names[i] for i in order]
        yield Loadings(place, tuple(zip(names, row[order].tolist(), strict=True)))


def _round(call: dict[str, Any]) -> Round:
    return Round(
        call["round"] + 1,
        call["op"],
        sum(call["bytes_down"].values()),
        sum(call["bytes_up"].values()),
        tuple(call["lost"]),
        call["residual"],
    )


def _left(events: list[dict[str, Any]]) -> Iterable[Left]:
    kinds = defaultdict(list)
    for event in events:
        declared = tuple(event[name] for name in ("op", "what", "leaves", "reveals", "masked"))
        kinds[declared].append(event)
    for (op, what, leaves, reveals, masked), alike in kinds.items():
        by_site: dict[str, int] = defaultdict(int)
        for event in alike:
            by_site[event["site"]] += event["bytes"]
        shapes = dict.fromkeys(shape_text(event["shapes"]) for event in alike)
        yield Left(
            op,
            what,
            leaves,
            reveals,
            masked,
            tuple(shapes),
            len(alike),
            dict(sorted(by_site.items())),
        )


def shape_text(shapes: dict[str, Sequence[int]]) -> str:
    """Write the arrays of a reply.

    Examples
    --------
    >>> shape_text({"sum": (120,), "weight": (1,)})
    'sum 120, weight 1'
    """
    parts = [f"{name} {' x '.join(map(str, shape)) or '1'}" for name, shape in shapes.items()]
    return ", ".join(parts) or "nothing"


def _replies(events: list[dict[str, Any]], site: str) -> Iterable[Reply]:
    for event in events:
        if event["site"] == site:
            shapes = {name: tuple(shape) for name, shape in event["shapes"].items()}
            yield Reply(
                event["round"] + 1,
                event["op"],
                event["masked"],
                shapes,
                event["bytes"],
            )


def _site(
    facts: dict[str, Any], requests: list[dict[str, Any]], left: list[dict[str, Any]], site: str
) -> SiteLine:
    told = facts["by_site"]
    return SiteLine(
        site,
        None if told is None else told["sites"][site]["rows"],
        sum(call["bytes_up"].get(site, 0) for call in requests),
        sum(call["bytes_down"].get(site, 0) for call in requests),
        sum(event["site"] == site for event in left),
    )


def _by_site(facts: dict[str, Any]) -> SiteSpread | None:
    told = facts["by_site"]
    if told is None:
        return None
    sites = told["sites"]
    return SiteSpread(
        tuple(told["explained"]),
        {site: tuple(found["contribution"]) for site, found in sites.items()},
        {site: tuple(found["shift"]) for site, found in sites.items()},
        min((len(sites) - 1) / max(facts["n"] - 1, 1), 1.0),
    )
