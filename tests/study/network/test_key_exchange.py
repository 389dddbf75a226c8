"""A key exchange between a coordinator and three sites, and everything that must not pass."""

import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.errors import DataError, InputError, PrivacyError
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.study.network.documents import MOST_BYTES
from eigenfed.study.network.invitations import (
    Admission,
    Invitation,
    JoinRequest,
    read_admission,
    read_invitation,
    read_request,
)
from eigenfed.study.network.inviting import admit_sites, invite_sites
from eigenfed.study.network.joining import accept_invitation, pin_roster
from eigenfed.study.network.key_files import read_identity
from eigenfed.study.network.roster_file import NetworkAddress, NetworkRoster, find_drop, read_roster
from network_parties import FILES, NAMES, Parties, refuse_any, rewrite


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties.start(tmp_path)


def test_all_parties_end_with_the_same_roster_and_no_private_key_leaves(parties: Parties) -> None:
    told = parties.join()
    homes = [parties.home / name / "network" for name in ("coordinator", *NAMES)]
    rosters = {(home / "roster.json").read_bytes() for home in homes}
    assert len(rosters) == 1
    roster = read_roster(homes[0] / "roster.json")
    assert roster.fingerprint == told
    assert roster.to_bytes() in rosters
    keys = {name: read_identity(parties.site(name).network / "site.key") for name in NAMES}
    assert roster.sites == {name: keys[name].public for name in sorted(NAMES)}
    assert roster.roster_of(NAMES).keys == roster.sites
    assert roster.coordinator == read_identity(homes[0] / "coordinator.key").public
    sent = [parties.invitation, parties.roster, *map(parties.request, NAMES)]
    secrets = [key.to_bytes().hex() for key in keys.values()]
    for path in sent:
        assert not any(secret in path.read_text() for secret in secrets)
    assert {home.stat().st_mode & 0o777 for home in homes} == {0o700}


def test_sites_may_come_one_by_one_and_again(parties: Parties) -> None:
    told = parties.ask(*NAMES)
    first = parties.admit({"north": told["north"]})
    assert (first.sites, first.missing) == ({"north": told["north"]}, ("south", "island"))
    assert first.roster is None
    assert not parties.roster.exists()
    done = parties.admit({name: told[name] for name in ("south", "island")})
    assert done.missing == ()
    assert done.sites == told
    before = parties.roster.read_bytes()
    assert parties.ask(*NAMES) == told
    again = admit_sites(parties.study, [parties.request("north")], {})
    assert again.roster == done.roster
    assert parties.roster.read_bytes() == before


def test_the_drop_folder_is_the_sites_own_or_the_rosters(parties: Parties) -> None:
    parties.join()
    site = parties.site("north")
    roster = read_roster(site.network / "roster.json")
    assert find_drop(site, roster) == parties.home / "coordinator" / "drop"
    file = parties.home / "north" / "site.toml"
    file.write_text('drop = "mine"\n' + file.read_text())
    with pytest.raises(InputError, match=r"mine does not exist here. Create it, or set drop in"):
        find_drop(parties.site("north"), roster)
    (parties.home / "north" / "mine").mkdir()
    assert find_drop(parties.site("north"), roster) == parties.home / "north" / "mine"


def test_secure_sums_have_sites_of_the_roster_only(parties: Parties) -> None:
    parties.join()
    roster = read_roster(parties.site("north").network / "roster.json")
    with pytest.raises(InputError, match=r"Site 'west' is not in the roster, which has island, n"):
        roster.roster_of(("north", "south", "west"))


def other_key(fingerprint: str) -> str:
    return fingerprint[:-1] + ("A" if fingerprint[-1] != "A" else "B")


def test_a_wrong_fingerprint_is_refused_at_each_step_and_nothing_is_kept(parties: Parties) -> None:
    told = parties.invite()
    site = parties.site("north")
    with pytest.raises(PrivacyError, match=f"is {told}, and not '{other_key(told)}'. Call the"):
        accept_invitation(parties.invitation, site, other_key(told))
    assert not site.network.exists()
    sites = parties.ask(*NAMES)
    wrong = sites | {"south": other_key(sites["south"])}
    with pytest.raises(PrivacyError, match=r"The fingerprint of the key of south in .* and not"):
        parties.admit(wrong)
    with pytest.raises(PrivacyError, match=r"and none was given"):
        admit_sites(parties.study, [parties.request("north")], {})
    # North's fingerprint does not admit the same key under another name.
    swapped = sites | {"south": sites["north"]}
    with pytest.raises(PrivacyError, match=r"key of south"):
        parties.admit(swapped)
    assert not (parties.home / "coordinator" / "network" / "members").exists()
    roster = parties.admit(sites).roster
    assert roster is not None
    with pytest.raises(PrivacyError, match=r"The fingerprint of the roster in"):
        pin_roster(parties.roster, site, other_key(roster.fingerprint))
    assert not (site.network / "roster.json").exists()


def test_a_document_that_was_changed_in_any_place_is_refused(parties: Parties) -> None:
    parties.join()
    for path in (parties.invitation, parties.request("north"), parties.roster):
        original = path.read_bytes()
        for key in json.loads(original):
            rewrite(path, key, None)
            assert refuse_any(path), key
            path.write_bytes(original)
        for old, new in ((b'"heart"', b'"hearth"'), (b'"coordinator": "', b'"coordinator": "0')):
            path.write_bytes(original.replace(old, new))
            assert refuse_any(path)
        # One character of a key at a time: each is refused, by its signature or as no key.
        start = original.index(b'"coordinator": "') + len(b'"coordinator": "')
        for place in range(start, start + 64, 9):
            other = b"0" if original[place : place + 1] != b"0" else b"1"
            path.write_bytes(original[:place] + other + original[place + 1 :])
            assert "changed after it was signed" in refuse_any(path)
        path.write_bytes(original)


def test_a_name_in_a_document_cannot_be_a_path(parties: Parties) -> None:
    """Even signed, a name that is no name is refused before it is used."""
    parties.ask("north")
    identity = Identity.generate()
    request = read_request(parties.request("north"))
    for name in ("../north", "/etc/cron", "north\n", "", ".", "a" * 65, "nörth", "a b"):
        forged = request.model_copy(update={"site": name, "key": identity.public})
        parties.request("north").write_bytes(forged.signed_by(identity).to_bytes())
        with pytest.raises(DataError, match=r"join request: site is not valid. Ask for the file"):
            read_request(parties.request("north"))


@pytest.mark.parametrize(
    ("damage", "said"),
    [
        (lambda data: data[: len(data) // 2], "it is cut off or not JSON"),
        (lambda data: b"", "is not"),
        (lambda data: b"\x00\xff" * 100, "is not"),
        (lambda data: data + b" " * MOST_BYTES, "has more than 1 MB"),
        (lambda data: data[:-2] + b',"a":' + b"[" * 100_000, "it is cut off or not JSON"),
        (lambda data: data[:-3] + b',"a":' + b"[" * 9 + b"]" * 9 + b"}", "an unknown key"),
        (lambda data: data.replace(b'{\n "format"', b'{ "format"', 1), "it was edited"),
        (lambda data: data.replace(b"{\n", b'{\n "study": "x",\n', 1), "is not"),
        (lambda data: data[:-3] + b',\n "study": "heart"\n}\n', "it was edited|unknown"),
        (lambda data: data.replace(b' 1"', b' 2"', 1), "written by another release"),
        (lambda data: re.sub(rb'"signature": "\w', b'"signature": "Z', data), "signature is not"),
        (lambda data: re.sub(rb'"study": "heart"', b'"study": 7', data), "is not valid"),
    ],
)
def test_damaged_and_hostile_files_are_refused_in_words(
    parties: Parties, damage: Callable[[bytes], bytes], said: str
) -> None:
    parties.join()
    for path in (parties.invitation, parties.request("north"), parties.roster):
        path.write_bytes(damage(path.read_bytes()))
        error = refuse_any(path)
        assert re.search(said, error)
        assert str(path) in error
        assert len(error) < 300


def test_no_change_of_single_bytes_passes_or_escapes_as_another_error(parties: Parties) -> None:
    parties.join()
    rng = np.random.default_rng(7)
    for path in (parties.invitation, parties.request("north"), parties.roster):
        original = path.read_bytes()
        for _ in range(60):
            data = bytearray(original)
            places = rng.integers(len(data), size=rng.integers(1, 4))
            data[rng.integers(len(data))] ^= int(rng.integers(1, 256))
            for place in places:
                data[place : place + rng.integers(3)] = rng.bytes(int(rng.integers(3)))
            path.write_bytes(data)
            if bytes(data).strip() != original.strip():
                assert refuse_any(path)
        path.write_bytes(original)


def test_line_ends_may_change_on_the_way(parties: Parties) -> None:
    parties.invite()
    data = parties.invitation.read_bytes()
    parties.invitation.write_bytes(data.replace(b"\n", b"\r\n") + b"\r\n")
    assert read_invitation(parties.invitation).to_bytes() == data


def test_one_document_is_not_taken_for_another(parties: Parties) -> None:
    parties.ask("north")
    with pytest.raises(DataError, match=r"is an eigenfed invitation, and not a request to join"):
        read_request(parties.invitation)
    with pytest.raises(InputError, match=r"cannot be read: Invalid argument"):
        read_invitation(Path("/dev/zero"))


def test_two_sites_cannot_have_one_key_or_the_coordinators(parties: Parties) -> None:
    told = parties.ask(*NAMES)
    shutil.copy(parties.site("north").network / "site.key", parties.site("south").network)
    told |= parties.ask("south")
    with pytest.raises(PrivacyError, match=r"Site 'south' has the same key as site 'north'. Each"):
        parties.admit(told)
    key = parties.site("south").network / "site.key"
    shutil.copy(parties.home / "coordinator" / "network" / "coordinator.key", key)
    told |= parties.ask("south")
    with pytest.raises(PrivacyError, match=r"'south' has the same key as the coordinator"):
        parties.admit(told)


def new_key(parties: Parties, name: str) -> None:
    shutil.rmtree(parties.site(name).network)


def test_a_changed_key_of_a_site_needs_a_decision_everywhere(parties: Parties) -> None:
    first = parties.ask(*NAMES)
    before = parties.admit(first).roster
    assert before is not None
    for name in NAMES:
        pin_roster(parties.roster, parties.site(name), before.fingerprint)
    new_key(parties, "south")
    told = parties.ask("south")
    with pytest.raises(PrivacyError) as said:
        parties.admit(told)
    assert f"from {first['south']} to {told['south']}" in str(said.value)
    assert "run this again with --replace and the new fingerprint" in str(said.value)
    with pytest.raises(PrivacyError, match=r"and none was given"):
        admit_sites(parties.study, [parties.request("south")], {}, replace=True)
    after = admit_sites(parties.study, [parties.request("south")], told, replace=True).roster
    assert after is not None
    with pytest.raises(PrivacyError) as said:
        pin_roster(parties.roster, parties.site("north"), after.fingerprint)
    assert f"from {first['south']} to {told['south']}" in str(said.value)
    with pytest.raises(PrivacyError, match=r"The fingerprint of the roster"):
        pin_roster(parties.roster, parties.site("north"), before.fingerprint, replace=True)
    pinned = pin_roster(parties.roster, parties.site("north"), after.fingerprint, replace=True)
    assert pinned == after != before


def test_a_changed_coordinator_needs_a_decision_and_forgets_the_roster(parties: Parties) -> None:
    parties.join()
    site = parties.site("north")
    old = read_invitation(site.network / "invitation.json").fingerprint
    shutil.rmtree(parties.home / "coordinator" / "network")
    told = parties.invite()
    with pytest.raises(PrivacyError, match=f"has changed from {old} to {told}. Call its owner"):
        accept_invitation(parties.invitation, site, told)
    assert (site.network / "roster.json").exists()
    accept_invitation(parties.invitation, site, told, replace=True)
    assert not (site.network / "roster.json").exists()
    with pytest.raises(PrivacyError, match=f"signed by the coordinator {old}, and this site tr"):
        pin_roster(parties.roster, site, "")


def test_a_roster_with_another_key_of_this_site_is_refused(parties: Parties) -> None:
    told = parties.join()
    new_key(parties, "north")
    mine = parties.ask("north")["north"]
    with pytest.raises(PrivacyError, match=f"another key for north: .*, and this site has {mine}"):
        pin_roster(parties.roster, parties.site("north"), told)


def test_a_roster_without_this_site_is_refused(parties: Parties) -> None:
    parties.join()
    key = read_identity(parties.home / "coordinator" / "network" / "coordinator.key")
    admission = read_admission(parties.roster)
    fewer = {name: admission.roster.sites[name] for name in ("island", "south")}
    roster = admission.roster.model_copy(update={"sites": fewer})
    parties.roster.write_bytes(Admission(roster=roster).signed_by(key).to_bytes())
    with pytest.raises(PrivacyError, match=r"another key for north: none, and this site has"):
        pin_roster(parties.roster, parties.site("north"), roster.fingerprint)


def test_a_roster_before_the_invitation_is_refused(parties: Parties) -> None:
    told = parties.join()
    new_key(parties, "north")
    with pytest.raises(InputError, match=r"has accepted no invitation. Run eigenfed network join"):
        pin_roster(parties.roster, parties.site("north"), told)


def test_requests_for_others_are_refused(parties: Parties, tmp_path: Path) -> None:
    told = parties.ask(*NAMES)
    other = Parties.start(tmp_path / "other")
    foreign = other.ask("north")
    with pytest.raises(InputError, match=r"answers an invitation of the coordinator .*and this is"):
        admit_sites(parties.study, [other.request("north")], foreign)
    identity = Identity.generate()
    request = read_request(parties.request("north"))
    path = parties.request("north")
    for change, said in (
        ({"study": "lung"}, "is a request to join the study 'lung', and this is 'heart'"),
        ({"site": "west"}, "is from site 'west', and the study has island, north, south"),
        (
            {"certificate_request": "-----BEGIN A-----\nAA==\n-----END A-----\n"},
            "was made for another engine",
        ),
    ):
        forged = request.model_copy(update={**change, "key": identity.public})
        path.write_bytes(forged.signed_by(identity).to_bytes())
        with pytest.raises(InputError, match=said):
            admit_sites(parties.study, [path], told)
    path.write_bytes(request.to_bytes())
    with pytest.raises(InputError, match=r"is a second request of site 'north'. Pass one."):
        admit_sites(parties.study, [path, path], told)


def test_an_invitation_for_others_is_refused(parties: Parties) -> None:
    told = parties.invite()
    file = parties.home / "north" / "site.toml"
    file.write_text(file.read_text().replace('"north"', '"west"'))
    with pytest.raises(InputError, match=r'invites island, north, south, and .* has name = "west"'):
        accept_invitation(parties.invitation, parties.site("north"), told)


def test_a_folder_belongs_to_one_study(parties: Parties) -> None:
    parties.join()
    study = parties.home / "coordinator" / "study.toml"
    study.write_text(study.read_text().replace('"heart"', '"lung"'))
    with pytest.raises(
        InputError, match=r"belongs to the study 'heart', and .* has name = \"lung\""
    ):
        invite_sites(parties.study)
    (parties.home / "coordinator" / "network" / "invitation.json").unlink()
    invitation, path = invite_sites(parties.study)
    with pytest.raises(InputError, match=r"belongs to the study 'heart', and this invitation is f"):
        accept_invitation(path, parties.site("north"), invitation.fingerprint)


def test_a_study_file_that_has_changed_needs_a_new_invitation(parties: Parties) -> None:
    told = parties.ask(*NAMES)
    study = parties.home / "coordinator" / "study.toml"
    study.write_text(study.read_text().replace('"drop"', '"other"'))
    with pytest.raises(InputError, match=r"than when the sites were invited. Run eigenfed network"):
        parties.admit(told)
    assert parties.ask(*NAMES) == told
    roster = parties.admit(told).roster
    assert roster is not None
    assert str(roster.address).endswith("/coordinator/other")


def test_steps_out_of_order_and_studies_in_one_process_are_refused(tmp_path: Path) -> None:
    parties = Parties.start(tmp_path / "a")
    with pytest.raises(InputError, match=r"has no network yet. Run eigenfed network init"):
        admit_sites(parties.study, [], {})
    local = Parties.start(tmp_path / "b", engine="")
    with pytest.raises(InputError, match=r'has engine = "in_process", which needs no keys'):
        invite_sites(local.study)


def test_a_roster_must_have_distinct_keys_and_the_address_of_its_engine() -> None:
    drop, host = NetworkAddress(drop="/mnt"), NetworkAddress(host="a.example", port=8102)
    keys: dict[str, Any] = {"coordinator": bytes(32), "sites": {"a": b"a" * 32, "b": b"b" * 32}}
    roster = NetworkRoster(study="heart", engine="files", address=drop, **keys)
    assert len(roster.digest) == 64
    for engine, address, sites in (
        ("files", host, keys["sites"]),
        ("nvflare", drop, keys["sites"]),
        ("files", drop, {"a": b"a" * 32, "b": b"a" * 32}),
        ("files", drop, {"a": bytes(32)}),
        ("files", drop, {}),
    ):
        wrong = roster.model_copy(update={"engine": engine, "address": address, "sites": sites})
        with pytest.raises(DataError, match="is not a valid eigenfed roster"):
            NetworkRoster.from_bytes(wrong.to_bytes())


def test_equal_documents_have_equal_bytes() -> None:
    key, identity = bytes(32), Identity.generate()
    request = JoinRequest(study="a", site="b", key=identity.public, coordinator=key)
    assert request.signed_by(identity).to_bytes() == request.signed_by(identity).to_bytes()
    assert JoinRequest.from_bytes(request.to_bytes()) == request
    with pytest.raises(DataError, match=r"The document is not an invitation"):
        Invitation.from_bytes(b"{}")


def test_the_drop_folder_of_the_coordinator_is_made(parties: Parties) -> None:
    assert FILES.endswith('drop = "drop"\n')
    parties.invite()
    assert (parties.home / "coordinator" / "drop").is_dir()
