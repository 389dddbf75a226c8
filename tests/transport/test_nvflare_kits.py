"""Kits hold what they must and nothing else, and private keys stay where they were made."""

import importlib.util
import json
import re
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.transport.nvflare import kits
from eigenfed.transport.nvflare.engine_home import check_installed, prepare_home
from eigenfed.transport.nvflare.hardening import check_hardened, read_address, read_site
from eigenfed.transport.nvflare.hub import NvflareHub
from eigenfed.transport.nvflare.node import NvflareNode

STUDY, HOST, PORT = "Herz & Kreislauf", "127.0.0.1", 18102


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An authority, the coordinator's kit, and the kits of two sites; keys are short, for speed."""
    folder = tmp_path_factory.mktemp("kits")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kits, "KEY_BITS", 2048)
        kits.create_authority(folder / "authority", study=STUDY, days=100)
        kits.create_server_kit(
            folder / "authority", folder / "server", study=STUDY, host=HOST, port=PORT
        )
        for site in ("north", "south"):
            request = kits.create_certificate_request(folder / site, site=site)
            certificate = kits.sign_certificate_request(folder / "authority", request, site=site)
            create_site_kit(folder, site, certificate)
    return folder


def create_site_kit(folder: Path, own: str, certificate: bytes, **changed: Any) -> None:
    settings: dict[str, Any] = {
        "study": STUDY,
        "site": own,
        "certificate": certificate,
        "root": kits.root_certificate(folder / "authority"),
        "host": HOST,
        "port": PORT,
    }
    kits.create_site_kit(folder / own, folder / own / "kit", **(settings | changed))


@pytest.fixture
def short_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kits, "KEY_BITS", 2048)


def loaded(path: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(path.read_bytes())


def test_kits_are_hardened_as_they_are_created(folder: Path) -> None:
    for kit in ("server", "north/kit", "south/kit"):
        check_hardened(folder / kit)
        assert read_address(folder / kit) == (HOST, PORT)
    assert read_site(folder / "north/kit") == "north"
    authorization = json.loads((folder / "north/kit/local/authorization.json").read_text())
    rights = authorization["permissions"]
    allowed = {
        (role, right) for role in rights for right in rights[role] if rights[role][right] != "none"
    }
    assert allowed == {("lead", "submit_job")}


def test_private_keys_are_readable_by_their_owner_and_nowhere_else(folder: Path) -> None:
    secrets = [
        path for path in folder.rglob("*") if path.is_file() and b"PRIVATE" in path.read_bytes()
    ]
    assert sorted(path.relative_to(folder).as_posix() for path in secrets) == [
        "authority/authority.key",
        "north/kit/startup/client.key",
        "north/tls.key",
        "server/startup/lead.key",
        "server/startup/server.key",
        "south/kit/startup/client.key",
        "south/tls.key",
    ]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert stat.S_IMODE((folder / "north").stat().st_mode) == 0o700


def test_certificates_end_with_the_authority_and_serve_one_purpose(folder: Path) -> None:
    root = loaded(folder / "authority/authority.pem")
    assert abs(root.not_valid_after_utc - datetime.now(UTC) - timedelta(days=100)) < timedelta(
        hours=1
    )
    purposes = {}
    for name in ("server/startup/server", "server/startup/lead", "north/kit/startup/client"):
        own = loaded(folder / f"{name}.crt")
        own.verify_directly_issued_by(root)
        assert own.not_valid_after_utc == root.not_valid_after_utc
        assert not own.extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        usage = own.extensions.get_extension_for_class(x509.ExtendedKeyUsage).value
        purposes[name.rpartition("/")[2]] = ExtendedKeyUsageOID.SERVER_AUTH in usage
    assert purposes == {"server": True, "lead": False, "client": False}


def test_a_request_is_certified_for_its_own_site_only(folder: Path, short_keys: None) -> None:
    authority = folder / "authority"
    before = (folder / "north/tls.key").read_bytes()
    request = kits.create_certificate_request(folder / "north", site="north")
    assert (folder / "north/tls.key").read_bytes() == before
    assert b"PRIVATE" not in request
    certificate = kits.sign_certificate_request(authority, request, site="north", days=3)
    own = x509.load_pem_x509_certificate(certificate)
    assert own.not_valid_after_utc - datetime.now(UTC) < timedelta(days=3)
    with pytest.raises(DataError, match=r"^The certificate request is not for site 'south'"):
        kits.sign_certificate_request(authority, request, site="south")
    with pytest.raises(DataError, match="cannot be read"):
        kits.sign_certificate_request(authority, b"-----BEGIN", site="north")
    tampered = request.replace(request[60:64], b"AAAA", 1)
    with pytest.raises(DataError, match=r"cannot be read|signed by its own"):
        kits.sign_certificate_request(authority, tampered, site="north")
    for key in (rsa.generate_private_key(65537, 1024), ec.generate_private_key(ec.SECP256R1())):
        name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "north")])
        weak = x509.CertificateSigningRequestBuilder(name).sign(key, hashes.SHA256())
        with pytest.raises(DataError, match="RSA key of at least 2048 bits"):
            kits.sign_certificate_request(
                authority, weak.public_bytes(serialization.Encoding.PEM), site="north"
            )


def test_a_request_that_asks_for_more_than_its_name_is_refused(
    folder: Path, short_keys: None
) -> None:
    key = rsa.generate_private_key(65537, 2048)
    parts = [(NameOID.COMMON_NAME, "north"), (NameOID.UNSTRUCTURED_NAME, "lead")]
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in parts])
    request = x509.CertificateSigningRequestBuilder(name).sign(key, hashes.SHA256())
    with pytest.raises(DataError, match="not for site 'north'"):
        kits.sign_certificate_request(
            folder / "authority", request.public_bytes(serialization.Encoding.PEM), site="north"
        )


def test_a_kit_is_made_only_of_what_belongs_together(
    folder: Path, tmp_path: Path, short_keys: None
) -> None:
    shutil.copytree(folder / "authority", tmp_path / "authority")
    kits.create_authority(tmp_path / "other", study=STUDY)
    request = kits.create_certificate_request(tmp_path / "north", site="north")
    own = kits.sign_certificate_request(tmp_path / "authority", request, site="north")
    foreign = kits.sign_certificate_request(tmp_path / "other", request, site="north")
    of_another_key = (folder / "north/kit/startup/client.crt").read_bytes()
    with pytest.raises(DataError, match="not from the authority"):
        create_site_kit(tmp_path, "north", foreign)
    with pytest.raises(DataError, match="not for the key and the name"):
        create_site_kit(tmp_path, "north", of_another_key)
    with pytest.raises(DataError, match="not for the key and the name"):
        create_site_kit(tmp_path, "north", own, site="south")
    for changed in ({"host": "::1"}, {"port": 0}, {"host": "a b"}):
        with pytest.raises(InputError, match="must be a host name"):
            create_site_kit(tmp_path, "north", own, **changed)
    create_site_kit(tmp_path, "north", own)
    with pytest.raises(InputError, match="is not empty"):
        create_site_kit(tmp_path, "north", own)
    with pytest.raises(InputError, match="has a certificate authority already"):
        kits.create_authority(tmp_path / "authority", study=STUDY)
    with pytest.raises(InputError, match=r"^days=0 must be at least 1"):
        kits.create_authority(tmp_path / "third", study=STUDY, days=0)
    (tmp_path / "north/tls.key").write_text("nothing")
    with pytest.raises(DataError, match="cannot be read"):
        kits.create_certificate_request(tmp_path / "north", site="north")


@pytest.mark.parametrize("name", ["", "a.b", "a b", "server", "Süd", "x" * 65])
def test_names_that_the_engine_could_not_use_are_refused(name: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"must be at most 64 letters, digits, - and _"):
        kits.create_certificate_request(tmp_path, site=name)


Change = Callable[[Any], Any]


def put(*path: Any, value: Any) -> Change:
    """A change of one setting."""

    def change(settings: Any) -> Any:
        inner = settings
        for step in path[:-1]:
            inner = inner[step]
        inner[path[-1]] = value
        return settings

    return change


def grow(*path: Any, value: Any) -> Change:
    """A change that appends to a list."""

    def change(settings: Any) -> Any:
        inner = settings
        for step in path:
            inner = inner[step]
        inner.append(value)
        return settings

    return change


STREAMER = {"id": "site_log_streamer", "path": "nvflare.x.SiteLogStreamer", "args": {}}
RESOURCES, RIGHTS = "local/resources.json", "local/authorization.json"
TAMPERED: dict[str, tuple[str, str, Change, str]] = {
    "streaming": (
        "north/kit",
        RESOURCES,
        put("allow_log_streaming", value=True),
        "allow_log_streaming in local/resources.json must be false",
    ),
    "streamer": (
        "north/kit",
        RESOURCES,
        grow("components", value=STREAMER),
        "components in local/resources.json must be",
    ),
    "receiver": (
        "server",
        RESOURCES,
        grow("components", value=STREAMER),
        "components in local/resources.json must be",
    ),
    "any class": (
        "north/kit",
        RESOURCES,
        put("class_allow_list", value=["*"]),
        "class_allow_list in",
    ),
    "another class": (
        "server",
        RESOURCES,
        grow("class_allow_list", value="os.system"),
        "class_allow_list in",
    ),
    "only warn": (
        "north/kit",
        RESOURCES,
        put("class_list_enforcement_mode", value="warn"),
        'class_list_enforcement_mode in local/resources.json must be "enforce"',
    ),
    "byoc": (
        "north/kit",
        RIGHTS,
        put("permissions", "lead", "byoc", value="any"),
        'permissions.lead.byoc in local/authorization.json must be "none"',
    ),
    "shell": (
        "server",
        RIGHTS,
        put("permissions", "org_admin", "shell_commands", value="o:site"),
        "permissions.org_admin.shell_commands in",
    ),
    "operate": (
        "north/kit",
        RIGHTS,
        put("permissions", "project_admin", value="any"),
        "permissions.project_admin in",
    ),
    "submit": (
        "north/kit",
        RIGHTS,
        put("permissions", "member", "submit_job", value="any"),
        "permissions.member.submit_job in",
    ),
    "new role": (
        "north/kit",
        RIGHTS,
        put("permissions", "guest", value="any"),
        "permissions.guest in local/authorization.json must be left out",
    ),
    "unsigned": (
        "north/kit",
        "startup/fed_client.json",
        put("require_signed_jobs", value=False),
        "require_signed_jobs in startup/fed_client.json must be true",
    ),
    "number for true": (
        "server",
        "startup/fed_server.json",
        put("require_signed_jobs", value=1),
        "require_signed_jobs in startup/fed_server.json must be true",
    ),
    "plain": (
        "north/kit",
        "startup/fed_client.json",
        put("client", "connection_security", value="clear"),
        'client.connection_security in startup/fed_client.json must be "mtls"',
    ),
    "storage": (
        "server",
        RESOURCES,
        put("components", 1, "args", "uri_root", value="/tmp/nvflare"),
        'components[1].args.uri_root in local/resources.json must be "storage/jobs"',
    ),
    "snapshots": (
        "server",
        RESOURCES,
        put("snapshot_persistor", "args", "storage", "args", "root_dir", value="/tmp"),
        "snapshot_persistor.args.storage.args.root_dir in",
    ),
    "adhoc": (
        "north/kit",
        "local/comm_config.json",
        put("allow_adhoc_conns", value=True),
        "allow_adhoc_conns in local/comm_config.json must be false",
    ),
    "published": (
        "north/kit",
        RESOURCES,
        put("data_path", value="/data"),
        "data_path in local/resources.json must be left out",
    ),
    "another site": (
        "north/kit",
        "startup/fed_client.json",
        put("client", "fqsn", value="south"),
        "startup/client.crt must be for 'south', not for another name",
    ),
    "no object": ("north/kit", RESOURCES, lambda _: [], "in local/resources.json must be"),
    "no servers": (
        "north/kit",
        "startup/fed_client.json",
        put("servers", value=[]),
        "is not a kit of a site or a coordinator",
    ),
}


@pytest.mark.parametrize("case", TAMPERED)
def test_every_setting_that_is_tampered_with_is_named(
    folder: Path, tmp_path: Path, case: str
) -> None:
    kit, file, change, expected = TAMPERED[case]
    copy = tmp_path / "kit"
    shutil.copytree(folder / kit, copy)
    (copy / file).write_text(json.dumps(change(json.loads((copy / file).read_text()))))
    with pytest.raises(ProtocolError) as raised:
        check_hardened(copy)
    assert expected in str(raised.value)


FILES: dict[str, tuple[Callable[[Path], object], str]] = {
    "code": (lambda kit: (kit / "local/custom").mkdir(), "local/custom must not be there"),
    "resources": (
        lambda kit: (kit / "startup/x__resources.json").write_text("{}"),
        "startup/x__resources.json must not be there",
    ),
    "script": (lambda kit: (kit / "start.sh").write_text(""), "start.sh must not be there"),
    "missing": (
        lambda kit: (kit / "local/authorization.json").unlink(),
        "local/authorization.json must be there",
    ),
    "readable key": (
        lambda kit: (kit / "startup/client.key").chmod(0o640),
        "startup/client.key must be a file of its own that only its owner can read",
    ),
    "not json": (lambda kit: (kit / RESOURCES).write_text("{"), "is missing or is not JSON"),
    "no certificate": (
        lambda kit: (kit / "startup/client.crt").write_text("x"),
        "startup/client.crt must be a certificate from the authority in startup/rootCA.pem",
    ),
}


@pytest.mark.parametrize("case", FILES)
def test_every_file_that_should_not_be_as_it_is_is_named(
    folder: Path, tmp_path: Path, case: str
) -> None:
    change, expected = FILES[case]
    copy = tmp_path / "kit"
    shutil.copytree(folder / "north/kit", copy)
    change(copy)
    with pytest.raises(ProtocolError) as raised:
        check_hardened(copy)
    assert expected in str(raised.value)


def test_links_and_foreign_keys_are_refused(folder: Path, tmp_path: Path) -> None:
    copy = tmp_path / "kit"
    shutil.copytree(folder / "north/kit", copy)
    key = copy / "startup/client.key"
    key.unlink()
    key.symlink_to(folder / "north/tls.key")
    with pytest.raises(ProtocolError, match=r"client\.key must be a file of its own"):
        check_hardened(copy)
    key.unlink()
    shutil.copy(folder / "south/tls.key", key)
    with pytest.raises(
        ProtocolError, match=r"client\.crt must be for the key in startup/client\.key"
    ):
        check_hardened(copy)
    with pytest.raises(ProtocolError, match=r"fed_server\.json is missing"):
        check_hardened(tmp_path / "nothing")


def test_neither_end_starts_on_a_kit_that_is_not_hardened_or_not_its_own(
    folder: Path, tmp_path: Path
) -> None:
    homes: dict[str, Any] = {"home": tmp_path / "home", "log": tmp_path / "log"}
    for kit in ("server", "north/kit"):
        shutil.copytree(folder / kit, tmp_path / kit)
        (tmp_path / kit / "local/custom").mkdir()
    with pytest.raises(ProtocolError, match="not hardened: local/custom"):
        NvflareHub(tmp_path / "server", ["north"], **homes)
    with pytest.raises(ProtocolError, match="not hardened: local/custom"):
        NvflareNode(tmp_path / "north/kit", bytes, **homes)
    with pytest.raises(ProtocolError, match="is of a site"):
        NvflareHub(folder / "north/kit", ["north"], **homes)
    with pytest.raises(ProtocolError, match="is the coordinator's"):
        NvflareNode(folder / "server", bytes, **homes)
    assert not (tmp_path / "home").exists()
    hub = NvflareHub(folder / "server", ["north"], **homes)
    with pytest.raises(InputError, match="must be one of the sites"):
        hub.connect("west")


def test_without_the_engine_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    check_installed()
    monkeypatch.setattr(sys, "platform", "darwin")
    with pytest.raises(ProtocolError, match="needs Linux"):
        check_installed()
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ProtocolError, match=r"pip install 'eigenfed\[nvflare\]'"):
        check_installed()


def test_the_engine_gets_a_folder_of_its_own_with_nothing_left_in_it(
    folder: Path, tmp_path: Path
) -> None:
    home = tmp_path / "home"
    (home / "engine/old").mkdir(parents=True)
    workspace = prepare_home(folder / "server", home)
    assert stat.S_IMODE(home.stat().st_mode) == 0o700
    assert not (workspace / "old").exists()
    resources = json.loads((workspace / RESOURCES).read_text())
    assert resources["components"][1]["args"]["uri_root"] == f"{workspace}/storage/jobs"
    assert '"storage/' not in (workspace / RESOURCES).read_text()
    with pytest.raises(InputError, match="no spaces in its path"):
        prepare_home(folder / "server", tmp_path / "my home")


def test_only_what_runs_inside_the_engine_imports_it() -> None:
    modules = [
        "eigenfed.transport.nvflare." + name for name in ("kits", "hub", "node", "handshake")
    ]
    code = f"import sys, {', '.join(modules)}; print('nvflare' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout == "False\n"
    source = Path(kits.__file__).parents[2]
    importing = {
        path.relative_to(source).as_posix()
        for path in source.rglob("*.py")
        if re.search(r"^\s*(import|from) nvflare", path.read_text(), re.MULTILINE)
    }
    assert importing == {"transport/nvflare/launch.py", "transport/nvflare/relay.py"}
