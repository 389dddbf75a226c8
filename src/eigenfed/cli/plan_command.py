"""``eigenfed plan``: what a study would take, before anything runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Voice, answering
from eigenfed.cli.tables import columns
from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.privacy.guarantee import Privacy
    from eigenfed.protocol.method import Method
    from eigenfed.study.config import StudyFile
    from eigenfed.study.planning.forecast import Case, Forecast, Question


@click.command(
    epilog=example(
        "A study, with what its [expected] says:",
        "  eigenfed plan study.toml",
        "The same on a slower line, and with differential privacy:",
        "  eigenfed plan study.toml --latency-ms 200 --epsilon 1 --delta 1e-6",
        "Three sites without a file:",
        "  eigenfed plan --rows 3000,900,150 --features 120 -k 4 --decay 0.9",
    ),
    short_help="Say what a study would take, before anything runs.",
)
@click.argument("study", required=False, type=options.FILE)
@click.option("--rows", help="Rows of each site: 3000,900,150 or north=3000,south=900.")
@click.option("--features", type=click.IntRange(min=1), help="Number of features.")
@click.option("-k", "k", type=click.IntRange(min=1), help="Number of components.")
@options.method_option()
@options.secure
@options.epsilon
@options.delta
@options.clip
@options.colluders
@options.dropouts
@options.count
@options.trust
@options.scale
@click.option("--spectrum", type=options.FILE, help="A file with an eigenvalue a line.")
@click.option(
    "--decay",
    type=click.FloatRange(0.0, 1.0, min_open=True),
    help="Each eigenvalue is this share of the one before.",
)
@click.option(
    "--latency-ms",
    type=click.FloatRange(min=0.0),
    help="From the coordinator to a site and back, in milliseconds.",
)
@click.option(
    "--bandwidth-mbps",
    type=click.FloatRange(min=0.0, min_open=True),
    help="Of the coordinator's link, which all sites share, in megabits a second.",
)
@answering
def plan(
    voice: Voice,
    study: Path | None,
    rows: str | None,
    features: int | None,
    k: int | None,
    method: str | None,
    method_options: tuple[str, ...],
    secure: bool,
    epsilon: float | None,
    delta: float | None,
    clip: float | None,
    colluders: int | None,
    dropouts: int | None,
    count: str | None,
    trust: str | None,
    scale: bool,
    spectrum: Path | None,
    decay: float | None,
    latency_ms: float | None,
    bandwidth_mbps: float | None,
) -> CommandResult:
    """Say what STUDY would take: rounds, bytes, memory, time, leakage, and what noise leaves.

    Options fill in or replace what the file says. The real protocol is run on small made-up
    sites whose rows have the eigenvalues that are expected; nobody's data are read. Without
    --spectrum or --decay three spectra are assumed, between which the truth lies.
    """
    if spectrum is not None and decay is not None:
        raise click.UsageError(
            "--spectrum and --decay both say how eigenvalues fall. Pass one of them."
        )
    from eigenfed.study.config import read_spectrum, read_study
    from eigenfed.study.planning.forecast import forecast
    from eigenfed.study.planning.plan import verdict

    file = None if study is None else read_study(study)
    terms = {
        "clip": clip,
        "colluders": colluders,
        "dropouts": dropouts,
        "count": count,
        "trust": trust,
    }
    given: dict[str, Any] = {
        "rows": _rows(rows, file),
        "features": features,
        "components": k,
        "method": _method(file, method, method_options),
        "secure": secure or None,
        "privacy": _privacy(file, epsilon, delta, terms),
        "scale": scale or None,
        "spectrum": None if spectrum is None else read_spectrum(spectrum),
        "decay": decay,
        "latency_ms": latency_ms,
        "bandwidth_mbps": bandwidth_mbps,
    }
    with voice.progress() as show:
        if show is not None:
            show("running the protocol on made-up sites")
        found = forecast(_question(file, given))
    said = verdict(found)
    digest = None if file is None else file.study.digest
    facts = _facts(found) | {"verdict": said, "digest": digest}
    return CommandResult(facts, _page(found, said, digest))


def _question(file: "StudyFile | None", given: dict[str, Any]) -> "Question":
    from eigenfed.study.planning.forecast import Question
    from eigenfed.study.planning.plan import question_of

    if file is not None:
        return question_of(file, **given)
    for name, option in (("rows", "--rows"), ("features", "--features"), ("components", "-k")):
        if given[name] is None:
            raise click.UsageError(f"{option} is missing. Pass it, or name a study file.")
    return Question(**{name: value for name, value in given.items() if value is not None})


def _method(
    file: "StudyFile | None", name: str | None, given: tuple[str, ...]
) -> "Method | str | None":
    """Return the method of the options; options alone are those of the file's method."""
    if name is None and not given:
        return None
    if name is None and file is not None and not isinstance(file.method, str):
        name = file.method.name
    return options.method_of(name, given)


def _privacy(
    file: "StudyFile | None", epsilon: float | None, delta: float | None, terms: dict[str, Any]
) -> "Privacy | None":
    """Return the privacy of the options, on top of what a study file has."""
    if file is None or file.privacy is None:
        return options.privacy_of(epsilon, delta, **terms)
    from dataclasses import replace

    changed = {"epsilon": epsilon, "delta": delta} | terms
    given: dict[str, Any] = {name: value for name, value in changed.items() if value is not None}
    return replace(file.privacy, **given)


def _rows(text: str | None, file: "StudyFile | None") -> dict[str, int] | None:
    """Read numbers of rows, by the names of the sites or in their order."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts]
    if not all(count.strip().isdigit() for count in _counts(named)):
        raise click.UsageError(
            f"--rows {text} must be whole numbers between commas, all of them with the name of "
            "their site or none. Pass 3000,900,150 or north=3000,south=900, say."
        )
    if named[0][1]:
        found = {name.strip(): int(count) for name, _, count in named}
        names = tuple(found) if file is None else file.sites
        if set(found) != set(names) or len(found) < len(named):
            raise click.UsageError(
                f"--rows names {', '.join(name for name, _, _ in named)} and must name each of "
                f"{', '.join(names)} once. Take the names of the sites."
            )
        return found
    names = file.sites if file else tuple(f"site {i}" for i in range(1, len(parts) + 1))
    if len(names) != len(parts):
        raise click.UsageError(
            f"--rows has {len(parts)} numbers and the study {len(names)} sites. Pass a number for "
            "each."
        )
    return dict(zip(names, map(int, parts), strict=True))


def _counts(named: list[tuple[str, str, str]]) -> list[str]:
    """Return what should be numbers; nothing where only some parts have a name."""
    with_names = [bool(sign) for _, sign, _ in named]
    if any(with_names) != all(with_names):
        return [""]
    return [count if sign else name for name, sign, count in named]


def _facts(found: "Forecast") -> dict[str, Any]:
    asked = found.question
    return {
        "sites": asked.rows,
        "n": asked.n,
        "d": asked.features,
        "k": asked.components,
        "method": found.method.name,
        "options": found.method.options,
        "reason": found.why,
        "secure": asked.secure,
        "privacy": asked.privacy,
        "rounds": found.rounds,
        "rows_bytes": found.rows_bytes,
        "cases": found.cases,
    }


def _page(found: "Forecast", said: str, digest: str | None) -> str:
    from textwrap import fill

    asked = found.question
    sites = len(asked.rows)
    head = (
        f"{asked.components} components of {asked.n} rows x {asked.features} features at {sites} "
        f"site{'s' * (sites != 1)}, by {_named(found.method)}"
    )
    table = columns(list(zip(*_table(found), strict=True)))
    notes = (fill(note, 90) for note in [*_notes(found), said])
    approve = [] if digest is None else [f"Digest to approve: {digest}"]
    return "\n\n".join([head, table, *notes, *approve])


def _named(method: "Method") -> str:
    given = ", ".join(f"{option} = {value}" for option, value in method.options.items())
    return f"{method.name} with {given}" if given else method.name


def _table(found: "Forecast") -> list[list[str]]:
    """Return the columns: what things are, and each case."""
    private = found.question.privacy is not None
    names = ["rounds", "up, a site", "down, a site", "all sites", "time"]
    names += ["memory at a site", "memory at the coordinator"]
    names += ["captured", "noise / signal"] if private else ["directions told", "variance told"]
    cases = [_column(case, private=private) for case in found.cases]
    if not _differ(found):
        return [names, cases[0]]
    named = zip(found.cases, cases, strict=True)
    return [["eigenvalues", *names], *([case.spectrum, *cells] for case, cells in named)]


def _differ(found: "Forecast") -> bool:
    """Say whether it matters how the eigenvalues fall."""
    return any(case.traffic != found.cases[0].traffic or case.kept for case in found.cases[1:])


def _column(case: "Case", *, private: bool) -> list[str]:
    traffic = case.traffic
    if not private:
        last = [f"{case.rank_fraction:.2%}", f"{case.variance_fraction:.0%}"]
    elif case.kept is None or case.kept.captured is None:
        last = ["none", "none"]
    else:
        last = [f"{case.kept.captured:.1%}", f"{case.kept.ratio:.3f}"]
    return [
        str(traffic.rounds),
        *map(size, (traffic.up, traffic.down, traffic.all_bytes)),
        _duration(case.seconds),
        *(size(round(held)) for held in (case.site_bytes, case.coordinator_bytes)),
        *last,
    ]


def _notes(found: "Forecast") -> list[str]:
    """Say what the numbers stand on."""
    asked = found.question
    notes = [
        "Rounds and bytes are those of the real protocol on made-up sites, with fewer features "
        "that stand for many."
    ]
    if _differ(found):
        notes.append(
            "Eigenvalues are not known, and three spectra are assumed: steep, nothing beside the "
            "components; usual, one over its place; flat, pure noise. The truth lies between. Give "
            "--spectrum or --decay for one column."
        )
    if asked.latency_ms is None or asked.bandwidth_mbps is None:
        wire = "lacks the wire: give --latency-ms and --bandwidth-mbps"
        if asked.latency_ms is not None or asked.bandwidth_mbps is not None:
            lacks = "--latency-ms" if asked.latency_ms is None else "--bandwidth-mbps"
            wire = f"lacks a part of the wire: give {lacks}"
    else:
        wire = "has rounds x latency, and the bytes of all sites on the coordinator's one link"
    notes.append(
        f"Time {wire}. Memory at a site comes on top of its rows, at most "
        f"{size(found.rows_bytes)} where they are dense and not read from a file as needed."
    )
    if asked.privacy is not None:
        notes.append(
            "Captured is the variance along the noised components over that along the best. What "
            "is told is limited by noise, not by the meter of directions."
        )
    return notes


def _duration(seconds: float) -> str:
    """Write a time in two digits.

    Examples
    --------
    >>> _duration(0.05), _duration(75.2), _duration(600.0), _duration(9000.0)
    ('under 0.1 s', '75 s', '10 min', '2.5 h')
    """
    if seconds < 0.1:
        return "under 0.1 s"
    if seconds < 120.0:
        return f"{seconds:.0f} s" if seconds >= 10.0 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200.0 else f"{seconds / 3600:.1f} h"
