"""Declarations: what an operation's reply is, how it may leave, and what it reveals."""

from dataclasses import dataclass
from enum import Enum


class Leaves(Enum):
    """How a reply may leave a site."""

    EXACT = "exact"
    """As it is, to the coordinator."""
    SUM_ONLY = "sum only"
    """Meant for a sum: a sum that nobody can open may carry it."""
    PUBLISHED = "as published"
    """As a paper prints it, noised or bare; what holds is in the truth of its value."""
    NOISED = "noised"
    """With noise that makes it differentially private, paid for in the ledger."""


class Reveals(Enum):
    """What a reply tells of the scatter of the site's rows."""

    COUNTS = "counts"
    """Numbers of rows and weights, no direction."""
    SIZE = "size"
    """Numbers of rows and features, which differential privacy takes as public."""
    MEANS = "means"
    """Sums by feature, no direction of the scatter."""
    DIAGONAL = "diagonal"
    """The diagonal of the scatter."""
    DIRECTIONS = "directions"
    """The scatter times the directions asked about."""
    SCATTER = "scatter"
    """All of the scatter."""
    BOUND = "bound"
    """One number about the whole, such as a norm."""
    NOISE = "noise"
    """As much as its noise lets through: the ledger counts it, not the meter."""
    RANGE = "range"
    """How large entries and weights are, to a factor of two."""
    NOTHING = "nothing"
    """Keys and shares: numbers that have nothing to do with the rows."""


@dataclass(frozen=True)
class Release:
    """The declaration of an operation's reply.

    Attributes
    ----------
    kind : str
        What it is, for people.
    shape : str
        Of what size, in terms of d features and l directions.
    leaves : Leaves
    reveals : Reveals

    Examples
    --------
    >>> Release("products", "d x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS).leaves.value
    'sum only'
    """

    kind: str
    shape: str
    leaves: Leaves
    reveals: Reveals
