"""The pages of a result: one for everybody, and one for each site alone.

A page is one file: style, script and figures are in it, it asks for nothing, and its policy forbids
it to. It is complete without its script, which adds hovering, choosing and sorting.
"""

from base64 import b64encode
from dataclasses import dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path

import jinja2
from markupsafe import Markup

from eigenfed.errors import DataError
from eigenfed.report.export import exports
from eigenfed.report.leaving import left, privacy
from eigenfed.report.model import Report, read_report, whole_run
from eigenfed.report.page import Page, Verdict, written
from eigenfed.report.repeat import repeat
from eigenfed.report.sections import computed, convergence, loadings, variance
from eigenfed.report.site_sections import by_site, own_level, own_points, points
from eigenfed.report.verdicts import accuracy, held, verdicts
from eigenfed.report.wording import size, things
from eigenfed.study.files import write_at_once


@dataclass(frozen=True)
class Pages:
    """Where the pages of a result are.

    Attributes
    ----------
    shared : Path
        For everybody.
    own : dict of str to Path
        For a site alone.
    exports : tuple of Path
        What the shared page shows, for programs.
    """

    shared: Path
    own: dict[str, Path]
    exports: tuple[Path, ...]


def write_pages(folder: Path) -> Pages:
    """Write the pages of a result into its folder, in place of earlier ones.

    Parameters
    ----------
    folder : Path

    Raises
    ------
    DataError
        If the folder holds no whole result.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> from eigenfed.study.results import write_result
    >>> pca = FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> with tempfile.TemporaryDirectory() as home:
    ...     _ = write_result(Path(home, "out"), pca, sites=["a", "b"])
    ...     pages = write_pages(Path(home, "out"))
    ...     pages.shared.name, pages.own, pages.shared.stat().st_size < 3e6
    ('report.html', {}, True)
    """
    report = read_report(folder)
    own = {site: f"sites/{site}.html" for site in report.scores}
    with whole_run(folder):
        exported = exports(report)
        texts = {"report.html": rendered(shared_page(report)), **exported}
        texts |= {path: rendered(own_page(report, site)) for site, path in own.items()}
    _check_inside(folder)
    for path, text in texts.items():
        (folder / path).parent.mkdir(exist_ok=True)
        write_at_once(folder / path, text.encode("utf-8"))
    _drop_others(folder, set(texts))
    others = tuple(folder / path for path in exported)
    return Pages(folder / "report.html", {s: folder / path for s, path in own.items()}, others)


def _check_inside(folder: Path) -> None:
    """Refuse folders that lead elsewhere: pages are written into them, and old ones removed."""
    for part in ("sites", "multiqc"):
        inner = folder / part
        if inner.is_symlink() or (inner.exists() and not inner.is_dir()):
            raise DataError(
                f"{inner} is a link or a file where a folder of pages goes. Take it away."
            )


def _drop_others(folder: Path, kept: set[str]) -> None:
    """Take away pages of sites that show nothing any more."""
    for path in (folder / "sites").glob("*.html"):
        if str(path.relative_to(folder)) not in kept:
            path.unlink()


def shared_page(report: Report) -> Page:
    """Make the page for everybody."""
    facts = report.facts
    return Page(
        f"{things(facts['k'], 'principal component')} of {things(facts['n'], 'row')} at "
        f"{things(len(facts['sites']), 'site')}",
        f"{things(facts['d'], 'feature')}, {facts['method']} in "
        f"{things(facts['rounds'], 'round')}, with eigenfed {facts['versions']['eigenfed']}",
        verdicts(report),
        (
            computed(report),
            variance(report),
            loadings(report),
            by_site(report),
            points(report),
            convergence(report),
            left(report),
            privacy(report),
            repeat(report),
        ),
    )


def own_page(report: Report, site: str) -> Page:
    """Make the page of one site, for itself."""
    scores = report.scores[site]
    line = next(found for found in report.sites if found.name == site)
    return Page(
        f"{site}: its own page",
        "It shows single rows of this site. It is for the site alone: do not pass it on.",
        (
            held(report),
            accuracy(report),
            Verdict(
                "What left this site",
                size(line.bytes_up),
                f"{things(line.replies, 'reply')}, listed below"
                f"{'; none of its rows' if report.facts['split'] == 'samples' else ''}.",
                "plain",
            ),
        ),
        (
            own_points(site, scores),
            own_level(report, site, scores),
            left(report, only=site),
        ),
        links=(("The page for everybody", "../report.html"),),
    )


def rendered(page: Page) -> str:
    """Write a page as HTML."""
    style, script = _asset("page.css"), _asset("page.js")
    return _template().render(
        page=page,
        style=Markup(style),
        style_digest=_digest(style),
        script=Markup(script),
        script_digest=_digest(script),
    )


@cache
def _template() -> jinja2.Template:
    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_asset),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["written"] = written
    return environment.get_template("page.html.j2")


@cache
def _asset(name: str) -> str:
    return files("eigenfed.report").joinpath("templates", name).read_text("utf-8")


def _digest(text: str) -> str:
    return b64encode(sha256(text.encode("utf-8")).digest()).decode("ascii")
