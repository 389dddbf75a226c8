"""Using a page: by hand, by keyboard, on a phone, in the dark, and read aloud."""

from itertools import pairwise
from pathlib import Path

import pytest
from playwright.sync_api import Page

from reports import CONTRAST, Opened

pytestmark = pytest.mark.browser

KINDS = ("exact", "private", "many")


@pytest.mark.parametrize("kind", ["exact", "private"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_can_be_read_in_both_colour_schemes(
    kind: str, scheme: str, results: dict[str, Path], opened: Opened
) -> None:
    watched = opened(results[kind] / "report.html", color_scheme=scheme)
    page = watched.page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    paper = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert paper == {"light": "rgb(255, 255, 255)", "dark": "rgb(20, 24, 28)"}[scheme]
    worst = page.evaluate(CONTRAST)
    assert worst[0][0] >= 4.5, worst


@pytest.mark.parametrize("kind", KINDS)
def test_a_phone_needs_no_sideways_scrolling(
    kind: str, results: dict[str, Path], opened: Opened
) -> None:
    page = opened(results[kind] / "report.html", viewport={"width": 360, "height": 740}).page
    page.evaluate("document.querySelectorAll('details').forEach((d) => { d.open = true; })")
    assert page.evaluate("document.documentElement.scrollWidth") == 360
    beyond = page.evaluate(
        "Array.from(document.querySelectorAll('h1, h2, h3, p, dd, summary, select, .wide'))"
        ".filter((e) => e.getBoundingClientRect().right > 361).length"
    )
    assert beyond == 0
    smallest = page.evaluate(
        "Math.min(...Array.from(document.querySelectorAll('svg.figure text:not(.in-cell)'),"
        " (t) => t.getBoundingClientRect().height).filter((h) => h > 0))"
    )
    assert smallest > 9


@pytest.mark.parametrize("kind", KINDS)
def test_it_can_be_read_aloud(kind: str, results: dict[str, Path], opened: Opened) -> None:
    page = opened(results[kind] / "report.html").page
    assert page.locator("html").get_attribute("lang") == "en"
    levels: list[int] = page.evaluate(
        "Array.from(document.querySelectorAll('h1, h2, h3, h4'), (h) => Number(h.tagName[1]))"
    )
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(after - before <= 1 for before, after in pairwise(levels))
    assert _broken(page) == {}


def _broken(page: Page) -> dict[str, int]:
    """Count what a reader could not tell: nameless figures, cells, controls, doubled ids."""
    found: dict[str, int] = page.evaluate(
        """() => {
          const all = (query) => Array.from(document.querySelectorAll(query));
          const ids = all('[id]').map((e) => e.id);
          const counts = {
            figures: all('svg.figure').filter((s) => s.getAttribute('role') !== 'img'
              || !s.querySelector(':scope > title').textContent
              || !s.querySelector(':scope > desc').textContent
              || !document.getElementById(s.getAttribute('aria-labelledby'))).length,
            heads: all('thead th').filter((t) => t.scope !== 'col' || !t.textContent).length,
            rows: all('tbody tr').filter((r) => r.cells[0].scope !== 'row').length,
            captions: all('table').filter((t) => !t.caption || !t.caption.textContent).length,
            controls: all('select').filter((s) => s.labels.length !== 1).length,
            scrolled: all('.wide, pre').filter((w) => w.tabIndex !== 0
              || !w.getAttribute('aria-label')).length,
            ids: ids.length - new Set(ids).size,
            links: all('a[href^="#"]').filter(
              (a) => !document.getElementById(a.getAttribute('href').slice(1))).length,
          };
          return Object.fromEntries(Object.entries(counts).filter(([, n]) => n));
        }"""
    )
    return found


def test_every_control_is_reached_by_the_tab_key(results: dict[str, Path], opened: Opened) -> None:
    page = opened(results["exact"] / "report.html").page
    wanted = page.locator("a, select, summary, th button").locator("visible=true").count()
    page.evaluate(
        "() => { window.reached = new Set(); document.addEventListener('focusin', (event) => {"
        " if (event.target.matches('a, select, summary, th button'))"
        " window.reached.add(event.target); }); }"
    )
    for _ in range(wanted + 80):
        page.keyboard.press("Tab")
    assert page.evaluate("window.reached.size") == wanted


def test_a_component_is_chosen_by_keyboard(results: dict[str, Path], opened: Opened) -> None:
    page = opened(results["exact"] / "report.html").page
    assert page.locator(".panel:visible h3").all_text_contents() == ["Largest loadings of PC1"]
    page.get_by_label("Component", exact=True).focus()
    page.keyboard.press("ArrowDown")
    assert page.locator(".panel:visible h3").all_text_contents() == ["Largest loadings of PC2"]


def test_a_table_is_opened_and_sorted_by_keyboard(results: dict[str, Path], opened: Opened) -> None:
    page = opened(results["exact"] / "report.html").page
    page.locator("#loadings-1 summary").focus()
    page.keyboard.press("Enter")
    assert page.locator("#loadings-1-table").is_visible()
    page.locator("#loadings-1-table th button").nth(1).focus()

    def weights() -> list[float]:
        found: list[str] = page.eval_on_selector_all(
            "#loadings-1-table tbody td:nth-child(2)", "cells => cells.map(c => c.title)"
        )
        return [float(text) for text in found]

    for order, falling in (("ascending", False), ("descending", True)):
        page.keyboard.press("Enter")
        head = page.locator("#loadings-1-table th").nth(1)
        assert head.get_attribute("aria-sort") == order
        assert weights() == sorted(weights(), reverse=falling)


def test_marks_speak_when_pointed_at_or_walked_along(
    results: dict[str, Path], opened: Opened
) -> None:
    page = opened(results["exact"] / "report.html").page
    tip = page.locator("#tip")
    assert not tip.is_visible()
    page.locator("#scree .bar").nth(1).hover()
    assert (tip.text_content() or "").startswith("PC2: variance")
    page.mouse.move(0, 0)
    page.locator("#explained .chart").focus()
    page.keyboard.press("ArrowRight")
    assert (tip.text_content() or "").startswith("PC1: ")
    page.keyboard.press("ArrowRight")
    assert (tip.text_content() or "").startswith("PC2: ")
    page.keyboard.press("Escape")
    assert not tip.is_visible()


def test_components_and_sites_of_the_points_are_chosen(
    results: dict[str, Path], opened: Opened
) -> None:
    page = opened(results["exact"] / "report.html").page
    first = page.locator("path.points").first
    before = first.get_attribute("d") or ""
    page.get_by_label("Horizontal axis").select_option("PC3")
    after = first.get_attribute("d") or ""
    assert after != before
    assert after.count("M") == before.count("M")
    assert "PC3" in page.locator(".scatter .axis-name").all_text_contents()
    page.get_by_label("Horizontal axis").select_option("PC1")
    again = [
        float(x) for x in (first.get_attribute("d") or "").replace("M", " ").split("h0")[0].split()
    ]
    drawn = [float(x) for x in before.replace("M", " ").split("h0")[0].split()]
    assert again == pytest.approx(drawn, abs=0.15)
    page.get_by_label("Site", exact=True).select_option("north")
    chosen = page.locator("path.points.chosen")
    assert {chosen.nth(at).get_attribute("data-site") for at in range(chosen.count())} == {"north"}
    assert page.locator("path.points.aside").count() == chosen.count()
