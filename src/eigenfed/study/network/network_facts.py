"""What a network folder or a document holds: names and fingerprints, for people to compare."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from eigenfed.errors import InputError
from eigenfed.study.config import read_site, read_study
from eigenfed.study.config.toml_text import read_document
from eigenfed.study.network.documents import read_bytes, read_kind
from eigenfed.study.network.invitations import read_admission, read_invitation, read_request
from eigenfed.study.network.key_files import (
    fingerprint_coordinator,
    fingerprint_site,
    fingerprint_study,
    read_identity,
)
from eigenfed.study.network.network_folder import (
    COORDINATOR_KEY,
    INVITATION,
    MEMBERS,
    REQUEST,
    SITE_KEY,
    coordinator_folder,
    no_keys_error,
)
from eigenfed.study.network.roster_file import ROSTER, NetworkRoster, read_roster


@dataclass(frozen=True)
class Fact:
    """A fingerprint.

    Attributes
    ----------
    file : str
        Path of the file that it is from.
    what : str
        What has this fingerprint.
    fingerprint : str
    """

    file: str
    what: str
    fingerprint: str


def list_facts(path: Path) -> list[Fact]:
    """Return the fingerprints of all that a file or a folder holds.

    Parameters
    ----------
    path : Path
        An invitation, a request to join, a roster, a study file or site file with its network
        folder beside it, or a network folder.

    Raises
    ------
    InputError
        If it is none of these, or holds nothing.
    DataError
        If a document was changed.
    """
    if path.is_dir():
        return _list_folder(path)
    if path.suffix != ".toml":
        return _list_document(path)
    if "data" in read_document(path).data:
        return _list_folder(read_site(path).network)
    study = read_study(path)
    fingerprint = fingerprint_study(study.study.digest)
    return [Fact(str(path), "study", fingerprint), *_list_folder(coordinator_folder(study))]


def _list_folder(folder: Path) -> list[Fact]:
    found: list[Fact] = []
    for name in (COORDINATOR_KEY, SITE_KEY, INVITATION, REQUEST, ROSTER):
        if (folder / name).exists():
            found += _list_document(folder / name)
    for member in sorted((folder / MEMBERS).glob("*.json")):
        found += _list_document(member)
    if not found:
        raise no_keys_error(folder)
    return found


def _list_document(path: Path) -> list[Fact]:
    if path.suffix == ".key":
        return [_describe_key(path)]
    kind = read_kind(read_bytes(path))
    if kind not in _DOCUMENTS:
        raise InputError(
            f"{path} is not a document of a network. Pass an invitation, a request to join, a "
            "roster, a study file, a site file or a network folder."
        )
    found = _DOCUMENTS[kind](path)
    return [Fact(str(path), what, fingerprint) for what, fingerprint in found]


def _describe_key(path: Path) -> Fact:
    """Return the fingerprint of a private key's public half; of a site, its name is needed."""
    public = read_identity(path).public
    if path.name == COORDINATOR_KEY:
        return Fact(str(path), "this coordinator", fingerprint_coordinator(public))
    site = read_request(path.with_name(REQUEST)).site
    return Fact(str(path), f"this site, {site}", fingerprint_site(site, public))


_Found = list[tuple[str, str]]


def _describe_invitation(path: Path) -> _Found:
    return [("coordinator", read_invitation(path).fingerprint)]


def _describe_request(path: Path) -> _Found:
    request = read_request(path)
    return [
        (f"site {request.site}", request.fingerprint),
        ("coordinator", fingerprint_coordinator(request.coordinator)),
    ]


def _describe_roster(roster: NetworkRoster) -> _Found:
    return [
        ("roster", roster.fingerprint),
        ("coordinator", fingerprint_coordinator(roster.coordinator)),
        *((f"site {name}", fingerprint_site(name, key)) for name, key in roster.sites.items()),
    ]


_DOCUMENTS: dict[str, Callable[[Path], _Found]] = {
    "invitation": _describe_invitation,
    "join request": _describe_request,
    "admission": lambda path: _describe_roster(read_admission(path).roster),
    "roster": lambda path: _describe_roster(read_roster(path)),
}
