"""Projection of new rows by a fitted PCA, however it was fitted."""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags, check_array
from sklearn.utils.validation import check_is_fitted

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.packed_rows import view_rows
from eigenfed.data.prepared_rows import Preparation, is_negative, make_count_error
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.validation import validate_aligned_rows, validate_rows

_ROWS = 4096
_BLOCK_BYTES = 64 << 20


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin):
    """Adds `transform` and `inverse_transform` to an estimator.

    The estimator returns its components, mean and scale from ``_projection``. Where it has a true
    attribute `whiten`, scores are divided by their standard deviation.
    """

    whiten: bool = False

    @abstractmethod
    def _projection(self) -> tuple[Array, Array, Array | None]:
        """Return components (k, d), mean (d,), and scale (d,) where there is one."""

    def _check_centre(self) -> None:
        """Refuse to project rows if their mean is not known."""
        check_is_fitted(self)

    def _preparation(self) -> Preparation:
        """Return the steps that rows go through first, with their figures."""
        return Preparation()

    def transform(self, X: Any) -> npt.NDArray[Any]:
        """Project rows onto the components.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            NaN counts as the feature's mean.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
        """
        self._check_centre()
        return self._project(validate_rows(self, X, reset=False))

    def transform_aligned(self, X: Any) -> npt.NDArray[Any]:
        """Project rows without names whose columns are the fitted features in their order.

        Unlike `transform` it neither asks for names nor warns that there are none.

        Parameters
        ----------
        X : ndarray, sparse matrix or Genotypes of shape (n_samples, n_features)

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
        """
        self._check_centre()
        if isinstance(X, Genotypes):
            return self._project_packed(X)
        return self._project(validate_aligned_rows(self, X))

    def _project_packed(self, X: Genotypes) -> npt.NDArray[Any]:
        components, mean, scale = self._projection()
        selected = self._preparation().selected
        if selected is not None:
            X = X.select_variants(selected)
        divisor = np.ones(len(mean)) if scale is None else scale
        # Seven digits are more than genotypes of one person determine.
        view = view_rows(Source(X), mean, divisor, single=True)
        scores = view.multiply(np.ascontiguousarray(components.T))
        return scores / self._deviations() if self.whiten else scores

    def _project(self, X: Any) -> npt.NDArray[Any]:
        components, mean, scale = self._projection()
        scaled = components if scale is None else components / scale
        if self.whiten:
            scaled = scaled / self._deviations()[:, None]
        is_plain = issparse(X) and not mean.any() and not self._preparation().steps
        if is_plain and not np.isnan(X.data).any():
            product: npt.NDArray[Any] = np.asarray(X @ scaled.T)
            return product.astype(X.dtype, copy=False)
        scores = np.empty((X.shape[0], len(components)), dtype=X.dtype)
        for span, rows in self._blocks(X):
            centred = rows - mean
            centred[np.isnan(centred)] = 0.0
            scores[span] = centred @ scaled.T
        return scores

    def _blocks(self, X: Any) -> Iterator[tuple[slice, npt.NDArray[Any]]]:
        """Yield the rows as dense blocks, prepared as those that were fitted, and their places."""
        preparation = self._preparation()
        if is_negative(X, preparation.steps):
            raise make_count_error("X")
        is_sparse: bool = issparse(X)
        size = min(_ROWS, max(1, _BLOCK_BYTES // (8 * X.shape[1])))
        for start in range(0, X.shape[0], size):
            span = slice(start, start + size)
            if preparation.steps:
                yield span, preparation.transform(X[span])
            else:
                yield span, X[span].toarray() if is_sparse else X[span]

    def _deviations(self) -> Array:
        """Return the standard deviations of the scores, (k,), with a floor for those of 0."""
        fitted: Any = self
        deviations: Array = np.sqrt(fitted.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps)

    def inverse_transform(self, X: npt.ArrayLike) -> npt.NDArray[Any]:
        """Return the rows in the span of the components that have the scores `X`.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_components_)
            Scores, as `transform` returns them.

        Returns
        -------
        ndarray of shape (n_samples, n_features)

        Raises
        ------
        InputError
            If rows were prepared by steps, which cannot be undone.
        """
        self._check_centre()
        if self._preparation().steps:
            raise InputError(
                "inverse_transform would have to undo the steps of prepare, which lose what they "
                "scale, clip or leave out. Compute X @ pca.components_ + pca.mean_ for prepared "
                "rows."
            )
        scores: npt.NDArray[Any] = check_array(X, dtype=[np.float64, np.float32], input_name="X")
        components, mean, scale = self._projection()
        if scores.shape[1] != len(components):
            raise InputError(
                f"X has {scores.shape[1]} columns and must have {len(components)}, one for each "
                "component. Pass what transform returned."
            )
        if self.whiten:
            components = components * self._deviations()[:, None]
        rows: npt.NDArray[Any] = scores @ components
        rows = (rows if scale is None else rows * scale) + mean
        return rows.astype(scores.dtype, copy=False)

    @property
    def _n_features_out(self) -> int:
        return len(self._projection()[0])

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.sparse = True
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
