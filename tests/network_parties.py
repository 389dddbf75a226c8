"""A coordinator and three sites in folders of their own, at any step of their key exchange."""

import json
from dataclasses import dataclass
from pathlib import Path

import pytest

from eigenfed.errors import EigenfedError
from eigenfed.study.config import SiteFile, StudyFile, read_site, read_study
from eigenfed.study.network.invitations import read_admission, read_invitation, read_request
from eigenfed.study.network.inviting import AdmittedSites, admit_sites, invite_sites
from eigenfed.study.network.joining import accept_invitation, pin_roster

STUDY = """\
name = "heart"
sites = ["north", "south", "island"]
components = 2
method = "krylov"
secure = true
features = ["age", "bmi", "hdl"]
"""
FILES = 'engine = "files"\n[network]\ndrop = "drop"\n'
NVFLARE = 'engine = "nvflare"\n[network]\nhost = "pca.example"\n'
NAMES = ("north", "south", "island")


@dataclass(frozen=True)
class Parties:
    """The folders of all parties; what they send each other is copied by nobody."""

    home: Path

    @classmethod
    def start(cls, home: Path, engine: str = FILES, study: str = STUDY) -> "Parties":
        """Write the study file and the site files."""
        (home / "coordinator").mkdir(parents=True)
        (home / "coordinator" / "study.toml").write_text(study + engine)
        for name in NAMES:
            (home / name).mkdir()
            (home / name / "site.toml").write_text(
                f'name = "{name}"\ndata = "rows.csv"\n[policy]\nmin_rows = 5\n'
            )
        return cls(home)

    @property
    def study(self) -> StudyFile:
        """The study file."""
        return read_study(self.home / "coordinator" / "study.toml")

    def site(self, name: str) -> SiteFile:
        """The file of a site."""
        return read_site(self.home / name / "site.toml")

    @property
    def invitation(self) -> Path:
        """What the coordinator sends first."""
        return self.home / "coordinator" / "heart.invitation.json"

    def request(self, name: str) -> Path:
        """What a site sends back."""
        return self.home / name / f"{name}.request.json"

    @property
    def roster(self) -> Path:
        """What the coordinator sends last."""
        return self.home / "coordinator" / "heart.roster.json"

    def invite(self) -> str:
        """Make the invitation, and return the coordinator's fingerprint."""
        return invite_sites(self.study)[0].fingerprint

    def ask(self, *names: str) -> dict[str, str]:
        """Let sites answer the invitation, and return their fingerprints."""
        told = self.invite()
        return {
            name: accept_invitation(self.invitation, self.site(name), told)[0].fingerprint
            for name in names
        }

    def admit(self, told: dict[str, str]) -> AdmittedSites:
        """Admit sites whose fingerprints were told."""
        return admit_sites(self.study, [self.request(name) for name in told], told)

    def join(self) -> str:
        """Go through all steps, and return the fingerprint of the roster."""
        roster = self.admit(self.ask(*NAMES)).roster
        assert roster is not None
        for name in NAMES:
            pin_roster(self.roster, self.site(name), roster.fingerprint)
        return roster.fingerprint


def rewrite(path: Path, key: str, value: str | None) -> None:
    """Change one key of a document, or remove it."""
    record = json.loads(path.read_bytes())
    record[key] = value
    kept = {name: found for name, found in record.items() if found is not None}
    path.write_text(json.dumps(kept, indent=1) + "\n")


def refuse_any(path: Path) -> str:
    """Return the error with which readers refuse a file, as all of them must do."""
    errors = []
    for read in (read_invitation, read_request, read_admission):
        with pytest.raises(EigenfedError) as found:
            read(path)
        errors.append(str(found.value))
    return min(errors, key=lambda error: "Check which file" in error)
