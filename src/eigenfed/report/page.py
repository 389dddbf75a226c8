"""What a page is made of, before it is HTML."""

from dataclasses import dataclass
from typing import ClassVar, Literal, TypeAlias

from eigenfed.report.svg import Drawing

Cell: TypeAlias = str | int | float | bool | None
Tone: TypeAlias = Literal["good", "plain", "look"]


@dataclass(frozen=True)
class PageTable:
    """Numbers in full; the first column names the row."""

    kind: ClassVar[str] = "table"
    name: str
    caption: str
    head: tuple[str, ...]
    rows: tuple[tuple[Cell, ...], ...]
    folded: bool = False

    @property
    def bulky(self) -> bool:
        """Whether it would fill pages of paper."""
        return self.folded and len(self.rows) > 200


@dataclass(frozen=True)
class Figure:
    """A drawing, and the tables behind it."""

    kind: ClassVar[str] = "figure"
    drawing: Drawing
    tables: tuple[PageTable, ...]


@dataclass(frozen=True)
class Panels:
    """Figures of which the page's script shows one at a time."""

    kind: ClassVar[str] = "panels"
    name: str
    label: str
    figures: tuple[tuple[str, Figure], ...]


@dataclass(frozen=True)
class Points:
    """Rows as points, with components and sites to choose."""

    kind: ClassVar[str] = "points"
    figure: Figure
    axes: tuple[str, ...]
    sites: tuple[str, ...]
    coloured: bool


@dataclass(frozen=True)
class Facts:
    """Terms and what they are here."""

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
    """What must not be overlooked."""

    kind: ClassVar[str] = "notice"
    tone: Tone
    text: str


Part: TypeAlias = PageTable | Figure | Panels | Points | Facts | Code | Notice


@dataclass(frozen=True)
class Section:
    """A heading, what to make of it in words, and the parts."""

    name: str
    title: str
    words: tuple[str, ...]
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class PageVerdict:
    """A line of the first screen: what was asked, the answer, and what it means."""

    title: str
    value: str
    words: str
    tone: Tone


@dataclass(frozen=True)
class Page:
    """A whole page."""

    title: str
    subtitle: str
    verdicts: tuple[PageVerdict, ...]
    sections: tuple[Section, ...]
    links: tuple[tuple[str, str], ...] = ()


def written(cell: Cell) -> str:
    """Write a cell in full: a float with as many digits as bring back the same float.

    Examples
    --------
    >>> [written(cell) for cell in (0.1, 3, True, None, "a")]
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
