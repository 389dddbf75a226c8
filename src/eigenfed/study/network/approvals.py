"""The studies that a site has approved: copies of their files, found by digest, and a log.

A site never takes a study from the network. It answers a run only if its own folder has a copy of
the run's study, which somebody at the site has put there.

::

    network/approved/<digest>.toml      the study file, complete
    network/approved/<digest>.txt       the names of its features, if it has a manifest
    network/approvals.jsonl             who approved or withdrew which study, and when
"""

import json
import os
import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import DataError, InputError
from eigenfed.study.config import SiteFile, StudyFile, read_study
from eigenfed.study.config.toml_text import format_value, read_document
from eigenfed.study.network.key_files import create_private_folder, fingerprint_study

_DIGEST = re.compile("[0-9a-f]{64}")
_LEFT_OUT = ("manifest", "features", "expected", "network", "engine")
"""Keys that a copy does not need: they are written otherwise, or not part of what is approved."""
_LONGEST_NAME = 200

Clock = Callable[[], datetime]


def _now() -> datetime:
    return datetime.now(UTC)


@dataclass(frozen=True)
class Approval:
    """An approved study.

    Attributes
    ----------
    study : StudyFile
        Read from the copy.
    digest : str
    """

    study: StudyFile
    digest: str

    @property
    def fingerprint(self) -> str:
        """Short form of the digest, for people."""
        return fingerprint_study(self.digest)


def approve_study(
    study: StudyFile, site: SiteFile, *, by: str = "", clock: Clock = _now
) -> Path:
    """Keep a copy of a study that the site agrees to, and record it in the log.

    Parameters
    ----------
    study : StudyFile
        Its file is read again for the copy.
    site : SiteFile
    by : str, optional
        Who approves it.
    clock : callable, optional
        Returns the time.

    Returns
    -------
    Path
        The copy.

    Raises
    ------
    InputError
        If the study does not name the site.
    DataError
        If the file has changed since it was read.
    PrivacyError
        If others can write to the site's network folder.
    """


def find_approved(site: SiteFile, digest: str) -> StudyFile | None:
    """Return the approved copy of a study, or None if the site has not approved it.

    Parameters
    ----------
    site : SiteFile
    digest : str
        `Study.digest`, 64 hexadecimal digits. Anything else is not approved.

    Raises
    ------
    DataError
        If the copy was changed.
    PrivacyError
        If others can write to the site's network folder.
    """


def list_approved(site: SiteFile) -> list[Approval]:
    """Return the approved studies, by name and digest."""


def withdraw_study(
    site: SiteFile, digest: str, *, by: str = "", clock: Clock = _now
) -> StudyFile:
    """Remove the approval of a study, record it in the log, and return the study.

    A run that is open does not end by it: stop the site for that.

    Raises
    ------
    InputError
        If it is not approved.
    """
