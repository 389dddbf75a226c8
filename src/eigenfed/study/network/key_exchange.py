"""The steps of a key exchange, at the coordinator and at the sites.

::

    coordinator, beside study.toml       site, beside site.toml
    network/coordinator.key              network/site.key
    network/invitation.json              network/invitation.json
    network/members/<site>.json
    network/roster.json                  network/roster.json
    network/authority/, server/          network/kit/           (NVFLARE only)
"""

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from eigenfed.study.config import SiteFile, StudyFile
from eigenfed.study.network.invitations import Admission, Invitation, JoinRequest
from eigenfed.study.network.roster_file import NetworkRoster

COORDINATOR_KEY = "coordinator.key"
SITE_KEY = "site.key"
INVITATION = "invitation.json"
MEMBERS = "members"
AUTHORITY, SERVER_KIT, SITE_KIT = "authority", "server", "kit"


def coordinator_folder(study: StudyFile) -> Path:
    """Return the network folder of a coordinator: ``network`` beside the study file."""
    return study.path.parent / "network"


def invite_sites(study: StudyFile) -> tuple[Invitation, Path]: 
    """Make the coordinator's key and its invitation; return the invitation and its file."""


def accept_invitation(path: Path, site: SiteFile, fingerprint: str, *, replace: bool = False) -> tuple[JoinRequest, Path]:
    """Make the site's key and its request to join; return the request and its file."""


def admit_sites(study: StudyFile, paths: Iterable[Path], fingerprints: dict[str, str], *, replace: bool = False) -> tuple[NetworkRoster | None, Path | None]:
    """Admit sites by their requests; write the roster once all sites of the study are in."""


def pin_roster(path: Path, site: SiteFile, fingerprint: str, *, replace: bool = False) -> NetworkRoster:
    """Check the roster of the coordinator and keep it; with NVFLARE, make the site's kit."""
