"""Federated PCA with the contract of scikit-learn: all sites belong to this program."""

import os
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

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
    check_recordable,
    check_scaled,
    check_secure,
    check_wire_use,
    without_digests,
)
from eigenfed.estimators.inputs import as_column_sources, as_sources, check_sites, group_rows
from eigenfed.estimators.projection import Projection
from eigenfed.estimators.resumable_run import (
    RunOutcome,
    Setting,
    leakage_of,
    run_once,
    run_recorded,
)
from eigenfed.estimators.validation import check_choice, check_flag, check_seed, validate_rows
from eigenfed.linalg.checks import check_count, check_weights
from eigenfed.privacy.guarantee import Privacy, Statement, state_published_guarantee
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.decomposition import Certificate, Decomposition, SiteLevel
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.method import Method, as_method
from eigenfed.protocol.study import Study
from eigenfed.transport.engine import Engine, as_engine
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import Leakage


class FederatedPCA(Projection, BaseEstimator):
    """PCA of rows that stay at their sites, equal to the PCA of all rows in one place.

    Every message between the coordinator and the sites is written as bytes, as it would be on a
    network, and passes the gate of its site. With ``split="samples"`` no entry for a single row
    leaves: sums over rows do, and with "merge" and "power" also directions of single sites.

    Parameters
    ----------
    n_components : int, default=2
    method : str or Method, default="auto"
        A name, or a value with options such as ``Covariance(precision="single")`` or
        ``Power(local_steps=4)``; ``eigenfed.methods()`` lists them. "auto" takes the one that is
        predicted to need least work for the numbers of rows, features and sites.
    split : {"samples", "features"}, default="samples"
        Whether sites hold different rows of the same features, or different features of the same
        rows. With "features" rows are matched by key, the method is "krylov", and the
        coordinator sees vectors with an entry for each row.
    center : bool, default=True
        Subtract the mean of all rows.
    scale : bool, default=False
        Divide by the standard deviation of each feature over all sites.
    secure : bool, default=False
        Secure aggregation: sites mask their replies, so that only sums over all of them can be
        read, and release nothing else but the magnitude of their entries and weights. It requires
        ``split="samples"``, three sites or more, and a method that needs only sums: not "merge",
        nor "power" with local steps. The result is the same to about 1e-12. Here one program owns
        all sites and sees everything: this shows what would leave.
    privacy : Privacy, value of ``eigenfed.protocol.published`` or None, default=None
        Differential privacy: ``Privacy(epsilon=1.0, delta=1e-6)`` adds noise with a proven
        guarantee, by default in secure aggregation over three sites or more, with method "auto",
        "covariance" or "power". A published mechanism is run as its paper prints it, and
        `privacy_` states what holds for it. Every fit spends its budget again, because its sites
        are made for one fit.
    transport : {"local", "processes"}, Local, Processes or None, default=None
        Where sites live. None or "local": on threads of this process. "processes": each in a child
        process; a script must then call ``fit`` under ``if __name__ == "__main__":``. A value of
        ``eigenfed.transport`` has options: ``Local(workers=2)``, ``Processes(deadline_s=60.0)``,
        and ``wire="float32"``, which halves the bytes of messages and limits the accuracy of the
        components to about 1e-4 degrees.
    transcript : str, PathLike or None, default=None
        File in which the run is recorded as it goes. If the file is there from an interrupted run
        of the same study, that run is resumed and ends with the result that it would have had, bit
        for bit; see Notes. The file holds what the coordinator has received: keep it as
        confidential as that, and delete it when it has served.
    tol : float, default=2e-8
        Largest residual ``|M v - lambda v| / lambda_1`` of a component.
    stop : {"all", "separated"}, default="all"
        Which components must meet it: all, or those clearly above the next.
    max_rounds : int, default=50
        Most rounds of products.
    certify : bool, default=True
        Ask for one more round, where needed, for the certificate.
    random_state : int, RandomState or None, default=None
        For the public start.

    Attributes
    ----------
    components_ : ndarray of shape (n_components, n_features)
        Orthonormal, by decreasing variance, the largest entry of each positive.
    explained_variance_, explained_variance_ratio_, singular_values_ : ndarray (n_components,)
    mean_, scale_ : ndarray of shape (n_features,)
    noise_variance_ : float
    n_samples_ : int
        With noise where ``Privacy(count="private")`` asks for it.
    n_rounds_ : int
        Rounds of requests to the sites.
    bytes_up_, bytes_down_ : int
        From and to all sites.
    certificate_ : Certificate or None
    leakage_ : Leakage
    privacy_ : Statement or None
        What is guaranteed, in words; None without `privacy`.
    signal_ : ndarray of shape (n_components,) or None
        With `privacy` and "covariance": estimated squared cosine of each component with the one
        without noise; near 0 the component is noise. None with too few rows to estimate it.
    method_, reason_ : str
        The method that was used, and why.
    rounds_ : tuple of RoundRecord
        The rounds of the fit: operation, bytes by site, and residual so far.
    egress_ : dict of str to tuple of Egress
        What left each site, as its gate recorded it.
    by_site_ : dict of str to SiteLevel, or None
        Where each site's rows lie on the components, if `fit_sites` was called with ``by_site``.

    Notes
    -----
    A run that was interrupted in this process, by an exception or from the keyboard, is resumed at
    its sites, with any method, secure aggregation and privacy: no site answers, draws noise or
    pays twice. In a new process the sites are new. They answer the recorded rounds again and
    their answers are compared, so the result is safe but the time is not saved. With secure
    aggregation or privacy that is impossible, and the run is refused. From the transcript of a
    finished run the result is computed again, with a warning, and no site is asked.

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
        transport: Engine | str | None = None,
        transcript: str | os.PathLike[str] | None = None,
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
        self.transport = transport
        self.transcript = transcript
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
            name: Source(X[rows], None if weights is None else weights[rows], names)
            for name, rows in group_rows(groups, X.shape[0]).items()
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
            Where some sites record and pay for what leaves, over all runs.
        datasets : mapping of str to str, optional
            What those ledgers call the rows; "data" by default.
        filtered : collection of str, optional
            Sites whose rows were selected by their content. Under privacy their number of rows is
            not public: such a site requires ``Privacy(count="private")``.
        by_site : bool, default=False
            Ask each site, at the end, where its rows lie on the components (`by_site_`). Those
            are replies of single sites: it cannot be combined with `secure` or `privacy`.
        deadline_s : float, optional
            How long to wait for the sites' answers to a request; replaces that of `transport`.
        callback : callable, optional
            Called with the `RoundRecord` of each round when it is over.

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
        engine = as_engine(self.transport)
        study = self._study(sources, by_site, engine.wire)
        seed = check_random_state(self.random_state).randint(2**31 - 1)
        is_seeded = isinstance(self.random_state, Integral)
        setting = Setting(study, sources, conditions, engine, int(seed), is_seeded)
        if self.transcript is None:
            outcome = run_once(setting)
        else:
            outcome = run_recorded(setting, self.transcript)
        found = outcome.found
        if isinstance(self.privacy, Published):
            truth = self.privacy.truth(
                counts, self.n_features_in_, k=study.components, center=study.center
            )
            found = replace(found, privacy=state_published_guarantee(truth))
        if isinstance(self.privacy, Privacy) and self.privacy.count == "private":
            self.n_samples_ = round(found.n)
        self._take(found, np.dtype(dtype))
        self._take_account(outcome)
        return self

    def _take_account(self, outcome: RunOutcome) -> None:
        self.rounds_, self.egress_ = outcome.rounds, outcome.egress
        self.n_rounds_ = len(outcome.rounds)
        self.bytes_up_ = sum(record.bytes_up for record in outcome.rounds)
        self.bytes_down_ = sum(record.bytes_down for record in outcome.rounds)
        self.__dict__.pop("leakage_", None)
        self.__dict__.pop("_accounts", None)
        if outcome.leakage is None:
            self._accounts = outcome.accounts
        else:
            self.__dict__["leakage_"] = outcome.leakage

    @cached_property
    def leakage_(self) -> Leakage:
        """What was revealed, computed when it is first read: that can take as long as a fit."""
        if not hasattr(self, "_accounts"):
            raise AttributeError("leakage_ is there after fit. Call fit or fit_sites.")
        return leakage_of(self.egress_, self.__dict__.pop("_accounts"))

    def __getstate__(self) -> dict[str, Any]:
        """Keep the fractions, and never what the sites have answered, in a copy or a pickle."""
        if hasattr(self, "_accounts"):
            _ = self.leakage_
        state: dict[str, Any] = super().__getstate__()
        return without_digests(state)

    def _take(self, found: Decomposition, dtype: np.dtype[Any]) -> None:
        self.components_ = found.components.astype(dtype)
        self.explained_variance_ = found.variances.astype(dtype)
        total = found.total_variance
        # A published mechanism may not know the total, which is NaN then, as are the ratios.
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
            raise InputError("keys requires split='features', which matches rows. Drop keys.")
        if by_columns and (sample_weight is not None or features != "same"):
            raise InputError("sample_weight and features require split='samples'. Drop them.")

    def _study(self, sources: dict[str, Source], by_site: bool, wire: str) -> Study:
        """Check the parameters, and return the study that the sites approve."""
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
            wire=wire,
        )
        check_wire_use(study)
        if self.transcript is not None:
            check_recordable(self.privacy)
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
                " cannot be combined with ",
                Argument("split", "features"),
                remedy=(Pass("method", "krylov"), "."),
            )
        check_choice("stop", self.stop, ("all", "separated"))
        check_count("max_rounds", self.max_rounds, "Allow one round or more.")
        check_seed(self.random_state)
        if not isinstance(self.transcript, str | os.PathLike | None):
            raise InputError(
                f"transcript is a {type(self.transcript).__name__} and must be a path or None. "
                "Pass one of them."
            )
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
