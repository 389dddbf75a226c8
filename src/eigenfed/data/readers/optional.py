"""Packages that some kinds of files need, and that are not there unless asked for."""

from importlib import import_module
from pathlib import Path
from typing import Any

from eigenfed.errors import InputError


def needed(module: str, *, extra: str, path: Path) -> Any:
    """Import a module that reads a file, or say how to get it.

    Parameters
    ----------
    module : str
        Such as ``"pyarrow.csv"``.
    extra : str
        The extra of eigenfed that brings it.
    path : Path
        The file that needs it.

    Raises
    ------
    InputError
        If the module is not installed.

    Examples
    --------
    >>> needed("nowhere", extra="tables", path=Path("a.csv"))
    Traceback (most recent call last):
    eigenfed.errors.InputError: a.csv needs the package nowhere, which is not installed. Run ...
    """
    try:
        return import_module(module)
    except ImportError:
        package = module.partition(".")[0]
        raise InputError(
            f"{path} needs the package {package}, which is not installed. "
            f"Run pip install 'eigenfed[{extra}]'."
        ) from None
