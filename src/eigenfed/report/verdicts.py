"""The verdicts on the first screen of a report."""

from typing import Any

from eigenfed.protocol.private.noise_verdict import hides_rest, judge_noise
from eigenfed.report.accuracy_verdict import judge_accuracy
from eigenfed.report.model import Report, SiteSpread
from eigenfed.report.page_elements import PageVerdict, Tone
from eigenfed.report.wording import MOSTLY, explain_no_variance, is_partly, percent, things

HIDDEN = (
    "Noise hides the variance outside the components: the fractions are of the variance of the "
    "components alone."
)


def judge_run(report: Report) -> tuple[PageVerdict, ...]:
    """Return the verdicts for the first screen of the shared page."""
    verdicts = [judge_variance(report), judge_accuracy(report), judge_egress(report)]
    if report.facts["privacy"] is not None:
        verdicts.append(judge_signal(report))
    if report.by_site is not None and len(report.sites) > 1:
        verdicts.append(judge_sites(report.by_site, report.facts["center"]))
    return tuple(verdicts)


def judge_variance(report: Report) -> PageVerdict:
    """Return how much of the variance the components explain."""
    cumulative = report.components[-1].cumulative
    if report.facts["total_variance"] == 0.0:
        reason = explain_no_variance(report.facts).capitalize()
        return PageVerdict("Variance explained", "none", reason, "look")
    if is_rest_hidden(report.facts):
        return PageVerdict("Variance explained", "unknown", HIDDEN, "look")
    words = (
        f"By {things(report.facts['k'], 'component')} of {things(report.facts['d'], 'feature')}"
        f"{', with noise' if report.facts['privacy'] else ''}."
    )
    value = "unknown" if cumulative is None else percent(min(cumulative, 1.0))
    return PageVerdict("Variance explained", value, words, "plain")


def judge_signal(report: Report) -> PageVerdict:
    """Return how much of the components noise has left."""
    facts, signal = report.facts, report.facts["signal"]
    verdict = judge_noise(signal, facts["ratios"], facts["d"])
    if signal is None:
        words = "How much of the components is noise was not estimated: do not rely on them."
        return PageVerdict("Signal kept", "unknown", " ".join([words, verdict.text]), "look")
    noisy = sum(part < MOSTLY for part in signal)
    words = "Estimated squared cosine of the noisiest component with the one without noise."
    if verdict.problems:
        words = verdict.text
    elif noisy:
        words = (
            f"{noisy} of {things(len(signal), 'component')} kept less than half of the signal: do "
            "not interpret them. Run eigenfed plan to see what would help."
        )
    look = bool(noisy or verdict.problems)
    return PageVerdict("Signal kept", percent(min(signal)), words, "look" if look else "good")


def judge_egress(report: Report) -> PageVerdict:
    """Return in a few words what left the sites."""
    title, privacy = "What left the sites", report.facts["privacy"]
    if privacy is not None and privacy["epsilon"] is None:
        words = "A published mechanism was run as printed; it gives no guarantee for a row."
        return PageVerdict(title, "no guarantee", words, "look")
    if privacy is not None:
        value = f"private, epsilon {privacy['epsilon']:g}"
        words = (
            f"Everything released is differentially private for one {privacy['unit']}, at delta "
            f"{privacy['delta']:g}."
        )
        return PageVerdict(title, value, words, "good")
    if report.facts["secure"]:
        words = "Replies were masked: only their sums over all sites can be read. They are exact."
        return PageVerdict(title, "sums over all sites", words, "good")
    what = "its full covariance" if report.sends_covariance else "figures about its covariance"
    rows = "No row left its site. " if report.facts["split"] == "samples" else ""
    words = f"{rows}Each site sent {what}, exact and readable by the coordinator."
    return PageVerdict(title, "exact figures", words, "plain")


def judge_sites(spread: SiteSpread, center: bool | str) -> PageVerdict:
    """Return whether a component reflects differences between sites."""
    if center == "site":
        words = "Each site subtracted its own mean: the means of the sites do not differ."
        return PageVerdict("Differences between sites", "removed", words, "plain")
    worst = max(spread.explained)
    place = spread.explained.index(worst) + 1
    tone, words = judge_component(spread, worst, place)
    value = f"PC{place}: {percent(worst)}" if tone == "look" else f"at most {percent(worst)}"
    return PageVerdict("Differences between sites", value, words, tone)


def judge_component(spread: SiteSpread, part: float, place: int) -> tuple[Tone, str]:
    """Return whether a part of a component's variance lies between sites, and what to check."""
    if part >= MOSTLY:
        return (
            "look",
            f"{percent(part)} of the variance of PC{place} lies between sites: it mostly reflects "
            f"differences between sites. Check {spread.causes} before you interpret it.",
        )
    if is_partly(part, spread.by_chance):
        return (
            "look",
            f"{percent(part)} of the variance of PC{place} lies between sites. Check how the sites "
            "differ before you interpret it.",
        )
    return "good", "No component reflects differences between sites to a relevant degree."


def is_rest_hidden(facts: dict[str, Any]) -> bool:
    """Return whether noise hides the variance outside the components."""
    return facts["privacy"] is not None and hides_rest(facts["ratios"], facts["d"])
