"""PLINK files are read as other programs read them, and lies about them are refused."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from bed_reader import open_bed

from eigenfed.data.files import column_names, open_table, read_feature_names
from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers.plink import read_plink
from eigenfed.errors import DataError, InputError
from genotype_files import draw_genotypes, write_plink


@pytest.fixture
def bed(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    return write_plink(tmp_path / "a.bed", draw_genotypes(rng, [9, 8], 21, missing=0.1))


def test_genotypes_are_those_of_bed_reader(bed: Path) -> None:
    opened, expected = read_plink(bed), open_bed(bed).read(dtype="float64")
    assert np.isnan(expected).any()
    np.testing.assert_array_equal(opened.genotypes[:], expected)
    np.testing.assert_array_equal(opened.genotypes[3:11], expected[3:11])
    np.testing.assert_array_equal(opened.genotypes.dosages(slice(4, 9)), expected[:, 4:9])
    counts = opened.genotypes.count(np.arange(0, 17, 3))
    some = expected[::3]
    for found, what in (
        (counts.two, some == 2.0),
        (counts.one, some == 1.0),
        (counts.none, some == 0.0),
        (counts.missing, np.isnan(some)),
    ):
        np.testing.assert_array_equal(found, what.sum(axis=0))
    assert not np.asarray(opened.genotypes.packed).flags.writeable


def test_variants_can_be_reordered_and_their_alleles_swapped(bed: Path) -> None:
    opened, expected = read_plink(bed), open_bed(bed).read(dtype="float64")
    order, swapped = np.array([7, 2, 11]), np.array([True, False, True])
    part = opened.take_variants(order, swapped)
    turned = np.where(swapped, 2.0 - expected[:, order], expected[:, order])
    np.testing.assert_array_equal(part.genotypes[:], turned)
    np.testing.assert_array_equal(part.genotypes.counts.copies, np.nansum(turned, axis=0))
    assert part.variants.names == ("rs7_G", "rs2_A", "rs11_G")
    named = opened.take_named(part.variants.names)
    np.testing.assert_array_equal(named.genotypes[:], turned)
    again = part.take_variants([2, 0], [True, False])
    np.testing.assert_array_equal(again.genotypes[:, [0]][:], expected[:, [11]])
    assert again.variants.names == ("rs11_A", "rs7_G")


def test_lists_select_people_and_variants(bed: Path, tmp_path: Path) -> None:
    expected = open_bed(bed).read(dtype="float64")
    lists = {
        "keep": "fp1 p1\nfp5\tp5 more\nfp12 p12\nelse where\n\n",
        "remove": "#FID IID\nfp5 p5\n",
        "extract": "rs3\nrs9 rs4\nrs1000\n",
        "exclude_variants": "rs4\n",
        "no_fit": "fp12 p12\n",
    }
    for name, text in lists.items():
        (tmp_path / name).write_text(text)
    given: dict[str, Any] = {name: tmp_path / name for name in lists}
    filters = GenotypeFilters(**given)
    options = ReadOptions(filters=filters)
    table = open_table(bed, options=options)
    np.testing.assert_array_equal(table.source.X[:], expected[[1, 12]][:, [3, 9]])
    assert table.row_ids == ("fp1 p1", "fp12 p12")
    assert table.source.weights is not None
    assert table.source.weights.tolist() == [1.0, 0.0]
    assert column_names(bed, options) == table.source.names == ("rs3_A", "rs9_A")
    assert read_feature_names(bed, None, options) == ["rs3_A", "rs9_A"]
    swapped = open_table(bed, columns=["rs9_A", "rs3_A"], options=options)
    np.testing.assert_array_equal(swapped.source.X[:], expected[[1, 12]][:, [9, 3]])


def test_a_variant_without_an_identifier_is_named_by_its_place(tmp_path: Path) -> None:
    copies = np.ones((2, 2), dtype=np.int8)
    path = write_plink(tmp_path / "a.bed", copies, variants=[".", "."], alleles=[("T", "C")] * 2)
    assert read_plink(path).variants.names == ("1:1:C:T_T", "1:101:C:T_T")


def test_what_is_not_such_a_file_is_refused(bed: Path, tmp_path: Path) -> None:
    good = bed.read_bytes()
    for data, words in (
        (b"PK" + good[2:], "not a PLINK 1"),
        (good[:2] + b"\x00" + good[3:], "one person after the other"),
        (good[:-1], "belong together"),
        (good + b"\x00", "belong together"),
        (b"", "not a PLINK 1"),
    ):
        bed.write_bytes(data)
        with pytest.raises(DataError, match=words):
            read_plink(bed)
    bed.write_bytes(good)
    fam, bim = bed.with_suffix(".fam"), bed.with_suffix(".bim")
    people, variants = fam.read_text(), bim.read_text()
    for path, text, words in (
        (fam, people.replace("fp3 p3 0", "fp3 p3"), "six fields"),
        (fam, people.replace("fp3 p3", "fp2 p2"), "person more than once"),
        (bim, variants.replace("\t301\t", "\tsecret\t"), "an integer"),
        (bim, variants.replace("rs3\t", "rs2\t"), "variant more than once"),
        (bim, "", "has no variants"),
        (fam, "", "no people or no variants"),
    ):
        path.write_text(text)
        with pytest.raises(DataError, match=words) as caught:
            read_plink(bed)
        assert "secret" not in str(caught.value)
        fam.write_text(people)
        bim.write_text(variants)
    bim.write_bytes(b"\xff\xfe")
    with pytest.raises(DataError, match="six fields"):
        read_plink(bed)
    bim.unlink()
    with pytest.raises(InputError, match="three files of one name"):
        read_plink(bed)


def test_lists_that_leave_nothing_are_refused(bed: Path, tmp_path: Path) -> None:
    listed = tmp_path / "list"
    listed.write_text("nobody\n")
    with pytest.raises(InputError, match="No people"):
        read_plink(bed, GenotypeFilters(keep=listed))
    with pytest.raises(InputError, match="No variants"):
        read_plink(bed, GenotypeFilters(extract=listed))
    with pytest.raises(InputError, match="lacks 1 of the 2 variants"):
        read_plink(bed).take_named(["rs0_G", "rs0_C"])
    with pytest.raises(InputError, match="cannot be read"):
        read_plink(bed, GenotypeFilters(keep=tmp_path / "nowhere"))
    listed.write_bytes(b"\xff")
    with pytest.raises(DataError, match="UTF-8"):
        read_plink(bed, GenotypeFilters(keep=listed))
    np.save(tmp_path / "a.npy", np.eye(2))
    with pytest.raises(InputError, match="keep requires a file of kind"):
        open_table(tmp_path / "a.npy", options=ReadOptions(filters=GenotypeFilters(keep=listed)))
