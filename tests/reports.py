"""Results with their pages, for the tests of the report."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pandas as pd

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.report.html import Pages, write_pages
from eigenfed.study.results.result_folder import write_result
from eigenfed.study.scores import Projected

if TYPE_CHECKING:
    from playwright.sync_api import Page


@dataclass
class Watched:
    """A page in a browser, what it wrote to its console, and what it asked for."""

    page: "Page"
    said: list[str] = field(default_factory=list)
    asked: list[str] = field(default_factory=list)


Opened: TypeAlias = Callable[..., Watched]

ODD_NAMES = (
    "<script>document.title = 'taken'</script>",
    "\"quoted\" & 'single'",
    "a name that a laboratory system has made up and that nobody has shortened, in mmol per litre",
    "µ-opioid ß",
)

CONTRAST = """
() => {
  const parse = (text) => (text.match(/[\\d.]+/g) || []).map(Number);
  const over = (top, below) => {
    const alpha = top.length > 3 ? top[3] : 1;
    return [0, 1, 2].map((i) => alpha * top[i] + (1 - alpha) * below[i]);
  };
  const light = (colour) => {
    const [r, g, b] = colour.map((c) => {
      const s = c / 255;
      return s <= 0.04045 ? s / 12.92 : ((s + 0.055) / 1.055) ** 2.4;
    });
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const behind = (element) => {
    const found = [];
    for (let at = element; at; at = at.parentElement) {
      found.push(parse(getComputedStyle(at).backgroundColor));
    }
    const layers = found.reverse().filter((c) => c.length);
    return layers.reduce((below, top) => over(top, below), [255, 255, 255]);
  };
  const worst = [];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !element.getClientRects().length) continue;
    if (["TITLE", "DESC", "SCRIPT", "OPTION"].includes(element.tagName.toUpperCase())) continue;
    const style = getComputedStyle(element);
    const drawn = element instanceof SVGElement;
    let ground = behind(element);
    if (drawn && element.classList.contains("in-cell")) {
      const cell = getComputedStyle(element.previousElementSibling);
      ground = over([...parse(cell.fill).slice(0, 3), Number(cell.fillOpacity)], ground);
    }
    const ink = parse(drawn ? style.fill : style.color);
    const [a, b] = [light(over(ink, ground)), light(ground)].sort((x, y) => y - x);
    const text = walker.currentNode.textContent.slice(0, 40);
    worst.push([(a + 0.05) / (b + 0.05), element.tagName, text]);
  }
  return worst.sort((x, y) => x[0] - y[0]).slice(0, 3);
}
"""
"""Script that returns the three texts on a page with the least contrast."""


def tables(
    names: tuple[str, ...] = ("north", "south", "west"),
    *,
    n: int = 120,
    d: int = 8,
    apart: float = 0.0,
    seed: int = 0,
) -> dict[str, Array]:
    """Rows with falling variances, and sites that are so far apart on one direction."""
    rng = np.random.default_rng(seed)
    away = np.zeros(d)
    away[-1] = apart
    spread = 4.0 * 0.6 ** np.arange(d)
    return {
        name: rng.standard_normal((n + 7 * at, d)) * spread + at * away
        for at, name in enumerate(names)
    }


def named(sites: dict[str, Array], odd: tuple[str, ...] = ODD_NAMES) -> dict[str, pd.DataFrame]:
    """Give the features names, the odd ones first."""
    d = next(iter(sites.values())).shape[1]
    columns = [*odd, *(f"x{i}" for i in range(len(odd), d))][:d]
    return {name: pd.DataFrame(rows, columns=columns) for name, rows in sites.items()}


def result(folder: Path, sites: dict[str, Any], k: int = 3, **settings: Any) -> Pages:
    """Fit, and write a result and its pages."""
    without_pages(folder, sites, k, **settings)
    return write_pages(folder)


def without_pages(
    folder: Path,
    sites: dict[str, Any],
    k: int = 3,
    *,
    by_site: bool = False,
    scores: bool = True,
    share: tuple[str, ...] = (),
    **settings: Any,
) -> None:
    """Fit, and write a result."""
    pca = FederatedPCA(k, random_state=0, **settings).fit_sites(sites, by_site=by_site)
    found = {name: Projected(pca.transform(rows), None) for name, rows in sites.items()}
    write_result(folder, pca, sites=sites, rows=found if scores else None, share_scores=share)
