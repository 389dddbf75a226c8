"""Sites that are restarted in the middle of a run: same bytes, nothing paid or revealed twice."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed import Privacy
from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.errors import SiteRefused
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.pca import pca
from eigenfed.protocol.published.sulq import ModSuLQ
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.study import Study
from eigenfed.transport.local import LocalTransport
from federation import COORDINATOR, opening

NAMES = ("a", "b", "c")
RUN = "run"


def tables(d: int = 12) -> dict[str, Array]:
    rng = np.random.default_rng(5)
    spread = 0.7 ** np.arange(d)
    return {name: rng.standard_normal((40, d)) * spread + 3.0 for name in NAMES}


class Unsteady:
    """A site on a ledger file, restarted before messages of the test's choice."""

    def __init__(self, path: Path, make: Callable[[Ledger], Site], restarts: Callable[[int], bool]):
        self._path, self._make, self._restarts = path, make, restarts
        Ledger(path, create=True).close()
        self.ledger = Ledger(path)
        self.site = make(self.ledger)
        self.messages = 0

    def restart(self) -> None:
        self.ledger.close()
        self.ledger = Ledger(self._path)
        self.site = self._make(self.ledger)

    def answer(self, data: bytes) -> bytes:
        self.messages += 1
        if self._restarts(self.messages):
            self.restart()
        first = self.site.answer(data)
        if self._restarts(self.messages):
            self.restart()
            assert self.site.answer(data) == first
        return first


class World:
    """Three sites with identities and ledger files, and a run over them."""

    def __init__(
        self,
        folder: Path,
        restarts: Callable[[int], bool],
        rows: dict[str, Array] | None = None,
        policy: Policy | None = None,
        wire: str = "float64",
    ) -> None:
        identities = {
            name: Identity.from_bytes(bytes([i + 1] * 32)) for i, name in enumerate(NAMES)
        }
        self.roster = Roster.of(identities)
        self.rows = rows or tables()

        def maker(name: str) -> Callable[[Ledger], Site]:
            return lambda ledger: Site(
                name,
                Source.of(self.rows[name]),
                coordinator=COORDINATOR.public,
                ledger=ledger,
                identity=identities[name],
                roster=self.roster,
                policy=policy,
                wire=wire,
                resumable=True,
            )

        folder.mkdir()
        self.sites = {
            name: Unsteady(folder / f"{name}.ledger", maker(name), restarts) for name in NAMES
        }

    def run(self, study: Study, run: str = RUN, seed: int = 0) -> Decomposition:
        transport = LocalTransport(self.sites, run=run, workers=1, wire=study.wire)
        transport.open_with(opening(run, study))
        total = SecureSum(self.roster, run=run) if study.masked else plain_sum
        return drive(pca(study, rng=np.random.default_rng(seed), total=total), transport)

    def spends(self) -> list[int]:
        return [site.ledger.totals("data").spends for site in self.sites.values()]


def never(message: int) -> bool:
    return False


def always(message: int) -> bool:
    return True


def same(one: Decomposition, other: Decomposition) -> bool:
    return one.components.tobytes() == other.components.tobytes() and np.array_equal(
        one.variances, other.variances
    )


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("krylov", {"scale": True}),
        ("factors", {}),
        ("power", {"certify": False}),
        ("merge", {"center": "site"}),
        ("krylov", {"prepare": ("standardize:3",)}),
        ("subspace", {"wire": "float32", "max_rounds": 4, "certify": False}),
        ("covariance", {"secure": True}),
        ("krylov", {"secure": True, "certify": "rigorous"}),
    ],
)
def test_a_run_goes_on_bit_for_bit_whenever_its_sites_are_restarted(
    method: str, settings: dict[str, Any], tmp_path: Path
) -> None:
    study = Study(NAMES, 2, method, **settings)
    wire = study.wire
    calm = World(tmp_path / "calm", never, wire=wire)
    rough = World(tmp_path / "rough", always, wire=wire)
    assert same(calm.run(study), rough.run(study))
    for name in NAMES:
        one, other = calm.sites[name].ledger, rough.sites[name].ledger
        assert [event.kind for event in one.events] == [event.kind for event in other.events]
        assert other.verify().intact
        assert calm.sites[name].site.meter.rank == rough.sites[name].site.meter.rank


def test_a_private_run_pays_for_each_reply_once_whenever_its_sites_are_restarted(
    tmp_path: Path,
) -> None:
    privacy = Privacy(epsilon=50.0, delta=1e-5)
    policy = Policy(budget=Budget(50.0, 1e-5))
    study = Study(NAMES, 1, "covariance", privacy=privacy)
    calm = World(tmp_path / "calm", never, policy=policy)
    rough = World(tmp_path / "rough", always, policy=policy)
    for world in (calm, rough):
        assert np.isfinite(world.run(study).components).all()
    assert calm.spends() == rough.spends()
    totals = [world.sites["a"].ledger.totals("data").mu for world in (calm, rough)]
    assert totals[0] == totals[1]


def test_directions_that_the_meter_changed_are_replayed_as_they_were_answered(
    tmp_path: Path,
) -> None:
    policy = Policy(max_rank_fraction=0.9)
    study = Study(NAMES, 1, "krylov", max_rounds=2, certify=False)
    calm = World(tmp_path / "calm", never, rows=tables(30), policy=policy)
    rough = World(tmp_path / "rough", always, rows=tables(30), policy=policy)
    for run in ("first", "second"):  # whose directions repeat those of the first, almost
        assert same(calm.run(study, run), rough.run(study, run))


def test_a_run_is_not_continued_on_rows_that_were_changed(tmp_path: Path) -> None:
    world = World(tmp_path / "world", lambda message: message == 4)
    study = Study(NAMES, 2, "krylov")
    site = world.sites["b"]
    restart = site.restart

    def change_rows() -> None:
        world.rows["b"] = world.rows["b"] + 0.5
        restart()

    site.restart = change_rows  # type: ignore[method-assign]
    with pytest.raises(SiteRefused) as refused:
        world.run(study)
    assert refused.value.code == "aborted"
    assert site.ledger.is_aborted("data", RUN)
    restart()
    again = site.site.answer(opening(RUN, study))
    assert Message.from_bytes(again, "reply").label == "open"
    request = Message("request", RUN, 90, "product", {}).to_bytes()
    assert Message.from_bytes(site.site.answer(request), "refusal").label == "aborted"


def test_a_closed_run_leaves_no_secret_behind_and_is_never_opened_again(tmp_path: Path) -> None:
    world = World(tmp_path / "world", never)
    study = Study(NAMES, 2, "covariance", secure=True)
    world.run(study)
    site = world.sites["a"]
    known = site.ledger.recall("data", RUN)
    assert known is not None
    assert known.secret in (tmp_path / "world/a.ledger").read_bytes()
    site.site.close_run(RUN)
    assert site.ledger.recall("data", RUN) is None
    assert known.secret not in (tmp_path / "world/a.ledger").read_bytes()
    refused = Message.from_bytes(site.site.answer(opening(RUN, study)), "refusal")
    assert refused.label == "restarted"


def test_a_published_mechanism_is_not_replayed_with_other_noise(tmp_path: Path) -> None:
    world = World(tmp_path / "world", lambda message: message == 2)
    study = Study(NAMES, 1, privacy=ModSuLQ(epsilon=1.0, delta=1e-5))
    with pytest.raises(SiteRefused) as refused:
        world.run(study)
    assert refused.value.code in ("restarted", "closed")
