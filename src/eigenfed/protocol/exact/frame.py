"""Requests about rows as a method sees them: centred and scaled by figures of all sites.

The first of these requests brings the mean and the scale to a site, which checks them
(`eigenfed.protocol.exact.frame_checks`) and keeps them for the rest of the run.
"""

import math
from dataclasses import dataclass, replace
from typing import Any, ClassVar

from eigenfed.arrays import Array
from eigenfed.errors import InputError
from eigenfed.protocol.exact.frame_checks import check_mean, check_scale
from eigenfed.protocol.operations import Request, State, Terms


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class FramedRequest(Request[Any]):
    """Base of requests about centred and scaled rows: the first one brings the mean and scale.

    Attributes
    ----------
    mean, scale : ndarray of shape (d,), or None
        None once the site has them.
    most : float or None
        With secure aggregation, an upper bound on the total sum of squares of all rows; None once
        the site has it.
    """

    mean: Array | None = None
    scale: Array | None = None
    most: float | None = None
    noisy: ClassVar[bool] = True

    def check(self, terms: Terms, state: State) -> None:
        """Refuse a mean and scale that are missing, sent twice, or contradict the study."""
        given = self.mean is not None or self.scale is not None
        if given != (state.sent is None):
            raise InputError("The mean and scale of a run are sent once, with the first request.")
        if self.mean is not None and self.scale is not None:
            check_mean(terms, self.mean, state.limits)
            check_scale(terms, self.scale, self.mean)
        elif given:
            raise InputError("The mean and scale of a run are sent together.")
        self._check_most(terms, state)

    def _check_most(self, terms: Terms, state: State) -> None:
        limits = state.limits
        needed = bool(terms.parties) and (limits is None or math.isinf(limits.most))
        if (self.most is not None) != needed or (needed and limits is None):
            raise InputError("most is sent once, and only with secure aggregation.")
        if (
            self.most is not None
            and limits is not None
            and not 0.0
            <= self.most
            <= 1.01 * (limits.parties * limits.squares * limits.d / self._least_scale(state) ** 2)
        ):
            raise InputError("most must be between 0 and the largest possible sum of squares.")

    def _least_scale(self, state: State) -> float:
        scale = state.sent_frame[1] if self.scale is None else self.scale
        return float(scale.min())

    def apply_to(self, terms: Terms, state: State) -> State:
        """Return the state with the mean, the scale and the bound on the sum of squares."""
        if self.mean is not None and self.scale is not None:
            state = replace(
                state,
                sent=(self.mean, self.scale),
                centers_itself=terms.study.centers_by_site,
                single=terms.study.is_single,
            )
        if self.most is not None and state.limits is not None:
            state = replace(state, limits=replace(state.limits, most=self.most))
        return state
