"""What is known of a run when it is over: its rounds, and what left each site.

Both cross pipes and are kept in transcripts as JSON. Digests of replies are left out: with one,
whoever knows all rows but one could test guesses at the last.
"""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

from eigenfed.errors import DataError
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.gate.records import Egress
from eigenfed.transport.rounds import RoundRecord


class SiteAccount(NamedTuple):
    """What left a site in a run, and its leakage meter afterwards."""

    egress: tuple[Egress, ...]
    meter: Meter


class Leakage(NamedTuple):
    """How much of its covariance the most revealing site has revealed, as fractions.

    Attributes
    ----------
    rank_fraction : float
        Directions along which it is known, of all.
    variance_fraction : float
        Variance along those directions, of all.
    """

    rank_fraction: float
    variance_fraction: float


@dataclass(frozen=True)
class RunAccount:
    """What a finished run took and revealed.

    Attributes
    ----------
    rounds : tuple of RoundRecord
    egress : dict of str to tuple of Egress
        What left each site, in order.
    leakage : Leakage
    """

    rounds: tuple[RoundRecord, ...]
    egress: dict[str, tuple[Egress, ...]]
    leakage: Leakage

    def to_json(self) -> dict[str, Any]:
        """Return what JSON can hold of it, without digests."""
        return {
            "rounds": [asdict(record) for record in self.rounds],
            "egress": {site: egress_to_json(left) for site, left in self.egress.items()},
            "leakage": list(self.leakage),
        }

    @classmethod
    def from_json(cls, values: Any) -> "RunAccount":
        """Read what `to_json` returned.

        Raises
        ------
        DataError
            If it is something else.
        """
        try:
            rounds = tuple(
                RoundRecord(**{**record, "lost": tuple(record["lost"])})
                for record in values["rounds"]
            )
            egress = {site: egress_from_json(left) for site, left in values["egress"].items()}
            return cls(rounds, egress, Leakage(*map(float, values["leakage"])))
        except (AttributeError, KeyError, TypeError, ValueError):
            pass
        raise DataError("The account of a run cannot be read. Use one release of eigenfed.")


def egress_to_json(egress: tuple[Egress, ...]) -> list[dict[str, Any]]:
    """Return the replies that left a site as JSON can hold them, without their digests."""
    found = []
    for left in egress:
        release = left.release
        found.append(
            asdict(replace(left, digest=""))
            | {
                "release": [
                    release.kind,
                    release.shape,
                    release.leaves.value,
                    release.reveals.value,
                ]
            }
        )
    return found


def egress_from_json(values: list[dict[str, Any]]) -> tuple[Egress, ...]:
    """Read what `egress_to_json` returned.

    Raises
    ------
    KeyError, TypeError, ValueError
        If it is something else.
    """
    return tuple(_read_egress(entry) for entry in values)


def _read_egress(entry: Mapping[str, Any]) -> Egress:
    kind, shape, leaves, reveals = entry["release"]
    shapes = {name: tuple(sizes) for name, sizes in entry["shapes"].items()}
    release = Release(kind, shape, Leaves(leaves), Reveals(reveals))
    return Egress(**{**entry, "release": release, "shapes": shapes})
