"""Scores: project the rows of a file, and write scores back into a ``.h5ad`` file."""

import copy
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

import numpy.typing as npt

from eigenfed.data.files import FileTable, column_names, open_table
from eigenfed.data.readers.h5ad import Slots, write_slots
from eigenfed.errors import InputError
from eigenfed.estimators.federated import FederatedPCA


@dataclass(frozen=True)
class Rows:
    """A file of records, and which of them count.

    Attributes
    ----------
    path : Path
    id_column : str or None
        The column that names the rows.
    where : tuple of str
        Conditions on the rows, as in `open_table`.
    """

    path: Path
    id_column: str | None = None
    where: tuple[str, ...] = ()

    def table(
        self, columns: Sequence[str] | None = None, n_features: int | None = None
    ) -> FileTable:
        """Open it, with these features or all of them."""
        return open_table(
            self.path,
            columns=columns,
            id_column=self.id_column,
            n_features=n_features,
            where=self.where or None,
        )


class Projected(NamedTuple):
    """Scores, and the identifiers of the rows if the file has them."""

    scores: npt.NDArray[Any]
    row_ids: tuple[str, ...] | None


def projected(pca: FederatedPCA, records: Rows) -> Projected:
    """Project a file's rows, with its features aligned by name where they have names.

    Parameters
    ----------
    pca : FederatedPCA
        Fitted, or read from a result.
    records : Records
        In a file with the features that were fitted. Those with names may stand in any order, and
        further ones are left out.

    Returns
    -------
    Projected
        Its scores are of shape (n, k).

    Raises
    ------
    InputError
        If the file has names and the components have none, or the other way round, or the number
        of features is another one.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np
    >>> X = np.array([[0.0, 1.0], [2.0, 1.0]])
    >>> pca = FederatedPCA(1).fit_sites({"a": X})
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "rows.npy")
    ...     np.save(path, X)
    ...     projected(pca, Rows(path)).scores
    array([[-1.],
           [ 1.]])
    """
    names, path = getattr(pca, "feature_names_in_", None), records.path
    if (names is None) != (column_names(path) is None):
        one, other = ("have", "has no") if names is not None else ("have no", "has")
        raise InputError(
            f"The components {one} names of features and {path} {other} names, and features are "
            "never matched by position then. Bring a file of the kind that was fitted."
        )
    table = records.table(
        columns=None if names is None else [str(name) for name in names],
        n_features=pca.n_features_in_ if path.suffix.lower() == ".svm" else None,
    )
    X = table.source.X
    if X.shape[1] != pca.n_features_in_:
        raise InputError(
            f"{path} has {X.shape[1]} features and must have {pca.n_features_in_}, those of the "
            "components. Bring the same features."
        )
    # The columns are in order; an array without names would be warned about.
    unnamed = copy.copy(pca)
    unnamed.__dict__.pop("feature_names_in_", None)
    return Projected(unnamed.transform(X), table.row_ids)


def write_back(path: Path, pca: FederatedPCA, scores: npt.NDArray[Any]) -> None:
    """Write scores and components into the slots where users of AnnData expect them.

    Scores are written after a private fit too: the file holds the rows themselves, so their scores
    reveal nothing new to anybody who has it.

    Parameters
    ----------
    path : Path
        A ``.h5ad`` file.
    pca : FederatedPCA
        Fitted on features with names, or read from a result.
    scores : ndarray of shape (n, k)
        Scores of all rows of the file.
    """
    params: dict[str, bool | str] = {
        "zero_center": bool(pca.center),
        "scale": bool(pca.scale),
        "method": str(pca.method_),
        "program": "eigenfed",
    }
    write_slots(
        path,
        Slots(
            scores,
            pca.components_,
            [str(name) for name in pca.feature_names_in_],
            pca.explained_variance_,
            pca.explained_variance_ratio_,
            params,
        ),
    )
