"""Figures: what is drawn is as long as the number, and names are text."""

import re

import numpy as np
import pytest
from markupsafe import Markup

from eigenfed.report.figures import Bar, draw_angles, draw_bars, draw_grid, draw_scree
from eigenfed.report.model import Component, Round
from eigenfed.report.score_plot import draw_points, pack_points
from eigenfed.report.svg import tag, ticks


def numbers(svg: str, tag: str, attribute: str) -> list[float]:
    return [float(x) for x in re.findall(rf'<{tag} [^>]*?\b{attribute}="([\d.-]+)"', svg)]


def test_bars_are_as_long_as_their_values() -> None:
    drawn = draw_bars(
        "b", [Bar("a", 4.0, "a"), Bar("b", -2.0, "b"), Bar("c", 0.0, "c")], title="t", caption="s"
    )
    wide = numbers(drawn.svg, "rect", "width")
    assert wide[0] == pytest.approx(2 * wide[1], abs=0.2)
    assert wide[2] == 1.0
    starts = numbers(drawn.svg, "rect", "x")
    assert starts[1] + wide[1] == pytest.approx(starts[0], abs=0.2)
    assert re.findall(r'class="(bar[ \w]*) mark"', drawn.svg) == ["bar", "bar negative", "bar"]


def test_the_scree_has_a_bar_and_a_point_for_each_component() -> None:
    variances = [8.0, 4.0, 2.0]
    drawn = draw_scree(
        [
            Component(i + 1, v, v / 16, sum(variances[: i + 1]) / 16)
            for i, v in enumerate(variances)
        ],
        16.0,
    )
    tall = numbers(drawn.svg, "rect", "height")
    assert tall == pytest.approx([176.0, 88.0, 44.0], abs=0.2)
    assert numbers(drawn.svg, "circle", "cy") == pytest.approx([309.0, 280.5, 266.2], abs=0.2)
    assert "cumulative fraction of it, 88 % in the end" in drawn.caption


def test_a_scree_without_shares_has_no_line() -> None:
    drawn = draw_scree([Component(1, 2.0, None, None)], None)
    assert "circle" not in drawn.svg
    assert "total" not in drawn.caption


def test_a_scree_of_nothing_is_drawn() -> None:
    drawn = draw_scree([Component(1, 0.0, 0.0, 0.0)], 0.0)
    assert numbers(drawn.svg, "rect", "height") == [0.0]
    assert "e-30" not in drawn.svg
    assert "e-30" not in draw_bars("b", [Bar("a", 0.0, "a")], title="t", caption="s").svg


def test_one_further_component_is_told_of_as_one() -> None:
    known = [Component(1, 2.0, 0.5, 0.5)]
    assert "Pale: PC2, which was not requested." in draw_scree(known, 4.0, further=[1.0]).caption
    bounded = draw_scree(known, 4.0, further=[1.0], exact=False).caption
    assert "PC2, which was not requested, as far as the run knows it: a lower bound." in bounded
    more = draw_scree(known, 4.0, further=[1.0, 0.5], exact=False).caption
    assert "PC2 to PC3, which were not requested, as far as the run knows them: lower b" in more


def rounds(angles: list[float | None]) -> list[Round]:
    return [Round(at + 1, "product", 1, 1, (), value) for at, value in enumerate(angles)]


def test_angles_fall_on_a_scale_of_digits() -> None:
    drawn = draw_angles(rounds([None, 1e-2, 1e-4]), 1e-8, 1e-6)
    assert drawn is not None
    assert drawn.caption == (
        "The largest angle was 0.01 degrees after 1 round, and 1e-08 after 3; the tolerance is "
        "1e-06."
    )
    first, second, last = numbers(drawn.svg, "circle", "cy")
    assert last - second == pytest.approx(2 * (second - first), abs=0.2)
    assert "tolerance 1e-06" in drawn.svg


def test_an_angle_of_zero_is_drawn_at_the_bottom() -> None:
    drawn = draw_angles(rounds([1e-2, 0.0]), 0.0, 1e-6)
    assert drawn is not None
    first, second, last = numbers(drawn.svg, "circle", "cy")
    assert first < second == last
    assert all(np.isfinite(numbers(drawn.svg, "circle", "cx")))


def test_without_angles_there_is_no_curve() -> None:
    assert draw_angles(rounds([None, None]), 1e-15, 1e-8) is None


def test_cells_are_darker_the_larger() -> None:
    drawn = draw_grid(
        "g",
        ["a", "b"],
        ["PC1", "PC2"],
        [[0.0, -2.0], [1.0, 9.0]],
        title="t",
        caption="s",
        format_value=str,
        full=2.0,
    )
    assert re.findall(r'class="cell (\w+) mark"', drawn.svg) == ["high0", "low4", "high2", "high4"]


def test_long_names_beside_cells_have_room() -> None:
    drawn = draw_grid(
        "g",
        ["North_of_a_very_long_name"],
        [f"PC{place}" for place in range(1, 11)],
        [[0.0] * 10],
        title="t",
        caption="s",
        format_value=str,
        full=1.0,
    )
    shown = re.search(r'<text x="([\d.]+)"[^>]* text-anchor="end">([^<]*)<', drawn.svg)
    assert shown is not None
    # The text ends there, and a letter takes up to eight pixels.
    assert float(shown[1]) >= 8 * len(shown[2]) == 160
    assert max(numbers(drawn.svg, "rect", "x")) < 560 - 30


def test_points_are_drawn_where_they_are() -> None:
    points = {"a": np.array([[0.0, 0.0], [1.0, 1.0]]), "b": np.empty((0, 2))}
    drawn = draw_points(points, title="t", caption="s")
    (x0, y0), (x1, y1) = (
        (float(x), float(y)) for x, y in re.findall(r"M([\d.]+) ([\d.]+)h0", drawn.svg)
    )
    assert x0 < x1
    assert y0 > y1
    assert x0 - 64 == pytest.approx(544 - x1, abs=0.2)


def test_packed_points_come_back_to_a_part_in_sixty_thousand() -> None:
    points = np.random.default_rng(0).standard_normal((50, 3))
    low, high = points.min(axis=0), points.max(axis=0)
    from base64 import b64decode

    places = np.frombuffer(b64decode(pack_points(points, low, high)), "<u2").reshape(3, 50).T
    np.testing.assert_allclose(low + places / 65535 * (high - low), points, atol=1e-4)


def test_many_sites_share_one_colour() -> None:
    points = {f"s{i}": np.ones((8, 2)) * i for i in range(9)}
    classes = set(
        re.findall(r'class="points (s\d)"', draw_points(points, title="t", caption="s").svg)
    )
    assert classes == {"s8"}


def test_text_is_escaped() -> None:
    made = tag("text", '<b>"x"</b>', data_tip="a\" onload='b'")
    assert made == Markup(
        '<text data-tip="a&#34; onload=&#39;b&#39;">&lt;b&gt;&#34;x&#34;&lt;/b&gt;</text>'
    )


def test_a_range_of_nothing_has_one_tick() -> None:
    assert ticks(2.0, 2.0) == [2.0]
