"""A key exchange for NVFLARE: certificates are requested, signed and sent with the roster."""

import shutil
from pathlib import Path
from typing import Any

import pytest

from eigenfed.errors import DataError, InputError
from eigenfed.study.network import network_folder
from eigenfed.study.network.invitations import read_request
from eigenfed.study.network.inviting import admit_sites
from eigenfed.study.network.key_files import read_identity
from eigenfed.study.network.roster_file import find_drop, read_roster
from network_parties import NAMES, NVFLARE, STUDY, Parties, refuse_any, rewrite

PEM = "-----BEGIN {0}-----\n{1}\n-----END {0}-----\n"


class FakeKits:
    """Stands for the certificates and kits of NVFLARE; files say who made what."""

    def __init__(self) -> None:
        self.calls: list[str] = []

    def check_site_name(self, site: str) -> None:
        if site == "server":
            raise InputError("site='server' must be another name.")

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
        if site.encode() not in request:
            raise DataError(f"The certificate request is not for site {site!r}.")
        self.calls.append(f"sign {site}")
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
    admit_sites(parties.study, [], {})
    assert kits.calls[made:] == []
    parties.admit(parties.ask("south"))
    assert kits.calls[made:] == ["sign south"]
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


def test_a_certificate_for_another_name_is_refused_and_nothing_kept(
    tmp_path: Path, kits: FakeKits
) -> None:
    parties = Parties.start(tmp_path, NVFLARE)
    told = parties.ask(*NAMES)
    asked = read_request(parties.request("north")).certificate_request
    identity = read_identity(parties.site("south").network / "site.key")
    request = read_request(parties.request("south")).model_copy(
        update={"certificate_request": asked}
    )
    parties.request("south").write_bytes(request.signed_by(identity).to_bytes())
    with pytest.raises(DataError, match="is not for site 'south'"):
        parties.admit(told)
    assert admit_sites(parties.study, [], {}).missing == NAMES


def test_a_name_that_the_engine_cannot_use_is_refused_at_once(
    tmp_path: Path, kits: FakeKits
) -> None:
    study = STUDY.replace('"north"', '"server"')
    with pytest.raises(InputError, match="site='server'"):
        Parties.start(tmp_path, NVFLARE, study).invite()
    assert kits.calls == []


def test_a_new_authority_signs_all_certificates_again(tmp_path: Path, kits: FakeKits) -> None:
    parties = Parties.start(tmp_path, NVFLARE)
    parties.join()
    made = len(kits.calls)
    shutil.rmtree(parties.home / "coordinator" / "network" / "authority")
    parties.invite()
    admit_sites(parties.study, [], {})
    assert kits.calls[made:] == [
        "authority",
        "server pca.example:8102",
        *(f"sign {name}" for name in sorted(NAMES)),
    ]


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


@pytest.mark.parametrize("part", ["authority", "server_kit"])
def test_a_folder_that_a_crash_left_half_made_is_made_again(
    part: str, tmp_path: Path, kits: FakeKits, monkeypatch: pytest.MonkeyPatch
) -> None:
    parties = Parties.start(tmp_path, NVFLARE)
    home = parties.home / "coordinator" / "network"

    def crash(*folders: Path, **_: Any) -> None:
        folders[-1].mkdir()
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(kits, f"create_{part}", crash)
        patch.setattr(shutil, "rmtree", lambda *_, **__: None)  # nobody cleans up after kill -9
        with pytest.raises(KeyboardInterrupt):
            parties.invite()
    made = {path.name for path in home.iterdir()}
    assert made & {"authority", "server"} == ({"authority"} if part == "server_kit" else set())
    parties.join()
    made = {path.name for path in home.iterdir() if path.is_dir()}
    assert made == {"authority", "server", "members"}
