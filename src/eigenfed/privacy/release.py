"""Release declarations: what a reply is, how it may leave the site, and what it reveals.

Every operation declares a `Release`. The gate enforces the declaration, the leakage meter counts by
it, and the ledger records it, so the values of the enumerations are part of the ledger's format.
"""

from dataclasses import dataclass
from enum import Enum


class Leaves(Enum):
    """How a reply may leave a site."""

    EXACT = "exact"
    """As it is, to the coordinator."""
    SUM_ONLY = "sum only"
    """As a term of a sum over sites: secure aggregation may carry it."""
    PUBLISHED = "as published"
    """As a paper's mechanism has it, with or without noise; `Truth` states the guarantee."""
    NOISED = "noised"
    """With noise that makes it differentially private, charged to the ledger."""


class Reveals(Enum):
    """What a reply reveals about the scatter matrix of the site's rows."""

    COUNTS = "counts"
    """Numbers of rows and weights."""
    SIZE = "size"
    """Numbers of rows and features, which differential privacy assumes to be public."""
    MEANS = "means"
    """Sums by feature."""
    DIAGONAL = "diagonal"
    """The diagonal of the scatter."""
    DIRECTIONS = "directions"
    """The product of the scatter with the requested directions."""
    GENOTYPES = "genotype counts"
    """Counts of genotypes by variant, from which means and the diagonal of the scatter follow."""
    ENTRIES = "entries"
    """Some entries of the scatter off its diagonal."""
    SCATTER = "scatter"
    """The whole scatter."""
    BOUND = "bound"
    """One number about the whole scatter, such as a norm."""
    REMAINDER = "remainder"
    """One number about what known directions leave of the scatter."""
    NOISE = "noise"
    """What its noise permits: charged to the ledger, not counted by the meter."""
    RANGE = "range"
    """The magnitude of entries and weights, to a factor of two."""
    NOTHING = "nothing"
    """Keys and secret shares, which are independent of the rows."""


@dataclass(frozen=True)
class Release:
    """The declaration of an operation's reply.

    Attributes
    ----------
    kind : str
        Description for people.
    shape : str
        Shape in terms of d features and l directions.
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
