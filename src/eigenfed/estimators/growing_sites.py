"""Sites whose rows grow: each keeps a summary of what it has seen, and a fit runs over summaries.

A summary with the weight n, the mean m and r directions v with singular values s has the same
weight, mean and scatter as 2 r rows ``m +- sqrt(r / n) s v`` of the weight n / (2 r) each, and so
have r other rows with the same inner products in place of ``s v``. A site puts these behind its
gate in place of its rows, so that every method, secure aggregation and the certificate work as
ever, and rows that were seen can be forgotten.

Up to 512 features a summary holds the whole scatter, and the result is that of all rows at once to
rounding. Above that it holds twice as many directions as components, and what it misses is bounded:
the scatter of all rows exceeds that of the summaries by at most the sum of what they have lost.
The certificate of a fit is about the summaries, and is loosened by that and by their rounding.
"""

import math
from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.source import Source, stored
from eigenfed.errors import Argument, InputError, Pass
from eigenfed.estimators.groups import Rows
from eigenfed.linalg.scatter import count_updates
from eigenfed.linalg.stream import EXACT_FEATURES, Stream, StreamSettings
from eigenfed.linalg.summary import Summary, bound_rounding
from eigenfed.protocol.component_count import Components
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.accuracy import loosen_certificate

_BYTES_AT_A_TIME = 4 << 20
"""Memory of the rows that are taken from a table at once, as float64."""


@dataclass(frozen=True, eq=False)
class GrowingSites:
    """Summaries of the rows that sites have seen so far.

    Attributes
    ----------
    d : int
        Number of features.
    settings : StreamSettings
    streams : mapping of str to Stream

    Examples
    --------
    >>> sites = GrowingSites.begin(2, 1, centered=True)
    >>> sites = sites.add(np.array([[1.0, 0.0], [3.0, 0.0]]), None, {"a": slice(0, 2)})
    >>> sites.n_rows, sites.sources(None)["a"].totals().n
    (2, 2.0)
    """

    d: int
    settings: StreamSettings
    streams: Mapping[str, Stream]

    @classmethod
    def begin(cls, d: int, components: Components, *, centered: bool) -> "GrowingSites":
        """Return sites that have seen nothing."""
        if d <= EXACT_FEATURES:
            return cls(d, StreamSettings(d, 0, centered, exact=True), {})
        if not isinstance(components, int):
            raise InputError(
                Argument("n_components", components),
                f" must be an integer for partial_fit above {EXACT_FEATURES} features, where "
                "sites keep a number of directions",
                remedy="Pass an integer.",
            )
        return cls(d, StreamSettings(components, None, centered), {})

    def check_centered(self, centered: bool) -> None:
        """Refuse summaries of rows about a mean where others are needed, and the reverse."""
        if centered != self.settings.centered:
            raise InputError(
                "center was changed after rows were added, and those rows are gone. Set it back, "
                "or start anew with fit or clone."
            )

    def add(self, X: Any, weights: Array | None, rows: Mapping[str, Rows]) -> "GrowingSites":
        """Return the sites with the rows of a table that are theirs; these are not changed."""
        streams = dict(self.streams)
        for name, places in rows.items():
            known = streams.get(name)
            stream = Stream(self.d, self.settings) if known is None else deepcopy(known)
            for part in _split(places, X.shape[0], self.d):
                stream.push(X[part], None if weights is None else weights[part])
            streams[name] = stream
        return replace(self, streams=dict(sorted(streams.items())))

    @property
    def n_rows(self) -> int:
        """Number of rows seen."""
        return sum(stream.n_seen for stream in self.streams.values())

    def _summaries(self) -> dict[str, Summary]:
        found = {name: stream.summary() for name, stream in self.streams.items()}
        return {name: summary for name, summary in found.items() if summary.n > 0.0}

    def sources(self, names: Any) -> dict[str, Source]:
        """Return rows with the weight, mean and scatter of each summary.

        Parameters
        ----------
        names : sequence of str or None
            Of the features.
        """
        found = {
            name: _expand(summary, self.streams[name].factor(), names)
            for name, summary in self._summaries().items()
        }
        if not found:
            raise InputError(
                "sample_weight must not be zero for every row. Give some row a weight above 0."
            )
        return found

    def correct(self, found: Decomposition, *, scaled: bool, tol: float) -> Decomposition:
        """Return a result with the variance and the error that the summaries miss.

        Parameters
        ----------
        found : Decomposition
            Of the summaries.
        scaled : bool
            Whether features are scaled.
        tol : float
            Largest angle of a converged component, in degrees.
        """
        divisor = max(found.n - 1.0, 1.0)
        missed = sum(summary.missed for summary in self._summaries().values())
        if not self.settings.exact:
            found = replace(found, total_variance=found.total_variance + missed / divisor)
        grade = found.certificate
        if grade is None:
            return found
        largest = float(found.variances[0]) or 1.0
        error = self._bound_error(found.scale if scaled else None) / divisor / largest
        grade = loosen_certificate(grade, error, tol)
        return replace(found, certificate=replace(grade, total_variance=found.total_variance))

    def _bound_error(self, scale: Array | None) -> float:
        """Bound how far the scatter of all rows exceeds that of the summaries, up to a shift.

        What rounding has added is shifted to what it has lost. Infinite where directions were lost
        and features are scaled: their scales miss something too.
        """
        error = 0.0
        for name, summary in self._summaries().items():
            stream, mean, energy = self.streams[name], summary.mean, summary.energy
            if scale is not None:
                if summary.lost > 0.0:
                    return math.inf
                factor = stream.factor() / scale
                mean, energy = mean / scale, float(np.vdot(factor, factor))
            rows = stream.n_seen
            updates = count_updates(rows) if self.settings.exact else None
            rounding = bound_rounding(summary.n, mean, energy, len(summary.s), rows, updates)
            error += summary.lost + 2.0 * rounding
        return error


def check_growable(parameters: Mapping[str, Any], *, is_copy: bool) -> None:
    """Refuse to add rows where summaries do not suffice, or are not here.

    Parameters
    ----------
    parameters : mapping
        Those of `FederatedPCA`, by name.
    is_copy : bool
        Whether the estimator is a copy of one that holds summaries.
    """
    if is_copy:
        raise InputError(
            "This estimator is a copy, which does not hold the sites' summaries, so that no rows "
            "can be added. Continue with the original, or start anew with clone."
        )
    refused: dict[str, tuple[Any, str]] = {
        "privacy": (None, "every fit would spend the budget again"),
        "split": ("samples", "rows of single sites are not complete"),
        "transcript": (None, "each call is a run of its own"),
        "prepare": (None, "steps would have to be applied before"),
    }
    for name, (allowed, reason) in refused.items():
        if parameters[name] != allowed:
            raise InputError(
                f"partial_fit cannot be combined with {name}: {reason}",
                remedy=(Pass(name, allowed), "."),
            )


def check_complete(X: Any) -> None:
    """Refuse missing entries: the mean that they count as is not final."""
    if np.isnan(stored(X)).any():
        raise InputError(
            "X holds NaN, and partial_fit needs complete rows: the mean that counts for a missing "
            "entry changes as rows are added. Impute it first, or call fit on all rows."
        )


def _split(places: Rows, n: int, d: int) -> Iterator[Rows]:
    """Yield the places of some rows at a time, so that few of them are copied at once."""
    most = max(1, _BYTES_AT_A_TIME // (8 * d))
    if isinstance(places, slice):
        start, stop, step = places.indices(n)
        for first in range(start, stop, most * step):
            yield slice(first, min(first + most * step, stop), step)
    else:
        for first in range(0, len(places), most):
            yield places[first : first + most]


def _expand(summary: Summary, factor: Array, names: Any) -> Source:
    """Return rows with the weight and mean of a summary, and the inner products of `factor`."""
    count = len(factor)
    if not count:
        return Source(summary.mean[None].copy(), np.array([summary.n]), names)
    away = math.sqrt(count / summary.n) * factor
    rows = np.vstack([summary.mean + away, summary.mean - away])
    return Source(rows, np.full(2 * count, summary.n / (2 * count)), names)
