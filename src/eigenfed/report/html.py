"""The HTML pages of a result: one that all sites share, and one for each site only.

A page is one self-contained file with its style, script and figures. It loads nothing, and its
content security policy forbids it to. It is complete without its script, which adds tooltips,
choices and sorting.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from eigenfed.data.readers.npy import map_npy
from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import DataError
from eigenfed.report.accuracy_verdict import judge_accuracy
from eigenfed.report.egress import show_egress, show_privacy
from eigenfed.report.export import format_exports
from eigenfed.report.model import Report, read_report, refuse_incomplete
from eigenfed.report.page_elements import Page, PageVerdict
from eigenfed.report.page_template import render
from eigenfed.report.prepared_section import show_preparation
from eigenfed.report.repeat import show_commands
from eigenfed.report.sections import show_accuracy, show_loadings, show_run, show_variance
from eigenfed.report.site_sections import (
    compare_sites,
    show_feature_means,
    show_missing,
    show_own_means,
    show_own_rows,
    show_rows,
)
from eigenfed.report.verdicts import judge_run, judge_variance
from eigenfed.report.wording import size, things
from eigenfed.study.results.csv_tables import MOST_NUMBERS, format_scores
from eigenfed.study.scores import Projected


@dataclass(frozen=True)
class Pages:
    """Paths of the pages of a result.

    Attributes
    ----------
    shared : Path
        The page for all sites.
    own : dict of str to Path
        The page of each site, for that site only.
    exports : tuple of Path
        The content of the shared page for programs.
    """

    shared: Path
    own: dict[str, Path]
    exports: tuple[Path, ...]


def write_pages(folder: Path) -> Pages:
    """Write the pages of a result into its folder, replacing earlier ones.

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
    ...     pages = write_pages(Path(home, "out"))
    ...     pages.shared.name, pages.own, pages.shared.stat().st_size < 3e6
    ('report.html', {}, True)
    """
    report = read_report(folder)
    own = {site: f"sites/{site}.html" for site in report.scores}
    with refuse_incomplete(folder):
        exports = format_exports(report)
        texts = {"report.html": render(make_shared_page(report)), **exports}
        texts |= {path: render(make_own_page(report, site)) for site, path in own.items()}
        texts |= {f"sites/{site}.csv": text for site, text in _list_scores(folder, report)}
    _check_folders(folder)
    for path, text in texts.items():
        (folder / path).parent.mkdir(exist_ok=True)
        write_at_once(folder / path, text.encode("utf-8"))
    _remove_others(folder, set(own))
    paths = tuple(folder / path for path in exports)
    return Pages(folder / "report.html", {s: folder / path for s, path in own.items()}, paths)


def _list_scores(folder: Path, report: Report) -> Iterator[tuple[str, str]]:
    """Yield each site and its scores as csv, unless there are too many."""
    for site, found in report.scores.items():
        scores = map_npy(folder / "scores" / f"{site}.npy")
        if scores.size <= MOST_NUMBERS:
            ids = found.ids if found.ids is not None and len(found.ids) == found.rows else None
            yield site, format_scores(Projected(scores, ids))


def _check_folders(folder: Path) -> None:
    """Refuse symbolic links: pages are written into these folders, and old ones removed."""
    for part in ("sites", "multiqc"):
        inner = folder / part
        if inner.is_symlink() or (inner.exists() and not inner.is_dir()):
            raise DataError(f"{inner} must be a folder, and is a link or a file. Remove it.")


def _remove_others(folder: Path, sites: set[str]) -> None:
    """Remove pages and csv files of sites that have no scores any more."""
    for path in (folder / "sites").iterdir() if (folder / "sites").exists() else ():
        if path.suffix in (".html", ".csv") and path.stem not in sites:
            path.unlink()


def make_shared_page(report: Report) -> Page:
    """Return the page for all sites."""
    facts = report.facts
    return Page(
        f"{things(facts['k'], 'principal component')} of {things(facts['n'], 'row')} at "
        f"{things(len(facts['sites']), 'site')}",
        f"{things(facts['d'], 'feature')}, {facts['method']} in "
        f"{things(facts['rounds'], 'round')}, with eigenfed {facts['versions']['eigenfed']}",
        judge_run(report),
        (
            show_run(report),
            *show_preparation(report),
            show_variance(report),
            show_loadings(report),
            compare_sites(report),
            show_rows(report),
            show_accuracy(report),
            show_egress(report),
            show_privacy(report),
            show_commands(report),
        ),
    )


def make_own_page(report: Report, site: str) -> Page:
    """Return the page of one site, for that site only."""
    scores = report.scores[site]
    line = next(found for found in report.sites if found.name == site)
    return Page(
        f"Report for {site} only",
        "This page shows single rows of the site. Do not pass it on.",
        (
            judge_variance(report),
            judge_accuracy(report),
            PageVerdict(
                "What left this site",
                size(line.bytes_up),
                f"{things(line.replies, 'reply')}, listed below"
                f"{'; no rows' if report.facts['split'] == 'samples' else ''}.",
                "plain",
            ),
        ),
        (
            show_own_rows(site, scores),
            show_own_means(report, site, scores),
            *show_feature_means(site, scores),
            *show_missing(site, scores),
            show_egress(report, only=site),
        ),
        links=(("Shared report", "../report.html"),),
    )
