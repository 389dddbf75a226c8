"""Draw the pictures of the documentation: figures of the report about a study with generated rows.

``python tests/pictures.py`` writes them to ``docs/pictures``.
"""

import re
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.report.html import make_own_page, make_shared_page
from eigenfed.report.model import read_report
from eigenfed.report.page_elements import Figure, Page, Panels, Part, Points
from eigenfed.report.svg import WIDTH, Drawing
from eigenfed.study.results.result_folder import write_result
from eigenfed.study.scores import Projected

FOLDER = Path(__file__).parents[1] / "docs/pictures"
FEATURES = ["age", "bmi", "systolic", "diastolic", "hdl", "ldl", "glucose"]
SHOWN = {"scree": "scree", "loadings-1": "loadings", "shift": "sites", "points": "rows"}
"""Names of the figures on a page, and of the pictures."""

_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #56606b; }
.name, .in-cell, .axis-name { fill: #1c2126; }
.grid { stroke: #d3d9df; } .axis { stroke: #56606b; }
.limit { stroke: #944600; stroke-width: 1.5; stroke-dasharray: 5 4; }
.bar { fill: #1f6fb2; } .bar.negative { fill: #b3541e; } .bar.further { fill-opacity: 0.35; }
.curve { fill: none; stroke: #1f6fb2; stroke-width: 2; } .dot { fill: #1f6fb2; stroke: #ffffff; }
.cell { fill: #1f6fb2; fill-opacity: 0; } .low1, .low2, .low3, .low4 { fill: #b3541e; }
.low1, .high1 { fill-opacity: 0.15; } .low2, .high2 { fill-opacity: 0.3; }
.low3, .high3 { fill-opacity: 0.46; } .low4, .high4 { fill-opacity: 0.62; }
.points { fill: none; stroke: #1f6fb2; stroke-width: 4; stroke-linecap: round; }
.points { stroke-opacity: 0.4; }
"""


def draw_pictures() -> dict[str, str]:
    """Return the texts of the pictures by name."""
    with tempfile.TemporaryDirectory() as home:
        pages = _make_pages(Path(home) / "result")
    drawings = [drawing for page in pages for drawing in _list_drawings(page)]
    return {SHOWN[d.name]: _make_file(d) for d in drawings if d.name in SHOWN}


def _make_pages(folder: Path) -> tuple[Page, Page]:
    sites = {name: pd.DataFrame(rows, columns=FEATURES) for name, rows in _make_rows().items()}
    pca = FederatedPCA(3, scale=True).fit_sites(sites, by_site=True)
    rows = {name: Projected(pca.transform(table), None) for name, table in sites.items()}
    write_result(folder, pca, sites=sites, rows=rows)
    report = read_report(folder)
    return make_shared_page(report), make_own_page(report, "island")


def _make_rows() -> dict[str, Array]:
    rng = np.random.default_rng(4)
    mix = rng.normal(size=(7, 7)) * 0.6 ** np.arange(7)
    made = {}
    for name, n in (("north", 900), ("south", 700), ("island", 300)):
        made[name] = 100 + 10 * rng.normal(size=(n, 7)) @ mix.T
        made[name][:, 4:] += 60 * (name == "island")
    return made


def _list_drawings(page: Page) -> list[Drawing]:
    parts: list[Part] = [part for section in page.sections for part in section.parts]
    figures = [part for part in parts if isinstance(part, Figure)]
    figures += [part.figure for part in parts if isinstance(part, Points)]
    figures += [figure for part in parts if isinstance(part, Panels) for _, figure in part.figures]
    return [figure.drawing for figure in figures]


def _make_file(drawing: Drawing) -> str:
    """Return a drawing as a file: with its style and background, and without data for scripts."""
    text = re.sub(r' data-[a-z]+="[^"]*"', "", str(drawing.svg))
    head = f'<style>{_STYLE}</style><rect width="{WIDTH}" height="100%" fill="#ffffff"/>'
    text = text.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return text.replace(">", f">{head}", 1) + "\n"


if __name__ == "__main__":
    FOLDER.mkdir(exist_ok=True)
    for name, text in draw_pictures().items():
        sys.stdout.write(f"{name}: {len(text)} bytes\n")
        (FOLDER / f"{name}.svg").write_text(text, "utf-8")
