"""Options about the files that a command reads: their dialect, their columns, their copies."""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli.options import FILE, NEW

if TYPE_CHECKING:
    from eigenfed.data.dialect import Dialect
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
_EXCLUDE = click.option(
    "--exclude",
    multiple=True,
    metavar="NAME",
    help="A column that is not a feature; may be repeated.",
)
_FILES = (
    _EXCLUDE,
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


_ID_COLUMN = click.option("--id-column", help="Column with the row identifiers.")
_IN_DIALECT = ("delimiter", "decimal", "missing", "header")
_IN_INPUTS = (
    *(*_IN_DIALECT, "exclude", "layer", "highly_variable", "cache", "drop_cache"),
    *("manifest", "ambiguous", "keep", "remove", "no_fit", "extract", "exclude_variants"),
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
    return _collect(function, _DIALECT, "dialect", _make_dialect, _IN_DIALECT)


def file_options(function: _Command) -> _Command:
    """Add all options about files, passed on as ``inputs``."""
    return _collect(function, (*_DIALECT, *_FILES), "inputs", _make_inputs, _IN_INPUTS)


def column_options(function: _Command) -> _Command:
    """Add the options about text and columns, passed on as ``inputs`` and ``id_column``."""
    own = (*_IN_DIALECT, "exclude")
    return _ID_COLUMN(_collect(function, (*_DIALECT, _EXCLUDE), "inputs", _make_column_inputs, own))


def _collect(
    function: _Command,
    decorators: tuple[Any, ...],
    name: str,
    make: Callable[..., Any],
    own: tuple[str, ...],
) -> _Command:
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


def _make_column_inputs(exclude: tuple[str, ...], **dialect: Any) -> Inputs:
    from eigenfed.data.read_options import ReadOptions

    return Inputs(ReadOptions(_make_dialect(**dialect), exclude))


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


def open_tables(
    sites: dict[str, Path],
    inputs: Inputs,
    columns: tuple[str, ...] = (),
    id_column: str | None = None,
    features: str = "same",
) -> dict[str, Any]:
    """Open each file once, for the fit and for scores, with the same features in the same order.

    Where the sites' features do not match, only headers are read, for the fit to refuse.
    """
    from eigenfed.data.files import open_table, read_feature_names
    from eigenfed.estimators.inputs import NamedFile

    wanted: list[str] | None = list(columns) or None
    if wanted is None:
        names: dict[str, list[str] | None] = {}
        for site in sorted(sites):
            with _naming(site):
                own = inputs.get_options(sites[site])
                names[site] = read_feature_names(sites[site], id_column, own)
        known = [found for found in names.values() if found is not None]
        shared = set(known[0]).intersection(*known) if known else set()
        wanted = [name for name in known[0] if name in shared] if known else None
        differ = wanted is not None and any(len(found) > len(wanted) for found in known)
        if 0 < len(known) < len(names) or wanted == [] or (differ and features == "same"):
            return {
                site: sites[site] if found is None else NamedFile(sites[site], tuple(found))
                for site, found in names.items()
            }
    ids = _find_id_columns(sites, id_column, features, inputs)
    tables = {}
    for site, path in sites.items():
        with _naming(site):
            tables[site] = open_table(
                path,
                columns=wanted,
                id_column=ids[site],
                cache=inputs.cache,
                keep=inputs.keep,
                options=inputs.get_options(path),
            )
    return tables


def _find_id_columns(
    sites: dict[str, Path], id_column: str | None, features: str, inputs: Inputs
) -> dict[str, str | None]:
    """Return the column of row ids of each site; with common features some sites may lack it."""
    if id_column is None or features == "same":
        return dict.fromkeys(sites, id_column)
    from eigenfed.data.files import column_names

    known = {
        site: column_names(path, inputs.get_options(path)) or () for site, path in sites.items()
    }
    if not any(id_column in names for names in known.values()):
        raise click.UsageError(
            f"--id-column {id_column} is a column of none of the files. Drop it."
        )
    return {site: id_column if id_column in names else None for site, names in known.items()}


@contextmanager
def _naming(site: str) -> Iterator[None]:
    """Name the site in an error about its file."""
    from eigenfed.errors import DataError, InputError

    try:
        yield
    except (InputError, DataError) as error:
        raise error.with_prefix(f"Site {site!r}: ") from None
