"""The file of a site: where its rows are, and what it allows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

from pydantic import AfterValidator, Field

from eigenfed.data.row_filter import PATTERN, conditions_of
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.ledger.entries import Budget, check_name
from eigenfed.privacy.policy import Policy
from eigenfed.study.config.conflicts import Conflict, given
from eigenfed.study.config.fields import (
    AtLeastTwo,
    Delta,
    Epsilon,
    FileName,
    Flag,
    Fraction,
    Name,
    NotNegative,
    Positive,
    ReadAs,
    Relation,
    Remedy,
    Rule,
    TomlTable,
    Unique,
)
from eigenfed.study.config.method_option import MethodName
from eigenfed.study.config.toml_errors import validate
from eigenfed.study.config.toml_text import read_document

_OPEN = Policy()
_DIGEST = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"


def _check_conditions(where: tuple[str, ...]) -> tuple[str, ...]:
    conditions_of(where)
    return where


def _check_dataset(name: str) -> str:
    check_name("dataset", name)
    return name


class BudgetTable(TomlTable, title="[policy.budget]"):
    """The privacy budget of the rows over all runs.

    The ledger keeps account of it. With a budget, nothing leaves the site without noise.
    """

    epsilon: Epsilon = Field(
        description="Largest epsilon to spend; smaller values are more private.", examples=[2.0]
    )
    delta: Delta = Field(
        description="Delta at which epsilon is accounted. It should be below 1 / number of rows.",
        examples=[1e-6],
    )
    relation: Relation = RELATIONS[0]


def _build_budget(table: BudgetTable) -> Budget:
    return Budget(**dict(table))


class PolicyTable(TomlTable, title="[policy]"):
    """Limits that this site sets, whatever the study asks for.

    A request beyond them is refused.
    """

    max_rank_fraction: Fraction = Field(
        default=_OPEN.max_rank_fraction,
        description="Largest fraction of the directions in feature space about which the site "
        "answers, over all runs in the ledger; 1.0 sets no limit.",
        examples=[0.5],
    )
    max_variance_fraction: Fraction = Field(
        default=_OPEN.max_variance_fraction,
        description="Largest fraction of the variance that those directions may explain; 1.0 "
        "sets no limit.",
        examples=[0.9],
    )
    max_rounds: Positive | None = Field(
        default=_OPEN.max_rounds,
        description="Largest number of requests to answer in one run. By default there is no "
        "limit.",
        examples=[30],
    )
    min_rows: AtLeastTwo = Field(
        description="Smallest number of rows with which the site takes part. Sums over very few "
        "rows reveal those rows.",
        examples=[20],
    )
    max_runs: Positive = Field(
        default=_OPEN.max_runs,
        description="Largest number of runs on the rows, as counted by the ledger.",
        examples=[100],
    )
    methods: (
        Annotated[
            tuple[MethodName, ...],
            Unique(),
            Rule("a list of names of methods, each once"),
            Remedy('Set methods = ["krylov"], for example, or leave it out to allow all.'),
        ]
        | None
    ) = Field(
        default=None,
        description="Methods in which the site takes part. The method covariance reveals the "
        "whole covariance matrix, the others reveal less. By default all methods are allowed.",
        examples=[["krylov"]],
    )
    secure_only: Flag = Field(
        default=_OPEN.secure_only,
        description="Whether replies leave the site by secure aggregation only.",
        examples=[True],
    )
    least_roster_change: NotNegative = Field(
        default=_OPEN.least_roster_change,
        description="Smallest number of sites by which two secure sums may differ, if they "
        "differ: their difference reveals the sum over those sites alone. 0 sets no limit.",
        examples=[3],
    )
    sound_only: Flag = Field(
        default=_OPEN.sound_only,
        description="Whether to refuse mechanisms reproduced from publications, whose privacy "
        "guarantees may not hold.",
        examples=[True],
    )
    colluders: NotNegative = Field(
        default=_OPEN.colluders,
        description="Number of other sites that may collude with the coordinator. The noise must "
        "be sufficient without theirs.",
        examples=[0],
    )
    trusts_coordinator: Flag = Field(
        default=_OPEN.trusts_coordinator,
        description="Whether sums may leave the site without noise, for the coordinator to add it.",
        examples=[False],
    )
    budget: Annotated[Budget, ReadAs(BudgetTable, _build_budget)] | None = None


def _build_policy(table: PolicyTable) -> Policy:
    methods = None if table.methods is None else frozenset(table.methods)
    return Policy(**dict(table) | {"methods": methods})


class SiteTable(TomlTable, title="site.toml"):
    """The file of one site: where its rows are and what it allows.

    It stays at the site.
    """

    name: Annotated[Name, Remedy("Use the name that the study file has.")] = Field(
        description="Name of the site, as in the list of sites of the study.", examples=["north"]
    )
    data: FileName = Field(
        description="File with the rows: csv, parquet, h5ad, npy, npz or svm. The path is "
        "relative to this file.",
        examples=["north.csv"],
    )
    id_column: (
        Annotated[str, Field(strict=True), Rule("the name of a column, in quotes")] | None
    ) = Field(
        default=None,
        description="Column of a csv or parquet file that identifies the rows. It is not used "
        "as a feature.",
        examples=["patient"],
    )
    where: Annotated[
        tuple[Annotated[str, Field(strict=True, pattern=f"^(?:{PATTERN})$")], ...],
        Unique(),
        AfterValidator(_check_conditions),
        Rule(
            "a list of conditions, each once, of a column, one of < <= == != >= >, and a number, "
            'as in "age >= 18"'
        ),
    ] = Field(
        default=(),
        description="Conditions that select the rows to use; a row must fulfil all of them. A "
        "condition consists of a column, one of < <= == != >= >, and a number. A missing value "
        "fulfils no condition. Columns that are compared are still used as features.",
        examples=[["age >= 18", "cohort == 2"]],
    )
    ledger: FileName | None = Field(
        default=None,
        description="Ledger that records what leaves the site and the privacy budget spent, over "
        "all runs. Create it once with eigenfed ledger create. Required if the study has "
        "[privacy].",
        examples=["north.ledger"],
    )
    dataset: Annotated[
        str,
        Field(strict=True, pattern=r"^(?:[^\u0000-\u001f\u007f-\u00a0\u2028\u2029]{1,200})$"),
        AfterValidator(_check_dataset),
        Rule("1 to 200 printable characters"),
    ] = Field(
        default="data",
        description="Name of the rows in the ledger. Other rows need another name.",
        examples=["visits-2026"],
    )
    approved: (
        Annotated[
            tuple[Annotated[str, Field(strict=True, pattern="^(?:[0-9a-f]{64})$")], ...],
            Unique(),
            Rule("a list of digests, each once, of 64 hexadecimal digits"),
            Remedy("Copy the digest that eigenfed plan prints for the study."),
        ]
        | None
    ) = Field(
        default=None,
        description="Digests of the studies in which the site takes part, as printed by eigenfed "
        "plan. By default every study that the policy allows.",
        examples=[[_DIGEST]],
    )
    share_scores: Flag = Field(
        default=False,
        description="Whether the shared report may show each row of this site as a point. Not "
        "possible if the study has [privacy].",
        examples=[True],
    )
    policy: Annotated[Policy, ReadAs(PolicyTable, _build_policy)]

    conflicts = (
        Conflict(
            (given("policy.budget"), ~given("ledger")),
            "[policy.budget] requires a ledger, which records what is spent over all runs. Set "
            'ledger = "north.ledger", for example.',
        ),
        Conflict(
            (given("dataset"), ~given("ledger")),
            "dataset requires a ledger, in which it is the name of the rows. Set ledger = "
            '"north.ledger", for example, or leave dataset out.',
        ),
    )


@dataclass(frozen=True)
class SiteFile:
    """The content of a site file; `SiteTable` has the meaning of each key.

    Attributes
    ----------
    path : Path
        The file.
    name : str
    data : Path
    id_column : str or None
    where : tuple of str
    ledger : Path or None
    dataset : str
    approved : frozenset of str or None
        Digests of the studies in which the site takes part; None is all of them.
    share_scores : bool
    policy : Policy
    """

    path: Path
    name: str
    data: Path
    id_column: str | None
    where: tuple[str, ...]
    ledger: Path | None
    dataset: str
    approved: frozenset[str] | None
    share_scores: bool
    policy: Policy


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
    path = Path(path)
    table = validate(SiteTable, read_document(path))
    resolved = {
        "data": path.parent / table.data,
        "ledger": None if table.ledger is None else path.parent / table.ledger,
        "approved": None if table.approved is None else frozenset(table.approved),
    }
    return SiteFile(path, **dict(table) | resolved)
