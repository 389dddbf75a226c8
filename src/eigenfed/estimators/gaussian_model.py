"""The Gaussian model behind a PCA: covariance, precision and likelihood, as in scikit-learn.

Rows are modelled as Gaussian, with the variances of the components along them and the noise
variance along every other direction (probabilistic PCA, Tipping and Bishop 1999).
"""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from eigenfed.arrays import Array
from eigenfed.data.source import stored
from eigenfed.errors import InputError, Name
from eigenfed.estimators.projection import Projection
from eigenfed.estimators.validation import validate_rows

_SINGULAR = float(np.finfo(float).eps)


class GaussianModel(Projection):
    """Adds `get_covariance`, `get_precision`, `score_samples` and `score` to an estimator.

    With ``scale=True`` or `prepare` the model is that of the scaled or prepared rows, as for a
    `PCA` that follows a `StandardScaler` in a pipeline.
    """

    def _variances(self) -> tuple[Array, float]:
        """Return the model's variances along the components, (k,), and along other directions.

        Noise is everywhere, so that no component has less.
        """
        check_is_fitted(self)
        fitted: Any = self
        noise = float(fitted.noise_variance_)
        return np.maximum(fitted.explained_variance_.astype(float), noise), noise

    def get_covariance(self) -> npt.NDArray[Any]:
        """Return the covariance of the model.

        Returns
        -------
        ndarray of shape (n_features, n_features)
            ``components_.T @ diag(explained_variance_ - noise_variance_) @ components_``, plus
            ``noise_variance_`` on the diagonal, whatever `whiten`: scikit-learn multiplies by the
            variances twice with ``whiten=True``, and its covariance is then not that of the rows.
        """
        variances, noise = self._variances()
        return self._assemble(variances - noise, noise)

    def get_precision(self) -> npt.NDArray[Any]:
        """Return the inverse of the covariance of the model.

        Returns
        -------
        ndarray of shape (n_features, n_features)

        Raises
        ------
        InputError
            If the covariance is singular.
        """
        variances, noise = self._invertible()
        if noise == 0.0:
            return self._assemble(1.0 / variances, 0.0)
        return self._assemble(1.0 / variances - 1.0 / noise, 1.0 / noise)

    def score_samples(self, X: Any) -> npt.NDArray[Any]:
        """Return the log-likelihood of each row.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Without missing entries.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        variances, noise = self._invertible()
        self._check_centre()
        X = validate_rows(self, X, reset=False)
        if np.isnan(stored(X)).any():
            raise InputError(
                "X holds NaN, and a row with missing entries has no likelihood here. "
                "Impute it first, or leave those rows out."
            )
        components, mean, scale = self._projection()
        d, k = components.shape[1], len(variances)
        logdet = float(np.log(variances).sum()) + (math.log(noise) * (d - k) if d > k else 0.0)
        constant = d * math.log(2.0 * math.pi) + logdet
        likelihood = np.empty(X.shape[0], dtype=X.dtype)
        for span, rows in self._blocks(X):
            centred = rows - mean
            centred = centred if scale is None else centred / scale
            scores = centred @ components.T
            distances = (scores**2 / variances).sum(axis=1)
            if d > k:
                # The part outside the components itself, not a difference of squares.
                outside = centred - scores @ components
                distances += (outside**2).sum(axis=1) / noise
            likelihood[span] = -0.5 * (constant + distances)
        return likelihood

    def score(self, X: Any, y: Any = None) -> float:
        """Return the mean log-likelihood of the rows.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Without missing entries.
        y : ignored

        Returns
        -------
        float
        """
        return float(np.mean(self.score_samples(X)))

    def _assemble(self, along: Array, elsewhere: float) -> npt.NDArray[Any]:
        components = self._projection()[0]
        matrix = (components.T * along) @ components
        matrix.flat[:: len(matrix) + 1] += elsewhere
        return matrix.astype(components.dtype, copy=False)

    def _invertible(self) -> tuple[Array, float]:
        """Return the model's variances, and refuse a model without some of them."""
        variances, noise = self._variances()
        components = self._projection()[0]
        k, d = components.shape
        floor = d * _SINGULAR * float(variances.max())
        least = min(float(variances.min()), noise if d > k else math.inf)
        if not least > floor:
            raise InputError(
                f"The covariance of {k} components in {d} features is singular: some directions "
                "have no variance, so that there is neither a precision nor a likelihood",
                remedy=("Lower ", Name("n_components"), " below the rank of the rows."),
            )
        return variances, noise
