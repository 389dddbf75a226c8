"""The certificate authority of a study, its certificates, and the kits that FLARE starts from.

=========================  ===================================================================
coordinator                the authority's key, the server's and the lead's; a certificate for
                           each site
site                       its own private key, which never leaves it; what leaves is a request
                           to certify the public one
=========================  ===================================================================

FLARE's own ``nvflare provision`` creates the keys of all parties in one place. Its newer ``nvflare
cert`` and ``nvflare package`` leave them where they belong, as commands that print, end the process
and keep records in the home folder; so certificates are made here, with the names and the usages
that FLARE expects. Keys are RSA, the only kind that it signs with.
"""

import hashlib
import ipaddress
import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenfed.data.safe_files import write_private
from eigenfed.errors import DataError, InputError
from eigenfed.transport.nvflare.hardening import (
    LEAD,
    SERVER,
    Settings,
    server_settings,
    site_settings,
    write_json,
)

KEY_BITS = 3072
_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_HOST = re.compile(r"[A-Za-z0-9.-]{1,253}")
_RESERVED = {"server", "server_parent", "client", "admin", "relay"}
_CA_KEY, _CA_CERTIFICATE, _SITE_KEY = "authority.key", "authority.pem", "tls.key"


def create_authority(folder: Path, *, study: str, days: int = 730) -> None:
    """Create a certificate authority: ``authority.key`` (mode 0600) and ``authority.pem``.

    Parameters
    ----------
    folder : Path
        Created with mode 0700; must not hold an authority yet.
    study : str
        Name of the study, which the certificate shows.
    days : int, default=730
        How long the authority is valid.

    Raises
    ------
    InputError
        If `days` is not positive, or there is an authority in the folder.
    """
    _check_days(days)
    if (folder / _CA_KEY).exists():
        raise InputError(
            f"The folder {folder.name!r} has a certificate authority already, on which the "
            "certificates of the sites depend. Use another folder to begin anew."
        )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    key = rsa.generate_private_key(65537, KEY_BITS)
    name = _x509_name("eigenfed authority", study[:64])
    public = key.public_key()
    until = datetime.now(UTC) + timedelta(days=days)
    certificate = (
        _begin(name, name, public, public, until)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(key_cert_sign=True, crl_sign=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    _write_key(folder / _CA_KEY, key)
    (folder / _CA_CERTIFICATE).write_bytes(certificate.public_bytes(serialization.Encoding.PEM))


def root_certificate(authority: Path) -> bytes:
    """Return the certificate of the authority, as PEM."""
    return (authority / _CA_CERTIFICATE).read_bytes()


def create_server_kit(authority: Path, kit: Path, *, study: str, host: str, port: int) -> None:
    """Create the coordinator's kit, with the keys of the server and of the lead who signs jobs.

    Parameters
    ----------
    authority : Path
        Folder of `create_authority`.
    kit : Path
        Folder to create.
    study : str
        Name of the study.
    host : str
        Name or address under which sites reach the server.
    port : int
        The one port that sites connect to.
    """
    _check_address(host, port)
    startup = _create_kit(kit, server_settings(project_name(study), host, port))
    server, lead = (rsa.generate_private_key(65537, KEY_BITS) for _ in range(2))
    _write_key(startup / "server.key", server)
    _write_key(startup / "lead.key", lead)
    address: x509.GeneralName
    try:
        address = x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        address = x509.DNSName(host)
    issued = {
        "server.crt": _issue(authority, _x509_name(SERVER), server.public_key(), address=address),
        "lead.crt": _issue(authority, _x509_name(LEAD, role="lead"), lead.public_key()),
        "rootCA.pem": root_certificate(authority),
    }
    for name, certificate in issued.items():
        (startup / name).write_bytes(certificate)


def create_certificate_request(folder: Path, *, site: str) -> bytes:
    """Create a site's private key in its folder, and return a request to certify it, as PEM.

    The key is ``tls.key`` (mode 0600) and stays there; an existing key is used again.

    Raises
    ------
    InputError
        If FLARE could not use the name of the site.
    """
    check_site_name(site)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    path = folder / _SITE_KEY
    if not path.exists():
        _write_key(path, rsa.generate_private_key(65537, KEY_BITS))
    request = x509.CertificateSigningRequestBuilder(_x509_name(site)).sign(
        _read_key(path), hashes.SHA256()
    )
    return request.public_bytes(serialization.Encoding.PEM)


def sign_certificate_request(
    authority: Path, request: bytes, *, site: str, days: int = 730
) -> bytes:
    """Certify the key of a site, and return the certificate, as PEM.

    The certificate holds nothing of the request but its public key, and ends with the authority
    at the latest. It is for clients only: a site cannot pose as the server with it.

    Raises
    ------
    DataError
        If the request is malformed, not signed by its own key, or for another name than `site`.
    """
    check_site_name(site)
    _check_days(days)
    try:
        asked = x509.load_pem_x509_csr(request)
        names = [str(name.value) for name in asked.subject]
        public = asked.public_key()
        valid = asked.is_signature_valid
    except (ValueError, TypeError) as error:
        raise DataError(f"The certificate request of site {site!r} cannot be read.") from error
    if not valid or not isinstance(public, rsa.RSAPublicKey) or public.key_size < KEY_BITS:
        raise DataError(
            f"The certificate request of site {site!r} must be signed by its own RSA key of at "
            f"least {KEY_BITS} bits. Create it with eigenfed network join."
        )
    if names != [site]:
        raise DataError(f"The certificate request is not for site {site!r}, but another name.")
    return _issue(authority, _x509_name(site), public, days=days)


def create_site_kit(
    folder: Path,
    kit: Path,
    *,
    study: str,
    site: str,
    certificate: bytes,
    root: bytes,
    host: str,
    port: int,
) -> None:
    """Create a site's kit from the private key in its folder and the certificate it was given.

    Parameters
    ----------
    folder : Path
        Where `create_certificate_request` left the private key.
    kit : Path
        Folder to create.
    study, site : str
        Names of the study and of the site.
    certificate, root : bytes
        Certificates of the site and of the authority, as PEM.
    host : str
    port : int
        Where the server is.

    Raises
    ------
    DataError
        If the certificate is not for the key in `folder`, for `site`, or not issued by `root`.
    """
    check_site_name(site)
    _check_address(host, port)
    key = _read_key(folder / _SITE_KEY)
    try:
        own, issuer = map(x509.load_pem_x509_certificate, (certificate, root))
        own.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise DataError(
            f"The certificate of site {site!r} is not from the authority of study {study!r}."
        ) from error
    if own.public_key() != key.public_key() or common_name(own) != site:
        raise DataError(
            f"The certificate is not for the key and the name of site {site!r}. Ask the "
            "coordinator to admit the request that eigenfed network join wrote here."
        )
    startup = _create_kit(kit, site_settings(project_name(study), site, host, port))
    _write_key(startup / "client.key", key)
    (startup / "client.crt").write_bytes(certificate)
    (startup / "rootCA.pem").write_bytes(root)


def check_site_name(site: str) -> None:
    """Refuse a name of a site that FLARE could not use.

    Raises
    ------
    InputError
        If it is not made of letters, digits, ``-`` and ``_``, or has a meaning of its own.

    Examples
    --------
    >>> check_site_name("north-2")
    >>> check_site_name("Nord.Süd")
    Traceback (most recent call last):
        ...
    eigenfed.errors.InputError: site='Nord.Süd' must be at most 64 letters, digits, - and _ ...
    """
    if not _NAME.fullmatch(site) or site.lower() in _RESERVED:
        raise InputError(
            f"site={site!r} must be at most 64 letters, digits, - and _ with engine 'nvflare', "
            f"and none of {', '.join(sorted(_RESERVED))}. Choose another name."
        )


def project_name(study: str) -> str:
    """Return the name by which FLARE knows a study, whatever characters its own name has.

    Examples
    --------
    >>> project_name("Herz & Kreislauf")
    'eigenfed-5c47b49e1842'
    """
    return f"eigenfed-{hashlib.sha256(study.encode()).hexdigest()[:12]}"


def common_name(certificate: x509.Certificate) -> str:
    """Return the name that a certificate is for, or nothing."""
    names = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    return str(names[0].value) if len(names) == 1 else ""


def _create_kit(kit: Path, settings: Mapping[str, Settings]) -> Path:
    if kit.exists() and any(kit.iterdir()):
        raise InputError(f"The folder {kit.name!r} is not empty. Remove it, or name another.")
    for folder in (kit, kit / "startup", kit / "local"):
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    for name, content in settings.items():
        write_json(kit / name, content)
    return kit / "startup"


def _check_days(days: int) -> None:
    if days < 1:
        raise InputError(f"days={days!r} must be at least 1. Pass the lifetime in days.")


def _check_address(host: str, port: int) -> None:
    if not _HOST.fullmatch(host) or not 1 <= port <= 65535:
        raise InputError(
            f"host={host!r} and port={port!r} must be a host name or an IPv4 address, and a number "
            "from 1 to 65535. FLARE does not support IPv6."
        )


def _x509_name(name: str, organisation: str = "", *, role: str = "") -> x509.Name:
    """Return a name as FLARE reads it, with the role of a person where it looks for it."""
    parts = [
        (NameOID.COMMON_NAME, name),
        (NameOID.ORGANIZATION_NAME, organisation),
        (NameOID.UNSTRUCTURED_NAME, role),
    ]
    return x509.Name([x509.NameAttribute(oid, value) for oid, value in parts if value])


def _begin(
    subject: x509.Name,
    issuer: x509.Name,
    public: rsa.RSAPublicKey,
    issuing: rsa.RSAPublicKey,
    until: datetime,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        # Clocks of two machines differ by minutes, and certificates are used at once.
        .not_valid_before(datetime.now(UTC) - timedelta(hours=1))
        .not_valid_after(until)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(public), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(issuing), critical=False)
    )


def _issue(
    authority: Path,
    subject: x509.Name,
    public: rsa.RSAPublicKey,
    *,
    days: int = 730,
    address: x509.GeneralName | None = None,
) -> bytes:
    """Return a certificate, for a server where there is an address, else for a client."""
    root = x509.load_pem_x509_certificate(root_certificate(authority))
    signer = _read_key(authority / _CA_KEY)
    until = min(datetime.now(UTC) + timedelta(days=days), root.not_valid_after_utc)
    purposes = [ExtendedKeyUsageOID.CLIENT_AUTH]
    builder = _begin(subject, root.subject, public, signer.public_key(), until)
    if address is not None:
        # The server's job processes connect to it with its own certificate, as clients.
        purposes.append(ExtendedKeyUsageOID.SERVER_AUTH)
        builder = builder.add_extension(x509.SubjectAlternativeName([address]), critical=False)
    certificate = (
        builder.add_extension(x509.ExtendedKeyUsage(purposes), critical=False)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(digital_signature=True, key_encipherment=True), critical=True)
        .sign(signer, hashes.SHA256())
    )
    return certificate.public_bytes(serialization.Encoding.PEM)


def _usage(**used: bool) -> x509.KeyUsage:
    kinds = (
        "digital_signature content_commitment key_encipherment data_encipherment key_agreement "
        "key_cert_sign crl_sign encipher_only decipher_only"
    )
    return x509.KeyUsage(**{kind: used.get(kind, False) for kind in kinds.split()})


def _write_key(path: Path, key: rsa.RSAPrivateKey) -> None:
    data = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    write_private(path, data)


def _read_key(path: Path) -> rsa.RSAPrivateKey:
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError, FileNotFoundError) as error:
        raise DataError(f"The private key {path.name!r} is missing or cannot be read.") from error
    if not isinstance(key, rsa.RSAPrivateKey):
        raise DataError(f"The private key {path.name!r} is not an RSA key, as FLARE needs.")
    return key
