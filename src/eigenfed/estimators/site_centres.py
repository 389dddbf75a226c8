"""Centres of single sites, where each site subtracts its own mean."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.projector import Projector
from eigenfed.protocol.study import BY_SITE


class SiteCentres(Projector):
    """Projects about the mean of one site where ``center="site"``.

    Means of sites are computed where their rows are and never sent.
    """

    center: bool | str
    mean_: npt.NDArray[Any]
    _is_at_site: bool = False

    def at_rows(self, X: Any) -> Self:
        """Return the estimator about the mean of rows whose columns are the fitted features.

        Parameters
        ----------
        X : ndarray or sparse matrix of shape (n_samples, n_features)
        """
        return self._move_to(self._find_mean(X))

    def _move_to(self, mean: Array) -> Self:
        copied = object.__new__(type(self))
        copied.__dict__.update(self.__dict__)
        copied.mean_, copied._is_at_site = mean.astype(self.mean_.dtype), True
        return copied

    def _take_site_means(self, sources: Mapping[str, Source]) -> None:
        self.site_means_ = {
            name: self._find_mean(source.X, source.weights) for name, source in sources.items()
        }

    def _find_mean(self, X: Any, weights: Array | None = None) -> Array:
        """Return the mean of the observed entries of each feature of prepared rows."""
        total: Any = 0.0
        count: Any = 0.0
        for span, rows in self._blocks(X):
            part = np.ones(len(rows)) if weights is None else weights[span]
            observed = ~np.isnan(rows)
            total = total + part @ np.where(observed, rows, 0.0)
            count = count + part @ observed
        mean: Array = total / np.where(count > 0.0, count, 1.0)
        return mean

    def _check_centre(self) -> None:
        """Refuse to project rows of which the site is not known."""
        super()._check_centre()
        if self.center == BY_SITE and not self._is_at_site:
            raise InputError(
                "center='site' subtracts the mean of its site from each row, and the site of these "
                "rows is not known. Call at_site(name).transform(X), or at_site(name, X) for a new "
                "site."
            )
