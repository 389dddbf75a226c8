"""Sites whose data are summaries of streams, and a coordinator that merges them."""

from collections.abc import Callable
from pathlib import Path

import numpy as np

from eigenfed.arrays import Array
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.ledger.events import Summarised
from eigenfed.study.network.key_files import read_identity
from eigenfed.study.network.network_folder import coordinator_folder
from eigenfed.study.network.roster_file import read_roster
from eigenfed.study.network.summary_collection import SummaryCollection
from network_parties import FILES, NAMES
from network_runs import FEATURES, Network, make_rows

METHOD = '{ name = "merge", max_summaries = 3, min_new_rows = 10 }'


def summarise(rows: Array, rank: int = 5) -> Summary:
    return Summary.empty(rows.shape[1], rank).update(rows).with_names(FEATURES)


class StreamNetwork(Network):
    """A network of streams, each of which has seen the first rows of its site."""

    def __init__(
        self, home: Path, *, method: str = METHOD, engine: str = FILES, seen: int = 20
    ) -> None:
        self.seen = seen
        super().__init__(home, method=method, engine=engine)

    def write_rows(self, folder: Path, name: str) -> str:
        self.write_stream(folder, name, self.seen)
        return "rows.summary"

    def write_stream(self, folder: Path, name: str, seen: int) -> None:
        """Write the summary of the first rows of a site."""
        (folder / "rows.summary").write_bytes(summarise(self.rows[name][:seen]).to_bytes())

    def grow(self, name: str, seen: int) -> None:
        """Let a stream see more rows, or other ones."""
        self.write_stream(self.parties.home / name, name, seen)

    def collection(self) -> SummaryCollection:
        """Return the coordinator, as it is after a restart."""
        study = self.parties.study
        folder = coordinator_folder(study)
        identity = read_identity(folder / "coordinator.key")
        roster = read_roster(folder / "roster.json")
        carry = self.carry_to
        return SummaryCollection(study, roster, identity, folder, carry)

    def carry_to(self, name: str) -> "StreamWire":
        return StreamWire(lambda data: self.carry(name, self.sites[name].answer, data))

    def released(self, name: str) -> list[tuple[int, float]]:
        """Return versions and weights of what has left a site, as its ledger has them."""
        events = [event.what for event in self.sites[name].ledger.events]
        return [(what.version, what.weight) for what in events if isinstance(what, Summarised)]

    def pooled(self, seen: dict[str, int]) -> tuple[Array, Array]:
        """Return variances and components of all rows that streams have seen."""
        rows = np.vstack([self.rows[name][:count] for name, count in seen.items()])
        _, s, vt = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)
        return s**2 / (len(rows) - 1), vt


class StreamWire:
    """A connection that is a function."""

    def __init__(self, carry: Callable[[bytes], bytes]) -> None:
        self._carry = carry

    def answer(self, data: bytes) -> bytes:
        return self._carry(data)


__all__ = ["METHOD", "NAMES", "StreamNetwork", "make_rows", "summarise"]
