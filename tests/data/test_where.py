"""Row filters: the same rows from every kind of file that names its columns, block by block."""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data import cache as store
from eigenfed.data.files import open_source, open_table
from eigenfed.data.readers import csv, h5ad, npy, parquet
from eigenfed.data.row_filter import Condition
from eigenfed.errors import DataError, InputError
from table_files import csv_text, ids_of, names_of, write_h5ad

N, D = 900, 4
rng = np.random.default_rng(5)
X = rng.standard_normal((N, D)).round(6)
AGE = rng.integers(0, 90, N).astype(float)
AGE[::7] = np.nan
COHORT = rng.integers(0, 3, N).astype(float)
WHERE = ["age >= 18", "cohort != 2", "x1 < 0.5"]
KEPT = (AGE >= 18) & (COHORT != 2) & (X[:, 1] < 0.5)


def write_csv(path: Path, also: dict[str, Array]) -> None:
    table = np.column_stack([X, *also.values()])
    path.write_text(csv_text(table, [*names_of(D), *also], ids_of(N)))


def write_parquet(path: Path, also: dict[str, Array]) -> None:
    columns: dict[str, Any] = {"id": ids_of(N)}
    columns |= dict(zip(names_of(D), X.T.copy(), strict=True))
    # NaN and null are both missing.
    columns |= {name: pa.array(values, from_pandas=True) for name, values in also.items()}
    pq.write_table(pa.table(columns), path, row_group_size=70)


def write_annotated(path: Path, also: dict[str, Array], rows: Any = X) -> None:
    write_h5ad(path, rows)
    with h5py.File(path, "r+") as file:
        for name, values in also.items():
            file["obs"][name] = values


WRITERS: dict[str, Callable[[Path, dict[str, Array]], None]] = {
    "a.csv": write_csv,
    "a.parquet": write_parquet,
    "a.h5ad": write_annotated,
    "sparse.h5ad": lambda path, also: write_annotated(path, also, sparse.csr_array(X)),
}


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Blocks of some ten rows, so that a filter meets many of them."""
    monkeypatch.setattr(npy, "BLOCK_BYTES", 400)
    monkeypatch.setattr(h5ad, "BLOCK_BYTES", 400)
    monkeypatch.setattr(csv, "_BLOCK_BYTES", 600)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("is_small", [True, False])
@pytest.mark.parametrize("name", WRITERS)
def test_every_kind_keeps_the_same_rows_with_their_ids(
    tmp_path: Path, name: str, is_small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not is_small:
        monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    path = tmp_path / name
    WRITERS[name](path, {"age": AGE, "cohort": COHORT})
    where = WHERE if "h5ad" not in name else WHERE[:2]
    kept = KEPT if "h5ad" not in name else (AGE >= 18) & (COHORT != 2)
    id_column = None if "h5ad" in name else "id"
    table = open_table(path, columns=["x2", "x0"], id_column=id_column, where=where)
    found: Any = table.source.X
    is_sparse: bool = sparse.issparse(found)
    np.testing.assert_array_equal(found.toarray() if is_sparse else found, X[kept][:, [2, 0]])
    assert table.row_ids == tuple(np.array(ids_of(N))[kept])
    assert 0 < kept.sum() < N


@pytest.mark.parametrize(
    ("sign", "held"),
    [
        ("<", [True, False, False]),
        ("<=", [True, True, False]),
        ("==", [False, True, False]),
        ("!=", [True, False, True]),
        (">=", [False, True, True]),
        (">", [False, False, True]),
    ],
)
def test_signs_mean_what_they_say_and_a_missing_entry_never_holds(
    sign: str, held: list[bool]
) -> None:
    condition = Condition.of(f" my age{sign}-1.5e1 ")
    assert (condition.column, condition.number) == ("my age", -15.0)
    assert condition.holds(np.array([-16.0, -15.0, 0.0, np.nan])).tolist() == [*held, False]


def test_a_column_with_a_sign_in_its_name_can_be_compared() -> None:
    assert Condition.of("a<b >= 3") == Condition("a<b", ">=", 3.0)


@pytest.mark.parametrize(
    "text",
    [
        "age",
        "age >= ",
        ">= 3",
        "age => old",
        "age => 18",
        "age =< 18",
        "age = 3",
        "age >= nan",
        "age > 1e999",
        3,
    ],
)
def test_what_is_no_condition_is_refused(tmp_path: Path, text: Any) -> None:
    write_csv(tmp_path / "a.csv", {})
    with pytest.raises(InputError, match=r"where has .* For example, write 'age >= 18'"):
        open_table(tmp_path / "a.csv", id_column="id", where=[text])


def test_one_condition_without_a_list_is_refused(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", {})
    with pytest.raises(InputError, match="must be a list of conditions"):
        open_table(tmp_path / "a.csv", id_column="id", where="x1 < 3")


def test_files_without_names_are_refused(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", X)
    with pytest.raises(InputError, match=r"a\.npy does not name its columns, and where cannot"):
        open_table(tmp_path / "a.npy", where=["x1 < 3"])


@pytest.mark.parametrize("name", WRITERS)
def test_an_absent_column_is_named(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, {"age": AGE})
    with pytest.raises(InputError, match=r"lacks the column 'agee' that where compares. Check"):
        open_table(tmp_path / name, where=["agee < 3"])


def test_the_column_of_ids_is_not_compared(tmp_path: Path) -> None:
    write_csv(tmp_path / "a.csv", {})
    with pytest.raises(InputError, match=r"where compares 'id' .* which is the id_column"):
        open_table(tmp_path / "a.csv", id_column="id", where=["id < 3"])


@pytest.mark.parametrize("name", ["a.csv", "a.parquet", "a.h5ad"])
def test_text_to_compare_is_refused_and_not_quoted(tmp_path: Path, name: str) -> None:
    path, secret = tmp_path / name, "Mrs Jones"
    if name == "a.csv":
        path.write_text(f"x0,sex\n1.5,1\n2.5,{secret}\n")
    elif name == "a.parquet":
        pq.write_table(pa.table({"x0": [1.5], "sex": [secret]}), path)
    else:
        write_h5ad(path, X)
        with h5py.File(path, "r+") as file:
            file["obs"]["sex"] = [secret.encode()] * N
    with pytest.raises(
        InputError, match=r"where compares 'sex' in .* Compare a column of"
    ) as caught:
        open_table(path, columns=["x0"], where=["sex == 1"])
    assert "Jones" not in str(caught.value)
    assert caught.value.__cause__ is None


def test_a_feature_with_text_is_still_told_as_a_feature(tmp_path: Path) -> None:
    (tmp_path / "a.csv").write_text("x0,name,age\n1.5,Ann,3\n2.5,Bob,4\n")
    with pytest.raises(InputError, match="do not hold numbers: 'name'"):
        open_table(tmp_path / "a.csv", columns=["x0", "name"], where=["age > 3"])


@pytest.mark.parametrize("layout", ["group", "dataset"])
def test_codes_of_categories_are_not_compared(tmp_path: Path, layout: str) -> None:
    path = tmp_path / "a.h5ad"
    write_h5ad(path, X)
    with h5py.File(path, "r+") as file:
        codes = np.zeros(N, np.int8)
        if layout == "dataset":
            file["obs"]["cohort"] = codes
            file["obs"]["cohort"].attrs["categories"] = "elsewhere"
        else:
            group = file["obs"].create_group("cohort")
            group.attrs["encoding-type"] = "categorical"
            group["codes"] = codes
    with pytest.raises(InputError, match="the column does not hold numbers"):
        open_table(path, where=["cohort == 0"])


def test_a_masked_entry_of_anndata_is_missing(tmp_path: Path) -> None:
    path = tmp_path / "a.h5ad"
    write_h5ad(path, X[:3])
    with h5py.File(path, "r+") as file:
        group = file["obs"].create_group("cohort")
        group.attrs["encoding-type"] = "nullable-integer"
        group["values"], group["mask"] = [1, 1, 2], [False, True, False]
    assert open_table(path, where=["cohort >= 1"]).row_ids == ("row 0", "row 2")
    assert open_table(path, where=["cohort != 2"]).row_ids == ("row 0",)


@pytest.mark.parametrize("name", WRITERS)
def test_no_row_left_is_said(tmp_path: Path, name: str) -> None:
    WRITERS[name](tmp_path / name, {"age": AGE})
    with pytest.raises(InputError, match=r"^No row of .* fulfils where"):
        open_table(tmp_path / name, columns=["x0"], where=["age > 200"])
    empty = open_table(tmp_path / name, columns=["x0"], where=["age > 200"], may_be_empty=True)
    assert (empty.source.n, empty.source.d) == (0, 1)


def test_ids_need_to_differ_only_among_rows_that_are_taken(tmp_path: Path) -> None:
    path = tmp_path / "a.csv"
    path.write_text("id,visit,x\na,1,1.5\na,2,2.5\nb,1,3.5\nb,2,4.5\nb,2,5.5\n")
    table = open_table(path, columns=["x"], id_column="id", where=["visit == 1"])
    assert table.row_ids == ("a", "b")
    with pytest.raises(DataError, match="in the rows 4 and 5"):
        open_table(path, columns=["x"], id_column="id", where=["visit == 2"])


def test_infinity_counts_only_in_rows_that_are_taken_and_is_placed_in_the_file(
    tmp_path: Path,
) -> None:
    path = tmp_path / "a.csv"
    path.write_text("age,x\n10,inf\n20,1.5\n30,2.5\n40,inf\n")
    with pytest.raises(DataError, match="infinity in row 4 of 'x'"):
        open_source(path, columns=["x"], where=["age > 15"])
    assert open_source(path, columns=["x"], where=["age > 15", "age < 35"]).X.tolist() == [
        [1.5],
        [2.5],
    ]


def test_other_conditions_are_other_copies(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", 1)
    path = tmp_path / "a.csv"
    write_csv(path, {"age": AGE})
    sizes = {}
    for where in ([], ["age > 50"], ["age >= 50"], ["age > 51"]):
        table = open_table(path, columns=["x0"], where=where)
        assert table.cache == open_table(path, columns=["x0"], where=where).cache
        sizes[table.cache] = table.source.n
    assert len(sizes) == 4
    assert max(sizes.values()) == N


def test_parquet_reads_no_column_that_is_not_needed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_parquet(tmp_path / "a.parquet", {"age": AGE})
    asked: list[list[str]] = []
    blocks = parquet.read_parquet_blocks

    def noted(path: Path, header: Any, columns: list[str], id_column: str | None) -> Any:
        asked.append(list(columns))
        return blocks(path, header, columns, id_column)

    monkeypatch.setattr("eigenfed.data.files.read_parquet_blocks", noted)
    open_table(tmp_path / "a.parquet", columns=["x3"], where=["age > 50", "x3 < 9", "age < 60"])
    assert asked == [["x3", "age"]]


CHILD = """
import sys
from eigenfed.data import cache
from eigenfed.data.files import open_source

def most_resident_mb():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))

cache._SMALL_BYTES = 8 << 20
small, large = sys.argv[1:]
open_source(small, where=["age > 0"])
before = most_resident_mb()
source = open_source(large, where=["age > 0"])
print(source.n, most_resident_mb() - before)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="needs a status of Linux")
@pytest.mark.parametrize("name", ["a.parquet", "a.h5ad"])
def test_a_large_file_is_filtered_without_being_in_memory_whole(tmp_path: Path, name: str) -> None:
    n, d = (144 << 17) // 12, 12
    rows = np.random.default_rng(0).integers(-99, 99, (n, d)).astype(np.float64)
    age = np.arange(n) % 100 * 1.0
    for path, count in ((tmp_path / f"small_{name}", 10), (tmp_path / name, n)):
        if name == "a.h5ad":
            write_h5ad(path, rows[:count])
            with h5py.File(path, "r+") as file:
                file["obs"]["age"] = age[:count]
        else:
            columns = dict(zip(names_of(d), rows[:count].T.copy(), strict=True))
            pq.write_table(pa.table(columns | {"age": age[:count]}), path)
    command = [sys.executable, "-c", CHILD, str(tmp_path / f"small_{name}"), str(tmp_path / name)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    kept, grown_mb = map(int, run.stdout.split())
    assert kept == np.count_nonzero(age > 0)
    assert grown_mb < 80 < 144 / 1.5
