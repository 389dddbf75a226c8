"""What a fit points out about its files: how they were read, copies, identifiers and raw counts."""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from eigenfed.cli.output import Console

if TYPE_CHECKING:
    from eigenfed.data.files import FileTable

_LEAST_ROWS = 30
_ENTRIES_LOOKED_AT = 1_000_000


def note_tables(
    console: Console, tables: dict[str, Any], *, prepared: bool, in_study: bool = False
) -> None:
    """Note what was detected about files, and which columns look like identifiers."""
    from eigenfed.data.files import FileTable

    opened = [table for table in tables.values() if isinstance(table, FileTable)]
    notes = [note for table in opened for note in table.notes]
    counts = [] if prepared else [_note_counts(table, in_study=in_study) for table in opened]
    for note in (*notes, *counts, _note_ids(opened, in_study=in_study)):
        if note is not None:
            console.note(note)


@contextmanager
def noting_copies(console: Console, tables: Mapping[str, Any]) -> Iterator[None]:
    """Note which copies of files were made after they were opened, also if the command fails."""
    from eigenfed.data.files import FileTable

    try:
        yield
    finally:
        for table in tables.values():
            for note in table.late_notes if isinstance(table, FileTable) else ():
                console.note(note)


def _note_ids(tables: "Iterable[FileTable]", *, in_study: bool) -> str | None:
    """Return a note about columns that look like row ids at every site; None if there are none.

    A column does if no two of the first rows have the same integer in it.
    """
    from eigenfed.data.column_names import quote_names

    found: set[str] | None = None
    for table in tables:
        found = _find_ids(table) if found is None else found & _find_ids(table)
    if not found:
        return None
    what = "Column" if len(found) == 1 else "Columns"
    holds = "holds" if len(found) == 1 else "hold"
    remedy = (
        "name it as id_column, or list it under exclude, in the site's file"
        if in_study
        else "pass it as --id-column or --exclude"
    )
    return (
        f"{what} {quote_names(sorted(found))} {holds} a different integer in every row, as an "
        f"identifier would, and can dominate the components. If so, {remedy}."
    )


def _note_counts(table: "FileTable", *, in_study: bool) -> str | None:
    """Return a note if an .h5ad file seems to hold raw counts; None if it does not."""
    import numpy as np

    from eigenfed.data.source import stored

    if table.path.suffix.lower() != ".h5ad":
        return None
    entries = np.asarray(stored(table.source.X)[:_ENTRIES_LOOKED_AT]).ravel()
    entries = entries[:_ENTRIES_LOOKED_AT]
    if not len(entries) or entries.max() <= 1.0 or entries.min() < 0.0:
        return None
    if not (entries == np.rint(entries)).all():
        return None
    prepare, layer = (
        ("prepare in the study file", "layer in the site's file")
        if in_study
        else ("--prepare", "--layer")
    )
    return (
        f"{table.path} holds integers, as raw counts are: their components mostly show how many "
        f"there are in each cell. Normalise them and take logarithms with {prepare}, or name a "
        f"layer in which that was done with {layer}."
    )


def _find_ids(table: "FileTable") -> set[str]:
    import numpy as np

    from eigenfed.data.source import RowsInFile

    source = table.source
    is_other = source.is_sparse or table.plink is not None
    if source.names is None or is_other or source.n < _LEAST_ROWS:
        return set()
    most = max(_LEAST_ROWS, _ENTRIES_LOOKED_AT // source.d)
    X = source.X
    rows = X.read_first(most) if isinstance(X, RowsInFile) else np.asarray(X[:most])
    with np.errstate(invalid="ignore"):
        whole = np.flatnonzero((rows == np.rint(rows)).all(axis=0))
    return {source.names[j] for j in whole if len(np.unique(rows[:, j])) == len(rows)}
