"""The kinds of files that rows are read from, known by their suffixes."""

from pathlib import Path

from eigenfed.errors import InputError

TEXT_KINDS = (".csv", ".csv.gz", ".tsv", ".tsv.gz")
CELL_KINDS = (*TEXT_KINDS, ".xlsx")
NAMED_KINDS = (*CELL_KINDS, ".parquet", ".h5ad")
KINDS = (".npy", ".npz", *NAMED_KINDS, ".svm", ".bed")


def find_kind(path: Path) -> str:
    """Return the kind of a file by its name.

    Raises
    ------
    InputError
        If it is of no kind that is read, does not exist, or cannot be read.

    Examples
    --------
    >>> find_kind(Path("rows.txt"))
    Traceback (most recent call last):
    eigenfed.errors.InputError: rows.txt is of an unknown kind. Convert it to one of .npy, ...
    """
    kind = next((kind for kind in KINDS if path.name.lower().endswith(kind)), None)
    if kind is None and path.suffix in (".bim", ".fam"):
        raise InputError(f"{path} is a part of a PLINK file. Pass {path.with_suffix('.bed')}.")
    if kind is None and path.suffix == ".summary":
        raise InputError(f"{path} is a summary, and holds no rows. Use eigenfed merge.")
    if kind is None:
        raise InputError(f"{path} is of an unknown kind. Convert it to one of {', '.join(KINDS)}.")
    try:
        with path.open("rb"):
            return kind
    except FileNotFoundError:
        raise InputError(f"{path} does not exist. Check the path.") from None
    except IsADirectoryError:
        raise InputError(f"{path} is a folder. Pass a file.") from None
    except PermissionError:
        raise InputError(f"Permission denied: {path}. Ask its owner for read access.") from None
