"""Files as sites: the result of the tables in them, whatever their kind and order of columns."""

from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from eigenfed import FederatedPCA
from eigenfed.data import cache as store
from eigenfed.data.files import forget_cache, open_source, open_table
from eigenfed.data.source import Source
from eigenfed.errors import DataError, InputError
from table_files import NAMED, WRITERS, csv_text, ids_of, names_of, write_csv, write_h5ad

_RNG = np.random.default_rng(0)
SITES = {f"s{i}": _RNG.standard_normal((n, 6)) + i for i, n in enumerate((40, 17, 3))}


def written(folder: Path, kinds: list[str]) -> dict[str, Path]:
    paths = {}
    for (site, X), kind in zip(SITES.items(), kinds, strict=True):
        paths[site] = folder / f"{site}_{kind}"
        WRITERS[kind](paths[site], X)
    return paths


def assert_same(ours: FederatedPCA, other: FederatedPCA) -> None:
    # Rows that lie otherwise in memory go through other kernels, with other last bits.
    np.testing.assert_allclose(ours.components_, other.components_, rtol=0, atol=1e-13)
    np.testing.assert_allclose(ours.explained_variance_, other.explained_variance_, rtol=1e-13)


@pytest.mark.parametrize("kind", [kind for kind in WRITERS if "columns" not in kind])
@pytest.mark.parametrize("small", [True, False])
def test_files_of_every_kind_give_the_result_of_their_tables(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    paths = written(tmp_path, [kind] * len(SITES))
    ours = FederatedPCA(3).fit_sites(paths)
    is_sparse = open_source(next(iter(paths.values()))).is_sparse
    tables: Any = {k: sparse.csr_array(X) for k, X in SITES.items()} if is_sparse else SITES
    assert_same(ours, FederatedPCA(3).fit_sites(tables))
    if kind in NAMED:
        assert list(ours.feature_names_in_) == names_of(ours.n_features_in_)
    else:
        assert not hasattr(ours, "feature_names_in_")


def test_sites_may_have_files_of_different_kinds_and_frames(tmp_path: Path) -> None:
    names = names_of(next(iter(SITES.values())).shape[1])
    kinds = (["table.csv", "dense.h5ad", "table.parquet"] * 3)[: len(SITES)]
    sites: dict[str, Any] = dict(written(tmp_path, kinds))
    first = next(iter(sites))
    sites[first] = pd.DataFrame(SITES[first], columns=names)
    ours, other = FederatedPCA(2).fit_sites(sites), FederatedPCA(2).fit_sites(SITES)
    np.testing.assert_allclose(ours.components_, other.components_, atol=1e-12)


@pytest.mark.parametrize("small", [True, False])
def test_columns_of_files_are_matched_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    X = np.random.default_rng(0).standard_normal((30, 3))
    (tmp_path / "a.csv").write_text(csv_text(X, ["x", "y", "z"]))
    (tmp_path / "b.csv").write_text(csv_text(X[:, [2, 0, 1]] + 1, ["z", "x", "y"]))
    ours = FederatedPCA(2).fit_sites({"a": tmp_path / "a.csv", "b": str(tmp_path / "b.csv")})
    assert list(ours.feature_names_in_) == ["x", "y", "z"]
    assert_same(ours, FederatedPCA(2).fit_sites({"a": X, "b": X + 1}))
    assert forget_cache(tmp_path / "b.csv") == (0 if small else 1)


def test_files_with_other_columns_are_refused_or_cut_to_the_common_ones(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    (tmp_path / "a.csv").write_text(csv_text(X, ["x", "y", "z"]))
    (tmp_path / "b.csv").write_text(csv_text(X, ["w", "x", "y"]))
    paths = {"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"}
    with pytest.raises(InputError, match=r"differ in 'w' \(not at 'a'\), 'z' \(not at 'b'\)\. Ren"):
        FederatedPCA(1).fit_sites(paths)
    ours = FederatedPCA(1).fit_sites(paths, features="common")
    assert list(ours.feature_names_in_) == ["x", "y"]
    assert_same(ours, FederatedPCA(1).fit_sites({"a": X[:, :2], "b": X[:, 1:]}))


def test_an_opened_source_is_a_site(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((30, 3))
    (tmp_path / "a.csv").write_text(csv_text(X, ["x", "y", "z"], ids_of(30)))
    path = tmp_path / "a.csv"
    sites = {
        "a": open_source(path, columns=["x", "y", "z"]),
        "b": open_table(path, columns=["z", "y", "x"], id_column="id"),
    }
    ours = FederatedPCA(2).fit_sites(sites)
    assert_same(ours, FederatedPCA(2).fit_sites({"a": X, "b": X}))
    assert list(ours.feature_names_in_) == ["x", "y", "z"]
    common = FederatedPCA(1).fit_sites(
        {"a": open_source(path, columns=["x", "y"]), "b": sites["b"]}, features="common"
    )
    assert list(common.feature_names_in_) == ["x", "y"]


def test_rows_of_files_may_have_weights(tmp_path: Path) -> None:
    paths = written(tmp_path, ["table.csv"] * len(SITES))
    first = next(iter(SITES))
    weights = {first: np.linspace(0.5, 2.0, len(SITES[first]))}
    ours = FederatedPCA(2).fit_sites(paths, sample_weight=weights)
    assert_same(ours, FederatedPCA(2).fit_sites(SITES, sample_weight=weights))
    own: dict[str, Any] = {**SITES, first: Source.of(SITES[first], weights=weights[first])}
    assert_same(FederatedPCA(2).fit_sites(own), ours)
    with pytest.raises(InputError, match=f"Site '{first}': Its rows have weights"):
        FederatedPCA(2).fit_sites(own, sample_weight=weights)


def test_a_fault_in_a_file_names_the_site(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", np.eye(3))
    (tmp_path / "b.csv").write_text("x0,x1,x2\n1,2\n")
    with pytest.raises(DataError, match=r"^Site 'b': .*b\.csv has 2 cells in row 1"):
        FederatedPCA(1).fit_sites({"a": tmp_path / "a.csv", "b": tmp_path / "b.csv"})
    with pytest.raises(InputError, match=r"^Site 'b': nowhere.csv does not exist"):
        FederatedPCA(1).fit_sites({"a": tmp_path / "a.csv", "b": "nowhere.csv"})
    (tmp_path / "c.csv").write_text("id,x0\np1,2\np2,3\n")
    (tmp_path / "d.csv").write_text(",x0\n1,2\n2,3\n")
    for name, advice in (("c", r"pass id_column=\.\.\. for"), ("d", "pass exclude=")):
        where = r"\. Those are arguments of open_table and of ReadOptions\.$"
        with pytest.raises((DataError, InputError), match=f"{advice}.*{where}"):
            FederatedPCA(1).fit_sites({"a": tmp_path / f"{name}.csv"})


def test_libsvm_files_of_different_widths_are_told_how_to_agree(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1 1:1 3:2\n1 2:3\n")
    (tmp_path / "b.svm").write_text("1 1:4\n1 2:1\n")
    with pytest.raises(InputError, match=r"'a' has 3, 'b' has 2.*with one n_features"):
        FederatedPCA(1).fit_sites({"a": tmp_path / "a.svm", "b": tmp_path / "b.svm"})
    ours = FederatedPCA(1).fit_sites(
        {name: open_source(tmp_path / f"{name}.svm", n_features=3) for name in ("a", "b")}
    )
    assert ours.n_features_in_ == 3


@pytest.mark.parametrize("kind", ["h5ad", "parquet", "csv"])
def test_files_with_row_ids_are_matched_by_them(tmp_path: Path, kind: str) -> None:
    X = np.random.default_rng(0).standard_normal((20, 6))
    order = np.random.default_rng(1).permutation(20)
    ids = np.array(ids_of(20))
    frames = {
        "a": pd.DataFrame(X[:, :3], index=ids, columns=["u", "v", "w"]),
        "b": pd.DataFrame(X[order, 3:], index=ids[order], columns=["x", "y", "z"]),
    }
    sites: dict[str, Any] = {"a": frames["a"]}
    path = tmp_path / f"b.{kind}"
    if kind == "h5ad":
        sites["a"] = pd.DataFrame(X[order][:, :3], index=ids, columns=["u", "v", "w"])
        frames = {"a": sites["a"], "b": pd.DataFrame(X[:, 3:], index=ids, columns=["x", "y", "z"])}
        write_h5ad(path, X[:, 3:], ["x", "y", "z"])
        sites["b"] = path
    elif kind == "parquet":
        pq.write_table(pa.Table.from_pandas(frames["b"].reset_index(names="id")), path)
        sites["b"] = open_table(path, id_column="id")
    else:
        frames["b"].to_csv(path)
        sites["b"] = open_table(path, id_column="")
    ours = FederatedPCA(2, split="features", random_state=0).fit_sites(sites)
    assert list(ours.feature_names_in_) == ["u", "v", "w", "x", "y", "z"]
    assert_same(ours, FederatedPCA(2, split="features", random_state=0).fit_sites(frames))


def test_files_without_row_ids_need_keys(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((8, 4))
    np.save(tmp_path / "a.npy", X[:, :2])
    np.save(tmp_path / "b.npy", X[:, 2:])
    paths = {name: tmp_path / f"{name}.npy" for name in ("a", "b")}
    pca = FederatedPCA(2, split="features", random_state=0)
    with pytest.raises(InputError, match=r"Site 'a' has no row key.*open_table\(path, id_column"):
        pca.fit_sites(paths)
    keys = {name: np.arange(8) for name in paths}
    tables = {"a": X[:, :2], "b": X[:, 2:]}
    other = FederatedPCA(2, split="features", random_state=0).fit_sites(tables, keys=keys)
    assert_same(pca.fit_sites(paths, keys=keys), other)
    with pytest.raises(InputError, match=r"^Site 'b': .*c\.npy does not exist"):
        pca.fit_sites({**paths, "b": tmp_path / "c.npy"}, keys=keys)
    weighted = Source.of(X[:, 2:], weights=np.ones(8))
    with pytest.raises(InputError, match="Site 'b' has weights, which split='features' cannot use"):
        pca.fit_sites({**paths, "b": weighted}, keys=keys)
