"""``eigenfed network``: exchange keys between a coordinator and its sites."""

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import columns
from eigenfed.report.wording import join_names

if TYPE_CHECKING:
    from eigenfed.study.config import SiteFile
    from eigenfed.study.network.invitations import Invitation
    from eigenfed.study.network.roster_file import NetworkRoster

_REPLACE = click.option(
    "--replace",
    is_flag=True,
    help="Accept a key that differs from the one that was accepted before. The fingerprint of the "
    "new one is required.",
)


@click.group(
    epilog=example(
        "The coordinator, and then each site:",
        "  eigenfed network init study.toml",
        "  eigenfed network join heart.invitation.json site.toml",
        "The coordinator, when all requests have come, and then each site:",
        "  eigenfed network admit study.toml north.request.json south.request.json",
        "  eigenfed network join heart.roster.json site.toml",
    ),
    short_help="Exchange keys between a coordinator and its sites.",
)
def network() -> None:
    """Exchange keys between a coordinator and its sites, before a study runs between machines.

    Each party makes its own private key, which never leaves it. What parties send each other may
    travel by mail. Its fingerprint must travel by another way: read it to each other on the
    telephone.
    """


@network.command(
    epilog=example("eigenfed network init study.toml"),
    short_help="Make the coordinator's key and an invitation.",
)
@click.argument("study", type=options.FILE)
@print_result
def init(console: Console, study: Path) -> CommandResult:
    """Make the coordinator's key and an invitation for the sites of STUDY.

    The key is written to the folder network beside STUDY. Run it again after a change of [network]
    or of the list of sites: the key stays the same.
    """
    from eigenfed.study.config import read_study
    from eigenfed.study.network.inviting import invite_sites
    from eigenfed.study.network.key_files import fingerprint_study

    agreed = read_study(study)
    invitation, path = invite_sites(agreed)
    data = {
        "invitation": str(path),
        "sites": list(invitation.sites),
        "fingerprint": invitation.fingerprint,
        "study": fingerprint_study(agreed.study.digest),
    }
    text = (
        f"Wrote {path}. Send it to {_join(invitation.sites)}, with {study}.\n"
        f"Fingerprint of this coordinator: {data['fingerprint']}\n"
        f"Fingerprint of the study:        {data['study']}\n"
        "Read them to each site on the telephone."
    )
    return CommandResult(data, text)


@network.command(
    epilog=example(
        "Answer an invitation:",
        "  eigenfed network join heart.invitation.json site.toml",
        "Accept the roster, with the fingerprint that the coordinator has read to you:",
        "  eigenfed network join heart.roster.json site.toml "
        "--fingerprint K7QM-2XPA-5RUE-NS4D-WVTY",
    ),
    short_help="Join a network, at a site.",
)
@click.argument("file", type=options.FILE)
@click.argument("site", type=options.FILE)
@click.option(
    "--fingerprint",
    help="Fingerprint of the coordinator (with an invitation) or of the roster, as the coordinator "
    "has read it to you. By default you are asked for it.",
)
@_REPLACE
@print_result
def join(
    console: Console, file: Path, site: Path, fingerprint: str | None, replace: bool
) -> CommandResult:
    """Join a network with the site file SITE: answer an invitation, or accept a roster.

    FILE is what the coordinator has sent. With an invitation, the site's key is made, and a request
    to send back. With a roster, the keys of all others are kept: from then on this site answers
    nobody else.
    """
    from eigenfed.study.config import read_site
    from eigenfed.study.network.documents import read_bytes, read_kind

    file_of_site = read_site(site)
    is_roster = read_kind(read_bytes(file)) == "admission"
    accept = _accept_roster if is_roster else _accept_invitation
    return accept(console, file, file_of_site, fingerprint, replace)


def _accept_invitation(
    console: Console, file: Path, site: "SiteFile", fingerprint: str | None, replace: bool
) -> CommandResult:
    from eigenfed.study.network.invitations import read_invitation
    from eigenfed.study.network.joining import accept_invitation

    invitation = read_invitation(file)
    typed = fingerprint or _ask(console, "the coordinator")
    request, sent = accept_invitation(file, site, typed, replace=replace)
    data = {
        "study": invitation.study,
        "engine": invitation.engine,
        "address": str(invitation.address),
        "coordinator": invitation.fingerprint,
        "request": str(sent),
        "fingerprint": request.fingerprint,
    }
    text = (
        f"The study {invitation.study} runs {_describe(invitation)}.\n"
        f"Fingerprint of the coordinator: {invitation.fingerprint}, as you have typed it.\n"
        f"Wrote {sent}. Send it to the coordinator.\n"
        f"Fingerprint of this site: {request.fingerprint}\n"
        "Read it to the coordinator on the telephone."
    )
    return CommandResult(data, text)


def _accept_roster(
    console: Console, file: Path, site: "SiteFile", fingerprint: str | None, replace: bool
) -> CommandResult:
    from eigenfed.study.network.invitations import read_admission
    from eigenfed.study.network.joining import pin_roster

    read_admission(file)
    typed = fingerprint or _ask(console, "the roster")
    roster = pin_roster(file, site, typed, replace=replace)
    data = {
        "study": roster.study,
        "engine": roster.engine,
        "address": str(roster.address),
        "sites": list(roster.sites),
        "fingerprint": roster.fingerprint,
    }
    text = (
        f"Joined {roster.study} with {_join(roster.sites)}. It runs {_describe(roster)}.\n"
        f"Fingerprint of the roster: {roster.fingerprint}\n"
        "All sites must have the same. Next, approve the study: eigenfed site approve."
    )
    return CommandResult(data, text)


@network.command(
    epilog=example(
        "eigenfed network admit study.toml north.request.json south.request.json",
        "eigenfed network admit study.toml north.request.json "
        "--fingerprint north=K7QM-2XPA-5RUE-NS4D-WVTY",
    ),
    short_help="Admit sites, at the coordinator.",
)
@click.argument("study", type=options.FILE)
@click.argument("requests", metavar="[REQUEST]...", nargs=-1, type=options.FILE)
@click.option(
    "--fingerprint",
    "fingerprints",
    metavar="SITE=FINGERPRINT",
    multiple=True,
    help="Fingerprint of a site, as the site has read it to you. Repeat it for each. By default "
    "you are asked for them.",
)
@_REPLACE
@print_result
def admit(
    console: Console,
    study: Path,
    requests: tuple[Path, ...],
    fingerprints: tuple[str, ...],
    replace: bool,
) -> CommandResult:
    """Admit sites to the network of STUDY by their REQUEST files.

    Once all sites of the study are in, the roster is written, with the keys of all. Send it to all
    sites.
    """
    from eigenfed.study.config import read_study
    from eigenfed.study.network.invitations import read_request
    from eigenfed.study.network.inviting import admit_sites

    typed = dict(_split(text) for text in fingerprints)
    for path in requests:
        name = read_request(path).site
        if name not in typed:
            typed[name] = _ask(console, f"site {name}")
    found = admit_sites(read_study(study), requests, typed, replace=replace)
    data = {
        "sites": found.sites,
        "missing": list(found.missing),
        "roster": None if found.path is None else str(found.path),
        "fingerprint": None if found.roster is None else found.roster.fingerprint,
    }
    lines = [columns(list(found.sites.items()))] if found.sites else []
    if found.roster is None:
        lines.append(f"Still missing: {_join(found.missing)}.")
    else:
        lines += [
            f"All sites are in. Wrote {found.path}. Send it to all of them.",
            f"Fingerprint of the roster: {found.roster.fingerprint}",
            "Read it to each site on the telephone.",
        ]
    return CommandResult(data, "\n".join(lines))


@network.command(
    epilog=example(
        "eigenfed network show study.toml",
        "eigenfed network show north.request.json",
    ),
    short_help="Show the fingerprints of keys and rosters.",
)
@click.argument("path", type=click.Path(exists=True, path_type=Path))
@print_result
def show(console: Console, path: Path) -> CommandResult:
    """Show the fingerprints of all that PATH holds.

    PATH is a study file, a site file, their network folder, or a file that was sent: an invitation,
    a request to join or a roster.
    """
    from dataclasses import asdict

    from eigenfed.study.network.network_facts import list_facts

    facts = list_facts(path)
    rows = [(fact.file, fact.what, fact.fingerprint) for fact in facts]
    return CommandResult({"fingerprints": [asdict(fact) for fact in facts]}, columns(rows))


def _ask(console: Console, whose: str) -> str:
    """Ask for a fingerprint; what the file has is not shown, so that it cannot be copied."""
    return console.ask(
        f"Fingerprint of {whose}, as read to you on the telephone",
        f"--fingerprint is missing. Pass the fingerprint of {whose}, as read to you on the "
        "telephone.",
    )


def _describe(agreed: "Invitation | NetworkRoster") -> str:
    if agreed.engine == "files":
        return f"by files in {agreed.address}"
    return f"on NVIDIA FLARE at {agreed.address}"


def _split(text: str) -> tuple[str, str]:
    name, sign, fingerprint = text.partition("=")
    if not sign:
        raise click.UsageError(
            f"--fingerprint {text} must name its site. Pass north={text}, for example."
        )
    return name.strip(), fingerprint


def _join(names: Iterable[str]) -> str:
    every = list(names)
    return join_names(every, most=len(every))
