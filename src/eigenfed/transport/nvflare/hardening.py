"""The settings of a kit, and the check that a kit has these and no others."""

from pathlib import Path


def check_hardened(kit: Path) -> None:
    """Refuse a kit with any file or setting other than those it was created with.

    Raises
    ------
    ProtocolError
        Names the file, the setting and the value that it must have.
    """
    raise NotImplementedError
