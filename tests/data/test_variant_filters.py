"""Filters of variants decide as PLINK does at their thresholds, and tell what they remove."""

from typing import Any

import numpy as np
import pytest

from eigenfed import (
    Autosomes,
    CallRate,
    ExcludeLongRangeLd,
    HardyWeinberg,
    Log1p,
    Matched,
    MinorAlleleFrequency,
    PruneLd,
)
from eigenfed.data.loci import Loci
from eigenfed.data.long_range_ld import REGIONS, find_in_regions
from eigenfed.data.steps import as_steps, write_steps
from eigenfed.data.variant_filters import Attrition, PooledCounts, filter_variants
from eigenfed.errors import InputError


def test_thresholds_keep_what_is_equal_to_them_and_attrition_adds_up() -> None:
    two, one, none = np.array([[0, 0, 0, 0, 1, 25], [2, 1, 0, 2, 2, 0], [98, 99, 100, 96, 95, 75]])
    counts = PooledCounts(
        people=100,
        weight=100.0,
        sites=2,
        two=two,
        one=one,
        none=none,
        usable=np.array([2, 2, 2, 2, 1, 2]),
        matched=np.zeros(8, dtype=np.int64),
    )
    loci = Loci(np.array([1, 1, 1, 23, 1, 6]), np.array([5, 6, 7, 8, 9, 10]))
    steps = as_steps(["autosomes", "call_rate:0.98", "maf:0.01", "hwe:1e-6", "ld"])
    kept, table = filter_variants(steps, counts, loci)
    nearby = Loci(np.full(6, 6), 25_000_000 + np.arange(-3, 3))
    outside, _ = filter_variants(as_steps(["exclude_long_range_ld"]), counts, nearby)
    assert outside.tolist() == [True, True, True, False, False, False]
    assert kept.tolist() == [True, False, False, False, False, False]
    assert table == (
        Attrition("variants of the study", 0, 6),
        Attrition("usable at every site", 1, 5),
        Attrition("autosomes", 1, 4),
        Attrition("call_rate:0.98", 0, 4),
        Attrition("maf:0.01", 2, 2),
        Attrition("hwe:1e-06", 1, 1),
    )
    assert counts.mean[0] == 0.02
    assert counts.squares[5] == pytest.approx(100 * 0.75)


def test_regions_are_whole_and_in_order() -> None:
    for build, regions in REGIONS.items():
        assert list(regions) == sorted(regions), build
        for chromosome, first, last in regions:
            assert 1 <= chromosome <= 22
            edges = np.array([first - 1, first, last, last + 1])
            inside = find_in_regions(Loci(np.full(4, chromosome), edges), build)
            assert inside.tolist() == [False, True, True, False]


def test_steps_are_read_written_and_checked() -> None:
    texts = [
        *("matched", "autosomes", "exclude_long_range_ld:GRCh38", "call_rate:0.95", "maf:0.05"),
        *("hwe:1e-10", "ld:50:0.2"),
    ]
    steps = as_steps(texts)
    assert steps == (
        *(Matched(), Autosomes(), ExcludeLongRangeLd("GRCh38"), CallRate(0.95)),
        *(MinorAlleleFrequency(0.05), HardyWeinberg(1e-10), PruneLd("50", 0.2)),
    )
    assert write_steps(steps) == texts
    assert (PruneLd().bases, PruneLd().variants) == (1_000_000, None)
    number: Any = 50
    assert PruneLd(number) == PruneLd("50")
    for wrong, words in (
        (["maf:0.6"], "at most 0.5"),
        (["call_rate:0"], "above 0"),
        (["hwe:x"], "above 0"),
        (["ld:1mb"], "kilobases"),
        (["ld:0"], "kilobases"),
        (["exclude_long_range_ld:hg19"], "'GRCh37'"),
        (["maf:0.1", "maf:0.2"], "more than once"),
        (["ld", "maf"], "must come last"),
        (["maf", Log1p()], "no other steps"),
    ):
        with pytest.raises(InputError, match=words):
            as_steps(wrong)
