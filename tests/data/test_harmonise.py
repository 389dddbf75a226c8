"""Variants of different files are matched by place and alleles, and every one is accounted for."""

from pathlib import Path

import numpy as np
import pytest

from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.genotypes import Variants
from eigenfed.data.harmonise import CLASSES, Matches, match_variants
from eigenfed.data.loci import Loci, find_loci
from eigenfed.data.readers.plink import read_plink
from eigenfed.errors import DataError, InputError
from genotype_files import draw_genotypes, write_plink

Row = tuple[str, str, int, str, str]


def variants_of(*rows: Row) -> Variants:
    columns = [np.array(column, dtype=object) for column in zip(*rows, strict=True)]
    return Variants(columns[0], columns[1], columns[2].astype(np.int64), columns[3], columns[4])


def count(found: Matches) -> dict[str, int]:
    return {name: n for name, n in zip(CLASSES, found.counts.tolist(), strict=True) if n}


def test_each_way_to_match_is_told_apart() -> None:
    manifest = variants_of(
        ("1", "same", 10, "A", "G"),
        ("1", "swapped", 20, "A", "G"),
        ("1", "flipped", 30, "A", "G"),
        ("1", "both", 40, "A", "G"),
        ("X", "palindrome", 50, "A", "T"),
        ("1", "other", 60, "A", "G"),
        ("1", "twice", 70, "A", "G"),
        ("1", "absent", 80, "A", "G"),
        ("2", "indel", 90, "AT", "A"),
        ("2", "monomorphic", 95, "C", "T"),
        ("2", "flat", 96, "C", "T"),
    )
    own = variants_of(
        ("chr1", "a", 10, "a", "g"),
        ("01", "b", 20, "G", "A"),
        ("1", "c", 30, "T", "C"),
        ("1", "d", 40, "C", "T"),
        ("23", "e", 50, "A", "T"),
        ("1", "f", 60, "A", "C"),
        ("1", "g", 70, "A", "G"),
        ("1", "h", 70, "G", "A"),
        ("2", "i", 90, "A", "AT"),
        ("2", "j", 95, "0", "C"),
        ("2", "k", 96, "0", "A"),
        ("9", "elsewhere", 1, "A", "G"),
    )
    found = match_variants(own, manifest)
    assert found.places.tolist() == [0, 1, 2, 3, -1, -1, -1, -1, 8, 9, 10]
    swapped = [name for name, flag in zip(manifest.identifier, found.swapped, strict=True) if flag]
    assert swapped == ["swapped", "both", "indel", "monomorphic"]
    assert count(found) == {
        **{"same": 1, "swapped": 3, "flipped": 2, "flip_swapped": 1, "ambiguous": 1},
        **{"other_alleles": 1, "duplicate": 1, "absent": 1},
    }
    assert found.counts.sum() == len(manifest)
    kept = match_variants(own, manifest, ambiguous="keep")
    assert kept.places[4] == 4
    assert not kept.swapped[4]


def test_a_manifest_names_a_variant_once() -> None:
    again = ("1", "a", 10, "A", "G"), ("1", "b", 10, "T", "C")
    with pytest.raises(DataError, match="more than once"):
        match_variants(variants_of(again[0]), variants_of(*again))
    several = ("1", "a", 10, "A", "G"), ("1", "b", 10, "A", "T")
    found = match_variants(variants_of(*several), variants_of(*several), ambiguous="keep")
    assert found.places.tolist() == [0, 1]


def test_a_file_is_read_as_the_manifest_has_it(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    copies = draw_genotypes(rng, [9], 6, missing=0.1)
    alleles = [("A", "G"), ("G", "A"), ("T", "C"), ("C", "T"), ("A", "T"), ("A", "C")]
    path = write_plink(tmp_path / "a.bed", copies, alleles=alleles)
    manifest = write_plink(tmp_path / "m.bed", copies, alleles=[("A", "G")] * 4 + alleles[4:])
    more = manifest.with_suffix(".bim").read_text() + "3\tnew\t0\t7\tA\tG\n"
    manifest.with_suffix(".bim").write_text(more)
    filters = GenotypeFilters(manifest=manifest.with_suffix(".bim"))
    opened = read_plink(path, filters)
    x = np.where(copies < 0, np.nan, copies.astype(np.float64))
    expected = np.column_stack([x[:, 0], 2 - x[:, 1], x[:, 2], 2 - x[:, 3], x[:, 4], x[:, 5]])
    rows = opened.genotypes[:]
    np.testing.assert_array_equal(rows[:, [0, 1, 2, 3, 5]], expected[:, [0, 1, 2, 3, 5]])
    assert np.isnan(rows[:, [4, 6]]).all()
    assert opened.genotypes.counts.observed[[4, 6]].tolist() == [0, 0]
    loci = find_loci(opened.source.X)
    assert loci is not None
    assert loci.matched is not None
    assert dict(zip(CLASSES, loci.matched.tolist(), strict=True))["absent"] == 1
    assert opened.source.names == opened.variants.names
    manifest.with_suffix(".bim").write_text("3\tnew\t0\t7\tA\tG\n")
    with pytest.raises(InputError, match="none of the variants of the manifest"):
        read_plink(path, filters)
    with pytest.raises(InputError, match="'drop' or 'keep'"):
        GenotypeFilters(ambiguous="guess")


def test_chromosomes_are_numbered_and_contigs_told_apart() -> None:
    names = ["1", "chr22", "X", "25", "MT", "GL1", "0", "GL2", "GL1", "101"]
    loci = Loci.of(names, np.arange(10))
    assert loci.chromosome.tolist() == [1, 22, 23, 25, 26, 100, 0, 101, 100, 102]
    assert loci.autosomal.tolist() == [True, True] + [False] * 8
