"""Operations of a site: pure functions with a declaration of what leaves."""

from collections.abc import Callable
from dataclasses import dataclass, field

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.noise import Noise
from eigenfed.privacy.release import Release


@dataclass(frozen=True, eq=False, repr=False)
class Answer:
    """What an operation brings.

    Attributes
    ----------
    reply : mapping of str to ndarray
        What leaves the site, once the gate lets it.
    state : mapping of str to ndarray
        What the site keeps for later rounds of the same run; replaces what it kept before.
    directions, images : ndarray of shape (d, l), optional
        Where the reply reveals directions: which, and the site's scatter times them.
    trace : float
        The site's total squared deviation, where it is known.
    noise : Noise, optional
        What the gate adds before the reply leaves, where the operation declares it.
    """

    reply: Arrays
    state: Arrays
    directions: Array | None = None
    images: Array | None = None
    trace: float = field(default=0.0)
    noise: Noise | None = None


Run = Callable[[Source, Arrays, Arrays], Answer]


@dataclass(frozen=True)
class Op:
    """A function ``run(source, payload, state)`` and the declaration of its reply."""

    name: str
    run: Run
    release: Release


def op(release: Release) -> Callable[[Run], Op]:
    """Declare an operation; its name is the function's, and an identifier.

    Examples
    --------
    >>> from eigenfed.privacy.release import Leaves, Release, Reveals
    >>> @op(Release("nothing", "0", Leaves.EXACT, Reveals.COUNTS))
    ... def nothing(source, payload, state):
    ...     return Answer({}, state)
    >>> nothing.name
    'nothing'
    """

    def declared(run: Run) -> Op:
        return Op(run.__name__, run, release)

    return declared
