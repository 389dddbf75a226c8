"""What a site remembers about an open run, and what it has settled about one request of it."""

from dataclasses import dataclass, field, replace
from typing import Any

from eigenfed.data.prepared_rows import Preparation, prepare_source
from eigenfed.data.source import Source
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.leakage import Meter, RevealedProducts
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.method_registry import build_script, list_operations
from eigenfed.protocol.operations import Answer, Op, Request, State, Terms
from eigenfed.protocol.private.budget_schedule import Spend, list_spends
from eigenfed.protocol.secure.sum_format import Envelope
from eigenfed.protocol.study import Study


@dataclass(eq=False, repr=False)
class OpenRun:
    """An open run at one site.

    Attributes
    ----------
    terms : Terms
        The study, and the sizes of the site's data before any preparation.
    script : Script
        Operations that may come next.
    ops : dict of str to Op
        All operations of the study's method, by name.
    spends : tuple of Spend
        Budget fraction of each noised reply, in order; empty without differential privacy.
    state : State
        State of the operations between rounds.
    round_ : int
        The last round that was answered; -1 before the first.
    request_digest : str
        Checksum of the request of that round.
    reply : bytes
        The reply of that round.
    answered : int
        Number of replies about the rows.
    charged : int
        Number of noised replies paid for: the position in `spends`.
    refused : int
        Number of refusals.
    key_messages : int
        Number of replies about the keys of secure aggregation.
    is_aborted : bool
        Whether the run ended because something failed that depends on the rows.
    """

    terms: Terms
    script: Script
    ops: dict[str, Op[Any, Any]]
    spends: tuple[Spend, ...] = ()
    state: State = field(default_factory=State)
    round_: int = -1
    request_digest: str = ""
    reply: bytes = b""
    answered: int = 0
    charged: int = 0
    refused: int = 0
    key_messages: int = 0
    is_aborted: bool = False
    _prepared: tuple[Preparation, Source] | None = None

    @classmethod
    def start(cls, study: Study, *, n: int, d: int) -> "OpenRun":
        """Return the run of a study, with its method, at a site with n rows and d features."""
        parties, narrow = len(study.sites) if study.masked else 0, study.wire == "float32"
        spends = list_spends(study) if isinstance(study.privacy, Privacy) else ()
        terms = Terms(study, n, d, parties, narrow)
        state = State(preparation=Preparation(study.prepare))
        return cls(
            terms, build_script(study, study.width(d)), list_operations(study), spends, state
        )

    def terms_at(self, state: State) -> Terms:
        """Return the terms with the number of features that rows have in this state."""
        d = state.preparation.width(self.terms.d)
        return self.terms if d == self.terms.d else replace(self.terms, d=d)

    def meter_of(self, meter: Meter) -> Meter:
        """Return the leakage meter of a data set for rows as this run prepares them."""
        prepare, d = self.state.preparation, self.terms.d
        return meter.about(prepare.key, self.terms.study.width(d)) if meter.d == d else meter

    def rows_at(self, state: State, source: Source) -> Source:
        """Return the rows as far as this state prepares them; they are kept for later requests."""
        if self._prepared is None or self._prepared[0] is not state.preparation:
            self._prepared = state.preparation, prepare_source(source, state.preparation)
        return self._prepared[1]


def embed_revealed(answer: Answer[Any], d: int) -> RevealedProducts | None:
    """Return what a reply reveals about all d features, where rows have only selected ones."""
    found, embed = answer.revealed, answer.state.preparation.embed
    if found is None or answer.state.preparation.selected is None:
        return found
    return RevealedProducts(
        embed(found.directions, d),
        embed(found.images, d),
        found.trace,
        None if found.scale is None else embed(found.scale, d, 1.0),
        None if found.shift is None else embed(found.shift, d),
    )


@dataclass(frozen=True, eq=False, repr=False)
class Admitted:
    """A request that the script allows now, with valid fields.

    Attributes
    ----------
    op : Op
    request : Request
    following : Script
        The script after it.
    envelope : Envelope or None
        What secure aggregation sent along; None if the reply leaves unmasked.
    """

    op: Op[Any, Any]
    request: Request[Any]
    following: Script
    envelope: Envelope | None


@dataclass(frozen=True, eq=False, repr=False)
class Charge:
    """Noise that was paid for.

    Attributes
    ----------
    noise : Noise
    mu : float
        Budget that the reply spends.
    parties : int
        Number of sites that the noise is split over; 0 if the coordinator adds it.
    """

    noise: Noise
    mu: float
    parties: int
