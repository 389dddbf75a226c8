"""Fitting with the contract of scikit-learn: tables become sites, and a run leaves its account."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt
from sklearn.base import BaseEstimator
from sklearn.utils import check_random_state

from eigenfed.data.genotypes import Genotypes
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.estimators.federated_study import check_split, make_study, resolve_auto
from eigenfed.estimators.growing_sites import GrowingSites
from eigenfed.estimators.in_process import Conditions, without_digests
from eigenfed.estimators.inputs import as_column_sources, as_sources, check_sites, group_rows
from eigenfed.estimators.projection import Projection
from eigenfed.estimators.result_table import ResultTable
from eigenfed.estimators.resumable_run import (
    RunOutcome,
    Setting,
    leakage_of,
    run_once,
    run_recorded,
)
from eigenfed.estimators.site_centres import SiteCentres
from eigenfed.estimators.validation import validate_rows
from eigenfed.linalg.checks import check_weights
from eigenfed.privacy.guarantee import state_published_guarantee
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.study import BY_SITE
from eigenfed.transport.engine import as_engine
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import Leakage


def _count_rows(source: Source) -> int:
    """Return the number of rows, without people who are projected and not fitted."""
    if source.weights is None or not isinstance(source.X, Genotypes):
        return source.n
    return int(np.count_nonzero(source.weights))


class FederatedEstimator(ResultTable, Projection, BaseEstimator):
    """Base of the estimators that run a federated study: how they are fitted, and what it took.

    An estimator returns the parameters of its study from ``_study_parameters``, and takes its
    attributes from the result in ``_take``.
    """

    n_features_in_: int
    feature_names_in_: npt.NDArray[np.object_]
    _growing: GrowingSites | None = None
    _is_copy: bool = False

    @abstractmethod
    def _study_parameters(self) -> dict[str, Any]:
        """Return the parameters of the study, by the names that `FederatedPCA` has for them."""

    @abstractmethod
    def _take(self, found: Decomposition, dtype: np.dtype[Any]) -> None:
        """Set the attributes of a result."""

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
        split = self._study_parameters()["split"]
        check_split(split, keys, sample_weight, features)
        if split == "features":
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
        if not isinstance(self, SiteCentres) or self.center != BY_SITE:
            return self.transform(X)
        rows = validate_rows(self, X, reset=False)
        scores = np.empty((rows.shape[0], self._n_features_out), dtype=rows.dtype)
        for site, places in group_rows(groups, rows.shape[0]).items():
            scores[places] = self.at_site(site).transform_aligned(rows[places])
        return scores

    def _take_sources(self, sources: dict[str, Source]) -> None:
        """Set attributes that follow from rows alone, which no message has carried."""

    def _fit(
        self,
        sources: dict[str, Source],
        dtype: npt.DTypeLike,
        *,
        conditions: Conditions,
        by_site: bool = False,
        growing: GrowingSites | None = None,
    ) -> Self:
        parameters = resolve_auto(self._study_parameters(), sources)
        privacy, seed = parameters["privacy"], parameters["random_state"]
        counts = [_count_rows(source) for source in sources.values()]
        n = sum(counts) if parameters["split"] == "samples" else counts[0]
        n = n if growing is None else growing.n_rows
        conditions.check(sources)
        engine = as_engine(parameters["transport"])
        study = make_study(
            parameters,
            sources,
            n=n,
            d=self.n_features_in_,
            by_site=by_site,
            wire=engine.wire,
        )
        setting = Setting(
            study,
            sources,
            conditions,
            engine,
            int(check_random_state(seed).randint(2**31 - 1)),
            isinstance(seed, Integral),
        )
        if parameters["transcript"] is None:
            outcome = run_once(setting)
        else:
            outcome = run_recorded(setting, parameters["transcript"])
        found, self.n_samples_, self._growing = outcome.found, n, growing
        if growing is not None:
            by_own, scale = study.centers_by_site, bool(study.scale)
            found = growing.correct(found, by_site=by_own, scale=scale)
        if isinstance(privacy, Published):
            truth = privacy.truth(counts, self.n_features_in_, k=study.k, center=bool(study.center))
            found = replace(found, privacy=state_published_guarantee(truth))
        if isinstance(privacy, Privacy) and privacy.count == "private":
            self.n_samples_ = round(found.n)
        self.settings_ = {name: parameters[name] for name in ("scale", "tol", "stop", "secure")}
        self._take(found, np.dtype(dtype))
        self._take_sources(sources)
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
        state: dict[str, Any] = dict(super().__getstate__())
        grown = state.pop("_growing", None) is not None
        return without_digests(state | ({"_is_copy": True} if grown else {}))
