"""The files that a study file names: features, variants and eigenvalues."""

import hashlib
import math
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

from eigenfed.data.readers.plink import read_manifest
from eigenfed.errors import DataError
from eigenfed.study.config.toml_text import read_text

_LARGEST_NAMES = 64 << 20


def digest_names(names: Sequence[str]) -> str:
    """Return the digest of the names of features."""
    return hashlib.sha256("\n".join(names).encode()).hexdigest()


def digest_variants(path: Path, ambiguous: str) -> str:
    """Return the digest of the variants of a ``.bim`` file, and of how sites match theirs."""
    found = read_manifest(path)
    columns = (found.chromosome, found.identifier, found.position, found.a1, found.a2)
    lines = zip(*(column.tolist() for column in columns), strict=True)
    return digest_names([ambiguous, *("\t".join(map(str, line)) for line in lines)])


def read_variant_names(path: Path) -> tuple[str, ...]:
    """Read the names of the variants of a ``.bim`` file."""
    return read_manifest(path).names


def read_names(path: Path) -> tuple[str, ...]:
    """Read a file with the name of one feature per line."""
    text = read_text(path, largest=_LARGEST_NAMES)
    names = tuple(line.strip() for line in text.splitlines() if line.strip())
    if not names:
        raise DataError(f"{path} names no feature. Write the name of one feature per line.")
    repeated = [name for name, times in Counter(names).items() if times > 1]
    if repeated:
        raise DataError(
            f"{path} names the feature {repeated[0][:80]!r} more than once. Name it once."
        )
    return names


def read_spectrum(path: Path) -> tuple[float, ...]:
    r"""Read a file with one eigenvalue per line, the largest first.

    Raises
    ------
    InputError
        If the file cannot be opened.
    DataError
        If a line is something else. It is not quoted.

    Examples
    --------
    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     path = Path(folder, "spectrum.txt")
    ...     _ = path.write_text("4.0\n2\n0.5\n")
    ...     read_spectrum(path)
    (4.0, 2.0, 0.5)
    """
    values: list[float] = []
    for number, line in enumerate(read_text(path).splitlines(), start=1):
        if not line.strip():
            continue
        value = _parse_number(line)
        if not 0.0 <= value < math.inf or (values and value > values[-1]):
            raise DataError(
                f"{path}:{number}: the line must be a number of at least 0 and at most the one "
                "before it. Write one eigenvalue per line, the largest first."
            )
        values.append(value)
    if not values or not values[0]:
        raise DataError(f"{path} has no eigenvalue above 0. Write one per line.")
    return tuple(values)


def _parse_number(line: str) -> float:
    try:
        return float(line)
    except ValueError:
        return math.nan
