"""Seeded faults at every place of a run: the same result, or an honest error and a resumed run."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.errors import ProtocolError, SiteLost
from eigenfed.privacy.ledger.ledger import Ledger
from network_parties import NAMES
from network_runs import PRIVATE, Network

FAULTS_IN_A_RUN = 10
MOST_ATTEMPTS = 60


class Killed(BaseException):
    """A process has ended at once."""


class Chaos:
    """Lets something go wrong at messages that a seed chooses."""

    def __init__(self, network: Network, seed: int, patch: pytest.MonkeyPatch) -> None:
        self._network, self._patch = network, patch
        self._rng = np.random.default_rng(seed)
        self._earlier: dict[str, list[bytes]] = {name: [] for name in NAMES}
        self._kinds: dict[str, Callable[[str, Any, bytes], bytes]] = {
            "lost request": self._lose_request,
            "lost reply": self._lose_reply,
            "repeated request": self._repeat,
            "old request in between": self._mix_old,
            "garbled request": self._garble_request,
            "garbled reply": self._garble_reply,
            "site restarted before": self._restart_before,
            "site restarted after": self._restart_after,
            "site killed while it writes": self._kill_while_writing,
        }
        self._plan = self._choose()
        self.done: Counter[str] = Counter()
        network.carry = self.carry

    def _choose(self) -> Iterator[str | None]:
        """Yield a fault or none for each message, until all faults have happened."""
        faults = list(self._rng.choice([*self._kinds, "coordinator killed"], FAULTS_IN_A_RUN))
        while faults:
            yield faults.pop() if self._rng.random() < 0.6 else None
        while True:
            yield None

    def carry(self, name: str, answer: Any, data: bytes) -> bytes:
        fault = next(self._plan)
        if fault is None:
            reply: bytes = answer(data)
        elif fault == "coordinator killed":
            self.done[fault] += 1
            raise Killed
        else:
            self.done[fault] += 1
            reply = self._kinds[fault](name, answer, data)
        self._earlier[name].append(data)
        return reply

    def _lose_request(self, name: str, answer: Any, data: bytes) -> bytes:
        raise ConnectionError

    def _lose_reply(self, name: str, answer: Any, data: bytes) -> bytes:
        answer(data)
        raise ConnectionError

    def _repeat(self, name: str, answer: Any, data: bytes) -> bytes:
        first: bytes = answer(data)
        assert answer(data) == first
        return first

    def _mix_old(self, name: str, answer: Any, data: bytes) -> bytes:
        for old in self._earlier[name][-3:]:
            answer(old)
        reply: bytes = answer(data)
        return reply

    def _garble_request(self, name: str, answer: Any, data: bytes) -> bytes:
        reply: bytes = answer(self._garble(data))
        return reply

    def _garble_reply(self, name: str, answer: Any, data: bytes) -> bytes:
        return self._garble(answer(data))

    def _garble(self, data: bytes) -> bytes:
        place = int(self._rng.integers(len(data)))
        return data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]

    def _restart_before(self, name: str, answer: Any, data: bytes) -> bytes:
        self._network.sites[name].restart()
        return self._network.sites[name].answer(data)

    def _restart_after(self, name: str, answer: Any, data: bytes) -> bytes:
        reply: bytes = answer(data)
        self._network.sites[name].restart()
        return reply

    def _kill_while_writing(self, name: str, answer: Any, data: bytes) -> bytes:
        """End the site between what it paid and what it recorded, or just after."""
        commit, after = Ledger.commit, bool(self._rng.integers(2))

        def die(ledger: Ledger, *arguments: Any, **more: Any) -> bytes:
            if after:
                commit(ledger, *arguments, **more)
            raise Killed

        with self._patch.context() as patched:
            patched.setattr(Ledger, "commit", die)
            with suppress(Killed):
                answer(data)
        self._network.sites[name].restart()
        raise ConnectionError


def run_through(network: Network, chaos: Chaos) -> Any:
    """Run a study again and again until nothing is in its way; other errors are not honest."""
    for _ in range(MOST_ATTEMPTS):
        try:
            return network.run().estimator
        except (SiteLost, ProtocolError, Killed):
            continue
    raise AssertionError("The run did not come to its end.")


KINDS = {
    "covariance": ("covariance", ""),
    "krylov": ("krylov", ""),
    "secure": ("covariance", "secure = true\n"),
}


@pytest.fixture
def one_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask sites one after the other, so that a seed means the same faults every time."""
    from eigenfed.transport.remote import RemoteTransport

    make = RemoteTransport.__init__

    def patched(self: Any, *arguments: Any, **more: Any) -> None:
        make(self, *arguments, **more)
        self._workers = 1

    monkeypatch.setattr(RemoteTransport, "__init__", patched)


@pytest.mark.usefixtures("one_worker")
def test_more_than_200_faults_change_no_bit_of_any_result(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    done: Counter[str] = Counter()
    for kind, (method, study) in KINDS.items():
        calm = Network(tmp_path / f"{kind} calm", method=method, study=study)
        expected = calm.run().estimator
        events = {name: [e.kind for e in calm.sites[name].ledger.events] for name in NAMES}
        for seed in range(8):
            network = Network(tmp_path / f"{kind} {seed}", method=method, study=study)
            chaos = Chaos(network, seed, monkeypatch)
            found = run_through(network, chaos)
            together = network.fit_together()
            assert found.components_.tobytes() == together.components_.tobytes(), (kind, seed)
            assert found.n_rounds_ == expected.n_rounds_
            network.check_ledgers()
            for name in NAMES:
                kinds = [event.kind for event in network.sites[name].ledger.events]
                assert [k for k in kinds if k.value != "refused"] == events[name], (kind, seed)
            done += chaos.done
    assert done.total() > 200
    assert len(done) == 10


@pytest.mark.usefixtures("one_worker")
def test_faults_in_private_runs_spend_no_budget_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calm = Network(tmp_path / "calm", study=PRIVATE)
    calm.run()
    totals = calm.sites["north"].ledger.totals("data")
    for seed in range(3):
        network = Network(tmp_path / str(seed), study=PRIVATE)
        run_through(network, Chaos(network, seed, monkeypatch))
        network.check_ledgers()
        for site in network.sites.values():
            found = site.ledger.totals("data")
            assert (found.mu, found.spends) == (totals.mu, totals.spends)
