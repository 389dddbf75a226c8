"""Codes with which a site says no, and what each of them means.

A code is all that leaves a site when something goes wrong inside. What it means is the same
everywhere, so that whoever gets one can be told without the site telling more.
"""

from eigenfed.privacy.keys import TEXTS

WHY: dict[str, str] = {
    **TEXTS,
    "failed": "Something went wrong inside the site; what is in its own log.",
    "unknown_op": "The site knows no such operation.",
    "forbidden": "The policy forbids the operation.",
    "few_rows": "The site has fewer rows than its policy wants.",
    "answered": "The round was answered with another ask.",
    "rounds": "The policy allows no more rounds.",
    "bound_again": "A bound is given once a run.",
    "bound_beyond": "A bound is given outside directions that were answered about, and only there.",
    "leakage": "The answers so far and this one would tell more than the policy allows.",
    "undeclared": "The operation declares directions and names none.",
    "not_a_sum": "The reply is not meant for a sum.",
    "unmasked": "The policy lets replies leave inside secure sums only.",
    "exact": "The rows have a budget of privacy, and this reply has no noise. Ask with noise.",
    "no_identity": "The site has no identity and no roster, and secure sums need both.",
    "malformed": "An ask lacks a field, or has one of another shape or type.",
    "sum": "No keys were made and shared for this sum, or it is not the one at hand.",
    "sum_again": "Keys, shares, a mask or an opening were asked for a second time.",
    "signature": "Something is not signed by whom it is said to come from, or not for this.",
    "shares": "Sealed shares are missing, or were not made for this site, sum and run.",
    "few_sites": "Fewer sites take part or have signed than the threshold.",
    "survivors": "The list of sites is not one that this site can be in, or not the one it signed.",
    "thin": "So many neighbours on the ring are gone that a few colluding sites might cut it.",
    "isolates": "Beside earlier sums over the same rows this one would tell of few sites alone.",
    "bounds": "The bounds stated are not of the arrays that the operation answers with.",
    "range": "The reply is not finite, or beyond its bounds.",
    "ledger": "Noise is paid for in a ledger, and the site has none that can be used.",
    "untrusted": "The policy lets nobody else add the noise.",
    "collusion": "The noise must be enough without sites that may collude.",
}
"""What each code means."""
