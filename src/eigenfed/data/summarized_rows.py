"""A summary in place of rows: what a site has whose stream, or whose region, is summarised."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from eigenfed.data.source import Source
from eigenfed.errors import DataError
from eigenfed.linalg.summary import Summary

SUFFIX = ".summary"


@dataclass(frozen=True, eq=False, repr=False)
class SummarizedRows:
    """Rows of which only a summary is left.

    It stands where a `Source` has a table. No row can be read; operations that need rows fail.

    Attributes
    ----------
    summary : Summary

    Examples
    --------
    >>> rows = SummarizedRows(Summary.empty(2, rank=1).update([[1.0, 2.0], [3.0, 4.0]]))
    >>> Source(rows).n, Source(rows).d
    (2, 2)
    """

    summary: Summary

    @property
    def shape(self) -> tuple[int, int]:
        """The weight of the rows, rounded down, and the number of features."""
        return int(self.summary.n), self.summary.d

    @property
    def size(self) -> int:
        """Number of numbers that the summary holds."""
        return self.summary.vt.size + self.summary.s.size + self.summary.d

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the summary's bytes, in hexadecimal."""
        return hashlib.sha256(self.summary.to_bytes()).hexdigest()


def assume_summary(n: int, d: int) -> Source:
    """Return a source whose summary has n rows and d features, and nothing else."""
    return Source(SummarizedRows(replace(Summary.empty(d, rank=1), n=float(n))))


def read_summary(data: bytes, path: Path, features: Sequence[str]) -> SummarizedRows:
    """Read a summary that ``eigenfed stream`` or a region wrote, with the features of a study.

    Parameters
    ----------
    data : bytes
    path : Path
        For messages.
    features : sequence of str
        Names of the features, in the order of the study. A summary without names must have as
        many, in this order.

    Raises
    ------
    DataError
        If it is not a summary, is not centred, or has other features.
    """
    try:
        summary = Summary.from_bytes(data)
    except DataError as error:
        raise DataError(f"{path}: {error}") from None
    if not summary.centered:
        raise DataError(
            f"{path} was made with --no-center, and the study centres rows. Make it again without."
        )
    if summary.d != len(features):
        raise DataError(
            f"{path} has {summary.d} features and the study has {len(features)}. Make a summary of "
            "the columns that the study lists."
        )
    if summary.names is None:
        return SummarizedRows(summary.with_names(features))
    places = {name: place for place, name in enumerate(summary.names)}
    absent = [name for name in features if name not in places]
    if absent:
        raise DataError(
            f"{path} lacks {len(absent)} of the {len(features)} features of the study by name. "
            "Make a summary of the columns that the study lists."
        )
    return SummarizedRows(summary.reorder([places[name] for name in features]))
