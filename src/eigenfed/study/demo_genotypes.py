"""Simulated genotypes of three cohorts with shared ancestry, and what the pooled PCA would find.

Three ancestral populations drift apart from a common one (Balding and Nichols 1995), and people
descend from them in proportions that differ from cohort to cohort. Every second variant is linked
to the one before it. As in practice, cohorts were typed in different ways, and some variants badly:

- one cohort counts the other allele of each variant, another one has read the other strand and
  lacks some variants;
- some variants have the alleles A and T, which look the same on both strands;
- some variants were not called for many people, and of some heterozygotes were missed.
"""

from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import numpy.typing as npt

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes, Samples, Variants
from eigenfed.data.readers.plink import PlinkFile
from eigenfed.linalg.eigen import top_eigh
from eigenfed.linalg.genotype_codes import Packed, pack_copies
from eigenfed.study.scores import Projected

VARIANTS, K = 8000, 4
COHORTS = {"coast": (400, (6.0, 2.0, 0.5)), "inland": (250, (1.0, 6.0, 1.0)), "isle": (90, None)}
"""People, and how concentrated their proportions of ancestry are; None is one population alone."""
STEPS = ("call_rate:0.98", "maf:0.05", "hwe:1e-9", "ld:20:0.2")
_DRIFT = 0.06
_MISSING = 0.002
_LINKED = 0.8
_EVERY = {"ambiguous": 40, "uncalled": 50, "homozygous": 80, "absent": 60}
"""Of how many variants one is typed in each of these ways, beginning at different places."""

Copies = npt.NDArray[np.int8]


@dataclass(frozen=True, eq=False, repr=False)
class Cohort:
    """The people of one site.

    Attributes
    ----------
    packed : ndarray of uint8, shape (d, bytes of a variant)
    variants : Variants
        As the cohort's files have them.
    ancestry : ndarray of shape (n, 3)
        Proportions of the ancestral populations, which the fit does not know.
    """

    packed: Packed
    variants: Variants
    ancestry: Array

    def open(self, name: str) -> PlinkFile:
        """Return the genotypes with their variants matched to those of the study."""
        n = len(self.ancestry)
        people = np.array([f"p{i}" for i in range(n)], dtype=object)
        samples = Samples(np.array([name] * n, dtype=object), people)
        table = Genotypes.of(self.packed, n)
        file = PlinkFile(Path(f"{name}.bed"), table, self.variants, samples, np.ones(n, np.bool_))
        return file.match(list_variants())


def list_variants() -> Variants:
    """Return the variants of the study, on 22 chromosomes."""
    chromosome = 1 + np.arange(VARIANTS) * 22 // VARIANTS
    other = np.where(_every("ambiguous", 7), "T", "G").astype(object)
    return Variants(
        np.array(list(map(str, chromosome)), dtype=object),
        np.array([f"sim{place}" for place in range(VARIANTS)], dtype=object),
        10_000 * (1 + np.arange(VARIANTS)),
        np.array(["A"] * VARIANTS, dtype=object),
        other,
    )


def _every(what: str, first: int) -> npt.NDArray[np.bool_]:
    found: npt.NDArray[np.bool_] = np.arange(VARIANTS) % _EVERY[what] == first
    return found


def simulate_cohorts(rng: np.random.Generator) -> dict[str, Cohort]:
    """Draw the people of three cohorts, and how each was typed.

    Examples
    --------
    >>> cohorts = simulate_cohorts(np.random.default_rng(0))
    >>> {name: cohort.open(name).genotypes.shape for name, cohort in cohorts.items()}
    {'coast': (400, 8000), 'inland': (250, 8000), 'isle': (90, 8000)}
    """
    common = np.repeat(rng.uniform(0.02, 0.98, VARIANTS // 2), 2)
    spread = (1.0 - _DRIFT) / _DRIFT
    frequencies = rng.beta(common * spread, (1.0 - common) * spread, (3, VARIANTS))
    frequencies[:, 1::2] = frequencies[:, ::2]
    drawn = {}
    for name, (n, weights) in COHORTS.items():
        ancestry = np.tile([0.0, 0.0, 1.0], (n, 1))
        if weights is not None:
            ancestry = rng.dirichlet(weights, n)
        chances = ancestry @ frequencies
        copies = _draw_alleles(rng, chances) + _draw_alleles(rng, chances)
        copies[rng.random(copies.shape) < _MISSING] = -1
        drawn[name] = copies, ancestry
    return {name: _type(rng, name, *found) for name, found in drawn.items()}


def _draw_alleles(rng: np.random.Generator, chances: Array) -> Copies:
    """Draw one of the two alleles of each variant; neighbours are mostly inherited together."""
    alleles = (rng.random(chances.shape) < chances).astype(np.int8)
    linked = rng.random((len(chances), VARIANTS // 2)) < _LINKED
    alleles[:, 1::2] = np.where(linked, alleles[:, ::2], alleles[:, 1::2])
    return alleles


def _type(rng: np.random.Generator, name: str, copies: Copies, ancestry: Array) -> Cohort:
    """Return a cohort as its laboratory has typed it."""
    variants = list_variants()
    if name == "coast":
        uncalled = _every("uncalled", 11) & (rng.random(copies.shape) < 0.1)
        copies = np.where(uncalled, -1, copies).astype(np.int8)
        missed = _every("homozygous", 23) & (copies == 1) & (rng.random(copies.shape) < 0.8)
        copies = np.where(missed, 2, copies).astype(np.int8)
    elif name == "inland":
        copies = np.where(copies < 0, -1, 2 - copies).astype(np.int8)
        variants = variants.take(np.arange(VARIANTS), np.ones(VARIANTS, np.bool_))
    else:
        kept = np.flatnonzero(~_every("absent", 31))
        copies, variants = copies[:, kept], variants.take(kept)
        strand = {"A": "T", "T": "A", "G": "C"}
        a1, a2 = (
            np.array([strand[allele] for allele in alleles], dtype=object)
            for alleles in (variants.a1, variants.a2)
        )
        variants = replace(variants, a1=a1, a2=a2)
    return Cohort(pack_copies(copies), variants, ancestry)


def find_pooled_vectors(files: dict[str, PlinkFile], kept: npt.NDArray[np.int64], k: int) -> Array:
    """Return unit sample vectors of all people pooled, missing genotypes at the mean, (n, k)."""
    x = np.concatenate([file.genotypes.select_variants(kept)[:] for file in files.values()])
    mean = np.nanmean(x, axis=0)
    scale = np.sqrt(mean * (1.0 - mean / 2.0))
    centred = np.nan_to_num((x - mean) / np.where(scale > 0.0, scale, 1.0), nan=0.0)
    return top_eigh(centred @ centred.T, k)[1]


def explain_ancestry(cohorts: dict[str, Cohort], rows: dict[str, Projected]) -> float:
    """Return how much of the variance of ancestry the first two components explain."""
    ancestry = np.concatenate([cohort.ancestry for cohort in cohorts.values()])
    scores = np.concatenate([rows[name].scores[:, :2] for name in cohorts])
    design = np.column_stack([np.ones(len(scores)), scores])
    fitted = design @ np.linalg.lstsq(design, ancestry, rcond=None)[0]
    left = np.square(ancestry - fitted).sum() / np.square(ancestry - ancestry.mean(axis=0)).sum()
    return float(1.0 - left)
