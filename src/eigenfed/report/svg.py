"""Drawing in SVG: elements whose text is escaped, scales and ticks.

Colours come from the page's style sheet by class, so that a figure follows the colour scheme.
"""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from markupsafe import Markup, escape

WIDTH = 560
_LETTER = 8.0
"""Width of a letter of a label, about."""


def tag(name: str, *children: Markup | str, **attributes: str | float | None) -> Markup:
    """Make an element; ``_`` in names of attributes stands for ``-`` or nothing at the end.

    Examples
    --------
    >>> tag("text", "a < b", x=1.50, class_="tick", data_tip=None)
    Markup('<text x="1.5" class="tick">a &lt; b</text>')
    """
    shown = Markup("").join(
        Markup(' {}="{}"').format(key.rstrip("_").replace("_", "-"), _value(value))
        for key, value in attributes.items()
        if value is not None
    )
    inside = Markup("").join(map(escape, children))
    return Markup("<{0}{1}>{2}</{0}>").format(Markup(name), shown, inside)


def _value(value: str | float) -> str:
    if isinstance(value, str):
        return value
    return f"{value:.1f}".removesuffix(".0")


@dataclass(frozen=True)
class Scale:
    """Maps numbers from `low` to `high` onto places from `start` to `end`.

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
        """Return the place of a number."""
        span = self.high - self.low
        share = (value - self.low) / span if span else 0.5
        return self.start + share * (self.end - self.start)


def ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Return round numbers between two others.

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
    """Write a tick.

    Examples
    --------
    >>> label(0.0), label(-0.25), label(20000.0), label(1e-7)
    ('0', '-0.25', '20000', '1e-07')
    """
    return f"{value:.6g}"


def room(labels: Iterable[str], most: float = 230.0) -> float:
    """Return how much room labels beside an axis need.

    Examples
    --------
    >>> room(["north", "south-west"])
    92.0
    """
    return min(max((len(text) for text in labels), default=0) * _LETTER + 12.0, most)


@dataclass(frozen=True)
class Drawing:
    """A drawing, its name on the page, what it is, and what it shows."""

    name: str
    title: str
    says: str
    svg: Markup


def drawing(name: str, height: float, *, title: str, says: str, parts: Iterable[Markup]) -> Drawing:
    """Put parts into a figure with a title and a description that are read aloud.

    Parameters
    ----------
    name : str
        Of the figure on its page.
    height : float
    title, says : str
        What it is, and what it shows.
    parts : iterable of Markup
    """
    svg = tag(
        "svg",
        tag("title", title, id=f"{name}-title"),
        tag("desc", says, id=f"{name}-says"),
        *parts,
        viewBox=f"0 0 {WIDTH} {height:g}",
        role="img",
        aria_labelledby=f"{name}-title",
        aria_describedby=f"{name}-says",
        class_="figure",
    )
    return Drawing(name, title, says, svg)


def text(x: float, y: float, words: str, class_: str = "tick", anchor: str = "start") -> Markup:
    """Write words at a place; `y` is their middle."""
    return tag("text", words, x=x, y=y + 4.5, class_=class_, text_anchor=anchor)


def line(x1: float, y1: float, x2: float, y2: float, class_: str) -> Markup:
    """Draw a line."""
    return tag("line", x1=x1, y1=y1, x2=x2, y2=y2, class_=class_)
