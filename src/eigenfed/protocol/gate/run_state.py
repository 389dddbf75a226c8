"""What a site remembers about an open run, and what it has settled about one request of it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any, NamedTuple

from eigenfed.arrays import Arrays, are_same
from eigenfed.data.loci import find_loci
from eigenfed.data.prepared_rows import Preparation, prepare_source
from eigenfed.data.source import Source
from eigenfed.data.summarized_rows import SummarizedRows
from eigenfed.errors import InputError
from eigenfed.linalg.checks import are_finite
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.messages import refusal
from eigenfed.protocol.method_registry import build_script, list_operations
from eigenfed.protocol.operations import Op, Request, State, Terms
from eigenfed.protocol.private.budget_schedule import Spend, list_spends
from eigenfed.protocol.secure.sum_format import Envelope
from eigenfed.protocol.study import Study


class _Plan(NamedTuple):
    """What a study fixes for sites with as many features: immutable, so that they share it."""

    script: Script
    ops: Mapping[str, Op[Any, Any]]
    spends: tuple[Spend, ...]
    state: State


_last_plan: tuple[Study, int, _Plan] | None = None


def _plan_run(study: Study, d: int) -> _Plan:
    """Return the plan of a study; the last one is kept, for other sites in the same process."""
    global _last_plan
    known = _last_plan
    if known is not None and known[0] is study and known[1] == d:
        return known[2]
    plan = _Plan(
        build_script(study, study.width(d)),
        MappingProxyType(list_operations(study)),
        list_spends(study) if isinstance(study.privacy, Privacy) else (),
        State(preparation=Preparation(study.prepare)),
    )
    _last_plan = study, d, plan
    return plan


@dataclass(eq=False, repr=False)
class OpenRun:
    """An open run at one site.

    Attributes
    ----------
    terms : Terms
        The study, and the sizes of the site's data before any preparation.
    script : Script
        Operations that may come next.
    ops : mapping of str to Op
        All operations of the study's method, by name.
    spends : tuple of Spend
        Budget fraction of each noised reply, in order; empty without differential privacy.
    state : State
        State of the operations between rounds.
    round_ : int
        The last round that was answered; -1 before the first.
    request : bytes
        The request of that round.
    reply : bytes
        The reply of that round; empty if it is forgotten.
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
    secret : bytes
        What keys of secure aggregation are derived from, if the run can go on after a restart;
        otherwise empty.
    summary : str
        Digest of the summary that stands for the rows, if one does.
    """

    terms: Terms
    script: Script
    ops: Mapping[str, Op[Any, Any]]
    spends: tuple[Spend, ...] = ()
    state: State = field(default_factory=State)
    round_: int = -1
    request: bytes = b""
    reply: bytes = b""
    answered: int = 0
    charged: int = 0
    refused: int = 0
    key_messages: int = 0
    is_aborted: bool = False
    secret: bytes = b""
    summary: str = ""
    _prepared: tuple[Preparation, Source] | None = None

    def has_answered(self, round_: int, request: bytes) -> bool:
        """Return whether the reply of the last round is to this request, and is not forgotten."""
        return bool(self.reply) and round_ == self.round_ and are_same(request, self.request)

    @classmethod
    def start(cls, study: Study, source: Source) -> "OpenRun":
        """Return the run of a study, with its method, at a site with these rows."""
        n, d = source.n, source.d
        parties, narrow = len(study.sites) if study.masked else 0, study.wire == "float32"
        plan = _plan_run(study, d)
        terms = Terms(study, n, d, parties, narrow, find_loci(source.X))
        run = cls(terms, plan.script, plan.ops, plan.spends, plan.state)
        if isinstance(source.X, SummarizedRows):
            run.summary = source.X.digest
        return run

    def terms_at(self, state: State) -> Terms:
        """Return the terms with the number of features that rows have in this state."""
        d, selected = state.preparation.width(self.terms.d), state.preparation.selected
        if selected is None or d == self.terms.d:
            return self.terms
        loci = None if self.terms.loci is None else self.terms.loci.take(selected)
        return replace(self.terms, d=d, loci=loci)

    def charge_for(self, noise: Noise, privacy: Privacy) -> "Charge":
        """Return what the study spends on the next noised reply.

        Raises
        ------
        Refusal
            If the noise cannot be drawn. The study decides that, and not the rows.
        """
        mu = privacy.mu * self.spends[self.charged].fraction ** 0.5
        parties = privacy.parties(len(self.terms.study.sites))
        try:
            noise.check(mu, max(parties, 1))
        except InputError:
            raise refusal("invalid") from None
        return Charge(noise, mu, parties)

    def rows_at(self, state: State, source: Source) -> Source:
        """Return the rows as far as this state prepares them; they are kept for later requests."""
        if self._prepared is None or self._prepared[0] is not state.preparation:
            self._prepared = state.preparation, prepare_source(source, state.preparation)
        return self._prepared[1]


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


def check_overflow(reply: Arrays) -> None:
    """Raise InputError if a number of the reply overflowed."""
    for array in reply.values():
        if array.dtype.kind == "f" and not are_finite(array):
            raise InputError("A number of the reply is not finite.")
