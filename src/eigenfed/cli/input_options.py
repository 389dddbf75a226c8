"""Options about the files that a command reads: their dialect, their columns, their copies."""

import functools
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli.options import FILE, NEW

if TYPE_CHECKING:
    from eigenfed.data.dialect import Dialect
    from eigenfed.data.files import FileTable
    from eigenfed.data.read_options import ReadOptions

_Command = Callable[..., Any]

_DIALECT = (
    click.option(
        "--delimiter",
        metavar="CHARACTER",
        help="Character between the cells of text files, or tab; detected by default.",
    ),
    click.option(
        "--decimal",
        type=click.Choice((".", ",")),
        help="Decimal mark of text files; detected by default.",
    ),
    click.option(
        "--missing",
        multiple=True,
        metavar="CODE",
        help="A code for missing entries, such as - or -9, besides an empty cell, NA, N/A, NaN and "
        "null; may be repeated.",
    ),
    click.option(
        "--header/--no-header",
        "header",
        default=None,
        help="Whether the first line of text files names the columns. By default it must not hold "
        "numbers.",
    ),
)
_FILES = (
    click.option(
        "--exclude",
        multiple=True,
        metavar="NAME",
        help="A column that is not a feature; may be repeated.",
    ),
    click.option("--layer", metavar="NAME", help="Layer of .h5ad files to use instead of X."),
    click.option(
        "--highly-variable",
        is_flag=True,
        help='Use only the features of .h5ad files that var["highly_variable"] marks.',
    ),
    *(
        click.option(f"--{name}", type=FILE, metavar="LIST", help=text)
        for name, text in (
            ("keep", "People of .bed files to use: a file with family and person on each line."),
            ("remove", "People of .bed files to leave out."),
            ("no-fit", "People of .bed files to project and not to fit, such as relatives."),
            ("extract", "Variants of .bed files to use: a file with an identifier on each line."),
            ("exclude-variants", "Variants of .bed files to leave out."),
        )
    ),
    click.option(
        "--manifest",
        type=FILE,
        metavar="FILE",
        help="A .bim file with the variants of the study, to which those of .bed files are matched "
        "by chromosome, position and alleles.",
    ),
    click.option(
        "--ambiguous",
        type=click.Choice(("drop", "keep")),
        default="drop",
        show_default=True,
        help="With --manifest: leave out variants with the alleles A and T, or C and G, or take "
        "them as if all sites had read the same strand.",
    ),
    click.option(
        "--cache",
        type=NEW,
        metavar="FOLDER",
        help="Folder for the parsed copies of files whose rows take over 64 MB.  [default: beside "
        "each file]",
    ),
    click.option(
        "--drop-cache", is_flag=True, help="Keep no parsed copies, and remove those of the files."
    ),
)


@dataclass(frozen=True)
class Inputs:
    """How files are read, and where their parsed copies go.

    Attributes
    ----------
    options : ReadOptions
    cache : Path or None
    keep : bool
    """

    options: "ReadOptions"
    cache: Path | None = None
    keep: bool = True

    def get_options(self, path: Path) -> "ReadOptions":
        """Return the options that apply to a file."""
        from eigenfed.data.file_kinds import find_kind

        return self.options.restrict_to(find_kind(path))

    def without(self, column: str) -> "Inputs":
        """Return the same with one more column left out."""
        options = replace(self.options, exclude=(*self.options.exclude, column))
        return replace(self, options=options)

    def check(self, files: list[Path]) -> None:
        """Refuse an option that applies to none of the files."""
        from eigenfed.data.file_kinds import find_kind
        from eigenfed.errors import InputError

        for single in self.options.split():
            faults = []
            for path in files:
                try:
                    single.check_kind(path, find_kind(path))
                except InputError as error:
                    faults.append(error)
            if len(faults) == len(files):
                raise faults[0]

    def check_columns(self, files: list[Path], color_by: str | None) -> None:
        """Refuse a column to leave out that no file has, and labels that a file lacks."""
        if not self.options.exclude and color_by is None:
            return
        from eigenfed.data.column_names import list_columns
        from eigenfed.data.files import column_names, label_names
        from eigenfed.errors import InputError, Name

        held = {path: column_names(path, self.get_options(path)) or () for path in files}
        known = {name for names in held.values() for name in names}
        unknown = [name for name in self.options.exclude if name not in known]
        if unknown:
            raise InputError(
                *(Name("exclude"), f" names {list_columns(unknown)}, which no file has"),
                remedy="Check the spelling.",
            )
        if color_by is None:
            return
        for path in files:
            try:
                labels = label_names(path, self.get_options(path))
            except InputError as error:
                raise error.with_prefix("--color-by: ") from None
            if color_by not in labels:
                raise InputError(f"{path} lacks {list_columns([color_by])}. Check the spelling.")


def dialect_options(function: _Command) -> _Command:
    """Add the options about the dialect of text, passed on as ``dialect``."""
    return _collect(function, _DIALECT, "dialect", _make_dialect)


def file_options(function: _Command) -> _Command:
    """Add all options about files, passed on as ``inputs``."""
    return _collect(function, (*_DIALECT, *_FILES), "inputs", _make_inputs)


def _collect(
    function: _Command, decorators: tuple[Any, ...], name: str, make: Callable[..., Any]
) -> _Command:
    own = ["delimiter", "decimal", "missing", "header"]
    if name == "inputs":
        own += ["exclude", "layer", "highly_variable", "cache", "drop_cache"]
        own += ["manifest", "ambiguous"]
        own += ["keep", "remove", "no_fit", "extract", "exclude_variants"]

    @functools.wraps(function)
    def call(console: Any, **options: Any) -> Any:
        given = {option: options.pop(option) for option in own}
        return function(console, **{name: make(**given)}, **options)

    for decorate in reversed(decorators):
        call = decorate(call)
    return call


def _make_dialect(
    delimiter: str | None, decimal: str | None, missing: tuple[str, ...], header: bool | None
) -> "Dialect":
    from eigenfed.data.dialect import Dialect

    return Dialect(delimiter, decimal, missing, header)


def _make_inputs(
    exclude: tuple[str, ...],
    layer: str | None,
    highly_variable: bool,
    cache: Path | None,
    drop_cache: bool,
    manifest: Path | None,
    ambiguous: str,
    keep: Path | None,
    remove: Path | None,
    no_fit: Path | None,
    extract: Path | None,
    exclude_variants: Path | None,
    **dialect: Any,
) -> Inputs:
    from eigenfed.data.genotype_filters import GenotypeFilters
    from eigenfed.data.read_options import ReadOptions

    options = ReadOptions(
        _make_dialect(**dialect),
        exclude,
        layer=layer,
        highly_variable=highly_variable,
        filters=GenotypeFilters(
            keep, remove, extract, exclude_variants, no_fit, manifest, ambiguous
        ),
    )
    return Inputs(options, cache, not drop_cache)


_LEAST_ROWS = 30
_ENTRIES_LOOKED_AT = 1_000_000


def note_ids(tables: "Iterable[FileTable]", *, in_study: bool = False) -> str | None:
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


def note_counts(table: "FileTable", *, in_study: bool = False) -> str | None:
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

    source = table.source
    is_other = source.is_sparse or table.plink is not None
    if source.names is None or is_other or source.n < _LEAST_ROWS:
        return set()
    rows = np.asarray(source.X[: max(_LEAST_ROWS, _ENTRIES_LOOKED_AT // source.d)])
    with np.errstate(invalid="ignore"):
        whole = np.flatnonzero((rows == np.rint(rows)).all(axis=0))
    return {source.names[j] for j in whole if len(np.unique(rows[:, j])) == len(rows)}
