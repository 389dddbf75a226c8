"""The folder that FLARE works in, and how its server and client are started there."""

import importlib.util
import json
import os
import shutil
import sys
from pathlib import Path

from eigenfed.errors import InputError, ProtocolError
from eigenfed.transport.nvflare.hardening import STORAGE, is_of_site, read_site
from eigenfed.transport.nvflare.warden import Ward

_FOREIGN = ("NVFL", "FL_", "GRPC_")
_OWN_MEMORY = 8 << 30
"""Memory that FLARE may allocate in a process without any message, stacks of threads included."""
_COPIES = 8
"""Copies of a message that FLARE holds at most; four or five were seen."""


def check_installed() -> None:
    """Refuse to go on where FLARE is not installed, or not on Linux.

    Raises
    ------
    ProtocolError
        Names the extra to install.
    """
    if importlib.util.find_spec("nvflare") is None:
        raise ProtocolError(
            "engine 'nvflare' needs NVIDIA FLARE. Run pip install 'eigenfed[nvflare]'."
        )
    if sys.platform != "linux":
        raise ProtocolError("engine 'nvflare' needs Linux. Use engine 'files' here.")


def prepare_home(kit: Path, home: Path) -> Path:
    """Create an empty folder for the engine in `home`, with the settings of the kit; return it.

    Nothing of an earlier run is kept: the engine has nothing to remember.
    """
    if any(character.isspace() for character in str(home.resolve())):
        raise InputError(
            f"home={str(home)!r} must have no spaces in its path, at which FLARE would split it. "
            "Choose another folder."
        )
    home.mkdir(mode=0o700, parents=True, exist_ok=True)
    home.chmod(0o700)
    workspace = home.resolve() / "engine"
    if workspace.exists():
        shutil.rmtree(workspace)
    workspace.mkdir(mode=0o700)
    for folder in ("startup", "local"):
        shutil.copytree(kit / folder, workspace / folder)
    resources = workspace / "local" / "resources.json"
    text = resources.read_text("utf-8")
    # FLARE takes absolute paths only, which a kit cannot know.
    here = json.dumps(str(workspace / STORAGE))[1:-1]
    resources.write_text(text.replace(f'"{STORAGE}/', f'"{here}/'), "utf-8")
    return workspace


def bound_memory(message: int) -> int:
    """Return how many bytes a process of FLARE may allocate, for messages of so many bytes.

    FLARE puts messages together in memory before we see their length. Whoever sends it one that is
    too long ends FLARE, which is started again, and not the machine.
    """
    return _OWN_MEMORY + _COPIES * message


def start_engine(kit: Path, workspace: Path, *, socket: Path, log: Path, memory: int) -> Ward:
    """Start FLARE's server or client, whichever the kit is for.

    Parameters
    ----------
    kit, workspace, socket, log : Path
    memory : int
        Bytes that each of its processes may allocate.
    """
    of_site = is_of_site(kit)
    role = "client" if of_site else "server"
    settings = ["secure_train=true", "org=eigenfed", "config_folder=config"]
    if of_site:
        settings += [f"uid={read_site(kit)}", "heart_beat_interval=2.0"]
    command = [
        *(sys.executable, "-m", f"nvflare.private.fed.app.{role}.{role}_train"),
        *("-m", str(workspace), "-s", f"fed_{role}.json", "--set", *settings),
    ]
    # Variables of the same names would change what the kit says.
    kept = {name: value for name, value in os.environ.items() if not name.startswith(_FOREIGN)}
    environment = kept | {
        "EIGENFED_SOCKET": str(socket.resolve()),
        "PYTHONSAFEPATH": "1",
        "PYTHONUNBUFFERED": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    return Ward(command, environment=environment, folder=workspace, log=log, memory=memory)
