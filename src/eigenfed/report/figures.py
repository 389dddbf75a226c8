"""The figures of a report: functions from numbers to SVG."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from markupsafe import Markup

from eigenfed.report.model import Component, Round
from eigenfed.report.svg import (
    WIDTH,
    Drawing,
    Scale,
    label,
    line,
    make_drawing,
    room,
    tag,
    text,
    ticks,
)
from eigenfed.report.wording import number, percent, shorten, things

_RIGHT = WIDTH - 16
_MOST_LABELS = 12
"""So many names of components fit side by side."""
_ROW = 22


@dataclass(frozen=True)
class Bar:
    """A bar with its label and its tooltip."""

    name: str
    value: float
    tip: str


def draw_scree(
    components: Sequence[Component],
    total: float | None,
    *,
    further: Sequence[float] = (),
    exact: bool = True,
    edge: float | None = None,
) -> Drawing:
    """Draw the variances as bars, and below them the cumulative fraction of the total.

    Parameters
    ----------
    components : sequence of Component
    total : float or None
        Total variance.
    further : sequence of float
        Variances of the components after these, drawn in a paler colour.
    exact : bool
        Whether these are known, or only lower bounds.
    edge : float, optional
        Variance of a dashed line, the largest that noise alone would give.
    """
    high = max([c.variance for c in components] + [edge or 0.0]) or 1.0
    marks = ticks(0.0, high, 5)
    fractions = [c.cumulative for c in components if c.cumulative is not None]
    left = max(room(map(label, marks)), room(["100 %"])) + 14
    bars = len(components) + len(further)
    places = Scale(0.5, bars + 0.5, left, _RIGHT)
    up, lower = Scale(0.0, high, 200, 24), Scale(0.0, 1.0, 366, 252)
    bottom = 366 if fractions else 200
    parts = [text(left, 10, "variance", "axis-name")]
    parts += [line(left, up(mark), _RIGHT, up(mark), "grid") for mark in marks]
    parts += [text(left - 6, up(mark), label(mark), anchor="end") for mark in marks]
    tips = [
        (
            c.variance,
            f"PC{c.place}: variance {number(c.variance)}, {percent(c.fraction)} of the total",
        )
        for c in components
    ]
    least = "" if exact else "at least "
    tips += [
        (value, f"PC{place}, not requested: variance {least}{number(value)}")
        for place, value in enumerate(further, start=len(components) + 1)
    ]
    width = min((_RIGHT - left) / bars * 0.72, 60)
    parts += [
        tag(
            "rect",
            x=places(place) - width / 2,
            y=up(max(value, 0.0)),
            width=width,
            height=200 - up(max(value, 0.0)),
            class_=f"{'bar' if place <= len(components) else 'bar further'} mark",
            data_tip=tip,
        )
        for place, (value, tip) in enumerate(tips, start=1)
    ]
    if edge is not None:
        parts += [
            line(left, up(edge), _RIGHT, up(edge), "limit"),
            text(_RIGHT, up(edge) - 10, "edge of noise", anchor="end"),
        ]
    if fractions:
        parts += _draw_cumulative(components, places, lower, left)
    parts += _draw_labels(bars, places, bottom + 14)
    caption = _caption_scree(components, total, further=len(further), exact=exact, edge=edge)
    return make_drawing(
        "scree", bottom + 30, title="Variance by component", caption=caption, parts=parts
    )


def _caption_scree(
    components: Sequence[Component],
    total: float | None,
    *,
    further: int,
    exact: bool,
    edge: float | None,
) -> str:
    k = len(components)
    caption = (
        f"Bars: variances of PC1 to PC{k}, from {number(components[0].variance)} to "
        f"{number(components[-1].variance)}."
    )
    if k == 1:
        caption = f"Bar: the variance of PC1, {number(components[0].variance)}."
    if further:
        known = "" if exact else ", as far as the run knows them: lower bounds"
        names = f"PC{k + 1} to PC{k + further}, which were"
        if further == 1:
            names = f"PC{k + 1}, which was"
            known = known.replace("them: lower bounds", "it: a lower bound")
        caption += f" Pale: {names} not requested{known}."
    if edge is not None:
        caption += f" Dashed: the edge of noise, {number(edge)}."
    if total is not None:
        caption += f" The total variance is {number(total)}."
    if components[-1].cumulative is not None:
        caption += (
            f" Line: cumulative fraction of it, {percent(components[-1].cumulative)} in the end."
        )
    return caption


def _draw_cumulative(
    components: Sequence[Component], places: Scale, up: Scale, left: float
) -> list[Markup]:
    known = [(c.place, c.cumulative) for c in components if c.cumulative is not None]
    path = "M" + "L".join(f"{places(place):.1f} {up(part):.1f}" for place, part in known)
    parts = [text(left, 234, "cumulative fraction of the total variance", "axis-name")]
    for mark in (0.0, 0.5, 1.0):
        parts += [
            line(left, up(mark), _RIGHT, up(mark), "grid"),
            text(left - 6, up(mark), f"{mark:.0%}".replace("%", " %"), anchor="end"),
        ]
    parts.append(tag("path", d=path, class_="curve"))
    parts += [
        tag(
            "circle",
            cx=places(place),
            cy=up(part),
            r=4 if len(known) <= 30 else 2,
            class_="dot mark",
            data_tip=f"PC1 to PC{place}: {percent(part)} of the total variance",
        )
        for place, part in known
    ]
    return parts


def _draw_labels(number_: int, places: Scale, y: float) -> list[Markup]:
    step = max(math.ceil(number_ / _MOST_LABELS), 1)
    shown = [p for p in range(1, number_ + 1) if (p - 1) % step == 0]
    return [text(places(p), y, f"PC{p}", anchor="middle") for p in shown]


def draw_bars(
    name: str,
    items: Sequence[Bar],
    *,
    title: str,
    caption: str,
    high: float | None = None,
    format_value: Callable[[float], str] = number,
    mark: float | None = None,
) -> Drawing:
    """Draw horizontal bars and their values; negative ones extend to the left of zero.

    Parameters
    ----------
    name : str
        Id of the figure on its page.
    items : sequence of Bar
    title, caption : str
    high : float, optional
        End of the axis; by default the largest absolute value.
    format_value : callable
        Formats a value or a tick.
    mark : float, optional
        Position of a dashed line.
    """
    most = high or max((abs(item.value) for item in items), default=0.0) or 1.0
    low = -most if any(item.value < 0.0 for item in items) else 0.0
    left = room([shorten(item.name) for item in items])
    values = [format_value(item.value) for item in items]
    place = Scale(low, most, left, _RIGHT - room(values))
    bottom = 8 + _ROW * len(items)
    parts = []
    for at in ticks(low, most, 5):
        parts += [
            line(place(at), 4, place(at), bottom, "grid"),
            text(place(at), bottom + 14, format_value(at), anchor="middle"),
        ]
    for row, (item, value) in enumerate(zip(items, values, strict=True)):
        middle = 8 + _ROW * (row + 0.5)
        start, end = sorted((place(0.0), place(item.value)))
        parts += [
            text(left - 6, middle, shorten(item.name), "name", anchor="end"),
            tag(
                "rect",
                x=start,
                y=middle - 7,
                width=max(end - start, 1.0),
                height=14,
                class_=f"{'bar' if item.value >= 0.0 else 'bar negative'} mark",
                data_tip=item.tip,
            ),
            text(_RIGHT, middle, value, anchor="end"),
        ]
    parts.append(line(place(0.0), 4, place(0.0), bottom, "axis"))
    if mark is not None and low <= mark <= most:
        parts.append(line(place(mark), 0, place(mark), bottom, "limit"))
    return make_drawing(name, bottom + 30, title=title, caption=caption, parts=parts)


def draw_grid(
    name: str,
    rows: Sequence[str],
    columns: Sequence[str],
    values: Sequence[Sequence[float]],
    *,
    title: str,
    caption: str,
    format_value: Callable[[float], str],
    full: float,
) -> Drawing:
    """Draw a heat map with its numbers.

    Parameters
    ----------
    name : str
        Id of the figure on its page.
    rows, columns : sequence of str
    values : sequence of sequences of float
        By row.
    title, caption : str
    format_value : callable
        Formats a number.
    full : float
        The absolute value at which a cell is darkest.
    """
    left = room([shorten(row, 20) for row in rows])
    width = min((_RIGHT - left) / len(columns), 72)
    parts = [
        text(left + width * (at + 0.5), 12, column, anchor="middle")
        for at, column in enumerate(columns)
    ]
    for at, (row, numbers) in enumerate(zip(rows, values, strict=True)):
        top = 24 + _ROW * at
        parts.append(text(left - 6, top + _ROW / 2, shorten(row, 20), "name", anchor="end"))
        for place, (column, value) in enumerate(zip(columns, numbers, strict=True)):
            shade = min(round(abs(value) / full * 4), 4)
            side = "low" if value < 0.0 else "high"
            parts += [
                tag(
                    "rect",
                    x=left + width * place + 1,
                    y=top + 1,
                    width=width - 2,
                    height=_ROW - 2,
                    class_=f"cell {side}{shade} mark",
                    data_tip=f"{row}, {column}: {format_value(value)}",
                ),
                text(
                    left + width * (place + 0.5),
                    top + _ROW / 2,
                    format_value(value),
                    f"in-cell on{shade}",
                    anchor="middle",
                ),
            ]
    height = 30 + _ROW * len(rows)
    return make_drawing(name, height, title=title, caption=caption, parts=parts)


def draw_angles(rounds: Sequence[Round], final: float | None, tol: float) -> Drawing | None:
    """Draw the largest angle by round, in degrees; return None if fewer than two are known."""
    known = [(r.place - 1, r.angle) for r in rounds if r.angle is not None]
    if final is not None and known:
        known.append((len(rounds), final))
    if len(known) < 2:
        return None
    # An angle of 0 has no logarithm and is drawn below all others.
    floor = min([value for _, value in known if value > 0.0] + [tol]) / 2
    logs = [math.log10(max(value, floor)) for _, value in known]
    low = math.floor(min(logs))
    high = max(math.ceil(max(logs)), low + 1)
    across, up = Scale(0, len(rounds), 72, _RIGHT - 8), Scale(low, high, 230, 24)
    places = [(across(place), up(log)) for (place, _), log in zip(known, logs, strict=True)]
    path = "M" + "L".join(f"{x:.1f} {y:.1f}" for x, y in places)
    parts = [*_draw_log_axes(across, up, tol), tag("path", d=path, class_="curve")]
    parts += [
        tag(
            "circle",
            cx=x,
            cy=y,
            r=4,
            class_="dot mark",
            data_tip=f"after {things(place, 'round')}: {value:.3g} degrees",
        )
        for (x, y), (place, value) in zip(places, known, strict=True)
    ]
    caption = (
        f"The largest angle was {known[0][1]:.3g} degrees after {things(known[0][0], 'round')}, "
        f"and {known[-1][1]:.3g} after {known[-1][0]}; the tolerance is {tol:g}."
    )
    return make_drawing("angles", 276, title="Angle by round", caption=caption, parts=parts)


def _draw_log_axes(across: Scale, up: Scale, tol: float) -> list[Markup]:
    left, low, high = 64, int(up.low), int(up.high)
    parts = [text(left, 10, "largest estimated angle of a component, in degrees", "axis-name")]
    for mark in range(low, high + 1, max((high - low) // 5, 1)):
        parts += [
            line(left, up(mark), _RIGHT, up(mark), "grid"),
            text(left - 6, up(mark), f"1e{mark}", anchor="end"),
        ]
    whole = [place for place in ticks(0, across.high, 8) if place.is_integer()]
    parts += [text(across(place), 246, f"{place:.0f}", anchor="middle") for place in whole]
    parts.append(text((left + _RIGHT) / 2, 264, "finished rounds", "axis-name", anchor="middle"))
    if low <= math.log10(tol) <= high:
        at = up(math.log10(tol))
        parts += [
            line(left, at, _RIGHT, at, "limit"),
            text(left + 8, at - 9, f"tolerance {tol:g}"),
        ]
    return parts
