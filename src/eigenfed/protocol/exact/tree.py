"""The asynchronous tree of [Grammenos2020] Alg. 1: regions merge the reports of their leaves.

===========  ==================================================================================
region       from each leaf alone: its newest summary, with its name and version
leaf         nothing is sent back
===========  ==================================================================================

A leaf is a device with a stream, or another region: a region is a coordinator to its leaves and a
leaf to its parent, at any depth. Leaves report at their own pace and nothing waits for them. The
newest report of a leaf replaces the one before, so duplicates, late arrivals and resent reports
change nothing, and a lost leaf only means older data. Alg. 1 merges updates into one another as
they arrive, which counts a report twice if it is sent twice; replacing needs memory for one summary
per leaf, of the order of leaves x d x rank.

A report reveals what the operation `summarise` of `exact.merge` declares for a site. This module
contains only the mathematics: code that sends a report out of a site must meter it there.
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Container, Scalar
from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.summary import Summary

_KIND, _FORMAT = "report", 1
_FIELDS = {"leaf": str, "version": int}


@dataclass(frozen=True, eq=False)
class RegionReport:
    """The summary of a leaf at one moment.

    Attributes
    ----------
    leaf : str
        Name of the leaf, unique among the leaves of its region.
    version : int
        At least 1, and higher for every newer summary, also after a restart of the leaf; for
        example the number of blocks it has seen.
    summary : Summary
        Of all rows of the leaf so far, not only of those since the last report.

    Examples
    --------
    >>> from eigenfed import Summary
    >>> summary = Summary.empty(d=2, rank=1).update([[1.0, 2.0], [3.0, 4.0]])
    >>> RegionReport.from_bytes(RegionReport("meter-7", 1, summary).to_bytes()).summary.mean
    array([2., 3.])
    """

    leaf: str
    version: int
    summary: Summary

    def __post_init__(self) -> None:
        _check_name("leaf", self.leaf)
        check_count("version", self.version, "Count reports from 1.")

    def to_bytes(self) -> bytes:
        """Serialise: versioned, with a checksum, without pickle."""
        inside = np.frombuffer(self.summary.to_bytes(), np.uint8)
        labels: dict[str, Scalar] = {"leaf": self.leaf, "version": int(self.version)}
        return Container(_KIND, _FORMAT, labels, {"summary": inside}).to_bytes()

    @classmethod
    def from_bytes(cls, data: bytes) -> "RegionReport":
        """Read a report written by `to_bytes`.

        Raises
        ------
        DataError
            If the bytes are not a report, are truncated, corrupt, of another format, or hold an
            invalid name, version or summary.
        """
        container = Container.from_bytes(data, kind=_KIND, version=_FORMAT)
        fields, arrays = container.scalars, container.arrays
        inside = arrays.get("summary", np.zeros(0))
        if (
            {name: type(value) for name, value in fields.items()} != _FIELDS
            or arrays.keys() != {"summary"}
            or inside.dtype != np.uint8
        ):
            raise DataError(
                "The report has missing or unknown fields. Use the same release everywhere."
            )
        summary = Summary.from_bytes(inside.tobytes())
        try:
            return cls(str(fields["leaf"]), int(fields["version"]), summary)
        except InputError as error:
            raise DataError(f"The data are not a valid report. {error}") from error


class Region:
    """Merges the newest summaries of its leaves, at any time.

    Parameters
    ----------
    name : str
        The region's own name as a leaf of its parent.
    rank : int
        Number of directions its summary keeps; twice as many as are wanted at the root.

    Examples
    --------
    >>> from eigenfed import Summary
    >>> region, empty = Region("north", rank=2), Summary.empty(d=2, rank=2)
    >>> first = RegionReport("a", 1, empty.update([[1.0, 2.0]]))
    >>> second = RegionReport("a", 2, empty.update([[1.0, 2.0], [3.0, 5.0]]))
    >>> [region.receive(report) for report in (first, second, first, second)]
    [True, True, False, False]
    >>> region.summary().n, region.report().version
    (2.0, 2)
    """

    def __init__(self, name: str, rank: int) -> None:
        _check_name("name", name)
        check_count("rank", rank, "Keep one direction or more.")
        self.name = name
        self.rank = rank
        self._newest: dict[str, RegionReport] = {}

    @property
    def leaves(self) -> tuple[str, ...]:
        """Sorted names of the leaves that have reported."""
        return tuple(sorted(self._newest))

    def receive(self, report: RegionReport) -> bool:
        """Accept a report; return whether it is newer than the one held.

        A version not above the one held is ignored: it is a duplicate or late.

        Raises
        ------
        DataError
            If its summary does not match those of the other leaves. Nothing is changed then.
        """
        self._check_fits(report)
        held = self._newest.get(report.leaf)
        if held is not None and report.version <= held.version:
            return False
        self._newest[report.leaf] = report
        return True

    def summary(self) -> Summary:
        """Merge the newest summaries, in sorted order of leaves.

        The result depends only on the newest reports, not on their order of arrival, to the bit.

        Raises
        ------
        ProtocolError
            If no leaf has reported yet.
        """
        parts = [self._newest[leaf].summary for leaf in self.leaves]
        if not parts:
            raise ProtocolError(
                f"Region {self.name!r} has no report from any leaf. Wait for the first."
            )
        merged = Summary.empty(parts[0].d, self.rank, centered=parts[0].centered)
        for part in parts:
            merged = merged.merge(part)
        return merged

    def report(self) -> RegionReport:
        """Return a report to the parent, as one of its leaves.

        The version is the sum of the leaves' versions. It grows with every new report, does not
        depend on the order of arrival, and is safe if a region restarts empty: its parent keeps
        the older, more complete report until the leaves have reported again.

        Raises
        ------
        ProtocolError
            If no leaf has reported yet.
        """
        version = sum(report.version for report in self._newest.values())
        return RegionReport(self.name, version, self.summary())

    def _check_fits(self, report: RegionReport) -> None:
        other = next((r for leaf, r in self._newest.items() if leaf != report.leaf), None)
        if other is None:
            return
        here, there = report.summary, other.summary
        if here.d != there.d or here.centered != there.centered:
            raise DataError(
                f"The report of leaf {report.leaf!r} has {here.d} features, "
                f"centered={here.centered}, where leaf {other.leaf!r} has {there.d}, "
                f"centered={there.centered}. Use the same features and centring everywhere."
            )


def _check_name(argument: str, value: str) -> None:
    if not isinstance(value, str) or not value:
        raise InputError(f"{argument}={value!r} must be a non-empty string. Pass a name.")
