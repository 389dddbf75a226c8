"""The table ``[network]`` of a study file: where coordinator and sites meet."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from eigenfed.study.config.fields import FilePath, Port, TomlTable

Engine = Literal["in_process", "nvflare", "files"]

HOST_PATTERN = "[A-Za-z0-9]([A-Za-z0-9.-]{0,251}[A-Za-z0-9])?"
DEFAULT_PORT = 8102


class NetworkTable(TomlTable, title="[network]"):
    """Where coordinator and sites meet, if they run on different machines."""

    host: Annotated[str, Field(strict=True, pattern=f"^{HOST_PATTERN}$")] | None = Field(
        default=None,
        title="the name or IPv4 address of a machine, in quotes",
        examples=["pca.hospital.example"],
    )
    """With engine = "nvflare": name or address of the coordinator, as the sites reach it."""
    port: Port = DEFAULT_PORT
    """With engine = "nvflare": the coordinator's port. Sites connect to it; they need no open port
    themselves.
    """
    drop: FilePath | None = Field(
        default=None, title="the path of a folder, in quotes", examples=["drop"]
    )
    """With engine = "files": folder in which the coordinator leaves requests and finds replies. The
    path is relative to this file.
    """


@dataclass(frozen=True)
class NetworkSettings:
    """Where coordinator and sites meet; `NetworkTable` describes the values."""

    host: str | None = None
    port: int = DEFAULT_PORT
    drop: Path | None = None


def find_network_conflicts(
    engine: str, network: NetworkSettings | None, features: object, data: Mapping[str, Any]
) -> Iterator[str]:
    """Yield what is wrong with the engine of a study and the keys that it needs.

    Parameters
    ----------
    engine : str
    network : NetworkSettings or None
    features : object
        The key `features`.
    data : mapping
        The study file as TOML has it.
    """
    given = data.get("network", {})
    if engine == "in_process":
        if network is not None:
            yield '[network] requires an engine. Set engine = "nvflare" or engine = "files".'
        return
    if isinstance(features, str) and "manifest" not in data:
        yield (
            f'features = "{features}" requires engine = "in_process": between machines, sites do '
            "not tell each other the names of their columns. List the features, or set manifest."
        )
    needed, example = (
        ("host", '"pca.hospital.example"') if engine == "nvflare" else ("drop", '"drop"')
    )
    if needed not in given:
        yield (
            f'engine = "{engine}" requires {needed} below [network]. Set {needed} = {example}, for '
            "example."
        )
    for name in {"nvflare": ("drop",), "files": ("host", "port")}[engine]:
        if name in given:
            yield f'network.{name} is not used with engine = "{engine}". Remove it.'
