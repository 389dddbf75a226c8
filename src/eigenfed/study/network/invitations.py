"""The three documents of a key exchange: invitation, request to join, roster with certificates.

Each is signed with the key that it brings, so that nobody on the way can change a part of it; that
the key is the right one is what people compare by fingerprint.
"""

from pathlib import Path
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from eigenfed.study.network.documents import Pem, PublicKey, SignedDocument, SiteName, read_bytes
from eigenfed.study.network.key_files import fingerprint_coordinator, fingerprint_site
from eigenfed.study.network.roster_file import MOST_SITES, Engine, NetworkAddress, NetworkRoster


class Invitation(SignedDocument):
    """What a coordinator sends to all sites, first of all.

    Attributes
    ----------
    study : str
        Name of the study.
    sites : tuple of str
        Names of the sites that are invited.
    engine : {"nvflare", "files"}
    address : NetworkAddress
    coordinator : bytes
        Public key.
    root : str or None
        With NVFLARE: the certificate, in PEM, that signs those of the server and the sites.
    """

    label: ClassVar[str] = "an invitation"

    format: Literal["eigenfed invitation 1"] = "eigenfed invitation 1"
    study: SiteName
    sites: Annotated[tuple[SiteName, ...], Field(min_length=1, max_length=MOST_SITES)]
    engine: Engine
    address: NetworkAddress
    coordinator: PublicKey
    root: Pem | None = None

    @model_validator(mode="after")
    def _check_engine(self) -> Self:
        is_complete = (self.root is not None) == (self.engine == "nvflare")
        is_repeated = len(set(self.sites)) < len(self.sites)
        if not is_complete or is_repeated or not self.address.fits(self.engine):
            raise ValueError
        return self

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the coordinator's key."""
        return fingerprint_coordinator(self.coordinator)


class JoinRequest(SignedDocument):
    """What a site sends back: its public key, and with NVFLARE a request for a certificate.

    Attributes
    ----------
    study, site : str
    key : bytes
        The site's public key.
    coordinator : bytes
        Public key of the coordinator whose invitation it answers.
    certificate_request : str or None
        With NVFLARE, in PEM; the private key for it stays at the site.
    """

    label: ClassVar[str] = "a request to join"

    format: Literal["eigenfed join request 1"] = "eigenfed join request 1"
    study: SiteName
    site: SiteName
    key: PublicKey
    coordinator: PublicKey
    certificate_request: Pem | None = None

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the site's name and key."""
        return fingerprint_site(self.site, self.key)


class Admission(SignedDocument):
    """What a coordinator sends to all sites, once all of them are in.

    Attributes
    ----------
    roster : NetworkRoster
    certificates : dict of str to str
        With NVFLARE: the certificate of each site, in PEM.
    root : str or None
        With NVFLARE: the certificate that signs them.
    """

    label: ClassVar[str] = "a roster"

    format: Literal["eigenfed admission 1"] = "eigenfed admission 1"
    roster: NetworkRoster
    certificates: dict[SiteName, Pem] = Field(default_factory=dict, max_length=MOST_SITES)
    root: Pem | None = None

    @model_validator(mode="after")
    def _check_certificates(self) -> Self:
        expected = set(self.roster.sites) if self.roster.engine == "nvflare" else set()
        if set(self.certificates) != expected or (self.root is not None) != bool(expected):
            raise ValueError
        return self


def read_invitation(path: Path) -> Invitation:
    """Read an invitation and check that the coordinator it names has signed it.

    Raises
    ------
    InputError
        If the file cannot be opened.
    DataError
        If it is anything else, or was changed.
    """
    invitation = Invitation.from_bytes(read_bytes(path), str(path))
    invitation.check_signature(invitation.coordinator, str(path))
    return invitation


def read_request(path: Path) -> JoinRequest:
    """Read a request to join and check that the site it names has signed it."""
    request = JoinRequest.from_bytes(read_bytes(path), str(path))
    request.check_signature(request.key, str(path))
    return request


def read_admission(path: Path) -> Admission:
    """Read a roster with certificates and check that the coordinator in it has signed it."""
    admission = Admission.from_bytes(read_bytes(path), str(path))
    admission.check_signature(admission.roster.coordinator, str(path))
    return admission
