"""Fitting with the contract of scikit-learn: one table whose rows belong to sites."""

from typing import Any, Self

import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from eigenfed.data.scattered_rows import pick_rows
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.groups import group_rows
from eigenfed.estimators.in_process import Conditions
from eigenfed.estimators.projection import Projection
from eigenfed.estimators.result_table import ResultTable
from eigenfed.estimators.site_fit import SiteFit, draw_seed
from eigenfed.estimators.validation import check_seed, validate_rows
from eigenfed.linalg.checks import check_weights


class FederatedEstimator(ResultTable, Projection, SiteFit, BaseEstimator):
    """Base of the estimators that run a federated study: how they are fitted, and what it took.

    An estimator returns the parameters of its study from ``_study_parameters``, and takes its
    attributes from the result in ``_take``.
    """

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> Self:
        """Fit one table whose rows belong to sites.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            NaN marks a missing entry: it counts as the mean of all observed ones.
        y : ignored
        groups : array-like of shape (n_samples,), optional
            Site of each row; None puts all rows into one. A large table is not copied to split
            it. Where the rows of each site of a sparse table are adjacent, products take less time.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        if self._study_parameters()["split"] == "features":
            raise InputError(
                "split='features' needs a table for each site, and fit takes one. Call fit_sites."
            )
        X = validate_rows(self, X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        weights = None
        if sample_weight is not None:
            weights = check_weights(sample_weight, X.shape[0], "sample_weight")
            if not weights.any():
                raise InputError(
                    "sample_weight must not be zero for every row. Give some row a weight above 0."
                )
        sources = {
            name: Source(pick_rows(X, rows), None if weights is None else weights[rows], names)
            for name, rows in group_rows(groups, X.shape[0]).items()
        }
        return self._fit(sources, X.dtype, conditions=Conditions())

    def fit_transform(
        self,
        X: Any,
        y: Any = None,
        *,
        groups: npt.ArrayLike | None = None,
        sample_weight: npt.ArrayLike | None = None,
    ) -> npt.NDArray[Any]:
        """Fit one table whose rows belong to sites, and project its rows.

        Parameters
        ----------
        X, y, groups, sample_weight
            As for `fit`. With ``center="site"`` rows are projected about the mean of their site.

        Returns
        -------
        ndarray of shape (n_samples, n_components_)
        """
        self.fit(X, groups=groups, sample_weight=sample_weight)
        return self._project_groups(X, groups)

    def _project_groups(self, X: Any, groups: npt.ArrayLike | None) -> npt.NDArray[Any]:
        """Project rows that were fitted."""
        return self.transform(X)

    def _draw_seed(self) -> int:
        given = self._study_parameters()["random_state"]
        check_seed(given)
        return draw_seed(check_random_state(given))
