"""The network folder of a coordinator or a site: what it holds, and what is kept there.

::

    coordinator, beside study.toml       site, beside site.toml
    network/coordinator.key              network/site.key
    network/invitation.json              network/invitation.json, request.json
    network/members/<site>.json
    network/roster.json                  network/roster.json
                                         network/approved/, approvals.jsonl
    network/authority/, server/          network/kit/               (NVFLARE only)
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from eigenfed.errors import InputError, PrivacyError
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.study.config import StudyFile
from eigenfed.study.network.invitations import Invitation, JoinRequest, read_invitation
from eigenfed.study.network.key_files import create_identity, read_identity, same_fingerprint

COORDINATOR_KEY, SITE_KEY = "coordinator.key", "site.key"
INVITATION, REQUEST, MEMBERS = "invitation.json", "request.json", "members"
AUTHORITY, SERVER_KIT, SITE_KIT = "authority", "server", "kit"


def coordinator_folder(study: StudyFile) -> Path:
    """Return the network folder of a coordinator: ``network`` beside the study file."""
    return study.path.parent / "network"


def no_keys_error(folder: Path) -> InputError:
    """Return the error for a folder in which nothing of a network was made yet."""
    return InputError(
        f"{folder} holds no keys. Run eigenfed network init (coordinator) or eigenfed network "
        "join (site) first."
    )


@contextmanager
def lock_folder(folder: Path) -> Iterator[None]:
    """Hold a network folder for one process: two would answer, and write, for the same site.

    Raises
    ------
    InputError
        If another process has it, or it does not exist.
    """
    if not folder.is_dir():
        raise no_keys_error(folder)
    file = os.open(folder / ".lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise InputError(
                f"Another process uses {folder}. Stop it first, or wait until it is done."
            ) from None
        yield
    finally:
        os.close(file)


def load_kits() -> Any:
    """Return the module that makes certificates and kits of NVFLARE."""
    return import_module("eigenfed.transport.nvflare.kits")


def read_or_create_identity(path: Path) -> Identity:
    """Return the key of a file, which is made if it does not exist."""
    return read_identity(path) if path.exists() else create_identity(path)


def read_kept_invitation(path: Path) -> Invitation | None:
    """Return the invitation that is kept in a file, or None if there is no file."""
    return read_invitation(path) if path.exists() else None


def check_fingerprint(typed: str, expected: str, whose: str) -> None:
    """Refuse data whose fingerprint is not the one that its owner has read out.

    Parameters
    ----------
    typed, expected : str
    whose : str
        What has the expected fingerprint, for the message.
    """
    if same_fingerprint(typed, expected):
        return
    given = f"and not {typed[:40]!r}" if typed else "and none was given"
    raise PrivacyError(
        f"The fingerprint of {whose} is {expected}, {given}. Call the people who sent it and "
        "compare: if theirs differs from the one in the file, the file is not theirs."
    )


def changed_key(
    what: str, before: Invitation | JoinRequest, after: Invitation | JoinRequest
) -> PrivacyError:
    """Return the error of a key that differs from the one that is kept."""
    return PrivacyError(
        f"{what} has changed from {before.fingerprint} to {after.fingerprint}. Call its owner: "
        "only if a new key was made on purpose, run this again with --replace and the new "
        "fingerprint."
    )
