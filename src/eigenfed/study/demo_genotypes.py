"""Simulated genotypes of three cohorts with shared ancestry, and what the pooled PCA would find.

Three ancestral populations drift apart from a common one (Balding and Nichols 1995), people descend
from them in proportions that differ from cohort to cohort, and a few genotypes are missing.
"""

from dataclasses import dataclass

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes, Variants
from eigenfed.data.source import Source
from eigenfed.linalg.genotype_codes import Packed, pack_copies
from eigenfed.study.scores import Projected

VARIANTS, K = 8000, 4
COHORTS = {"coast": (400, (6.0, 2.0, 0.5)), "inland": (250, (1.0, 6.0, 1.0)), "isle": (90, None)}
"""People, and how concentrated their proportions of ancestry are; None is one population alone."""
_DRIFT = 0.06
_MISSING = 0.005


@dataclass(frozen=True, eq=False, repr=False)
class Cohort:
    """The people of one site.

    Attributes
    ----------
    packed : ndarray of uint8, shape (d, bytes of a variant)
    ancestry : ndarray of shape (n, 3)
        Proportions of the ancestral populations, which the fit does not know.
    """

    packed: Packed
    ancestry: Array

    @property
    def source(self) -> Source:
        """The genotypes as rows of a site."""
        return Source(Genotypes.of(self.packed, len(self.ancestry)), None, list_variants().names)


def list_variants() -> Variants:
    """Return the simulated variants, on 22 chromosomes."""
    chromosome = 1 + np.arange(VARIANTS) * 22 // VARIANTS
    return Variants(
        np.array(list(map(str, chromosome)), dtype=object),
        np.array([f"sim{place}" for place in range(VARIANTS)], dtype=object),
        10_000 * (1 + np.arange(VARIANTS)),
        np.array(["A"] * VARIANTS, dtype=object),
        np.array(["G"] * VARIANTS, dtype=object),
    )


def simulate_cohorts(rng: np.random.Generator) -> dict[str, Cohort]:
    """Draw the people of three cohorts.

    Examples
    --------
    >>> cohorts = simulate_cohorts(np.random.default_rng(0))
    >>> {name: cohort.source.X.shape for name, cohort in cohorts.items()}
    {'coast': (400, 8000), 'inland': (250, 8000), 'isle': (90, 8000)}
    """
    common = rng.uniform(0.05, 0.95, VARIANTS)
    spread = (1.0 - _DRIFT) / _DRIFT
    frequencies = rng.beta(common * spread, (1.0 - common) * spread, (3, VARIANTS))
    cohorts = {}
    for name, (n, weights) in COHORTS.items():
        ancestry = np.tile([0.0, 0.0, 1.0], (n, 1))
        if weights is not None:
            ancestry = rng.dirichlet(weights, n)
        copies = rng.binomial(2, ancestry @ frequencies).astype(np.int8)
        copies[rng.random(copies.shape) < _MISSING] = -1
        cohorts[name] = Cohort(pack_copies(copies), ancestry)
    return cohorts


def find_pooled_vectors(cohorts: dict[str, Cohort], k: int) -> Array:
    """Return unit sample vectors of all people pooled, missing genotypes at the mean, (n, k)."""
    x = np.concatenate([cohort.source.X[:] for cohort in cohorts.values()])
    mean = np.nanmean(x, axis=0)
    scale = np.sqrt(mean * (1.0 - mean / 2.0))
    centred = np.nan_to_num((x - mean) / np.where(scale > 0.0, scale, 1.0), nan=0.0)
    vectors: Array = np.linalg.eigh(centred @ centred.T)[1][:, ::-1][:, :k]
    return vectors


def explain_ancestry(cohorts: dict[str, Cohort], rows: dict[str, Projected]) -> float:
    """Return how much of the variance of ancestry the first two components explain."""
    ancestry = np.concatenate([cohort.ancestry for cohort in cohorts.values()])
    scores = np.concatenate([rows[name].scores[:, :2] for name in cohorts])
    design = np.column_stack([np.ones(len(scores)), scores])
    fitted = design @ np.linalg.lstsq(design, ancestry, rcond=None)[0]
    left = np.square(ancestry - fitted).sum() / np.square(ancestry - ancestry.mean(axis=0)).sum()
    return float(1.0 - left)
