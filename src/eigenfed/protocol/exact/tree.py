"""Summaries merged in a tree of regions, without waiting for anyone ([Grammenos2020] Alg. 1).

===========  ==================================================================================
region       from each leaf: the newest summary of all its rows so far, with a version
leaf         nothing
===========  ==================================================================================

A region is a leaf of its parent. A summary replaces the one that its leaf sent before, so that
reports may be late, lost or repeated.
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
        From 1, higher for every newer summary, also after a restart of the leaf; the number of
        rows seen will do.
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
    """Merges the newest summaries of its leaves, and has a result at any time.

    Parameters
    ----------
    name : str
        The region's own name as a leaf of its parent.
    rank : int
        Number of directions its summary keeps; twice as many as are wanted at the root.

    Examples
    --------
    Three devices report to a region, and the region to the root:

    >>> import numpy as np
    >>> from eigenfed import Region, RegionReport, StreamingPCA
    >>> rng = np.random.default_rng(0)
    >>> root, north = Region("root", rank=4), Region("north", rank=4)
    >>> for device in ("a", "b", "c"):
    ...     stream = StreamingPCA(2).fit(rng.standard_normal((100, 5)) * [5, 3, 1, 1, 1])
    ...     news = north.receive(RegionReport(device, stream.n_samples_seen_, stream.summary_))
    >>> root.receive(north.report())
    True
    >>> root.summary().n
    300.0

    The same report again changes nothing:

    >>> root.receive(north.report())
    False

    A summary is shown as components by a stream that takes it in:

    >>> StreamingPCA(2).merge(root.summary()).components_.shape
    (2, 5)
    """

    def __init__(self, name: str, rank: int) -> None:
        _check_name("name", name)
        check_count("rank", rank, "Keep one direction or more.")
        self.name = name
        self.rank = rank
        self._newest: dict[str, RegionReport] = {}

    @property
    def leaves(self) -> tuple[str, ...]:
        """Names of the leaves that have reported, sorted."""
        return tuple(sorted(self._newest))

    def receive(self, report: RegionReport) -> bool:
        """Take a report; return whether it was newer than the one before.

        A version that is not above the one before is ignored: it is a duplicate or late.

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
                f"No leaf of region {self.name!r} has reported yet. Wait for the first report."
            )
        merged = Summary.empty(parts[0].d, self.rank, centered=parts[0].centered)
        for part in parts:
            merged = merged.merge(part)
        return merged

    def report(self) -> RegionReport:
        """Return the report of this region as a leaf of its parent.

        The version is the sum of the leaves' versions. It grows with every newer report, does not
        depend on the order of arrival, and is safe for a region that restarts empty: its parent
        keeps the older, fuller report until the leaves have reported again.

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
        raise InputError(f"{argument}={value!r} must be a non-empty string. Give it a name.")
