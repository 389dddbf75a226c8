"""A plain TLS connection with the certificates of a kit, before the engine starts.

FLARE's own client retries in silence, whatever the reason.
"""

import socket
import ssl
import time
from pathlib import Path

from eigenfed.transport.nvflare.hardening import is_of_site, read_address

TIMEOUT_S = 9.0
"""Longest time until an error is reported."""


class Unreachable(ConnectionError):
    """Nobody answers at the address of the server: it may be down, and come back."""


def check_connection(kit: Path, *, timeout_s: float = TIMEOUT_S) -> None:
    """Connect to the server of a kit with its certificates, as the engine would, and hang up.

    Parameters
    ----------
    kit : Path
        A kit that is hardened. With the coordinator's own it checks the server from inside.
    timeout_s : float, default=9.0
        How long all of it may take, in seconds: a server that is silent is one that cannot be
        reached. Half of it is for connecting.

    Raises
    ------
    ConnectionError
        With one line about the cause: the server cannot be reached (`Unreachable`), its
        certificate is not from the authority of the kit or not for its name, or it refuses the
        certificate of the kit.
    """
    host, port = read_address(kit)
    startup = kit / "startup"
    own = "client" if is_of_site(kit) else "server"
    context = ssl.create_default_context(cafile=startup / "rootCA.pem")
    context.set_alpn_protocols(["h2"])  # the server of gRPC speaks first, to those who speak it
    context.load_cert_chain(startup / f"{own}.crt", startup / f"{own}.key")
    ends = time.monotonic() + timeout_s
    try:
        plain = socket.create_connection((host, port), timeout_s / 2.0)
    except OSError as error:
        raise Unreachable(
            f"The coordinator at {host}:{port} cannot be reached ({_reason(error)}). Check the "
            "address, the firewall, and that eigenfed coordinate runs there."
        ) from error
    with plain:
        try:
            plain.settimeout(_left_until(ends))
            with context.wrap_socket(plain, server_hostname=host) as secured:
                secured.settimeout(_left_until(ends))
                _await_verdict(secured)
        except ssl.SSLCertVerificationError as error:
            raise ConnectionError(
                f"The certificate of the coordinator at {host}:{port} is not from the authority "
                f"of this study, or not for this name ({error.verify_message}). Ask the "
                "coordinator for the roster, and compare fingerprints."
            ) from error
        except (ssl.SSLError, ConnectionResetError, EOFError) as error:
            raise ConnectionError(
                f"The coordinator at {host}:{port} refused the certificate of this kit. Ask to be "
                "admitted again."
            ) from error
        except OSError as error:
            raise Unreachable(
                f"The coordinator at {host}:{port} does not answer ({_reason(error)}). Check the "
                "address, and that eigenfed coordinate runs there."
            ) from error


def _left_until(ends: float) -> float:
    return max(ends - time.monotonic(), 0.001)


def _await_verdict(secured: ssl.SSLSocket) -> None:
    """Wait for a word of the server, which judges our certificate only after the handshake."""
    if not secured.recv(1):
        raise EOFError("The server hung up.")


def _reason(error: OSError) -> str:
    return error.strerror or type(error).__name__
