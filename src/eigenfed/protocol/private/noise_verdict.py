"""Whether a private result is mostly noise, from what was released and nothing else."""

import warnings
from collections.abc import Sequence
from typing import NamedTuple

from eigenfed.errors import NoiseWarning
from eigenfed.protocol.decomposition import Decomposition

LEAST_SIGNAL = 0.5
"""A component below this squared cosine with the one without noise is mostly noise."""


class NoiseVerdict(NamedTuple):
    """What noise has done to a result.

    Attributes
    ----------
    mostly_noise : bool
        Whether no component keeps half of its signal.
    problems : tuple of str
        What is wrong with the components and their variances, in sentences; empty if nothing is.
    """

    mostly_noise: bool
    problems: tuple[str, ...]

    @property
    def text(self) -> str:
        """All problems, as one line."""
        return " ".join(self.problems)


def judge_noise(
    signal: Sequence[float] | None, ratios: Sequence[float | None], d: int
) -> NoiseVerdict:
    """Judge a private result.

    Parameters
    ----------
    signal : sequence of float or None
        Estimated squared cosine of each component with the one without noise.
    ratios : sequence of float or None
        Explained variance of each component, relative to the total.
    d : int
        Number of features.

    Examples
    --------
    >>> judge_noise([0.99, 0.7], [0.6, 0.2], 5).problems
    ()
    >>> verdict = judge_noise([0.04, 0.02], [1.0, 0.0], 5)
    >>> verdict.mostly_noise, len(verdict.problems)
    (True, 2)
    """
    problems, known = [], [ratio for ratio in ratios if ratio is not None]
    mostly = signal is not None and max(signal) < LEAST_SIGNAL
    if signal is not None and mostly:
        problems.append(
            "The result is mostly noise: no component keeps half of its signal (the best keeps "
            f"{max(signal):.0%}). Do not use it; eigenfed plan shows what would help, such as a "
            "public centre, more rows, a larger epsilon, or a public clip that is longer than most "
            "rows."
        )
    if d > 1 and known and known[0] >= 1.0 - 1e-9:
        problems.append(
            "The variances are mostly noise: the first component cannot explain all of the "
            f"variance of {d} features."
        )
    elif known and min(known) <= 0.0:
        lost = sum(ratio <= 0.0 for ratio in known)
        which = (
            "The variance of 1 component is"
            if lost == 1
            else f"The variances of {lost} components are"
        )
        problems.append(f"{which} lost in noise.")
    return NoiseVerdict(mostly, tuple(problems))


def hides_rest(ratios: Sequence[float | None], d: int) -> bool:
    """Return whether noise hides all variance outside the components.

    Their fractions then add up to 1 although there are other features: they are fractions of the
    variance of the components alone.

    Parameters
    ----------
    ratios, d
        As in `judge_noise`.

    Examples
    --------
    >>> hides_rest([0.7, 0.3], 7), hides_rest([0.7, 0.2], 7), hides_rest([0.7, 0.3], 2)
    (True, False, False)
    """
    known = [ratio for ratio in ratios if ratio is not None]
    return len(known) < d and sum(known) >= 1.0 - 1e-9


def warn_of_noise(found: Decomposition) -> None:
    """Issue a `NoiseWarning` if a private result is mostly noise."""
    if found.signal is None:
        return
    verdict = judge_noise(found.signal.tolist(), (), len(found.mean))
    if verdict.mostly_noise:
        warnings.warn(verdict.text, NoiseWarning, stacklevel=2)
