"""What the shared page shows, for programs: ``run.json``, and custom content for MultiQC.

Nothing of single rows is in either. MultiQC takes files whose names end in ``_mqc.json``.

The pages of a result: one for everybody, and one for each site alone.

A page is one file: style, script and figures are in it, it asks for nothing, and its policy forbids
it to. It is complete without its script, which adds hovering, choosing and sorting.
"""

import json
from base64 import b64encode
from dataclasses import asdict, dataclass
from functools import cache
from hashlib import sha256
from importlib.resources import files
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import DataError
from eigenfed.report.egress import left, privacy
from eigenfed.report.model import Report, read_report, whole_run
from eigenfed.report.page import Page, PageVerdict, written
from eigenfed.report.repeat import repeat
from eigenfed.report.sections import (
    accuracy,
    computed,
    convergence,
    held,
    loadings,
    variance,
    verdicts,
)
from eigenfed.report.site_sections import by_site, own_level, own_points, points
from eigenfed.report.wording import size, things
from eigenfed.study.results.facts import plain

FORMAT = 1


def exports(report: Report) -> dict[str, str]:
    """Return the texts of all files by path inside the result's folder."""
    contents = {"run.json": run(report)} | {
        f"multiqc/eigenfed_{name}_mqc.json": content for name, content in multiqc(report).items()
    }
    return {
        path: json.dumps(plain(content), indent=1, allow_nan=False) + "\n"
        for path, content in contents.items()
    }


def run(report: Report) -> dict[str, Any]:
    """Return everything on the shared page as numbers, but the points."""
    kinds = ("components", "loadings", "rounds", "left", "sites")
    return {
        "format": FORMAT,
        "result": report.facts,
        **{kind: [asdict(entry) for entry in getattr(report, kind)] for kind in kinds},
        "replies": {site: [asdict(r) for r in found] for site, found in report.replies.items()},
        "by_site": None if report.by_site is None else asdict(report.by_site),
    }


def multiqc(report: Report) -> dict[str, dict[str, Any]]:
    """Return custom content: general numbers, a scree and a table of sites."""
    facts = report.facts
    general = {
        "components": facts["k"],
        "rows": facts["n"],
        "sites": len(facts["sites"]),
        "variance": _hundredths(report.components[-1].cumulative),
        "converged": report.converged,
        "rounds": facts["rounds"],
    }
    about = {"parent_id": "eigenfed", "parent_name": "eigenfed", "parent_description": _ABOUT}
    return {
        "general": {
            "id": "eigenfed_general",
            "plot_type": "generalstats",
            "pconfig": [{name: _HEADERS[name]} for name in general],
            "data": {"eigenfed": _known(general)},
        },
        "scree": about
        | {
            "id": "eigenfed_scree",
            "section_name": "Scree",
            "description": "Variance by component.",
            "plot_type": "linegraph",
            "pconfig": {
                "id": "eigenfed_scree_plot",
                "title": "eigenfed: variance by component",
                "xlab": "component",
                "ylab": "variance",
                "ymin": 0,
            },
            "data": {"eigenfed": {str(c.place): c.variance for c in report.components}},
        },
        "sites": about
        | {
            "id": "eigenfed_sites",
            "section_name": "Sites",
            "description": "What each site brought, and what left it.",
            "plot_type": "table",
            "pconfig": {"id": "eigenfed_sites_table", "title": "eigenfed: sites"},
            "headers": {name: {"title": title} for name, title in _COLUMNS.items()},
            "data": {
                site.name: _known({name: getattr(site, name) for name in _COLUMNS})
                for site in report.sites
            },
        },
    }


_ABOUT = "Principal components of rows that stayed at their sites."
_COLUMNS = {
    "rows": "Rows",
    "replies": "Replies",
    "bytes_up": "Bytes sent",
    "bytes_down": "Bytes received",
}
_HEADERS: dict[str, dict[str, Any]] = {
    "components": {"title": "Components", "format": "{:,.0f}"},
    "rows": {"title": "Rows", "format": "{:,.0f}"},
    "sites": {"title": "Sites", "format": "{:,.0f}"},
    "variance": {"title": "Variance held", "suffix": "%", "min": 0, "max": 100},
    "converged": {"title": "Converged", "description": "Components that have converged"},
    "rounds": {"title": "Rounds", "format": "{:,.0f}"},
}


def _hundredths(share: float | None) -> float | None:
    return None if share is None else 100.0 * share


def _known(values: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in values.items() if value is not None}


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
    >>> from eigenfed.study.results.result_folder import (write_result)
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
            PageVerdict(
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
