"""``eigenfed report``: the pages of a result, again."""

from pathlib import Path

import click

from eigenfed.cli.answers import Answer, Voice, answering
from eigenfed.cli.helping import example


@click.command(
    epilog=example(
        "eigenfed report result",
    ),
    short_help="Write the pages of a result again.",
)
@click.argument("folder", type=click.Path(exists=True, file_okay=False, path_type=Path))
@answering
def report(voice: Voice, folder: Path) -> Answer:
    """Write the pages of the result in FOLDER again, from what is in it.

    report.html is for everybody: what was computed, how well, what left each site, and how to
    repeat it. Pages in sites/ are for a site alone, as they show its rows. run.json and multiqc/
    have the shared page for programs.
    """
    from eigenfed.report.html import write_pages

    with voice.progress("writing the pages"):
        pages = write_pages(folder)
    data = {
        "report": str(pages.shared),
        "sites": {site: str(path) for site, path in pages.own.items()},
        "exports": [str(path) for path in pages.exports],
    }
    lines = [f"report       {pages.shared}"]
    lines += [f"for {site} alone: {path}" for site, path in pages.own.items()]
    lines += [f"for programs: {path}" for path in pages.exports]
    return Answer(data, "\n".join(lines))
