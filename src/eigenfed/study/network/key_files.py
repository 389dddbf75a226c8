"""Private keys in files that only their owner can read, and the fingerprints of public ones."""

import base64
import hashlib
import os
import re
import stat
from pathlib import Path

from eigenfed.data.safe_files import write_private
from eigenfed.errors import DataError, InputError, PrivacyError
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.privacy.secagg.masking import context

_HEADER = "eigenfed private key 1"
_TEXT = re.compile(rf"{_HEADER}\n([0-9a-f]{{64}})\n")
_MOST_BYTES = 1024
_GROUPS, _GROUP = 5, 4
_NOT_IN_BASE32 = {"0": "O", "1": "I", "8": "B"}


def fingerprint(kind: str, data: bytes) -> str:
    """Return a short text by which people compare keys, rosters and studies.

    It has 100 bits of a SHA-256: nobody can make other data with the same fingerprint.

    Parameters
    ----------
    kind : str
        What the data are; the same data of another kind have another fingerprint.
    data : bytes

    Examples
    --------
    >>> fingerprint("coordinator", bytes(32))
    'X5M7-G7AO-D3SA-2KGK-6I62'
    """
    digest = hashlib.sha256(context("fingerprint", kind, data)).digest()
    text = base64.b32encode(digest).decode("ascii")
    return "-".join(text[_GROUP * i : _GROUP * (i + 1)] for i in range(_GROUPS))


def fingerprint_coordinator(public: bytes) -> str:
    """Return the fingerprint of a coordinator's public key."""
    return fingerprint("coordinator", public)


def fingerprint_site(name: str, public: bytes) -> str:
    """Return the fingerprint of a site's public key, which holds for its name only.

    Examples
    --------
    >>> fingerprint_site("north", bytes(32)) == fingerprint_site("south", bytes(32))
    False
    """
    return fingerprint(f"site {name}", public)


def fingerprint_study(digest: str) -> str:
    """Return the fingerprint of a study, from its digest in hexadecimal."""
    return fingerprint("study", bytes.fromhex(digest))


def same_fingerprint(typed: str, expected: str) -> bool:
    """Return whether a fingerprint was typed, in upper or lower case, with or without hyphens.

    The digits 0, 1 and 8, which fingerprints do not have, count as the letters O, I and B.

    Examples
    --------
    >>> same_fingerprint("x5m7 g7ao d3sa 2kgk 6i62", "X5M7-G7AO-D3SA-2KGK-6I62")
    True
    """
    letters = re.sub(r"[\s-]", "", typed).upper()
    for digit, letter in _NOT_IN_BASE32.items():
        letters = letters.replace(digit, letter)
    return letters == expected.replace("-", "")


def create_identity(path: Path) -> Identity:
    """Make a private key and write it to a new file that only its owner can read.

    Parameters
    ----------
    path : Path
        Its folder is created if it does not exist, for the owner only.

    Raises
    ------
    InputError
        If the file exists: a key is never overwritten.
    PrivacyError
        If others can write to the folder.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as home:
    ...     made = create_identity(Path(home, "network", "site.key"))
    ...     read_identity(Path(home, "network", "site.key")).public == made.public
    True
    """
    create_private_folder(path.parent)
    identity = Identity.generate()
    try:
        write_private(path, f"{_HEADER}\n{identity.to_bytes().hex()}\n".encode("ascii"))
    except FileExistsError:
        raise InputError(f"{path} exists, and a key is not overwritten. Use it.") from None
    return identity


def read_identity(path: Path) -> Identity:
    """Read a private key.

    Raises
    ------
    InputError
        If the file cannot be opened.
    PrivacyError
        If others can read it, or can replace it.
    DataError
        If it is not a private key of eigenfed. Nothing of it is quoted.
    """
    flags = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0)
    try:
        with open(path, "rb", opener=lambda name, _: os.open(name, flags)) as file:
            mode = os.fstat(file.fileno()).st_mode
            data = file.read(_MOST_BYTES + 1) if stat.S_ISREG(mode) else b""
    except OSError as error:
        raise InputError(
            f"{path} cannot be read: {error.strerror}. Check the path, or make a key with "
            "eigenfed network init (coordinator) or eigenfed network join (site)."
        ) from None
    if mode & 0o077:
        raise PrivacyError(
            f"{path} is a private key that other users can read or change "
            f"(mode {mode & 0o777:04o}). If nobody has read it, run: chmod 600 {path}. "
            "Otherwise make a new key."
        )
    check_private_folder(path.parent)
    found = _TEXT.fullmatch(data.decode("ascii", "replace"))
    if found is None:
        raise DataError(
            f"{path} is not a private key as written by this release of eigenfed. Restore it from "
            "a backup, or make a new key."
        )
    return Identity.from_bytes(bytes.fromhex(found[1]))


def create_private_folder(folder: Path) -> None:
    """Create a folder that only its owner can open, unless it exists.

    Raises
    ------
    PrivacyError
        If it exists and others can write to it.
    """
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    check_private_folder(folder)


def check_private_folder(folder: Path) -> None:
    """Refuse a folder in which others could replace a key or an approval."""
    mode = folder.stat().st_mode
    if mode & 0o022:
        raise PrivacyError(
            f"{folder} holds keys, and other users can write to it (mode {mode & 0o777:04o}). "
            f"Run: chmod 700 {folder}."
        )
