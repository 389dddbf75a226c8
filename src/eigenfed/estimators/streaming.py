"""Streaming PCA in one pass and little memory: [Grammenos2020] Alg. 3, without its privacy mask."""

import math
from dataclasses import replace
from operator import attrgetter
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from eigenfed.arrays import Array
from eigenfed.data.source import stored
from eigenfed.errors import InputError, PrivacyError
from eigenfed.estimators.gaussian_model import GaussianModel
from eigenfed.estimators.inputs import as_plain_rows, check_names
from eigenfed.estimators.validation import make_stream, validate_rows
from eigenfed.linalg.checks import check_weights
from eigenfed.linalg.eigen import mean_unexplained
from eigenfed.linalg.orthonormal import complete_rows, flip_signs
from eigenfed.linalg.stream import Stream
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.dp.private_stream import PrivateStream
from eigenfed.privacy.guarantee import Statement
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.component_count import find_count

_parameters = attrgetter(
    "n_components",
    "rank",
    "energy",
    "forgetting",
    "oversample",
    "center",
    "memory",
    "privacy",
    "random_state",
)


class StreamingPCA(GaussianModel, BaseEstimator):
    """PCA of rows that are seen once, in batches of any size, and forgotten.

    Keeps more directions than it shows, so the components stay close to those of a PCA on all
    rows at once; with few features it keeps the whole scatter and they are the same. Two streams
    of different rows merge into the PCA of both, also where their means differ.

    Parameters
    ----------
    n_components : int, float, "auto" or None, default=2
        Number of components; with ``rank="adaptive"`` the number at the start. A fraction of the
        variance, None for all, and "auto" for those that stand out from noise are as for
        `FederatedPCA`: the number is found when a result is read, from the whole scatter, so that
        they require ``memory="gram"`` or up to 512 features.
    rank : {"fixed", "adaptive"}, default="fixed"
        Whether the number of components follows the data.
    energy : (float, float), default=(0.01, 0.10)
        With ``rank="adaptive"``, bounds for the last singular value as a fraction of the sum of
        those shown. Above the upper bound a component is added, up to ``4 * n_components``; below
        the lower bound one is dropped. This happens once for each internal block of rows.
    forgetting : float, default=1.0
        A row that is t rows old counts with weight ``forgetting**t``, whatever the batches.
    oversample : int, optional
        Directions tracked beyond those shown. None takes as many again, and at least 8.
    center : bool, default=True
        Subtract the mean of all rows; with False the result is that of an SVD of the raw rows.
    memory : {"auto", "low_rank", "gram"}, default="auto"
        "low_rank" keeps leading directions, of order ``n_features * n_components``. "gram" keeps
        the exact scatter, of order ``n_features**2``: then order and partition of the rows change
        nothing beyond rounding. "auto" takes "gram" up to 512 features or 8 times the directions
        tracked, and "low_rank" above that and with ``rank="adaptive"``.
    whiten : bool, default=False
        Divide the scores by their standard deviations, so that each has variance 1.
    privacy : Privacy or None, default=None
        Release the stream once, with noise: a sketch of four directions a component. The first
        rows are used up to find a clip and, with ``center=True``, a mean. `fit`, or the first
        reading of a result after `partial_fit`, draws the noise; no row can be added then. Until
        then the stream holds exact sums and can be neither copied nor pickled. A stream is one
        party and adds all noise itself, whatever ``privacy.trust``.
    random_state : int, RandomState or None, default=None
        For the public directions of the sketch with `privacy`; noise never comes from it. Without
        `privacy` no random number is drawn, and the result is the same for every value.

    Attributes
    ----------
    summary_ : Summary
        Summary of the rows seen so far, with all directions tracked; merges with other summaries.
    components_ : ndarray of shape (n_components_, n_features)
        Orthonormal, by decreasing variance, the largest entry of each positive. Until there are
        enough rows, further directions complete the basis with variance 0.
    explained_variance_ : ndarray of shape (n_components_,)
    explained_variance_ratio_ : ndarray of shape (n_components_,)
        Fractions of the total variance, which includes that outside the components.
    singular_values_ : ndarray of shape (n_components_,)
    mean_ : ndarray of shape (n_features,)
    noise_variance_ : float
        Mean of the ``min(n_samples_seen_, n_features)`` variances beyond those of the components.
    sine_bound_ : float
        Bound on the sine of the largest angle between the components and those of all rows at
        once; only rounding, where the whole scatter is kept. Infinite where the spectrum is too
        flat after the last component, and with `privacy`, where noise turns the components.
    n_components_ : int
    n_samples_seen_ : int
        Rows seen, whatever their weights.
    n_missing_ : ndarray of shape (n_features,)
        NaN entries imputed so far.
    privacy_ : Statement or None
        What is guaranteed, in words; None without `privacy`.
    n_features_in_ : int
    feature_names_in_ : ndarray of shape (n_features,)
        Only when the first batch was a data frame with names.

    Notes
    -----
    NaN is imputed by the feature's running mean over the entries observed up to and including
    its internal block of rows. With NaN the result therefore depends on the order of the rows. A
    feature that was never observed has variance 0. ``center=False`` keeps no mean and refuses NaN.

    Data frames are aligned by the names of the first batch. float32 input gives float32
    attributes and scores; the state is float64 throughout.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import StreamingPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((1000, 5)) * [5, 3, 1, 1, 1] + 100
    >>> pca = StreamingPCA(n_components=2)
    >>> for batch in np.array_split(X, 7):
    ...     pca = pca.partial_fit(batch)
    >>> pca.n_samples_seen_
    1000
    >>> exact = np.linalg.svd(X - X.mean(axis=0))[2][:2]
    >>> bool(np.allclose(np.abs(pca.components_), np.abs(exact)))
    True
    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    _stream: Stream | PrivateStream
    _dtype: np.dtype[Any]

    def __init__(
        self,
        n_components: int | float | str | None = 2,
        *,
        rank: str = "fixed",
        energy: tuple[float, float] = (0.01, 0.10),
        forgetting: float = 1.0,
        oversample: int | None = None,
        center: bool = True,
        memory: str = "auto",
        whiten: bool = False,
        privacy: Privacy | None = None,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.rank = rank
        self.energy = energy
        self.forgetting = forgetting
        self.oversample = oversample
        self.center = center
        self.memory = memory
        self.whiten = whiten
        self.privacy = privacy
        self.random_state = random_state

    def fit(self, X: Any, y: Any = None, *, sample_weight: npt.ArrayLike | None = None) -> Self:
        """Start anew with the rows of `X`.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Finite and not negative; a weight of 2 counts as the row given twice.

        Returns
        -------
        self
        """
        self.__dict__.pop("_stream", None)
        self.partial_fit(X, sample_weight=sample_weight)
        if self.summary_.n == 0.0:
            raise InputError(
                "sample_weight must not be zero for every row. Give some row a weight above 0."
            )
        return self

    def partial_fit(
        self, X: Any, y: Any = None, *, sample_weight: npt.ArrayLike | None = None
    ) -> Self:
        """Add a batch of rows.

        Parameters
        ----------
        X : array-like, sparse matrix or data frame of shape (n_samples, n_features)
            Any number of rows from one; NaN marks a missing entry.
        y : ignored
        sample_weight : array-like of shape (n_samples,), optional
            Finite and not negative; a weight of 2 counts as the row given twice.

        Returns
        -------
        self
        """
        rows = self._plain_rows(X) if sample_weight is None else None
        if rows is not None:
            self._stream.push(rows)
            return self
        first = not hasattr(self, "_stream")
        X = validate_rows(self, X, reset=first)
        missing = bool(np.isnan(stored(X)).any())
        weights = None
        if sample_weight is not None:
            weights = check_weights(sample_weight, X.shape[0], "sample_weight")
        self._start(X.shape[1])
        self._dtype = np.result_type(X.dtype, X.dtype if first else self._dtype)
        self._stream.push(X, weights, missing=missing)
        return self

    def merge(self, other: "StreamingPCA | Summary") -> Self:
        """Add the rows that another stream has seen; that stream is not changed.

        Parameters
        ----------
        other : StreamingPCA or Summary
            Of the same features; where both have names, they are aligned by name. A summary
            counts as ``round(n)`` rows. The rows seen here count in full, whatever `forgetting`.

        Returns
        -------
        self

        Examples
        --------
        >>> import numpy as np
        >>> from eigenfed import StreamingPCA
        >>> X = np.arange(20.0).reshape(10, 2) % 7
        >>> here, there = StreamingPCA(1).fit(X[:4]), StreamingPCA(1).fit(X[4:])
        >>> here.merge(there).n_samples_seen_
        10
        """
        if not isinstance(other, StreamingPCA | Summary):
            raise InputError(
                f"other has type {type(other).__name__} and must be a StreamingPCA or a Summary. "
                "Pass one of them."
            )
        if isinstance(other, StreamingPCA):
            check_is_fitted(other)
        d = other.d if isinstance(other, Summary) else other.n_features_in_
        if not hasattr(self, "_stream"):
            self.n_features_in_ = d
            self._dtype = np.dtype(np.float64)
            if isinstance(other, Summary) and other.names is not None:
                self.feature_names_in_ = np.array(other.names, dtype=object)
            elif hasattr(other, "feature_names_in_"):
                self.feature_names_in_ = other.feature_names_in_
        self._start(d)
        if isinstance(self._stream, PrivateStream):
            raise PrivacyError(
                "A private stream cannot be merged with another one. Merge what they release: "
                "pass their summary_ to a stream without privacy."
            )
        self._stream.merge(self._align(other))
        return self

    @property
    def summary_(self) -> Summary:
        """Summary of the rows seen so far, with the names of their features if they have some."""
        check_is_fitted(self)
        return self._stream.summary().with_names(getattr(self, "feature_names_in_", None))

    @property
    def privacy_(self) -> Statement | None:
        """What is guaranteed for the release; reading it makes the release."""
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
        """Fraction of the total variance along each component, (n_components_,)."""
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
        """Mean of the variances beyond those of the components."""
        summary, n = self.summary_, self.n_samples_seen_
        if summary.n <= 1.0:
            return 0.0
        total = summary.energy / (summary.n - 1.0)
        shown = np.zeros(self.n_components_)
        variances = summary.variance[: self.n_components_]
        shown[: len(variances)] = variances
        return mean_unexplained(total, shown, n, self.n_features_in_)

    @property
    def sine_bound_(self) -> float:
        """Bound on the sine of the largest angle to the components of all rows at once."""
        check_is_fitted(self)
        if isinstance(self._stream, PrivateStream):
            return math.inf
        return self._stream.sine_bound(self.n_components_)

    @property
    def n_components_(self) -> int:
        """Number of components shown."""
        check_is_fitted(self)
        stream = self._stream
        if isinstance(stream, PrivateStream) or stream.settings.components is None:
            return stream.k
        summary, n = stream.summary(), stream.n_seen
        values, total = summary.variance, float(summary.variance.sum())
        found = find_count(stream.settings.components, values, total=total, n=n, d=summary.d)
        return found or max(min(n, summary.d), 1)

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

    def __getstate__(self) -> dict[str, Any]:
        stream = self.__dict__.get("_stream")
        if isinstance(stream, PrivateStream):
            stream.check_released()
        state: dict[str, Any] = super().__getstate__()
        return state

    def __sklearn_is_fitted__(self) -> bool:
        return hasattr(self, "_stream")

    def _takes_missing(self) -> bool:
        return bool(self.center)

    def _plain_rows(self, X: Any) -> npt.NDArray[Any] | None:
        stream = self.__dict__.get("_stream")
        if stream is None or _parameters(self) != self._given:
            return None
        return as_plain_rows(X, stream.d, self.__dict__.get("feature_names_in_"), self._dtype)

    def _start(self, d: int) -> None:
        if not hasattr(self, "_stream"):
            self._stream = make_stream(self.get_params(deep=False), d)
            self._given = _parameters(self)
        elif self._given != _parameters(self):
            raise InputError(
                "A parameter was changed after rows were added, and those rows are gone. "
                "Set it back, or start anew with fit or clone."
            )

    def _align(self, other: "StreamingPCA | Summary") -> Stream | Summary:
        """Check another stream's features and return it with them in the order of this one's."""
        theirs = other.summary_ if isinstance(other, StreamingPCA) else other
        if theirs.d != self.n_features_in_:
            raise InputError(
                f"other has {theirs.d} features and must have {self.n_features_in_}, those of "
                "this stream. Merge streams of the same features."
            )
        if theirs.centered != self.center:
            raise InputError(
                f"other has center={theirs.centered} and must have center={self.center}, as this "
                "stream. Make both with the same choice."
            )
        if isinstance(other, Summary):
            names = getattr(self, "feature_names_in_", None)
            if names is None or other.names is None:
                return other
            check_names("other", other.names, list(names))
            places = {name: place for place, name in enumerate(other.names)}
            return other.reorder([places[name] for name in names])
        stream = theirs if isinstance(other._stream, PrivateStream) else other._stream
        names, others = (getattr(pca, "feature_names_in_", None) for pca in (self, other))
        if names is None or others is None or list(names) == list(others):
            return stream
        check_names("other", list(others), list(names))
        places = {name: place for place, name in enumerate(others)}
        columns = np.array([places[name] for name in names])
        if isinstance(stream, Summary):
            return replace(stream, mean=stream.mean[columns], vt=stream.vt[:, columns])
        return stream.reorder(columns)

    def _projection(self) -> tuple[Array, Array, Array | None]:
        k, summary = self.n_components_, self.summary_
        return flip_signs(complete_rows(summary.vt[:k], k)), summary.mean, None

    def _shown(self, values: npt.NDArray[np.float64]) -> npt.NDArray[Any]:
        shown = np.zeros(self.n_components_, dtype=self._dtype)
        shown[: len(values)] = values[: len(shown)]
        return shown
