"""Where the sites of a run live, as a value: what every engine can be asked to do.

An engine is a frozen dataclass of options. `Engine.connect` is given what each site is made of and
returns a `SiteTransport`: the sites, ready to be sent the opening of a run. A further engine is one
more subclass in a module of its own, and one more name in `ENGINES`.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from importlib import import_module
from typing import Protocol

from eigenfed.data.source import Source
from eigenfed.errors import Argument, InputError, Pass
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity, Roster
from eigenfed.protocol.core import Transport
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import check_wire
from eigenfed.transport.rounds import RoundRecord
from eigenfed.transport.run_account import SiteAccount

ENGINES = {"local": "Local", "processes": "Processes"}
"""The engines that have a name, by the module that holds them."""

Callback = Callable[[RoundRecord], None]


@dataclass(frozen=True, eq=False)
class SiteSetup:
    """What a site is made of.

    Attributes
    ----------
    name : str
    source : Source
        Its rows.
    coordinator : bytes
        Public key of the coordinator, which the site pins.
    approved : frozenset of str or None
        Digests of the studies that the site has approved; None approves every study of that
        coordinator that the policy allows.
    policy : Policy
    meter : Meter or None
        What earlier runs on the same data set have revealed.
    ledger : Ledger or None
    pays : bool
        Whether a site without a ledger gets one in memory, to pay for noise.
    dataset : str
        The ledger's name for the rows.
    identity : Identity or None
        The site's signing key, for secure aggregation.
    roster : Roster or None
        The sites of secure aggregation.
    filtered : bool
        Whether the rows were selected by their content.
    """

    name: str
    source: Source
    coordinator: bytes
    approved: frozenset[str] | None = None
    policy: Policy = field(default_factory=Policy)
    meter: Meter | None = None
    ledger: Ledger | None = None
    pays: bool = False
    dataset: str = "data"
    identity: Identity | None = None
    roster: Roster | None = None
    filtered: bool = False

    def make(self, wire: str) -> Site:
        """Make the site, with floats of this precision in its replies."""
        ledger = Ledger(None) if self.ledger is None and self.pays else self.ledger
        return Site(
            self.name,
            self.source,
            coordinator=self.coordinator,
            approved=self.approved,
            policy=self.policy,
            meter=self.meter,
            ledger=ledger,
            dataset=self.dataset,
            identity=self.identity,
            roster=self.roster,
            filtered=self.filtered,
            wire=wire,
        )


class SiteTransport(Transport, Protocol):
    """A transport as an engine makes it: for one run, with a log, until it is closed."""

    log: list[RoundRecord]
    rounds: int

    @property
    def run(self) -> str:
        """Name of the run."""

    @property
    def accounts(self) -> dict[str, SiteAccount]:
        """What left each site; where sites live elsewhere, it is known after `close`."""

    def open_with(self, opening: bytes) -> None:
        """Take the message that opens the run at every site."""

    def rewind(self, round_: int, deadline_s: float | None, callback: Callback | None) -> None:
        """Forget the log from a round on, which is about to be asked again."""

    def close(self) -> None:
        """End the connections to the sites."""


@dataclass(frozen=True, kw_only=True)
class Engine(ABC):
    """Where sites live, and how messages reach them.

    Attributes
    ----------
    wire : {"float64", "float32"}, default="float64"
        Precision of the floats in messages. "float32" halves the bytes. Its rounding turns
        components by about 1e-4 degrees or less; the certificate counts it, with residuals of
        about 1e-5, so that a smaller ``tol`` is not met. It cannot be combined with secure
        aggregation, privacy or ``split="features"``.
    deadline_s : float, optional
        How long to wait for the answers to a request, in seconds; without limit by default.
    """

    wire: str = "float64"
    deadline_s: float | None = None

    def __post_init__(self) -> None:
        check_wire(self.wire)
        check_deadline(self.deadline_s)

    @abstractmethod
    def connect(
        self,
        setups: Mapping[str, SiteSetup],
        *,
        wire: str,
        deadline_s: float | None = None,
        callback: Callback | None = None,
    ) -> SiteTransport:
        """Make the sites and the way to them.

        Parameters
        ----------
        setups : mapping of str to SiteSetup
        wire : {"float64", "float32"}
            The study's precision of messages.
        deadline_s : float, optional
            Replaces the engine's own.
        callback : callable, optional
            Called with each `RoundRecord` when the round is over.
        """


def check_deadline(deadline_s: float | None) -> None:
    """Refuse a deadline that has passed at the start."""
    if deadline_s is not None and not deadline_s > 0.0:
        raise InputError(
            Argument("deadline_s", deadline_s),
            " must be above 0, in seconds",
            remedy=("Raise it, or ", Pass("deadline_s", None), " to wait without limit."),
        )


def as_engine(transport: object) -> Engine:
    """Return the engine that an estimator's `transport` names.

    Parameters
    ----------
    transport : Engine, {"local", "processes"} or None
        None is "local".

    Examples
    --------
    >>> as_engine("processes")
    Processes(wire='float64', deadline_s=None)
    >>> as_engine("email")
    Traceback (most recent call last):
    eigenfed.errors.InputError: transport='email' must be None, 'local', 'processes' or a value ...
    """
    if isinstance(transport, Engine):
        return transport
    name = "local" if transport is None else transport
    if not isinstance(name, str) or name not in ENGINES:
        listed = ", ".join(map(repr, ENGINES))
        raise InputError(
            Argument("transport", transport),
            f" must be None, {listed} or a value of eigenfed.transport such as Local(workers=2)",
            remedy="Pass one of them.",
        )
    engine: Engine = getattr(import_module(f"eigenfed.transport.{name}"), ENGINES[name])()
    return engine
