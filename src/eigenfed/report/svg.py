"""SVG drawings: elements with escaped text, scales and ticks.

Colours come from the style sheet of the page by class, so that figures follow the colour scheme.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 560
_LETTER = 8.0
"""Approximate width of a letter of a label."""


def tag(name: str, *children: Markup | str, **attributes: str | float | None) -> Markup:
    """Return an element; ``_`` in names of attributes becomes ``-``, and is dropped at the end.

    Examples
    --------
    >>> tag("text", "a < b", x=1.50, class_="tick", data_tip=None)
    Markup('<text x="1.5" class="tick">a &lt; b</text>')
    """
    shown = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _format_attribute(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(map(escape, children))
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), shown, inside)


def _format_attribute(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Scale:
    """Maps numbers from `low` to `high` linearly to coordinates from `start` to `end`.

    Examples
    --------
    >>> Scale(0, 10, 100, 200)(5)
    150.0
    """

    low: float
    high: float
    start: float
    end: float

    def __call__(self, value: float) -> float:
        """Return the coordinate of a number."""
        span = self.high - self.low
        fraction = (value - self.low) / span if span else 0.5
        return self.start + fraction * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers from `low` to `high`, about `most` of them.

    Examples
    --------
    >>> ticks(0, 10), ticks(-0.3, 0.31, 4)
    ([0.0, 2.0, 4.0, 6.0, 8.0, 10.0], [-0.2, 0.0, 0.2])
    """
    span = high - low
    if not span > 0.0:
        return [low]
    rough = span / most
    unit = 10.0 ** math.floor(math.log10(rough))
    step = next(m * unit for m in (1, 2, 5, 10) if m * unit >= rough * (1 - 1e-9))
    first = math.ceil(low / step - 1e-9)
    last = math.floor(high / step + 1e-9)
    return [float(f"{place * step:.12g}") for place in range(first, last + 1)]


def label(value: float) -> str:
    """Format a tick.

    Examples
    --------
    >>> label(0.0), label(-0.25), label(20000.0), label(1e-7)
    ('0', '-0.25', '20000', '1e-07')
    """
    return f"{value:.6g}"


def room(labels: Iterable[str], most: float = 230.0) -> float:
    """Return the width that labels beside an axis need.

    Examples
    --------
    >>> room(["north", "south-west"])
    92.0
    """
    return min(max((len(text) for text in labels), default=0) * _LETTER + 12.0, most)


@dataclass(frozen=True)
class Drawing:
    """A drawing with its id on the page, its title and its caption."""

    name: str
    title: str
    caption: str
    svg: Markup


def make_drawing(
    name: str, height: float, *, title: str, caption: str, parts: Iterable[Markup]
) -> Drawing:
    """Return an SVG element of these parts, with title and caption for screen readers.

    Parameters
    ----------
    name : str
        Id of the figure on its page.
    height : float
    title, caption : str
    parts : iterable of Markup
    """
    svg = tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", caption, id=f"{name}-caption"),
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-caption",
        class_="figure",
    )
    return Drawing(name, title, caption, svg)


def text(x: float, y: float, words: str, class_: str = "tick", anchor: str = "start") -> Markup:
    """Return a text element; `y` is the middle of the line."""
    return tag("text", words, x=x, y=y + 4.5, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Return a line element."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)
