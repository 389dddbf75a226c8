"""``eigenfed ledger``: what left a site, what it cost, and whether the record is whole."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import DONE, CommandResult, Voice, answering
from eigenfed.cli.tables import columns
from eigenfed.errors import FAILED
from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.privacy.ledger.ledger import Ledger


@click.group(
    epilog=example(
        "eigenfed ledger create site.ledger",
        "eigenfed ledger show site.ledger",
        "eigenfed ledger verify site.ledger --head 3fa9...",
    ),
    short_help="Begin, read or check a site's ledger.",
)
def ledger() -> None:
    """Begin, read or check a site's ledger: what left it, and what that cost."""


@ledger.command(
    epilog=example(
        "eigenfed ledger create site.ledger",
    ),
    short_help="Begin a ledger, once for each site.",
)
@click.argument("files", metavar="FILE...", nargs=-1, required=True, type=options.NEW)
@answering
def create(voice: Voice, files: tuple[Path, ...]) -> CommandResult:
    """Begin a ledger in FILE, with its head beside it in FILE.head.

    A site does this once: a new ledger counts from zero. Nothing is overwritten, and a ledger
    that was deleted is not begun anew while its head is there.
    """
    from eigenfed.errors import InputError
    from eigenfed.privacy.ledger.ledger import Ledger

    for file in files:
        if file.exists():
            raise InputError(f"{file} is there, and nothing is overwritten. Name another file.")
    for file in files:
        Ledger(file, create=True).close()
    names = [str(file) for file in files]
    said = [f"Began {name}, with its head in {name}.head." for name in names]
    return CommandResult({"ledgers": names}, "\n".join(said))


@ledger.command(
    epilog=example(
        'eigenfed ledger release site.ledger --dataset cohort --reason "The disk was full."',
    ),
    short_help="Forgive aborted runs, so that new ones may begin.",
)
@click.argument("file", type=options.FILE)
@click.option("--dataset", required=True, help="The data set that is held.")
@click.option("--reason", required=True, help="Why, in your own words: it stays in the ledger.")
@answering
def release(voice: Voice, file: Path, dataset: str, reason: str) -> CommandResult:
    """Forgive the aborted runs on a data set in the ledger FILE.

    A run is aborted when something fails after rows were touched, which may tell of the rows. A
    data set of which more than 3 runs were aborted is held: it takes part in nothing until somebody
    has looked into it. The aborted runs stay ended.
    """
    from eigenfed.privacy.ledger.ledger import Ledger

    with Ledger(file) as opened:
        forgiven = opened.release(dataset, reason)
    runs = [{"run": past.run, "round": past.round_, "op": past.op} for past in forgiven]
    rows = [("run", "round", "op"), *((past.run, str(past.round_), past.op) for past in forgiven)]
    counted = "1 aborted run is" if len(runs) == 1 else f"{len(runs)} aborted runs are"
    text = f"{counted} forgiven on {dataset}.\n\n{columns(rows)}"
    return CommandResult({"dataset": dataset, "reason": reason, "runs": runs}, text)


@ledger.command(
    epilog=example(
        "eigenfed ledger show site.ledger --dataset cohort",
    ),
    short_help="Show what left the site and what it cost.",
)
@click.argument("file", type=options.FILE)
@click.option("--dataset", help="Show this data set only.")
@answering
def show(voice: Voice, file: Path, dataset: str | None) -> CommandResult:
    """Show what left the site whose ledger is FILE, and what it cost, by data set."""
    from eigenfed.errors import InputError
    from eigenfed.privacy.ledger.ledger import Ledger

    with Ledger(file, readonly=True) as opened:
        known = opened.datasets
        if dataset is not None and dataset not in known:
            raise InputError(
                f"--dataset {dataset!r} is not in {file}. It has "
                f"{', '.join(map(repr, known)) or 'none'}."
            )
        wanted = known if dataset is None else (dataset,)
        accounts = {name: _account(opened, name) for name in wanted}
        events = [_event(event) for event in opened.events]
        head = opened.head
    shown = [e for e in events if dataset is None or e.get("dataset") == dataset]
    data = {"head": head, "datasets": accounts, "events": shown}
    return CommandResult(data, _page(data))


@ledger.command(
    epilog=example(
        "eigenfed ledger verify site.ledger --head 3fa9...",
    ),
    short_help="Check that nobody changed it.",
)
@click.argument("file", type=options.FILE)
@click.option("--head", help="A head that the ledger had at some time, noted elsewhere.")
@answering
def verify(voice: Voice, file: Path, head: str | None) -> CommandResult:
    """Check every event, kept reply and meter of FILE; exit with 1 if something was changed.

    Events that were cut off at the end are found against the head in FILE.head, and where that
    was put back too, only against one noted elsewhere.
    """
    from eigenfed.privacy.ledger.ledger import Ledger

    with Ledger(file, readonly=True) as opened:
        verdict = opened.verify(head)
    if verdict.sound and head is None:
        voice.say(
            "The head file agrees. Whether both were put back shows only against a head noted "
            "elsewhere. Pass --head."
            if verdict.witnessed
            else "There is no head file. Whether the last events were cut off shows only against "
            "a head noted before. Pass --head."
        )
    data = {
        "sound": verdict.sound,
        "events": verdict.events,
        "head": verdict.head,
        "broken_at": verdict.broken_at,
        "why": verdict.why,
        "witnessed": verdict.witnessed,
    }
    return CommandResult(data, verdict.text, DONE if verdict.sound else FAILED)


def _account(opened: "Ledger", dataset: str) -> dict[str, Any]:
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


def _event(event: Any) -> dict[str, Any]:
    """Flatten an event to what tells: the key's fields beside its own."""
    import json

    record: dict[str, Any] = json.loads(event.to_bytes())
    key: dict[str, Any] = record.pop("key", {})
    return record | key


def _page(data: dict[str, Any]) -> str:
    lines = []
    for name, account in data["datasets"].items():
        budget = account["budget"]
        most = (
            "no budget"
            if budget is None
            else f"budget epsilon={budget['epsilon']:g} at delta={budget['delta']:g}"
        )
        held = " Held, as too many runs were aborted: see ledger release." * account["held"]
        lines.append(f"{name}: {account['text']} ({most}){held}")
    rows = [("event", "when", "kind", "run", "round", "op", "what")]
    rows += [
        (
            str(event["number"]),
            event["when"],
            event["kind"],
            event.get("run", "")[:8],
            str(event.get("round", "")),
            event.get("op", ""),
            _what(event),
        )
        for event in data["events"]
    ]
    return "\n".join([*lines, "", columns(rows), "", f"head {data['head']}"]).lstrip("\n")


def _what(event: dict[str, Any]) -> str:
    match event["kind"]:
        case "spent":
            return f"mu={event['mu']:.4g} under {event['relation']}, {event['mechanism']}"
        case "unsound":
            return f"nothing holds, {event['mechanism']}"
        case "replied":
            return f"{event['release']['kind']}, {size(event['sent_bytes'])}"
        case "refused":
            return f"refused: {event['code']}"
        case "refused_more":
            return "further refusals in this run are not written down"
        case "run_opened":
            return f"study {event['study'][:8]}, coordinator {event['coordinator'][:8]}"
        case "aborted":
            return "ended: something failed after rows were touched"
        case "released":
            return f"{event['dataset']}: aborted runs forgiven: {event['by']}"
        case "upgraded":
            return f"format {event['version']} from here on, with a head file"
        case "summed":
            return f"in a sum over {len(event['sites'])} sites"
        case "budgeted":
            budget = event["budget"]
            return f"{event['dataset']}: epsilon={budget['epsilon']:g} delta={budget['delta']:g}"
        case _:
            return ""
