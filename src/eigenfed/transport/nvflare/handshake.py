"""A plain TLS connection with the certificates of a kit, before the engine starts."""

from pathlib import Path


def check_connection(kit: Path, *, timeout_s: float = 5.0) -> None:
    """Connect to the server of a site's kit, as the engine would, and hang up.

    Raises
    ------
    ConnectionError
        Says in one line what is wrong: the server cannot be reached, its certificate is not from
        the authority of the kit or not for its name, or it refuses the certificate of the kit.
    """
    raise NotImplementedError
