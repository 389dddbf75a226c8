"""The dialect of a text table: delimiter, decimal mark, codes of missing entries, line of names.

What the user does not state is detected from the first lines: the delimiter that gives every line
as many cells as the first, and a decimal comma where numbers have commas and none has a point.
Nothing is guessed where a guess could change numbers silently: a comma that may separate thousands
is refused, and a first line with numbers is not taken for names.
"""

import csv
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from eigenfed.errors import Argument, DataError, InputError, Name, Pass

MISSING = ("", "NA", "N/A", "NaN", "nan", "null", "NULL")
DELIMITERS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "vertical bars"}
_DECIMALS = {".": "decimal points", ",": "decimal commas"}
_ALIASES = {"tab": "\t", "\\t": "\t"}
_THOUSANDS = re.compile(r"[+-]?[0-9]{1,3}(?:,[0-9]{3})+")
_DATE = re.compile(r"[0-9]{1,4}([-/.])[0-9]{1,2}\1[0-9]{1,4}.*|[0-9]{1,2}:[0-9]{2}.*")


def _number_pattern(mark: str) -> re.Pattern[str]:
    digits = rf"(?:\d+{mark}?\d*|{mark}\d+)(?:[eE][+-]?\d+)?"
    return re.compile(rf"\s*[+-]?(?:{digits}|nan|inf|infinity)\s*", re.IGNORECASE | re.ASCII)


_NUMBERS = {".": _number_pattern(r"\."), ",": _number_pattern(",")}


@dataclass(frozen=True)
class Dialect:
    r"""How numbers are written in a text table; None stands for what is to be detected.

    Parameters
    ----------
    delimiter : str, optional
        One character between cells; ``"tab"`` stands for a tab.
    decimal : {".", ","}, optional
        The decimal mark.
    missing : sequence of str, default=()
        Codes of missing entries, besides an empty cell, NA, N/A, NaN, nan, null and NULL. A code
        that is a number, such as -9, also stands for the entries that are equal to it.
    header : bool, optional
        Whether the first line names the columns. By default it must, and a first line with a
        number is refused. Without names, columns are called column1, column2, ...

    Examples
    --------
    >>> Dialect(delimiter="tab").delimiter
    '\t'
    >>> Dialect(missing=["-", "-9"]).numeric_codes
    (-9.0,)
    """

    delimiter: str | None = None
    decimal: str | None = None
    missing: Sequence[str] = ()
    header: bool | None = None

    def __post_init__(self) -> None:
        if isinstance(self.missing, str):
            raise InputError(
                Argument("missing", self.missing),
                " must be a list of codes",
                remedy=f"Pass [{self.missing!r}].",
            )
        mark = _ALIASES.get(self.delimiter or "", self.delimiter)
        if mark is not None and (len(mark) != 1 or mark.isalnum() or mark in '"\r\n.+-\0'):
            raise InputError(
                Argument("delimiter", self.delimiter),
                " must be one character that cannot be part of a number",
                remedy=(Pass("delimiter", ";"), ", for example."),
            )
        if self.decimal is not None and self.decimal not in _DECIMALS:
            raise InputError(
                Argument("decimal", self.decimal),
                " must be a point or a comma",
                remedy=(Pass("decimal", ","), ", for example."),
            )
        codes = tuple(str(code).strip() for code in self.missing)
        if any("\n" in code or '"' in code for code in codes):
            raise InputError(
                *("A code in ", Name("missing"), " has a quote or a line break"),
                remedy="Pass codes without them.",
            )
        object.__setattr__(self, "delimiter", mark)
        object.__setattr__(self, "missing", codes)

    @property
    def null_values(self) -> list[str]:
        """All cells that are missing entries."""
        return list(dict.fromkeys([*MISSING, *self.missing]))

    @property
    def numeric_codes(self) -> tuple[float, ...]:
        """The numbers that stand for missing entries."""
        decimal = self.decimal or "."
        finite = (c for c in self.missing if is_number(c, decimal) and any(map(str.isdigit, c)))
        return tuple(float(code.replace(",", ".")) for code in finite)

    @property
    def text_codes(self) -> tuple[str, ...]:
        """The codes that are not numbers."""
        return tuple(code for code in self.missing if not is_number(code, self.decimal or "."))

    def holds_value(self, cell: str) -> bool:
        """Return whether a cell is a number or a missing entry."""
        return cell.strip() in self.null_values or is_number(cell, self.decimal or ".")

    def split(self, line: str) -> list[str]:
        """Split a line into cells; raise csv.Error where a quote is not closed."""
        return next(csv.reader([line], delimiter=self.delimiter or ",", strict=True), [])


def is_number(cell: str, decimal: str = ".") -> bool:
    """Return whether pyarrow reads a cell as a number, NaN and infinity included.

    Examples
    --------
    >>> [is_number(cell) for cell in ("1e-3", " +.5", "inf", "0x10", "1_0", "")]
    [True, True, True, False, False, False]
    >>> is_number("1,5"), is_number("1,5", ",")
    (False, True)
    """
    return _NUMBERS[decimal].fullmatch(cell) is not None


def looks_like_value(name: str) -> bool:
    """Return whether the name of a column may be an entry of a row: a number or a date.

    Examples
    --------
    >>> [looks_like_value(name) for name in ("104.62", "1,5", "2021-03-04", "age", "NaN", "1a")]
    [True, True, True, False, False, False]
    """
    digits = any(map(str.isdigit, name))
    return digits and (
        any(is_number(name, mark) for mark in _NUMBERS) or _DATE.fullmatch(name.strip()) is not None
    )


def complete_dialect(
    path: Path | str, lines: Sequence[str], given: Dialect, default: str = ","
) -> Dialect:
    """Return the dialect with what is not stated detected from the first lines.

    Parameters
    ----------
    path : Path or str
        For messages.
    lines : sequence of str
        Those that are not blank; the first may hold names.
    given : Dialect
    default : str
        The delimiter where no other is found.

    Raises
    ------
    InputError
        If commas in numbers may be decimal commas or separate thousands.

    Examples
    --------
    >>> found = complete_dialect("a.csv", ["a;b", "1,5;2", "0,25;3"], Dialect())
    >>> found.delimiter, found.decimal
    (';', ',')
    """
    delimiter = given.delimiter or _find_delimiter(lines, given, default)
    known = replace(given, delimiter=delimiter)
    if given.decimal is not None:
        return known
    return replace(known, decimal=_find_decimal(path, lines[1:], known))


def describe_dialect(dialect: Dialect, stated: Dialect, default: str = ",") -> str | None:
    """Return what was detected that is not the usual, as a clause; None if nothing was.

    Examples
    --------
    >>> describe_dialect(Dialect(";", ","), Dialect())
    'has semicolons between cells and decimal commas'
    """
    found = []
    if stated.delimiter is None and dialect.delimiter != default:
        found.append(f"{DELIMITERS[dialect.delimiter or ',']} between cells")
    if stated.decimal is None and dialect.decimal != ".":
        found.append(_DECIMALS[dialect.decimal or "."])
    return f"has {' and '.join(found)}" if found else None


def _find_delimiter(lines: Sequence[str], given: Dialect, default: str) -> str:
    """Return the delimiter with which most lines have as many cells as the first, most numeric."""
    best, chosen = (0.0, 0.0), default
    for mark in DELIMITERS:
        rows = [_split(line, mark) for line in lines]
        width = len(rows[0]) if rows else 0
        if width < 2:
            continue
        even = [row for row in rows[1:] if len(row) == width]
        cells = [cell for row in even for cell in row]
        numeric = sum(_may_be_value(cell, given) for cell in cells) / max(1, len(cells))
        score = (len(even) / max(1, len(rows) - 1), numeric)
        if score > best or (mark == default and score == best):
            best, chosen = score, mark
    return chosen


def _may_be_value(cell: str, given: Dialect) -> bool:
    return cell.strip() in given.null_values or any(is_number(cell, mark) for mark in _NUMBERS)


def _find_decimal(path: Path | str, lines: Iterable[str], known: Dialect) -> str:
    cells = [cell.strip() for line in lines for cell in _split(line, known.delimiter or ",")]
    with_comma = [cell for cell in cells if "," in cell and is_number(cell, ",")]
    with_point = any("." in cell and is_number(cell, ".") for cell in cells)
    grouped = [cell for cell in cells if _THOUSANDS.fullmatch(cell)]
    if with_point or not with_comma:
        return "."
    if len(grouped) >= len(with_comma):
        raise InputError(
            f"{path} has commas in its numbers, each before three digits: they may be decimal "
            "commas, or separate thousands",
            remedy=(
                *(Pass("decimal", ","), " if they are decimal commas, and remove them from the "),
                "file otherwise.",
            ),
        )
    return ","


def _split(line: str, mark: str) -> list[str]:
    try:
        return next(csv.reader([line], delimiter=mark), [])
    except csv.Error:
        return []


def check_first_line(path: Path | str, names: Sequence[str], dialect: Dialect) -> None:
    """Refuse a first line that may be a row of data.

    Raises
    ------
    DataError
        Without a quote of the line.
    """
    is_row = all(name in dialect.null_values or looks_like_value(name) for name in names)
    if is_row or any(map(looks_like_value, names)):
        raise DataError(
            f"{path} has numbers in its first line where the columns' names must be",
            remedy=(
                *(Pass("header", False), " if the file has no line of names, or "),
                *(Pass("header", True), " if these are names."),
            ),
        )
