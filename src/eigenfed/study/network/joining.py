"""A site's part of a key exchange: it accepts an invitation, and pins the roster.

What the coordinator wrote is kept only if somebody has typed its fingerprint, as read out by the
coordinator.
"""

import shutil
from pathlib import Path

from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import InputError, PrivacyError
from eigenfed.study.config import SiteFile
from eigenfed.study.network import network_folder
from eigenfed.study.network.invitations import (
    Invitation,
    JoinRequest,
    read_admission,
    read_invitation,
    read_request,
)
from eigenfed.study.network.key_files import (
    create_private_folder,
    fingerprint_coordinator,
    fingerprint_site,
    read_identity,
)
from eigenfed.study.network.network_folder import (
    INVITATION,
    REQUEST,
    SITE_KEY,
    SITE_KIT,
    changed_key,
    check_fingerprint,
    read_kept_invitation,
    read_or_create_identity,
)
from eigenfed.study.network.roster_file import ROSTER, NetworkRoster, read_roster


def accept_invitation(
    path: Path, site: SiteFile, fingerprint: str, *, replace: bool = False
) -> tuple[JoinRequest, Path]:
    """Make the site's key, unless there is one, and its request to join.

    Parameters
    ----------
    path : Path
        The invitation.
    site : SiteFile
    fingerprint : str
        Fingerprint of the coordinator's key, as read out by the coordinator.
    replace : bool, default=False
        Trust another coordinator than before.

    Returns
    -------
    request : JoinRequest
    path : Path
        Its file, to be sent to the coordinator.

    Raises
    ------
    InputError, DataError
        If the file is not an invitation of this site.
    PrivacyError
        If the fingerprint is not that of the coordinator's key, or another key is pinned.
    """
    invitation = read_invitation(path)
    if site.name not in invitation.sites:
        raise InputError(
            f"{path} invites {', '.join(invitation.sites)}, and {site.path} has name = "
            f'"{site.name}". Use the name that the study has for this site.'
        )
    check_fingerprint(fingerprint, invitation.fingerprint, f"the coordinator's key in {path}")
    folder = site.network
    earlier = read_kept_invitation(folder / INVITATION)
    if earlier is not None:
        _check_same_coordinator(earlier, invitation, site, replace)
    create_private_folder(folder)
    identity = read_or_create_identity(folder / SITE_KEY)
    request = JoinRequest(
        study=invitation.study,
        site=site.name,
        key=identity.public,
        coordinator=invitation.coordinator,
        certificate_request=_request_certificate(folder, site.name, invitation),
    ).signed_by(identity)
    if earlier is not None and earlier.coordinator != invitation.coordinator:
        (folder / ROSTER).unlink(missing_ok=True)
    write_at_once(folder / INVITATION, invitation.to_bytes())
    sent = site.path.parent / f"{site.name}.request.json"
    for file in (folder / REQUEST, sent):
        write_at_once(file, request.to_bytes())
    return request, sent


def pin_roster(
    path: Path, site: SiteFile, fingerprint: str, *, replace: bool = False
) -> NetworkRoster:
    """Check the roster of the coordinator and keep it; with NVFLARE, make the site's kit.

    Parameters
    ----------
    path : Path
        The roster, as the coordinator has sent it.
    site : SiteFile
    fingerprint : str
        Fingerprint of the roster, as read out by the coordinator or, better, by other sites.
    replace : bool, default=False
        Accept other keys of sites than before.

    Raises
    ------
    InputError, DataError
        If the file is not a roster for this site, or the invitation was not accepted.
    PrivacyError
        If the fingerprint is not that of the roster, or keys differ from the pinned ones.
    """
    admission = read_admission(path)
    roster, folder = admission.roster, site.network
    invitation = read_kept_invitation(folder / INVITATION)
    if invitation is None:
        raise InputError(
            f"{site.path} has accepted no invitation. Run eigenfed network join with the "
            "coordinator's invitation first."
        )
    _check_origin(roster, invitation, path)
    public = read_identity(folder / SITE_KEY).public
    if roster.sites.get(site.name) != public:
        listed = roster.sites.get(site.name)
        theirs = "none" if listed is None else fingerprint_site(site.name, listed)
        raise PrivacyError(
            f"{path} has another key for {site.name}: {theirs}, and this site has "
            f"{fingerprint_site(site.name, public)}. Send the coordinator the request to join "
            "again, and ask for a new roster."
        )
    check_fingerprint(fingerprint, roster.fingerprint, f"the roster in {path}")
    if (folder / ROSTER).exists() and not replace:
        _check_pinned(read_roster(folder / ROSTER), roster)
    if roster.engine == "nvflare":
        shutil.rmtree(folder / SITE_KIT, ignore_errors=True)
        network_folder.load_kits().create_site_kit(
            folder,
            folder / SITE_KIT,
            study=roster.study,
            site=site.name,
            certificate=admission.certificates[site.name].encode("ascii"),
            root=str(admission.root).encode("ascii"),
            host=roster.address.host,
            port=roster.address.port,
        )
    write_at_once(folder / ROSTER, roster.to_bytes())
    return roster


def _request_certificate(folder: Path, site: str, invitation: Invitation) -> str | None:
    """Return the request for a certificate, the earlier one if it was for the same study."""
    if invitation.engine != "nvflare":
        return None
    if (folder / REQUEST).exists():
        earlier = read_request(folder / REQUEST)
        if (earlier.site, earlier.study) == (site, invitation.study):
            kept = earlier.certificate_request
            if kept is not None and earlier.coordinator == invitation.coordinator:
                return kept
    made: bytes = network_folder.load_kits().create_certificate_request(folder, site=site)
    return made.decode("ascii")


def _check_same_coordinator(
    earlier: Invitation, invitation: Invitation, site: SiteFile, replace: bool
) -> None:
    if earlier.study != invitation.study:
        raise InputError(
            f"{site.network} belongs to the study {earlier.study!r}, and this invitation is for "
            f"{invitation.study!r}. Set network in {site.path} to another folder for it."
        )
    if earlier.coordinator != invitation.coordinator and not replace:
        raise changed_key("The coordinator's key", earlier, invitation)


def _check_origin(roster: NetworkRoster, invitation: Invitation, path: Path) -> None:
    if roster.coordinator != invitation.coordinator:
        raise PrivacyError(
            f"{path} is signed by the coordinator {fingerprint_coordinator(roster.coordinator)}, "
            f"and this site trusts {invitation.fingerprint}. Call the coordinator. If it has a new "
            "key, join with its new invitation and --replace first."
        )
    if roster.study != invitation.study:
        raise InputError(
            f"{path} is for the study {roster.study!r}, and this site has joined "
            f"{invitation.study!r}. Pass the site file that belongs to it."
        )


def _check_pinned(before: NetworkRoster, after: NetworkRoster) -> None:
    for name, key in before.sites.items():
        new = after.sites.get(name, key)
        if new != key:
            raise PrivacyError(
                f"The key of site {name!r} has changed from {fingerprint_site(name, key)} to "
                f"{fingerprint_site(name, new)}. Call that site: only if it has made a new key, "
                "run this again with --replace and the fingerprint of the new roster."
            )
