"""Reconstruction and membership attacks on a configuration, from files to figures."""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.audit.membership import Membership, audit_membership
from eigenfed.audit.reconstruct import correlation, nystrom, watch
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError, Name, NoiseWarning, Pass
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.estimators.inputs import as_sources
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.core import drive
from eigenfed.protocol.method import Method
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study


@dataclass(frozen=True)
class Rebuilt:
    """How much of the covariance a coordinator can reconstruct from the replies to its requests.

    Attributes
    ----------
    method : str
    d : int
        Number of features.
    rounds : int
    directions : int
        Number of independent directions along which the replies determine the covariance.
    correlation : float
        Correlation of the estimate with the true covariance, over all entries.
    error : float
        Frobenius norm of their difference, relative to that of the true covariance.
    """

    method: str
    d: int
    rounds: int
    directions: int
    correlation: float
    error: float


def reconstruct_covariance(
    sites: Mapping[str, Any], k: int, *, method: Method, rng: np.random.Generator
) -> Rebuilt:
    """Run an exact method, and reconstruct the covariance of all rows from its replies.

    Parameters
    ----------
    sites : mapping of str to path or FileTable
        Data of each site.
    k : int
        Number of components.
    method : Method
        One that requests products of the covariance with directions.
    rng : numpy Generator
        For the public random start.

    Raises
    ------
    InputError
        If the method requests no products.
    """
    sources = as_sources(sites)
    _check_components(k, sources)
    run = federation(Study(tuple(sorted(sources)), k, method), sources, Conditions())
    watched = watch(run.transport)
    drive(pca(run.study, rng=rng, total=run.total), watched)
    if not watched.products:
        raise InputError(
            method.as_argument(),
            " requests no products with directions, which the reconstruction needs",
            remedy=(Pass("method", "krylov"), "."),
        )
    guess, truth = nystrom(watched.seen), _compute_scatter(list(sources.values()))
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


def _compute_scatter(sources: list[Source]) -> Array:
    """Return the scatter of all rows about their mean, with missing entries set to the mean."""
    totals = [source.totals() for source in sources]
    count = np.sum([each.observed for each in totals], axis=0)
    mean = np.sum([each.total for each in totals], axis=0) / np.maximum(count, 1.0)
    scatter = np.zeros((len(mean), len(mean)))
    for source in sources:
        for rows, _ in source.blocks():
            centred = np.nan_to_num(rows - mean, nan=0.0)
            scatter += centred.T @ centred
    return scatter


_LEAST_OTHERS = 2  # as many as the smallest run has rows


@dataclass(frozen=True, eq=False)
class _Released:
    components: Array
    mean: Array


def attack_membership(
    sites: Mapping[str, Any],
    k: int,
    *,
    record: int | None = None,
    size: int | None = None,
    trials: int,
    rng: np.random.Generator,
    privacy: Privacy | None = None,
    callback: Callable[[str], None] | None = None,
) -> tuple[Membership, int, int]:
    """Infer the membership of one record from many runs on rows of all files.

    Parameters
    ----------
    sites : mapping of str to path or FileTable
        Data of each site.
    k : int
        Number of components.
    record : int, optional
        Number of the record among all rows, from 1; by default the one farthest from the mean.
    size : int, optional
        Number of rows in a run; by default 50, or all but the record if there are fewer.
    trials : int
        Number of runs with the record, and of runs without it.
    rng : numpy Generator
        Draws the rows of each run.
    privacy : Privacy, optional
        Makes the runs differentially private.
    callback : callable, optional
        Called with a line of progress before each run.

    Returns
    -------
    Membership, record, size
    """
    X = _read_rows(as_sources(sites))
    if len(X) <= _LEAST_OTHERS:
        raise InputError(
            f"The attack needs {_LEAST_OTHERS + 1} rows at least, one record and others, and the "
            f"files have {len(X)}. Pass files with more."
        )
    place = _find_record(X, record)
    pool = np.delete(X, place, axis=0)
    rows = min(50, len(pool)) if size is None else size
    runs = 0

    def fit(table: Array) -> _Released:
        nonlocal runs
        runs += 1
        if callback is not None:
            callback(f"run {runs} of {2 * (trials // 2 * 2)}")
        with warnings.catch_warnings():
            # Whether the result is of use is not the attacker's concern.
            warnings.simplefilter("ignore", NoiseWarning)
            found = FederatedPCA(k, certify=False, privacy=privacy).fit(table)
        return _Released(found.components_, found.mean_)

    claimed = None if privacy is None else (privacy.epsilon, privacy.delta)
    found = audit_membership(
        fit, pool, X[place], size=rows, trials=trials, rng=rng, claimed=claimed
    )
    return found, place + 1, rows


def _read_rows(sources: Mapping[str, Source]) -> Array:
    blocks = [rows for source in sources.values() for rows, _ in source.blocks()]
    X: Array = np.vstack(blocks)
    if np.isnan(X).any():
        raise InputError(
            "The rows have missing entries, which this attack does not support. Fill them in."
        )
    return X


def _find_record(X: Array, record: int | None) -> int:
    if record is None:
        centred = X - X.mean(axis=0)
        return int(np.argmax(np.einsum("ij,ij->i", centred, centred)))
    if not 1 <= record <= len(X):
        raise InputError(
            Argument("record", record),
            f" must be from 1 to {len(X)}, the number of rows in all files",
            remedy="Pass one of these numbers.",
        )
    return record - 1
