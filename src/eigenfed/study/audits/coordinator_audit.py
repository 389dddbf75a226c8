"""What a lying coordinator could learn about a site, given the site file and a study."""

from dataclasses import dataclass
from pathlib import Path

from eigenfed.audit.hostile_coordinator import Disclosure, HostileFindings, attack_site
from eigenfed.data.source import Source
from eigenfed.data.steps import Standardize
from eigenfed.data.variant_steps import PruneLd
from eigenfed.errors import DataError
from eigenfed.privacy.dp.accounting import format_loss
from eigenfed.privacy.guarantee import epsilons_against
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.ledger.ledger_state import ABORTS_ALLOWED, Totals
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.component_count import count_per_request
from eigenfed.protocol.method import Shape
from eigenfed.protocol.method_registry import choose_method
from eigenfed.protocol.study import Study
from eigenfed.study.config import SiteFile, read_site, read_study, speaking_of_keys
from eigenfed.study.rehearsal import check_approved
from eigenfed.study.scores import Rows


@dataclass(frozen=True)
class Audited:
    """A site, a study, and what a hostile coordinator learnt.

    Attributes
    ----------
    site : str
    study : Study
        With its method chosen.
    digest : str
        Digest of the study as sites approve it.
    policy : Policy
    rows, features : int
    spent : Totals or None
        Totals of the site's own ledger so far.
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
    """Attack the configuration of a site with a coordinator that lies.

    The rows and the ledger of the site are only read.

    Parameters
    ----------
    site_path, study_path : Path

    Raises
    ------
    InputError, DataError
        If a file is invalid, or the two do not match.
    Refusal, SiteRefused
        If the site does not take part in the study.
    """
    site, agreed = read_site(site_path), read_study(study_path)
    if site.name not in agreed.sites:
        raise DataError(
            f'{site.path}: name = "{site.name}" is not one of the sites of {agreed.path}. Pass '
            "a study in which the site takes part."
        )
    check_approved(agreed, site)
    with speaking_of_keys(f"{site.path}: "):
        wanted = None if isinstance(agreed.features, str) else list(agreed.features)
        source = Rows.of_site(site, agreed).table(wanted).source
    study = _choose_method(agreed.study, source, site.policy)
    found = attack_site(study, site.name, source, site.policy, filtered=bool(site.where))
    return Audited(
        site.name,
        study,
        agreed.study.digest,
        site.policy,
        source.n,
        source.d,
        _read_totals(site),
        found,
    )


def _choose_method(study: Study, source: Source, policy: Policy) -> Study:
    k = count_per_request(study.components, source.d)
    shape = Shape(source.n, source.d, k, len(study.sites), study.masked)
    return study.with_method(choose_method(study, shape, (policy,))[0])


def _read_totals(site: SiteFile) -> Totals | None:
    if site.ledger is None or not site.ledger.exists():
        return None
    with Ledger(site.ledger, readonly=True) as ledger:
        return ledger.totals(site.dataset)


def format_audit(audited: Audited) -> str:
    """Return the findings as text for the people at the site."""
    study, found = audited.study, audited.found
    return "\n\n".join(
        [
            f"A lying coordinator attacks site {audited.site!r} in the study {study.name!r} "
            f"({audited.rows} rows, {audited.features} features, method {study.chosen.name}).\n"
            f"Digest of the study: {audited.digest}",
            _describe_lies(found),
            _describe_exact(audited) if study.privacy is None else _describe_private(audited),
            _describe_all_runs(audited),
            _advise(audited),
        ]
    )


def _describe_lies(found: HostileFindings) -> str:
    # The same lies are told to a site with other rows: any difference between the two sites'
    # behaviour would be a leak outside the declared replies.
    same = (
        "None of the reactions depended on the rows"
        if not found.differing
        else f"FAULT: {found.differing} of the reactions depended on the rows"
    )
    return (
        f"Lies: {found.lies} manipulated messages were sent. {found.refused} were refused before "
        f"any row was read, {found.answered} were answered as the study allows, and "
        f"{found.aborted} ended the run. {same}: codes, sizes and order of the replies were "
        "compared with those of a site with other rows."
    )


def _describe_exact(audited: Audited) -> str:
    agreed, greedy = audited.found.agreed, audited.found.greedy
    lines = [
        "An honest coordinator learns: " + _describe_learnt(agreed),
        "A greedy one, which continues for as long as the study allows, learns: "
        + _describe_learnt(greedy),
    ]
    if audited.study.filters_variants:
        lines.append("Both also learn, of each variant, how many people have which genotype.")
    if any(isinstance(step, PruneLd) for step in audited.study.prepare):
        lines[-1] += (
            " And they learn sums of products of neighbouring variants; a lying one chooses which "
            "variants are taken as neighbours, by leaving out those between them."
        )
    if audited.study.masked:
        lines.append(
            "These figures are about what the site contributes to the sums. The coordinator sees "
            "sums over all sites only. It learns the site's part if all other sites reveal theirs."
        )
    lines.append(
        "An honest coordinator is sent no single row, but the sums are exact: somebody who knows "
        "all rows but one can compute that row."
    )
    return "\n".join(lines)


def _describe_learnt(learnt: Disclosure) -> str:
    end = f" Then the site ended the run ({learnt.refused})." if learnt.refused else ""
    replies = f"{learnt.rounds} repl{'y' if learnt.rounds == 1 else 'ies'}"
    if learnt.error is None:
        return f"nothing exact about the covariance, from {replies}.{end}"
    return (
        f"the site's covariance along {learnt.rank_fraction:.0%} of directions, exactly, from "
        f"{replies}. The relative error of the best estimate of the full covariance is "
        f"{learnt.error:.1%}; it captures {learnt.variance_fraction:.0%} of the variance.{end}"
    )


def _describe_private(audited: Audited) -> str:
    privacy = audited.study.privacy
    if not isinstance(privacy, Privacy):
        return (
            "The study runs a published mechanism: check which guarantee it really gives before "
            "you take part."
        )
    outside, inside = epsilons_against(privacy, len(audited.study.sites))
    return (
        "An honest and a lying coordinator learn the same: replies with noise, with epsilon "
        f"{privacy.epsilon:g} at delta {privacy.delta:g} in total. Against people outside the "
        f"study epsilon is {format_loss(outside)}, against participants {format_loss(inside)}. "
        "The study determines how much each reply may spend; a coordinator cannot request less "
        "noise."
    )


def _describe_all_runs(audited: Audited) -> str:
    policy = audited.policy
    budget = policy.budget
    limit = (
        f"Over all runs the budget is epsilon {budget.epsilon:g} at delta {budget.delta:g}."
        if budget is not None
        else f"Over all runs: at most {policy.max_runs} runs, each with a signed study."
    )
    spent = "" if audited.spent is None else f" So far: {audited.spent.text}"
    if any(isinstance(step, Standardize) for step in audited.study.prepare):
        spent += (
            " A lying coordinator chooses where entries are clipped, and learns sums of the "
            f"clipped entries, for at most {policy.max_clips} different bounds (max_clips). Where "
            "a single row exceeds the bound of a feature, such a sum is that row."
        )
    return (
        f"{limit}{spent} A run that fails because of the rows reveals at most one bit and ends. "
        f"After {ABORTS_ALLOWED + 1} such runs the site refuses all requests until somebody there "
        "runs eigenfed ledger release."
    )


def _advise(audited: Audited) -> str:
    policy, study = audited.policy, audited.study
    advice = []
    if study.privacy is None and audited.found.greedy.rank_fraction == 1.0:
        advice.append("max_rank_fraction below 1 withholds a part of the covariance")
    if study.privacy is None and not study.masked:
        advice.append("secure = true in the study reveals only sums over all sites")
    if study.privacy is None and policy.budget is None:
        advice.append("[policy.budget] requires noise on everything that leaves")
    if not advice:
        return "No setting in the site file would reveal less."
    return "To reveal less: " + "; ".join(advice) + "."
