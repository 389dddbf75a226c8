"""``eigenfed fit``: files as sites, in one process."""

from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.answers import Answer, Voice, answering
from eigenfed.cli.helping import example
from eigenfed.cli.tables import fit_text


@click.command(
    epilog=example(
        "Exact, with a certificate; the result goes to a folder:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 -o result",
        "Sums that nobody can open:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --secure",
        "Differentially private:",
        "  eigenfed fit north.csv south.csv island.csv -k 4 --epsilon 1 --delta 1e-6",
    ),
    short_help="Fit a PCA over files, each of them a site.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@options.components
@click.option("-o", "--out", type=options.NEW, help="Folder to write the result to.")
@click.option("--method", type=click.Choice(options.METHODS), default="auto", show_default=True)
@click.option("--secure", is_flag=True, help="Let nothing leave a site but inside secure sums.")
@options.epsilon
@options.delta
@options.clip
@click.option(
    "--tolerate",
    type=click.IntRange(min=0),
    help="With --epsilon: how many sites may drop out or collude.",
)
@click.option(
    "--trust",
    type=click.Choice(("secure_sum", "local", "central")),
    help="With --epsilon: who sees what before noise.  [default: secure_sum]",
)
@click.option("--scale", is_flag=True, help="Divide features by their deviation over all sites.")
@click.option("--no-center", is_flag=True, help="Take rows as they are, not about their mean.")
@click.option(
    "--features",
    type=click.Choice(("same", "common")),
    default="same",
    show_default=True,
    help="Whether sites must have the same features, or those are used that all have.",
)
@click.option("--column", "column", multiple=True, help="A feature to take; all without this.")
@click.option("--id-column", help="Column of csv and parquet files that names the rows.")
@options.seed
@options.force
@answering
def fit(
    voice: Voice,
    files: tuple[Path, ...],
    k: int,
    out: Path | None,
    method: str,
    secure: bool,
    epsilon: float | None,
    delta: float | None,
    clip: float | None,
    tolerate: int | None,
    trust: str | None,
    scale: bool,
    no_center: bool,
    features: str,
    column: tuple[str, ...],
    id_column: str | None,
    seed: int | None,
    force: bool,
) -> Answer:
    """Fit a PCA over FILES as if their rows were in one place.

    Each file is a site of its own, named after the file. Sites live in this process, and every
    message between them and the coordinator still crosses as bytes through the site's gate.
    """
    sites = options.site_names(files)
    privacy = options.privacy_of(epsilon, delta, clip=clip, tolerate=tolerate, trust=trust)
    from eigenfed.estimators.federated import FederatedPCA
    from eigenfed.study.facts import described
    from eigenfed.study.results import check_free, write_result

    if out is not None:
        check_free(out, force=force)
    elif force:
        raise click.UsageError("--force goes with -o only. Name the folder to replace.")
    pca = FederatedPCA(
        k,
        method=method,
        center=not no_center,
        scale=scale,
        secure=secure,
        privacy=privacy,
        random_state=seed,
    )
    with voice.rounds(pca.tol) as told:
        pca.fit_sites(
            _tables(sites, column, id_column),
            features=features,
            by_site=out is not None and privacy is None and not secure,
            told=told,
        )
    if out is None:
        facts = described(pca, sites)
        return Answer(facts, fit_text(facts))
    scores = None if privacy is not None else _scores(pca, sites)
    facts = write_result(out, pca, sites=sites, scores=scores, force=force)
    if scores is None:
        voice.say("No scores were written: projections of records are not private.")
    return Answer(facts | {"folder": str(out)}, f"{fit_text(facts)}\nresult       {out}")


def _tables(
    sites: dict[str, Path], columns: tuple[str, ...], id_column: str | None
) -> dict[str, Any]:
    """Open what must be opened in a way of its own; plain paths are read as a fit needs them."""
    from eigenfed.data.files import open_table

    if not columns and id_column is None:
        return dict(sites)
    return {
        name: open_table(path, columns=columns or None, id_column=id_column)
        for name, path in sites.items()
    }


def _scores(pca: Any, sites: dict[str, Path]) -> dict[str, Any]:
    from eigenfed.study.rows import projected

    return {name: projected(pca, path) for name, path in sites.items()}
