"""Rows of a file, projected onto components."""

import copy
from pathlib import Path
from typing import Any

import numpy.typing as npt

from eigenfed.data.files import column_names, open_source
from eigenfed.errors import InputError
from eigenfed.estimators.federated import FederatedPCA


def projected(pca: FederatedPCA, path: Path) -> npt.NDArray[Any]:
    """Project a file's rows, with its features aligned by name where they have names.

    Parameters
    ----------
    pca : FederatedPCA
        Fitted, or read from a result.
    path : Path
        Of a file with the features that were fitted. Those with names may stand in any order, and
        further ones are left out.

    Returns
    -------
    ndarray of shape (n, k)

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
    ...     projected(pca, path)
    array([[-1.],
           [ 1.]])
    """
    names = getattr(pca, "feature_names_in_", None)
    if (names is None) != (column_names(path) is None):
        one, other = ("have", "has no") if names is not None else ("have no", "has")
        raise InputError(
            f"The components {one} names of features and {path} {other} names, and features are "
            "never matched by position then. Bring a file of the kind that was fitted."
        )
    X = open_source(
        path,
        columns=None if names is None else [str(name) for name in names],
        n_features=pca.n_features_in_ if path.suffix.lower() == ".svm" else None,
    ).X
    if X.shape[1] != pca.n_features_in_:
        raise InputError(
            f"{path} has {X.shape[1]} features and must have {pca.n_features_in_}, those of the "
            "components. Bring the same features."
        )
    # The columns are in order; an array without names would be warned about.
    unnamed = copy.copy(pca)
    unnamed.__dict__.pop("feature_names_in_", None)
    return unnamed.transform(X)
