"""A fit over the tables of sites, and the account of its run. No scikit-learn is imported here."""

from abc import abstractmethod
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property
from numbers import Integral
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from eigenfed.data.genotypes import Genotypes
from eigenfed.data.source import Source
from eigenfed.estimators.federated_study import check_split, make_study, resolve_auto
from eigenfed.estimators.growing_sites import GrowingSites
from eigenfed.estimators.in_process import Conditions
from eigenfed.estimators.inputs import as_column_sources, as_sources, check_sites, name_sites
from eigenfed.estimators.resumable_run import (
    RunOutcome,
    Setting,
    leakage_of,
    run_once,
    run_recorded,
)
from eigenfed.privacy.guarantee import state_published_guarantee
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.transport.engine import as_engine
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import Leakage


def draw_seed(state: np.random.RandomState) -> int:
    """Draw the seed of public starts."""
    return int(state.randint(2**31 - 1))


def _count_rows(source: Source) -> int:
    """Return the number of rows, without people who are projected and not fitted."""
    if source.weights is None or not isinstance(source.X, Genotypes):
        return source.n
    return int(np.count_nonzero(source.weights))


class SiteFit:
    """Runs a federated study over the tables of sites, and keeps what it took.

    A subclass returns the parameters of its study from ``_study_parameters``, and takes its
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
        sites = name_sites("sites", sites)
        split = self._study_parameters()["split"]
        check_split(split, keys, sample_weight, features)
        if split == "features":
            sources, names = as_column_sources(sites, name_sites("keys", keys))
            self.n_features_in_ = sum(source.d for source in sources.values())
        else:
            weights = name_sites("sample_weight", sample_weight)
            sources = as_sources(sites, weights=weights, features=features)
            first = next(iter(sources.values()))
            self.n_features_in_, names = first.d, first.names
        self.__dict__.pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = np.asarray(names, dtype=object)
        dtype = np.result_type(*(source.X.dtype for source in sources.values()))
        conditions = Conditions(
            name_sites("policies", policies),
            name_sites("ledgers", ledgers),
            name_sites("datasets", datasets),
            {str(name) for name in filtered},
            deadline_s,
            callback,
        )
        return self._fit(sources, dtype, conditions=conditions, by_site=by_site)

    def _take_sources(self, sources: dict[str, Source]) -> None:
        """Set attributes that follow from rows alone, which no message has carried."""

    def _draw_seed(self) -> int:
        """Return the seed of public starts."""
        return draw_seed(np.random.RandomState(self._study_parameters()["random_state"]))

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
        privacy, seed = parameters["privacy"], self._draw_seed()
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
            seed,
            isinstance(parameters["random_state"], Integral),
        )
        if parameters["transcript"] is None:
            outcome = run_once(setting)
        else:
            outcome = run_recorded(setting, parameters["transcript"])
        found, self.n_samples_, self._growing = outcome.found, n, growing
        if growing is not None:
            found = growing.correct(found, scaled=bool(study.scale), tol=study.tol)
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
        parent: Any = super()
        state: dict[str, Any] = dict(parent.__getstate__())
        grown = state.pop("_growing", None) is not None
        return _without_digests(state | ({"_is_copy": True} if grown else {}))


def _without_digests(state: dict[str, Any]) -> dict[str, Any]:
    """Return an estimator's state without the digests of replies.

    A digest would confirm a guess at what left a site.
    """
    if "egress_" not in state:
        return state
    kept = {
        site: tuple(replace(entry, digest="") for entry in left)
        for site, left in state["egress_"].items()
    }
    return state | {"egress_": kept}
