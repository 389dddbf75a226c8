"""Long parquet files: one pass needs no parsed copy, and everything else is as with one."""

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import parquet

from command_line import eigenfed
from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.data import cache as store
from eigenfed.data.files import open_source, open_table
from eigenfed.data.one_pass import OwnScatter
from eigenfed.data.readers import parquet_rows
from eigenfed.data.readers.parquet_rows import ParquetRows
from eigenfed.errors import DataError


@pytest.fixture(autouse=True)
def _small_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    monkeypatch.setattr(parquet_rows, "_LEAST_ROWS_PER_FEATURE", 20)
    monkeypatch.setattr(parquet_rows, "_BATCH_BYTES", 1 << 12)


def sorted_rows(d: int = 3, n: int = 3000) -> Array:
    """Rows far from zero and in order, for which the mean of the first ones is far off."""
    rows = np.random.default_rng(0).standard_normal((n, d)) * np.linspace(3, 1, d)
    return rows[np.argsort(rows[:, 0])] + 1e4


def write(path: Path, rows: Array, **options: Any) -> Path:
    columns: dict[str, Any] = {f"x{j}": rows[:, j] for j in range(rows.shape[1])}
    parquet.write_table(pa.table(columns), path, row_group_size=700, **options)
    return path


def copies(path: Path) -> list[Path]:
    return store.find_copies(path)


@pytest.mark.parametrize("d", [3, 40])
def test_one_pass_gives_the_scatter_and_leaves_no_copy(tmp_path: Path, d: int) -> None:
    rows = sorted_rows(d)
    path = write(tmp_path / "a.parquet", rows)
    source = open_source(path)
    own = OwnScatter.of(source)
    assert own is not None
    assert isinstance(source.X, ParquetRows)
    centred = rows - rows.mean(axis=0)
    exact = centred.T @ centred
    np.testing.assert_allclose(own.mean, rows.mean(axis=0), rtol=1e-13)
    np.testing.assert_allclose(own.matrix, exact, atol=1e-10 * exact.max())
    fitted = FederatedPCA(2, method="covariance").fit_sites({"a": open_table(path)})
    pooled = FederatedPCA(2, method="covariance").fit(rows)
    np.testing.assert_allclose(fitted.components_, pooled.components_, atol=1e-8)
    assert not copies(path)


def test_the_first_rows_are_read_without_a_copy(tmp_path: Path) -> None:
    rows = sorted_rows()
    path = write(tmp_path / "a.parquet", rows)
    X: Any = open_source(path).X
    for n in (1, 700, 1500, 9000):
        np.testing.assert_array_equal(X.read_first(n), rows[:n])
    assert not copies(path)
    np.testing.assert_array_equal(X[:2], rows[:2])
    np.testing.assert_array_equal(X.read_first(700), rows[:700])


def test_commands_make_no_copy_unless_it_is_needed_and_then_name_it(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", sorted_rows())
    assert eigenfed("fit", path, "-k", 1).exit_code == 0
    assert not copies(path)
    told = f"A parsed copy of {path} (1 MB) is kept in {path}.eigenfed."
    for command in (
        ("fit", path, "-k", 1, "--method", "krylov"),
        ("fit", path, "-k", 1, "-o", tmp_path / "result"),
        ("project", tmp_path / "result", path),
    ):
        run = eigenfed(*command)
        assert run.exit_code == 0
        assert run.stderr.replace("\n", " ").count(told) == 1
        store.forget_cache(path)


def test_columns_are_taken_by_name_and_converted(tmp_path: Path) -> None:
    table = pa.table(
        {"a": np.arange(400), "b": np.arange(400) / 7, "c": np.arange(400, dtype=np.float32) ** 2}
    )
    parquet.write_table(table, tmp_path / "a.parquet")
    source = open_source(tmp_path / "a.parquet", columns=["c", "a"])
    parts = [np.array(part).T for part in source.read_columns() or ()]
    expected = np.column_stack([np.arange(400.0) ** 2, np.arange(400.0)])
    np.testing.assert_array_equal(np.concatenate(parts), expected)
    assert len(parts) > 1


def test_any_other_access_stores_a_copy_first(tmp_path: Path) -> None:
    rows = sorted_rows()
    path = write(tmp_path / "a.parquet", rows)
    source = open_source(path)
    X = source.X
    assert (X.shape, len(X), X.size, X.nbytes, X.ndim) == (rows.shape, 3000, 9000, 72000, 2)
    assert not copies(path)
    np.testing.assert_array_equal(X[5:9], rows[5:9])
    np.testing.assert_array_equal(np.asarray(X), rows)
    assert len(copies(path)) == 1
    assert source.read_columns() is None
    assert isinstance(open_source(path).X, np.memmap)
    fitted = FederatedPCA(2, method="krylov").fit_sites({"a": source})
    pooled = FederatedPCA(2, method="covariance").fit(rows)
    np.testing.assert_allclose(fitted.components_, pooled.components_, atol=1e-5)


def test_missing_entries_are_treated_as_from_a_copy(tmp_path: Path) -> None:
    rows = sorted_rows()
    rows[2500, 1] = np.nan
    path = write(tmp_path / "a.parquet", rows)
    assert isinstance(open_source(path).X, ParquetRows)  # the footer does not count NaN
    fitted = FederatedPCA(2, method="covariance").fit_sites({"a": path})
    pooled = FederatedPCA(2, method="covariance").fit(rows)
    np.testing.assert_allclose(fitted.components_, pooled.components_, atol=1e-9)


@pytest.mark.parametrize("options", [{"write_statistics": False}, {}])
def test_rows_with_gaps_or_an_unclear_footer_are_copied(
    tmp_path: Path, options: dict[str, Any]
) -> None:
    columns = [pa.array([None, *range(99)]), pa.array(np.arange(100.0))]
    if options:
        columns[0] = columns[1]
    parquet.write_table(pa.table(columns, names=["a", "b"]), tmp_path / "a.parquet", **options)
    assert isinstance(open_source(tmp_path / "a.parquet").X, np.memmap)


def test_infinity_is_refused_when_the_file_is_opened(tmp_path: Path) -> None:
    rows = sorted_rows()
    rows[10, 2] = np.inf
    with pytest.raises(DataError, match="infinity in row 11 of 'x2'"):
        open_table(write(tmp_path / "a.parquet", rows))


def test_a_file_that_changes_or_is_damaged_ends_the_pass(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", sorted_rows(), compression="none")
    source = open_source(path)
    whole = path.read_bytes()
    path.write_bytes(whole[:4] + b"\xff" * 2000 + whole[2004:])
    with pytest.raises(DataError, match="changed while it was read"):
        OwnScatter.of(source)
    damaged = open_source(path)
    with pytest.raises(DataError, match="not a complete parquet file"):
        for _ in damaged.read_columns() or ():
            pass
