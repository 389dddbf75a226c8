"""The settings of a kit, and the check that a kit has these and no others.

What FLARE would do by default, and a hardened kit does not:

==================================  ==============================================================
run code that comes with a job      ``byoc`` is "none" for every role, and the classes that a job
                                    may name are the two of `eigenfed.transport.nvflare.relay`
give a shell to administrators      ``shell_commands`` and ``operate`` are "none" for every role
take jobs from anyone               only the lead may submit one, and jobs must be signed
send a site's error log to the      log streaming is off, and the components for it are not there
server
keep files in a shared folder       storage is a folder of the coordinator's own
look for extra settings             any file that a kit was not created with is refused
==================================  ==============================================================

A kit is checked by comparing it with the one that would be created for the same names and address,
so that no setting is overlooked, whether it is changed, added or missing.
"""

import json
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import serialization
from cryptography.x509.oid import NameOID

from eigenfed.errors import ProtocolError

Settings = Mapping[str, Any]

SERVER = "coordinator"
LEAD = "lead@eigenfed.invalid"
STORAGE = "storage"
SCHEME = "grpc"
"""Of FLARE's ways to connect, "tcp" lets one silent connection keep all sites out, and "http" does
not log whom it refused."""
_RELAY = "eigenfed.transport.nvflare.relay"
_CLASSES = [f"{_RELAY}.RelayController", f"{_RELAY}.RelayExecutor"]
_RIGHTS = [
    "submit_job",
    "clone_job",
    "manage_job",
    "download_job",
    "view",
    "operate",
    "shell_commands",
    "byoc",
    "server-predeployed-flwr",
]
_ROLES = ("project_admin", "org_admin", "lead", "member")
_SERVER_FILE, _SITE_FILE = "startup/fed_server.json", "startup/fed_client.json"
_SERVER_SECRETS = {
    "startup/server.key": "startup/server.crt",
    "startup/lead.key": "startup/lead.crt",
}
_SITE_SECRETS = {"startup/client.key": "startup/client.crt"}
_ROOT = "startup/rootCA.pem"


def server_settings(project: str, host: str, port: int) -> dict[str, Settings]:
    """Return the settings of the coordinator's kit, by file."""
    storage = "nvflare.app_common.storages.filesystem_storage.FilesystemStorage"
    startup = {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [
            {
                "name": project,
                "identity": SERVER,
                "service": {"target": f"{host}:{port}", "scheme": SCHEME},
                "admin_server": host,
                "admin_port": port,
                "ssl_private_key": "server.key",
                "ssl_cert": "server.crt",
                "ssl_root_cert": "rootCA.pem",
                "connection_security": "mtls",
            }
        ],
    }
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": _CLASSES,
        "servers": [
            {
                "admin_storage": f"{STORAGE}/transfer",
                "max_num_clients": 1000,
                "heart_beat_timeout": 30,
                "admin_timeout": 10.0,
            }
        ],
        "snapshot_persistor": {
            "path": "nvflare.app_common.state_persistors.storage_state_persistor"
            ".StorageStatePersistor",
            "args": {
                "uri_root": "/",
                "storage": {
                    "path": storage,
                    "args": {"root_dir": f"{STORAGE}/snapshots", "uri_root": "/"},
                },
            },
        },
        "components": [
            {
                "id": "job_scheduler",
                "path": "nvflare.app_common.job_schedulers.job_scheduler.DefaultJobScheduler",
                "args": {
                    "max_jobs": 1000,
                    "max_schedule_count": 3,
                    "min_schedule_interval": 1.0,
                    "max_schedule_interval": 1.0,
                },
            },
            {
                "id": "job_manager",
                "path": "nvflare.apis.impl.job_def_manager.SimpleJobDefManager",
                "args": {"uri_root": f"{STORAGE}/jobs", "job_store_id": "job_store"},
            },
            {"id": "job_store", "path": storage},
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.server_process_launcher"
                ".ServerProcessJobLauncher",
                "args": {},
            },
        ],
    }
    launcher = {
        "format_version": 2,
        "components": [
            {
                "id": "relay_launcher",
                "path": "eigenfed.transport.nvflare.launch.RelayLauncher",
                "args": {},
            }
        ],
    }
    return {
        _SERVER_FILE: startup,
        "local/resources.json": resources,
        "local/relay__p_resources.json": launcher,
        **_common_settings(),
    }


def site_settings(project: str, site: str, host: str, port: int) -> dict[str, Settings]:
    """Return the settings of a site's kit, by file."""
    startup = {
        "format_version": 2,
        "require_signed_jobs": True,
        "servers": [
            {
                "name": project,
                "service": {"target": f"{host}:{port}", "scheme": SCHEME},
                "identity": SERVER,
            }
        ],
        "client": {
            "ssl_private_key": "client.key",
            "ssl_cert": "client.crt",
            "ssl_root_cert": "rootCA.pem",
            "fqsn": site,
            "is_leaf": True,
            "connection_security": "mtls",
        },
    }
    resources = {
        "format_version": 2,
        "class_list_enforcement_mode": "enforce",
        "class_allow_list": _CLASSES,
        "allow_log_streaming": False,
        "client": {"retry_timeout": 30, "compression": "Gzip"},
        "components": [
            {
                "id": "resource_manager",
                "path": "nvflare.app_common.resource_managers.passthrough_resource_manager"
                ".PassthroughResourceManager",
                "args": {},
            },
            {
                "id": "process_launcher",
                "path": "nvflare.app_common.job_launcher.client_process_launcher"
                ".ClientProcessJobLauncher",
                "args": {},
            },
        ],
    }
    return {_SITE_FILE: startup, "local/resources.json": resources, **_common_settings()}


def _common_settings() -> dict[str, Settings]:
    nothing = dict.fromkeys(_RIGHTS, "none")
    permissions = dict.fromkeys(_ROLES, nothing) | {"lead": nothing | {"submit_job": "any"}}
    log = {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {
            "line": {
                "()": "nvflare.fuel.utils.log_utils.BaseFormatter",
                "fmt": "%(asctime)s - %(name)s - %(levelname)s - %(message)s",
            }
        },
        "handlers": {
            "console": {
                "class": "logging.StreamHandler",
                "level": "DEBUG",
                "formatter": "line",
                "stream": "ext://sys.stdout",
            }
        },
        "loggers": {"root": {"level": "INFO", "handlers": ["console"]}},
    }
    return {
        "local/authorization.json": {"format_version": "1.0", "permissions": permissions},
        "local/comm_config.json": {"allow_adhoc_conns": False},
        "local/log_config.json": log,
    }


def write_json(path: Path, content: Settings) -> None:
    """Write settings as people like to read them."""
    path.write_text(json.dumps(content, indent=2) + "\n", "utf-8")


def read_address(kit: Path) -> tuple[str, int]:
    """Return host and port of the server of a kit that is hardened."""
    server = _read_settings(kit, _SITE_FILE if is_of_site(kit) else _SERVER_FILE)["servers"][0]
    host, _, port = server["service"]["target"].rpartition(":")
    return host, int(port)


def read_site(kit: Path) -> str:
    """Return the name of the site of a kit that is hardened."""
    return str(_read_settings(kit, _SITE_FILE)["client"]["fqsn"])


def is_of_site(kit: Path) -> bool:
    """Return whether a kit is of a site, and not of the coordinator."""
    return (kit / _SITE_FILE).exists()


def check_hardened(kit: Path) -> None:
    """Refuse a kit with any file or setting other than those it was created with.

    Parameters
    ----------
    kit : Path
        Folder of `create_server_kit` or `create_site_kit`.

    Raises
    ------
    ProtocolError
        Names the file, the setting and the value that it must have.
    """
    of_site = is_of_site(kit)
    try:
        host, port = read_address(kit)
        startup = _read_settings(kit, _SITE_FILE if of_site else _SERVER_FILE)
        project = str(startup["servers"][0]["name"])
        name = read_site(kit) if of_site else SERVER
    except (LookupError, TypeError, ValueError, AttributeError) as error:
        raise ProtocolError(
            f"The folder {kit.name!r} is not a kit of a site or a coordinator. Create it again "
            "with eigenfed network."
        ) from error
    required = (
        site_settings(project, name, host, port)
        if of_site
        else server_settings(project, host, port)
    )
    secrets = _SITE_SECRETS if of_site else _SERVER_SECRETS
    _check_files(kit, {*required, *secrets, *secrets.values(), _ROOT})
    for file, settings in required.items():
        for path, value in _differences(_read_settings(kit, file), settings, ""):
            raise ProtocolError(
                f"The kit is not hardened: {path} in {file} must be {value}. Create the kit again "
                "with eigenfed network."
            )
    names = dict(zip(secrets, (name, LEAD), strict=False))
    for secret, certificate in secrets.items():
        _check_certificate(kit, secret, certificate, names[secret])


def _read_settings(kit: Path, file: str) -> dict[str, Any]:
    try:
        found = json.loads((kit / file).read_text("utf-8"))
    except (OSError, ValueError) as error:
        raise ProtocolError(
            f"The kit is not hardened: {file} is missing or is not JSON. Create the kit again "
            "with eigenfed network."
        ) from error
    return found if isinstance(found, dict) else {}


def _check_files(kit: Path, expected: set[str]) -> None:
    found = {
        path.relative_to(kit).as_posix()
        for path in kit.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }
    folders = {path.relative_to(kit).as_posix() for path in kit.rglob("*") if path.is_dir()}
    for file in sorted((found ^ expected) | (folders - {"startup", "local"})):
        rule = "must be there" if file in expected else "must not be there"
        raise ProtocolError(f"The kit is not hardened: {file} {rule}. Create the kit again.")
    for file in sorted(found):
        mode = (kit / file).lstat().st_mode
        if stat.S_ISLNK(mode) or (file.endswith(".key") and mode & 0o077):
            raise ProtocolError(
                f"The kit is not hardened: {file} must be a file of its own that only its owner "
                "can read (mode 0600)."
            )


def _differences(found: Any, required: Any, path: str) -> Iterator[tuple[str, str]]:
    """Yield each setting that differs, with what it must be."""
    if isinstance(required, dict) and isinstance(found, dict):
        for key in sorted(required.keys() | found.keys()):
            below = f"{path}.{key}" if path else key
            if key not in required:
                yield below, "left out"
            else:
                yield from _differences(found.get(key), required[key], below)
    elif isinstance(required, list) and isinstance(found, list) and len(required) == len(found):
        for i, (one, other) in enumerate(zip(found, required, strict=True)):
            yield from _differences(one, other, f"{path}[{i}]")
    elif found != required or type(found) is not type(required):
        yield path, json.dumps(required)


def _check_certificate(kit: Path, secret: str, file: str, name: str) -> None:
    """Refuse a certificate that is for another name, another key or from another authority."""
    problem = ""
    try:
        root, own = (
            x509.load_pem_x509_certificate((kit / path).read_bytes()) for path in (_ROOT, file)
        )
        key = serialization.load_pem_private_key((kit / secret).read_bytes(), password=None)
        own.verify_directly_issued_by(root)
        names = [part.value for part in own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        if names != [name]:
            problem = f"must be for {name!r}, not for another name"
        elif own.public_key() != key.public_key():
            problem = f"must be for the key in {secret}"
    except (ValueError, TypeError, InvalidSignature):
        problem = f"must be a certificate from the authority in {_ROOT}"
    if problem:
        raise ProtocolError(f"The kit is not hardened: {file} {problem}. Create the kit again.")
