"""The files with which a study starts: one to send round, and one for each site to keep.

::

    study.toml               everybody reads it and signs it off
    sites/north/site.toml    north's own: its folder goes to north, and stays there
"""

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from eigenfed.errors import DataError, InputError
from eigenfed.privacy.guarantee import Privacy
from eigenfed.study.checking import checked
from eigenfed.study.keys import Table
from eigenfed.study.site_keys import SITE
from eigenfed.study.study_keys import NAME, STUDY
from eigenfed.study.toml import template

_MIN_ROWS = 10
_ROWS, _FEATURES = 1000, 120


@dataclass(frozen=True)
class Started:
    """What was written.

    Attributes
    ----------
    study : Path
    sites : dict of str to Path
    """

    study: Path
    sites: dict[str, Path]


def start_study(
    folder: Path,
    *,
    sites: Sequence[str],
    components: int,
    privacy: Privacy | None = None,
    force: bool = False,
) -> Started:
    """Write commented files for a new study.

    Parameters
    ----------
    folder : Path
        Made where it is not there.
    sites : sequence of str
    components : int
    privacy : Privacy, optional
    force : bool, default=False
        Replace files of these names.

    Raises
    ------
    InputError
        If the arguments make no study, or a file is there. Nothing is written then.

    Examples
    --------
    >>> import tempfile
    >>> from eigenfed.study.study_file import read_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     started = start_study(Path(home, "heart"), sites=["a", "b"], components=2)
    ...     study = read_study(started.study)
    >>> study.name, study.sites, study.components
    ('heart', ('a', 'b'), 2)
    """
    texts = {folder / "study.toml": _study(folder, sites, components, privacy)}
    own = {site: folder / "sites" / site / "site.toml" for site in sites}
    texts |= {path: _site(site, privacy) for site, path in own.items()}
    there = [path for path in texts if path.exists()]
    if there and not force:
        raise InputError(
            f"{there[0]} is there, and nothing is overwritten. Name another folder, or pass "
            "--force to replace it."
        )
    folder.mkdir(parents=True, exist_ok=True)
    for path, text in texts.items():
        is_private = path in own.values()
        path.parent.mkdir(mode=0o700 if is_private else 0o777, parents=True, exist_ok=True)
        _write(path, text, 0o600 if is_private else 0o666, force)
    return Started(folder / "study.toml", own)


def _study(folder: Path, sites: Sequence[str], components: int, privacy: Privacy | None) -> str:
    name = folder.resolve().name
    values = {
        "name": name if re.fullmatch(NAME.pattern, name) else "study",
        "sites": list(sites),
        "components": components,
        "method": "auto",
        "center": True,
        "scale": False,
        "secure": False,
        "features": "same",
        "by_site": privacy is None,
    }
    if privacy is not None:
        values |= {"privacy.epsilon": privacy.epsilon, "privacy.delta": privacy.delta}
    examples = {
        "quorum": len(sites),
        "expected.rows": dict.fromkeys(sites, _ROWS),
        "expected.features": _FEATURES,
    }
    return _sound(STUDY, values, examples)


def _site(name: str, privacy: Privacy | None) -> str:
    values = {
        "name": name,
        "data": f"{name}.csv",
        "ledger": f"{name}.ledger",
        "dataset": "data",
        "share_scores": False,
        "policy.min_rows": _MIN_ROWS,
    }
    if privacy is not None:
        values |= {
            "policy.budget.epsilon": privacy.epsilon,
            "policy.budget.delta": privacy.delta,
        }
    return _sound(SITE, values, {})


def _sound(table: Table, values: Mapping[str, Any], examples: Mapping[str, Any]) -> str:
    """Write a file as text, and refuse arguments with which it would break a rule."""
    text = template(table, values, examples)
    fault = ""
    try:
        checked(Path("study.toml" if table is STUDY else "site.toml"), tomllib.loads(text), table)
    except DataError as error:
        fault = str(error)
    if fault:
        raise InputError(fault)
    return text


def _write(path: Path, text: str, mode: int, force: bool) -> None:
    def private(name: str, flags: int) -> int:
        return os.open(name, flags, mode)

    with open(path, "w" if force else "x", encoding="utf-8", opener=private) as file:
        if mode == 0o600:
            # A file that is replaced keeps the mode it had.
            os.fchmod(file.fileno(), mode)
        file.write(text)
