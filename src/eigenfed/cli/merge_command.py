"""``eigenfed merge``: combine summaries of several streams into one."""

from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import summary_text
from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.linalg.summary import Summary


@click.command(
    epilog=example(
        "Merge the summaries of three sensors:",
        "  eigenfed merge harbour.summary ridge.summary valley.summary -k 5 -o all.summary",
    ),
    short_help="Merge summaries into one.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@click.option(
    "-o", "--out", type=options.NEW, required=True, help="Write the summary to this file."
)
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    help="Number of directions to keep; by default as many as the largest summary holds.",
)
@options.loadings
@options.force
@print_result
def merge(
    console: Console,
    files: tuple[Path, ...],
    out: Path,
    k: int | None,
    loadings: Path | None,
    force: bool,
) -> CommandResult:
    """Merge the summaries in FILES into one summary of all their rows.

    The order of FILES does not matter, and their means may differ. Features are matched by name
    if all summaries have names, and by position otherwise.
    """
    options.check_new(out, force=force)
    if loadings is not None:
        options.check_new(loadings, force=force)
    from eigenfed.data.safe_files import write_at_once

    _check_once(files)
    parts = [(path, options.read_summary(path)) for path in files]
    unnamed = _check_names(parts)
    if unnamed is not None:
        console.note(f"{unnamed} has no names of features: they are matched by position.")
    merged = _merge(parts)
    # Before truncation: what `truncate` discards does not affect the directions that are kept.
    shown = len(merged.s) if k is None else min(k, len(merged.s))
    bound = merged.sine_bound(shown) if shown else None
    if k is not None:
        if k > len(merged.s):
            console.note(f"The summaries hold only {len(merged.s)} directions, fewer than -k {k}.")
        merged = merged.truncate(k)
    data = merged.to_bytes()
    write_at_once(out, data)
    written = options.write_loadings(loadings, merged, shown)
    facts = {
        "n": merged.n,
        "d": merged.d,
        "k": shown,
        "summaries": len(files),
        "eigenvalues": merged.variance,
        "ratios": merged.explained,
        "sine_bound": bound,
        "features": merged.names,
        "file": str(out),
        "bytes": len(data),
    }
    text = [summary_text(facts), f"summary      {out}, {size(len(data))}", *written]
    return CommandResult(facts, "\n".join(text))


def _check_once(files: tuple[Path, ...]) -> None:
    """Refuse a file that is named twice: its rows would be counted twice."""
    twice = [
        path
        for place, path in enumerate(files)
        if path.resolve() in map(Path.resolve, files[:place])
    ]
    if twice:
        raise click.UsageError(f"{twice[0]} is named twice. Pass each summary once.")


def _check_names(parts: "list[tuple[Path, Summary]]") -> Path | None:
    """Return a summary that must be matched by position; refuse it where others differ in order."""
    unnamed = [path for path, part in parts if part.names is None]
    orders = {part.names for _, part in parts if part.names is not None}
    if unnamed and len(orders) > 1:
        raise click.UsageError(
            f"{unnamed[0]} has no names of features, and the others have them in different orders, "
            "so that it cannot be matched by position. Make it again from rows with names."
        )
    return unnamed[0] if unnamed and orders else None


def _merge(parts: "list[tuple[Path, Summary]]") -> "Summary":
    from eigenfed.errors import InputError

    merged = parts[0][1].truncate(max(part.rank for _, part in parts))
    for path, part in parts[1:]:
        try:
            merged = merged.merge(part)
        except InputError as error:
            raise error.with_prefix(f"{path}: ") from None
    return merged
