"""``eigenfed cache``: the parsed copies of large files, and how to remove them."""

from pathlib import Path

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.report.wording import size


@click.command(
    epilog=example(
        "Show the parsed copies of two files:",
        "  eigenfed cache north.csv south.csv",
        "Remove them:",
        "  eigenfed cache north.csv south.csv --remove",
    ),
    short_help="Show or remove parsed copies of files.",
)
@click.argument("files", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option(
    "--cache",
    type=options.NEW,
    metavar="FOLDER",
    help="The folder that was passed to eigenfed fit.  [default: beside each file]",
)
@click.option("--remove", is_flag=True, help="Remove the copies.")
@print_result
def cache(
    console: Console, files: tuple[Path, ...], cache: Path | None, remove: bool
) -> CommandResult:
    """Show the parsed copies of FILES, which need not exist any more, or remove them.

    Files whose rows take over 64 MB, at 8 bytes an entry, are parsed once into a copy that later
    runs use, except .npy. It holds the same data as the file, in a folder that only its owner can
    read.
    """
    from eigenfed.data.cache import find_copies, forget_cache

    found = {path: find_copies(path, cache=cache) for path in files}
    sizes = {path: sum(map(_measure, copies)) for path, copies in found.items()}
    removed = {path: forget_cache(path, cache=cache) if remove else 0 for path in files}
    data = {
        "files": [
            {
                "file": str(path),
                "copies": [str(copy) for copy in copies],
                "bytes": sizes[path],
                "removed": removed[path],
            }
            for path, copies in found.items()
        ]
    }
    lines = [_describe(path, len(copies), sizes[path], remove) for path, copies in found.items()]
    return CommandResult(data, "\n".join(lines))


def _measure(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.iterdir())


def _describe(path: Path, count: int, held: int, remove: bool) -> str:
    if not count:
        return f"{path}: no parsed copies"
    copies = "1 parsed copy" if count == 1 else f"{count} parsed copies"
    return f"{path}: {copies}, {size(held)}{', removed' if remove else ''}"
