"""Results written back into files of anndata."""

import json
import os
from pathlib import Path

import h5py
import numpy as np
import pytest
from scipy import sparse

from command_line import answer, eigenfed
from eigenfed import FederatedPCA
from eigenfed.data.files import open_source, read_labels
from eigenfed.data.readers.h5ad import Slots, check_slots_free, write_slots
from eigenfed.errors import DataError, InputError
from table_files import names_of, write_h5ad

X = np.random.default_rng(0).standard_normal((60, 5)) * [5, 4, 3, 2, 1] + 3.0


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / "a.h5ad", tmp_path / "b.h5ad"]
    write_h5ad(paths[0], X[:40])
    write_h5ad(paths[1], sparse.csr_array(X[40:]))
    return paths


def slots(n: int = 40, features: list[str] | None = None) -> Slots:
    rng = np.random.default_rng(1)
    names = features or names_of(5)
    return Slots(
        rng.standard_normal((n, 2)),
        rng.standard_normal((2, len(names))),
        names,
        np.array([2.0, 1.0]),
        np.array([0.6, 0.3]),
        {"zero_center": True, "method": "krylov"},
    )


def test_a_fit_writes_where_users_of_anndata_look(files: list[Path]) -> None:
    facts = answer("fit", *files, "-k", 2, "--write-back")
    pooled = FederatedPCA(2).fit(X)
    for path, rows in zip(files, (X[:40], X[40:]), strict=True):
        with h5py.File(path) as file:
            scores, components = file["obsm/X_pca"][:], file["varm/PCs"][:]
            np.testing.assert_allclose(scores, pooled.transform(rows), atol=1e-9)
            np.testing.assert_allclose(components.T, pooled.components_, atol=1e-9)
            np.testing.assert_allclose(file["uns/pca/variance"][:], facts["eigenvalues"])
            np.testing.assert_allclose(file["uns/pca/variance_ratio"][:], facts["ratios"])
            assert file["uns/pca/params/method"].asstr()[()] == "covariance"
            assert bool(file["uns/pca/params/zero_center"][()])
            assert file["obsm"].attrs["encoding-type"] == "dict"
            assert file["obsm/X_pca"].attrs["encoding-type"] == "array"


def test_rows_are_as_they_were(files: list[Path]) -> None:
    before = [open_source(path).X for path in files]
    answer("fit", *files, "-k", 1, "--write-back")
    np.testing.assert_array_equal(open_source(files[0]).X, before[0])
    np.testing.assert_array_equal(open_source(files[1]).X.toarray(), before[1].toarray())


def test_new_records_are_written_back_too(files: list[Path], tmp_path: Path) -> None:
    answer("fit", *files, "-k", 2, "-o", tmp_path / "out")
    new = tmp_path / "new.h5ad"
    order = [3, 1, 4, 0, 2]
    write_h5ad(new, X[:7, order], [names_of(5)[place] for place in order])
    said = answer("project", tmp_path / "out", new, "--write-back")
    assert said["file"] == str(new)
    with h5py.File(new) as file:
        components = np.load(tmp_path / "out/components.npy")
        np.testing.assert_array_equal(file["varm/PCs"][:].T, components[:, order])
        np.testing.assert_allclose(
            file["obsm/X_pca"][:], (X[:7] - X.mean(axis=0)) @ components.T, atol=1e-9
        )


def test_nothing_is_overwritten_without_force(files: list[Path]) -> None:
    answer("fit", *files, "-k", 2, "--write-back")
    before = [path.read_bytes() for path in files]
    run = eigenfed("fit", *files, "-k", 1, "--write-back")
    assert run.exit_code == 2
    assert "a.h5ad already has obsm/X_pca, and nothing is overwritten" in run.stderr
    assert [path.read_bytes() for path in files] == before
    answer("fit", *files, "-k", 1, "--write-back", "--force")
    with h5py.File(files[0]) as file:
        assert file["obsm/X_pca"].shape == (40, 1)


def test_other_files_have_no_such_places(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    run = eigenfed("fit", tmp_path / "a.npy", "-k", 1, "--write-back")
    assert run.exit_code == 2
    assert "--write-back requires .h5ad files" in run.stderr


def test_features_that_were_not_used_load_nothing(files: list[Path]) -> None:
    write_slots(files[0], slots(features=["x4", "x1"]))
    with h5py.File(files[0]) as file:
        components = file["varm/PCs"][:]
    assert not components[[0, 2, 3]].any()
    np.testing.assert_array_equal(components[[4, 1]].T, slots(features=["x4", "x1"]).components)


def test_a_link_stays_a_link(files: list[Path], tmp_path: Path) -> None:
    link = tmp_path / "link.h5ad"
    link.symlink_to(files[0])
    write_slots(link, slots())
    assert link.is_symlink()
    with h5py.File(files[0]) as file:
        assert "obsm/X_pca" in file


def test_another_file_than_was_fitted_is_refused(files: list[Path]) -> None:
    before = files[0].read_bytes()
    with pytest.raises(InputError, match="has 40 rows and there are 39 scores"):
        write_slots(files[0], slots(n=39))
    with pytest.raises(InputError, match="lacks the feature 'y'"):
        write_slots(files[0], slots(features=["y"]))
    assert files[0].read_bytes() == before
    assert [path.name for path in files[0].parent.iterdir()] == ["a.h5ad", "b.h5ad"]


def test_a_write_that_fails_leaves_the_file(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = files[0].read_bytes()

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(DataError, match="could not be written and is unchanged"):
        write_slots(files[0], slots())
    assert files[0].read_bytes() == before
    assert sorted(path.name for path in files[0].parent.iterdir()) == ["a.h5ad", "b.h5ad"]


def test_what_is_no_such_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.h5ad").write_bytes(b"text")
    with pytest.raises(DataError, match="not a complete"):
        check_slots_free(tmp_path / "a.h5ad", force=False)


def write_obs(path: Path, column: str, kind: str, missing: int | None = None) -> list[str]:
    """Add a column of obs as anndata stores that kind; return its labels."""
    labels = ["T", "B", "T", "NK"] * 10
    codes = np.array([["B", "NK", "T"].index(label) for label in labels], np.int8)
    if missing is not None:
        codes[missing] = -1
    with h5py.File(path, "a") as file:
        obs = file["obs"]
        if kind == "text":
            obs[column] = np.array(labels, dtype=h5py.string_dtype())
        elif kind == "number":
            obs[column] = np.where(codes < 0, np.nan, codes)
            return [str(float(code)) for code in codes]
        elif kind == "nullable":
            group = obs.create_group(column)
            group["values"], group["mask"] = codes, codes < 0
            return [str(code) for code in codes]
        else:
            names = np.array(["B", "NK", "T"], dtype=h5py.string_dtype())
            if kind == "categorical":
                group = obs.create_group(column)
                group["categories"], group["codes"] = names, codes
            else:
                obs[column], obs["__categories"] = codes, names
                obs[column].attrs["categories"] = obs["__categories"].ref
    return labels


@pytest.mark.parametrize("kind", ["categorical", "old categorical", "text", "number", "nullable"])
def test_rows_are_coloured_by_a_column_of_obs(files: list[Path], kind: str, tmp_path: Path) -> None:
    labels = write_obs(files[0], "cell_type", kind)
    out = tmp_path / "r"
    answer("fit", files[0], "-k", 2, "--color-by", "cell_type", "-o", out)
    assert json.loads((out / "scores" / "a.labels.json").read_text()) == labels
    assert f'data-site="{labels[0]}"' in (out / "sites" / "a.html").read_text()


@pytest.mark.parametrize("kind", ["categorical", "old categorical", "number", "nullable"])
def test_a_row_without_a_label_is_refused_before_the_fit(
    files: list[Path], kind: str, tmp_path: Path
) -> None:
    write_obs(files[0], "cell_type", kind, missing=7)
    run = eigenfed("fit", files[0], "-k", 2, "--color-by", "cell_type", "-o", tmp_path / "r")
    assert (run.exit_code, "lacks an entry of 'cell_type' in some row" in run.stderr) == (1, True)
    assert not (tmp_path / "r").exists()


def test_labels_that_are_damaged_or_have_no_file_of_their_kind_are_refused(
    files: list[Path], tmp_path: Path
) -> None:
    write_obs(files[0], "cell_type", "categorical")
    with h5py.File(files[0], "a") as file:
        file["obs/cell_type/codes"][3] = 9
        file["obs/short"] = np.arange(39.0)
    for column in ("cell_type", "short"):
        with pytest.raises(DataError, match=r"is not a complete \.h5ad file"):
            read_labels(files[0], column, "x0")
    np.save(tmp_path / "a.npy", X)
    for file_, wrong in (
        (files[0], "lacks the column 'x0'. Check the spelling."),
        (tmp_path / "a.npy", "--color-by: Labels of rows require a file of kind .csv, "),
    ):
        run = eigenfed("fit", file_, "-k", 1, "--color-by", "x0", "-o", tmp_path / "r")
        assert (run.exit_code, wrong in run.stderr) == (2, True)


def write_own(path: Path) -> h5py.File:
    """Begin a file with the names of five rows and three features, and without X."""
    file = h5py.File(path, "w")
    for name, count in (("obs", 5), ("var", 3)):
        frame = file.create_group(name)
        frame.attrs["_index"] = "_index"
        names = [f"{name}{place}" for place in range(count)]
        frame.create_dataset("_index", data=names, dtype=h5py.string_dtype())
    return file


@pytest.mark.parametrize("how", ["a link", "a table", "raw bytes", "names"])
def test_a_file_with_parts_in_other_files_is_refused(tmp_path: Path, how: str) -> None:
    path, other = tmp_path / "a.h5ad", tmp_path / "other.h5"
    with write_own(other) as file:
        file["X"] = np.ones((5, 3))
    (tmp_path / "raw").write_bytes(np.ones((5, 3)).tobytes())
    with write_own(path) as file:
        if how == "a link":
            file["X"] = h5py.ExternalLink(str(other), "/X")
        elif how == "a table":
            layout = h5py.VirtualLayout((5, 3), "f8")
            layout[:] = h5py.VirtualSource(str(other), "X", shape=(5, 3))
            file.create_virtual_dataset("X", layout)
        elif how == "raw bytes":
            file.create_dataset("X", (5, 3), "f8", external=[(str(tmp_path / "raw"), 0, 120)])
        else:
            file["X"] = np.ones((5, 3))
            del file["obs"]
            file["obs"] = h5py.ExternalLink(str(other), "/obs")
    with pytest.raises(DataError, match="keeps a part of itself in other files"):
        open_source(path)


def test_links_within_a_file_are_followed(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    with write_own(path) as file:
        file["layers/counts"] = np.ones((5, 3))
        file["X"] = h5py.SoftLink("/layers/counts")
        file["uns/self"] = file["layers"]
        file["uns/nothing"] = h5py.SoftLink("/nowhere")
    assert open_source(path).X.shape == (5, 3)


def test_more_names_than_there_is_memory_for_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    with write_own(path) as file:
        file["X"] = np.ones((5, 3))
        del file["var/_index"]
        file["var"].create_dataset("_index", (1 << 46,), h5py.string_dtype(), chunks=(1 << 16,))
    with pytest.raises(DataError, match="is not a complete"):
        open_source(path)
