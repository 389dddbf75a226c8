"""What a study asks of a site, in words, and what the site's policy refuses.

No row is read: everything here follows from the study file, the site's file and the roster.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scipy import sparse

from eigenfed.data.source import Source
from eigenfed.data.summarized_rows import assume_summary
from eigenfed.errors import EigenfedError, Refusal
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.privacy.secagg.identity import LEAST_SITES, Identity, Roster
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.gate.admission import check_study
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.messages import REFUSAL_TEXTS
from eigenfed.protocol.method import Method, Shape, all_methods
from eigenfed.protocol.method_registry import build_script, list_operations, may_choose
from eigenfed.protocol.study import Study
from eigenfed.study.config import SiteFile, StudyFile
from eigenfed.study.network.key_files import fingerprint_study
from eigenfed.study.network.roster_file import NetworkRoster
from eigenfed.study.rehearsal import check_terms

_ASSUMED_FEATURES = 100
"""Number of features of a study that lists none, where the number makes no difference."""


@dataclass(frozen=True)
class StudyTerms:
    """What a site agrees to if it approves a study.

    Attributes
    ----------
    study : StudyFile
    methods : tuple of str
        The methods that a run may use: one, or those that "auto" chooses from.
    leaves : dict of str to str
        Everything that leaves the site, and how.
    refusals : dict of str to str
        What the site's policy refuses, by code; empty if the site can take part.
    """

    study: StudyFile
    methods: tuple[str, ...]
    leaves: dict[str, str]
    refusals: dict[str, str]

    @property
    def digest(self) -> str:
        """Digest of the study."""
        return self.study.study.digest

    @property
    def fingerprint(self) -> str:
        """Fingerprint of the study."""
        return fingerprint_study(self.digest)

    @property
    def lines(self) -> list[tuple[str, str]]:
        """The terms as pairs of a heading and a text."""
        study = self.study
        return [
            ("study", f"{study.name}, fingerprint {self.fingerprint}"),
            ("sites", ", ".join(study.sites)),
            ("features", _describe_features(study)),
            ("components", _describe_components(study.components)),
            ("method", " or ".join(self.methods)),
            *([("summaries", _describe_summaries(study.method))] * study.merges_streams),
            *(
                [("preparation", ", ".join(step.text for step in study.prepare))]
                * bool(study.prepare)
            ),
            ("secure sums", _describe_masking(study.study)),
            ("privacy", _describe_privacy(study.privacy)),
        ]


def describe_terms(
    study: StudyFile, site: SiteFile, roster: NetworkRoster | None = None
) -> StudyTerms:
    """Return what a study asks of a site, and what the site's policy refuses.

    Parameters
    ----------
    study : StudyFile
        It names the site.
    site : SiteFile
    roster : NetworkRoster or None, optional
        The roster that the site has pinned, if it has one.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> from eigenfed.study.config import read_site, read_study, start_study
    >>> with tempfile.TemporaryDirectory() as home:
    ...     started = start_study(Path(home, "heart"), sites=["a", "b"], components=2)
    ...     terms = describe_terms(read_study(started.study), read_site(started.sites["a"]))
    >>> terms.refusals, terms.leaves["covariance"]
    ({}, 'from this site alone')
    """
    agreed = study.study
    candidates = _list_candidates(agreed)
    d = _ASSUMED_FEATURES if isinstance(study.features, str) else len(study.features)
    refusals = {method: _find_refusal(study, site, method, d, roster) for method in candidates}
    allowed = [method for method, refusal in refusals.items() if refusal is None] or candidates
    found = {} if None in refusals.values() else dict(filter(None, refusals.values()))
    absent = [] if roster is None else [name for name in study.sites if name not in roster.sites]
    if absent:
        found["other_sites"] = (
            f"The roster that this site has pinned lacks {', '.join(absent)}. Join with a roster "
            "of all sites of the study first."
        )
    try:
        check_terms(study, site)
    except Refusal as error:
        found[error.code] = str(error)
    except EigenfedError as error:
        found["site_file"] = str(error)
    releases = [release for method in allowed for release in _list_releases(agreed, method, d)]
    return StudyTerms(
        study,
        tuple(method.name for method in allowed),
        _describe_releases(releases, agreed),
        found,
    )


def _list_candidates(study: Study) -> list[Method]:
    if isinstance(study.method, Method):
        return [study.method]
    found = [method() for method in all_methods().values()]
    return [method for method in found if may_choose(study, method)]


def _find_refusal(
    study: StudyFile, site: SiteFile, method: Method, d: int, roster: NetworkRoster | None
) -> tuple[str, str] | None:
    """Return the code and the meaning of the refusal of a method, by the gate's own check."""
    agreed, policy = study.study, site.policy
    try:
        check_study(
            agreed,
            method,
            site=site.name,
            source=_assume_rows(site, d),
            policy=policy,
            roster=_find_roster(agreed, roster),
            filtered=bool(site.where),
        )
    except Refusal as error:
        return error.code, str(error)
    shape = Shape(policy.min_rows, d, min(_count(agreed, d), d), len(agreed.sites))
    reveals_all = method.cost(shape).answered >= d
    if agreed.privacy is None and reveals_all and policy.limits_leakage:
        return "leakage", REFUSAL_TEXTS["leakage"]
    return None


def _assume_rows(site: SiteFile, d: int) -> Source:
    if site.has_summary:
        return assume_summary(site.policy.min_rows, d)
    return Source(sparse.csr_array((site.policy.min_rows, d)))


def _count(study: Study, d: int) -> int:
    return study.components if isinstance(study.components, int) else d


def _find_roster(study: Study, roster: NetworkRoster | None) -> Roster | None:
    """Return the roster of secure sums; new keys if the site has joined none."""
    if len(study.sites) < LEAST_SITES:
        return None
    if roster is not None and set(study.sites) <= set(roster.sites):
        return roster.roster_of(study.sites)
    return (
        Roster.of({name: Identity.generate() for name in study.sites}) if roster is None else None
    )


def _list_releases(study: Study, method: Method, d: int) -> list[Release]:
    chosen = study.with_method(method)
    known = list_operations(chosen)
    admitted = _find_operations(build_script(chosen, d), known)
    return [op.release for name, op in known.items() if name in admitted]


def _find_operations(script: Script, known: Iterable[str]) -> set[str]:
    """Return the operations that a script ever admits."""
    found: set[str] = set()
    seen, waiting = {script}, [script]
    while waiting:
        here = waiting.pop()
        for name in known:
            after = here.after(name)
            if after is None:
                continue
            found.add(name)
            if after not in seen:
                seen.add(after)
                waiting.append(after)
    return found


def _describe_releases(releases: Iterable[Release], study: Study) -> dict[str, str]:
    """Return how each kind of reply leaves, without those that are independent of the rows."""
    alone, summed = "from this site alone", "in a sum over all sites"
    noised = f"with noise, {summed if study.masked else alone}"
    if isinstance(study.privacy, Privacy) and study.privacy.trust == "central":
        noised = "without noise, which the coordinator adds"
    ways = {
        Leaves.EXACT: alone,
        Leaves.SUM_ONLY: summed if study.masked else alone,
        Leaves.NOISED: noised,
    }
    return {
        release.kind: ways[release.leaves]
        for release in releases
        if release.reveals is not Reveals.NOTHING
    }


def _describe_features(study: StudyFile) -> str:
    if study.features == "same":
        return "all columns, which all sites must have"
    if study.features == "common":
        return "the columns that all sites have"
    return f"{len(study.features)}, as listed in the study"


def _describe_components(components: object) -> str:
    match components:
        case "all":
            return "all"
        case "auto":
            return "those that stand out from noise"
        case float():
            return f"as many as explain {components:.0%} of the variance"
    return str(components)


def _describe_summaries(method: Method | str) -> str:
    """Return how often summaries of a stream leave; nothing for other methods."""
    if not isinstance(method, Merge) or method.max_summaries is None:
        return ""
    between = f", with {method.min_new_rows} new rows or more between two"
    most = "1 leaves" if method.max_summaries == 1 else f"up to {method.max_summaries} leave"
    return (
        f"{most} this site, each of all rows so far, when it has them"
        f"{between if method.min_new_rows else ''}; never fewer new rows than min_rows of the "
        "policy"
    )


def _describe_masking(study: Study) -> str:
    if study.masked:
        return "yes: the coordinator sees sums over sites, and no reply of a single site"
    return "no: the coordinator sees the replies of this site"


def _describe_privacy(privacy: Privacy | None) -> str:
    if privacy is None:
        return "none: what leaves is exact"
    trust = {
        "secure_sum": "every site adds a part of the noise",
        "local": "this site adds all of the noise",
        "central": "the coordinator adds the noise, and sees sums without it",
    }
    return (
        f"epsilon {privacy.epsilon:g} and delta {privacy.delta:g} for a row "
        f"({privacy.relation}); {trust[privacy.trust]}"
    )
