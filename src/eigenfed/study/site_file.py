"""A site as its own file says it: where its rows are, and what it allows."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenfed.data.row_filter import conditions_of
from eigenfed.privacy.ledger.entries import Budget, check_name
from eigenfed.privacy.policy import Policy
from eigenfed.study.checking import at_key, checked, read_toml
from eigenfed.study.site_keys import SITE


@dataclass(frozen=True)
class SiteFile:
    """What a site's file says; `eigenfed.study.site_keys` has the meaning of each key.

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
    r"""Read a site's file; whether its data are there is not looked at.

    Parameters
    ----------
    path : path

    Returns
    -------
    SiteFile
        With paths that are relative to the file made whole.

    Raises
    ------
    InputError
        If the file cannot be opened.
    DataError
        If it breaks a rule; the error names the file, the key, the rule and the remedy.

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
    values = checked(path, read_toml(path), SITE)
    with at_key(path, "where"):
        conditions_of(values["where"])
    with at_key(path, "dataset"):
        check_name("dataset", values["dataset"])
    ledger, approved = values["ledger"], values["approved"]
    return SiteFile(
        path,
        **values
        | {
            "data": path.parent / values["data"],
            "where": tuple(values["where"]),
            "ledger": None if ledger is None else path.parent / ledger,
            "approved": None if approved is None else frozenset(approved),
            "policy": _policy(path, values["policy"]),
        },
    )


def _policy(path: Path, limits: dict[str, Any]) -> Policy:
    budget, methods = limits["budget"], limits["methods"]
    if budget is not None:
        with at_key(path, "[policy.budget]"):
            budget = Budget(**budget)
    allowed = None if methods is None else frozenset(methods)
    return Policy(**limits | {"budget": budget, "methods": allowed})
