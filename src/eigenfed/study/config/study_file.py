"""A study as its file describes it: what the sites agree to compute."""

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenfed.errors import DataError
from eigenfed.privacy.guarantee import Privacy
from eigenfed.protocol.method import Method
from eigenfed.protocol.study import Study
from eigenfed.study.config.study_table import ExpectedTable, StudyTable
from eigenfed.study.config.toml_errors import Problem, make_error, reporting, validate
from eigenfed.study.config.toml_text import Document, read_document, read_text


@dataclass(frozen=True)
class Expected:
    """What a study expects of its sites, for a plan.

    Attributes
    ----------
    rows : dict of str to int, or None
    features : int or None
    latency_ms, bandwidth_mbps : float or None
    decay : float or None
        Ratio of each eigenvalue to the one before it.
    spectrum : tuple of float, or None
        Decreasing eigenvalues, of which only the ratios matter.
    """

    rows: dict[str, int] | None = None
    features: int | None = None
    latency_ms: float | None = None
    bandwidth_mbps: float | None = None
    decay: float | None = None
    spectrum: tuple[float, ...] | None = None


@dataclass(frozen=True)
class StudyFile:
    """The content of a study file; `StudyTable` has the meaning of each key.

    Attributes
    ----------
    path : Path
        The file.
    name : str
    sites : tuple of str
    components : int
    method : Method or "auto"
    center, scale, secure, by_site : bool
    features : str or tuple of str
        "same", "common" or names, from ``features`` or from ``manifest``.
    quorum : int
    deadline_s : float or None
    engine : str
    seed : int or None
    privacy : Privacy or None
    expected : Expected or None
    """

    path: Path
    name: str
    sites: tuple[str, ...]
    components: int
    method: Method | str
    center: bool
    scale: bool
    secure: bool
    features: str | tuple[str, ...]
    by_site: bool
    quorum: int
    deadline_s: float | None
    engine: str
    seed: int | None
    privacy: Privacy | None
    expected: Expected | None

    @property
    def study(self) -> Study:
        """What the sites approve; people compare its digest."""
        names = () if isinstance(self.features, str) else self.features
        return Study(
            tuple(sorted(self.sites)),
            self.components,
            self.method,
            name=self.name,
            center=self.center,
            scale=self.scale,
            secure=self.secure,
            by_site=self.by_site,
            privacy=self.privacy,
            features=_hash_names(names) if names else "",
        )


def read_study(path: str | Path) -> StudyFile:
    r"""Read the file of a study.

    Parameters
    ----------
    path : path

    Returns
    -------
    StudyFile

    Raises
    ------
    InputError
        If the file, or one that it names, cannot be opened.
    DataError
        If it breaks a rule; the error names the file, the line, the key, the rule and the remedy.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "study.toml")
    ...     _ = path.write_text('name = "heart"\nsites = ["a", "b"]\ncomponents = 2\n')
    ...     study = read_study(path)
    >>> study.method, study.features, study.quorum, study.privacy
    ('auto', 'same', 2, None)
    """
    path = Path(path)
    document = read_document(path)
    table = validate(StudyTable, document)
    _check_numbers(document, table)
    values: dict[str, Any] = dict(table)
    manifest = values.pop("manifest")
    if manifest is not None:
        values["features"] = _read_manifest(path.parent / manifest)
    values["quorum"] = table.quorum or len(table.sites)
    values["expected"] = _resolve_expected(path, table.expected)
    return StudyFile(path, **values)


def _check_numbers(document: Document, table: StudyTable) -> None:
    """Refuse what JSON schema cannot express, as it takes the number or the names of the sites."""
    most = len(table.sites)
    problems = []
    if table.quorum is not None and table.quorum > most:
        text = (
            f"quorum = {table.quorum} must be at most {most}, the number of sites. Lower it, or "
            "leave it out to wait for all sites."
        )
        problems.append(Problem(text, ("quorum",)))
    rows = {} if table.expected is None else table.expected.rows or {}
    for name in sorted(rows.keys() - set(table.sites)):
        text = (
            f"expected.rows names {name!r}, which is not in sites. Remove it, or add it to sites."
        )
        problems.append(Problem(text, ("expected", "rows")))
    if problems:
        raise make_error(document, problems)
    if table.privacy is not None:
        with reporting(document, "privacy"):
            table.privacy.check_sites(most, 2 * most // 3 + 1)


def _resolve_expected(path: Path, table: ExpectedTable | None) -> Expected | None:
    if table is None:
        return None
    spectrum = None if table.spectrum is None else read_spectrum(path.parent / table.spectrum)
    return Expected(**dict(table) | {"spectrum": spectrum})


def _read_manifest(path: Path) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if not names:
        raise DataError(f"{path} names no feature. Write the name of one feature per line.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(
            f"{path} names the feature {repeated[0][:80]!r} more than once. Name it once."
        )
    return names


def read_spectrum(path: Path) -> tuple[float, ...]:
    r"""Read a file with one eigenvalue per line, the largest first.

    Raises
    ------
    InputError
        If the file cannot be opened.
    DataError
        If a line is something else. It is not quoted.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "spectrum.txt")
    ...     _ = path.write_text("4.0\n2\n0.5\n")
    ...     read_spectrum(path)
    (4.0, 2.0, 0.5)
    """
    values: list[float] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        value = _parse_number(line)
        if not 0.0 <= value < math.inf or (values and value > values[-1]):
            raise DataError(
                f"{path}:{number}: the line must be a number of at least 0 and at most the one "
                "before it. Write one eigenvalue per line, the largest first."
            )
        values.append(value)
    if not values or not values[0]:
        raise DataError(f"{path} has no eigenvalue above 0. Write one per line.")
    return tuple(values)


def _parse_number(line: str) -> float:
    try:
        return float(line)
    except ValueError:
        return math.nan


def _hash_names(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()
