"""Codes with which a site refuses, and what each of them means.

A code is all that leaves a site when something goes wrong inside. What it means is the same
everywhere, so that whoever gets one can be told without the site telling more. None of them
depends on what is in the rows: whatever fails once rows were touched is `aborted`.
"""

from eigenfed.errors import BudgetExceeded, Refusal
from eigenfed.privacy.keys import TEXTS

WHY: dict[str, str] = {
    **TEXTS,
    "malformed": "A message lacks a field, or has one of another shape or type.",
    "closed": "The run is not open at the site: a run is opened with a study, and closed after "
    "too many refusals.",
    "restarted": "The site was started again since the run was opened. Start another run.",
    "unsigned": "The study is not signed by the coordinator whose key the site has pinned.",
    "unapproved": "The study is not among those that the site has approved.",
    "other_sites": "The study's sites are not those of the site's own roster, or lack this site.",
    "method": "The policy does not allow the study's method.",
    "not_a_sum": "The study wants secure aggregation, which its method does not work with.",
    "unmasked": "The policy lets replies leave inside secure aggregation only.",
    "exact": "The rows have a privacy budget, and this study has no noise. Add [privacy] to it.",
    "no_budget": "The site has no privacy budget, and without one no reply with noise leaves.",
    "untrusted": "The policy lets nobody else add the noise.",
    "collusion": "The policy wants noise that is enough without more colluding sites.",
    "count": "The site takes only some of its rows, and the study publishes how many. Write "
    'count = "private" in its [privacy].',
    "weights": "The rows have weights, which a private study cannot take.",
    "no_identity": "The site has no identity and no roster, and secure aggregation needs both.",
    "few_rows": "The site has fewer rows than its policy wants.",
    "held": "Too many runs on these rows were aborted. Somebody at the site must release them: "
    "eigenfed ledger release.",
    "script": "The study's method does not ask this now.",
    "invalid": "A field of the request does not fit the study or the run.",
    "answered": "The round was answered with another request.",
    "rounds": "The policy allows no more rounds.",
    "leakage": "The answers so far and this one would tell more than the policy allows.",
    "aborted": "The site has ended the run: something failed that depends on its rows. Its own log "
    "says what.",
    "stopped": "The site's ledger is not the one that it knew. The site stays stopped until "
    "somebody restores the ledger.",
    "sum": "No keys were made and shared for this sum, or it is not the one at hand.",
    "sum_again": "Keys, shares, a mask or an opening were asked for a second time.",
    "signature": "Something is not signed by whom it is said to come from, or not for this.",
    "shares": "Sealed shares are missing, or were not made for this site, sum and run.",
    "few_sites": "Fewer sites take part or have signed than the sum needs.",
    "survivors": "The list of sites is not one that this site can be in, or not the one it signed.",
    "thin": "So many neighbours on the ring are gone that a few colluding sites might cut it.",
    "isolates": "Beside earlier sums over the same rows this one would tell of few sites alone.",
    "ledger": "What leaves is recorded in a ledger, and the site has none that can be used.",
    "runs": "The policy allows no more runs on these rows.",
}
"""What each code means."""


def refusal(code: str) -> Refusal:
    """Return the refusal with a code, and with what it means."""
    kind = BudgetExceeded if code == "budget" else Refusal
    return kind(code, WHY[code])
