"""Centres of single sites, where each site subtracts its own mean."""

from collections.abc import Mapping
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.projection import Projection
from eigenfed.estimators.validation import validate_rows
from eigenfed.protocol.study import BY_SITE


class SiteCentres(Projection):
    """Adds `at_site` to an estimator with ``center="site"``: its projection of a site's rows.

    Means of sites are computed where their rows are and never sent.
    """

    center: bool | str
    mean_: npt.NDArray[Any]
    _is_at_site: bool = False

    def at_site(self, site: str, X: Any = None) -> Self:
        """Return the fitted estimator as one site uses it, with that site's own mean.

        Parameters
        ----------
        site : str
            One of those that were fitted, or a new one.
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features), optional
            Rows of a new site, for their mean.

        Returns
        -------
        estimator
            A copy, which projects rows of that site.

        Examples
        --------
        >>> from eigenfed import FederatedPCA
        >>> here, there = np.array([[0.0, 1.0], [2.0, 1.0]]), np.array([[9.0, 5.0], [7.0, 5.0]])
        >>> pca = FederatedPCA(1, center="site").fit_sites({"a": here, "b": there})
        >>> pca.components_, pca.explained_variance_ratio_
        (array([[1., 0.]]), array([1.]))
        >>> pca.at_site("b").transform([[9.0, 5.0]])
        array([[1.]])
        """
        if self.center != BY_SITE:
            raise InputError(
                f"at_site requires center='site', and center is {self.center}. Call transform."
            )
        means: Mapping[str, Array] = getattr(self, "site_means_", {})
        if X is None and site not in means:
            raise InputError(
                f"Site {site!r} was not fitted, so that its mean is not known. "
                "Pass its rows, at_site(site, X), or name one of the fitted sites."
            )
        if X is None:
            return self._move_to(means[site])
        return self.at_rows(validate_rows(self, X, reset=False))

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
