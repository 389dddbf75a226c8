"""Scores of the rows of a file, onto a result or a summary; results in a site's ``.h5ad`` file."""

import json
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from eigenfed.data.files import FileTable, column_names, open_table
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers.h5ad import Slots, write_slots
from eigenfed.data.source import Source
from eigenfed.data.steps import write_steps
from eigenfed.errors import Argument, InputError, Name
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.linalg.spiked import estimate_shrinkage
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.exact.vertical import compute_own_moments
from eigenfed.protocol.study import BY_SITE
from eigenfed.study.config import SiteFile, StudyFile

MEANS_KEPT = 20
"""Features whose mean at a site is kept for its own page: those that differ most."""


@dataclass(frozen=True)
class Rows:
    """A file of records, and which of them to use.

    Attributes
    ----------
    path : Path
    id_column : str or None
        The column of row ids.
    where : tuple of str
        Conditions on the rows, as in `open_table`.
    options : ReadOptions
        How columns are read.
    cache : Path or None
        Folder for the parsed copy of a large file.
    keep : bool
        Whether that copy stays.
    may_be_empty : bool
        Whether no row need fulfil the conditions, as where the number of rows is private.
    """

    path: Path
    id_column: str | None = None
    where: tuple[str, ...] = ()
    options: ReadOptions = field(default_factory=ReadOptions)
    cache: Path | None = None
    keep: bool = True
    may_be_empty: bool = False

    @classmethod
    def of_site(cls, site: SiteFile, study: StudyFile | None = None) -> "Rows":
        """Return the rows that a site's file describes, with variants matched to the study's."""
        options = site.options
        if study is not None and study.matches_variants:
            filters = replace(options.filters, manifest=study.manifest, ambiguous=study.ambiguous)
            options = replace(options, filters=filters)
        privacy = None if study is None else study.study.privacy
        return cls(
            *(site.data, site.id_column, site.where, options, site.cache),
            keep=not site.drop_cache,
            may_be_empty=isinstance(privacy, Privacy) and privacy.count == "private",
        )

    def table(
        self, columns: Sequence[str] | None = None, n_features: int | None = None
    ) -> FileTable:
        """Open the file, with these features or all of them."""
        return open_table(
            self.path,
            columns=columns,
            id_column=self.id_column,
            n_features=n_features,
            where=self.where or None,
            cache=self.cache,
            keep=self.keep,
            options=self.options,
            may_be_empty=self.may_be_empty,
        )

    def list_absent(self, features: Sequence[str]) -> list[str]:
        """Return the features that the file's header lacks; none if its kind has no names."""
        names = column_names(self.path, self.options)
        held = set(features if names is None else names)
        return [name for name in features if name not in held]


class Projected(NamedTuple):
    """Scores of a site's rows, and what only its own page shows.

    Attributes
    ----------
    scores : ndarray of shape (n, k)
    row_ids : tuple of str or None
        The identifiers of the rows, if the file has them.
    missing : tuple of int or None
        Number of missing entries of each feature, if some are missing.
    means : tuple of float or None
        The site's own mean of each feature, relative to the mean of all rows, in standard
        deviations of the site.
    labels : tuple of str or None
        The group of each row, by which its point is coloured.
    """

    scores: npt.NDArray[Any]
    row_ids: tuple[str, ...] | None
    missing: tuple[int, ...] | None = None
    means: tuple[float, ...] | None = None
    labels: tuple[str, ...] | None = None


def project_table(pca: PCAFit, table: FileTable) -> Projected:
    """Project the rows of an open file, whose features are those of the components.

    Parameters
    ----------
    pca : PCAFit
        Fitted, or read from a result.
    table : FileTable
        With the features in the order of the components. With ``center="site"`` it is one site,
        whose rows are centred by their own mean.

    Returns
    -------
    Projected
        With scores of shape (n, k).
    """
    source, missing = table.source, None
    if source.has_missing:
        totals = source.totals()
        missing = tuple(np.rint(totals.n - totals.observed).astype(int).tolist())
    means = compare_means(pca, source)
    if pca.center == BY_SITE:
        pca = pca.at_rows(source.X)
    return Projected(pca.transform_aligned(source.X), table.row_ids, missing, means)


def compare_means(pca: PCAFit, source: Source) -> tuple[float, ...] | None:
    """Return how far a site's mean of each feature is from that of all rows.

    In standard deviations of the site; 0 where a feature is constant there. None where the mean of
    all rows is not one of the rows as they are in the file: prepared, or centred by site.
    """
    if pca.center is not True or pca.prepare or len(pca.mean_) != source.d:
        return None
    mean, spread = compute_own_moments(source, center=True, scale=True)
    shift = np.where(spread != 1.0, (mean - pca.mean_) / spread, 0.0)
    return tuple(np.where(np.isfinite(shift), shift, 0.0).tolist())


def write_own_files(folder: Path, site: str, found: Projected, names: Sequence[str]) -> None:
    """Write the scores of a site into a result folder, with what only its own page shows."""
    np.save(folder / f"{site}.npy", found.scores)
    parts: dict[str, Any] = {"rows": found.row_ids, "labels": found.labels}
    if found.missing is not None:
        parts["missing"] = {
            n: count for n, count in zip(names, found.missing, strict=True) if count
        }
    if found.means is not None:
        order = np.argsort(-np.abs(found.means), kind="stable")[:MEANS_KEPT]
        parts["means"] = {names[place]: found.means[place] for place in order.tolist()}
    for name, part in parts.items():
        if part is not None:
            text = json.dumps(part, indent=2, allow_nan=False)
            (folder / f"{site}.{name}.json").write_text(f"{text}\n", "utf-8")


def keep_loaded(pca: PCAFit) -> PCAFit:
    """Return an estimator that needs only the variants with loadings, if others were filtered.

    Steps that filter variants do nothing else, so that files of other people may lack the variants
    that the steps have removed.
    """
    selected = pca.selected_features_
    if selected is None or not pca.preparation_.filters_variants:
        return pca
    found = copy(pca)
    found.prepare, found.preparation_, found.selected_features_ = None, Preparation(), None
    found.n_features_in_ = len(selected)
    found.feature_names_in_ = pca.feature_names_in_[selected]
    return found


def find_shrinkage(pca: PCAFit) -> npt.NDArray[np.float64]:
    """Estimate by which factors people who were not fitted are closer to 0, (k,).

    Variants are taken as independent: where they are linked, scores shrink less.

    Parameters
    ----------
    pca : PCAFit
        Fitted on genotypes, or read from such a result.
    """
    k, d = pca.components_.shape
    values = np.asarray(pca.explained_variance_, dtype=np.float64)
    noise = (pca.total_variance_ - values.sum()) / max(d - k, 1)
    if not noise > 0.0:
        return np.ones(k)
    return estimate_shrinkage(values / noise, d / pca.n_samples_)


def count_absent(table: FileTable) -> int:
    """Return how many variants a file lacks that were matched to a manifest."""
    places = getattr(table.source.X, "places", np.zeros(0))
    return int(np.count_nonzero(places < 0))


def open_fitted(pca: PCAFit, records: Rows) -> FileTable:
    """Open a file with the features of components, in their order, to project its rows.

    Parameters
    ----------
    pca : PCAFit
        Fitted, or read from a result.
    records : Rows
        Of a file with the features that were fitted. Named features may be in any order, and
        further ones are left out.

    Raises
    ------
    InputError
        If only one of the file and the components has names of features, or their numbers of
        features differ.

    Examples
    --------
    >>> import tempfile
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0]])
    >>> pca = PCAFit(1).fit_sites({"a": X})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.npy")
    ...     np.save(path, X)
    ...     project_table(pca, open_fitted(pca, Rows(path))).scores
    array([[-1.],
           [ 1.]])
    """
    names, path = getattr(pca, "feature_names_in_", None), records.path
    if (names is None) != (column_names(path, records.options) is None):
        one, other = ("have", "has no") if names is not None else ("have no", "has")
        raise InputError(
            f"The components {one} names of features and {path} {other} names, and features are "
            "never matched by position then. Pass a file of the kind that was fitted."
        )
    features = None if names is None else [str(name) for name in names]
    if features is not None and records.id_column in features:
        raise InputError(
            Argument("id_column", records.id_column),
            " is a feature of the components",
            remedy="Name another column.",
        )
    table = records.table(
        columns=features,
        n_features=pca.n_features_in_ if path.suffix.lower() == ".svm" else None,
    )
    if table.source.d != pca.n_features_in_:
        raise InputError(
            f"{path} has {table.source.d} features and must have {pca.n_features_in_}, those of "
            "the components. Pass a file with the same features."
        )
    return table


def restore_summary(summary: Summary, k: int | None = None) -> PCAFit:
    """Return an estimator that projects onto the directions of a summary.

    Parameters
    ----------
    summary : Summary
    k : int, optional
        Number of components; by default all directions that the summary holds.

    Raises
    ------
    InputError
        If the summary holds fewer directions.

    Examples
    --------
    >>> rows = np.array([[0.0, 1.0], [2.0, 1.0]])
    >>> pca = restore_summary(Summary.empty(2, rank=1).update(rows))
    >>> pca.transform_aligned(rows)
    array([[-1.],
           [ 1.]])
    """
    held = len(summary.s)
    k = held if k is None else k
    if not 1 <= k <= held:
        raise InputError(
            Argument("n_components", k),
            f" must be at most {held}, the number of directions that the summary holds",
            remedy=("Lower ", Name("n_components"), "."),
        )
    pca = PCAFit(k)
    pca.components_, pca.mean_ = flip_signs(summary.vt[:k]), summary.mean
    pca.scale_, pca.n_features_in_ = np.ones(summary.d), summary.d
    pca.preparation_, pca.selected_features_ = Preparation(), None
    pca.method_ = "stream"
    pca.explained_variance_ = summary.variance[:k]
    pca.explained_variance_ratio_ = summary.explained[:k]
    if summary.names is not None:
        pca.feature_names_in_ = np.asarray(summary.names, dtype=object)
    return pca


def write_back(path: Path, pca: PCAFit, scores: npt.NDArray[Any]) -> None:
    """Write scores and components into the slots where users of AnnData expect them.

    They are written after a private fit too: the file holds the rows themselves, so their scores
    reveal nothing new to its owner.

    Parameters
    ----------
    path : Path
        A ``.h5ad`` file.
    pca : PCAFit
        Fitted on features with names, or read from a result.
    scores : ndarray of shape (n, k)
        Scores of all rows of the file.
    """
    params: dict[str, bool | str] = {
        "zero_center": bool(pca.center),
        "scale": bool((pca.scale_ != 1.0).any()),
        "method": str(pca.method_),
        "program": "eigenfed",
    }
    if pca.prepare:
        params["prepare"] = " ".join(write_steps(pca.preparation_.steps))
    names = pca.feature_names_in_
    selected = slice(None) if pca.selected_features_ is None else pca.selected_features_
    write_slots(
        path,
        Slots(
            scores,
            pca.components_,
            [str(name) for name in names[selected]],
            pca.explained_variance_,
            pca.explained_variance_ratio_,
            params,
        ),
    )
