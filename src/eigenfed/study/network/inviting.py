"""The coordinator's part of a key exchange: it invites sites, and admits them by their requests.

What a site wrote is kept only if somebody has typed its fingerprint, as read out by that site.
"""

import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

from eigenfed.data.safe_files import write_at_once
from eigenfed.errors import InputError, PrivacyError
from eigenfed.study.config import StudyFile
from eigenfed.study.network import network_folder
from eigenfed.study.network.documents import MOST_BYTES
from eigenfed.study.network.invitations import (
    Admission,
    Invitation,
    JoinRequest,
    read_invitation,
    read_request,
)
from eigenfed.study.network.key_files import (
    create_private_folder,
    fingerprint_coordinator,
    read_identity,
)
from eigenfed.study.network.network_folder import (
    AUTHORITY,
    COORDINATOR_KEY,
    INVITATION,
    MEMBERS,
    SERVER_KIT,
    changed_key,
    check_fingerprint,
    coordinator_folder,
    read_kept_invitation,
    read_or_create_identity,
)
from eigenfed.study.network.roster_file import ROSTER, Engine, NetworkAddress, NetworkRoster


@dataclass(frozen=True)
class AdmittedSites:
    """What came of the requests to join.

    Attributes
    ----------
    sites : dict of str to str
        Fingerprint of each site that is in.
    missing : tuple of str
        The sites of the study that have not joined yet.
    roster : NetworkRoster or None
        None as long as a site is missing.
    path : Path or None
        The file to send to all sites, if there is a roster.
    """

    sites: dict[str, str]
    missing: tuple[str, ...]
    roster: NetworkRoster | None = None
    path: Path | None = None


def invite_sites(study: StudyFile) -> tuple[Invitation, Path]:
    """Make the coordinator's key, unless there is one, and an invitation for the sites.

    With NVFLARE, the certificate authority and the server's kit are made as well.

    Parameters
    ----------
    study : StudyFile

    Returns
    -------
    invitation : Invitation
    path : Path
        Its file, to be sent to the sites.

    Raises
    ------
    InputError
        If the study has no engine for a network, or the folder belongs to another study.
    """
    engine, address = _find_address(study)
    folder = coordinator_folder(study)
    earlier = read_kept_invitation(folder / INVITATION)
    if earlier is not None and earlier.study != study.name:
        raise InputError(
            f"{folder} belongs to the study {earlier.study!r}, and {study.path} has name = "
            f'"{study.name}". Move the study file to a folder of its own, or change its name back.'
        )
    create_private_folder(folder)
    identity = read_or_create_identity(folder / COORDINATOR_KEY)
    root = None
    if engine == "nvflare":
        root = _prepare_server(folder, study, address, earlier)
    else:
        Path(str(address.drop)).mkdir(parents=True, exist_ok=True)
    invitation = Invitation(
        study=study.name,
        sites=tuple(sorted(study.sites)),
        engine=engine,
        address=address,
        coordinator=identity.public,
        root=root,
    ).signed_by(identity)
    path = study.path.parent / f"{study.name}.invitation.json"
    for file in (folder / INVITATION, path):
        write_at_once(file, invitation.to_bytes())
    return invitation, path


def admit_sites(
    study: StudyFile,
    paths: Iterable[Path],
    fingerprints: Mapping[str, str],
    *,
    replace: bool = False,
) -> AdmittedSites:
    """Admit sites by their requests, and write the roster once all sites of the study are in.

    Parameters
    ----------
    study : StudyFile
    paths : iterable of Path
        Requests to join. All are checked before any is kept. With NVFLARE, a request that is passed
        again renews the site's certificate.
    fingerprints : mapping of str to str
        Fingerprint of each of these sites, as read out by the site.
    replace : bool, default=False
        Accept another key of a site that is in.

    Returns
    -------
    AdmittedSites

    Raises
    ------
    InputError, DataError
        If a file is not a request to join this study, or `invite_sites` was not called.
    PrivacyError
        If a fingerprint is not that of the site's key, or the site is in with another key.
    """
    folder = coordinator_folder(study)
    invitation = _read_own_invitation(study)
    identity = read_identity(folder / COORDINATOR_KEY)
    members = _read_members(folder, invitation)
    new: dict[str, JoinRequest] = {}
    for path in paths:
        request = read_request(path)
        _check_request(request, path, invitation)
        if request.site in new:
            raise InputError(f"{path} is a second request of site {request.site!r}. Pass one.")
        known = members.get(request.site)
        if known != request:
            typed = fingerprints.get(request.site, "")
            check_fingerprint(typed, request.fingerprint, f"the key of {request.site} in {path}")
        if known is not None and known.key != request.key and not replace:
            raise changed_key(f"The key of site {request.site!r}", known, request)
        new[request.site] = request
    members |= new
    _check_distinct(members, invitation)
    create_private_folder(folder / MEMBERS)
    signed = {name: _sign(folder, request) for name, request in new.items()}
    for name, request in new.items():
        _keep_member(folder, request, signed[name])
    sites = {name: member.fingerprint for name, member in sorted(members.items())}
    missing = tuple(name for name in study.sites if name not in members)
    if missing:
        return AdmittedSites(sites, missing)
    roster = NetworkRoster(
        study=study.name,
        engine=invitation.engine,
        address=invitation.address,
        coordinator=invitation.coordinator,
        sites={name: member.key for name, member in members.items()},
    )
    path = study.path.parent / f"{study.name}.roster.json"
    certificates = _find_certificates(folder, members)
    admission = Admission(roster=roster, certificates=certificates, root=invitation.root)
    data = admission.signed_by(identity).to_bytes()
    if len(data) > MOST_BYTES:
        raise InputError(f"The roster of {len(members)} sites is too large. Invite fewer sites.")
    write_at_once(path, data)
    write_at_once(folder / ROSTER, roster.to_bytes())
    return AdmittedSites(sites, (), roster, path)


def _find_address(study: StudyFile) -> tuple[Engine, NetworkAddress]:
    network = study.network
    if network is None or study.engine == "in_process":
        raise InputError(
            f'{study.path} has engine = "in_process", which needs no keys. Set engine = "nvflare" '
            'or engine = "files", and [network].'
        )
    if network.drop is not None:
        return study.engine, NetworkAddress(drop=str(network.drop.absolute()))
    return study.engine, NetworkAddress(host=network.host, port=network.port)


def _prepare_server(
    folder: Path, study: StudyFile, address: NetworkAddress, earlier: Invitation | None
) -> str:
    """Make the certificate authority, once, and the server's kit; return the root certificate."""
    kits = network_folder.load_kits()
    for site in study.sites:
        kits.check_site_name(site)
    authority, server = folder / AUTHORITY, folder / SERVER_KIT
    if not authority.exists():
        for certificate in (folder / MEMBERS).glob("*.pem"):
            certificate.unlink()
        shutil.rmtree(server, ignore_errors=True)
        _make_folder(authority, lambda new: kits.create_authority(new, study=study.name))
    if earlier is not None and earlier.address != address:
        shutil.rmtree(server, ignore_errors=True)
    if not server.exists():
        _make_folder(
            server,
            lambda new: kits.create_server_kit(
                authority, new, study=study.name, host=address.host, port=address.port
            ),
        )
    root: bytes = kits.root_certificate(authority)
    return root.decode("ascii")


def _make_folder(folder: Path, make: Callable[[Path], None]) -> None:
    """Call what makes a folder under another name, and rename it when it is complete."""
    new = folder.with_name(f".{folder.name}.new")
    shutil.rmtree(new, ignore_errors=True)
    try:
        make(new)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        raise


def _read_own_invitation(study: StudyFile) -> Invitation:
    """Return the coordinator's invitation, if it still fits the study file."""
    path = coordinator_folder(study) / INVITATION
    if not path.exists():
        raise InputError(
            f"{study.path} has no network yet. Run eigenfed network init {study.path} first."
        )
    invitation = read_invitation(path)
    now = study.name, tuple(sorted(study.sites)), *_find_address(study)
    if now != (invitation.study, invitation.sites, invitation.engine, invitation.address):
        raise InputError(
            f"{study.path} has another name, list of sites, engine or [network] than when the "
            f"sites were invited. Run eigenfed network init {study.path} again, and send the new "
            "invitation to all sites."
        )
    return invitation


def _read_member(folder: Path, site: str) -> JoinRequest | None:
    path = folder / MEMBERS / f"{site}.json"
    return read_request(path) if path.exists() else None


def _read_members(folder: Path, invitation: Invitation) -> dict[str, JoinRequest]:
    """Return the sites that are in; after a change of the engine they must join again."""
    found = {name: _read_member(folder, name) for name in invitation.sites}
    is_nvflare = invitation.engine == "nvflare"
    return {
        name: member
        for name, member in found.items()
        if member is not None and (member.certificate_request is not None) == is_nvflare
    }


def _sign(folder: Path, request: JoinRequest) -> bytes | None:
    """Return the certificate that a site asks for, or None if it asks for none."""
    if request.certificate_request is None:
        return None
    asked = request.certificate_request.encode("ascii")
    kits = network_folder.load_kits()
    signed: bytes = kits.sign_certificate_request(folder / AUTHORITY, asked, site=request.site)
    return signed


def _keep_member(folder: Path, request: JoinRequest, certificate: bytes | None) -> None:
    path = folder / MEMBERS / f"{request.site}.json"
    if certificate is not None:
        write_at_once(path.with_suffix(".pem"), certificate)
    write_at_once(path, request.to_bytes())


def _find_certificates(folder: Path, members: Mapping[str, JoinRequest]) -> dict[str, str]:
    """Return the certificates of all sites, signed here if the authority is new."""
    found = {}
    for name, member in sorted(members.items()):
        if member.certificate_request is not None:
            path = folder / MEMBERS / f"{name}.pem"
            if not path.exists():
                _keep_member(folder, member, _sign(folder, member))
            found[name] = path.read_text("ascii")
    return found


def _check_request(request: JoinRequest, path: Path, invitation: Invitation) -> None:
    if request.study != invitation.study:
        raise InputError(
            f"{path} is a request to join the study {request.study!r}, and this is "
            f"{invitation.study!r}. Pass it where that study is coordinated."
        )
    if request.coordinator != invitation.coordinator:
        raise InputError(
            f"{path} answers an invitation of the coordinator "
            f"{fingerprint_coordinator(request.coordinator)}, and this is "
            f"{invitation.fingerprint}. Send site {request.site!r} the present invitation."
        )
    if request.site not in invitation.sites:
        raise InputError(
            f"{path} is from site {request.site!r}, and the study has "
            f"{', '.join(invitation.sites)}. Add the site to the study, or ask for its right name."
        )
    if (request.certificate_request is None) == (invitation.engine == "nvflare"):
        raise InputError(
            f"{path} was made for another engine. Send site {request.site!r} the present "
            "invitation."
        )


def _check_distinct(members: Mapping[str, JoinRequest], invitation: Invitation) -> None:
    owners = {invitation.coordinator: "the coordinator"}
    for name, member in members.items():
        other = owners.setdefault(member.key, f"site {name!r}")
        if other != f"site {name!r}":
            raise PrivacyError(
                f"Site {name!r} has the same key as {other}. Each must make its own: remove "
                "the network folder of one of them, and join again."
            )
