"""What a lying coordinator could get of a site, by the site's own file and a study's."""

from dataclasses import dataclass
from pathlib import Path

from eigenfed.audit.hostile_coordinator import HostileFindings, Told, attack_site
from eigenfed.data.source import Source
from eigenfed.errors import DataError
from eigenfed.privacy.guarantee import Privacy, epsilons_against
from eigenfed.privacy.ledger.accounts import ABORTS_ALLOWED, Totals
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.method import Shape
from eigenfed.protocol.methods import choose_method
from eigenfed.protocol.study import Study
from eigenfed.study.config import SiteFile, read_site, read_study, speaking_of_keys
from eigenfed.study.rehearsal import check_approved
from eigenfed.study.scores import Rows


@dataclass(frozen=True)
class Audited:
    """A site and a study, and what a hostile coordinator got.

    Attributes
    ----------
    site : str
    study : Study
        With its method.
    digest : str
        Of the study as people approve it.
    policy : Policy
    rows, features : int
    spent : Totals or None
        What the site's own ledger comes to so far.
    found : HostileFindings
    """

    site: str
    study: Study
    digest: str
    policy: Policy
    rows: int
    features: int
    spent: Totals | None
    found: HostileFindings


def audit_coordinator(site_path: Path, study_path: Path) -> Audited:
    """Attack a site's configuration with a coordinator that lies.

    The site's rows are read and nothing else is touched: its ledger is only looked at.

    Parameters
    ----------
    site_path, study_path : Path

    Raises
    ------
    InputError, DataError
        If a file breaks a rule, or the two do not fit each other.
    Refusal, SiteRefused
        If the site does not take part in the study at all.
    """
    site, agreed = read_site(site_path), read_study(study_path)
    if site.name not in agreed.sites:
        raise DataError(
            f'{site.path}: name = "{site.name}" is not one of the sites of {agreed.path}. Name '
            "the study that the site takes part in."
        )
    check_approved(agreed, site)
    with speaking_of_keys(f"{site.path}: "):
        wanted = None if isinstance(agreed.features, str) else list(agreed.features)
        source = Rows(site.data, site.id_column, site.where).table(wanted).source
    study = _with_method(agreed.study, source, site.policy)
    found = attack_site(study, site.name, source, site.policy, filtered=bool(site.where))
    return Audited(
        site.name,
        study,
        agreed.study.digest,
        site.policy,
        source.n,
        source.d,
        _spent(site),
        found,
    )


def _with_method(study: Study, source: Source, policy: Policy) -> Study:
    shape = Shape(source.n, source.d, study.components, len(study.sites), study.masked)
    return study.with_method(choose_method(study, shape, (policy,))[0])


def _spent(site: SiteFile) -> Totals | None:
    if site.ledger is None or not site.ledger.exists():
        return None
    with Ledger(site.ledger, readonly=True) as ledger:
        return ledger.totals(site.dataset)


def audit_page(audited: Audited) -> str:
    """Return what was found, as a page for the people of the site."""
    study, found = audited.study, audited.found
    return "\n\n".join(
        [
            f"A lying coordinator against site {audited.site!r} in the study {study.name!r} "
            f"({audited.rows} rows, {audited.features} features, method {study.chosen.name}).\n"
            f"Digest of the study: {audited.digest}",
            _lies(found),
            _exact(audited) if study.privacy is None else _private(audited),
            _over_runs(audited),
            _advice(audited),
        ]
    )


def _lies(found: HostileFindings) -> str:
    same = (
        "None of them showed anything that depends on the rows"
        if not found.differing
        else f"FAULT: {found.differing} of them showed something that depends on the rows"
    )
    return (
        f"Lies: {found.lies} changed messages were sent. {found.refused} were refused without "
        f"looking at a row, {found.answered} were answered within the study's own script, and "
        f"{found.aborted} ended the run. {same}: the same lies told to a site with other rows "
        "brought the same codes, sizes and order."
    )


def _exact(audited: Audited) -> str:
    agreed, greedy = audited.found.agreed, audited.found.greedy
    lines = [
        "An honest coordinator learns: " + _told(agreed),
        "A greedy one, who goes on for as long as the script allows, learns: " + _told(greedy),
    ]
    if audited.study.masked:
        lines.append(
            "These figures are about what the site puts into the sums. The coordinator reads sums "
            "over all sites only. It has the site's part if all the others show it theirs."
        )
    lines.append(
        "No row leaves by itself, but these are exact sums: somebody who knows all rows but one "
        "can work that one out."
    )
    return "\n".join(lines)


def _told(told: Told) -> str:
    end = f" Then the site ended it ({told.refused})." if told.refused else ""
    replies = f"{told.rounds} repl{'y' if told.rounds == 1 else 'ies'}"
    if told.error is None:
        return f"nothing exact of the covariance, in {replies}.{end}"
    return (
        f"the site's covariance along {told.rank_fraction:.0%} of directions, exactly, in "
        f"{replies}. The best guess at all of it is off by {told.error:.1%} of its size "
        f"and holds {told.variance_fraction:.0%} of the variance.{end}"
    )


def _private(audited: Audited) -> str:
    privacy = audited.study.privacy
    if not isinstance(privacy, Privacy):
        return "The study runs a published mechanism: see what is true of it before you take part."
    outside, inside = epsilons_against(privacy, len(audited.study.sites))
    return (
        f"An honest coordinator and a lying one learn the same: replies with noise, of epsilon "
        f"{privacy.epsilon:g} at delta {privacy.delta:g} in all. Against people outside the study "
        f"epsilon is {outside:.3g}, against participants {inside:.3g}. How much each reply may "
        "spend follows from the study; a coordinator cannot ask for less noise."
    )


def _over_runs(audited: Audited) -> str:
    policy = audited.policy
    budget = policy.budget
    over = (
        f"Over all runs the budget is epsilon {budget.epsilon:g} at delta {budget.delta:g}."
        if budget is not None
        else f"Over all runs: at most {policy.max_runs} may be opened, each with a signed study."
    )
    spent = "" if audited.spent is None else f" So far: {audited.spent.text}"
    return (
        f"{over}{spent} A run that fails because of the rows tells one bit at most and ends; after "
        f"{ABORTS_ALLOWED + 1} of them nobody is answered before somebody at the site has run "
        "eigenfed ledger release."
    )


def _advice(audited: Audited) -> str:
    policy, study = audited.policy, audited.study
    advice = []
    if study.privacy is None and audited.found.greedy.rank_fraction == 1.0:
        advice.append("max_rank_fraction below 1 keeps a part of the covariance back")
    if study.privacy is None and not study.masked:
        advice.append("secure = true in the study shows sums over all sites only")
    if study.privacy is None and policy.budget is None:
        advice.append("[policy.budget] lets nothing leave without noise")
    if not advice:
        return "No setting of the site's file would let out less."
    return "To let out less: " + "; ".join(advice) + "."
