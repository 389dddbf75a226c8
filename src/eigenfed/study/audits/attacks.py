"""Attacks on a whole configuration, from files to what the attacker gets."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from eigenfed.arrays import Array
from eigenfed.audit.membership import Membership, audit_membership
from eigenfed.audit.reconstruct import correlation, nystrom, watch
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError, Name, Pass
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.estimators.inputs import as_sources
from eigenfed.privacy.guarantee import Privacy
from eigenfed.protocol.core import drive
from eigenfed.protocol.method import Method
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study


@dataclass(frozen=True)
class Rebuilt:
    """How much of the covariance a coordinator can rebuild from its own asks.

    Attributes
    ----------
    method : str
    d : int
    rounds : int
        Asks of the run.
    directions : int
        Independent directions on which the answers fix the covariance.
    correlation : float
        Over all entries, of the best guess with the truth.
    error : float
        Norm of their difference over that of the truth.
    """

    method: str
    d: int
    rounds: int
    directions: int
    correlation: float
    error: float


def rebuild(
    sites: Mapping[str, Path], k: int, *, method: Method, rng: np.random.Generator
) -> Rebuilt:
    """Run an exact method, and rebuild the covariance of all rows from what it asked for.

    Parameters
    ----------
    sites : mapping of str to Path
    k : int
        Number of components.
    method : Method
        One that asks for products of the covariance with directions.
    rng : numpy Generator
        For the public start.

    Raises
    ------
    InputError
        If the method asks for no products.
    """
    sources = as_sources(sites)
    _check_components(k, sources)
    run = federation(Study(tuple(sorted(sources)), k, method), sources, Conditions())
    watched = watch(run.transport)
    drive(pca(run.study, rng=rng, total=run.total), watched)
    if not watched.products:
        raise InputError(
            method.as_argument(),
            " asks for no products with directions, from which the covariance is rebuilt",
            remedy=(Pass("method", "krylov"), "."),
        )
    guess, truth = nystrom(watched.seen), _scatter(list(sources.values()))
    size = float(np.linalg.norm(truth))
    return Rebuilt(
        method.name,
        len(truth),
        run.transport.rounds,
        watched.seen.on_span[0].shape[1],
        correlation(guess, truth),
        float(np.linalg.norm(guess - truth)) / size if size > 0 else 0.0,
    )


def _check_components(k: int, sources: Mapping[str, Source]) -> None:
    n, d = sum(source.n for source in sources.values()), next(iter(sources.values())).d
    if k > min(n, d):
        raise InputError(
            Argument("n_components", k),
            f" must be at most {min(n, d)}, the smaller of the numbers of rows ({n}) and of "
            f"features ({d})",
            remedy=("Lower ", Name("n_components"), "."),
        )


def _scatter(sources: list[Source]) -> Array:
    """Return the scatter of all rows about their mean, missing entries at the mean."""
    totals = [source.totals() for source in sources]
    count = np.sum([observed for _, observed, _ in totals], axis=0)
    mean = np.sum([total for _, _, total in totals], axis=0) / np.maximum(count, 1.0)
    scatter = np.zeros((len(mean), len(mean)))
    for source in sources:
        for rows, _ in source.blocks():
            around = np.nan_to_num(rows - mean, nan=0.0)
            scatter += around.T @ around
    return scatter


@dataclass(frozen=True, eq=False)
class _Released:
    components: Array
    mean: Array


def find_member(
    sites: Mapping[str, Path],
    k: int,
    *,
    record: int | None = None,
    size: int | None = None,
    trials: int,
    rng: np.random.Generator,
    privacy: Privacy | None = None,
    callback: Callable[[str], None] | None = None,
) -> tuple[Membership, int, int]:
    """Attack the membership of one record in many runs over rows of all files.

    Parameters
    ----------
    sites : mapping of str to Path
    k : int
        Number of components.
    record : int, optional
        Number of the record among all rows, from 1; by default the one farthest from their mean.
    size : int, optional
        Rows of a run; by default 50, or all but the record where there are fewer.
    trials : int
        Runs with the record, and as many without.
    rng : numpy Generator
        Draws the rows of each run.
    privacy : Privacy, optional
        Noise of the runs.
    callback : callable, optional
        Told how far it is.

    Returns
    -------
    Membership, record, size
    """
    X = _whole(as_sources(sites))
    place = _place(X, record)
    pool = np.delete(X, place, axis=0)
    rows = min(50, len(pool)) if size is None else size
    runs = 0

    def fit(table: Array) -> _Released:
        nonlocal runs
        runs += 1
        if callback is not None:
            callback(f"run {runs} of {2 * (trials // 2 * 2)}")
        found = FederatedPCA(k, certify=False, privacy=privacy).fit(table)
        return _Released(found.components_, found.mean_)

    claimed = None if privacy is None else (privacy.epsilon, privacy.delta)
    found = audit_membership(
        fit, pool, X[place], size=rows, trials=trials, rng=rng, claimed=claimed
    )
    return found, place + 1, rows


def _whole(sources: Mapping[str, Source]) -> Array:
    blocks = [rows for source in sources.values() for rows, _ in source.blocks()]
    X: Array = np.vstack(blocks)
    if np.isnan(X).any():
        raise InputError(
            "The rows have missing entries, which this attack cannot do. Fill them in."
        )
    return X


def _place(X: Array, record: int | None) -> int:
    if record is None:
        around = X - X.mean(axis=0)
        return int(np.argmax(np.einsum("ij,ij->i", around, around)))
    if not 1 <= record <= len(X):
        raise InputError(
            Argument("record", record),
            f" must be from 1 to {len(X)}, the rows of all files",
            remedy="Pass one of these numbers.",
        )
    return record - 1
