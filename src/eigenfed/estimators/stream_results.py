"""What a stream shows of the rows it has seen, as scikit-learn names it."""

import math
from typing import Any

import numpy as np
import numpy.typing as npt
from sklearn.utils.validation import check_is_fitted

from eigenfed.arrays import Array
from eigenfed.estimators.projection import Projection
from eigenfed.linalg.orthonormal import completed_rows, signed_rows
from eigenfed.linalg.stream import Stream
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.private_stream import PrivateStream
from eigenfed.privacy.statement import Statement


class StreamResults(Projection):
    """Attributes that are worked out when they are read, from the stream as it then is."""

    n_features_in_: int
    _stream: Stream | PrivateStream
    _dtype: np.dtype[Any]

    @property
    def summary_(self) -> Summary:
        """All that is known of the rows."""
        check_is_fitted(self)
        return self._stream.summary()

    @property
    def privacy_(self) -> Statement | None:
        """What is guaranteed of the release; looking at it makes the release."""
        check_is_fitted(self)
        if not isinstance(self._stream, PrivateStream):
            return None
        self._stream.summary()
        return self._stream.statement

    @property
    def components_(self) -> npt.NDArray[Any]:
        """Orthonormal components, (n_components_, n_features)."""
        return self._projection()[0].astype(self._dtype, copy=False)

    @property
    def explained_variance_(self) -> npt.NDArray[Any]:
        """Variance along each component, (n_components_,)."""
        return self._shown(self.summary_.variance)

    @property
    def explained_variance_ratio_(self) -> npt.NDArray[Any]:
        """Share of the total variance along each component, (n_components_,)."""
        return self._shown(self.summary_.explained)

    @property
    def singular_values_(self) -> npt.NDArray[Any]:
        """Singular values of the centred rows, (n_components_,)."""
        return self._shown(self.summary_.s)

    @property
    def mean_(self) -> npt.NDArray[Any]:
        """Mean of the rows, (n_features,)."""
        return self.summary_.mean.astype(self._dtype)

    @property
    def noise_variance_(self) -> float:
        """Mean variance along the directions outside the components."""
        summary, rest = self.summary_, self.n_features_in_ - self.n_components_
        shown = summary.s[: self.n_components_]
        missed = max(summary.energy - float(shown @ shown), 0.0)
        return missed / ((summary.n - 1.0) * rest) if rest and summary.n > 1.0 else 0.0

    @property
    def sine_bound_(self) -> float:
        """Bound on the sine of the largest angle to the components of all rows at once."""
        check_is_fitted(self)
        return math.inf if isinstance(self._stream, PrivateStream) else self._stream.sine_bound()

    @property
    def n_components_(self) -> int:
        """Number of components shown."""
        check_is_fitted(self)
        return self._stream.k

    @property
    def n_samples_seen_(self) -> int:
        """Rows seen."""
        check_is_fitted(self)
        return self._stream.n_seen

    @property
    def n_missing_(self) -> npt.NDArray[np.int64]:
        """NaN entries imputed, (n_features,)."""
        check_is_fitted(self)
        return self._stream.n_missing.copy()

    def _projection(self) -> tuple[Array, Array, Array | None]:
        k, summary = self.n_components_, self.summary_
        return signed_rows(completed_rows(summary.vt[:k], k)), summary.mean, None

    def _shown(self, values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        shown = np.zeros(self.n_components_, dtype=self._dtype)
        shown[: len(values)] = values[: len(shown)]
        return shown
