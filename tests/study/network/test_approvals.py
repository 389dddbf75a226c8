"""Approved studies: complete copies that cannot be swapped, and a log of who decided what."""

import errno
import os
import resource
import signal
from datetime import UTC, datetime
from pathlib import Path

import pytest

from eigenfed.errors import DataError, InputError, PrivacyError
from eigenfed.study.config import StudyFile, read_study
from eigenfed.study.network.approvals import (
    approve_study,
    find_approved,
    list_approved,
    read_log,
    withdraw_study,
)
from network_parties import FILES, STUDY, Parties


def noon() -> datetime:
    return datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties.start(tmp_path)


def rewritten(parties: Parties, text: str) -> StudyFile:
    (parties.home / "coordinator" / "study.toml").write_text(text)
    return parties.study


def test_an_approved_study_is_found_by_its_digest_only(parties: Parties) -> None:
    study, site = parties.study, parties.site("north")
    digest = study.study.digest
    assert find_approved(site, digest) is None
    copy = approve_study(study, site, by="E. Hansen", clock=noon)
    assert copy == site.network / "approved" / f"{digest}.toml"
    found = find_approved(site, digest)
    assert found is not None
    assert found.study == study.study
    for other in ("", "0" * 64, digest.upper(), digest[:-1], f"../approved/{digest}"):
        assert find_approved(site, other) is None
    assert [approval.digest for approval in list_approved(site)] == [digest]
    assert find_approved(parties.site("south"), digest) is None
    assert read_log(site) == [
        {
            "time": "2026-03-01T12:00:00+00:00",
            "by": "E. Hansen",
            "action": "approved",
            "study": "heart",
            "digest": digest,
        }
    ]
    assert (site.network / "approvals.jsonl").stat().st_mode & 0o777 == 0o600


def test_engine_and_network_are_not_part_of_what_is_approved(parties: Parties) -> None:
    digest = parties.study.study.digest
    other = rewritten(parties, STUDY + 'engine = "nvflare"\n[network]\nhost = "pca.example"\n')
    assert other.study.digest == digest
    approve_study(other, parties.site("north"))
    found = find_approved(parties.site("north"), digest)
    assert found is not None
    assert (found.engine, found.network) == ("in_process", None)


def test_a_copy_is_complete_with_manifest_method_and_privacy(parties: Parties) -> None:
    text = STUDY.replace('features = ["age", "bmi", "hdl"]\n', 'manifest = "features.txt"\n')
    text = text.replace('method = "krylov"', 'method = "auto"').replace("secure = true\n", "")
    names = parties.study.path.with_name("features.txt")
    names.write_text('age\n  "quoted"\nbmi, in kg/m²\n')
    private = "[privacy]\nepsilon = 1\ndelta = 1e-6\nshares = { mean = 0.2, covariance = 0.6 }\n"
    expected = '[expected]\nspectrum = "s.txt"\n'
    names.with_name("s.txt").write_text("2\n1\n")
    study = rewritten(parties, text + FILES + private + expected)
    site = parties.site("north")
    approve_study(study, site)
    names.unlink()
    names.with_name("s.txt").unlink()
    found = find_approved(site, study.study.digest)
    assert found is not None
    assert found.features == ("age", '"quoted"', "bmi, in kg/m²")
    assert found.study == study.study
    assert found.privacy == study.privacy
    withdraw_study(site, study.study.digest)
    assert list((site.network / "approved").iterdir()) == []
    options = STUDY.replace('"krylov"', '{ name = "power", local_steps = 2 }')
    plain = rewritten(parties, options.replace("secure = true", "center = false"))
    approve_study(plain, site)
    assert find_approved(site, plain.study.digest) is not None


def test_a_copy_that_was_changed_is_refused(parties: Parties) -> None:
    study, site = parties.study, parties.site("north")
    copy = approve_study(study, site)
    copy.write_text(copy.read_text().replace("secure = true", "secure = false"))
    with pytest.raises(DataError, match=r"was changed after it was approved. Remove it, and appr"):
        find_approved(site, study.study.digest)


def test_a_file_that_changes_while_it_is_approved_is_not_kept(parties: Parties) -> None:
    study, site = parties.study, parties.site("north")
    rewritten(parties, STUDY.replace("components = 2", "components = 3") + FILES)
    with pytest.raises(DataError, match=r"has changed since it was read. Approve it again"):
        approve_study(study, site)
    assert list_approved(site) == []
    assert read_log(site) == []


def test_on_a_full_disk_nothing_is_approved_and_the_log_stays_whole(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    study, site, room = parties.study, parties.site("north"), [0]
    other = rewritten(parties, STUDY.replace("components = 2", "components = 1") + FILES)
    approve_study(other, site)
    rewritten(parties, STUDY + FILES)
    before, sync = read_log(site), os.fsync

    def fill(file: int) -> None:
        room[0] -= 1
        if room[0] == 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        sync(file)

    monkeypatch.setattr(os, "fsync", fill)
    for room[0] in (1, 2):
        with pytest.raises(OSError, match="No space left"):
            approve_study(study, site)
        assert find_approved(site, study.study.digest) is None
        assert read_log(site) == before
        assert len(list((site.network / "approved").iterdir())) == 1
    approve_study(study, site)
    assert [event["action"] for event in read_log(site)] == ["approved", "approved"]


def test_a_line_of_the_log_that_is_cut_short_is_taken_back(parties: Parties) -> None:
    site = parties.site("north")
    approve_study(parties.study, site)
    before = (site.network / "approvals.jsonl").read_bytes()
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + 20, hard))
        with pytest.raises(OSError, match="log"):
            withdraw_study(site, parties.study.study.digest)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert (site.network / "approvals.jsonl").read_bytes() == before
    assert list_approved(site) == []


def test_only_those_who_own_the_folder_can_approve(parties: Parties) -> None:
    study, site = parties.study, parties.site("north")
    approve_study(study, site)
    (site.network / "approved").chmod(0o777)
    with pytest.raises(PrivacyError, match="other users can write to it"):
        find_approved(site, study.study.digest)
    with pytest.raises(PrivacyError, match="other users can write to it"):
        approve_study(study, site)


def test_what_was_withdrawn_is_no_longer_approved(parties: Parties) -> None:
    study, site = parties.study, parties.site("north")
    approve_study(study, site)
    assert withdraw_study(site, study.study.digest, by="J. Doe", clock=noon).name == "heart"
    assert find_approved(site, study.study.digest) is None
    assert [(event["action"], event["by"]) for event in read_log(site)] == [
        ("approved", ""),
        ("withdrawn", "J. Doe"),
    ]
    with pytest.raises(InputError, match="has not approved a study with the digest"):
        withdraw_study(site, study.study.digest)


def test_other_sites_long_names_and_damaged_logs_are_refused(parties: Parties) -> None:
    study, site = parties.study, parties.site("north")
    for name in ("a" * 201, "a\nb", "\x1b[2J"):
        with pytest.raises(InputError, match="--by must be at most 200 printable characters"):
            approve_study(study, site, by=name)
    assert list_approved(site) == []
    for text in ("{", "[]\n", "[" * 100_000, '{"time": 1}\n'):
        (site.network / "approvals.jsonl").write_text(text)
        with pytest.raises(DataError, match=r"approvals.jsonl is damaged. Restore it from a"):
            read_log(site)
    file = parties.home / "south" / "site.toml"
    file.write_text(file.read_text().replace('"south"', '"west"'))
    with pytest.raises(InputError, match='name = "west" is not one of the sites of'):
        approve_study(study, parties.site("south"))


def test_files_of_other_names_in_the_folder_are_ignored(parties: Parties) -> None:
    site = parties.site("north")
    copy = approve_study(parties.study, site)
    copy.with_name("notes.toml").write_text("not a study")
    os.symlink(copy, copy.with_name("0" * 64 + ".toml"))
    with pytest.raises(DataError, match="was changed after it was approved"):
        list_approved(site)
    copy.with_name("0" * 64 + ".toml").unlink()
    assert [read_study(copy).study.digest] == [found.digest for found in list_approved(site)]
