"""``eigenfed audit``: attack a configuration, and report what an attacker learns."""

import math
from pathlib import Path
from typing import Any

import click

from eigenfed.cli import options
from eigenfed.cli.input_options import Inputs, column_options, open_tables
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.errors import REFUSED
from eigenfed.report.wording import things

PUBLISHED = ("SuLQ", "ModSuLQ", "AnalyzeGauss", "DPdisPCA", "StreamingModSuLQ")


@click.group(
    epilog=example(
        "eigenfed audit reconstruct north.csv south.csv -k 10",
        "eigenfed audit epsilon --epsilon 2 --delta 1e-5 --published DPdisPCA",
        "eigenfed audit membership cohort.csv -k 3 --epsilon 1 --delta 1e-3",
        "eigenfed audit coordinator sites/north/site.toml study.toml",
    ),
    short_help="Attack a configuration; report what is learnt.",
)
def audit() -> None:
    """Attack a configuration and report what an attacker learns."""


@audit.command(
    epilog=example("eigenfed audit reconstruct north.csv south.csv -k 10"),
    short_help="Reconstruct the covariance as a coordinator could.",
)
@click.argument("files", nargs=-1, required=True, type=options.FILE)
@options.components
@options.method_option("krylov")
@options.seed
@print_result
@column_options
def reconstruct(
    console: Console,
    files: tuple[Path, ...],
    k: int,
    method: str,
    method_options: tuple[str, ...],
    seed: int | None,
    id_column: str | None,
    inputs: Inputs,
) -> CommandResult:
    """Reconstruct the covariance of all rows in FILES from what the coordinator of a run sees.

    The run is exact, and its method must request products with directions. The method covariance
    needs no attack, as it sends the covariance itself.
    """
    sites = options.name_sites(files)
    chosen = options.parse_method(method, method_options)
    if isinstance(chosen, str):
        raise click.UsageError("--method auto cannot be attacked. Pass --method krylov.")
    import numpy as np

    from eigenfed.study.audits.attacks import reconstruct_covariance

    tables = _open(sites, inputs, id_column)
    found = reconstruct_covariance(tables, k, method=chosen, rng=np.random.default_rng(seed))
    known = "that is all of it" if found.directions == found.d else "the rest is estimated"
    text = "\n".join(
        [
            f"The attacker coordinates a run of {method} over {things(len(sites), 'site')} and "
            "uses only the sums that it requested.",
            f"In {things(found.rounds, 'round')} it learnt the covariance of all rows exactly "
            f"along {found.directions} of {found.d} directions; {known}.",
            f"The relative error of its estimate of the full covariance is {found.error:.1%} "
            f"(correlation {found.correlation:.4f} over all entries).",
            "Secure aggregation does not prevent this, as the attack needs only sums over all "
            "sites. Noise does (--epsilon), and so does a site policy that limits the rank or the "
            "variance it reveals.",
        ]
    )
    return CommandResult(dict(vars(found)), text)


@audit.command(
    epilog=example(
        "eigenfed audit epsilon --epsilon 1 --delta 1e-3",
        "eigenfed audit epsilon --epsilon 2 --delta 1e-5 --published DPdisPCA",
    ),
    short_help="Measure a lower bound on a mechanism's epsilon.",
)
@click.option("--epsilon", type=float, required=True, help="The claimed epsilon.")
@click.option("--delta", type=float, required=True, help="The delta of the claim.")
@click.option(
    "--published",
    type=click.Choice(PUBLISHED),
    help="Audit a published mechanism, as printed in its paper.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=100),
    default=100_000,
    show_default=True,
    help="Number of runs on each of the two data sets.",
)
@click.option(
    "--sites",
    type=click.IntRange(min=1),
    help="Number of sites that each add a part of the noise; cannot be combined with --published.  "
    "[default: 3]",
)
@click.option(
    "--rows",
    type=click.IntRange(min=1),
    help="With --published: number of rows.  [default: 1000]",
)
@click.option(
    "--features",
    type=click.IntRange(min=2),
    help="With --published: number of features.  [default: 20]",
)
@print_result
def epsilon(
    console: Console,
    epsilon: float,
    delta: float,
    published: str | None,
    trials: int,
    sites: int | None,
    rows: int | None,
    features: int | None,
) -> CommandResult:
    """Run a mechanism many times on two neighbouring data sets, and bound its epsilon from below.

    By default the mechanism is eigenfed's own noise on a covariance. The bound holds with 95%
    confidence. It can refute a claimed epsilon, but never prove one.
    """
    if published is None and (rows is not None or features is not None):
        raise click.UsageError("--rows and --features require --published. Drop them.")
    if published is not None and sites is not None:
        raise click.UsageError("--sites cannot be combined with --published. Drop one.")
    options.parse_privacy(epsilon, delta)
    from eigenfed.study.audits.distinguishing import audit_own_noise, audit_published

    with console.progress() as show:
        if show is not None:
            show(f"{trials} runs on each data set")
        if published is None:
            found, truth = audit_own_noise(epsilon, delta, trials=trials, parties=sites or 3), None
        else:
            found, truth = audit_published(
                published, epsilon, delta, n=rows or 1000, d=features or 20, trials=trials
            )
    name = "eigenfed's noise on a covariance" if published is None else published
    attacker = (
        f"The attacker knows all rows but one and sees the output of {name}; for the last row, two "
        "candidates are left."
    )
    lines = [attacker, found.text, _describe_odds(found.certified)]
    if truth is not None:
        lines.append(truth.text)
    data = dict(vars(found)) | {
        "mechanism": published or "sound",
        "refutes": found.refutes,
        "holds": None if truth is None else truth.holds,
        "text": "\n".join(lines),
    }
    return CommandResult(data, "\n".join(lines))


def _open(sites: dict[str, Path], inputs: Inputs, id_column: str | None) -> dict[str, Any]:
    inputs.check(list(sites.values()))
    inputs.check_columns(list(sites.values()), None)
    return open_tables(sites, inputs, id_column=id_column)


def _describe_odds(certified: float) -> str:
    if certified == 0.0:
        return "These runs do not show that any output distinguishes the candidates."
    return (
        f"Some outputs are at least {math.exp(certified):.3g} times as likely with one candidate "
        "as with the other."
    )


@audit.command(
    epilog=example(
        "eigenfed audit membership cohort.csv -k 3",
        "eigenfed audit membership cohort.csv -k 3 --epsilon 1 --delta 1e-3",
    ),
    short_help="Infer whether a record was among the rows.",
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
    help="Number of the record, counted from 1 over all files in order of their names. By default "
    "the record farthest from the mean.",
)
@click.option(
    "--size",
    type=click.IntRange(min=2),
    help="Number of rows in each run. By default 50, or all if there are fewer.",
)
@click.option(
    "--trials",
    type=click.IntRange(min=20),
    default=200,
    show_default=True,
    help="Number of runs with the record, and of runs without it.",
)
@options.seed
@print_result
@column_options
def membership(
    console: Console,
    files: tuple[Path, ...],
    k: int,
    epsilon: float | None,
    delta: float | None,
    clip: float | None,
    record: int | None,
    size: int | None,
    trials: int,
    seed: int | None,
    id_column: str | None,
    inputs: Inputs,
) -> CommandResult:
    """Infer from released components whether a record of FILES was among the fitted rows.

    The attack is trained and tested on many runs over rows drawn from FILES, with and without the
    record. With --epsilon the runs are differentially private, with noise added by one trusted
    party, and the claimed guarantee is tested.
    """
    sites = options.name_sites(files)
    trust = None if epsilon is None else "central"
    privacy = options.parse_privacy(epsilon, delta, clip=clip, trust=trust)
    import numpy as np

    from eigenfed.study.audits.attacks import attack_membership

    with console.progress() as show:
        found, place, rows = attack_membership(
            _open(sites, inputs, id_column),
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
            f"The attacker knows record {place} and the released mean and "
            f"{things(k, 'component')} of a run on {things(rows, 'row')}, and guesses whether the "
            "record was among them.",
            f"It was right in {right:.0%} of held-out runs; a coin toss is right in 50%.",
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
    epilog=example("eigenfed audit coordinator sites/north/site.toml study.toml"),
    short_help="Attack a site as a lying coordinator could.",
)
@click.argument("site", type=options.FILE)
@click.argument("study", type=options.FILE)
@print_result
def coordinator(console: Console, site: Path, study: Path) -> CommandResult:
    """Attack the site with the file SITE as a lying coordinator of STUDY could.

    The attack runs locally on the site's own rows, with simulated other sites. Nothing is sent and
    no budget is spent. The exit code is 3 if a reply to a lie depended on the rows.
    """
    from eigenfed.study.audits.coordinator_audit import audit_coordinator, format_audit

    with console.progress() as show:
        if show is not None:
            show("attacking the site")
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
    return CommandResult(data, format_audit(audited), REFUSED if found.differing else 0)
