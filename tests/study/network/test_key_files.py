"""Private keys that only their owner can read, and fingerprints that people can type."""

import errno
import os
from pathlib import Path

import pytest

from eigenfed.errors import DataError, InputError, PrivacyError
from eigenfed.study.network.key_files import (
    create_identity,
    fingerprint,
    fingerprint_site,
    read_identity,
    same_fingerprint,
)


@pytest.fixture
def key(tmp_path: Path) -> Path:
    path = tmp_path / "network" / "site.key"
    create_identity(path)
    return path


def test_a_key_is_for_its_owner_only_and_reads_back(key: Path) -> None:
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700
    assert key.read_text().startswith("eigenfed private key 1\n")
    assert read_identity(key).to_bytes().hex() in key.read_text()


def test_a_key_is_not_overwritten(key: Path) -> None:
    before = key.read_bytes()
    with pytest.raises(InputError, match="exists, and a key is not overwritten"):
        create_identity(key)
    assert key.read_bytes() == before


def test_a_full_disk_leaves_no_key_behind_and_does_not_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "network" / "site.key"
    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill_disk)
        with pytest.raises(OSError, match="No space left"):
            create_identity(path)
    assert list(path.parent.iterdir()) == []
    create_identity(path)
    assert [file.name for file in path.parent.iterdir()] == ["site.key"]


def fill_disk(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o620, 0o644, 0o666])
def test_a_key_that_others_can_read_or_change_is_refused(key: Path, mode: int) -> None:
    key.chmod(mode)
    with pytest.raises(PrivacyError, match=f"mode {mode:04o}.*chmod 600 {key}"):
        read_identity(key)


@pytest.mark.parametrize("mode", [0o770, 0o703, 0o777])
def test_a_folder_in_which_others_could_replace_a_key_is_refused(key: Path, mode: int) -> None:
    key.parent.chmod(mode)
    with pytest.raises(PrivacyError, match=f"can write to it .mode {mode:04o}.*chmod 700"):
        read_identity(key)
    with pytest.raises(PrivacyError, match="chmod 700"):
        create_identity(key.with_name("other.key"))


@pytest.mark.parametrize(
    "text", ["", "eigenfed private key 1\n", "eigenfed private key 2\n" + 64 * "a", 2000 * "a"]
)
def test_what_is_no_key_is_refused_and_not_quoted(key: Path, text: str) -> None:
    key.write_text(text)
    with pytest.raises(DataError, match="is not a private key as written by this release") as said:
        read_identity(key)
    assert "aaaa" not in str(said.value)


def test_a_key_that_is_missing_or_a_folder_is_refused(key: Path) -> None:
    with pytest.raises(InputError, match=r"cannot be read: No such file.*eigenfed network join"):
        read_identity(key.with_name("none.key"))
    with pytest.raises(InputError, match="Is a directory"):
        read_identity(key.parent)


def test_a_fingerprint_depends_on_kind_name_and_data() -> None:
    found = {
        fingerprint("roster", b"a"),
        fingerprint("study", b"a"),
        fingerprint("roster", b"b"),
        fingerprint_site("a", b"a"),
        fingerprint_site("b", b"a"),
    }
    assert len(found) == 5
    assert {len(one) for one in found} == {24}


def test_a_fingerprint_can_be_typed_in_many_ways_and_not_in_part() -> None:
    shown = "OIBA-2XPA-5RUE-NS4D-WVTY"
    for typed in (shown, shown.lower(), shown.replace("-", ""), f" {shown.replace('-', ' ')}\n"):
        assert same_fingerprint(typed, shown)
    assert same_fingerprint("018A-2XPA-5RUE-NS4D-WVTY", shown)
    for wrong in ("", shown[:-1], shown[:-1] + "A", shown + "A", shown[:4]):
        assert not same_fingerprint(wrong, shown)
