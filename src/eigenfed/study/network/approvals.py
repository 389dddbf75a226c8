"""The studies that a site has approved: copies of their files, found by digest, and a log.

A site never takes a study from the network. It answers a run only if its own folder has a copy of
the run's study, which somebody at the site has put there.

::

    network/approved/<digest>.toml      the study file, complete
    network/approved/<digest>.txt       the names of its features, if it has a manifest, or
    network/approved/<digest>.bim       its variants
    network/approvals.jsonl             who approved or withdrew which study, and when
"""

import errno
import json
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from eigenfed.data.safe_files import parse_strict_json, write_at_once
from eigenfed.errors import DataError, InputError
from eigenfed.study.config import SiteFile, StudyFile, read_study
from eigenfed.study.config.toml_text import format_value, read_document, read_text
from eigenfed.study.network.key_files import (
    check_private_folder,
    create_private_folder,
    fingerprint_study,
)

_DIGEST = re.compile("[0-9a-f]{64}")
_LEFT_OUT = ("manifest", "features", "expected", "network", "engine")
"""Keys that a copy does not need: they are written otherwise, or not part of what is approved."""
_LONGEST_NAME = 200
_LARGEST_LOG = 64 << 20
_LOGGED = {"time", "by", "action", "study", "digest"}

APPROVED, LOG = "approved", "approvals.jsonl"

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


def approve_study(study: StudyFile, site: SiteFile, *, by: str = "", clock: Clock = _now) -> Path:
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

    Examples
    --------
    >>> import tempfile
    >>> from eigenfed.study.config import read_site, start_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     started = start_study(Path(home, "heart"), sites=["a", "b"], components=2)
    ...     study, site = read_study(started.study), read_site(started.sites["a"])
    ...     _ = approve_study(study, site, by="E. Hansen")
    ...     find_approved(site, study.study.digest).name
    'heart'
    """
    check_member(study, site)
    digest = study.study.digest
    folder = site.network / APPROVED
    create_private_folder(site.network)
    create_private_folder(folder)
    record = _describe_by(by)
    keys = {key: value for key, value in _read_keys(study).items() if key not in _LEFT_OUT}
    if study.manifest is not None and study.matches_variants:
        keys["manifest"] = f"{digest}.bim"
        write_at_once(folder / f"{digest}.bim", study.manifest.read_bytes())
    elif study.manifest is not None:
        keys["manifest"] = f"{digest}.txt"
        write_at_once(folder / f"{digest}.txt", "\n".join(study.features).encode())
    elif not isinstance(study.features, str):
        keys["features"] = list(study.features)
    lines = [f"{key} = {format_value(value)}\n" for key, value in keys.items()]
    copy, new = folder / f"{digest}.toml", folder / f".{digest}.new"
    try:
        write_at_once(new, "".join(lines).encode())
        if read_study(new).study.digest != digest:
            raise DataError(f"{study.path} has changed since it was read. Approve it again.")
        # The log comes first: a study that is answered is in the log, whatever fails here.
        _append(site, record | {"action": "approved", "study": study.name, "digest": digest}, clock)
        new.replace(copy)
    except BaseException:
        new.unlink(missing_ok=True)
        raise
    return copy


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
    copy = site.network / APPROVED / f"{digest}.toml"
    if not _DIGEST.fullmatch(digest) or not copy.exists():
        return None
    check_private_folder(site.network)
    check_private_folder(copy.parent)
    study = read_study(copy)
    if study.study.digest != digest:
        raise DataError(
            f"{copy} was changed after it was approved. Remove it, and approve the study again."
        )
    return study


def list_approved(site: SiteFile) -> list[Approval]:
    """Return the approved studies, by name and digest."""
    found = ((digest, find_approved(site, digest)) for digest in list_digests(site))
    approvals = [Approval(study, digest) for digest, study in found if study is not None]
    return sorted(approvals, key=lambda approval: (approval.study.name, approval.digest))


def list_digests(site: SiteFile) -> list[str]:
    """Return the digests of the approved studies, without reading them."""
    return sorted(path.stem for path in (site.network / APPROVED).glob("*.toml"))


def read_log(site: SiteFile) -> list[dict[str, Any]]:
    """Return what was approved and withdrawn, when and by whom, the earliest first.

    Raises
    ------
    DataError
        If the log is damaged.
    """
    path = site.network / LOG
    if not path.exists():
        return []
    lines = read_text(path, largest=_LARGEST_LOG).splitlines()
    try:
        events = [parse_strict_json(line) for line in lines]
    except ValueError:
        events = [None]
    if not all(isinstance(event, dict) and set(event) == _LOGGED for event in events):
        raise DataError(f"{path} is damaged. Restore it from a backup, or move it away.")
    return events


def withdraw_study(site: SiteFile, digest: str, *, by: str = "", clock: Clock = _now) -> StudyFile:
    """Remove the approval of a study, record it in the log, and return the study.

    Nothing more is answered, also in a run that is open.

    Raises
    ------
    InputError
        If it is not approved.
    """
    study = find_approved(site, digest)
    if study is None:
        raise InputError(
            f"The site {site.name!r} has not approved a study with the digest {digest[:80]}. "
            f"Run eigenfed site show {site.path} to see those that it has."
        )
    record = _describe_by(by)
    _remove(site, digest)
    _append(site, record | {"action": "withdrawn", "study": study.name, "digest": digest}, clock)
    return study


def check_member(study: StudyFile, site: SiteFile) -> None:
    """Refuse a study that does not name a site."""
    if site.name not in study.sites:
        raise InputError(
            f'{site.path}: name = "{site.name}" is not one of the sites of {study.path}: '
            f"{', '.join(study.sites)}. Check that both files belong together."
        )


def _read_keys(study: StudyFile) -> Mapping[str, Any]:
    return read_document(study.path).data


def _remove(site: SiteFile, digest: str) -> None:
    for suffix in ("toml", "txt", "bim"):
        (site.network / APPROVED / f"{digest}.{suffix}").unlink(missing_ok=True)


def _describe_by(by: str) -> dict[str, str]:
    if len(by) > _LONGEST_NAME or not by.isprintable():
        raise InputError(
            f"--by must be at most {_LONGEST_NAME} printable characters. Shorten the name."
        )
    return {"by": by}


def _append(site: SiteFile, record: dict[str, str], clock: Clock) -> None:
    line = json.dumps({"time": clock().isoformat(timespec="seconds"), **record}) + "\n"
    data = line.encode("ascii")
    file = os.open(site.network / LOG, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
    with open(file, "ab", buffering=0) as log:
        end = log.tell()
        try:
            if log.write(data) < len(data):
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(site.network / LOG))
            os.fsync(file)
        except OSError:
            # A line that a full disk has cut short would make all of the log unreadable.
            os.truncate(file, end)
            raise
