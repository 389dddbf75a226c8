"""Columns of a file with a header: which are features, and which one names the rows."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from eigenfed.errors import DataError, InputError, Name, Pass

_SHOWN = 5


def features_of(
    path: Path, names: Sequence[str], columns: Sequence[str] | None, id_column: str | None
) -> tuple[str, ...]:
    """Return the columns that are features, in the order asked for.

    Parameters
    ----------
    path : Path
        For messages.
    names : sequence of str
        All columns of the file.
    columns : sequence of str or None
        Those that are wanted; None is all but `id_column`.
    id_column : str or None
        The one that names the rows.

    Raises
    ------
    InputError
        If a column is asked for that is not there, or twice, or as feature and id at once.
    DataError
        If the file has two columns of one name, or a feature without a name.

    Examples
    --------
    >>> features_of(Path("a.csv"), ["id", "age", "bmi"], None, "id")
    ('age', 'bmi')
    """
    twice = repeated(names)
    if twice:
        raise DataError(f"{path} has the columns {listed(twice)} more than once. Rename them.")
    _check_asked(path, names, columns, id_column)
    found = tuple(name for name in names if name != id_column) if columns is None else columns
    if not found:
        raise DataError(f"{path} has no column with numbers. Pass a file with records.")
    if "" in found:
        raise DataError(
            f"{path} has a column without a name, the {_place(names.index(''))}",
            remedy=(
                *("Name it, or ", Pass("columns", [...]), " without it, or "),
                *(Pass("id_column", ""), " if it names the rows."),
            ),
        )
    return tuple(found)


def _check_asked(
    path: Path, names: Sequence[str], columns: Sequence[str] | None, id_column: str | None
) -> None:
    asked = [*(columns or ()), *(() if id_column is None else (id_column,))]
    absent = set(asked) - set(names)
    if absent:
        raise InputError(f"{path} lacks the columns {listed(absent)}. Ask for columns that it has.")
    twice = repeated(asked)
    if twice:
        raise InputError(
            *(Name("columns"), " and ", Name("id_column")),
            f" name {listed(twice)} more than once for {path}",
            remedy="Name each once.",
        )
    if columns is not None and not columns:
        raise InputError(
            Name("columns"),
            f" is empty for {path}",
            remedy="Name one column or more, or pass None.",
        )


def no_numbers(path: Path, columns: Sequence[str], count: int) -> InputError:
    """Return the error for features, some or all of `count`, that do not hold numbers."""
    if len(columns) == count:
        return InputError(f"{path} has no column of numbers. Pass a file that has one.")
    return InputError(
        f"{path} has columns that do not hold numbers: {listed(columns)}",
        remedy=(
            *(Pass("columns", [...]), " without them, or "),
            *(Pass("id_column", ...), " for one that names the rows."),
        ),
    )


def listed(names: Iterable[str]) -> str:
    """List names for a message, the first few of them.

    Examples
    --------
    >>> listed(["b", "a"])
    "'b', 'a'"
    """
    every = list(names)
    shown = ", ".join(map(repr, every[:_SHOWN]))
    return shown if len(every) <= _SHOWN else f"{shown} and {len(every) - _SHOWN} more"


def differences(columns: Mapping[str, Sequence[str]]) -> str:
    """Say of each feature that not all sites have who lacks it, or who alone has it.

    Parameters
    ----------
    columns : mapping of str to sequence of str
        The features of each site.

    Examples
    --------
    >>> differences({"north": ["age", "bmi"], "south": ["age", "bmi"], "island": ["age", "BMI"]})
    "'BMI' (only at 'island'), 'bmi' (not at 'island')"
    """
    every: dict[str, set[str]] = {site: set(names) for site, names in columns.items()}
    common = set.intersection(*every.values())
    said = []
    for feature in sorted(set.union(*every.values()) - common):
        having = [site for site, names in every.items() if feature in names]
        lacking = [site for site in every if site not in having]
        where = f"not at {listed(lacking)}"
        if len(having) < len(lacking):
            where = f"only at {listed(having)}"
        said.append(f"{feature!r} ({where})")
    more = f" and {len(said) - _SHOWN} more" if len(said) > _SHOWN else ""
    return ", ".join(said[:_SHOWN]) + more


def repeated(names: Iterable[str]) -> list[str]:
    """Return the names that come more than once."""
    return [name for name, times in Counter(names).items() if times > 1]


def _place(index: int) -> str:
    return f"{index + 1}." if index else "first"
