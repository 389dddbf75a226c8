"""Loadings, variances and scores as csv, for spreadsheets and R.

==============  ===============================================================================
loadings.csv    feature, PC1, PC2, ...; a line for each feature
variances.csv   component, variance, fraction, cumulative; a line for each component
sites/*.csv     id, PC1, PC2, ...; a line for each row of the site, in their order. Rows without
                identifiers have no column ``id``
==============  ===============================================================================

Numbers have all their digits, and an unknown one is an empty cell. The ``.npy`` files hold the same
arrays. A table of more than `MOST_NUMBERS` numbers is not written beside its array: it would take
longer to write than the fit, and few programs open it.
"""

import csv
import math
from collections.abc import Iterable, Sequence
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from eigenfed.linalg.orthonormal import flip_signs

if TYPE_CHECKING:
    from eigenfed.estimators.pca_fit import PCAFit
    from eigenfed.linalg.summary import Summary
    from eigenfed.study.scores import Projected

MOST_NUMBERS = 1_000_000


def format_loadings(names: Sequence[str], components: npt.NDArray[Any]) -> str:
    """Return ``loadings.csv``.

    Parameters
    ----------
    names : sequence of str
        Of the d features.
    components : ndarray of shape (k, d)

    Examples
    --------
    >>> print(format_loadings(["age", "bmi"], np.array([[0.6, 0.8]])), end="")
    feature,PC1
    age,0.6
    bmi,0.8
    """
    lines = ([name, *row] for name, row in zip(names, components.T.tolist(), strict=True))
    return _join_lines(["feature", *_name_components(len(components))], lines)


def format_summary_loadings(summary: "Summary", k: int) -> str:
    """Return the loadings of the first k directions of a summary.

    Features without names are x0, x1 and so on; signs are those of a fit.

    Examples
    --------
    >>> from eigenfed import Summary
    >>> rows = np.array([[1.0, 2.0], [-1.0, -2.0]])
    >>> summary = Summary.empty(2, 1).update(rows).with_names(("age", "bmi"))
    >>> print(format_summary_loadings(summary, 1).splitlines()[1][:12])
    age,0.447213
    """
    names = summary.names or tuple(f"x{place}" for place in range(summary.d))
    return format_loadings(names, flip_signs(summary.vt[:k]))


def format_variances(variances: npt.NDArray[Any], ratios: npt.NDArray[Any]) -> str:
    """Return ``variances.csv``.

    Parameters
    ----------
    variances, ratios : ndarray of shape (k,)

    Examples
    --------
    >>> print(format_variances(np.array([6.0, 3.0]), np.array([0.5, 0.25])), end="")
    component,variance,fraction,cumulative
    PC1,6.0,0.5,0.5
    PC2,3.0,0.25,0.75
    """
    columns = np.column_stack([variances, ratios, np.cumsum(ratios)]).tolist()
    lines = (
        [name, *("" if math.isnan(value) else value for value in values)]
        for name, values in zip(_name_components(len(variances)), columns, strict=True)
    )
    return _join_lines(["component", "variance", "fraction", "cumulative"], lines)


def write_tables(folder: Path, pca: "PCAFit", names: Sequence[str], *, loadings: bool) -> None:
    """Write ``variances.csv`` and, if asked for and not too long, ``loadings.csv``.

    Parameters
    ----------
    folder : Path
    pca : PCAFit
    names : sequence of str
        Of the features that the components are about.
    loadings : bool
        False for genotypes, whose loadings are in plink's files.
    """
    variances = format_variances(pca.explained_variance_, pca.explained_variance_ratio_)
    (folder / "variances.csv").write_text(variances, "utf-8")
    if loadings and pca.components_.size <= MOST_NUMBERS:
        (folder / "loadings.csv").write_text(format_loadings(names, pca.components_), "utf-8")


def format_scores(projected: "Projected", separator: str = ",") -> str:
    """Return the scores of a site's rows, with their identifiers if they have them.

    Examples
    --------
    >>> from eigenfed.study.scores import Projected
    >>> scores = np.array([[0.5, -1.0], [2.0, 0.25]])
    >>> print(format_scores(Projected(scores, ("P7", "P9"))), end="")
    id,PC1,PC2
    P7,0.5,-1.0
    P9,2.0,0.25
    """
    scores, ids = projected.scores, projected.row_ids
    names = _name_components(scores.shape[1])
    rows: Iterable[list[Any]] = (row.tolist() for row in scores)
    if ids is None:
        return _join_lines(names, rows, separator)
    lines = ([id_, *row] for id_, row in zip(ids, rows, strict=True))
    return _join_lines(["id", *names], lines, separator)


def _name_components(k: int) -> list[str]:
    return [f"PC{place}" for place in range(1, k + 1)]


def _join_lines(head: list[str], lines: Iterable[list[Any]], separator: str = ",") -> str:
    text = StringIO()
    writer = csv.writer(text, delimiter=separator, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(lines)
    return text.getvalue()
