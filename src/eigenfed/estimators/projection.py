"""Projection of new rows by a fitted estimator, with the contract of scikit-learn."""

from typing import Any

import numpy.typing as npt
from sklearn.base import ClassNamePrefixFeaturesOutMixin, TransformerMixin
from sklearn.utils import Tags
from sklearn.utils.validation import check_is_fitted

from eigenfed.errors import InputError
from eigenfed.estimators.projector import Projector
from eigenfed.estimators.validation import validate_rows, validate_scores


class Projection(ClassNamePrefixFeaturesOutMixin, TransformerMixin, Projector):
    """Adds `transform` and `inverse_transform` to an estimator."""

    def _check_centre(self) -> None:
        check_is_fitted(self)
        super()._check_centre()

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
        scores = validate_scores(X)
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
        tags.input_tags.allow_nan = self._takes_missing()
        tags.transformer_tags.preserves_dtype = ["float64", "float32"]
        return tags
