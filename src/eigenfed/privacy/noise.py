"""Noise for a reply of whole numbers: how much, in what shape, and whose part of it."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import Argument, InputError, Name
from eigenfed.privacy.gaussian import LEAST_SD, discrete_gaussian, whole_sd

Draw = Callable[[float, int], npt.NDArray[np.int64]]
"""Whole-number noise of a standard deviation, so many of it."""


@dataclass(frozen=True, eq=False, repr=False)
class Noise:
    """What makes a reply private.

    Attributes
    ----------
    sensitivity : float
        How far one row can move the reply, in Euclidean norm, once each entry is divided by its
        relative deviation.
    relative : mapping of str to ndarray
        Relative standard deviation of the noise on each entry of an array; 1 where none is given.

    Examples
    --------
    >>> import numpy as np
    >>> noise = Noise(sensitivity=1024.0)
    >>> noisy = noise.added({"count": np.array([2048])}, mu=0.1)
    >>> noisy["count"].dtype
    dtype('int64')
    """

    sensitivity: float
    relative: Mapping[str, Array] = field(default_factory=dict)

    def added(
        self, reply: Arrays, mu: float, parties: int = 1, draw: Draw = discrete_gaussian
    ) -> Arrays:
        """Return the reply with one party's part of the noise.

        Parameters
        ----------
        reply : mapping of str to ndarray of int64
        mu : float
            What the noise of all parties together must give, as Gaussian DP.
        parties : int
            How many add their part.
        draw : callable
            Source of noise: `discrete_gaussian`, except in tests.
        """
        if not 0.0 < mu < math.inf:
            raise InputError(
                Argument("mu", mu),
                " must be a finite number above 0",
                remedy="Ask for less privacy loss.",
            )
        if parties < 1:
            raise InputError(f"parties={parties} must be at least 1: somebody adds the noise.")
        return {
            name: values + self._drawn(values, self.relative.get(name), mu, parties, draw)
            for name, values in reply.items()
        }

    def _drawn(
        self,
        values: npt.NDArray[np.int64],
        relative: Array | None,
        mu: float,
        parties: int,
        draw: Draw,
    ) -> npt.NDArray[np.int64]:
        shape = np.ones(values.shape) if relative is None else relative
        noise = np.zeros(values.shape, dtype=np.int64)
        for part in np.unique(shape):
            sd = whole_sd(self.sensitivity * float(part) / mu) / math.sqrt(parties)
            if sd < LEAST_SD:
                raise InputError(
                    "The noise is too small for whole numbers",
                    remedy=("Lower ", Name("epsilon"), "."),
                )
            where = shape == part
            noise[where] = draw(sd, int(where.sum()))
        return noise
