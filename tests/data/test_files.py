"""Files as sources: the same numbers whichever kind holds them, and what can be asked of each."""

import gzip
import io
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data import cache as store
from eigenfed.data.files import column_names, forget_cache, open_source, open_table
from eigenfed.data.readers import csr, h5ad, npy, svm
from eigenfed.data.source import Source
from eigenfed.errors import InputError
from table_files import NAMED, WRITERS, csv_text, ids_of, names_of, write_h5ad, write_parquet

FLOATS = st.floats(allow_infinity=False, allow_nan=True, width=64)
TABLE = np.array([[0.1, -2.0, 0.0], [np.nan, 1e300, 5e-324], [3.0, 0.0, -7.25], [0.0, 1.0, 2.0]])


def dense(source: Source) -> npt.NDArray[Any]:
    X = source.X.toarray() if source.is_sparse else source.X
    return np.asarray(X)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("files")


@given(
    X=hnp.arrays(
        np.float64, st.tuples(st.integers(1, 6), st.integers(1, 4)), elements=FLOATS
    ).filter(lambda X: bool((X[:, -1] != 0).any()))
)
@settings(max_examples=40)
def test_every_kind_of_file_gives_exactly_the_same_numbers(folder: Path, X: Array) -> None:
    for name, write in WRITERS.items():
        path = folder / name
        write(path, X)
        source = open_source(path)
        np.testing.assert_array_equal(dense(source), X, err_msg=name)
        assert source.X.dtype == np.float64
        assert source.names == (tuple(names_of(X.shape[1])) if name in NAMED else None)
        assert source.is_sparse == ("cs" in name[:3] or "coo" in name or "svm" in name)


@pytest.mark.parametrize("name", WRITERS)
def test_a_parsed_copy_gives_exactly_the_same_numbers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    monkeypatch.setattr(csr, "_PART_ENTRIES", 2)
    WRITERS[name](tmp_path / name, TABLE)
    table = open_table(tmp_path / name)
    np.testing.assert_array_equal(dense(table.source), TABLE)
    in_place = name in ("dense.npy", "columns.npy")
    assert (table.cache is None) == in_place
    again = open_table(tmp_path / name)
    assert again.cache == table.cache
    np.testing.assert_array_equal(dense(again.source), TABLE)
    np.testing.assert_array_equal(again.source.totals()[2], Source.of(TABLE).totals()[2])
    forget_cache(tmp_path / name)


@pytest.mark.parametrize(
    "dtype", [np.int8, np.uint16, np.int64, np.uint64, np.float16, np.float32, bool]
)
@pytest.mark.parametrize("kind", ["X.npy", "X.npz", "X.h5ad", "X.parquet"])
def test_other_numbers_keep_their_values(tmp_path: Path, dtype: Any, kind: str) -> None:
    X = np.array([[0, 1, 3], [1, 0, 100]]).astype(dtype)
    write: dict[str, Callable[[Path, Any], None]] = {
        "X.npy": np.save,
        "X.npz": lambda path, X: np.savez(path, X),
        "X.h5ad": write_h5ad,
        "X.parquet": write_parquet,
    }
    write[kind](tmp_path / kind, X)
    source = open_source(tmp_path / kind)
    np.testing.assert_array_equal(source.X, X.astype(np.float64))
    assert source.X.dtype == (np.float32 if (dtype, kind) == (np.float32, "X.npy") else np.float64)


def test_a_float_array_is_mapped_and_not_read(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", TABLE)
    mapped = open_source(tmp_path / "a.npy").X
    assert isinstance(mapped.base, np.memmap)
    assert not mapped.flags.writeable


def test_whole_numbers_beyond_53_bits_become_the_nearest_float(tmp_path: Path) -> None:
    big = 2**63 - 1
    (tmp_path / "a.csv").write_text(f"a,b\n{big},{-big}\n")
    pq.write_table(pa.table({"a": [big], "b": [-big]}), tmp_path / "a.parquet")
    for kind in ("csv", "parquet"):
        X = open_source(tmp_path / f"a.{kind}").X
        np.testing.assert_array_equal(X, [[2.0**63, -(2.0**63)]])


@pytest.mark.parametrize("cell", ["", "NA", "N/A", "NaN", "nan", "null", "NULL", '""', '"NA"'])
def test_cells_without_a_number_are_missing(tmp_path: Path, cell: str) -> None:
    (tmp_path / "a.csv").write_text(f"a,b\n1,{cell}\n{cell},2\n")
    source = open_source(tmp_path / "a.csv")
    np.testing.assert_array_equal(source.X, [[1, np.nan], [np.nan, 2]])
    assert source.has_missing


@pytest.mark.parametrize(
    "text",
    [
        b"a,b\r\n1,2\r\n3,4\r\n",
        b"a,b\n1,2\n3,4",
        b"\xef\xbb\xbfa,b\n1,2\n3,4\n",
        b'"a","b"\n"1","2"\n 3 ,+4.0e0\n',
        b"\n\na,b\n\n1,2\n\n3,4\n\n",
    ],
    ids=["windows", "no last newline", "byte order mark", "quotes and spaces", "blank lines"],
)
def test_ways_to_write_a_csv_are_the_same_table(tmp_path: Path, text: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(text)
    source = open_source(tmp_path / "a.csv")
    assert source.names == ("a", "b")
    np.testing.assert_array_equal(source.X, [[1, 2], [3, 4]])


def test_a_gzip_of_several_members_is_read_to_its_end(tmp_path: Path) -> None:
    path = tmp_path / "a.csv.gz"
    path.write_bytes(gzip.compress(b"a,b\n1,2\n") + gzip.compress(b"3,4\n"))
    np.testing.assert_array_equal(open_source(path).X, [[1, 2], [3, 4]])


def test_a_csv_of_very_wide_rows_is_read(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((3, 70_000))
    (tmp_path / "a.csv").write_text(csv_text(X, names_of(70_000)))
    assert (tmp_path / "a.csv").stat().st_size > 3 << 20
    np.testing.assert_array_equal(open_source(tmp_path / "a.csv").X, X)


@pytest.mark.parametrize("name", NAMED)
def test_columns_are_taken_in_the_order_asked_for(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    WRITERS[name](path, TABLE)
    assert column_names(path) == ("x0", "x1", "x2")
    source = open_source(path, columns=["x2", "x0"])
    assert source.names == ("x2", "x0")
    np.testing.assert_array_equal(dense(source), TABLE[:, [2, 0]])


@pytest.mark.parametrize("name", sorted(set(WRITERS) - set(NAMED)))
def test_columns_cannot_be_chosen_where_they_have_no_names(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, TABLE)
    assert column_names(tmp_path / name) is None
    with pytest.raises(InputError, match="does not name its columns"):
        open_source(tmp_path / name, columns=["x0"])


@pytest.mark.parametrize("kind", ["csv", "parquet"])
@pytest.mark.parametrize("small", [True, False])
def test_an_id_column_names_the_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    path = tmp_path / f"a.{kind}"
    ids = ["é", 'NA with "quotes"', "NA", "1"]
    if kind == "csv":
        quoted = [f'"{name.replace(chr(34), chr(34) * 2)}"' for name in ids]
        path.write_text(csv_text(TABLE, names_of(3), quoted), encoding="utf-8")
    else:
        columns = dict(zip(names_of(3), TABLE.T.copy(), strict=True))
        pq.write_table(pa.table({"x0": columns["x0"], "id": ids, **columns}), path)
    table = open_table(path, id_column="id")
    assert table.row_ids == tuple(ids)
    assert table.source.names == ("x0", "x1", "x2")
    np.testing.assert_array_equal(table.source.X, TABLE)
    chosen = open_table(path, id_column="id", columns=["x1"])
    assert chosen.row_ids == tuple(ids)
    np.testing.assert_array_equal(chosen.source.X, TABLE[:, [1]])


def test_text_that_is_not_asked_for_does_no_harm(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_bytes(b"place,a\nK\xf6ln,1\nBonn,2\n")
    np.testing.assert_array_equal(open_source(tmp_path / "a.csv", columns=["a"]).X, [[1], [2]])


def test_a_column_without_a_name_can_name_the_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text(",a\n0,1.5\n1,2.5\n")
    table = open_table(tmp_path / "a.csv", id_column="")
    assert table.row_ids == ("0", "1")
    np.testing.assert_array_equal(table.source.X, [[1.5], [2.5]])


@pytest.mark.parametrize("values", [pa.array([7, 8]), pa.array(["7", "8"]).dictionary_encode()])
def test_parquet_ids_may_be_whole_numbers_or_categories(tmp_path: Path, values: Any) -> None:
    pq.write_table(pa.table({"id": values, "a": [1.0, 2.0]}), tmp_path / "a.parquet")
    assert open_table(tmp_path / "a.parquet", id_column="id").row_ids == ("7", "8")


@pytest.mark.parametrize("small", [True, False])
@pytest.mark.parametrize("name", ["dense.h5ad", "csr.h5ad"])
def test_rows_of_anndata_have_their_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str, small: bool
) -> None:
    if not small:
        monkeypatch.setattr(store, "_SMALL_BYTES", 1)
        monkeypatch.setattr(csr, "_PART_ENTRIES", 2)
    WRITERS[name](tmp_path / name, TABLE)
    assert open_table(tmp_path / name).row_ids == tuple(ids_of(4))


def test_names_of_anndata_may_be_stored_with_a_mask(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_h5ad(path, TABLE)
    with h5py.File(path, "r+") as file:
        del file["var/_index"]
        file["var/_index/values"] = np.array(["a", "b", "c"], dtype=object)
        file["var/_index/mask"] = np.zeros(3, bool)
    assert column_names(path) == ("a", "b", "c")


@pytest.mark.parametrize(
    ("chunks", "step"), [(None, 2), ((1, 3), 2), ((4, 3), 4), ((6, 3), 2), ((2, 1), 2)]
)
def test_blocks_of_anndata_are_whole_chunks_unless_those_are_large(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunks: Any, step: int
) -> None:
    monkeypatch.setattr(h5ad, "BLOCK_BYTES", 24)
    monkeypatch.setattr(npy, "BLOCK_BYTES", 48)
    X = np.arange(36.0).reshape(12, 3)
    write_h5ad(tmp_path / "a.h5ad", X, chunks=chunks)
    blocks = [block.rows for block in h5ad.read_h5ad_blocks(tmp_path / "a.h5ad", names_of(3))]
    assert len(blocks[0]) == step
    np.testing.assert_array_equal(np.vstack(blocks), X)


def test_arrays_of_the_second_version_of_the_format_are_read(tmp_path: Path) -> None:
    for name in ("a.npy", "a.npz"):
        with io.BytesIO() as file:
            np.lib.format.write_array(file, TABLE, version=(2, 0))
            data = file.getvalue()
        if name == "a.npy":
            (tmp_path / name).write_bytes(data)
        else:
            with zipfile.ZipFile(tmp_path / name, "w") as archive:
                archive.writestr("X.npy", data)
        np.testing.assert_array_equal(open_source(tmp_path / name).X, TABLE)


def test_a_parquet_with_empty_row_groups_is_read(tmp_path: Path) -> None:
    table = pa.table({"a": [1.0, 2.0]})
    with pq.ParquetWriter(tmp_path / "a.parquet", table.schema) as writer:
        for part in (table[:0], table[:1], table[:0], table[1:]):
            writer.write_table(part)
    np.testing.assert_array_equal(open_source(tmp_path / "a.parquet").X, [[1], [2]])


def test_entries_that_are_stored_twice_are_added(tmp_path: Path) -> None:
    X = sparse.csr_array(([1.0, 2.0, 4.0], [1, 0, 1], [0, 3]), shape=(1, 2))
    write_h5ad(tmp_path / "a.h5ad", X)
    source = open_source(tmp_path / "a.h5ad")
    assert source.X.nnz == 2
    np.testing.assert_array_equal(dense(source), [[2, 5]])


def test_rows_of_libsvm_may_have_comments_queries_and_nothing(tmp_path: Path) -> None:
    path = tmp_path / "a.svm"
    path.write_text("# made up\n+1 qid:3 1:0.5 3:nan # first\n\n-1\n0.5 2:1e3\n")
    source = open_source(path)
    np.testing.assert_array_equal(dense(source), [[0.5, 0, np.nan], [0, 0, 0], [0, 1000, 0]])
    assert open_source(path, n_features=7).d == 7


def test_rows_of_libsvm_may_have_several_labels_or_none(tmp_path: Path) -> None:
    (tmp_path / "a.svm").write_text("1,4 1:0.5\n2:1\n")
    np.testing.assert_array_equal(dense(open_source(tmp_path / "a.svm")), [[0.5, 0], [0, 1]])


def test_a_libsvm_file_may_grow_wider_from_part_to_part(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(svm, "_PART_BYTES", 1)
    path = tmp_path / "a.svm"
    path.write_text("1\n1 2:2\n1 4:4\n1 1:1\n")
    wanted = [[0, 0, 0, 0], [0, 2, 0, 0], [0, 0, 0, 4], [1, 0, 0, 0]]
    np.testing.assert_array_equal(dense(open_source(path)), wanted)
    monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    np.testing.assert_array_equal(dense(open_source(path)), wanted)


def test_a_large_libsvm_file_is_read_in_parts(tmp_path: Path) -> None:
    X = np.random.default_rng(0).standard_normal((6000, 20))
    X[:, 19] = np.arange(6000) == 5999
    WRITERS["rows.svm"](tmp_path / "a.svm", X)
    assert (tmp_path / "a.svm").stat().st_size > 2 << 20
    np.testing.assert_array_equal(dense(open_source(tmp_path / "a.svm")), X)


def test_a_path_may_be_text_or_any_path(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", TABLE)

    class Place(os.PathLike[str]):
        def __fspath__(self) -> str:
            return str(tmp_path / "a.npy")

    for path in (str(tmp_path / "a.npy"), tmp_path / "a.npy", Place()):
        assert open_source(path).n == 4


def test_a_table_does_not_print_its_rows(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("id,a\nalice,12345.5\n")
    shown = repr(open_table(tmp_path / "a.csv", id_column="id"))
    assert "12345" not in shown
    assert "alice" not in shown
