"""The roster: the study's sites and its coordinator, their public keys, and where they meet."""

import hashlib
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from eigenfed.errors import InputError
from eigenfed.privacy.secagg.identity import Roster
from eigenfed.study.config import SiteFile
from eigenfed.study.config.network_table import HOST_PATTERN
from eigenfed.study.network.documents import NetworkDocument, PublicKey, SiteName, read_bytes
from eigenfed.study.network.key_files import fingerprint

MOST_SITES = 4096
ROSTER = "roster.json"

Engine = Literal["nvflare", "files"]


class NetworkAddress(BaseModel):
    """Where coordinator and sites meet.

    Attributes
    ----------
    host, port : str and int, or None
        The coordinator's, with NVFLARE.
    drop : str or None
        The coordinator's path of the drop folder, with files.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)

    host: Annotated[str, Field(pattern=f"^{HOST_PATTERN}$")] | None = None
    port: Annotated[int, Field(ge=1, le=65535)] | None = None
    drop: Annotated[str, Field(pattern="^[^\\x00-\\x1f\\x7f]{1,1024}$")] | None = None

    def __str__(self) -> str:
        return f"{self.host}:{self.port}" if self.drop is None else self.drop

    def fits(self, engine: str) -> bool:
        """Return whether an engine has this address."""
        given = [value is not None for value in (self.host, self.port, self.drop)]
        return given == ([False, False, True] if engine == "files" else [True, True, False])


class NetworkRoster(NetworkDocument):
    """Who takes part, with their public keys. A site pins it and talks to nobody else.

    Attributes
    ----------
    study : str
        Name of the study for which the network was made.
    engine : {"nvflare", "files"}
    address : NetworkAddress
    coordinator : bytes
        Public key.
    sites : dict of str to bytes
        Public key of each site, in sorted order.

    Examples
    --------
    >>> roster = NetworkRoster(
    ...     study="heart", engine="files", address=NetworkAddress(drop="/mnt/drop"),
    ...     coordinator=bytes(32), sites={"south": b"s" * 32, "north": b"n" * 32},
    ... )
    >>> list(roster.sites), NetworkRoster.from_bytes(roster.to_bytes()) == roster
    (['north', 'south'], True)
    """

    label: ClassVar[str] = "a pinned roster"

    format: Literal["eigenfed roster 1"] = "eigenfed roster 1"
    study: SiteName
    engine: Engine
    address: NetworkAddress
    coordinator: PublicKey
    sites: Annotated[dict[SiteName, PublicKey], Field(min_length=1, max_length=MOST_SITES)]

    @field_validator("sites")
    @classmethod
    def _sort_sites(cls, sites: dict[str, bytes]) -> dict[str, bytes]:
        return dict(sorted(sites.items()))

    @model_validator(mode="after")
    def _check_keys(self) -> Self:
        keys = [self.coordinator, *self.sites.values()]
        if len(set(keys)) < len(keys) or not self.address.fits(self.engine):
            raise ValueError
        return self

    @property
    def digest(self) -> str:
        """SHA-256 of its bytes, in hexadecimal."""
        return hashlib.sha256(self.to_bytes()).hexdigest()

    @property
    def fingerprint(self) -> str:
        """What people compare: coordinator and all sites must have the same."""
        return fingerprint("roster", self.to_bytes())

    def roster_of(self, sites: Iterable[str]) -> Roster:
        """Return the roster of a secure aggregation over some of the sites.

        Raises
        ------
        InputError
            If a site is not in the roster, or there are fewer than three.
        """
        wanted = tuple(sites)
        unknown = sorted(set(wanted) - set(self.sites))
        if unknown:
            raise InputError(
                f"Site {unknown[0]!r} is not in the roster, which has {', '.join(self.sites)}. "
                "Admit it, or leave it out of the study."
            )
        return Roster({name: self.sites[name] for name in wanted})


def read_roster(path: Path) -> NetworkRoster:
    """Read a pinned roster, of a site or of the coordinator.

    Raises
    ------
    InputError
        If it does not exist or cannot be opened.
    DataError
        If it is not a roster.
    """
    if not path.exists():
        raise InputError(
            f"{path.parent} holds no roster. The coordinator makes it with eigenfed network admit, "
            "and a site takes it with eigenfed network join."
        )
    return NetworkRoster.from_bytes(read_bytes(path), str(path))


def find_drop(site: SiteFile, roster: NetworkRoster) -> Path:
    """Return the drop folder of a site: its own setting, or that of the roster.

    Raises
    ------
    InputError
        If the folder does not exist, or the roster's engine has none.
    """
    given: Any = site.drop or roster.address.drop
    if given is None:
        raise InputError(f"The network of {roster.study!r} uses NVFLARE and has no drop folder.")
    if not Path(given).is_dir():
        raise InputError(
            f"The drop folder {given} does not exist here. Create it, or set drop in {site.path} "
            "to the folder that this site uses."
        )
    return Path(given)
