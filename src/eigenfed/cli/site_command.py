"""``eigenfed site``: a site's consent to studies, and the site that answers them."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import columns
from eigenfed.errors import FAILED, REFUSED, EigenfedError

if TYPE_CHECKING:
    from eigenfed.study.config import SiteFile, StudyFile
    from eigenfed.study.network.study_terms import StudyTerms

_BY = click.option("--by", default="", help="Who decides this; it is recorded.")
_RUN = "run"


class SiteCommands(click.Group):
    """A group whose command ``run`` can be left out."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Insert ``run`` before a path."""
        named = bool(args) and (args[0] in self.commands or args[0].startswith("-"))
        if args and not named and _RUN in self.commands:
            args = [_RUN, *args]
        return super().parse_args(ctx, args)


@click.group(
    cls=SiteCommands,
    epilog=example(
        "eigenfed site approve study.toml site.toml",
        "eigenfed site site.toml",
        "eigenfed site show site.toml",
        "eigenfed site withdraw study.toml site.toml",
    ),
    short_help="Approve studies and answer them, at a site.",
)
def site() -> None:
    """Decide at a site which studies it answers, and answer them.

    A site answers only studies of which it has approved the file. What the coordinator asks for
    beyond that is refused.
    """


@site.command(
    epilog=example(
        "eigenfed site site.toml",
        "eigenfed site run site.toml --once",
        "eigenfed site run site.toml --watch",
    ),
    short_help="Answer the runs of approved studies, until stopped.",
)
@click.argument("site_file", metavar="SITE", type=options.FILE)
@click.option(
    "--once",
    is_flag=True,
    help='With engine = "files": answer what is there, and exit.',
)
@options.watch
@print_result
def run(console: Console, site_file: Path, once: bool, watch_port: int | None) -> CommandResult:
    """Answer the coordinator of the network that the site with the file SITE has joined.

    Only runs of approved studies are answered, within the site's policy and budget. The command
    stays up across studies; it may be stopped and started at any time, also within a run. Results
    arrive in the folder results beside SITE, with a page about the site's own rows.
    """
    from eigenfed.cli.site_run import answer_waiting, serve_until_stopped

    if once:
        return answer_waiting(console, site_file)
    return serve_until_stopped(console, site_file, watch_port)


@site.command(
    epilog=example(
        'eigenfed site approve study.toml site.toml --by "E. Hansen"',
    ),
    short_help="Show what a study asks for, and approve it.",
)
@click.argument("study", type=options.FILE)
@click.argument("site_file", metavar="SITE", type=options.FILE)
@click.option("--fingerprint", help="Approve only a study with this fingerprint, without asking.")
@click.option("--yes", is_flag=True, help="Approve without asking.")
@_BY
@print_result
def approve(
    console: Console, study: Path, site_file: Path, fingerprint: str | None, yes: bool, by: str
) -> CommandResult:
    """Show what STUDY asks of the site with the file SITE, and approve it.

    A copy of the study is kept in the site's network folder, and the decision is recorded there.
    The engine, the quorum and deadlines are not part of what is approved. A study that the site's
    policy refuses is not approved.
    """
    from eigenfed.study.config import read_site, read_study
    from eigenfed.study.network.approvals import approve_study, check_member
    from eigenfed.study.network.network_folder import check_fingerprint
    from eigenfed.study.network.study_terms import describe_terms

    asked, own = read_study(study), read_site(site_file)
    check_member(asked, own)
    roster = _read_roster(own)
    terms = describe_terms(asked, own, roster)
    data = _list_terms(terms) | {"approved": False}
    page = _format_terms(terms)
    if terms.refusals:
        reasons = "\n".join(f"  {text}" for text in terms.refusals.values())
        return CommandResult(
            data, f"{page}\n\nNot approved. The policy of this site refuses it:\n{reasons}", REFUSED
        )
    _note_absent(console, asked, own)
    if fingerprint is not None:
        check_fingerprint(fingerprint, terms.fingerprint, f"the study in {study}")
    elif not yes:
        agreed = console.confirm(
            page,
            "Approve this study?",
            "Nobody can be asked here. Pass --fingerprint or --yes to approve.",
        )
        if not agreed:
            return CommandResult(data, "Not approved.", FAILED)
        page = ""
    copy = approve_study(asked, own, by=by)
    if roster is None:
        console.note("This site has not joined a network yet: see eigenfed network join.")
    last = f"Approved {asked.name}. Its copy is {copy}."
    return CommandResult(
        data | {"approved": True, "copy": str(copy)}, f"{page}\n\n{last}" if page else last
    )


@site.command(
    epilog=example(
        "eigenfed site withdraw study.toml site.toml",
        "eigenfed site withdraw K7QM-2XPA-5RUE-NS4D-WVTY site.toml",
    ),
    short_help="Withdraw the approval of a study.",
)
@click.argument("study", metavar="STUDY")
@click.argument("site_file", metavar="SITE", type=options.FILE)
@_BY
@print_result
def withdraw(console: Console, study: str, site_file: Path, by: str) -> CommandResult:
    """Withdraw the approval of STUDY, at the site with the file SITE.

    STUDY is the study file, or the fingerprint or digest that eigenfed site show prints. From now
    on nothing is answered for the study, also not in a run that is open.
    """
    from eigenfed.study.config import read_site
    from eigenfed.study.network.approvals import withdraw_study
    from eigenfed.study.network.site_service import forget_runs

    own = read_site(site_file)
    digest = _find_digest(study, own)
    name = withdraw_study(own, digest, by=by).name
    forgotten = forget_runs(own, digest)
    ended = f" {forgotten} of its runs ended with it." if forgotten else ""
    return CommandResult(
        {"study": name, "digest": digest, "ended": forgotten},
        f"Withdrew the approval of {name}, digest {digest}.{ended}",
    )


@site.command(
    epilog=example("eigenfed site show site.toml"),
    short_help="Show the approved studies.",
)
@click.argument("site_file", metavar="SITE", type=options.FILE)
@print_result
def show(console: Console, site_file: Path) -> CommandResult:
    """Show the studies that the site with the file SITE has approved, and what was decided when."""
    from eigenfed.study.config import read_site
    from eigenfed.study.network.approvals import list_approved, read_log

    own = read_site(site_file)
    approved = [
        {"study": found.study.name, "fingerprint": found.fingerprint, "digest": found.digest}
        for found in list_approved(own)
    ]
    roster, log = _read_roster(own), read_log(own)
    network = None
    if roster is not None:
        network = {"study": roster.study, "fingerprint": roster.fingerprint}
    data = {"site": own.name, "network": network, "approved": approved, "log": log}
    return CommandResult(data, _format_site(data))


def _note_absent(console: Console, study: "StudyFile", site: "SiteFile") -> None:
    """Note what the study asks for that the site's file lacks: its runs would not be answered."""
    from eigenfed.data.column_names import list_columns
    from eigenfed.study.scores import Rows

    if site.has_summary or study.matches_variants or isinstance(study.features, str):
        return
    try:
        absent = Rows.of_site(site, study).list_absent(study.features)
    except EigenfedError as error:
        console.note(f"The study cannot be answered yet: {error}")
        return
    if absent:
        console.note(
            f"The study cannot be answered yet: {site.data} lacks {list_columns(absent)}. Check "
            "the spelling, or give its columns the study's names with rename in SITE."
        )


def _read_roster(site: "SiteFile") -> Any:
    from eigenfed.study.network.roster_file import ROSTER, read_roster

    path = site.network / ROSTER
    return read_roster(path) if path.exists() else None


def _find_digest(text: str, site: "SiteFile") -> str:
    from eigenfed.study.config import read_study
    from eigenfed.study.network.approvals import list_approved
    from eigenfed.study.network.key_files import same_fingerprint

    if Path(text).is_file():
        return read_study(text).study.digest
    for found in list_approved(site):
        if same_fingerprint(text, found.fingerprint):
            return found.digest
    return text


def _list_terms(terms: "StudyTerms") -> dict[str, Any]:
    study = terms.study
    return {
        "study": study.name,
        "digest": terms.digest,
        "fingerprint": terms.fingerprint,
        "sites": list(study.sites),
        "components": study.components,
        "methods": list(terms.methods),
        "features": None if isinstance(study.features, str) else len(study.features),
        "secure": study.study.masked,
        "privacy": study.privacy,
        "leaves": terms.leaves,
        "refusals": terms.refusals,
    }


def _format_terms(terms: "StudyTerms") -> str:
    leaves = columns([(f"  {what}", how) for what, how in terms.leaves.items()])
    return f"{columns(terms.lines)}\n\nWhat leaves this site:\n{leaves}"


def _format_site(data: dict[str, Any]) -> str:
    network = data["network"]
    joined = (
        f"in the network of {network['study']}, roster {network['fingerprint']}"
        if network
        else "in no network"
    )
    lines = [f"{data['site']}: {joined}", ""]
    if data["approved"]:
        rows = [(f["study"], f["fingerprint"], f["digest"]) for f in data["approved"]]
        lines.append(columns([("approved", "fingerprint", "digest"), *rows]))
    else:
        lines.append("No study is approved.")
    if data["log"]:
        events = [(e["time"], e["action"], e["study"], e["by"]) for e in data["log"]]
        lines += ["", columns([("time", "", "study", "by"), *events])]
    return "\n".join(lines)
