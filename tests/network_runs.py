"""Studies between parties whose messages pass through the hands of a test."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.study.network.approvals import approve_study
from eigenfed.study.network.coordinator_run import CoordinatedRun, Coordinator
from eigenfed.study.network.key_files import read_identity
from eigenfed.study.network.network_folder import coordinator_folder
from eigenfed.study.network.roster_file import read_roster
from eigenfed.study.network.site_service import SiteService
from eigenfed.study.rehearsal import make_estimator
from eigenfed.transport.engine import Callback
from eigenfed.transport.signed import SignedSite
from network_parties import FILES, NAMES, Parties
from secured import fixed_keys

FEATURES = ("age", "bmi", "hdl", "ldl", "sbp")
TERMS = """\
name = "heart"
sites = ["north", "south", "island"]
components = 2
seed = 7
features = ["age", "bmi", "hdl", "ldl", "sbp"]
"""
PRIVATE = "[privacy]\nepsilon = 20.0\ndelta = 1e-5\n"
BUDGET = "[policy.budget]\nepsilon = 60.0\ndelta = 1e-5\n"

Carry = Callable[[str, Callable[[bytes], bytes], bytes], bytes]


def make_rows(n: int = 40) -> dict[str, Array]:
    rng = np.random.default_rng(3)
    return {
        name: rng.standard_normal((n, len(FEATURES))) * [5, 3, 2, 1, 1] + place
        for place, name in enumerate(NAMES)
    }


class SiteProcess:
    """A site that can be restarted: what it remembers is in its files."""

    def __init__(self, parties: Parties, name: str) -> None:
        self._parties, self._name = parties, name
        self.results: list[Path] = []
        self.restarts = -1
        self.restart()

    def restart(self) -> None:
        file = self._parties.site(self._name)
        roster = read_roster(file.network / "roster.json")
        identity = read_identity(file.network / "site.key")
        self.service = SiteService(file, roster, identity, self.results.append)
        self._signed = SignedSite(
            self.service, name=self._name, identity=identity, coordinator=roster.coordinator
        )
        self.restarts += 1

    def answer(self, data: bytes) -> bytes:
        return self._signed.answer(data)

    @property
    def ledger(self) -> Ledger:
        path = self._parties.site(self._name).ledger
        assert path is not None
        return Ledger(path, readonly=True)


class Network:
    """A coordinator and three sites that have joined and approved a study.

    `carry` is given a site's name, its way to answer and a bundle, and returns a bundle.
    """

    terms = TERMS

    def __init__(
        self, home: Path, *, method: str = "covariance", study: str = "", engine: str = FILES
    ) -> None:
        named = method if method.startswith("{") else f'"{method}"'
        more = f"method = {named}\n{study}"
        tables = more.find("[")
        keys, rest = (more, "") if tables < 0 else (more[:tables], more[tables:])
        self.parties = Parties.start(home, engine="", study=f"{self.terms}{keys}{engine}{rest}")
        self.rows = make_rows()
        for name in NAMES:
            folder = home / name
            data = self.write_rows(folder, name)
            budget = BUDGET if "[privacy]" in study else ""
            (folder / "site.toml").write_text(
                f'name = "{name}"\ndata = "{data}"\nledger = "{name}.ledger"\n'
                f"[policy]\nmin_rows = 5\n{budget}"
            )
            Ledger(folder / f"{name}.ledger", create=True).close()
        self.parties.join()
        self.approve()
        self.sites = {name: SiteProcess(self.parties, name) for name in NAMES}
        self.carry: Carry = lambda name, answer, data: answer(data)

    def approve(self) -> None:
        """Let all sites approve the study as its file is now."""
        for name in NAMES:
            approve_study(self.parties.study, self.parties.site(name))

    def write_rows(self, folder: Path, name: str) -> str:
        """Write the rows of a site, and return the name of the file."""
        rows = [",".join(map(repr, row)) for row in self.rows[name].tolist()]
        (folder / "rows.csv").write_text("\n".join([",".join(FEATURES), *rows]) + "\n")
        return "rows.csv"

    def coordinator(self) -> Coordinator:
        study = self.parties.study
        folder = coordinator_folder(study)
        identity = read_identity(folder / "coordinator.key")
        roster = read_roster(folder / "roster.json")
        return Coordinator(study, roster, identity, folder, lambda name: _Wire(self, name))

    def run(
        self, present: tuple[str, ...] = NAMES, callback: Callback | None = None
    ) -> CoordinatedRun:
        return self.coordinator().run(present, callback)

    def fit_together(self, names: tuple[str, ...] = NAMES) -> PCAFit:
        """Fit the same rows in one process, as `eigenfed fit` does, with the keys of the sites."""
        sites: dict[str, Any] = {name: self.rows[name] for name in names}
        with fixed_keys(self.identities):
            return make_estimator(self.parties.study).fit_sites(sites)

    @property
    def identities(self) -> dict[str, Identity]:
        """The keys of the sites."""
        return {name: read_identity(self.parties.site(name).network / "site.key") for name in NAMES}

    def check_ledgers(self) -> None:
        for site in self.sites.values():
            assert site.ledger.verify().intact


class _Wire:
    def __init__(self, network: Network, site: str) -> None:
        self._network, self._site = network, site

    def answer(self, data: bytes) -> bytes:
        network = self._network
        return network.carry(self._site, network.sites[self._site].answer, data)
