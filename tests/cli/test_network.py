"""``eigenfed network`` and ``eigenfed site``: keys by telephone, and consent in plain words."""

import json
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from command_line import answer, eigenfed
from eigenfed.cli import output
from eigenfed.cli.output import CommandResult, print_result
from eigenfed.cli.site_command import SiteCommands, site
from network_parties import FILES, NAMES, STUDY, Parties


@pytest.fixture
def parties(tmp_path: Path) -> Parties:
    return Parties.start(tmp_path)


def file_of(parties: Parties, name: str) -> Path:
    return parties.home / name / ("study.toml" if name == "coordinator" else "site.toml")


def test_three_sites_and_a_coordinator_exchange_keys_by_commands(parties: Parties) -> None:
    study = file_of(parties, "coordinator")
    invited = answer("network", "init", study)
    assert invited["sites"] == sorted(NAMES)
    told = ["--fingerprint", invited["fingerprint"]]
    asked = {
        name: answer("network", "join", invited["invitation"], file_of(parties, name), *told)
        for name in NAMES
    }
    assert {one["coordinator"] for one in asked.values()} == {invited["fingerprint"]}
    given = [
        word
        for name, one in asked.items()
        for word in ("--fingerprint", f"{name}={one['fingerprint']}")
    ]
    first = answer("network", "admit", study, asked["north"]["request"], *given)
    assert (first["missing"], first["roster"]) == (["south", "island"], None)
    requests = [one["request"] for one in asked.values()]
    done = answer("network", "admit", study, *requests, *given)
    assert done["sites"] == {name: asked[name]["fingerprint"] for name in NAMES}
    for name in NAMES:
        known = ["--fingerprint", done["fingerprint"].lower().replace("-", " ")]
        joined = answer("network", "join", done["roster"], file_of(parties, name), *known)
        assert joined["fingerprint"] == done["fingerprint"]
        assert joined["sites"] == sorted(NAMES)
    shown = {
        path: {
            one["what"]: one["fingerprint"]
            for one in answer("network", "show", path)["fingerprints"]
        }
        for path in (study, done["roster"], file_of(parties, "north"), study.parent / "network")
    }
    assert shown[study]["study"] == invited["study"]
    assert shown[study]["this coordinator"] == invited["fingerprint"]
    assert shown[file_of(parties, "north")]["this site, north"] == asked["north"]["fingerprint"]
    for found in shown.values():
        assert found["roster"] == done["fingerprint"]
        assert found["site south"] == asked["south"]["fingerprint"]


def test_pages_tell_what_to_send_and_what_to_read_aloud(parties: Parties) -> None:
    study = file_of(parties, "coordinator")
    page = eigenfed("network", "init", study).stdout.splitlines()
    assert page[0].endswith("Send it to island, north and south, with " + f"{study}.")
    assert page[1].startswith("Fingerprint of this coordinator: ")
    assert page[-1] == "Read them to each site on the telephone."
    told = parties.invite()
    joined = eigenfed(
        *("network", "join", parties.invitation, file_of(parties, "north"), "--fingerprint", told)
    )
    assert f"runs by files in {study.parent / 'drop'}.\n" in joined.stdout
    assert f"Fingerprint of the coordinator: {told}, as you have typed it.\n" in joined.stdout
    admitted = eigenfed("network", "admit", study)
    assert admitted.stdout == "Still missing: north, south and island.\n"


def test_fingerprints_are_asked_for_on_a_terminal_only(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = parties.invite()
    call = ("network", "join", parties.invitation, file_of(parties, "north"))
    refused = eigenfed(*call)
    assert refused.exit_code == 2
    assert "--fingerprint is missing. Pass the fingerprint of the coordinator" in refused.stderr
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    wrong = eigenfed(*call, given="AAAA-AAAA-AAAA-AAAA-AAAA\n")
    assert wrong.exit_code == 3
    assert told in wrong.stderr
    typed = eigenfed(*call, given=f"{told}\n")
    assert typed.exit_code == 0
    assert "Fingerprint of the coordinator, as read to you on the telephone: " in typed.stderr
    sites = parties.ask(*NAMES)
    requests = [parties.request(name) for name in NAMES]
    lines = "".join(f"{sites[name]}\n" for name in NAMES)
    admitted = eigenfed("network", "admit", file_of(parties, "coordinator"), *requests, given=lines)
    assert admitted.exit_code == 0
    roster = admitted.stdout.split("Fingerprint of the roster: ")[1].split("\n")[0]
    pinned = eigenfed("network", "join", parties.roster, call[-1], given=f"{roster}\n")
    assert pinned.exit_code == 0
    assert pinned.stdout.startswith("Joined heart with island, north and south. It runs by files")


@pytest.mark.parametrize(
    ("call", "code", "said"),
    [
        ("admit {study} {request} --fingerprint AAAA", 2, "must name its site. Pass north=AAAA"),
        ("admit {study} {request} --fingerprint north=AAAA", 3, "and not 'AAAA'. Call the people"),
        ("join {request} {site} --fingerprint AAAA", 1, "join request, and not an invitation"),
        ("join {study} {site} --fingerprint AAAA", 1, "is not an invitation. Check which file"),
        (
            "join {invitation} {study} --fingerprint AAAA",
            1,
            "describes a study, and a site file must be here",
        ),
        ("show {site}.none", 2, "does not exist"),
        ("show {study}.txt", 2, "is not a document of a network. Pass an invitation"),
        ("show {home}", 2, "holds no keys. Run eigenfed network init"),
    ],
)
def test_wrong_calls_are_refused_in_one_line(
    parties: Parties, call: str, code: int, said: str
) -> None:
    parties.ask("north")
    study = file_of(parties, "coordinator")
    Path(f"{study}.txt").write_text("something")
    words = {
        "study": study,
        "site": file_of(parties, "north"),
        "request": parties.request("north"),
        "invitation": parties.invitation,
        "home": parties.home,
    }
    run = eigenfed("network", *call.format(**words).split())
    assert run.exit_code == code, run.stderr
    assert said in run.stderr
    with_json = eigenfed("network", *call.format(**words).split(), "--json")
    assert with_json.exit_code == code
    assert with_json.stderr == run.stderr


def test_a_site_approves_shows_and_withdraws(parties: Parties) -> None:
    parties.join()
    study, own = file_of(parties, "coordinator"), file_of(parties, "north")
    (own.parent / "rows.csv").write_text("hdl,id,bmi,age\n1,a,2,3\n")
    first = eigenfed("site", "approve", study, own)
    assert first.exit_code == 2
    assert "Pass --fingerprint or --yes to approve." in first.stderr
    page = eigenfed("site", "approve", study, own, "--yes", "--by", "E. Hansen")
    assert page.exit_code == 0
    assert page.stderr == ""
    for line in (
        "sites        north, south, island",
        "features     3, as listed in the study",
        "components   2",
        "method       krylov",
        "privacy      none: what leaves is exact",
        "  scatter times directions                in a sum over all sites",
    ):
        assert line in page.stdout.splitlines()
    shown = answer("site", "show", own)
    digest = parties.study.study.digest
    assert [one["digest"] for one in shown["approved"]] == [digest]
    assert shown["log"][0]["by"] == "E. Hansen"
    assert shown["network"]["study"] == "heart"
    text = eigenfed("site", "show", own).stdout
    assert f"heart     {shown['approved'][0]['fingerprint']}  {digest}\n" in text
    gone = eigenfed("site", "withdraw", shown["approved"][0]["fingerprint"], own)
    assert gone.stdout == f"Withdrew the approval of heart, digest {digest}.\n"
    assert "No study is approved.\n" in eigenfed("site", "show", own).stdout
    told = answer("site", "approve", study, own, "--yes")["fingerprint"]
    assert answer("site", "withdraw", study, own)["digest"] == digest
    assert answer("site", "approve", study, own, "--fingerprint", told)["approved"] is True
    assert answer("site", "withdraw", digest, own)["study"] == "heart"
    unknown = eigenfed("site", "withdraw", "0" * 64, own)
    assert unknown.exit_code == 2
    assert "has not approved a study with the digest 0000" in unknown.stderr


def test_consent_is_asked_for_below_the_terms(
    parties: Parties, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(output, "is_terminal", lambda: True)
    call = ("site", "approve", file_of(parties, "coordinator"), file_of(parties, "north"))
    no = eigenfed(*call, given="n\n")
    assert no.exit_code == 1
    assert "What leaves this site:" in no.stderr
    assert (no.stdout, "Interrupted" in no.stderr) == ("Not approved.\n", False)
    assert not (parties.home / "north" / "network").exists()
    yes = eigenfed(*call, given="y\n")
    assert yes.exit_code == 0
    assert yes.stdout.startswith("Approved heart. Its copy is ")
    assert "has not joined a network yet" in yes.stderr
    assert answer("site", "show", call[-1])["network"] is None


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        (None, "rows.csv does not exist. Check the path."),
        (
            "age,BMI\n1,2\n",
            "rows.csv lacks the columns 'bmi', 'hdl'. Check the spelling, or give its",
        ),
        ("age,bmi,hdl\n1,2,3\n", None),
    ],
)
def test_a_file_that_lacks_features_is_noted_when_its_study_is_approved(
    parties: Parties, rows: str | None, said: str | None
) -> None:
    parties.join()
    study, own = file_of(parties, "coordinator"), file_of(parties, "north")
    if rows is not None:
        (own.parent / "rows.csv").write_text(rows)
    run = eigenfed("site", "approve", study, own, "--yes")
    assert run.exit_code == 0
    assert ("The study cannot be answered yet: " in run.stderr) is (said is not None)
    assert (said or "") in run.stderr


def test_what_the_policy_refuses_is_not_approved(parties: Parties) -> None:
    own = file_of(parties, "north")
    own.write_text(own.read_text() + 'methods = ["covariance"]\n')
    run = eigenfed("site", "approve", file_of(parties, "coordinator"), own, "--yes")
    assert run.exit_code == 3
    assert "Not approved. The policy of this site refuses it:" in run.stdout
    assert "  The policy does not allow the study's method." in run.stdout
    told = eigenfed("site", "approve", file_of(parties, "coordinator"), own, "--yes", "--json")
    assert json.loads(told.stdout)["refusals"].keys() == {"method"}
    assert not (parties.home / "north" / "network").exists()


def test_another_study_than_the_one_agreed_on_is_not_approved(parties: Parties) -> None:
    study, own = file_of(parties, "coordinator"), file_of(parties, "north")
    told = answer("network", "init", study)["study"]
    study.write_text(STUDY.replace("components = 2", "components = 3") + FILES)
    run = eigenfed("site", "approve", study, own, "--fingerprint", told)
    assert run.exit_code == 3
    assert f"and not '{told}'" in run.stderr
    assert not (parties.home / "north" / "network").exists()


def test_the_word_run_can_be_left_out() -> None:
    group = SiteCommands("site", commands=dict(site.commands))

    @group.command()
    @click.argument("file")
    @print_result
    def run(console: object, file: str) -> CommandResult:
        return CommandResult({}, f"running {file}")

    for words in (["site.toml"], ["run", "site.toml"]):
        assert CliRunner().invoke(group, words).stdout == "running site.toml\n"
    assert "approve" in CliRunner().invoke(group, ["--help"]).stdout
    assert CliRunner().invoke(group, ["show", "none.toml"]).exit_code == 2
