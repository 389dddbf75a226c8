"""Federated PCA with the contract of scikit-learn: sites live in this process."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import Tags, check_random_state

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError, Name, Pass
from eigenfed.estimators.in_process import (
    Conditions,
    check_by_site,
    check_private,
    check_scaled,
    check_secure,
    federation,
    without_digests,
)
from eigenfed.estimators.inputs import as_column_sources, as_sources, check_sites, rows_by_site
from eigenfed.estimators.projection import Projection
from eigenfed.estimators.validation import check_choice, check_flag, check_seed, validated
from eigenfed.linalg.checks import check_count, checked_weights
from eigenfed.privacy.guarantee import Privacy, Statement, published_statement
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.core import drive
from eigenfed.protocol.decomposition import Certificate, Decomposition, SiteLevel
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.method import Method, as_method
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study
from eigenfed.transport.rounds import RoundRecord


class Leakage(NamedTuple):
    """What the answers of the site that gave most away have told of its covariance."""

    rank_fraction: float
    variance_fraction: float


class FederatedPCA(Projection, BaseEstimator):
    """PCA of rows that stay at their sites, equal to the PCA of all rows in one place.

    Every message between the coordinator and the sites crosses as bytes, as it would on a wire,
    through the gate of each site. With ``split="samples"`` nothing by row leaves: sums over
    features do, and with "merge" and "power" also directions of single sites.

    Parameters
    ----------
    n_components : int, default=2
    method : str or value, default="auto"
        A name, or a value with options such as ``Covariance(precision="single")`` or
        ``Power(local_steps=4)``; ``eigenfed.methods()`` lists them. "auto" takes the one that is
        predicted to take least work for the numbers of rows, features and sites.
    split : {"samples", "features"}, default="samples"
        Whether sites hold different rows of the same features, or different features of the same
        rows. With "features" rows are matched by key, the method is "krylov", and the
        coordinator sees vectors with an entry for each row.
    center : bool, default=True
    scale : bool, default=False
        Divide by the standard deviation of each feature over all sites.
    secure : bool, default=False
        Whether sites mask their replies, so that only sums over all of them can be read, and
        refuse to let anything else leave but the magnitude of their entries and weights. For
        ``split="samples"``, three sites or more, and methods that need nothing but sums: not for
        "merge", nor for "power" with steps at the sites. The result is the same to about 1e-12.
        Here all sites live in one process, which sees everything: this shows what would leave.
    privacy : Privacy, value of ``eigenfed.protocol.published`` or None, default=None
        Differential privacy: ``Privacy(epsilon=1.0, delta=1e-6)`` adds noise that holds, in secure
        sums over three sites or more unless it says otherwise, with method "auto", "covariance" or
        "power". A published mechanism is run as its paper prints it, and `privacy_` says what is
        true of it. Every fit spends its budget anew: here sites are made for one fit.
    tol : float, default=2e-8
        Largest residual ``|M v - lambda v| / lambda_1`` of a component.
    stop : {"all", "separated"}, default="all"
        Which components must meet it: all, or those clearly above the next.
    max_rounds : int, default=50
        Most rounds of products.
    certify : bool, default=True
        Ask once more, where needed, for the certificate.
    random_state : int, RandomState or None, default=None
        For the public start.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal, by falling variance, the largest entry of each positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray (n_components,)
    mean_, scale_ : ndarray of shape (n_features,)
    noise_variance_ : float
    n_samples_ : int
        As found with noise where ``Privacy(count="private")`` says so.
    n_rounds_ : int
        Asks to the sites.
    bytes_up_, bytes_down_ : int
        From and to all sites.
    certificate_ : Certificate or None
    leakage_ : Leakage
    privacy_ : Statement or None
        What is guaranteed, in words; None without `privacy`.
    signal_ : ndarray of shape (n_components,) or None
        With `privacy` and "covariance": estimated squared cosine of each component with the one
        without noise; near 0 it is noise. None with too few rows to tell.
    method_, reason_ : str
        What was used, and why.
    rounds_ : tuple of Asked
        The asks of the fit: what was asked, bytes by site, and how far it had come.
    egress_ : dict of str to tuple of Egress
        What left each site, as its gate wrote it down.
    by_site_ : dict of str to SiteLevel, or None
        Where each site's rows lie on the components, if `fit_sites` was told to ask.

    Examples
    --------
    >>> import numpy as np
    >>> from eigenfed import FederatedPCA
    >>> rng = np.random.default_rng(0)
    >>> X = rng.standard_normal((300, 6)) * [5, 3, 2, 1, 1, 1]
    >>> pca = FederatedPCA(2).fit_sites({"a": X[:100], "b": X[100:] + 3})
    >>> pca.components_.shape, pca.n_rounds_
    ((2, 6), 2)
    >>> bool(pca.certificate_.converged.all())
    True
    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]

    def __init__(
        self,
        n_components: int = 2,
        *,
        method: Method | str = "auto",
        split: str = "samples",
        center: bool = True,
        scale: bool = False,
        secure: bool = False,
        privacy: Privacy | Published | None = None,
        tol: float = 2e-8,
        stop: str = "all",
        max_rounds: int = 50,
        certify: bool = True,
        random_state: Any = None,
    ) -> None:
        self.n_components = n_components
        self.method = method
        self.split = split
        self.center = center
        self.scale = scale
        self.secure = secure
        self.privacy = privacy
        self.tol = tol
        self.stop = stop
        self.max_rounds = max_rounds
        self.certify = certify
        self.random_state = random_state

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
            Site of each row; None puts all rows into one.
        sample_weight : array-like of shape (n_samples,), optional

        Returns
        -------
        self
        """
        if self.split == "features":
            raise InputError(
                "split='features' has a table for each site and cannot fit one. Call fit_sites."
            )
        X = validated(self, X, reset=True)
        names = getattr(self, "feature_names_in_", None)
        weights = None
        if sample_weight is not None:
            weights = checked_weights(sample_weight, X.shape[0], "sample_weight")
            if not weights.any():
                raise InputError(
                    "sample_weight must not be zero for every row. Give some row a weight above 0."
                )
        sources = {
            name: Source(X[rows], None if weights is None else weights[rows], names)
            for name, rows in rows_by_site(groups, X.shape[0]).items()
        }
        return self._fit(sources, X.dtype, conditions=Conditions())

    def fit_sites(
        self,
        sites: Mapping[str, Any],
        *,
        sample_weight: Mapping[str, npt.ArrayLike] | None = None,
        features: str = "same",
        keys: Mapping[str, npt.ArrayLike] | None = None,
        policies: Mapping[str, Policy] | None = None,
        ledgers: Mapping[str, Ledger] | None = None,
        datasets: Mapping[str, str] | None = None,
        filtered: Collection[str] = (),
        by_site: bool = False,
        deadline_s: float | None = None,
        callback: Callable[[RoundRecord], None] | None = None,
    ) -> Self:
        """Fit the tables of several sites.

        Parameters
        ----------
        sites : mapping of str to array-like, sparse matrix, data frame, path, Source or Table
        sample_weight : mapping of str to array-like, optional
            Weights of the rows of some sites.
        features : {"same", "common"}, default="same"
            Whether named features must be the same everywhere, or those are used that all have.
        keys : mapping of str to array-like, optional
            With ``split="features"``, the key of each row of each site; a data frame's index
            serves without it.
        policies : mapping of str to Policy, optional
            What some sites allow.
        ledgers : mapping of str to Ledger, optional
            Where some sites write down and pay for what leaves, over all runs.
        datasets : mapping of str to str, optional
            What those ledgers call the rows; "data" by default.
        filtered : collection of str, optional
            Sites whose rows were chosen by what is in them. Under privacy their number of rows is
            no public one: such a site wants ``Privacy(count="private")``.
        by_site : bool, default=False
            Ask each site, at the end, where its rows lie on the components (`by_site_`). That is
            told by single sites, so not with `secure` or `privacy`.
        deadline_s : float, optional
            How long to wait for the sites' answers to an ask.
        callback : callable, optional
            Called with each ask (an `RoundRecord`) when it is over.

        Returns
        -------
        self
        """
        check_sites(sites)
        self._check_split(keys, sample_weight, features)
        if self.split == "features":
            sources, names = as_column_sources(sites, keys)
            self.n_features_in_ = sum(source.d for source in sources.values())
        else:
            sources = as_sources(sites, weights=sample_weight, features=features)
            first = next(iter(sources.values()))
            self.n_features_in_, names = first.d, first.names
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        dtype = np.result_type(*(source.X.dtype for source in sources.values()))
        conditions = Conditions(
            policies or {}, ledgers or {}, datasets or {}, filtered, deadline_s, callback
        )
        return self._fit(sources, dtype, conditions=conditions, by_site=by_site)

    def _fit(
        self,
        sources: dict[str, Source],
        dtype: npt.DTypeLike,
        *,
        conditions: Conditions,
        by_site: bool = False,
    ) -> Self:
        by_rows = self.split == "samples"
        counts = [source.n for source in sources.values()]
        self.n_samples_ = sum(counts) if by_rows else counts[0]
        conditions.check(sources)
        study = self._study(sources, by_site)
        run = federation(study, sources, conditions)
        transport = run.transport
        rng = np.random.default_rng(check_random_state(self.random_state).randint(2**31 - 1))
        protocol = pca(run.study, rng=rng, total=run.total, rows=None if by_rows else counts[0])
        found = drive(protocol, transport)
        found = replace(found, why=found.why or run.reason)
        if isinstance(self.privacy, Published):
            truth = self.privacy.truth(
                counts, self.n_features_in_, k=study.components, center=study.center
            )
            found = replace(found, privacy=published_statement(truth))
        if isinstance(self.privacy, Privacy) and self.privacy.count == "private":
            self.n_samples_ = round(found.n)
        self._take(found, np.dtype(dtype))
        self.n_rounds_ = transport.rounds
        self.bytes_up_, self.bytes_down_ = transport.bytes_up, transport.bytes_down
        self.rounds_ = tuple(transport.log)
        self.egress_ = {name: tuple(site.egress) for name, site in run.sites.items()}
        self._meters = [site.meter for site in run.sites.values()]
        self.__dict__.pop("leakage_", None)
        return self

    @cached_property
    def leakage_(self) -> Leakage:
        """What was given away, worked out when it is first read: that can take as long as a fit."""
        if not hasattr(self, "_meters"):
            raise AttributeError("leakage_ is there after fit. Call fit or fit_sites.")
        meters = self.__dict__.pop("_meters")
        return Leakage(
            max(meter.rank_fraction for meter in meters),
            max(meter.variance_fraction for meter in meters),
        )

    def __getstate__(self) -> dict[str, Any]:
        """Keep the fractions, and never what the sites have answered, in a copy or a pickle."""
        if hasattr(self, "_meters"):
            _ = self.leakage_
        state: dict[str, Any] = super().__getstate__()
        return without_digests(state)

    def _take(self, found: Decomposition, dtype: np.dtype[Any]) -> None:
        self.components_ = found.components.astype(dtype)
        self.explained_variance_ = found.variances.astype(dtype)
        total = found.total_variance
        # A published mechanism may not know the total, NaN, and then knows no shares either.
        ratio = np.zeros_like(found.variances) if total <= 0 else found.variances / total
        self.explained_variance_ratio_ = np.minimum(ratio, 1.0).astype(dtype)
        self.singular_values_ = np.sqrt(found.variances * max(found.n - 1.0, 0.0)).astype(dtype)
        self.mean_, self.scale_ = found.mean.astype(dtype), found.scale.astype(dtype)
        rest = self.n_features_in_ - len(found.components)
        missed = max(total - float(found.variances.sum()), 0.0)
        self.noise_variance_ = missed / rest if rest else 0.0
        self.certificate_: Certificate | None = found.certificate
        self.method_, self.reason_ = found.method, found.why
        self.privacy_: Statement | None = found.privacy
        self.signal_: Array | None = found.signal
        self.by_site_: dict[str, SiteLevel] | None = found.by_site

    def _check_split(self, keys: Any, sample_weight: Any, features: str) -> None:
        by_columns = self.split == "features"
        if keys is not None and not by_columns:
            raise InputError("keys match rows for split='features' only. Drop keys.")
        if by_columns and (sample_weight is not None or features != "same"):
            raise InputError("sample_weight and features go with split='samples' only. Drop them.")

    def _study(self, sources: dict[str, Source], by_site: bool) -> Study:
        """Check the parameters, and return what the sites are asked to agree to."""
        method = self._check_parameters(self.n_samples_)
        if self.secure:
            check_secure(len(sources), self.split, method)
        if self.privacy is not None:
            check_private(
                self.privacy, sources, split=self.split, method=method, secure=self.secure
            )
            if isinstance(self.privacy, Published) and self.scale:
                raise InputError("scale=True cannot be used with a published mechanism. Drop it.")
        if by_site:
            check_by_site(self.secure, self.privacy, self.split)
        study = Study(
            tuple(sorted(sources)),
            int(self.n_components),
            method,
            split=self.split,
            center=self.center,
            scale=self.scale,
            secure=self.secure,
            by_site=by_site,
            privacy=self.privacy,
            tol=float(self.tol),
            stop=self.stop,
            max_rounds=int(self.max_rounds),
            certify=self.certify,
        )
        if isinstance(self.privacy, Privacy):
            check_scaled(study)
        return study

    def _check_parameters(self, n: int) -> Method | str:
        k, d = self.n_components, self.n_features_in_
        check_count("n_components", k, "Ask for one component or more.")
        if k > min(n, d):
            raise InputError(
                Argument("n_components", k),
                f" must be at most {min(n, d)}, the smaller of the number of samples "
                f"(n_samples={n}) and of features (n_features={d})",
                remedy=("Lower ", Name("n_components"), "."),
            )
        method = as_method(self.method)
        check_choice("split", self.split, ("samples", "features"))
        if self.split == "features" and isinstance(method, Method) and method != Krylov():
            raise InputError(
                method.as_argument(),
                " cannot do ",
                Argument("split", "features"),
                remedy=(Pass("method", "krylov"), "."),
            )
        check_choice("stop", self.stop, ("all", "separated"))
        check_count("max_rounds", self.max_rounds, "Allow one round or more.")
        check_seed(self.random_state)
        for name in ("center", "scale", "certify", "secure"):
            check_flag(name, getattr(self, name))
        if not isinstance(self.tol, float) or not 0.0 < self.tol < 1.0:
            raise InputError(f"tol={self.tol!r} must be between 0 and 1. Pass 2e-8.")
        return method

    def _projection(self) -> tuple[Array, Array, Array | None]:
        return self.components_, self.mean_, self.scale_ if self.scale else None

    def __sklearn_tags__(self) -> Tags:
        tags = super().__sklearn_tags__()
        tags.input_tags.allow_nan = bool(self.center)
        return tags
