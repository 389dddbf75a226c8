"""Whether a site takes part in a study: its signature, its approval, and the site's policy.

Nothing here looks at the content of a row: a refusal depends on the study, the policy, and at most
on how many rows there are and whether they have weights.
"""

from functools import lru_cache

from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import find_loci
from eigenfed.data.source import Source
from eigenfed.data.summarized_rows import SummarizedRows
from eigenfed.errors import DataError, InputError, PrivacyError
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import Roster, is_signed
from eigenfed.protocol.component_count import is_open
from eigenfed.protocol.gate.records import Records
from eigenfed.protocol.messages import Message, refusal, unpack
from eigenfed.protocol.method import AUTO, Method
from eigenfed.protocol.method_registry import may_choose
from eigenfed.protocol.study import Opening, Study, opening_statement, read_method


def read_opening(
    message: Message, coordinator: bytes, approved: frozenset[str] | None
) -> tuple[Study, Method | str]:
    """Read the study that opens a run, and the method of the run.

    Parameters
    ----------
    message : Message
    coordinator : bytes
        Public key of the coordinator that the site has pinned.
    approved : frozenset of str or None
        Digests of the studies that the site has approved; None approves all.

    Raises
    ------
    Refusal
        If the opening is malformed, not signed by that coordinator for this run, or its study is
        not approved.
    """
    study, method = _read_signed(message, coordinator)
    if approved is not None and study.digest not in approved:
        raise refusal("unapproved")
    return study, method


@lru_cache(maxsize=2)
def _read_signed(message: Message, coordinator: bytes) -> tuple[Study, Method | str]:
    """Read an opening that a coordinator has signed; refusals are not cached.

    Messages are compared by identity. In one process all sites of a run are sent the same one, and
    what it holds and who has signed it does not depend on the site.
    """
    try:
        opening = unpack(Opening, message.arrays)
        signed = opening.study.tobytes(), opening.method.tobytes()
        study, method = Study.from_bytes(signed[0]), read_method(signed[1])
    except DataError:
        raise refusal("malformed") from None
    # The signature covers the name of the run: a recorded opening cannot open another run.
    statement = opening_statement(message.run, *signed)
    is_theirs = is_signed(coordinator, statement, opening.signature.tobytes())
    if opening.coordinator.tobytes() != coordinator or not is_theirs:
        raise refusal("unsigned")
    return study, method


def check_study(
    study: Study,
    method: Method | str,
    *,
    site: str,
    source: Source,
    policy: Policy,
    roster: Roster | None,
    filtered: bool,
) -> Study:
    """Check a study against the site's policy, and return it with the method of the run.

    Parameters
    ----------
    study : Study
    method : Method or "auto"
        The method of the run.
    site : str
        The site's own name.
    source : Source
        The site's rows; only their number and whether they have weights are used.
    policy : Policy
    roster : Roster or None
        The sites and public keys that the site has pinned.
    filtered : bool
        Whether the rows were selected by their content.

    Raises
    ------
    Refusal
        If the site does not take part, with the code that leaves it.
    """
    _check_sites(study, site, roster)
    if study.privacy is not None and not isinstance(study.components, int):
        raise refusal("components")
    chosen = _check_method(study, method, policy)
    if isinstance(source.X, SummarizedRows) != _merges_streams(chosen):
        raise refusal("not_a_stream")
    if not policy.allows_steps(step.name for step in study.prepare) or study.step_conflict:
        raise refusal("prepare")
    if study.filters_variants and find_loci(source.X) is None:
        raise refusal("prepare")
    if isinstance(source.X, Genotypes) and study.privacy is None and not study.masked:
        _check_people(source, policy)
    if _has_few_rows(source, policy) and not _hides_number(study, filtered):
        raise refusal("few_rows")
    if policy.secure_only and not study.masked:
        raise refusal("unmasked")
    if study.privacy is None:
        if policy.budget is not None:
            raise refusal("exact")
    elif isinstance(study.privacy, Published):
        if policy.sound_only or policy.budget is not None:
            raise refusal("no_guarantee")
    else:
        _check_terms(study.privacy, policy, roster, filtered)
    if study.privacy is not None and source.weights is not None:
        raise refusal("weights")
    if isinstance(study.privacy, Privacy):
        try:
            study.privacy.frame(source.d)
        except InputError:
            raise refusal("public") from None
    return chosen


def check_budget(study: Study, policy: Policy, records: Records) -> None:
    """Refuse a study that the budget does not cover to its end, before anything is spent."""
    if not isinstance(study.privacy, Privacy):
        # A budget in the ledger outlives the policy that set it: what was released under it
        # has a guarantee, which an exact sum of the same rows would void.
        if records.has_budget:
            raise refusal("exact" if study.privacy is None else "no_guarantee")
        return
    if policy.budget is None:
        raise refusal("no_budget")
    if records.has_exact:
        raise refusal("exact_left")
    if not records.affords(study.privacy):
        raise refusal("budget")


def _merges_streams(study: Study) -> bool:
    return isinstance(study.method, Method) and study.method.merges_streams()


def _check_people(source: Source, policy: Policy) -> None:
    """Refuse to send sums over the genotypes of few people in the open: totals are counts, too."""
    if _count_weighted(source) < policy.min_counted:
        raise refusal("few_counted")


def _has_few_rows(source: Source, policy: Policy) -> bool:
    """Return whether sums are over few rows; sums over rows without weight reveal nothing."""
    return source.n < policy.min_rows or 0 < _count_weighted(source) < policy.min_rows


def _count_weighted(source: Source) -> int:
    return source.n if source.weights is None else int((source.weights > 0.0).sum())


def _hides_number(study: Study, filtered: bool) -> bool:
    """Return whether the number of rows is private: then no refusal may depend on it."""
    return filtered and isinstance(study.privacy, Privacy) and study.privacy.count == "private"


def _check_sites(study: Study, site: str, roster: Roster | None) -> None:
    if site not in study.names:
        raise refusal("other_sites")
    if not study.masked:
        return
    if roster is None:
        raise refusal("no_identity")
    if tuple(sorted(study.sites)) != roster.sites:
        raise refusal("other_sites")


def _check_method(study: Study, method: Method | str, policy: Policy) -> Study:
    """Check the method: the study's own, or one that "auto" may choose for it."""
    if isinstance(study.privacy, Published):
        if method != AUTO or study.method != AUTO:
            raise refusal("method")
        return study
    if isinstance(method, str):
        raise refusal("method")
    fits = may_choose(study, method) if study.method == AUTO else study.method == method
    if not fits or not policy.allows(method.name):
        raise refusal("method")
    private = isinstance(study.privacy, Privacy)
    if study.split == "features" and (study.masked or private or method.name != "krylov"):
        raise refusal("method")
    if private and (not method.private or method.options):
        raise refusal("method")
    if is_open(study.components) and not method.finds_count():
        raise refusal("method")
    if study.masked and not private and not method.sums_only():
        raise refusal("not_a_sum")
    if study.by_site and (study.masked or private):
        raise refusal("unmasked")
    if method.merges_streams() and study.stream_conflict:
        raise refusal("method")
    return study.with_method(method)


def _check_terms(privacy: Privacy, policy: Policy, roster: Roster | None, filtered: bool) -> None:
    if privacy.trust == "central" and not policy.trusts_coordinator:
        raise refusal("untrusted")
    if roster is not None:
        try:
            privacy.check_sites(len(roster), roster.threshold)
        except PrivacyError:
            # So many colluders could unmask single replies, each with its own part of the noise.
            raise refusal("few_sites") from None
    if privacy.trust == "secure_sum" and privacy.colluders < policy.colluders:
        raise refusal("collusion")
    # How many rows pass a filter depends on their content, so it must not be published.
    if filtered and privacy.count == "public":
        raise refusal("count")
