"""Plot of rows as points on two components; the script of the page can choose other components."""

from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from eigenfed.arrays import Array
from eigenfed.report.site_scores import SiteScores
from eigenfed.report.svg import WIDTH, Drawing, Scale, label, line, make_drawing, tag, text, ticks

COLOURS = 8
"""Most sites that get a colour each; more sites are all grey, and one can be highlighted."""

_MOST_POINTS = 20_000
_LEVELS = 65535
_LAYERS = 6
"""Points of one path do not add up their opacity; several paths do, which shows the density."""

_LEFT, _RIGHT, _TOP, _BOTTOM = 64, WIDTH - 16, 24, 400


@dataclass(frozen=True, eq=False)
class _Frame:
    """The range of each component over all sites."""

    low: Array
    high: Array

    def across(self, axis: int) -> Scale:
        return Scale(self.low[axis], self.high[axis], _LEFT, _RIGHT)

    def up(self, axis: int) -> Scale:
        return Scale(self.low[axis], self.high[axis], _BOTTOM, _TOP)


def thin_points(scores: Mapping[str, SiteScores]) -> dict[str, Array]:
    """Return the points of each site, fewer of them if many sites show theirs.

    Examples
    --------
    >>> points = np.zeros((4000, 2))
    >>> one = SiteScores(4000, np.zeros(2), np.zeros(2), points)
    >>> sum(map(len, thin_points({f"site {i}": one for i in range(50)}).values()))
    20000
    """
    most = max(_MOST_POINTS // max(len(scores), 1), 1)
    return {
        site: found.points[:: max(-(-len(found.points) // most), 1)]
        for site, found in scores.items()
    }


def draw_points(points: Mapping[str, Array], *, title: str, caption: str) -> Drawing:
    """Draw the rows on the first two components.

    Parameters
    ----------
    points : mapping of str to ndarray of shape (m, l)
        By site, on the first `l` components.
    title, caption : str
    """
    frame = _find_ranges(points)
    second = min(1, len(frame.low) - 1)
    parts = [tag("g", *_draw_axes(frame, 0, second), class_="axes")]
    coloured = len(points) <= COLOURS
    for layer in range(_LAYERS):
        for at, (site, found) in enumerate(points.items()):
            some = found[layer::_LAYERS]
            parts.append(
                tag(
                    "path",
                    d=_draw_dots(some, frame, 0, second),
                    class_=f"points s{at if coloured else COLOURS}",
                    data_site=site,
                    data_scores=pack_points(some, frame.low, frame.high),
                )
            )
    ranges = ";".join(
        f"{low:.9g},{high:.9g}" for low, high in zip(frame.low, frame.high, strict=True)
    )
    box = f"{_LEFT},{_RIGHT},{_TOP},{_BOTTOM}"
    inside = tag("g", *parts, class_="scatter", data_ranges=ranges, data_box=box)
    return make_drawing("points", _BOTTOM + 50, title=title, caption=caption, parts=[inside])


def pack_points(points: Array, low: Array, high: Array) -> str:
    """Encode points by component, as base64 of 16-bit positions between `low` and `high`.

    Examples
    --------
    >>> pack_points(np.array([[0.0], [1.0]]), np.array([0.0]), np.array([1.0]))
    'AAD//w=='
    """
    span = np.where(high > low, high - low, 1.0)
    places = np.rint((points - low) / span * _LEVELS).astype("<u2")
    return b64encode(places.T.tobytes()).decode("ascii")


def _find_ranges(points: Mapping[str, Array]) -> _Frame:
    filled = [found for found in points.values() if len(found)]
    width = next(iter(points.values())).shape[1]
    low = np.min([found.min(axis=0) for found in filled] or [np.zeros(width)], axis=0)
    high = np.max([found.max(axis=0) for found in filled] or [np.ones(width)], axis=0)
    margin = np.where(high > low, 0.04 * (high - low), 0.5)
    return _Frame(low - margin, high + margin)


def _draw_axes(frame: _Frame, x: int, y: int) -> list[Markup]:
    across, up = frame.across(x), frame.up(y)
    parts = []
    for mark in ticks(frame.low[x], frame.high[x]):
        parts += [
            line(across(mark), _TOP, across(mark), _BOTTOM, "grid"),
            text(across(mark), _BOTTOM + 14, label(mark), anchor="middle"),
        ]
    for mark in ticks(frame.low[y], frame.high[y]):
        parts += [
            line(_LEFT, up(mark), _RIGHT, up(mark), "grid"),
            text(_LEFT - 6, up(mark), label(mark), anchor="end"),
        ]
    parts += [
        text((_LEFT + _RIGHT) / 2, _BOTTOM + 34, f"PC{x + 1}", "axis-name", anchor="middle"),
        text(_LEFT, 10, f"PC{y + 1}", "axis-name"),
    ]
    return parts


def _draw_dots(points: Array, frame: _Frame, x: int, y: int) -> str:
    across, up = frame.across(x), frame.up(y)
    return "".join(f"M{across(row[x]):.1f} {up(row[y]):.1f}h0" for row in points)
