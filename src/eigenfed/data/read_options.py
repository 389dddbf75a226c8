"""How a site's file is read, beyond which rows and features: names, units, codes, layers."""

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.column_names import find_repeated, quote_names
from eigenfed.data.dialect import Dialect
from eigenfed.data.file_kinds import CELL_KINDS, NAMED_KINDS, TEXT_KINDS
from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.source import Block
from eigenfed.errors import InputError, Name


@dataclass(frozen=True)
class ReadOptions:
    """How the columns of a file are read.

    Parameters
    ----------
    dialect : Dialect
        Of text files. Codes of missing entries that are numbers apply to every file with named
        columns, and other codes to ``.xlsx`` files too.
    exclude : sequence of str, default=()
        Columns to leave out. A file need not have them.
    rename : mapping of str to str, optional
        New names of columns. All other arguments use the new names.
    units : mapping of str to float, optional
        Factors by which features are multiplied, to convert them to common units.
    layer : str, optional
        Layer of a ``.h5ad`` file to read instead of ``X``.
    highly_variable : bool, default=False
        Whether to use only the features of a ``.h5ad`` file that are marked in
        ``var["highly_variable"]``.
    filters : GenotypeFilters
        Lists of the people and variants of a ``.bed`` file to use.

    Examples
    --------
    >>> options = ReadOptions(rename={"groesse": "height"}, units={"height": 100.0})
    >>> options.rename_all(["groesse", "age"])
    ('height', 'age')
    """

    dialect: Dialect = field(default_factory=Dialect)
    exclude: Sequence[str] = ()
    rename: Mapping[str, str] = field(default_factory=dict)
    units: Mapping[str, float] = field(default_factory=dict)
    layer: str | None = None
    highly_variable: bool = False
    filters: GenotypeFilters = field(default_factory=GenotypeFilters)

    def __post_init__(self) -> None:
        if isinstance(self.exclude, str):
            raise InputError(
                Name("exclude"), " must be a list of names", remedy=f"Pass [{self.exclude!r}]."
            )
        twice = find_repeated(self.rename.values())
        if twice:
            raise InputError(
                *(Name("rename"), f" gives the name {quote_names(twice)} to several columns"),
                remedy="Give each column its own name.",
            )
        for name, factor in self.units.items():
            if not (isinstance(factor, int | float) and math.isfinite(factor) and factor != 0.0):
                raise InputError(
                    Name("units"),
                    f" must be finite numbers other than 0, and {name!r} has {factor!r}",
                    remedy="Pass the factor by which to multiply the feature.",
                )
        object.__setattr__(self, "exclude", tuple(self.exclude))

    def check_kind(self, path: Path, kind: str) -> None:
        """Refuse options that do not apply to a kind of file."""
        dialect = self.dialect
        applies: tuple[tuple[str, bool, tuple[str, ...]], ...] = (
            ("delimiter", dialect.delimiter is not None, TEXT_KINDS),
            ("decimal", dialect.decimal is not None, TEXT_KINDS),
            ("header", dialect.header is not None, CELL_KINDS),
            ("missing", bool(dialect.text_codes), CELL_KINDS),
            ("missing", bool(dialect.numeric_codes), NAMED_KINDS),
            ("exclude", bool(self.exclude), NAMED_KINDS),
            ("rename", bool(self.rename), NAMED_KINDS),
            ("units", bool(self.units), NAMED_KINDS),
            ("layer", self.layer is not None, (".h5ad",)),
            ("highly_variable", self.highly_variable, (".h5ad",)),
            *((name, True, (".bed",)) for name in self.filters.given),
        )
        for name, is_given, kinds in applies:
            if is_given and kind not in kinds:
                raise InputError(
                    *(Name(name), f" requires a file of kind {', '.join(kinds)}, not {path}"),
                    remedy="Drop it.",
                )

    def split(self) -> "Iterator[ReadOptions]":
        """Yield each option alone."""
        dialect, none = self.dialect, ReadOptions()
        for name in ("delimiter", "decimal", "header"):
            if getattr(dialect, name) is not None:
                yield replace(none, dialect=replace(Dialect(), **{name: getattr(dialect, name)}))
        for code in dialect.missing:
            yield replace(none, dialect=Dialect(missing=[code]))
        for name in ("exclude", "rename", "units", "layer", "highly_variable"):
            if getattr(self, name):
                yield replace(none, **{name: getattr(self, name)})
        for name, path in self.filters.given.items():
            if name != "ambiguous":  # a part of the manifest, which it requires
                yield replace(none, filters=GenotypeFilters(**{name: path}))

    def restrict_to(self, kind: str) -> "ReadOptions":
        """Return the options that apply to a kind of file, for a command on several files."""
        dialect = self.dialect
        if kind not in TEXT_KINDS:
            codes = dialect.missing if kind in CELL_KINDS else map(str, dialect.numeric_codes)
            header = dialect.header if kind in CELL_KINDS else None
            dialect = Dialect(missing=tuple(codes), header=header)
        if kind not in NAMED_KINDS:
            return ReadOptions(filters=self.filters) if kind == ".bed" else ReadOptions()
        if kind == ".h5ad":
            return replace(self, dialect=dialect, filters=GenotypeFilters())
        return replace(
            self, dialect=dialect, layer=None, highly_variable=False, filters=GenotypeFilters()
        )

    def rename_all(self, names: Iterable[str]) -> tuple[str, ...]:
        """Return names after renaming."""
        return tuple(self.rename.get(name, name) for name in names)

    def check_names(self, path: Path, names: Sequence[str]) -> None:
        """Refuse renames and units of columns that a file does not have.

        Parameters
        ----------
        path : Path
        names : sequence of str
            Of the columns, as they are in the file.
        """
        for argument, wanted, known in (
            ("rename", self.rename, set(names)),
            ("units", self.units, set(self.rename_all(names))),
        ):
            absent = [name for name in wanted if name not in known]
            if absent:
                raise InputError(
                    *(Name(argument), f" has {quote_names(absent)}, and {path} lacks the column"),
                    remedy="Use the names of its columns.",
                )

    def read_columns(
        self, read: Callable[..., Iterator[Block]], names: Sequence[str], numeric: bool = True
    ) -> Callable[..., Iterator[Block]]:
        """Return a function that reads columns by their new names and in the new units.

        Parameters
        ----------
        read : callable
            ``read(columns, id_column)`` yields blocks of columns, by their names in the file.
        names : sequence of str
            Of the columns, as they are in the file.
        numeric : bool, default=True
            Whether to apply codes of missing entries that are numbers.
        """
        stored = dict(zip(self.rename_all(names), names, strict=True))
        codes = self.dialect.numeric_codes if numeric else ()

        def read_renamed(columns: Sequence[str], id_column: str | None) -> Iterator[Block]:
            own_id = None if id_column is None else stored[id_column]
            blocks = read([stored[name] for name in columns], own_id)
            factors = np.array([self.units.get(name, 1.0) for name in columns])
            return convert_blocks(blocks, codes, factors)

        return read_renamed

    @property
    def as_json(self) -> dict[str, Any]:
        """The options as JSON types, which tell one choice of options from another."""
        return asdict(replace(self, rename=dict(self.rename), units=dict(self.units)))


def convert_blocks(
    blocks: Iterator[Block], codes: Sequence[float], factors: Array
) -> Iterator[Block]:
    """Yield blocks with NaN for entries that are codes, and features in other units.

    Parameters
    ----------
    blocks : iterator of Block
    codes : sequence of float
        Numbers that stand for missing entries.
    factors : ndarray of shape (d,)
    """
    if not codes and (factors == 1.0).all():
        yield from blocks
        return
    for block in blocks:
        rows = block.rows.astype(np.float64)
        entries = rows.data if hasattr(rows, "indptr") else rows
        if 0.0 in codes and entries is not rows:
            raise InputError(
                Name("missing"),
                " has the code 0, and a sparse table does not tell zeros from what it left out",
                remedy="Drop that code.",
            )
        if codes:
            entries[np.isin(entries, codes)] = np.nan
        if hasattr(rows, "indptr"):
            entries *= factors[rows.indices]
        else:
            entries *= factors
        yield Block(rows, block.ids, block.places)
