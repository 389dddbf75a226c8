"""Which studies a site takes part in: what its policy says, held against what a study wants.

Nothing here looks at a row: a study is refused for what it is.
"""

from eigenfed.data.source import Source
from eigenfed.errors import DataError, PrivacyError
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import Roster, is_signed
from eigenfed.protocol.messages import Message, refusal, unpack
from eigenfed.protocol.method import AUTO, Method
from eigenfed.protocol.methods import may_choose
from eigenfed.protocol.study import Opening, Study, opened_method, opening_statement


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
        Digests of the studies that the site has approved; None is all.

    Raises
    ------
    Refusal
        If it is malformed, not signed by that coordinator for this run, or not approved.
    """
    try:
        opening = unpack(Opening, message.arrays)
        study, method = (part.tobytes() for part in (opening.study, opening.method))
        found, chosen = Study.from_bytes(study), opened_method(method)
    except DataError:
        raise refusal("malformed") from None
    statement = opening_statement(message.run, study, method)
    signed = is_signed(coordinator, statement, opening.signature.tobytes())
    if opening.coordinator.tobytes() != coordinator or not signed:
        raise refusal("unsigned")
    if approved is not None and found.digest not in approved:
        raise refusal("unapproved")
    return found, chosen


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
    """Return the study with the method of the run, if the site takes part in it.

    Parameters
    ----------
    study : Study
    method : Method or "auto"
        What the run uses.
    site : str
        The site's own name.
    source : Source
        Its rows, of which only their number and whether they have weights is looked at.
    policy : Policy
    roster : Roster or None
        The sites that it has pinned.
    filtered : bool
        Whether the rows were chosen by what is in them.

    Raises
    ------
    Refusal
        With the code that leaves the site.
    """
    _check_sites(study, site, roster)
    chosen = _check_method(study, method, policy)
    if source.n < policy.min_rows and not _hides_number(study, filtered):
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
    return chosen


def _hides_number(study: Study, filtered: bool) -> bool:
    """Tell whether the number of rows leaves only with noise, so that nothing may hang on it."""
    return filtered and isinstance(study.privacy, Privacy) and study.privacy.count == "private"


def _check_sites(study: Study, site: str, roster: Roster | None) -> None:
    if site not in study.sites:
        raise refusal("other_sites")
    if not study.masked:
        return
    if roster is None:
        raise refusal("no_identity")
    if tuple(sorted(study.sites)) != roster.sites:
        raise refusal("other_sites")


def _check_method(study: Study, method: Method | str, policy: Policy) -> Study:
    """Take the study's method, or one that "auto" may choose."""
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
    if study.masked and not private and not method.sums_only():
        raise refusal("not_a_sum")
    if study.by_site and (study.masked or private):
        raise refusal("unmasked")
    return study.with_method(method)


def _check_terms(privacy: Privacy, policy: Policy, roster: Roster | None, filtered: bool) -> None:
    if privacy.trust == "central" and not policy.trusts_coordinator:
        raise refusal("untrusted")
    if roster is not None:
        try:
            privacy.check_sites(len(roster), roster.threshold)
        except PrivacyError:
            # With as many colluders and dropouts as sites nobody would be left to add noise.
            raise refusal("few_sites") from None
    if privacy.trust == "secure_sum" and privacy.colluders < policy.colluders:
        raise refusal("collusion")
    if filtered and privacy.count == "public":
        raise refusal("count")
