"""``eigenfed drop``: what the files of a drop folder hold."""

from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from eigenfed.cli import options
from eigenfed.cli.options import example
from eigenfed.cli.output import CommandResult, Console, print_result
from eigenfed.cli.tables import columns

if TYPE_CHECKING:
    from eigenfed.transport.bundles import Bundle


@click.group(
    epilog=example("eigenfed drop show from-north/1f0c-00003-product.reply"),
    short_help="Show files that carry messages.",
)
def drop() -> None:
    """Look into the files that carry messages of a study with engine = "files"."""


@drop.command(
    epilog=example(
        "eigenfed drop show from-north/1f0c-00003-product.reply",
        "eigenfed drop show from-north/1f0c-00003-product.reply --network network",
    ),
    short_help="Show what a file holds, before it leaves.",
)
@click.argument("file", type=options.FILE)
@click.option(
    "--network",
    type=click.Path(path_type=Path, exists=True, file_okay=False),
    help="Network folder, with the keys to check the signature.",
)
@print_result
def show(console: Console, file: Path, network: Path | None) -> CommandResult:
    """Show what FILE holds: who sends it to whom, for which request, and what it reveals.

    The description is computed from the message itself, and compared with the manifest.
    """
    from eigenfed.errors import DataError
    from eigenfed.transport.bundles import Bundle

    try:
        bundle = Bundle.from_bytes(file.read_bytes())
    except DataError as error:
        raise error.with_prefix(f"{file}: ") from None
    data = _describe(bundle) | {"signed": _check_signature(bundle, network)}
    return CommandResult(data, columns([(name, _format(value)) for name, value in data.items()]))


def _describe(bundle: "Bundle") -> dict[str, Any]:
    from eigenfed.protocol.messages import REFUSAL_TEXTS
    from eigenfed.protocol.method_registry import all_operations
    from eigenfed.protocol.secure.participant import RELEASES

    manifest = bundle.manifest
    found: dict[str, Any] = {
        "from": manifest.sender,
        "to": manifest.recipient,
        "kind": manifest.kind,
        "run": manifest.run,
        "round": manifest.round,
        "operation": manifest.operation,
        "arrays": {name: list(shape) for name, shape in manifest.arrays.items()},
        "bytes": manifest.size,
        "sha256": manifest.sha256,
    }
    if manifest.kind == "refusal":
        return found | {"meaning": REFUSAL_TEXTS.get(manifest.operation, "an unknown code")}
    operations = all_operations()
    release = RELEASES.get(manifest.operation)
    if manifest.operation in operations:
        release = operations[manifest.operation].release
    if manifest.kind == "reply" and release is not None:
        found |= {
            "declared": f"{release.kind}, {release.shape}",
            "leaves": release.leaves.value,
            "reveals": release.reveals.value,
        }
    return found


def _check_signature(bundle: "Bundle", network: Path | None) -> str:
    from eigenfed.errors import DataError
    from eigenfed.study.network.roster_file import ROSTER, read_roster
    from eigenfed.transport.bundles import COORDINATOR, name_site

    if network is None:
        return "not checked; pass --network to check it"
    roster, sender = read_roster(network / ROSTER), bundle.manifest.sender
    keys = {name_site(site): key for site, key in roster.sites.items()}
    keys[COORDINATOR] = roster.coordinator
    if sender not in keys or not bundle.is_signed_by(keys[sender]):
        raise DataError(
            f"The file is not signed by {sender!r} of the roster: it is forged, or of another "
            "network. Do not use it."
        )
    return f"by {sender}, as in the roster"


def _format(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name} {'x'.join(map(str, shape))}" for name, shape in value.items())
    return str(value)
