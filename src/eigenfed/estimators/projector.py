"""Projection of rows whose columns are the features of the components, in their order.

What a command needs to write scores: no scikit-learn is imported here.
"""

from abc import abstractmethod
from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy.sparse import issparse

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.packed_rows import view_rows
from eigenfed.data.prepared_rows import Preparation, is_negative, make_count_error
from eigenfed.data.source import Source, stored
from eigenfed.linalg.checks import is_bounded, make_missing_error, make_range_error

_ROWS = 4096
_BLOCK_BYTES = 64 << 20


class Projector:
    """Adds `transform_aligned` to what has components.

    Components, mean and scale come from ``_projection``. Where `whiten` is true, scores are divided
    by their standard deviation.
    """

    whiten: bool = False

    @abstractmethod
    def _projection(self) -> tuple[Array, Array, Array | None]:
        """Return components (k, d), mean (d,), and scale (d,) where there is one."""

    def _check_centre(self) -> None:
        """Refuse to project rows if their mean is not known."""

    def _preparation(self) -> Preparation:
        """Return the steps that rows go through first, with their figures."""
        return Preparation()

    def _takes_missing(self) -> bool:
        """Return whether rows may have missing entries, which count as the mean."""
        return False

    def transform_aligned(self, X: Any) -> npt.NDArray[Any]:
        """Project rows without names whose columns are the fitted features in their order.

        It neither asks for names nor warns that there are none.

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
        return self._project(self._check_aligned(X))

    def _check_aligned(self, X: Any) -> Any:
        """Return rows as a table of float64 or float32, whose entries can be squared."""
        rows = Source.of(X).X
        entries = stored(rows)
        if not self._takes_missing() and np.isnan(entries).any():
            raise make_missing_error(by_choice=hasattr(self, "center"))
        if not is_bounded(entries):
            raise make_range_error()
        return rows

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
        size = min(_ROWS, max(1, _BLOCK_BYTES // (8 * X.shape[1])))
        for start in range(0, X.shape[0], size):
            span = slice(start, start + size)
            rows: Any = X[span]
            if preparation.steps:
                yield span, preparation.transform(rows)
            else:
                is_sparse: bool = issparse(rows)
                yield span, rows.toarray() if is_sparse else rows

    def _deviations(self) -> Array:
        """Return the standard deviations of the scores, (k,), with a floor for those of 0."""
        fitted: Any = self
        deviations: Array = np.sqrt(fitted.explained_variance_)
        return np.maximum(deviations, np.finfo(deviations.dtype).eps)
