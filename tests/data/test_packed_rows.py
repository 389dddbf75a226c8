"""Products of packed genotypes are those of the same table in memory, with weights and gaps."""

from pathlib import Path

import numpy as np
import pytest

from eigenfed.data import packed_rows
from eigenfed.data.packed_rows import PackedRows, view_rows
from eigenfed.data.prepared import Prepared
from eigenfed.data.readers.plink import PlinkFile, read_plink
from eigenfed.data.source import Source
from genotype_files import draw_genotypes, write_plink

D = 300


@pytest.fixture(scope="module")
def opened(tmp_path_factory: pytest.TempPathFactory) -> PlinkFile:
    rng = np.random.default_rng(1)
    path = tmp_path_factory.mktemp("packed") / "a.bed"
    whole = read_plink(write_plink(path, draw_genotypes(rng, [30, 33], D, missing=0.05)))
    order = rng.permutation(D)[: D - 7]
    some = whole.take_variants(order, rng.random(len(order)) < 0.5)
    people = np.sort(rng.choice(63, 50, replace=False))
    return PlinkFile(
        whole.path,
        some.genotypes.select_people(people),
        some.variants,
        some.samples.take(people),
        np.ones(50, np.bool_),
    )


@pytest.mark.parametrize("weights", ["none", "mask", "any"])
def test_products_are_those_of_the_table_in_memory(
    opened: PlinkFile, weights: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packed_rows, "TILE", 256)
    rng = np.random.default_rng(2)
    n, d = opened.genotypes.shape
    given = {"none": None, "mask": (rng.random(n) < 0.7).astype(float), "any": rng.random(n)}
    packed = Source(opened.genotypes, given[weights])
    plain = Source.of(opened.genotypes[:], weights=given[weights])
    for found, kept in zip(packed.totals(), plain.totals(), strict=True):
        np.testing.assert_allclose(np.asarray(found), np.asarray(kept))
    assert packed.has_missing
    assert packed.largest() == plain.largest() == 2.0
    mean, scale = rng.uniform(0.2, 1.8, d), rng.uniform(0.3, 0.7, d)
    view, expected = view_rows(packed, mean, scale), Prepared(plain, mean, scale)
    assert isinstance(view, PackedRows)
    basis, sided = rng.standard_normal((d, 9)), rng.standard_normal((n, 9))
    np.testing.assert_allclose(view.multiply(basis), expected.multiply(basis), atol=1e-10)
    np.testing.assert_allclose(view.adjoint(sided), expected.adjoint(sided), atol=1e-10)
    np.testing.assert_allclose(view.product(basis), expected.product(basis), atol=1e-8)
    np.testing.assert_allclose(view.squares(), expected.squares())
    np.testing.assert_allclose(view.scatter(), expected.scatter(), atol=1e-9)
    single = view_rows(packed, mean, scale, single=True).product(basis)
    error = np.linalg.norm(single - expected.product(basis))
    assert error < 1e-6 * np.linalg.norm(single)
    assert error > 0.0


def test_a_file_is_never_decoded_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_plink(tmp_path / "a.bed", draw_genotypes(np.random.default_rng(0), [40], 90))
    source = read_plink(path).source
    assert isinstance(source.X.packed, np.memmap)

    def refuse(*_: object) -> None:
        raise AssertionError("decoded")

    monkeypatch.setattr(type(source.X), "_decode", refuse)
    view = view_rows(source, source.totals()[2] / 40, np.ones(90), single=True)
    assert view.product(np.eye(90)[:, :3]).shape == (90, 3)
    assert view.squares().shape == (90,)
