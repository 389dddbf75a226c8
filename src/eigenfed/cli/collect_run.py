"""A study that merges streams: what ``eigenfed coordinate`` does with it, once or until stopped."""

import queue
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from eigenfed.cli.coordination import DELIVERY_S, Coordination
from eigenfed.cli.output import CommandResult
from eigenfed.cli.result_writer import format_run, write_run
from eigenfed.cli.stop_signals import stop_at_signals
from eigenfed.errors import EigenfedError, SiteRefused

if TYPE_CHECKING:
    from eigenfed.study.network.summary_collection import Arrival, SummaryCollection
    from eigenfed.transport.rounds import RoundRecord

_POLL_S = 2.0
_RETRY_S = 30.0
_TOGETHER_S = 0.5
"""Summaries that come within this time of each other are merged at once."""
_GRACE_S = 5.0
"""Time for sites that have sent a summary before to send a newer one, if the command then ends."""
_TICK_S = 0.2


class Collecting:
    """Collects summaries, and writes a result whenever some have come.

    Parameters
    ----------
    session : Coordination
    collection : SummaryCollection
    summary : Path or None
        File for the merged summary.
    """

    def __init__(
        self, session: Coordination, collection: "SummaryCollection", summary: Path | None
    ) -> None:
        self._console, self._carrier, self._collection = (
            session.console,
            session.carrier,
            collection,
        )
        self._study, self._sites = session.study, tuple(sorted(session.study.sites))
        self._out, self._summary, self._stop = session.out, summary, session.stop
        self._patience_s, self._callback = session.patience_s, session.follow()
        self._arrived: queue.Queue[Arrival] = queue.Queue()
        self._heard: set[str] = set()
        self._ended: set[str] = set()
        self._taken = {site: threading.Event() for site in self._sites}
        self._closing: list[threading.Thread] = []
        self._refused: Arrival | None = None
        self._failure: Exception | None = None
        self._facts: dict[str, Any] | None = None
        self._shown: tuple[RoundRecord, ...] = ()
        self._results = 0

    def take_waiting(self) -> CommandResult:
        """Take the summaries that have come by files, and leave the next requests."""
        arrived = []
        for site in self._sites:
            try:
                arrival = self._collection.ask(site)
            except ConnectionError:
                continue
            if not arrival.code:
                arrived.append(arrival)
                continue
            self._clear(arrival)
            if arrival.code != "used_up":
                raise _describe_refusal(arrival)
        self._take(arrived)
        self._join_closing()
        for arrival in arrived:
            self._leave_request(arrival.site)
        return self._describe()

    def _leave_request(self, site: str) -> None:
        """Leave the next request for a courier; its reply cannot be here yet."""
        try:
            self._collection.ask(site)
        except ConnectionError:
            return

    def run(self, *, follow: bool) -> CommandResult:
        """Ask all sites, and write results: until all have answered, or with `follow` stopped.

        Raises
        ------
        SiteRefused
            If a site refuses to send any, without `follow`.
        """
        asking = [
            threading.Thread(target=self._ask, args=(site, follow), daemon=True)
            for site in self._sites
        ]
        with stop_at_signals(self._stop):
            for thread in asking:
                thread.start()
            begun = time.monotonic()
            while not self._stop.wait(_TICK_S):
                self._take(self._collect())
                if self._refused is not None:
                    self._failure = _describe_refusal(self._refused)
                if self._failure is not None:
                    self._stop.set()
                    raise self._failure
                if follow and self._ended >= set(self._sites):
                    self._console.note("All sites have sent as many summaries as the study allows.")
                    break
                if not follow and self._has_enough(time.monotonic() - begun):
                    break
            self._take(self._collect())
            if self._facts is None and len(self._collection.sites) >= self._study.quorum:
                self._publish()
            self._join_closing()
            self._stop.set()
        return self._describe()

    def _has_enough(self, waited_s: float) -> bool:
        """Return whether the command may end: all sites have answered, or there was time for it."""
        held, all_sites = set(self._collection.sites), set(self._sites)
        if all_sites <= held:
            return waited_s > _GRACE_S or all_sites <= self._heard | self._ended
        return waited_s > self._patience_s and len(held) >= self._study.quorum

    def _collect(self) -> "list[Arrival]":
        """Return the summaries that have come, with those that come within a moment."""
        arrived: list[Arrival] = []
        while True:
            try:
                wait_s = _TOGETHER_S if arrived else None
                arrived.append(self._arrived.get(block=bool(wait_s), timeout=wait_s))
            except queue.Empty:
                return arrived

    def _ask(self, site: str, follow: bool) -> None:
        """Ask one site; what nobody expected ends the command, which would wait forever."""
        try:
            self._ask_until_over(site, follow)
        except Exception as error:
            self._failure = error

    def _ask_until_over(self, site: str, follow: bool) -> None:
        """Ask one site, again and again with `follow`, until all is over."""
        while not self._stop.is_set():
            try:
                arrival = self._collection.ask(site)
            except ConnectionError:
                self._stop.wait(_POLL_S)
                continue
            except EigenfedError as error:
                self._console.note(str(error))
                self._stop.wait(_RETRY_S)
                continue
            if arrival.code not in ("", "waiting"):
                self._clear(arrival)
            if arrival.code == "used_up":
                self._ended.add(site)
                return
            if arrival.code not in ("", "waiting") and not follow:
                self._refused = arrival
                return
            if arrival.code:
                self._wait_after(arrival)
                continue
            self._heard.add(site)
            self._taken[site].clear()
            self._arrived.put(arrival)
            if not follow or not self._is_taken(site):
                return

    def _is_taken(self, site: str) -> bool:
        """Wait until a summary is part of a result; return False if all is over before."""
        while not self._taken[site].wait(_TICK_S):
            if self._stop.is_set():
                return False
        return True

    def _wait_after(self, arrival: "Arrival") -> None:
        if arrival.code == "waiting":
            self._heard.add(arrival.site)
            self._stop.wait(_POLL_S)
            return
        self._console.note(f"Site {arrival.site} sends no summary. {_describe_refusal(arrival)}")
        self._stop.wait(_RETRY_S)

    def _take(self, arrived: "list[Arrival]") -> None:
        """Write a result with summaries that have come, if there are enough, and end their runs."""
        from eigenfed.study.network.results_sent import read_sent_files

        files: dict[str, bytes] = {}
        if arrived and len(self._collection.sites) >= self._study.quorum:
            self._publish()
            files = read_sent_files(self._out)
        for arrival in arrived:
            # From here on the site is asked for the next summary.
            self._collection.forget(arrival.site)
            self._taken[arrival.site].set()
            thread = threading.Thread(target=self._close, args=(arrival, files), daemon=True)
            thread.start()
            self._closing = [*(known for known in self._closing if known.is_alive()), thread]

    def _publish(self) -> None:
        """Write the result of the newest summaries, and the merged one."""
        from eigenfed.data.safe_files import write_at_once

        summary, pca, sites = self._collection.merge()
        self._facts = write_run(self._out, pca, sites=sites, study=self._study.name, force=True)
        self._results += 1
        if self._summary is not None:
            write_at_once(self._summary, summary.to_bytes())
        names = ", ".join(self._collection.sites)
        self._console.note(f"Result {self._results}: {summary.n:,.0f} rows of {names}.")
        if self._callback is not None:
            rounds = self._collection.rounds
            for record in rounds:
                if record not in self._shown:
                    self._callback(record)
            self._shown = rounds

    def _close(self, arrival: "Arrival", files: dict[str, bytes]) -> None:
        missed = self._collection.close(arrival, files)
        self._clear(arrival, keep_result=bool(missed))

    def _clear(self, arrival: "Arrival", *, keep_result: bool = False) -> None:
        """Remove the files of a run, except a result that its site has not taken yet."""
        from eigenfed.study.network.engines import FileCarrier

        if isinstance(self._carrier, FileCarrier):
            self._carrier.clear(arrival.run, {arrival.site} if keep_result else set())

    def _join_closing(self) -> None:
        """Let sites take the last result; with files, it waits for those that are away."""
        until = time.monotonic() + DELIVERY_S
        for thread in self._closing:
            thread.join(max(until - time.monotonic(), 0.0))

    def _describe(self) -> CommandResult:
        held = self._collection.sites
        missing = [site for site in self._sites if site not in held]
        if self._facts is None:
            data = {"waiting": missing, "sites": list(held), "results": 0}
            text = "No newer summary has come."
            if missing:
                text = f"No summary has come from {', '.join(missing)} yet."
            return CommandResult(data, f"{text} Run this again later.")
        more = [] if self._summary is None else [f"summary      {self._summary}"]
        return format_run(self._facts, self._out, *more, results=self._results)


def _describe_refusal(arrival: "Arrival") -> SiteRefused:
    from eigenfed.protocol.exact.stream_summary import ASK
    from eigenfed.protocol.messages import REFUSAL_TEXTS

    why = REFUSAL_TEXTS.get(arrival.code, "")
    return SiteRefused(arrival.site, arrival.code, ASK, 0, why)
