"""How FedPower goes: local steps, alignment, and which sites take part (004 section 3)."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count

import numpy as np

from eigenfed.errors import InputError
from eigenfed.linalg.checks import check_count

_ALIGN = ("procrustes", "sign", "none")
_PARTICIPATION = ("full", "scheme1", "scheme2")


@dataclass(frozen=True)
class Power:
    """Options of `power`.

    Attributes
    ----------
    local_steps : int
        Steps p up to and with each average; 1 is the distributed power method.
    align : {"procrustes", "sign", "none"}
        How sites turn their steps towards the baseline's before the average (004 eq. 3.2 and
        3.16). Aligning costs one more round for each average after two steps or more.
    decay : bool
        Whether the steps fall by one with each average until they are one (004 eq. 3.15).
    participation : {"full", "scheme1", "scheme2"}
        All sites in each average; some, drawn with replacement by their share of the rows; or
        some, drawn evenly without replacement (004 section 3.2). A sample never comes to rest:
        it stays in a neighbourhood, and the run takes all of its rounds.
    sites_per_round : int or None
        How many are drawn; None with full participation.

    Examples
    --------
    >>> from itertools import islice
    >>> list(islice(Power(local_steps=3).schedule(), 5))
    [3, 2, 1, 1, 1]
    """

    local_steps: int = 4
    align: str = "procrustes"
    decay: bool = True
    participation: str = "full"
    sites_per_round: int | None = None

    def __post_init__(self) -> None:
        check_count("local_steps", self.local_steps, "Pass 1 to average after each step.")
        _check_choice("align", self.align, _ALIGN)
        _check_choice("participation", self.participation, _PARTICIPATION)
        if not isinstance(self.decay, bool):
            raise InputError(f"decay={self.decay!r} must be True or False. Pass one of them.")
        if self.is_full and self.sites_per_round is not None:
            raise InputError(
                f"sites_per_round={self.sites_per_round!r} must be None with full participation. "
                "Leave it out, or choose participation='scheme1' or 'scheme2'."
            )
        if not self.is_full:
            if self.sites_per_round is None:
                raise InputError(
                    f"sites_per_round=None must be a number with participation="
                    f"{self.participation!r}. Say how many sites to draw for each average."
                )
            check_count("sites_per_round", self.sites_per_round, "Draw one site or more.")

    @property
    def is_full(self) -> bool:
        """Whether all sites take part in each average."""
        return self.participation == "full"

    @property
    def needs_single_replies(self) -> bool:
        """Whether a baseline is chosen or sites are drawn, by the weights of single sites."""
        return not self.is_full or self.cost(self.local_steps) > 1

    def cost(self, steps: int) -> int:
        """Return the rounds of one average."""
        return 2 if steps > 1 and self.align != "none" else 1

    def schedule(self) -> Iterator[int]:
        """Yield the steps up to and with each average, without end."""
        for earlier in count():
            yield max(self.local_steps - earlier, 1) if self.decay else self.local_steps

    def factors(self, weights: dict[str, float], rng: np.random.Generator) -> dict[str, float]:
        """Draw the sites of one average, and what to multiply each one's Y by (004 section 3.2).

        Parameters
        ----------
        weights : dict of str to float
            Weight of the rows of every site.
        rng : numpy Generator

        Returns
        -------
        dict of str to float
            Of the sites drawn that have rows; the expectation is ``p_i``, the site's share.

        Examples
        --------
        >>> import numpy as np
        >>> options = Power(participation="scheme2", sites_per_round=2)
        >>> options.factors({"a": 3.0, "b": 1.0}, np.random.default_rng(0))
        {'a': 0.75, 'b': 0.25}
        """
        m, drawn = len(weights), self.sites_per_round or len(weights)
        shares = np.array(list(weights.values())) / sum(weights.values())
        if self.participation == "scheme1":
            found = rng.multinomial(drawn, shares) / drawn
        else:
            found = np.zeros(m)
            found[rng.choice(m, drawn, replace=False)] = m / drawn
            found *= shares
        return {name: float(f) for name, f in zip(weights, found, strict=True) if f > 0}


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}={value!r} must be one of {', '.join(known)}. Choose one.")
