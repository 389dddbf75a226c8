"""The component of FLARE's server that starts the relay at sites as they come.

It lives in the server's own process, tells the hub which sites are connected, and submits a job for
those that the hub names. There is no administrator who could log in to do that: jobs are signed
with the lead's key, which the server's kit holds, and sites accept no others.
"""

import json
import os
import tempfile
import threading
import time
import zipfile
from contextlib import closing, suppress
from io import BytesIO
from pathlib import Path
from typing import Any

from nvflare.apis.event_type import EventType
from nvflare.apis.fl_component import FLComponent
from nvflare.apis.fl_context import FLContext
from nvflare.apis.job_def import JobMetaKey
from nvflare.lighter.utils import load_private_key_file, sign_folders

from eigenfed.transport.nvflare.hardening import LEAD, write_json
from eigenfed.transport.nvflare.relay import SOCKET
from eigenfed.transport.nvflare.wire import FrameSocket, connect_to

_JOB, _SERVER_APP, _SITE_APP = "relay", "coordinator", "site"
_RECENT_S = 6.0
_EVERY_S = 0.5


class RelayLauncher(FLComponent):  # type: ignore[misc]
    """Submits relay jobs when the hub asks for them."""

    def handle_event(self, event_type: str, fl_ctx: FLContext) -> None:
        """Begin when the server has started."""
        if event_type == EventType.SYSTEM_START:
            engine = fl_ctx.get_engine()
            hub = connect_to(Path(os.environ[SOCKET]))
            hub.send({"from": "launcher"})
            for work in (self._report, self._launch):
                threading.Thread(target=work, args=(engine, hub), daemon=True).start()

    def _report(self, engine: Any, hub: FrameSocket) -> None:
        """Report to the hub which sites are connected, and how long ago they were heard of."""
        with suppress(ConnectionError):
            while True:
                now = time.time()
                ages = {
                    client.name: max(now - client.last_connect_time, 0.0)
                    for client in engine.get_clients()
                }
                recent = {name: age for name, age in sorted(ages.items()) if age < _RECENT_S}
                hub.send({"is": "connected", "sites": recent})
                time.sleep(_EVERY_S)

    def _launch(self, engine: Any, hub: FrameSocket) -> None:
        """Submit a job for each list of sites that comes from the hub."""
        workspace = Path(engine.args.workspace)
        with suppress(ConnectionError), closing(hub):
            while True:
                header, _ = hub.receive()
                job = _describe_job(list(header["sites"]))
                with engine.new_context() as context:
                    engine.job_def_manager.create(job, _pack_job(workspace), context)


def _describe_job(sites: list[str]) -> dict[str, Any]:
    return {
        JobMetaKey.JOB_NAME.value: _JOB,
        JobMetaKey.JOB_FOLDER_NAME.value: _JOB,
        JobMetaKey.DEPLOY_MAP.value: {_SERVER_APP: ["server"], _SITE_APP: sites},
        JobMetaKey.MIN_CLIENTS.value: 1,
        JobMetaKey.RESOURCE_SPEC.value: {},
        JobMetaKey.SUBMITTER_NAME.value: LEAD,
        JobMetaKey.SUBMITTER_ORG.value: "",
        JobMetaKey.SUBMITTER_ROLE.value: "lead",
    }


def _pack_job(workspace: Path) -> bytes:
    """Return the archive of the job: two files that name the allowed classes, and signatures."""
    resources = json.loads((workspace / "local" / "resources.json").read_text("utf-8"))
    controller, executor = resources["class_allow_list"]
    server = {
        "format_version": 2,
        "workflows": [{"id": "relay", "path": controller, "args": {}}],
        "components": [],
    }
    site = {
        "format_version": 2,
        "executors": [{"tasks": ["none"], "executor": {"path": executor, "args": {}}}],
        "components": [],
    }
    startup = workspace / "startup"
    packed = BytesIO()
    with tempfile.TemporaryDirectory() as name, zipfile.ZipFile(packed, "w") as archive:
        job = Path(name) / _JOB
        for app, file, settings in (
            (_SERVER_APP, "config_fed_server.json", server),
            (_SITE_APP, "config_fed_client.json", site),
        ):
            (job / app / "config").mkdir(parents=True)
            write_json(job / app / "config" / file, settings)
        sign_folders(
            str(job), load_private_key_file(startup / "lead.key"), str(startup / "lead.crt")
        )
        for path in sorted(job.rglob("*")):
            archive.write(path, path.relative_to(name))
    return packed.getvalue()
