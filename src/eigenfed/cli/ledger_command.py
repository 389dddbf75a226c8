"""``eigenfed ledger``: create, read, verify and unblock a site's ledger."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import DONE, CommandResult, Console, print_result
from eigenfed.cli.tables import columns
from eigenfed.errors import FAILED
from eigenfed.report.wording import size, things

if TYPE_CHECKING:
    from eigenfed.privacy.ledger.ledger import Ledger


@click.group(
    epilog=example(
        "eigenfed ledger create site.ledger",
        "eigenfed ledger show site.ledger",
        "eigenfed ledger verify site.ledger",
    ),
    short_help="Create, show or verify a site's ledger.",
)
def ledger() -> None:
    """Create, show or verify a site's ledger: the record of what left it and what that cost."""


@ledger.command(
    epilog=example("eigenfed ledger create site.ledger"),
    short_help="Create a ledger, once for each site.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.NEW)
@print_result
def create(console: Console, files: tuple[Path, ...]) -> CommandResult:
    """Create a ledger in FILE, with its latest hash (its head) in FILE.head.

    A site does this once, as a new ledger counts from zero. Existing files are not overwritten. A
    deleted ledger cannot be created again while its FILE.head exists.
    """
    from eigenfed.errors import InputError
    from eigenfed.privacy.ledger.ledger import Ledger

    for file in files:
        # An empty file is what a full disk leaves of one that was being created.
        if file.exists() and file.stat().st_size:
            raise InputError(f"{file} exists and is not overwritten. Name another file.")
        if not file.parent.is_dir():
            raise InputError(f"Folder {file.parent} does not exist. Create it first.")
    for file in files:
        Ledger(file, create=True).close()
    names = [str(file) for file in files]
    lines = [f"Created {name}, with its head in {name}.head." for name in names]
    return CommandResult({"ledgers": names}, "\n".join(lines))


@ledger.command(
    epilog=example(
        'eigenfed ledger release site.ledger --dataset cohort --reason "The disk was full."',
    ),
    short_help="Unblock a data set after aborted runs.",
)
@click.argument("file", type=options.FILE)
@click.option("--dataset", required=True, help="The blocked data set.")
@click.option("--reason", required=True, help="The reason; it is recorded in the ledger.")
@print_result
def release(console: Console, file: Path, dataset: str, reason: str) -> CommandResult:
    """Unblock a data set in the ledger FILE after aborted runs.

    A run is aborted if it fails after rows were read, which may reveal something about the rows.
    After more than 3 aborted runs a data set is blocked until somebody at the site has found the
    cause and runs this command. The aborted runs do not resume.
    """
    from eigenfed.privacy.ledger.ledger import Ledger

    with Ledger(file) as opened:
        aborted = opened.release(dataset, reason)
    runs = [{"run": run.run, "round": run.round_, "op": run.op} for run in aborted]
    rows = [("run", "round", "op"), *((run.run, str(run.round_), run.op) for run in aborted)]
    text = f"Cleared {things(len(runs), 'aborted run')} of {dataset}.\n\n{columns(rows)}"
    return CommandResult({"dataset": dataset, "reason": reason, "runs": runs}, text)


@ledger.command(
    epilog=example(
        "eigenfed ledger show site.ledger --dataset cohort",
    ),
    short_help="Show what left the site and what it cost.",
)
@click.argument("file", type=options.FILE)
@click.option("--dataset", help="Show only this data set.")
@print_result
def show(console: Console, file: Path, dataset: str | None) -> CommandResult:
    """Show what left the site with the ledger FILE, and what it cost, by data set."""
    from eigenfed.errors import InputError
    from eigenfed.privacy.ledger.ledger import Ledger

    with Ledger(file, readonly=True) as opened:
        known = opened.datasets
        if dataset is not None and dataset not in known:
            raise InputError(
                f"--dataset {dataset!r} is not in {file}, which has "
                f"{', '.join(map(repr, known)) or 'no data sets'}."
            )
        wanted = known if dataset is None else (dataset,)
        accounts = {name: _describe_account(opened, name) for name in wanted}
        events = [_flatten_event(event) for event in opened.events]
        head = opened.head
    shown = [e for e in events if dataset is None or e.get("dataset") == dataset]
    data = {"head": head, "datasets": accounts, "events": shown}
    return CommandResult(data, _format_page(data))


@ledger.command(
    epilog=example(
        "eigenfed ledger verify site.ledger",
        'eigenfed ledger verify site.ledger --head "$(cat noted-head.txt)"',
    ),
    short_help="Check that a ledger was not changed.",
)
@click.argument("file", type=options.FILE)
@click.option("--head", help="An earlier head of the ledger, kept elsewhere.")
@print_result
def verify(console: Console, file: Path, head: str | None) -> CommandResult:
    """Check every event, stored reply and meter of FILE; exit with 1 if something was changed.

    Removed events at the end are detected by comparison with FILE.head. If FILE.head was reset as
    well, only a head kept elsewhere reveals it: pass that as --head.
    """
    from eigenfed.privacy.ledger.ledger import Ledger

    with Ledger(file, readonly=True) as opened:
        verdict = opened.verify(head)
    if verdict.intact and head is None:
        console.note(
            "The head file matches. To detect that both files were reset, pass a head kept "
            "elsewhere as --head."
            if verdict.witnessed
            else "There is no head file. To detect removed events at the end, pass an earlier head "
            "as --head."
        )
    data = {
        "sound": verdict.intact,
        "events": verdict.events,
        "head": verdict.head,
        "broken_at": verdict.broken_at,
        "why": verdict.why,
        "witnessed": verdict.witnessed,
    }
    return CommandResult(data, verdict.text, DONE if verdict.intact else FAILED)


def _describe_account(opened: "Ledger", dataset: str) -> dict[str, Any]:
    totals = opened.totals(dataset)
    budget = totals.budget
    return {
        "relation": totals.relation,
        "mu": totals.mu,
        "rho": totals.rho,
        "epsilon": totals.epsilon,
        "delta": totals.delta,
        "spends": totals.spends,
        "unsound": totals.unsound,
        "exact": totals.exact,
        "held": opened.held(dataset),
        "budget": None if budget is None else {"epsilon": budget.epsilon, "delta": budget.delta},
        "text": totals.text,
    }


def _flatten_event(event: Any) -> dict[str, Any]:
    """Return the fields of an event and of its key in one dict."""
    import json

    record: dict[str, Any] = json.loads(event.to_bytes())
    key: dict[str, Any] = record.pop("key", {})
    return record | key


def _format_page(data: dict[str, Any]) -> str:
    lines = []
    for name, account in data["datasets"].items():
        budget = account["budget"]
        limit = (
            "no budget"
            if budget is None
            else f"budget epsilon={budget['epsilon']:g} at delta={budget['delta']:g}"
        )
        blocked = " Blocked after too many aborted runs: see eigenfed ledger release."
        lines.append(f"{name}: {account['text']} ({limit}){blocked * account['held']}")
    rows = [("event", "when", "kind", "run", "round", "op", "details")]
    rows += [
        (
            str(event["number"]),
            event["when"],
            event["kind"],
            event.get("run", "")[:8],
            str(event.get("round", "")),
            event.get("op", ""),
            _describe_event(event),
        )
        for event in data["events"]
    ]
    return "\n".join([*lines, "", columns(rows), "", f"head {data['head']}"]).lstrip("\n")


def _describe_event(event: dict[str, Any]) -> str:
    match event["kind"]:
        case "spent":
            return f"mu={event['mu']:.4g} under {event['relation']}, {event['mechanism']}"
        case "unsound":
            return f"no guarantee, {event['mechanism']}"
        case "replied":
            return f"{event['release']['kind']}, {size(event['sent_bytes'])}"
        case "refused":
            return f"refused: {event['code']}"
        case "refused_more":
            return "further refusals in this run are not recorded"
        case "run_opened":
            return f"study {event['study'][:8]}, coordinator {event['coordinator'][:8]}"
        case "aborted":
            return "failed after rows were read"
        case "released":
            return f"{event['dataset']}: aborted runs cleared: {event['by']}"
        case "summarised":
            return f"summary {event['version']} of the stream, weight {event['weight']:g}"
        case "upgraded":
            return f"format {event['version']} from here on, with a head file"
        case "summed":
            return f"in a sum over {len(event['sites'])} sites"
        case "budgeted":
            budget = event["budget"]
            return f"{event['dataset']}: epsilon={budget['epsilon']:g} delta={budget['delta']:g}"
        case _:
            return ""
