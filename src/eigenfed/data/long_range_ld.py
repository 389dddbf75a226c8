"""Regions of the human genome with linkage disequilibrium over millions of bases.

The lists are the usual ones: for GRCh37 that of the University of Michigan, after Price et al.
2008; for GRCh38 its conversion after Anderson et al. 2010. Fragments below 1000 bases, which are
left over from the conversion, and those inside another region are left out.
"""

import numpy as np
import numpy.typing as npt

from eigenfed.data.loci import Loci

REGIONS: dict[str, tuple[tuple[int, int, int], ...]] = {
    "GRCh37": (
        (1, 48_000_000, 52_000_000),
        (2, 86_000_000, 100_500_000),
        (2, 134_500_000, 138_000_000),
        (2, 183_000_000, 190_000_000),
        (3, 47_500_000, 50_000_000),
        (3, 83_500_000, 87_000_000),
        (3, 89_000_000, 97_500_000),
        (5, 44_500_000, 50_500_000),
        (5, 98_000_000, 100_500_000),
        (5, 129_000_000, 132_000_000),
        (5, 135_500_000, 138_500_000),
        (6, 25_000_000, 35_000_000),
        (6, 57_000_000, 64_000_000),
        (6, 140_000_000, 142_500_000),
        (7, 55_000_000, 66_000_000),
        (8, 7_000_000, 13_000_000),
        (8, 43_000_000, 50_000_000),
        (8, 112_000_000, 115_000_000),
        (10, 37_000_000, 43_000_000),
        (11, 46_000_000, 57_000_000),
        (11, 87_500_000, 90_500_000),
        (12, 33_000_000, 40_000_000),
        (12, 109_500_000, 112_000_000),
        (20, 32_000_000, 34_500_000),
    ),
    "GRCh38": (
        (1, 47_761_740, 51_761_740),
        (2, 85_919_365, 100_517_106),
        (2, 182_427_027, 189_427_029),
        (3, 47_483_505, 49_987_563),
        (3, 83_368_158, 86_868_160),
        (5, 44_464_140, 51_168_409),
        (5, 129_636_407, 132_636_409),
        (6, 25_391_792, 33_424_245),
        (6, 57_788_603, 58_453_888),
        (6, 61_109_122, 61_357_029),
        (6, 139_637_169, 142_137_170),
        (7, 54_964_812, 66_897_578),
        (8, 8_105_067, 12_105_082),
        (8, 43_025_699, 48_924_888),
        (8, 110_918_594, 113_918_595),
        (9, 64_198_500, 64_200_392),
        (10, 36_671_065, 43_184_546),
        (11, 88_127_183, 91_127_184),
        (12, 32_955_798, 41_319_931),
        (20, 33_948_532, 36_438_183),
    ),
}
"""Chromosome, first and last base of each region, by build."""


def find_in_regions(loci: Loci, build: str) -> npt.NDArray[np.bool_]:
    """Return which variants lie in a region of long-range LD, (d,).

    Examples
    --------
    >>> loci = Loci(np.array([6, 6, 7]), np.array([24_999_999, 30_000_000, 30_000_000]))
    >>> find_in_regions(loci, "GRCh37")
    array([False,  True, False])
    """
    inside = np.zeros(len(loci), dtype=np.bool_)
    for chromosome, first, last in REGIONS[build]:
        inside |= (
            (loci.chromosome == chromosome) & (loci.position >= first) & (loci.position <= last)
        )
    return inside
