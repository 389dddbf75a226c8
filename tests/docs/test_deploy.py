"""The files of deploy/: the script runs a study between four parties; the rest is checked as text.

No container is built here.
"""

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.study.results.result_folder import read_result

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
SITES = ("north", "south", "island")


def read_compose() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text("utf-8"))
    return found


def run_parties(folder: Path, engine: str, *inside: str) -> str:
    """Run the study of all parties, by a command that runs it; return what was printed."""
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        [*inside, "sh", DEPLOY / "three_sites.sh", folder],
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
        env={**os.environ, "PATH": programs, "ENGINE": engine},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_four_parties_run_a_study_in_folders_and_homes_of_their_own(tmp_path: Path) -> None:
    run_parties(tmp_path, "files")
    result = read_result(tmp_path / "coordinator" / "result")
    assert result.facts["engine"] == "files"
    assert result.facts["sites"] == sorted(SITES)
    for site in SITES:
        (folder,) = (tmp_path / site / "results").iterdir()
        assert (folder / "sites" / f"{site}.html").exists()
        theirs = (folder / "components.npy").read_bytes()
        assert theirs == (tmp_path / "coordinator/result/components.npy").read_bytes()
        assert Ledger(tmp_path / site / f"{site}.ledger", readonly=True).verify().intact
        key = (tmp_path / site / "network" / "site.key").read_bytes()
        kept = [path for path in tmp_path.rglob("*") if path.is_file()]
        rows = {path.parent.name for path in kept if path.name == f"{site}.csv"}
        assert rows == {site, "sites"}, "the latter are the scores in its own result"
        assert [path.parents[1].name for path in kept if path.read_bytes() == key] == [site]


ALONE = """
set -e
ip link set lo up
ip link add out type veth peer name far
for name in out far; do
  echo 1 > /proc/sys/net/ipv6/conf/$name/disable_ipv6
  ip link set $name arp off up
done
ip addr add 192.0.2.1/24 dev out
ip route add default dev out
count() { awk '$1 == "out:" { print "packets sent out:", $11 }' /proc/net/dev; }
"$@"
count
python3 -c 'import socket; socket.socket(type=socket.SOCK_DGRAM).sendto(b"x", ("198.51.100.1", 9))'
count
"""
"""Runs a command where all that is not for this machine goes to a wire on which nobody listens."""


def can_be_alone() -> bool:
    """Return whether this process may make networks of its own."""
    if not shutil.which("unshare") or not shutil.which("ip"):
        return False
    make = ["unshare", "-rn", "ip", "link", "add", "out", "type", "veth", "peer", "name", "far"]
    return subprocess.run(make, capture_output=True, check=False).returncode == 0


def test_a_study_over_flare_works_without_internet_and_sends_nothing_out(tmp_path: Path) -> None:
    if not can_be_alone():
        pytest.skip("networks cannot be made here: needs Linux, iproute2 and the right to unshare")
    printed = run_parties(tmp_path, "nvflare", "unshare", "-rn", "sh", "-c", ALONE, "alone")
    assert read_result(tmp_path / "coordinator" / "result").facts["engine"] == "nvflare"
    # Not one packet, be it a question for the address of a name; the last one is the test's own.
    sent = re.findall(r"^packets sent out: (\d+)$", printed, re.MULTILINE)
    assert sent == ["0", "1"]


def test_the_compose_file_has_a_container_for_each_party() -> None:
    services = read_compose()["services"]
    assert sorted(services) == sorted(["coordinator", *SITES])
    for name, service in services.items():
        role = "coordinator" if name == "coordinator" else "site"
        assert service["build"]["dockerfile"] == f"deploy/Containerfile.{role}"
        assert service["entrypoint"] == ["sh", "/party.sh", name]
        assert service["volumes"] == [f"{name}:/party", "post:/post", "./party.sh:/party.sh:ro"]
        assert service["environment"] == {
            "ENGINE": "nvflare",
            "HOST": "coordinator",
            "POST": "/post",
        }
        assert service["networks"] == ["study"]
        assert not {"ports", "privileged", "user"} & set(service)
    assert read_compose()["networks"] == {"study": {"internal": True}}
    assert sorted(read_compose()["volumes"]) == sorted([*services, "post"])


def test_images_copy_the_source_alone_and_run_as_a_user_without_rights() -> None:
    for role in ("coordinator", "site"):
        lines = (DEPLOY / f"Containerfile.{role}").read_text("utf-8").splitlines()
        copied = [line.split()[1:-1] for line in lines if line.startswith("COPY")]
        assert copied == [
            ["pyproject.toml", "README.md", "LICENSE"],
            ["src"],
            ["--from=build", "/wheels"],
        ]
        bases = [line.split()[1] for line in lines if line.startswith("FROM")]
        assert set(bases) == {"python:3.11-slim"}
        assert [line for line in lines if line.startswith("USER")] == ["USER eigenfed"]
        (command,) = (line for line in lines if line.startswith("CMD"))
        verb = re.findall(r'"([^"]*)"', command)[0]
        assert verb == {"coordinator": "coordinate", "site": "site"}[role]
        exposed = [line for line in lines if line.startswith("EXPOSE")]
        assert exposed == (["EXPOSE 8102"] if role == "coordinator" else [])
