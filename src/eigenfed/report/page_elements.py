"""The parts of a page, before they become HTML."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from eigenfed.report.svg import Drawing
from eigenfed.report.wording import number

Cell: TypeAlias = str | int | float | bool | None
Tone: TypeAlias = Literal["good", "plain", "look"]


@dataclass(frozen=True)
class PageTable:
    """A table; the first column names the row, and `folded` tables are closed at first.

    Floats are shown with four digits, and in full when pointed at. Closed tables are not printed.
    """

    kind: ClassVar[str] = "table"
    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False


@dataclass(frozen=True)
class Figure:
    """A drawing, and the tables behind it."""

    kind: ClassVar[str] = "figure"
    drawing: Drawing
    tables: tuple[PageTable, ...]


@dataclass(frozen=True)
class Panels:
    """Figures of which the script shows one at a time."""

    kind: ClassVar[str] = "panels"
    name: str
    label: str
    figures: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True)
class Points:
    """A figure of rows as points, with a choice of components, and of sites or labels."""

    kind: ClassVar[str] = "points"
    figure: Figure
    axes: tuple[str, ...]
    sites: tuple[str, ...]
    coloured: bool
    by: str


@dataclass(frozen=True)
class Facts:
    """Names and values."""

    kind: ClassVar[str] = "facts"
    items: tuple[tuple[str, str], ...]


@dataclass(frozen=True)
class Code:
    """Lines to copy."""

    kind: ClassVar[str] = "code"
    label: str
    text: str


@dataclass(frozen=True)
class Notice:
    """A highlighted sentence."""

    kind: ClassVar[str] = "notice"
    tone: Tone
    text: str


Part: TypeAlias = PageTable | Figure | Panels | Points | Facts | Code | Notice


@dataclass(frozen=True)
class Section:
    """A heading, an explanation, and the parts."""

    name: str
    title: str
    words: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class PageVerdict:
    """A box on the first screen: a title, a value, and what the value means."""

    title: str
    value: str
    words: str
    tone: Tone


@dataclass(frozen=True)
class Page:
    """A page: the verdicts come first, then the sections."""

    title: str
    subtitle: str
    verdicts: tuple[PageVerdict, ...]
    sections: tuple[Section, ...]
    links: tuple[tuple[str, str], ...] = ()


def format_cell(cell: Cell) -> str:
    """Format a cell for reading: floats with four significant digits, integers in groups.

    Examples
    --------
    >>> [format_cell(cell) for cell in (0.123456, 29220.5, 1.2e-9, 4050, True, None, "a")]
    ['0.1235', '29,220', '1.2e-09', '4,050', 'yes', 'unknown', 'a']
    """
    match cell:
        case bool():
            return "yes" if cell else "no"
        case int() | float():
            return number(cell) if isinstance(cell, float) else f"{cell:,}"
        case _:
            return format_full(cell)


def format_full(cell: Cell) -> str:
    """Format a cell without loss: a float with all digits that determine it.

    Examples
    --------
    >>> [format_full(cell) for cell in (0.1, 3, True, None, "a")]
    ['0.1', '3', 'yes', 'unknown', 'a']
    """
    match cell:
        case None:
            return "unknown"
        case bool():
            return "yes" if cell else "no"
        case float():
            return repr(cell)
        case _:
            return str(cell)
