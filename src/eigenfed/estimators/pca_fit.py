"""Federated PCA as commands and studies run it: parameters, results and projections.

No scikit-learn is imported here; `FederatedPCA` adds its contract.
"""

import os
from collections.abc import Sequence
from inspect import signature
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.source import Source
from eigenfed.estimators.federated_study import prefers_secure
from eigenfed.estimators.site_centres import SiteCentres
from eigenfed.estimators.site_fit import SiteFit
from eigenfed.linalg.eigen import mean_unexplained
from eigenfed.privacy.guarantee import Statement
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.decomposition import Certificate, Decomposition, SiteLevel
from eigenfed.protocol.method import Method
from eigenfed.protocol.private.noise_verdict import warn_of_noise
from eigenfed.protocol.study import BY_SITE
from eigenfed.transport.engine import Engine


class PCAFit(SiteCentres, SiteFit):
    """PCA of rows that stay at their sites, for tables and files by site.

    Parameters and attributes are those of `FederatedPCA`, and so is the result to the last bit.
    `random_state` is an integer or None.

    Examples
    --------
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 6)) * [5, 3, 2, 1, 1, 1]
    >>> pca = PCAFit(2).fit_sites({"a": X[:100], "b": X[100:] + 3})
    >>> pca.components_.shape, pca.transform_aligned(X[:4]).shape
    ((2, 6), (4, 2))
    """

    def __init__(
        self,
        n_components: int | float | str | None = 2,
        *,
        method: Method | str = "auto",
        split: str = "samples",
        center: bool | str = True,
        scale: bool | str = "auto",
        prepare: Sequence[PrepareStep | str] | None = None,
        secure: bool | str = "auto",
        privacy: Privacy | Published | None = None,
        whiten: bool = False,
        transport: Engine | str | None = None,
        transcript: str | os.PathLike[str] | None = None,
        tol: float | str = "auto",
        stop: str = "auto",
        max_rounds: int = 50,
        certify: str | bool = "auto",
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.split = split
        self.center = center
        self.scale = scale
        self.prepare = prepare
        self.secure = secure
        self.privacy = privacy
        self.whiten = whiten
        self.transport = transport
        self.transcript = transcript
        self.tol = tol
        self.stop = stop
        self.max_rounds = max_rounds
        self.certify = certify
        self.random_state = random_state

    def prefers_secure(self, n_sites: int) -> bool:
        """Return whether a fit of so many sites uses secure aggregation."""
        if isinstance(self.secure, bool):
            return self.secure
        return prefers_secure(self._study_parameters(), n_sites)

    def _study_parameters(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in _PARAMETERS}

    def _take(self, found: Decomposition, dtype: np.dtype[Any]) -> None:
        self.components_ = found.components.astype(dtype)
        self.n_components_ = len(found.components)
        self.explained_variance_ = found.variances.astype(dtype)
        self.further_variance_ = found.further.astype(dtype)
        total = found.total_variance
        # A published mechanism may not know the total, which is NaN then, as are the ratios.
        ratio = np.zeros_like(found.variances) if total <= 0 else found.variances / total
        self.explained_variance_ratio_ = np.minimum(ratio, 1.0).astype(dtype)
        self.singular_values_ = np.sqrt(found.variances * max(found.n - 1.0, 0.0)).astype(dtype)
        self.mean_, self.scale_ = found.mean.astype(dtype), found.scale.astype(dtype)
        self.preparation_: Preparation = found.preparation
        self.selected_features_ = found.preparation.selected
        self.n_observed_: Array | None = found.observed
        self._total_weight = found.n
        self.total_variance_ = total
        self.noise_variance_ = mean_unexplained(
            total, found.variances, self.n_samples_, len(found.mean)
        )
        self.certificate_: Certificate | None = found.certificate
        self.method_, self.reason_ = found.method, found.why
        self.privacy_: Statement | None = found.privacy
        self.signal_: Array | None = found.signal
        self.by_site_: dict[str, SiteLevel] | None = found.by_site
        self.engine_ = "in_process"
        warn_of_noise(found)

    def _take_sources(self, sources: dict[str, Source]) -> None:
        self.__dict__.pop("site_means_", None)
        self.__dict__.pop("_is_at_site", None)
        if self.center == BY_SITE:
            self._take_site_means(sources)

    def _preparation(self) -> Preparation:
        return self.preparation_

    def _projection(self) -> tuple[Array, Array, Array | None]:
        is_scaled = bool((self.scale_ != 1.0).any())
        return self.components_, self.mean_, self.scale_ if is_scaled else None

    def _takes_missing(self) -> bool:
        return bool(self.center)


_PARAMETERS = tuple(signature(PCAFit).parameters)
