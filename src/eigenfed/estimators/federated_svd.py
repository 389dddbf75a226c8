"""Truncated SVD of rows that stay at their sites, with the contract of scikit-learn."""

import os
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import ProtocolError
from eigenfed.estimators.federated_base import FederatedEstimator
from eigenfed.protocol.decomposition import Certificate, Decomposition
from eigenfed.protocol.method import Method
from eigenfed.transport.engine import Engine


class FederatedSVD(FederatedEstimator):
    """Truncated SVD of rows that stay at their sites, equal to that of all rows in one place.

    Rows are not centred, so that sparse rows stay sparse. The run, what leaves the sites and the
    certificate are those of ``FederatedPCA(center=False)``, which the command line
    (``--no-center``) and study files (``center = false``) offer too; attributes are those of
    scikit-learn's `TruncatedSVD`.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default=2
        As for `FederatedPCA`; a fraction is one of the sum of squares.
    method, secure, transport, transcript, tol, stop, max_rounds, certify, random_state
        As for `FederatedPCA`.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Right singular vectors, the largest entry of each positive.
    singular_values_ : ndarray of shape (n_components,)
    explained_variance_ : ndarray of shape (n_components,)
        Variance of the scores about their mean, divided by the number of rows: not the squared
        singular values, since rows are not centred.
    explained_variance_ratio_ : ndarray of shape (n_components,)
        The same as fractions of the variance of all features.
    n_components_, n_samples_ : int
    n_rounds_, bytes_up_, bytes_down_, rounds_, egress_, leakage_, certificate_, method_, reason_
        As for `FederatedPCA`.

    Notes
    -----
    With differential privacy use ``FederatedPCA(center=False, privacy=...)``: variances about the
    mean would cost a further part of the budget.

    Examples
    --------
    >>> from scipy.sparse import random_array
    >>> from sklearn.decomposition import TruncatedSVD
    >>> from eigenfed import FederatedSVD
    >>> X = random_array((300, 40), density=0.1, rng=0, format="csr")
    >>> svd = FederatedSVD(3).fit_sites({"a": X[:100], "b": X[100:]})
    >>> exact = TruncatedSVD(3, algorithm="arpack").fit(X)
    >>> bool(np.allclose(svd.singular_values_, exact.singular_values_))
    True
    >>> bool(np.allclose(svd.explained_variance_ratio_, exact.explained_variance_ratio_))
    True
    """

    def __init__(
        self,
        n_components: int | float | str | None = 2,
        *,
        method: Method | str = "auto",
        secure: bool = False,
        transport: Engine | str | None = None,
        transcript: str | os.PathLike[str] | None = None,
        tol: float = 1e-4,
        stop: str = "all",
        max_rounds: int = 50,
        certify: str | bool = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.secure = secure
        self.transport = transport
        self.transcript = transcript
        self.tol = tol
        self.stop = stop
        self.max_rounds = max_rounds
        self.certify = certify
        self.random_state = random_state

    def _study_parameters(self) -> dict[str, Any]:
        given: dict[str, Any] = self.get_params(deep=False)
        fixed = {"center": False, "scale": False, "whiten": False}
        return given | fixed | {"split": "samples", "privacy": None}

    def _take(self, found: Decomposition, dtype: np.dtype[Any]) -> None:
        if found.average is None:
            raise ProtocolError("The run has not collected the mean. Fit again.")
        n, divisor = found.n, found.n - 1.0 if found.n > 1.0 else 1.0
        squares = found.variances * divisor
        total = found.total_variance * divisor / n - float(found.average @ found.average)
        variances = np.maximum(squares / n - (found.components @ found.average) ** 2, 0.0)
        ratio = np.minimum(variances / total, 1.0) if total > 0.0 else np.zeros_like(variances)
        self.components_ = found.components.astype(dtype)
        self.n_components_ = len(found.components)
        self.singular_values_ = np.sqrt(squares).astype(dtype)
        self.explained_variance_ = variances.astype(dtype)
        self.explained_variance_ratio_ = ratio.astype(dtype)
        self.certificate_: Certificate | None = found.certificate
        self.method_, self.reason_ = found.method, found.why

    def _projection(self) -> tuple[Array, Array, Array | None]:
        return self.components_, np.zeros(self.n_features_in_, self.components_.dtype), None
