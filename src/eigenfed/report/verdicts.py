"""The first screen: what was found, how sure it is, what left, and what is only a site."""

from eigenfed.report.model import BySite, Report
from eigenfed.report.page import Notice, Tone, Verdict
from eigenfed.report.wording import MOSTLY, PARTLY, listed, percent, small_angle, things


def verdicts(report: Report) -> tuple[Verdict, ...]:
    """Say in a few lines what the page says."""
    found = [held(report), accuracy(report), left(report)]
    if report.facts["clarity"] is not None:
        found.append(noise(report.facts["clarity"]))
    if report.by_site is not None:
        found.append(sites(report.by_site))
    return tuple(found)


def held(report: Report) -> Verdict:
    """Say how much of the variance the components hold."""
    cumulative = report.components[-1].cumulative
    k = report.facts["k"]
    words = (
        f"{things(k, 'component')} of {things(report.facts['d'], 'feature')}"
        f"{', with noise' if report.facts['privacy'] else ''}."
    )
    value = "not known" if cumulative is None else percent(min(cumulative, 1.0))
    return Verdict("Variance held", value, words, "plain")


def accuracy(report: Report) -> Verdict:
    """Say whether the components can be relied on as components."""
    grade, k = report.facts["certificate"], report.facts["k"]
    if grade is None or report.converged is None:
        words = "No certificate was made: nothing is known of how near the components are."
        return Verdict("Accuracy", "not graded", words, "look")
    of = " of the matrix with noise" if report.facts["privacy"] else ""
    bound = grade["angle_bound"]
    if report.converged < k:
        missing = k - report.converged
        words = (
            f"{things(missing, 'component')} of {k} did not reach the tolerance. Allow more "
            "rounds, or ask for fewer components."
        )
        return Verdict("Accuracy", "not converged", words, "look")
    if bound is None:
        words = (
            f"All components have converged{of}, but the next one is too near to the last for a "
            "bound on the angle: those two may mix."
        )
        return Verdict("Accuracy", "converged, no bound", words, "look")
    words = f"No direction is further than {small_angle(bound)} from the exact components{of}"
    if of:
        seen = "is estimated below" if report.facts["clarity"] else "is not known"
        words = f"{words}. How far noise has moved those {seen}."
        return Verdict("Accuracy", "converged, with noise", words, "plain")
    return Verdict("Accuracy", "converged", f"{words}, as if all rows were in one place.", "good")


def noise(clarity: list[float]) -> Verdict:
    """Say what noise has left of the components."""
    drowned = sum(share < MOSTLY for share in clarity)
    words = "About so much of its direction without noise the least clear component keeps."
    if drowned:
        words = (
            f"{drowned} of {things(len(clarity), 'component')} keep less than half of their "
            "direction without noise: do not interpret them. eigenfed plan says what would help."
        )
    value = f"{percent(min(clarity))} left"
    return Verdict("Noise", value, words, "look" if drowned else "good")


def left(report: Report) -> Verdict:
    """Say what left the sites, in a word."""
    privacy = report.facts["privacy"]
    if privacy is not None and privacy["epsilon"] is None:
        words = "A published mechanism was run as printed; nothing is guaranteed for a row."
        return Verdict("What left the sites", "no guarantee", words, "look")
    if privacy is not None:
        value = f"private, epsilon {privacy['epsilon']:g}"
        words = (
            f"Everything released is differentially private for one {privacy['unit']}, at delta "
            f"{privacy['delta']:g}."
        )
        return Verdict("What left the sites", value, words, "good")
    if report.facts["secure"]:
        words = "Replies were masked: only their sum over all sites can be read, without noise."
        return Verdict("What left the sites", "secure sums", words, "good")
    return Verdict("What left the sites", "exact figures", _open_words(report), "plain")


def _open_words(report: Report) -> str:
    told = {kind.reveals for kind in report.left}
    what = "its whole covariance" if "scatter" in told else "figures about directions of its rows"
    rows = "No row left; each" if report.facts["split"] == "samples" else "Each"
    return f"{rows} site sent {what}, readable by the coordinator, without noise."


def sites(found: BySite) -> Verdict:
    """Say whether a component is a site."""
    worst = max(found.explained)
    place = found.explained.index(worst) + 1
    tone, words = _site_words(found, worst, place)
    value = f"PC{place}: {percent(worst)}" if tone == "look" else f"at most {percent(worst)}"
    return Verdict("Between sites", value, words, tone)


def _site_words(found: BySite, share: float, place: int) -> tuple[Tone, str]:
    if share >= MOSTLY:
        return (
            "look",
            f"PC{place} is {percent(share)} between sites: it tells sites apart. Look at units "
            "and calibration before calling it a finding.",
        )
    if share >= max(PARTLY, 3 * found.by_chance):
        return (
            "look",
            f"PC{place} is {percent(share)} between sites. Look at how they differ before calling "
            "it a finding.",
        )
    return "good", "No component tells the sites apart to speak of."


def site_notices(found: BySite) -> tuple[Notice, ...]:
    """Say which components tell sites apart."""
    said = [(p, s, *_site_words(found, s, p)) for p, s in enumerate(found.explained, start=1)]
    looked = [(place, share, words) for place, share, tone, words in said if tone == "look"]
    if len(looked) < 2:
        return tuple(Notice("look", words) for _, _, words in looked)
    names = listed([f"PC{place} ({percent(share)})" for place, share, _ in looked], most=10)
    words = (
        f"{len(looked)} components tell sites apart: {names}. Look at units and calibration before "
        "calling them findings."
    )
    return (Notice("look", words),)
