"""A study as its file says it: what the sites agreed to compute."""

import hashlib
import math
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenfed.errors import DataError, EigenfedError
from eigenfed.privacy.guarantee import Privacy
from eigenfed.protocol.method import Method
from eigenfed.protocol.study import Study
from eigenfed.study.checking import at_key, checked, read_text, read_toml
from eigenfed.study.study_keys import STUDY
from eigenfed.study.wording import STUDY_KEYS


@dataclass(frozen=True)
class Expected:
    """What a study expects of its sites, for a plan.

    Attributes
    ----------
    rows : dict of str to int, or None
    features : int or None
    latency_ms, bandwidth_mbps : float or None
    decay : float or None
        What share of the one before each eigenvalue is.
    spectrum : tuple of float, or None
        Falling eigenvalues, of which only the ratios matter.
    """

    rows: dict[str, int] | None = None
    features: int | None = None
    latency_ms: float | None = None
    bandwidth_mbps: float | None = None
    decay: float | None = None
    spectrum: tuple[float, ...] | None = None


@dataclass(frozen=True)
class StudyFile:
    """What a study file says; `eigenfed.study.study_keys` has the meaning of each key.

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
        "same", "common" or names, be they from ``features`` or from ``manifest``.
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
        """What the sites approve, whose digest people read to one another."""
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
            features=_digest_of(names) if names else "",
        )


def _digest_of(names: tuple[str, ...]) -> str:
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def read_study(path: str | Path) -> StudyFile:
    r"""Read a study file.

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
        If it breaks a rule; the error names the file, the key, the rule and the remedy.

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
    values = checked(path, read_toml(path), STUDY)
    privacy = _privacy(path, values["privacy"])
    _check_numbers(path, values, privacy)
    manifest = values.pop("manifest")
    if manifest is not None:
        values["features"] = _manifest(path.parent / manifest)
    return StudyFile(
        path,
        **values
        | {
            "quorum": values["quorum"] or len(values["sites"]),
            "privacy": privacy,
            "expected": _expected(path, values["expected"]),
        },
    )


def _privacy(path: Path, terms: dict[str, Any] | None) -> Privacy | None:
    if terms is None:
        return None
    with at_key(path, "[privacy]"):
        return Privacy(**terms)


def _check_numbers(path: Path, values: dict[str, Any], privacy: Privacy | None) -> None:
    """Refuse what only counting the sites can tell."""
    sites, quorum = values["sites"], values["quorum"]
    if quorum is not None and quorum > len(sites):
        raise DataError(
            f"{path}: quorum = {quorum} must be at most {len(sites)}, the number of sites. Lower "
            "it, or leave it out to wait for all."
        )
    if privacy is not None:
        fault = _fault_of_sites(privacy, len(sites))
        if fault:
            raise DataError(f"{path}: {fault}")
    unknown = sorted(set((values["expected"] or {}).get("rows") or ()) - set(sites))
    if unknown:
        raise DataError(
            f"{path}: expected.rows names {unknown[0]!r}, which is not one of sites. Take it out, "
            "or add it to sites."
        )


def _fault_of_sites(privacy: Privacy, sites: int) -> str:
    """Tell what is wrong with the numbers of sites that may collude or be lost."""
    try:
        privacy.check_sites(sites, 2 * sites // 3 + 1)
    except EigenfedError as error:
        return error.worded(STUDY_KEYS)
    return ""


def _expected(path: Path, given: dict[str, Any] | None) -> Expected | None:
    if given is None:
        return None
    spectrum = given.pop("spectrum")
    return Expected(
        **given, spectrum=None if spectrum is None else read_spectrum(path.parent / spectrum)
    )


def _manifest(path: Path) -> tuple[str, ...]:
    names = tuple(line.strip() for line in read_text(path).splitlines() if line.strip())
    if not names:
        raise DataError(f"{path} names no feature. Write the name of a feature a line.")
    twice = [name for name, times in Counter(names).items() if times > 1]
    if twice:
        raise DataError(f"{path} names the feature {twice[0][:80]!r} more than once. Name it once.")
    return names


def read_spectrum(path: Path) -> tuple[float, ...]:
    """Read a file with an eigenvalue a line, the largest first.

    Raises
    ------
    DataError
        If a line is something else.
    """
    values: list[float] = []
    for place, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        value = _number(line)
        if not 0.0 <= value < math.inf or (values and value > values[-1]):
            raise DataError(
                f"{path}: line {place} must be a number of at least 0 and at most the one before "
                "it. Write an eigenvalue a line, the largest first."
            )
        values.append(value)
    if not values or not values[0]:
        raise DataError(f"{path} has no eigenvalue above 0. Write one a line.")
    return tuple(values)


def _number(line: str) -> float:
    try:
        return float(line)
    except ValueError:
        return math.nan
