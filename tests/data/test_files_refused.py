"""A file that cannot be used is refused: which file, what is wrong, what to do, and no value."""

import builtins
import gzip
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from eigenfed.data.files import column_names, open_source, open_table, read_labels
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers import csv, h5ad, npz, svm
from eigenfed.errors import DataError, EigenfedError, InputError
from table_files import WRITERS, names_of, write_h5ad, write_parquet

SECRET = "4711.25"
TABLE = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]])
LONG = "a,b\n" + "1.5,2.5\n" * 300_000


def refused(path: Path, what: str, kind: type[EigenfedError], **options: Any) -> None:
    """The message names the file, says `what`, ends with what to do, and quotes no cell."""
    with pytest.raises(EigenfedError) as caught:
        open_table(path, **options)
    message = str(caught.value)
    assert type(caught.value) is kind
    assert path.name in message
    assert what in message
    assert re.search(r"\. [A-Z][^.]*( [^ ]+)*\.$", message)
    assert SECRET not in message
    assert "\n" not in message
    assert caught.value.__cause__ is None
    shown = caught.value.__context__
    assert shown is None or caught.value.__suppress_context__
    assert SECRET not in str(shown)


@pytest.mark.parametrize("name", WRITERS)
def test_a_missing_file_is_said_to_be_missing(tmp_path: Path, name: str) -> None:
    refused(tmp_path / name, "does not exist. Check the path.", InputError)
    with pytest.raises(InputError, match="does not exist"):
        column_names(tmp_path / name)


@pytest.mark.parametrize("name", WRITERS)
def test_a_folder_is_no_file(tmp_path: Path, name: str) -> None:
    (tmp_path / name).mkdir()
    refused(tmp_path / name, "is a folder. Pass a file.", InputError)


def test_a_file_that_may_not_be_read_is_said_to_be_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: Any, **__: Any) -> None:
        raise PermissionError(13, "Permission denied")

    (tmp_path / "a.csv").write_text("a\n1\n")
    monkeypatch.setattr(Path, "open", forbidden)
    refused(tmp_path / "a.csv", "Permission denied: ", InputError)


@pytest.mark.parametrize("name", ["a.txt", "a", "a.gz", "a.xls", "csv", "a.csv.zip"])
def test_other_kinds_are_refused_with_those_that_are_read(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text("a,b\n1,2\n")
    refused(
        tmp_path / name,
        "is of an unknown kind. Convert it to one of .npy, .npz, .csv, ",
        InputError,
    )


def test_a_summary_is_not_taken_for_rows(tmp_path: Path) -> None:
    (tmp_path / "a.summary").write_bytes(b"")
    refused(
        tmp_path / "a.summary", "is a summary, and holds no rows. Use eigenfed merge", InputError
    )


@pytest.mark.parametrize("name", WRITERS)
def test_an_empty_file_is_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    path.write_bytes(gzip.compress(b"") if name.endswith(".gz") else b"")
    with pytest.raises(DataError, match=re.escape(str(path))):
        open_source(path)


@pytest.mark.parametrize("name", [n for n in WRITERS if not n.lower().endswith(("csv", "svm"))])
@pytest.mark.parametrize("kept", [0.3, 0.6, 0.95])
def test_a_file_that_is_cut_short_is_refused(tmp_path: Path, name: str, kept: float) -> None:
    path = tmp_path / name
    WRITERS[name](path, np.random.default_rng(0).standard_normal((500, 4)))
    whole = path.read_bytes()
    path.write_bytes(whole[: int(kept * len(whole))])
    with pytest.raises(DataError, match=re.escape(str(path))):
        open_source(path)


@pytest.mark.parametrize("name", WRITERS)
def test_bytes_of_another_kind_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x93NUMPX" + bytes(range(256)) * 40)
    with pytest.raises(EigenfedError, match=re.escape(str(tmp_path / name))):
        open_source(tmp_path / name)


@pytest.mark.parametrize(
    ("text", "what", "kind"),
    [
        ("a,b\n", "has a line of names and no rows", DataError),
        ("a,b\n\n\n", "has a line of names and no rows", DataError),
        ("\n\n", "is empty", DataError),
        ("1,2\n3,4\n", "has numbers in its first line", DataError),
        (f"{SECRET}\n1\n", "has numbers in its first line", DataError),
        ("1,,NA\n1,2,3\n", "has numbers in its first line", DataError),
        ("a,b,a\n1,2,3\n", "has the column 'a' more than once. Rename all but one.", DataError),
        (",a\n0,1\n", "has a column without a name: column 1", DataError),
        (
            "b,,a\n0,1,2\n",
            "has a column without a name: column 2. Name it, or pass exclude=['']",
            DataError,
        ),
        ("b,,,a\n0,1,2,3\n", "has 2 columns without a name: columns 2, 3. Name them", DataError),
        ('a,"b\n1,2\n', "has an open quote or a carriage return in its line of names", DataError),
        (f"a,b\n1,2\n{SECRET}\n", "has 1 cell in row 2, and 2 columns", DataError),
        (f"a,b\n1,2\n1,2,{SECRET}\n", "has 3 cells in row 2, and 2 columns", DataError),
        (f"{LONG}{SECRET}\n", "has 1 cell in row 300001, and 2 columns", DataError),
        ("a,b\n1,inf\n", "holds infinity in row 1 of 'b'", DataError),
        ("a,b\n1,2\n-Infinity,2\n", "holds infinity in row 2 of 'a'", DataError),
        ("a,b\n1,2\n3,1e999\n", "holds infinity in row 2 of 'b'", DataError),
        (f"{LONG}1,inf\n", "holds infinity in row 300001 of 'b'", DataError),
        (f"a,b\nx{SECRET},y\n", "has no column of numbers", InputError),
        (
            f"a,b,c\nx{SECRET},1,\n,2,y\n",
            "do not hold numbers: 'a', 'c'. Pass exclude=[...]",
            InputError,
        ),
        (f"a,b\n1,2\n3,x{SECRET}\n", "has text in row 2 of 'b', a column of numbers", InputError),
        (f"{LONG}x{SECRET},1\n", "has text in row 300001 of 'a', a column of", InputError),
        (f"{LONG}1.5\u0661,x{SECRET}\n", "has text in row 300001 of 'a'", InputError),
        ("a,b\n1,true\n", "do not hold numbers: 'b'", InputError),
        ("a,b\n1,0x10\n", "do not hold numbers: 'b'", InputError),
        (f'a,b\n1,"2\n3,{SECRET}\n', "do not hold numbers: 'b'", InputError),
    ],
)
def test_a_csv_that_is_no_table_of_numbers_is_refused(
    tmp_path: Path, text: str, what: str, kind: type[EigenfedError]
) -> None:
    path = tmp_path / "a.csv"
    path.write_text(text, encoding="utf-8")
    refused(path, what, kind)
    compressed = tmp_path / "a.csv.gz"
    compressed.write_bytes(gzip.compress(text.encode(), compresslevel=1))
    refused(compressed, what, kind)


@pytest.mark.parametrize(
    "data",
    [
        f"a,b\n1,ä{SECRET}\n".encode("latin-1"),
        b"a\xe9,b\n1,2\n",
        "a,b\n1,2\n".encode("utf-16"),
        "a,b\n1,2\n".encode("utf-16-le"),
        LONG.encode() + b"1,\xff\n",
    ],
)
def test_text_that_is_not_utf8_is_said_to_be_so(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "a.csv").write_bytes(data)
    refused(tmp_path / "a.csv", "is not UTF-8 text", DataError)


@pytest.mark.parametrize("change", [lambda b: b[:-4000], lambda b: b[:-8] + bytes(8)])
def test_a_damaged_gzip_is_said_to_be_so(tmp_path: Path, change: Callable[[bytes], bytes]) -> None:
    noise = np.random.default_rng(0).standard_normal((3000, 2)).tolist()
    text = "a,b\n" + "\n".join(f"{x},{y}" for x, y in noise)
    (tmp_path / "a.csv.gz").write_bytes(change(gzip.compress(text.encode())))
    refused(tmp_path / "a.csv.gz", "is damaged or incomplete", DataError)


def test_a_line_without_end_is_not_read_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(csv, "LONGEST_LINE", 1 << 20)
    monkeypatch.setattr(svm, "_LONGEST", 1 << 20)
    for name in ("a.csv", "a.svm"):
        (tmp_path / name).write_bytes(b"1" * (2 << 20))
        refused(tmp_path / name, "has a line of more than 1 MB", DataError)


def test_a_row_far_longer_than_the_first_is_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,b\n" + "1,2\n" * 60 + f"{'0' * (3 << 20)}{SECRET},2\n")
    refused(tmp_path / "a.csv", "cannot be read as a table", DataError)


@pytest.mark.parametrize(
    ("last", "what"),
    [("", "cannot be read as a table"), ("1\n", "has 1 cell in row 300003, and 2 columns")],
)
def test_a_cell_that_only_pyarrow_takes_for_text_is_refused_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, last: str, what: str
) -> None:
    monkeypatch.setattr(csv, "is_number", lambda cell, _: re.fullmatch(r"-?[\dx.]+", cell))
    (tmp_path / "a.csv").write_text(f"a,b\n1,2\n3,x{SECRET}\n{LONG[4:]}{last}")
    refused(tmp_path / "a.csv", what, DataError)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("id,a\nx,1\ny,2\nx,3\n", "has the same id in 'id' in the rows 1 and 3"),
        ("id,a\nx,1\n,2\n", "lacks the id of row 2"),
        ('id,a\n"x\ny",1\nz,2\n', "has a line break in the id of row 1"),
    ],
)
def test_ids_that_do_not_name_each_row_are_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "a.csv").write_text(text)
    refused(tmp_path / "a.csv", what, DataError, id_column="id")


def test_ids_of_parquet_must_name_each_row(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    for ids, what, kind in (
        (["x", "x"], "has the same id in 'id' in the rows 1 and 2", DataError),
        (["x", None], "lacks the id of row 2", DataError),
        (["x", ""], "lacks the id of row 2", DataError),
        ([1.5, 2.5], "has neither text nor integers in the id_column 'id'", InputError),
    ):
        pq.write_table(pa.table({"id": ids, "a": [1.0, 2.0]}), path)
        refused(path, what, kind, id_column="id")


@pytest.mark.parametrize("kind", ["csv", "parquet", "h5ad"])
def test_columns_that_cannot_be_chosen_are_refused(tmp_path: Path, kind: str) -> None:
    path = tmp_path / f"table.{kind}"
    WRITERS[f"{'dense' if kind == 'h5ad' else 'table'}.{kind}"](path, TABLE)
    refused(path, "lacks the column 'y'. Check the spelling.", InputError, columns=["x0", "y"])
    refused(path, "name 'x0' more than once", InputError, columns=["x0", "x0"])
    refused(path, "columns is empty", InputError, columns=[])
    with pytest.raises(InputError, match=r"columns='x0' must be a list of names. Pass \['x0'\]"):
        open_source(path, columns="x0")
    if kind == "h5ad":
        refused(
            path,
            "id_column requires a file of kind .csv, .csv.gz, .tsv, .tsv.gz, .xlsx, .parquet",
            InputError,
            id_column="x0",
        )
    else:
        refused(path, "lacks the column 'id'", InputError, id_column="id")
        refused(path, "name 'x0' more than once", InputError, columns=["x0"], id_column="x0")


def test_absent_columns_are_named_in_the_order_of_the_request(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("a,b\n1,2\n")
    wanted = ["z", "y", "x", "a", "w"]
    refused(path, "lacks the columns 'z', 'y', 'x', 'w'. Check", InputError, columns=wanted)


@pytest.mark.parametrize("name", ["a.csv", "a.csv.gz"])
def test_columns_that_are_left_out_need_no_name_of_their_own(tmp_path: Path, name: str) -> None:
    text = b"a,,b,,b\n1,x,2,,3\n4,,5,y,6\n"
    (tmp_path / name).write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    options = ReadOptions(exclude=["", "b"])
    assert open_source(tmp_path / name, options=options).X.tolist() == [[1.0], [4.0]]
    with pytest.raises(DataError, match=r"has the column 'b' more than once. Rename all but one"):
        open_source(tmp_path / name, options=ReadOptions(exclude=[""]))


def test_one_column_more_or_less_is_counted_in_words(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("# a title\na,b\n1,2\n")
    refused(tmp_path / "a.csv", "has 2 cells in row 1, and 1 column. Correct", DataError)


def test_labels_of_an_absent_column_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("a,group\n1,x\n2,y\n")
    with pytest.raises(InputError, match=r"a\.csv lacks the column 'grup'. Check the spelling."):
        read_labels(tmp_path / "a.csv", "grup", "a")


def test_options_go_with_their_kind_of_file(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", TABLE)
    refused(tmp_path / "a.npy", "n_features requires a .svm file", InputError, n_features=3)
    refused(tmp_path / "a.npy", "id_column requires", InputError, id_column="x")
    WRITERS["rows.svm"](tmp_path / "a.svm", TABLE)
    with pytest.raises(InputError, match="n_features=0 must be"):
        open_source(tmp_path / "a.svm", n_features=0)
    refused(tmp_path / "a.svm", "index 2, which is above n_features=1", InputError, n_features=1)


@pytest.mark.parametrize(
    ("columns", "what", "kind"),
    [
        ({"a": ["x"], "b": [1.0]}, "do not hold numbers: 'a'", InputError),
        ({"a": ["x"], "b": [[1.0]]}, "has no column of numbers", InputError),
        ({"a": [1.0], "b": [np.inf]}, "holds infinity in row 1 of 'b'", DataError),
        ({"a": pa.array([], pa.float64())}, "has no rows", DataError),
        ({}, "has no column with numbers", DataError),
    ],
)
def test_a_parquet_that_is_no_table_of_numbers_is_refused(
    tmp_path: Path, columns: dict[str, Any], what: str, kind: type[EigenfedError]
) -> None:
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", what, kind)


def test_a_parquet_with_a_column_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array([1.0]), pa.array([2.0])], names=["a", "a"])
    pq.write_table(table, tmp_path / "a.parquet")
    refused(
        tmp_path / "a.parquet", "has the column 'a' more than once. Rename all but one.", DataError
    )


def test_the_index_of_a_pandas_frame_is_no_feature(tmp_path: Path) -> None:
    pd = pytest.importorskip("pandas")
    path = tmp_path / "a.parquet"
    pd.DataFrame({"a": [1.0, 2.0]}, index=[10, 20]).to_parquet(path)
    refused(path, "keeps the index of a pandas frame in '__index_level_0__'", InputError)
    assert open_table(path, id_column="__index_level_0__").row_ids == ("10", "20")
    assert open_source(path, columns=["a"]).d == 1
    pd.DataFrame({"a": [1.0, 2.0]}).to_parquet(path)
    assert open_source(path).names == ("a",)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("1 1:2\n1 0:2\n", "that increase from 1 to at most 2147483647, in line 2"),
        ("1 1:2\n\n1 2:1 2:2\n", "in line 3. Correct that line"),
        ("1 3:1 2:2\n", "in line 1. Correct that line"),
        ("1 9999999999:1\n", "in line 1. Correct that line"),
        ("1 1:2\n" * 300_000 + "1 2147483648:1\n", "in line 300001. Correct that line"),
        (f"1 1:{SECRET}:2\n", "has no row of the form 'label index:value ...', with"),
        (f"1 1:2 {SECRET}\n", "has no row of the form 'label index:value ...', with"),
        (f"1:2 2:x{SECRET}\n", "has no row of the form 'label index:value ...', with"),
        (f"1 1:2\n1 1:x{SECRET}\n", "in line 2. Correct that line"),
        ("1 1:1_0\n", "has no row of the form"),
        (f"x{SECRET} 1:1\n", "has no row of the form"),
        (f"1 {SECRET}:1\n", "has no row of the form"),
        ("1 1:2\n1 1:2 2:inf\n", "holds infinity in row 2 of column 2"),
        ("1\n2\n", "names no feature in any row"),
        ("# nothing\n", "names no feature in any row"),
    ],
)
def test_lines_that_are_not_of_libsvm_are_refused(tmp_path: Path, text: str, what: str) -> None:
    (tmp_path / "a.svm").write_text(text)
    refused(tmp_path / "a.svm", what, DataError)


@pytest.mark.parametrize("kind", ["npy", "npz"])
@pytest.mark.parametrize(
    ("X", "what"),
    [
        (np.ones(3), "holds an array of shape (3,)"),
        (np.ones((2, 0)), "holds an array of shape (2, 0)"),
        (np.ones((0, 2)), "has no rows"),
        (np.array([["a"]]), "holds numbers of dtype <U1"),
        (np.array([[1j]]), "holds numbers of dtype complex128"),
        (np.array([[1.0, np.inf]]), "holds infinity"),
        (np.array([[None]]), "file of numbers. Write it again"),
    ],
)
def test_arrays_that_are_no_tables_are_refused(
    tmp_path: Path, kind: str, X: Any, what: str
) -> None:
    path = tmp_path / f"a.{kind}"
    if kind == "npy":
        np.save(path, X)
    else:
        np.savez(path, X)
    refused(path, what, DataError)


def test_an_archive_must_hold_one_table(tmp_path: Path) -> None:
    np.savez(tmp_path / "a.npz", a=TABLE, b=TABLE)
    refused(tmp_path / "a.npz", "holds 2 arrays, and must hold one table", DataError)
    np.savez(tmp_path / "a.npz", format=np.array("csr"), shape=np.array([1, 1]))
    refused(tmp_path / "a.npz", "is not a complete .npz file of numbers", DataError)


@pytest.mark.parametrize("kind", ["npz", "h5ad"])
@pytest.mark.parametrize(
    "change",
    [
        {"indices": np.array([0, 9, 1])},
        {"indices": np.array([0, -1, 1])},
        {"indices": np.array([0.0, 1.0, 1.0])},
        {"indptr": np.array([0, 2, 1, 3])},
        {"indptr": np.array([0.0, 1.0, 2.0, 3.0])},
        {"indptr": np.array([1, 2, 3, 3])},
        {"indptr": np.array([0, 2, 3])},
        {"indptr": np.array([0, 2, 3, 9])},
        {"data": np.array([1.0])},
    ],
)
def test_sparse_parts_that_do_not_fit_are_refused(
    tmp_path: Path, kind: str, change: dict[str, Any]
) -> None:
    X = sparse.csr_array(([1.0, 2.0, 3.0], [0, 1, 1], [0, 1, 2, 3]), shape=(3, 2))
    path = tmp_path / f"a.{kind}"
    if kind == "npz":
        parts = {"data": X.data, "indices": X.indices, "indptr": X.indptr, **change}
        np.savez(path, allow_pickle=False, format=np.array("csr"), shape=X.shape, **parts)
    else:
        write_h5ad(path, X)
        with h5py.File(path, "r+") as file:
            for part, values in change.items():
                del file["X"][part]
                file["X"][part] = values
    with pytest.raises(DataError, match=re.escape(str(path))):
        open_source(path)


@pytest.mark.parametrize("kind", ["npz", "h5ad"])
def test_sparse_columns_that_point_nowhere_are_refused(tmp_path: Path, kind: str) -> None:
    X = sparse.csc_array(TABLE)
    X.indices[0] = 99
    path = tmp_path / f"a.{kind}"
    if kind == "npz":
        sparse.save_npz(path, X)
    else:
        write_h5ad(path, X)
    with pytest.raises(DataError, match=re.escape(str(path))):
        open_source(path)


def test_large_tables_stored_by_column_are_refused_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(npz, "_SMALL_BYTES", 1)
    monkeypatch.setattr(h5ad, "_SMALL_BYTES", 1)
    for name, what in {
        "csc.npz": "that is not stored by rows. Save its .tocsr()",
        "columns.npz": "holds a large array in column order. Save it in row order",
        "csc.h5ad": "stores a large X by column (csc). Write it again with adata.X.tocsr()",
    }.items():
        WRITERS[name](tmp_path / name, TABLE)
        refused(tmp_path / name, what, DataError)


def edited(change: Callable[[Any], None]) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        write_h5ad(path, TABLE)
        with h5py.File(path, "r+") as file:
            change(file)

    return write


def without(name: str) -> Callable[[Any], None]:
    return lambda file: file.__delitem__(name)


@pytest.mark.parametrize(
    ("write", "what"),
    [
        (edited(without("X")), "has no X"),
        (edited(without("obs")), "of anndata 0.7 or later. If anndata can read it, read it and"),
        (edited(without("var")), "is not a complete .h5ad file"),
        (edited(without("obs")), "is not a complete .h5ad file"),
        (edited(without("var/_index")), "is not a complete .h5ad file"),
        (edited(lambda file: file["obs"].attrs.clear()), "is not a complete .h5ad file"),
        (lambda path: write_h5ad(path, TABLE, ["g", "g"]), "has the column 'g' more than once"),
        (lambda path: write_h5ad(path, TABLE, ["a", "b", "c"]), "is not a complete .h5ad file"),
        (lambda path: write_h5ad(path, np.array([[0, np.inf]])), "holds infinity in row 1 of 'x1'"),
        (
            lambda path: write_h5ad(path, sparse.coo_array(TABLE).tobsr()),
            "is not a complete .h5ad file",
        ),
        (
            lambda path: write_h5ad(path, sparse.csr_array(TABLE), ["a", "b", "c"]),
            "is not a complete .h5ad file",
        ),
        (lambda path: write_h5ad(path, TABLE[:0]), "has no rows"),
        (lambda path: write_h5ad(path, TABLE * 1j), "holds numbers of dtype complex128"),
    ],
)
def test_anndata_without_a_table_is_refused(
    tmp_path: Path, write: Callable[[Path], None], what: str
) -> None:
    write(tmp_path / "a.h5ad")
    refused(tmp_path / "a.h5ad", what, DataError)


def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    WRITERS["csr.h5ad"](tmp_path / "a.h5ad", TABLE)
    monkeypatch.setitem(sys.modules, "h5py", None)
    what = "needs the package h5py, which is not installed. Run pip install 'eigenfed[anndata]'"
    refused(tmp_path / "a.h5ad", what, InputError)


def test_nothing_is_ever_unpickled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Trap:
        def __reduce__(self) -> Any:
            return builtins.exec, ("import builtins; builtins.sprung = True",)

    monkeypatch.setattr(builtins, "sprung", False, raising=False)
    trap = np.array([[Trap()]], dtype=object)
    np.save(tmp_path / "a.npy", trap)
    np.savez(tmp_path / "a.npz", trap)
    np.savez(tmp_path / "b.npz", format=trap)
    np.savez(tmp_path / "c.npz", format=np.array("csr"), indptr=trap)
    for name in ("a.npy", "a.npz", "b.npz", "c.npz"):
        refused(tmp_path / name, "file of numbers. Write it again", DataError)
    assert not vars(builtins)["sprung"]


def test_a_disk_that_fails_is_not_blamed_on_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> Any:
        raise OSError(5, "Input/output error")

    WRITERS["rows.svm"](tmp_path / "a.svm", TABLE)
    monkeypatch.setattr(svm, "_parse_lines", fails)
    refused(tmp_path / "a.svm", "cannot be read to its end. Check the disk", DataError)


def test_many_columns_are_listed_by_the_first_few(tmp_path: Path) -> None:
    columns = {name: ["x"] for name in names_of(9)} | {"a": [1.0]}
    pq.write_table(pa.table(columns), tmp_path / "a.parquet")
    refused(tmp_path / "a.parquet", "'x0', 'x1', 'x2', 'x3', 'x4' and 4 more", InputError)


def test_written_tables_are_what_the_reader_of_pyarrow_sees(tmp_path: Path) -> None:
    """The oracle itself: a table written here and read by another reader is the same."""
    for write, read in (
        (WRITERS["table.csv"], pyarrow.csv.read_csv),
        (write_parquet, pq.read_table),
    ):
        write(tmp_path / "a", TABLE)
        np.testing.assert_array_equal(np.column_stack(list(read(tmp_path / "a"))), TABLE)
