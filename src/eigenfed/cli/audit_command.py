"""``eigenfed audit``: attack a configuration, and say what an attacker gets."""

import math
from pathlib import Path

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering
from eigenfed.errors import REFUSED

PUBLISHED = ("SuLQ", "ModSuLQ", "AnalyzeGauss", "DPdisPCA", "StreamingModSuLQ")


@click.group(
    epilog=example(
        "eigenfed audit reconstruct north.csv south.csv -k 10",
        "eigenfed audit epsilon --epsilon 2 --delta 1e-5 --published DPdisPCA",
        "eigenfed audit membership cohort.csv -k 3 --epsilon 1 --delta 1e-3",
        "eigenfed audit coordinator north.toml study.toml",
    ),
    short_help="Attack a configuration and say what an attacker gets.",
)
def audit() -> None:
    """Attack a configuration and say what an attacker gets."""


@audit.command(
    epilog=example(
        "eigenfed audit reconstruct north.csv south.csv -k 10",
    ),
    short_help="Rebuild the covariance from what a coordinator sees.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@options.components
@options.method_option("krylov")
@options.seed
@answering
def reconstruct(
    voice: Voice,
    files: tuple[Path, ...],
    k: int,
    method: str,
    method_options: tuple[str, ...],
    seed: int | None,
) -> CommandResult:
    """Rebuild the covariance of all rows in FILES from what a coordinator sees of an exact run.

    The method must be one that asks for products with directions: covariance needs no attack, it
    sends the covariance.
    """
    sites = options.site_names(files)
    chosen = options.method_of(method, method_options)
    if isinstance(chosen, str):
        raise click.UsageError("--method auto names no method to attack. Pass --method krylov.")
    import numpy as np

    from eigenfed.study.audits.attacks import rebuild

    found = rebuild(sites, k, method=chosen, rng=np.random.default_rng(seed))
    known = "all of it" if found.directions == found.d else "the rest is guessed"
    text = "\n".join(
        [
            f"The attacker is whoever coordinates a run of {method} over {len(sites)} "
            f"site{'s' * (len(sites) != 1)}, and uses nothing but the sums it asked for.",
            f"In {found.rounds} rounds it learnt the covariance of all rows on {found.directions} "
            f"of {found.d} directions for certain; {known}.",
            f"Its picture of the whole covariance is off by {found.error:.1%} of its size "
            f"(correlation {found.correlation:.4f} over all entries).",
            "Secure sums do not change this: the sums themselves tell. Noise does (--epsilon), and "
            "so does a site's policy on the rank and variance that it answers about.",
        ]
    )
    return CommandResult(dict(vars(found)), text)


@audit.command(
    epilog=example(
        "eigenfed audit epsilon --epsilon 1 --delta 1e-3",
        "eigenfed audit epsilon --epsilon 2 --delta 1e-5 --published DPdisPCA",
    ),
    short_help="Measure how private a mechanism is at most.",
)
@click.option("--epsilon", type=float, required=True, help="What is claimed.")
@click.option("--delta", type=float, required=True, help="At which it is claimed.")
@click.option("--published", type=click.Choice(PUBLISHED), help="A paper's mechanism, as printed.")
@click.option(
    "--trials",
    type=click.IntRange(min=100),
    default=100_000,
    show_default=True,
    help="Runs on each of the two data sets.",
)
@click.option(
    "--sites", type=click.IntRange(min=1), help="Sites that add a part of the noise.  [default: 3]"
)
@click.option("--rows", type=click.IntRange(min=1), help="With --published: rows.  [default: 1000]")
@click.option(
    "--features", type=click.IntRange(min=2), help="With --published: features.  [default: 20]"
)
@answering
def epsilon(
    voice: Voice,
    epsilon: float,
    delta: float,
    published: str | None,
    trials: int,
    sites: int | None,
    rows: int | None,
    features: int | None,
) -> CommandResult:
    """Run a mechanism many times on two neighbouring data sets and certify a bound on epsilon.

    Without --published it is eigenfed's own noise on a covariance. What is certified holds with
    95% confidence; it can refute a claim and never prove one.
    """
    if published is None and (rows is not None or features is not None):
        raise click.UsageError("--rows and --features go with --published only. Drop them.")
    if published is not None and sites is not None:
        raise click.UsageError("--sites goes with eigenfed's own noise only. Drop it.")
    options.privacy_of(epsilon, delta)
    from eigenfed.study.audits.distinguishing import audit_published, audit_sound

    with voice.progress() as show:
        if show is not None:
            show(f"{trials} runs on each data set")
        if published is None:
            found, truth = audit_sound(epsilon, delta, trials=trials, parties=sites or 3), None
        else:
            found, truth = audit_published(
                published, epsilon, delta, n=rows or 1000, d=features or 20, trials=trials
            )
    name = "eigenfed's noise on a covariance" if published is None else published
    attacker = (
        f"The attacker knows all rows but one, and sees what {name} releases; two candidates are "
        "left for the last row."
    )
    lines = [attacker, found.text, _odds(found.certified)]
    if truth is not None:
        lines.append(truth.text)
    data = dict(vars(found)) | {
        "mechanism": published or "sound",
        "refutes": found.refutes,
        "holds": None if truth is None else truth.holds,
        "text": "\n".join(lines),
    }
    return CommandResult(data, "\n".join(lines))


def _odds(certified: float) -> str:
    if certified == 0.0:
        return "These runs do not certify that any release tells the candidates apart."
    return (
        f"Some releases are at least {math.exp(certified):.3g} times likelier with one candidate "
        "than with the other."
    )


@audit.command(
    epilog=example(
        "eigenfed audit membership cohort.csv -k 3",
        "eigenfed audit membership cohort.csv -k 3 --epsilon 1 --delta 1e-3",
    ),
    short_help="Tell whether a record was among the rows.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@click.option(
    "-k",
    "k",
    type=click.IntRange(min=1),
    default=2,
    show_default=True,
    help="Number of components.",
)
@options.epsilon
@options.delta
@options.clip
@click.option(
    "--record",
    type=click.IntRange(min=1),
    help="Number of the record, files by name; by default the one farthest from the mean.",
)
@click.option(
    "--size", type=click.IntRange(min=2), help="Rows of a run; 50 by default, or all there are."
)
@click.option(
    "--trials",
    type=click.IntRange(min=20),
    default=200,
    show_default=True,
    help="Runs with the record, and as many without.",
)
@options.seed
@answering
def membership(
    voice: Voice,
    files: tuple[Path, ...],
    k: int,
    epsilon: float | None,
    delta: float | None,
    clip: float | None,
    record: int | None,
    size: int | None,
    trials: int,
    seed: int | None,
) -> CommandResult:
    """Tell from released components whether a record of FILES was among the rows.

    Many runs are made on rows drawn from FILES, with the record and without it. With --epsilon
    they are private, with noise that one trusted party adds, and the claim is tested.
    """
    sites = options.site_names(files)
    trust = None if epsilon is None else "central"
    privacy = options.privacy_of(epsilon, delta, clip=clip, trust=trust)
    import numpy as np

    from eigenfed.study.audits.attacks import find_member

    with voice.progress() as show:
        found, place, rows = find_member(
            sites,
            k,
            record=record,
            size=size,
            trials=trials,
            rng=np.random.default_rng(seed),
            privacy=privacy,
            callback=show,
        )
    right = (1.0 + found.estimate) / 2.0
    text = "\n".join(
        [
            f"The attacker has record {place}, the {k} released components and the mean of a run "
            f"on {rows} rows, and guesses whether the record was among them.",
            f"It guessed rightly in {right:.0%} of held-out runs; a coin does in 50%.",
            found.text,
        ]
    )
    data = dict(vars(found)) | {
        "record": place,
        "size": rows,
        "k": k,
        "refutes": found.refutes,
        "text": text,
    }
    return CommandResult(data, text)


@audit.command(
    epilog=example("eigenfed audit coordinator north.toml study.toml"),
    short_help="Lie to a site as a coordinator could; tell what it brings.",
)
@click.argument("site", type=options.FILE)
@click.argument("study", type=options.FILE)
@answering
def coordinator(voice: Voice, site: Path, study: Path) -> CommandResult:
    """Attack the site whose file is SITE as a lying coordinator of STUDY could.

    It runs here, on the site's own rows, with made-up sites in place of the others. Nothing is sent
    anywhere and nothing is spent.
    """
    from eigenfed.study.audits.coordinator_audit import audit_coordinator, audit_page

    with voice.progress() as show:
        if show is not None:
            show("lying to the site")
        audited = audit_coordinator(site, study)
    found = audited.found
    data = {
        "site": audited.site,
        "study": audited.study.name,
        "digest": audited.digest,
        "method": audited.study.chosen.name,
        "lies": found.lies,
        "refused": found.refused,
        "answered": found.answered,
        "aborted": found.aborted,
        "codes": found.codes,
        "differing": found.differing,
        "agreed": dict(vars(found.agreed)),
        "greedy": dict(vars(found.greedy)),
    }
    return CommandResult(data, audit_page(audited), REFUSED if found.differing else 0)
