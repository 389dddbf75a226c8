"""A key exchange for NVFLARE: certificates are requested, signed and sent with the roster."""

from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import InputError
from eigenfed.study.network import network_folder
from eigenfed.study.network.inviting import admit_sites
from eigenfed.study.network.roster_file import find_drop, read_roster
from network_parties import NAMES, NVFLARE, STUDY, Parties, refuse_any, rewrite

PEM = "-----BEGIN {0}-----\n{1}\n-----END {0}-----\n"


class FakeKits:
    """Stands for the certificates and kits of NVFLARE; files say who made what."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def create_authority(self, folder: Path, *, study: str, days: int = 730) -> None:
        self.calls.append("authority")
        folder.mkdir()
        (folder / "study").write_text(study)

    def root_certificate(self, authority: Path) -> bytes:
        assert (authority / "study").exists()
        return PEM.format("CERTIFICATE", "ROOT").encode()

    def create_server_kit(
        self, authority: Path, kit: Path, *, study: str, host: str, port: int
    ) -> None:
        self.calls.append(f"server {host}:{port}")
        kit.mkdir()

    def create_certificate_request(self, folder: Path, *, site: str) -> bytes:
        self.calls.append(f"request {site}")
        (folder / "tls.key").write_text("private")
        return PEM.format("CERTIFICATE REQUEST", f"{site}{len(self.calls)}").encode()

    def sign_certificate_request(
        self, authority: Path, request: bytes, *, site: str, days: int = 730
    ) -> bytes:
        self.calls.append(f"sign {site}")
        assert site.encode() in request
        return PEM.format("CERTIFICATE", site).encode()

    def create_site_kit(
        self,
        folder: Path,
        kit: Path,
        *,
        study: str,
        site: str,
        certificate: bytes,
        root: bytes,
        host: str,
        port: int,
    ) -> None:
        assert (folder / "tls.key").exists()
        assert site.encode() in certificate
        assert b"ROOT" in root
        kit.mkdir()
        (kit / "address").write_text(f"{host}:{port}")


@pytest.fixture
def kits(monkeypatch: pytest.MonkeyPatch) -> FakeKits:
    fake = FakeKits()
    monkeypatch.setattr(network_folder, "load_kits", lambda: fake)
    return fake


def test_with_nvflare_certificates_are_signed_and_kits_made(tmp_path: Path, kits: FakeKits) -> None:
    parties = Parties.start(tmp_path, NVFLARE)
    parties.join()
    assert kits.calls[:2] == ["authority", "server pca.example:8102"]
    assert [call for call in kits.calls if call.startswith("sign")] == [
        f"sign {name}" for name in NAMES
    ]
    for name in NAMES:
        kit = parties.site(name).network / "kit"
        assert (kit / "address").read_text() == "pca.example:8102"
        assert "private" not in parties.request(name).read_text()
    made = len(kits.calls)
    parties.join()
    assert kits.calls[made:] == []
    roster = read_roster(parties.site("north").network / "roster.json")
    with pytest.raises(InputError, match=r"uses NVFLARE and has no drop folder"):
        find_drop(parties.site("north"), roster)


def test_a_moved_server_gets_a_new_kit_with_the_same_authority(
    tmp_path: Path, kits: FakeKits
) -> None:
    parties = Parties.start(tmp_path, NVFLARE)
    parties.invite()
    study = parties.home / "coordinator" / "study.toml"
    study.write_text(study.read_text() + "port = 9000\n")
    parties.invite()
    assert kits.calls == ["authority", "server pca.example:8102", "server pca.example:9000"]


def test_a_kit_that_was_not_finished_is_made_again(
    tmp_path: Path, kits: FakeKits, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties.start(tmp_path, NVFLARE)

    def fail(authority: Path, kit: Path, **_: Any) -> None:
        kit.mkdir()
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(kits, "create_server_kit", fail)
        with pytest.raises(OSError, match=r"No space left"):
            parties.invite()
    parties.invite()
    assert kits.calls == ["authority", "server pca.example:8102"]


def test_after_a_change_of_the_engine_all_sites_join_again(tmp_path: Path, kits: FakeKits) -> None:
    parties = Parties.start(tmp_path)
    told = parties.ask(*NAMES)
    parties.admit(told)
    (parties.home / "coordinator" / "study.toml").write_text(STUDY + NVFLARE)
    parties.invite()
    assert admit_sites(parties.study, [], {}).missing == NAMES
    assert parties.ask(*NAMES) == told
    assert parties.admit(told).roster is not None


def test_documents_of_nvflare_must_have_certificates(tmp_path: Path, kits: FakeKits) -> None:
    parties = Parties.start(tmp_path, NVFLARE)
    parties.join()
    for path, key in ((parties.invitation, "root"), (parties.roster, "root")):
        original = path.read_bytes()
        rewrite(path, key, None)
        assert "is not a valid eigenfed" in refuse_any(path)
        rewrite(path, key, "-----BEGIN\n<script>")
        assert f"{key} is not valid" in refuse_any(path)
        path.write_bytes(original)
