"""``eigenfed ledger``: what left a site, what it cost, and whether the record is whole."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.answers import DONE, FAILED, Answer, Voice, answering
from eigenfed.cli.helping import example
from eigenfed.cli.tables import columns
from eigenfed.report.wording import size

if TYPE_CHECKING:
    from eigenfed.privacy.ledger import Ledger


@click.group(
    epilog=example(
        "eigenfed ledger show site.ledger",
        "eigenfed ledger verify site.ledger --head 3fa9...",
    ),
    short_help="Read or check a site's ledger.",
)
def ledger() -> None:
    """Read or check a site's ledger: what left it, and what that cost."""


@ledger.command(
    epilog=example(
        "eigenfed ledger show site.ledger --dataset cohort",
    ),
    short_help="Show what left the site and what it cost.",
)
@click.argument("file", type=options.FILE)
@click.option("--dataset", help="Show this data set only.")
@answering
def show(voice: Voice, file: Path, dataset: str | None) -> Answer:
    """Show what left the site whose ledger is FILE, and what it cost, by data set."""
    from eigenfed.errors import InputError
    from eigenfed.privacy.ledger import Ledger

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
    return Answer(data, _page(data))


@ledger.command(
    epilog=example(
        "eigenfed ledger verify site.ledger --head 3fa9...",
    ),
    short_help="Check that nobody changed it.",
)
@click.argument("file", type=options.FILE)
@click.option("--head", help="A head that the ledger had at some time, noted elsewhere.")
@answering
def verify(voice: Voice, file: Path, head: str | None) -> Answer:
    """Check every event, kept reply and meter of FILE; exit with 1 if something was changed.

    Events that were cut off at the end are found only against a head noted elsewhere.
    """
    from eigenfed.privacy.ledger import Ledger

    with Ledger(file, readonly=True) as opened:
        verdict = opened.verify(head)
    if verdict.sound and head is None:
        voice.say(
            "Whether the last events were cut off shows only against a head noted before. "
            "Pass --head."
        )
    data = {
        "sound": verdict.sound,
        "events": verdict.events,
        "head": verdict.head,
        "broken_at": verdict.broken_at,
        "why": verdict.why,
    }
    return Answer(data, verdict.text, DONE if verdict.sound else FAILED)


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
        lines.append(f"{name}: {account['text']} ({most})")
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
        case "summed":
            return f"in a sum over {len(event['sites'])} sites"
        case "budgeted":
            budget = event["budget"]
            return f"{event['dataset']}: epsilon={budget['epsilon']:g} delta={budget['delta']:g}"
        case _:
            return ""
