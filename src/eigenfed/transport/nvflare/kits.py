"""The certificate authority of a study, its certificates, and the kits that FLARE starts from."""

from pathlib import Path


def create_authority(folder: Path, *, study: str, days: int = 730) -> None:
    """Create a certificate authority: ``authority.key`` (mode 0600) and ``authority.pem``.

    Parameters
    ----------
    folder : Path
        Created with mode 0700; must not hold an authority yet.
    study : str
        Name of the study, which becomes that of the authority.
    days : int, default=730
        How long the authority is valid.
    """
    raise NotImplementedError


def root_certificate(authority: Path) -> bytes:
    """Return the certificate of the authority, as PEM."""
    raise NotImplementedError


def create_server_kit(authority: Path, kit: Path, *, study: str, host: str, port: int) -> None:
    """Create the coordinator's kit, with the keys of the server and of the lead who signs jobs.

    Parameters
    ----------
    authority : Path
        Folder of `create_authority`.
    kit : Path
        Folder to create.
    study : str
    host : str
        Name or address under which sites reach the server.
    port : int
        The one port that sites connect to.
    """
    raise NotImplementedError


def create_certificate_request(folder: Path, *, site: str) -> bytes:
    """Create a site's private key in its folder, and return a request to certify it, as PEM.

    The key is ``tls.key`` (mode 0600) and stays there; an existing key is used again.
    """
    raise NotImplementedError


def sign_certificate_request(
    authority: Path, request: bytes, *, site: str, days: int = 730
) -> bytes:
    """Certify the key of a site, and return the certificate, as PEM.

    Raises
    ------
    DataError
        If the request is malformed, not signed by its own key, or for another name than `site`.
    """
    raise NotImplementedError


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

    Raises
    ------
    DataError
        If the certificate is not for the key in `folder`, for `site`, or not issued by `root`.
    """
    raise NotImplementedError
