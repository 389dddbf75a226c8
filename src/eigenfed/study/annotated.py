"""A fitted estimator's results, into the ``.h5ad`` file of a site."""

from pathlib import Path
from typing import Any

import numpy.typing as npt

from eigenfed.data.annotated import Slots, write_slots
from eigenfed.estimators.federated import FederatedPCA


def write_back(path: Path, pca: FederatedPCA, scores: npt.NDArray[Any]) -> None:
    """Write scores and components where users of anndata look for them.

    The file holds the rows themselves, so that their scores tell whoever has it nothing new: they
    go there after a private fit too.

    Parameters
    ----------
    path : Path
        Of a ``.h5ad`` file.
    pca : FederatedPCA
        Fitted on features with names, or read from a result.
    scores : ndarray of shape (n, k)
        Of all rows of the file.
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
