"""Columns of a file that names them: which are features, and which one holds row ids.

A name that looks like a number or a date may be an entry of a row, where a file without a line of
names was read as if it had one: messages do not quote such names, nor others beside them.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from eigenfed.data.dialect import looks_like_value
from eigenfed.errors import Argument, DataError, InputError, Name, Pass

_SHOWN = 5


def name_columns(count: int) -> tuple[str, ...]:
    """Return names for the columns of a file that has none.

    Examples
    --------
    >>> name_columns(2)
    ('column1', 'column2')
    """
    return tuple(f"column{place}" for place in range(1, count + 1))


def select_features(
    path: Path,
    names: Sequence[str],
    columns: Sequence[str] | None,
    id_column: str | None,
    exclude: Sequence[str] = (),
) -> tuple[str, ...]:
    """Return the columns that are features, in the requested order.

    Parameters
    ----------
    path : Path
        For messages.
    names : sequence of str
        All columns of the file.
    columns : sequence of str or None
        The requested features; None for all columns but `id_column` and `exclude`.
    id_column : str or None
        The column of row ids.
    exclude : sequence of str
        Columns that are not features; the file need not have them.

    Raises
    ------
    InputError
        If a requested column does not exist, is requested twice or left out, or is a feature and
        the id.
    DataError
        If two columns have the same name, or a feature has none.

    Examples
    --------
    >>> select_features(Path("a.csv"), ["id", "age", "bmi"], None, "id")
    ('age', 'bmi')
    """
    twice = find_repeated(name for name in names if name not in exclude)
    if "" in twice:
        raise _unnamed_error(path, names)
    if twice:
        them = "them" if len(twice) > 1 else "all but one"
        raise DataError(f"{path} has {list_columns(twice)} more than once. Rename {them}.")
    _check_requested(path, names, columns, id_column, exclude)
    features = tuple(columns or list_features(names, id_column, exclude))
    if not features:
        raise DataError(f"{path} has no column with numbers. Pass a file with records.")
    if "" in features:
        raise _unnamed_error(path, names)
    return features


def _unnamed_error(path: Path, names: Sequence[str]) -> DataError:
    """Return the error for columns that have no name."""
    places = [str(place) for place, name in enumerate(names, start=1) if not name]
    if len(places) == 1:
        return DataError(
            f"{path} has a column without a name: column {places[0]}",
            remedy=(
                *("Name it, or ", Pass("exclude", [""]), " to leave it out, or "),
                *(Pass("id_column", ""), " if it holds row ids."),
            ),
        )
    more = f" and {len(places) - _SHOWN} more" if len(places) > _SHOWN else ""
    return DataError(
        f"{path} has {len(places)} columns without a name: columns "
        f"{', '.join(places[:_SHOWN])}{more}",
        remedy=("Name them, or ", Pass("exclude", [""]), " to leave them out."),
    )


def list_features(
    names: Iterable[str], id_column: str | None, exclude: Iterable[str] = ()
) -> list[str]:
    """Return the columns that are neither the row ids nor left out."""
    left_out = {id_column, *exclude}
    return [name for name in names if name not in left_out]


def _check_requested(
    path: Path,
    names: Sequence[str],
    columns: Sequence[str] | None,
    id_column: str | None,
    exclude: Sequence[str],
) -> None:
    both = [name for name in exclude if name in (columns or ()) or name == id_column]
    if both:
        raise InputError(
            *(Name("exclude"), f" has {quote_names(both)}, which "),
            *(Name("columns"), " or ", Name("id_column"), f" name for {path}"),
            remedy="Name each in one of them.",
        )
    requested = [*(columns or ()), *(() if id_column is None else (id_column,))]
    absent = [name for name in dict.fromkeys(requested) if name not in set(names)]
    if absent:
        raise InputError(f"{path} lacks {list_columns(absent)}. Check the spelling.")
    twice = find_repeated(requested)
    if twice:
        raise InputError(
            *(Name("columns"), " and ", Name("id_column")),
            f" name {quote_names(twice)} more than once for {path}",
            remedy="Name each once.",
        )
    if columns is not None and not columns:
        raise InputError(
            Name("columns"),
            f" is empty for {path}",
            remedy="Name one column or more, or pass None.",
        )


def non_numeric_error(path: Path, columns: Sequence[str], count: int) -> InputError:
    """Return the error for features, some or all of `count`, that do not hold numbers."""
    if len(columns) == count:
        where = " in its first sheet" if path.suffix.lower() == ".xlsx" else ""
        return InputError(f"{path} has no column of numbers{where}. Pass a file that has one.")
    return InputError(
        f"{path} has columns that do not hold numbers: {quote_names(columns)}",
        remedy=(
            *(Pass("exclude", [...]), " to leave them out, or "),
            *(Pass("id_column", ...), " for one that holds row ids."),
        ),
    )


def names_as_row_error(path: Path) -> InputError:
    """Return the error for a line of names that ``header=False`` takes for a row."""
    return InputError(
        f"{path} has only text in its first line, as a line of names has, and ",
        Argument("header", False),
        " takes it for a row",
        remedy="Remove that line, or add one to the files that have none.",
    )


def text_cell_error(path: Path, row: int, name: str) -> InputError:
    """Return the error for text in a column of numbers; rows are counted from 1."""
    return InputError(
        f"{path} has text in row {row} of {quote_name(name)}, a column of numbers",
        remedy=(
            *("Correct that cell, ", Pass("missing", [...]), " if it is a code for missing "),
            *("entries, or ", Pass("exclude", [...]), " to leave the column out."),
        ),
    )


def quote_name(name: str) -> str:
    """Return a name in quotes, unless it looks like a number or a date.

    Examples
    --------
    >>> quote_name("age"), quote_name("104.62")
    ("'age'", 'a column (not shown as its name looks like an entry of a row)')
    """
    if looks_like_value(name):
        return "a column (not shown as its name looks like an entry of a row)"
    return repr(name)


def quote_names(names: Iterable[str]) -> str:
    """Return names, quoted and separated by commas, the first five of them.

    Where a name looks like a number or a date, only how many there are.

    Examples
    --------
    >>> quote_names(["b", "a"])
    "'b', 'a'"
    >>> quote_names(["b", "104.62"])
    '(2, not shown as they look like entries of a row: is the line of names missing?)'
    """
    every = list(names)
    if any(map(looks_like_value, every)):
        return (
            f"({len(every)}, not shown as they look like entries of a row: is the line of names "
            "missing?)"
        )
    shown = ", ".join(map(repr, every[:_SHOWN]))
    return shown if len(every) <= _SHOWN else f"{shown} and {len(every) - _SHOWN} more"


def list_columns(names: Iterable[str]) -> str:
    """Return names of columns after the noun, as `quote_names` has them.

    Examples
    --------
    >>> list_columns(["a"]), list_columns(["a", "b"])
    ("the column 'a'", "the columns 'a', 'b'")
    """
    every = list(names)
    return f"the column{'s' * (len(every) != 1)} {quote_names(every)}"


def describe_differences(columns: Mapping[str, Sequence[str]]) -> str:
    """Describe each feature that some sites lack: which lack it, or which alone have it.

    Parameters
    ----------
    columns : mapping of str to sequence of str
        Names of the features of each site.

    Examples
    --------
    >>> sites = {"north": ["age", "bmi"], "south": ["age", "bmi"], "island": ["age", "BMI"]}
    >>> describe_differences(sites)
    "'BMI' (only at 'island'), 'bmi' (not at 'island')"
    """
    sets: dict[str, set[str]] = {site: set(names) for site, names in columns.items()}
    common = set.intersection(*sets.values())
    if any(map(looks_like_value, set.union(*sets.values()) - common)):
        numeric = [site for site, names in sets.items() if any(map(looks_like_value, names))]
        return (
            "the names of their columns, which look like entries of a row at "
            f"{quote_names(numeric)} and are not shown (is the line of names missing?)"
        )
    described = []
    for feature in sorted(set.union(*sets.values()) - common):
        having = [site for site, names in sets.items() if feature in names]
        lacking = [site for site in sets if site not in having]
        where = f"not at {quote_names(lacking)}"
        if len(having) < len(lacking):
            where = f"only at {quote_names(having)}"
        described.append(f"{feature!r} ({where})")
    more = f" and {len(described) - _SHOWN} more" if len(described) > _SHOWN else ""
    return ", ".join(described[:_SHOWN]) + more


def find_repeated(names: Iterable[str]) -> list[str]:
    """Return the names that occur more than once."""
    return [name for name, times in Counter(names).items() if times > 1]
