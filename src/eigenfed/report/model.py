"""The content of a report, read from a result folder and nothing else."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from eigenfed.data.safe_files import digest_part
from eigenfed.errors import DataError
from eigenfed.protocol.study import GENOTYPE
from eigenfed.report.fact_rules import check_events, check_facts
from eigenfed.report.site_scores import SiteScores, read_scores
from eigenfed.report.wording import expect_between
from eigenfed.study.results.result_folder import Result, read_result
from eigenfed.study.results.run_log import read_log

COMPONENTS_SHOWN, FEATURES_SHOWN = 10, 15
_DIGESTED = ("result.json", "components.npy", "mean.npy", "scale.npy", "features.txt", "run.jsonl")


@dataclass(frozen=True)
class Component:
    """A component: its variance, its fraction of the total, and the cumulative fraction."""

    place: int
    variance: float
    fraction: float | None
    cumulative: float | None


@dataclass(frozen=True)
class Loadings:
    """The features with the largest loadings on a component, in order of decreasing size."""

    place: int
    features: tuple[tuple[str, float], ...]


@dataclass(frozen=True)
class Round:
    """One round: the request, its traffic, the sites lost, and the angle before it in degrees."""

    place: int
    op: str
    bytes_down: int
    bytes_up: int
    lost: tuple[str, ...]
    angle: float | None


@dataclass(frozen=True)
class Reply:
    """One reply that left a site."""

    place: int
    op: str
    masked: bool
    shapes: dict[str, tuple[int, ...]]
    bytes: int


@dataclass(frozen=True)
class ReplyGroup:
    """All replies to one kind of request, over rounds and sites."""

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
    """A site's traffic, and its number of rows if disclosed."""

    name: str
    rows: float | None
    bytes_up: int
    bytes_down: int
    replies: int


@dataclass(frozen=True)
class SiteSpread:
    """Differences between sites; see `eigenfed.protocol.exact.by_site.BySite`.

    `by_chance` is the expected value of `explained` for sites without real differences.
    """

    of_genotypes: bool
    explained: tuple[float, ...]
    contribution: dict[str, tuple[float, ...]]
    shift: dict[str, tuple[float, ...]]
    by_chance: float

    @property
    def causes(self) -> str:
        """What is to be checked first where sites differ."""
        return "ancestry and genotyping" if self.of_genotypes else "units and calibration"


@dataclass(frozen=True, eq=False)
class Report:
    """The content of all pages of a result.

    Attributes
    ----------
    facts : dict
        The content of ``result.json``.
    components : tuple of Component
    loadings : tuple of Loadings
        Of the first components.
    rounds : tuple of Round
    left : tuple of ReplyGroup
    replies : dict of str to tuple of Reply
        By site.
    sites : tuple of SiteLine
    by_site : SiteSpread or None
    scores : dict of str to SiteScores
        Of all sites whose scores are in the folder.
    digests : dict of str to str
        SHA-256 of the files of the result. Files about single rows are not among them: their
        digest could confirm a guess.
    """

    facts: dict[str, Any]
    components: tuple[Component, ...]
    loadings: tuple[Loadings, ...]
    rounds: tuple[Round, ...]
    left: tuple[ReplyGroup, ...]
    replies: dict[str, tuple[Reply, ...]]
    sites: tuple[SiteLine, ...]
    by_site: SiteSpread | None
    scores: dict[str, SiteScores]
    digests: dict[str, str]

    @property
    def shown_scores(self) -> dict[str, SiteScores]:
        """Scores that the shared page may show: of sites that agreed, never of a private run."""
        if self.facts["privacy"] is not None:
            return {}
        return {s: self.scores[s] for s in self.facts["shown_scores"] if s in self.scores}

    @property
    def converged(self) -> int | None:
        """How many components have converged; None without a certificate."""
        certificate = self.facts["certificate"]
        return None if certificate is None else sum(certificate["converged"])

    @property
    def sends_covariance(self) -> bool:
        """Whether each site sent its full covariance."""
        return any(group.reveals == "scatter" for group in self.left)


def read_report(folder: Path) -> Report:
    """Read the content of a report.

    Parameters
    ----------
    folder : Path
        A result folder.

    Raises
    ------
    DataError
        If the folder does not hold a complete result.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> from eigenfed.study.results.result_folder import write_result
    >>> pca = FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = write_result(Path(home, "out"), pca, sites=["a", "b"])
    ...     report = read_report(Path(home, "out"))
    >>> [group.op for group in report.left], report.sites[0].replies
    (['moments', 'scatter'], 2)
    """
    result, log = read_result(folder), read_log(folder)
    with refuse_incomplete(folder):
        return _make_report(folder, result, log)


@contextmanager
def refuse_incomplete(folder: Path) -> Iterator[None]:
    """Turn any error on inconsistent content into a `DataError` about the folder."""
    try:
        yield
    except DataError:
        raise
    except (ArithmeticError, AttributeError, LookupError, OSError, TypeError, ValueError):
        raise DataError(
            f"result.json and run.jsonl in {folder} do not belong to one complete run. Fit again, "
            "or get a complete copy."
        ) from None


def _make_report(folder: Path, result: Result, log: list[dict[str, Any]]) -> Report:
    facts = result.facts
    check_facts(facts)
    check_events(log, facts["sites"])
    _check_names(facts["sites"])
    requests = [event for event in log if event["event"] == "request"]
    replies = [event for event in log if event["event"] == "left"]
    return Report(
        facts,
        tuple(_list_components(facts["eigenvalues"], facts["ratios"])),
        tuple(_list_loadings(result)),
        tuple(_make_round(request) for request in requests),
        tuple(_group_replies(replies)),
        {site: tuple(_list_replies(replies, site)) for site in facts["sites"]},
        tuple(_make_site_line(facts, requests, replies, site) for site in facts["sites"]),
        _make_site_spread(facts),
        read_scores(folder, facts["sites"], facts["eigenvalues"]) if facts["scores"] else {},
        _list_digests(folder),
    )


def _list_digests(folder: Path) -> dict[str, str]:
    return {name: digest_part(folder / name) for name in _DIGESTED if (folder / name).exists()}


def _check_names(sites: list[str]) -> None:
    """Refuse names that lead out of the folder, as sites name files in it."""
    if any(Path(site).name != site for site in sites):
        raise ValueError


def _list_components(
    variances: Sequence[float], ratios: Sequence[float | None]
) -> Iterable[Component]:
    total: float | None = 0.0
    for place, (variance, ratio) in enumerate(zip(variances, ratios, strict=True), start=1):
        total = None if ratio is None or total is None else total + ratio
        yield Component(place, variance, ratio, total)


def _list_loadings(result: Result) -> Iterable[Loadings]:
    d = result.components.shape[1]
    for place, row in enumerate(result.components[:COMPONENTS_SHOWN], start=1):
        weights = np.abs(row)
        most = np.argpartition(-weights, min(FEATURES_SHOWN, d) - 1)[:FEATURES_SHOWN]
        order = most[np.lexsort((most, -weights[most]))]
        names = [result.labels[i] for i in order]
        yield Loadings(place, tuple(zip(names, row[order].tolist(), strict=True)))


def _make_round(request: dict[str, Any]) -> Round:
    return Round(
        request["round"] + 1,
        request["op"],
        sum(request["bytes_down"].values()),
        sum(request["bytes_up"].values()),
        tuple(request["lost"]),
        request["angle"],
    )


def _group_replies(events: list[dict[str, Any]]) -> Iterable[ReplyGroup]:
    kinds = defaultdict(list)
    for event in events:
        declared = tuple(event[name] for name in ("op", "what", "leaves", "reveals", "masked"))
        kinds[declared].append(event)
    for (op, what, leaves, reveals, masked), alike in kinds.items():
        by_site: dict[str, int] = defaultdict(int)
        for event in alike:
            by_site[event["site"]] += event["bytes"]
        shapes = dict.fromkeys(format_shapes(event["shapes"]) for event in alike)
        yield ReplyGroup(
            op,
            what,
            leaves,
            reveals,
            masked,
            tuple(shapes),
            len(alike),
            dict(sorted(by_site.items())),
        )


def format_shapes(shapes: dict[str, Sequence[int]]) -> str:
    """Return the names and shapes of the arrays of a reply.

    Examples
    --------
    >>> format_shapes({"sum": (120,), "weight": (1,)})
    'sum 120, weight 1'
    """
    parts = [f"{name} {' x '.join(map(str, shape)) or '1'}" for name, shape in shapes.items()]
    return ", ".join(parts) or "none"


def _list_replies(events: list[dict[str, Any]], site: str) -> Iterable[Reply]:
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


def _make_site_line(
    facts: dict[str, Any], requests: list[dict[str, Any]], replies: list[dict[str, Any]], site: str
) -> SiteLine:
    by_site = facts["by_site"]
    return SiteLine(
        site,
        None if by_site is None else by_site["sites"][site]["rows"],
        sum(request["bytes_up"].get(site, 0) for request in requests),
        sum(request["bytes_down"].get(site, 0) for request in requests),
        sum(event["site"] == site for event in replies),
    )


def _make_site_spread(facts: dict[str, Any]) -> SiteSpread | None:
    by_site = facts["by_site"]
    if by_site is None:
        return None
    sites = by_site["sites"]
    return SiteSpread(
        facts["scale"] == GENOTYPE,
        tuple(by_site["explained"]),
        {site: tuple(found["contribution"]) for site, found in sites.items()},
        {site: tuple(found["shift"]) for site, found in sites.items()},
        expect_between(facts["n"], len(sites)),
    )
