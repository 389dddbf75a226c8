"""The file of a site: where its rows are, and what it allows."""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from eigenfed.data.dialect import Dialect
from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.row_filter import PATTERN, parse_conditions
from eigenfed.data.steps import STEPS, Standardize
from eigenfed.data.summarized_rows import SUFFIX
from eigenfed.errors import DataError
from eigenfed.privacy.ledger.entries import Budget, check_name
from eigenfed.privacy.policy import Policy
from eigenfed.study.config.fields import (
    AtLeastTwo,
    Delta,
    Epsilon,
    FilePath,
    Flag,
    Fraction,
    MethodName,
    Name,
    NotNegative,
    Positive,
    PositiveNumber,
    Relation,
    StepName,
    TomlFile,
    TomlTable,
    UniqueList,
    read_as,
)
from eigenfed.study.config.toml_errors import validate
from eigenfed.study.config.toml_text import read_document

_OPEN = Policy()
USUAL_STEPS = frozenset(STEPS) - {Standardize.name}
"""Steps that a site takes part in unless its file lists others."""
_ABOUT_ROWS = (
    *("id_column", "exclude", "rename", "units", "missing", "delimiter", "decimal", "header"),
    *("layer", "highly_variable", "keep", "remove", "no_fit", "extract", "exclude_variants"),
    *("cache", "drop_cache", "where", "share_scores"),
)
"""Keys that say how rows are read, or which of them are used."""
_LEAST_COUNTED = 100
_DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def _check_conditions(where: tuple[str, ...]) -> tuple[str, ...]:
    parse_conditions(where)
    return where


def _check_dataset(name: str) -> str:
    check_name("dataset", name)
    return name


Digest = Annotated[str, Field(strict=True, pattern="^[0-9a-f]{64}$")]
Dataset = Annotated[
    str,
    Field(strict=True, pattern="^[^\\u0000-\\u001f\\u007f-\\u00a0\\u2028\\u2029]{1,200}$"),
    AfterValidator(_check_dataset),
]
Conditions = Annotated[
    UniqueList[Annotated[str, Field(strict=True, pattern=f"^(?:{PATTERN})$")]],
    AfterValidator(_check_conditions),
]


def _check_delimiter(mark: str) -> str:
    return Dialect(delimiter=mark).delimiter or mark


def _check_factors(factors: dict[str, float]) -> dict[str, float]:
    ReadOptions(units=factors)
    return factors


def _check_renames(names: dict[str, str]) -> dict[str, str]:
    ReadOptions(rename=names)
    return names


ColumnNames = UniqueList[Annotated[str, Field(strict=True)]]
Delimiter = Annotated[
    str,
    Field(strict=True, pattern='^(?:tab|\\\\t|[^A-Za-z0-9"\\r\\n.+\\-\\u0000])$'),
    AfterValidator(_check_delimiter),
]
NewNames = Annotated[dict[str, Annotated[str, Field(strict=True)]], AfterValidator(_check_renames)]
Factor = Annotated[
    float,
    Field(strict=True, allow_inf_nan=False, json_schema_extra={"not": {"const": 0}}),
]
Factors = Annotated[dict[str, Factor], AfterValidator(_check_factors)]


class BudgetTable(TomlTable, title="[policy.budget]"):
    """The privacy budget of the rows over all runs.

    The ledger keeps account of it. With a budget, nothing leaves the site without noise.
    """

    epsilon: Epsilon = Field(examples=[2.0])
    """Largest epsilon to spend; smaller values are more private."""
    delta: Delta = Field(examples=[1e-6])
    """Delta at which epsilon is accounted. It should be below 1 / number of rows."""
    relation: Relation = "replace_one"
    """Neighbouring data sets differ in one row, which is either replaced by another row
    (replace_one) or left out of every sum (zero_out).
    """


class PolicyTable(TomlTable, title="[policy]"):
    """Limits that this site sets, whatever the study asks for.

    A request beyond them is refused.
    """

    max_rank_fraction: Fraction = Field(default=_OPEN.max_rank_fraction, examples=[0.5])
    """Largest fraction of the directions in feature space about which the site answers, over all
    runs in the ledger; 1.0 sets no limit.
    """
    max_variance_fraction: Fraction = Field(default=_OPEN.max_variance_fraction, examples=[0.9])
    """Largest fraction of the variance that those directions may explain; 1.0 sets no limit."""
    max_rounds: Positive | None = Field(default=_OPEN.max_rounds, examples=[30])
    """Largest number of requests to answer in one run. By default there is no limit."""
    min_rows: AtLeastTwo = Field(examples=[20])
    """Smallest number of rows with which the site takes part. Sums over very few rows reveal those
    rows.
    """
    min_counted: Positive = Field(default=_LEAST_COUNTED, examples=[100])
    """Smallest number of people with whom the site sends counts of their genotypes by itself.
    Within secure aggregation it sends them with min_rows people already.
    """
    max_runs: Positive = Field(default=_OPEN.max_runs, examples=[100])
    """Largest number of runs on the rows, as counted by the ledger."""
    methods: UniqueList[MethodName] | None = Field(
        default=None,
        title="a list of names of methods, each once",
        examples=[["krylov"]],
        json_schema_extra={
            "$comment": 'Set methods = ["krylov"], for example, or leave it out to allow all.'
        },
    )
    """Methods in which the site takes part. The method covariance reveals the whole covariance
    matrix, the others reveal less. By default all methods are allowed.
    """
    steps: UniqueList[StepName] | None = Field(
        default=None,
        title="a list of names of steps, each once",
        examples=[["normalize", "log1p"]],
        json_schema_extra={
            "$comment": 'Set steps = ["log1p"], for example, or leave it out to allow all but '
            "standardize."
        },
    )
    """Steps of a preparation in which the site takes part. The steps select and standardize reveal
    means and variances. With standardize the coordinator also chooses where entries are clipped,
    and a dishonest one can read single rows so. By default all steps but standardize are allowed.
    """
    max_clips: NotNegative = Field(default=_OPEN.max_clips, examples=[8])
    """Largest number of different bounds at which the step standardize clips entries, over all runs
    in the ledger. The coordinator sends the bounds, and many of them would tell where single
    entries are.
    """
    secure_only: Flag = Field(default=_OPEN.secure_only, examples=[True])
    """Whether replies leave the site by secure aggregation only."""
    least_roster_change: NotNegative = Field(default=_OPEN.least_roster_change, examples=[3])
    """Smallest number of sites by which two secure sums may differ, if they differ: their
    difference reveals the sum over those sites alone. 0 sets no limit.
    """
    sound_only: Flag = Field(default=_OPEN.sound_only, examples=[True])
    """Whether to refuse mechanisms reproduced from publications, whose privacy guarantees may not
    hold.
    """
    colluders: NotNegative = Field(default=_OPEN.colluders, examples=[0])
    """Number of other sites that may collude with the coordinator. The noise must be sufficient
    without theirs.
    """
    trusts_coordinator: Flag = Field(default=_OPEN.trusts_coordinator, examples=[False])
    """Whether sums may leave the site without noise, for the coordinator to add it."""
    budget: Annotated[Budget, read_as(BudgetTable, Budget)] | None = None


def _build_policy(
    methods: tuple[str, ...] | None, steps: tuple[str, ...] | None, **values: Any
) -> Policy:
    return Policy(
        methods=None if methods is None else frozenset(methods),
        steps=USUAL_STEPS if steps is None else frozenset(steps),
        **values,
    )


class SiteFile(TomlFile, title="site.toml"):
    """The file of one site: where its rows are and what it allows.

    It stays at the site.
    """

    name: Name = Field(
        examples=["north"], json_schema_extra={"$comment": "Use the name that the study file has."}
    )
    """Name of the site, as in the list of sites of the study."""
    data: FilePath = Field(examples=["north.csv"])
    """File with the rows: csv, tsv, xlsx, parquet, h5ad, npy, npz, svm or bed; or a .summary of a
    stream or of a region, for studies that merge summaries. The path is relative to this file.
    """
    id_column: Annotated[str, Field(strict=True)] | None = Field(
        default=None, title="the name of a column, in quotes", examples=["patient"]
    )
    """Column that identifies the rows. It is not used as a feature."""
    exclude: ColumnNames = Field(
        default=(), title="a list of names of columns, each once", examples=[["visit"]]
    )
    """Columns that are not used as features."""
    rename: NewNames = Field(
        default_factory=dict,
        title="a table of names of columns and their new names, in quotes",
        examples=[{"sysbp": "sbp"}],
    )
    """New names of columns, as the study has them. All other keys use the new names."""
    units: Factors = Field(
        default_factory=dict,
        title="a table of names of features and numbers other than 0",
        examples=[{"height": 100.0}],
    )
    """Factors by which features are multiplied, to convert them to the units of the study."""
    missing: ColumnNames = Field(
        default=(), title="a list of codes in quotes, each once", examples=[["-", "-9"]]
    )
    """Codes for missing entries, besides an empty cell, NA, N/A, NaN and null."""
    delimiter: Delimiter | None = Field(
        default=None, title='one character that is not part of a number, or "tab"', examples=[";"]
    )
    """Character between the cells of a csv file. By default it is detected."""
    decimal: Literal[".", ","] | None = Field(default=None, examples=[","])
    """Decimal mark of a csv file. By default it is detected."""
    header: Flag | None = Field(default=None, examples=[False])
    """Whether the first line of a csv file names the columns. By default it must name them, and
    must not hold numbers. Without names, columns are called column1, column2 and so on.
    """
    layer: Annotated[str, Field(strict=True)] | None = Field(
        default=None, title="the name of a layer, in quotes", examples=["lognorm"]
    )
    """Layer of an h5ad file to use instead of X."""
    highly_variable: Flag = Field(default=False, examples=[True])
    """Whether to use only the features of an h5ad file that are marked in
    var["highly_variable"].
    """
    keep: FilePath | None = Field(default=None, examples=["people.txt"])
    """File with the people of a .bed file to use, with family and person on each line."""
    remove: FilePath | None = Field(default=None, examples=["withdrawn.txt"])
    """File with the people of a .bed file to leave out."""
    no_fit: FilePath | None = Field(default=None, examples=["relatives.txt"])
    """File with the people of a .bed file who are projected and not fitted, such as relatives."""
    extract: FilePath | None = Field(default=None, examples=["variants.txt"])
    """File with the variants of a .bed file to use: an identifier on each line."""
    exclude_variants: FilePath | None = Field(default=None, examples=["failed.txt"])
    """File with the variants of a .bed file to leave out."""
    cache: FilePath | None = Field(
        default=None, title="the path of a folder, in quotes", examples=["parsed"]
    )
    """Folder for the parsed copy of a file whose rows take over 64 MB, at 8 bytes an entry. By
    default it is beside the file.
    """
    drop_cache: Flag = Field(default=False, examples=[True])
    """Whether to keep no parsed copy."""
    where: Conditions = Field(
        default=(),
        title="a list of conditions, each once, of a column, one of < <= == != >= >, and a "
        'number, as in "age >= 18"',
        examples=[["age >= 18", "cohort == 2"]],
    )
    """Conditions that select the rows to use; a row must fulfil all of them. A condition consists
    of a column, one of < <= == != >= >, and a number. A missing value fulfils no condition. Columns
    that are compared are still used as features.
    """
    ledger: FilePath | None = Field(default=None, examples=["north.ledger"])
    """Ledger that records what leaves the site and the privacy budget spent, over all runs. Create
    it once with eigenfed ledger create. Required if the study has [privacy].
    """
    dataset: Dataset = Field(
        default="data", title="1 to 200 printable characters", examples=["visits-2026"]
    )
    """Name of the rows in the ledger. Other rows need another name."""
    approved: UniqueList[Digest] | None = Field(
        default=None,
        title="a list of digests, each once, of 64 hexadecimal digits",
        examples=[[_DIGEST]],
        json_schema_extra={"$comment": "Copy the digest that eigenfed plan prints for the study."},
    )
    """Digests of the studies that eigenfed fit may rehearse with this site, as printed by eigenfed
    plan. By default every study that the policy allows. Between machines, a site answers only the
    studies approved by eigenfed site approve, whatever is listed here.
    """
    network: FilePath = Field(
        default="network",
        validate_default=True,
        title="the path of a folder, in quotes",
        examples=["network"],
    )
    """Folder with this site's private key, the keys of the others, and the approved studies. Nobody
    else may read it. The commands eigenfed network join and eigenfed site approve write it.
    """
    drop: FilePath | None = Field(
        default=None, title="the path of a folder, in quotes", examples=["/mnt/drop"]
    )
    """Folder in which this site finds requests and leaves replies, if the study has engine =
    "files". By default the folder that the coordinator has named.
    """
    run_days: PositiveNumber = Field(default=30.0, examples=[7.0])
    """Days without a request after which the site ends a run between machines that is open, and
    deletes the secret with which it could go on after a restart. A newer run of the same study ends
    it at once.
    """
    share_scores: Flag = Field(default=False, examples=[True])
    """Whether the shared report may show each row of this site as a point. Not possible if the
    study has [privacy].
    """
    policy: Annotated[Policy, read_as(PolicyTable, _build_policy)]

    @property
    def options(self) -> ReadOptions:
        """How the columns of the file are read."""
        return ReadOptions(
            Dialect(self.delimiter, self.decimal, self.missing, self.header),
            self.exclude,
            self.rename,
            self.units,
            self.layer,
            self.highly_variable,
            filters=GenotypeFilters(
                self.keep, self.remove, self.extract, self.exclude_variants, self.no_fit
            ),
        )

    @property
    def has_summary(self) -> bool:
        """Whether the data are a summary, and not rows."""
        return self.data.suffix == SUFFIX

    def find_conflicts(self, data: Mapping[str, Any]) -> Iterator[str]:
        """Yield keys about rows where there are none, or that require a ledger that is missing."""
        for key in _ABOUT_ROWS:
            if self.has_summary and key in data:
                yield (
                    f"{key} is about rows, and data is a summary, which has none. Leave it out, "
                    "and apply it where the rows are summarised."
                )
        if self.ledger is not None:
            return
        if self.policy.budget is not None:
            yield (
                "[policy.budget] requires a ledger, which records what is spent over all runs. "
                'Set ledger = "north.ledger", for example.'
            )
        if "dataset" in data:
            yield (
                "dataset requires a ledger, in which it is the name of the rows. Set ledger = "
                '"north.ledger", for example, or leave dataset out.'
            )


def read_site(path: str | Path) -> SiteFile:
    r"""Read the file of a site; whether its data exist is not checked.

    Parameters
    ----------
    path : path

    Returns
    -------
    SiteFile
        Relative paths are resolved against the folder of the file.

    Raises
    ------
    InputError
        If the file cannot be opened.
    DataError
        If it breaks a rule; the error names the file, the line, the key, the rule and the remedy.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "site.toml")
    ...     _ = path.write_text('name = "north"\ndata = "a.csv"\n[policy]\nmin_rows = 20\n')
    ...     site = read_site(path)
    >>> site.data.name, site.ledger, site.policy.min_rows
    ('a.csv', None, 20)
    """
    document = read_document(Path(path))
    if "sites" in document.data and "data" not in document.data:
        raise DataError(
            f"{path} describes a study, and a site file must be here. Pass the file that has data "
            "and [policy]."
        )
    return validate(SiteFile, document)
