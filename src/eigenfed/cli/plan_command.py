"""``eigenfed plan``: forecast the cost and accuracy of a study before it runs."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.option_types import ComponentCount, Real
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import columns, study_size
from eigenfed.report.wording import duration, name_method, size, things

if TYPE_CHECKING:
    from eigenfed.privacy.privacy_terms import Privacy
    from eigenfed.protocol.method import Method
    from eigenfed.study.config import StudyFile
    from eigenfed.study.planning.forecast import Case, Forecast, Question


@click.command(
    epilog=example(
        "A study file with an [expected] table:",
        "  eigenfed plan study.toml",
        "The same over a slower network, and with differential privacy:",
        "  eigenfed plan study.toml --latency-ms 200 --epsilon 1 --delta 1e-6",
        "Three sites, without a study file:",
        "  eigenfed plan --rows 3000,900,150 --features 120 -k 4 --decay 0.9",
    ),
    short_help="Forecast the cost and accuracy of a study.",
)
@click.argument("study", required=False, type=options.FILE)
@click.option("--rows", help="Number of rows of each site: 3000,900,150 or north=3000,south=900.")
@click.option("--features", type=click.IntRange(min=1), help="Number of features.")
@click.option(
    "-k",
    "k",
    type=ComponentCount(),
    help="Number of components; a fraction of the variance, all or auto, for the number that the "
    "expected eigenvalues give.",
)
@options.method_option()
@options.secure
@options.privacy_terms
@options.scale
@options.prepare
@click.option(
    "--spectrum", type=options.FILE, help="File with the expected eigenvalues, one per line."
)
@click.option(
    "--decay",
    type=Real(0.0, 1.0, min_open=True),
    help="Expected ratio of each eigenvalue to the one before.",
)
@click.option(
    "--offset",
    type=Real(min=0.0),
    help="With --epsilon: expected distance of the mean of the rows from the public centre, or "
    "from 0, relative to their spread.  [default: 1 with a public centre, otherwise 5]",
)
@click.option(
    "--latency-ms",
    type=Real(min=0.0),
    help="Round-trip time between the coordinator and a site, in milliseconds.",
)
@click.option(
    "--bandwidth-mbps",
    type=Real(min=0.0, min_open=True),
    help="Bandwidth of the coordinator's link, shared by all sites, in megabits per second.",
)
@print_result
def plan(
    console: Console,
    study: Path | None,
    rows: str | None,
    features: int | None,
    k: int | float | str | None,
    method: str | None,
    method_options: tuple[str, ...],
    secure: bool | None,
    terms: dict[str, Any],
    scale: bool,
    prepare: tuple[str, ...],
    spectrum: Path | None,
    decay: float | None,
    offset: float | None,
    latency_ms: float | None,
    bandwidth_mbps: float | None,
) -> CommandResult:
    """Forecast rounds, bytes, memory, time, leakage and accuracy of STUDY.

    Options add to the study file or override it. The forecast runs the real protocol on small
    simulated sites with the expected eigenvalues, and reads no data. Without --spectrum or --decay
    it assumes three spectra, between which the true one should lie.
    """
    if spectrum is not None and decay is not None:
        raise click.UsageError(
            "--spectrum and --decay both define the eigenvalues. Pass one of them."
        )
    from eigenfed.study.config import read_spectrum, read_study
    from eigenfed.study.planning.forecast import forecast
    from eigenfed.study.planning.plan import write_verdict

    file = None if study is None else read_study(study)
    given: dict[str, Any] = {
        "rows": _parse_rows(rows, file),
        "features": features,
        "components": k,
        "method": _parse_method(file, method, method_options),
        "secure": secure,
        "privacy": _parse_privacy(file, terms),
        "scale": scale or None,
        "prepare": prepare or None,
        "spectrum": None if spectrum is None else read_spectrum(spectrum),
        "decay": decay,
        "offset": offset,
        "latency_ms": latency_ms,
        "bandwidth_mbps": bandwidth_mbps,
    }
    if offset is not None and given["privacy"] is None:
        raise click.UsageError("--offset requires --epsilon, or a study with [privacy]. Drop it.")
    with console.progress() as show:
        if show is not None:
            show("running the protocol on simulated sites")
        found = forecast(_make_question(file, given))
    verdict = write_verdict(found)
    digest = None if file is None else file.study.digest
    facts = _list_facts(found) | {"verdict": verdict, "digest": digest}
    return CommandResult(facts, _format_page(found, verdict, digest))


def _make_question(file: "StudyFile | None", given: dict[str, Any]) -> "Question":
    from eigenfed.study.planning.plan import make_question, make_study_question

    if file is not None:
        return make_study_question(file, **given)
    for name, option in (("rows", "--rows"), ("features", "--features"), ("components", "-k")):
        if given[name] is None:
            raise click.UsageError(f"{option} is missing. Pass it, or name a study file.")
    return make_question(**{name: value for name, value in given.items() if value is not None})


def _parse_method(
    file: "StudyFile | None", name: str | None, given: tuple[str, ...]
) -> "Method | str | None":
    """Return the method of the options; ``--option`` alone applies to the file's method."""
    if name is None and not given:
        return None
    if name is None and file is not None and not isinstance(file.method, str):
        name = file.method.name
    return options.parse_method(name, given)


def _parse_privacy(file: "StudyFile | None", terms: dict[str, Any]) -> "Privacy | None":
    """Return the privacy of the study file, with options overriding it."""
    if file is None or file.privacy is None:
        return options.parse_privacy(**terms)
    from dataclasses import replace

    given: dict[str, Any] = {name: value for name, value in terms.items() if value is not None}
    return replace(file.privacy, **given)


def _parse_rows(text: str | None, file: "StudyFile | None") -> dict[str, int] | None:
    """Parse numbers of rows, given by name of site or in the order of the sites."""
    if text is None:
        return None
    parts = [part.strip() for part in text.split(",")]
    named = [part.partition("=") for part in parts]
    if not all(count.strip().isdigit() for count in _list_counts(named)):
        raise click.UsageError(
            f"--rows {text} must be integers separated by commas, either all or none with the name "
            "of a site. Pass 3000,900,150 or north=3000,south=900, for example."
        )
    if named[0][1]:
        found = {name.strip(): int(count) for name, _, count in named}
        names = tuple(found) if file is None else file.sites
        if set(found) != set(names) or len(found) < len(named):
            raise click.UsageError(
                f"--rows names the sites {', '.join(name for name, _, _ in named)}, and must name "
                f"each of {', '.join(names)} once."
            )
        return found
    names = file.sites if file else tuple(f"site {i}" for i in range(1, len(parts) + 1))
    if len(names) != len(parts):
        raise click.UsageError(
            f"--rows has {len(parts)} numbers, and the study has {len(names)} sites. Pass one "
            "number for each site."
        )
    return dict(zip(names, map(int, parts), strict=True))


def _list_counts(named: list[tuple[str, str, str]]) -> list[str]:
    """Return the texts that must be integers; an invalid one if only some parts have a name."""
    with_names = [bool(sign) for _, sign, _ in named]
    if any(with_names) != all(with_names):
        return [""]
    return [count if sign else name for name, sign, count in named]


def _list_facts(found: "Forecast") -> dict[str, Any]:
    question = found.question
    return {
        "sites": question.rows,
        "n": question.n,
        "d": question.width,
        "prepare": [step.text for step in question.prepare],
        "features": question.features,
        "k": question.components,
        "components": question.components if question.rule is None else question.rule,
        "method": found.method.name,
        "options": found.method.options,
        "reason": found.why,
        "secure": question.secure,
        "privacy": question.privacy,
        "rounds": found.rounds,
        "rows_bytes": found.rows_bytes,
        "noise_share": found.noise_share,
        "above_noise": found.above_noise,
        "cases": found.cases,
    }


def _format_page(found: "Forecast", verdict: str, digest: str | None) -> str:
    from textwrap import fill

    question = found.question
    head = study_size(question.components, question.n, question.width, len(question.rows))
    table = columns(list(zip(*_list_columns(found), strict=True)))
    notes = (fill(note, 90) for note in [*_write_notes(found), verdict])
    approve = [] if digest is None else [f"Digest to approve: {digest}"]
    return "\n\n".join(
        [
            f"{head}, by {name_method(found.method.name, found.method.options)}",
            table,
            *notes,
            *approve,
        ]
    )


def _list_columns(found: "Forecast") -> list[list[str]]:
    """Return the columns of the table: the row names, then each case."""
    private = found.question.privacy is not None
    names = ["rounds", "sent per site", "received per site", "total, all sites", "time"]
    names += ["memory at a site", "memory at the coordinator"]
    names += (
        ["captured variance", "signal of PC1", "noise / signal"]
        if private
        else ["directions revealed", "variance revealed"]
    )
    cases = [_list_cells(case, private=private) for case in found.cases]
    if not _depends_on_spectrum(found):
        return [names, cases[0]]
    named = zip(found.cases, cases, strict=True)
    return [["eigenvalues", *names], *([case.spectrum, *cells] for case, cells in named)]


def _depends_on_spectrum(found: "Forecast") -> bool:
    """Return whether the cases, which differ in their eigenvalues, differ in anything else."""
    first = found.cases[0].traffic, found.cases[0].rank_fraction
    return any((case.traffic, case.rank_fraction) != first or case.kept for case in found.cases[1:])


def _list_cells(case: "Case", *, private: bool) -> list[str]:
    traffic = case.traffic
    if not private:
        last = [f"{case.rank_fraction:.2%}", f"{case.variance_fraction:.0%}"]
    elif case.kept is None or case.kept.captured is None:
        last = ["none", "none", "none"]
    else:
        kept = case.kept
        last = [f"{kept.captured:.1%}", f"{kept.signal:.1%}", f"{kept.ratio:.3f}"]
    return [
        str(traffic.rounds),
        *map(size, (traffic.up, traffic.down, traffic.all_bytes)),
        duration(case.seconds),
        *(size(round(held)) for held in (case.site_bytes, case.coordinator_bytes)),
        *last,
    ]


def _write_notes(found: "Forecast") -> list[str]:
    """Return the assumptions behind the numbers."""
    question = found.question
    notes = [
        "Rounds and bytes come from a run of the real protocol on simulated sites, scaled up to "
        "this number of features."
    ]
    if question.rule is not None:
        notes.append(_describe_count(question))
    if question.prepare:
        steps = ", ".join(step.text for step in question.prepare)
        notes.append(
            f"Rows are prepared by {steps}; the eigenvalues are those of prepared rows. The rounds "
            "of the preparation are included."
        )
    if any(step.name == "ld" for step in question.prepare):
        notes.append(_describe_products(question))
    if found.method.merges_streams():
        notes.append("The figures are for one summary of every site; sites may send several.")
    if _depends_on_spectrum(found):
        notes.append(
            "The eigenvalues are unknown, so three spectra are assumed: steep (no variance outside "
            "the components), usual (eigenvalue i proportional to 1/i) and flat (pure noise). The "
            "true one should lie between. Pass --spectrum or --decay to get one column."
        )
    if question.latency_ms is None or question.bandwidth_mbps is None:
        network = "excludes the network: pass --latency-ms and --bandwidth-mbps"
        if question.latency_ms is not None or question.bandwidth_mbps is not None:
            missing = "--latency-ms" if question.latency_ms is None else "--bandwidth-mbps"
            network = f"includes only a part of the network: pass {missing}"
    else:
        network = "includes one latency per round, and all bytes over the coordinator's link"
    held = f"take at most {size(found.rows_bytes)} if they are dense and held in memory"
    if question.scale == "genotype":
        held = f"stay in a file of {size(found.rows_bytes)}, packed"
    notes.append(f"Time {network}. Memory at a site does not include its rows, which {held}.")
    notes.append(_describe_edge(found))
    if question.privacy is not None:
        notes.append(
            "Captured variance is the variance along the noisy components relative to that along "
            "the best components; the signal of PC1 is the squared cosine of the first component "
            "with the true one. Noise limits what is revealed, so no directions are counted."
        )
        notes.append(_describe_privacy(question))
    return notes


def _describe_products(question: "Question") -> str:
    """Return what is included of the products of neighbouring variants."""
    known = question.products
    if known is None:
        return (
            "How many products of neighbouring variants the step ld sums depends on where the "
            "variants lie. They are not included: name a study file with a manifest of variants."
        )
    return (
        f"The step ld sums at most {known.pairs} products of neighbouring variants, in "
        f"{things(known.tiles, 'sum')}. They are fewer if steps before it remove variants; so are "
        "the bytes of all later rounds."
    )


def _describe_count(question: "Question") -> str:
    """Return what the number of components rests on, where it follows from the data."""
    known = question.spectrum is not None or question.decay is not None
    basis = "the expected eigenvalues" if known else "eigenvalues proportional to 1/i"
    better = "" if known else " Pass --spectrum, --decay or a number if you know better."
    return (
        f"The number of components follows from the data, which a forecast does not read: -k "
        f"{question.rule} gives {things(question.components, 'component')} with {basis}, and "
        f"another number with others. A site agrees to up to as many as there are features.{better}"
    )


def _describe_edge(found: "Forecast") -> str:
    """Return how much a component must explain to stand above noise, and how many would."""
    count = found.above_noise
    text = (
        "Edge of noise: with so many rows, a component of independent features explains up to "
        f"{_format_fraction(found.noise_share)} of the variance in 95 of 100 samples. Components "
        "below that may be noise."
    )
    if count is None:
        return text
    verb = "explains" if count == 1 else "explain"
    return f"{text} With these eigenvalues {things(count, 'component')} {verb} more."


def _format_fraction(part: float) -> str:
    """Format a fraction in percent with two digits, and 100% as such.

    Examples
    --------
    >>> _format_fraction(0.0004321), _format_fraction(1.0)
    ('0.043%', '100%')
    """
    return f"{part:.0%}" if part >= 0.1 else f"{100 * part:.2g}%"


def _describe_privacy(question: "Question") -> str:
    from eigenfed.study.planning.noise_forecast import assume_offset

    privacy = question.privacy
    center = "0" if privacy is None or privacy.public_center is None else "the public centre"
    missing = "mean" if privacy is None else privacy.if_missing
    clip = ""
    if privacy is not None and privacy.clip is not None:
        clip = " The public clip is assumed to be hardly longer than nearly all rows."
    fate = {
        "mean": "replaced by the private mean",
        "public": "replaced by the public centre",
        "drop": "a reason to leave their row out",
    }
    return (
        "The mean of the rows is found with noise. It is assumed to be "
        f"{assume_offset(privacy, question.offset):g} times their spread away from {center}, where "
        "the search begins: pass --offset if you know better, or a rough public centre to lose "
        f"less.{clip} Missing entries would be {fate[missing]}."
    )
