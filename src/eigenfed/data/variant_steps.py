"""The steps that filter the variants of genotypes before their components are computed, as values.

They are written like all steps (`eigenfed.data.steps`): ``MinorAlleleFrequency(0.01)`` in Python,
``"maf:0.01"`` in a study file and ``--prepare maf:0.01`` on the command line. All of them decide
from counts over all sites, and keep the same variants everywhere.
"""

import re
from dataclasses import dataclass

from eigenfed.data.long_range_ld import REGIONS
from eigenfed.data.prepare_step import PrepareStep, check_number, make_option_error

_WINDOW = re.compile(r"([1-9][0-9]{0,4})(kb)?")


@dataclass(frozen=True)
class VariantStep(PrepareStep):
    """A step that keeps some variants of genotypes; only for ``.bed`` files."""

    federated = True


@dataclass(frozen=True)
class Matched(VariantStep):
    """Keep the variants that every site has.

    All steps for variants do so; this one does nothing else.

    Examples
    --------
    >>> from eigenfed import Matched
    >>> Matched().text
    'matched'
    """

    name, summary = "matched", "keep the variants that every site has"


@dataclass(frozen=True)
class Autosomes(VariantStep):
    """Keep the variants of the chromosomes 1 to 22.

    Examples
    --------
    >>> from eigenfed import Autosomes
    >>> Autosomes().text
    'autosomes'
    """

    name, summary = "autosomes", "keep the variants of chromosomes 1 to 22"


@dataclass(frozen=True)
class ExcludeLongRangeLd(VariantStep):
    """Leave out regions whose linkage disequilibrium reaches over millions of bases.

    Components of such a region describe an inversion or its history, and not ancestry.

    Parameters
    ----------
    build : {"GRCh37", "GRCh38"}, default="GRCh37"
        The reference that positions refer to; `eigenfed.data.long_range_ld` has the regions.

    Examples
    --------
    >>> from eigenfed import ExcludeLongRangeLd
    >>> ExcludeLongRangeLd("GRCh38").text
    'exclude_long_range_ld:GRCh38'
    """

    build: str = "GRCh37"

    name, summary = "exclude_long_range_ld", "leave out regions of long-range LD"

    def __post_init__(self) -> None:
        if self.build not in REGIONS:
            listed = "one of " + ", ".join(map(repr, REGIONS))
            raise make_option_error(self, "build", listed, "GRCh37")


@dataclass(frozen=True)
class CallRate(VariantStep):
    """Keep the variants that are known for most people of all sites together.

    Parameters
    ----------
    least : float, default=0.98
        Least fraction of people whose genotype is known, as ``1 - f`` of PLINK's ``--geno f``.

    Examples
    --------
    >>> from eigenfed import CallRate
    >>> CallRate(0.95).text
    'call_rate:0.95'
    """

    least: float = 0.98

    name, summary = "call_rate", "keep variants that are known for most people"

    def __post_init__(self) -> None:
        check_number(self, "least", 0.98, most=1.0)


@dataclass(frozen=True)
class MinorAlleleFrequency(VariantStep):
    """Keep the variants whose rarer allele is common enough over all sites.

    Parameters
    ----------
    least : float, default=0.01
        Least frequency of the rarer allele, as of PLINK's ``--maf``.

    Examples
    --------
    >>> from eigenfed import MinorAlleleFrequency
    >>> MinorAlleleFrequency().text
    'maf:0.01'
    """

    least: float = 0.01

    name, summary = "maf", "keep variants whose rarer allele is common enough"

    def __post_init__(self) -> None:
        check_number(self, "least", 0.01, most=0.5)


@dataclass(frozen=True)
class HardyWeinberg(VariantStep):
    """Leave out variants that are far from Hardy-Weinberg equilibrium over all sites.

    The exact test with mid-p values is made on the counts of all sites together, as by PLINK's
    ``--hwe p midp``. Sites of different ancestry are not in equilibrium together, so p should be
    small.

    Parameters
    ----------
    p : float, default=1e-6
        Variants with a smaller p-value are left out.

    Examples
    --------
    >>> from eigenfed import HardyWeinberg
    >>> HardyWeinberg(1e-10).text
    'hwe:1e-10'
    """

    p: float = 1e-6

    name, summary = "hwe", "leave out variants far from Hardy-Weinberg equilibrium"

    def __post_init__(self) -> None:
        check_number(self, "p", 1e-6, most=1.0)


@dataclass(frozen=True)
class PruneLd(VariantStep):
    """Of correlated variants that are near each other keep one.

    Sites send sums of products of variants in a window; the correlations over all sites follow from
    them. The variants that are kept are those of PLINK's ``--indep-pairwise`` with a step of one
    variant on the pooled file, where nothing is missing; missing genotypes count as the mean, and
    PLINK leaves out the people who lack one of the two. This step comes last.

    Parameters
    ----------
    window : str, default="1000kb"
        Largest distance of two variants, such as "1000kb", or number of variants, such as "50".
    r2 : float, default=0.1
        Largest squared correlation of variants that are kept.

    Examples
    --------
    >>> from eigenfed import PruneLd
    >>> PruneLd("500kb", 0.2).text, PruneLd("50").variants
    ('ld:500kb:0.2', 50)
    """

    window: str = "1000kb"
    r2: float = 0.1

    name, summary = "ld", "of correlated variants in a window keep one"

    def __post_init__(self) -> None:
        window: object = self.window
        if type(window) is int:
            object.__setattr__(self, "window", str(window))
        if not isinstance(self.window, str) or _WINDOW.fullmatch(self.window) is None:
            rule = "a number of variants up to 99999, or of kilobases such as '1000kb'"
            raise make_option_error(self, "window", rule, "1000kb")
        check_number(self, "r2", 0.1, most=1.0)

    @property
    def variants(self) -> int | None:
        """Number of variants in a window; None if its length is in bases."""
        return None if self.window.endswith("kb") else int(self.window)

    @property
    def bases(self) -> int | None:
        """Largest distance in a window, in base pairs; None if it is a number of variants."""
        return 1000 * int(self.window[:-2]) if self.window.endswith("kb") else None


VARIANT_STEPS: tuple[type[VariantStep], ...] = (
    Matched,
    Autosomes,
    ExcludeLongRangeLd,
    CallRate,
    MinorAlleleFrequency,
    HardyWeinberg,
    PruneLd,
)
"""All steps for variants, in the order in which they are usually applied."""
