"""Carries requests to sites and replies back; each engine is a value of a class of its own.

``Local()`` keeps the sites on threads of this process, ``Processes()`` gives each a child process.
Only an engine's own module imports what the engine needs, when the class is first used.

- `engine`: what an engine is, and the engines by name.
- `local`, `processes`: sites on threads, sites in child processes.
- `nvflare`: sites on other machines, over NVIDIA FLARE.
- `rounds`: the record and the log of each round.
- `bundles`, `signed`: signed messages between machines, and both ends of such a connection.
- `remote`: what the coordinator sends to sites on other machines, receives and writes down.
- `filedrop`: messages as files in a folder.
- `run_account`: what is known of a run when it is over.
- `transcript`: the recorded rounds of a run, from which it resumes.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from eigenfed.transport.local import Local
    from eigenfed.transport.processes import Processes

__all__ = ["Local", "Processes"]

if not TYPE_CHECKING:

    def __getattr__(name: str) -> Any:
        if name not in __all__:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        return getattr(import_module(f"{__name__}.{name.lower()}"), name)
