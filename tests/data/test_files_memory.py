"""A file is read in memory that does not grow with it: measured in a process of its own.

The measure is what was resident at most beyond what reading a small file of the kind took. Here
8 MB, not 64, may be in memory before a copy is begun. pyarrow keeps some 70 MB, as many for a file
three times as large, and reads up to 32 MB of text ahead where the disk is faster than the parser.
"""

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv
import pytest
from scipy import sparse

from table_files import names_of, write_h5ad, write_parquet

CHILD = """
import sys
from eigenfed.data import cache
from eigenfed.data.files import open_source

def most_resident_mb():
    with open("/proc/self/status") as lines:
        return next(int(line.split()[1]) >> 10 for line in lines if line.startswith("VmHWM"))

cache._SMALL_BYTES = 8 << 20
small, large = sys.argv[1:]
open_source(small)
before = most_resident_mb()
source = open_source(large)
print(source.n, source.d, source.X[-1].sum(), most_resident_mb() - before)
"""

pytestmark = pytest.mark.skipif(
    not Path("/proc/self/status").exists(), reason="needs the status of a process on Linux"
)


def write_csv(path: Path, X: Any) -> None:
    table = pa.table(dict(zip(names_of(X.shape[1]), X.T.copy(), strict=True)))
    pyarrow.csv.write_csv(table, path)


def measured(small: Path, large: Path) -> tuple[int, int, float, int]:
    command = [sys.executable, "-c", CHILD, str(small), str(large)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    n, d, last, grown = run.stdout.split()
    return int(n), int(d), float(last), int(grown)


@pytest.mark.parametrize(
    ("name", "write", "d", "whole_mb", "most_mb"),
    [
        ("a.csv", write_csv, 50, 192, 120),
        ("a.parquet", lambda p, X: write_parquet(p, X, row_group_size=50_000), 50, 144, 90),
        ("one_group.parquet", write_parquet, 12, 96, 48),
        ("a.npy", lambda p, X: np.save(p, X.astype(np.int16)), 50, 64, 40),
        ("a.npz", lambda p, X: np.savez(p, X), 50, 64, 32),
        ("a.h5ad", write_h5ad, 500, 64, 32),
    ],
)
def test_a_large_file_is_never_in_memory_whole(
    tmp_path: Path,
    name: str,
    write: Callable[[Path, Any], None],
    d: int,
    whole_mb: int,
    most_mb: int,
) -> None:
    shape = ((whole_mb << 17) // d, d)
    X = np.random.default_rng(0).integers(-99, 99, shape).astype(np.float64)
    write(tmp_path / f"small_{name}", X[:10])
    write(tmp_path / name, X)
    n, width, last, grown_mb = measured(tmp_path / f"small_{name}", tmp_path / name)
    assert (n, width, last) == (*X.shape, X[-1].sum())
    assert grown_mb < most_mb < whole_mb / 1.5


@pytest.mark.parametrize("name", ["a.h5ad", "a.npz"])
def test_a_large_sparse_file_is_never_in_memory_whole(tmp_path: Path, name: str) -> None:
    n, d, by_row = 60_000, 3000, 130
    columns = np.tile(np.arange(by_row, dtype=np.int32) * 23, n)
    starts = np.arange(n + 1, dtype=np.int32) * by_row
    X = sparse.csr_array((np.full(n * by_row, 0.5), columns, starts), shape=(n, d))
    for path, rows in ((tmp_path / f"small_{name}", X[:10]), (tmp_path / name, X)):
        if name == "a.npz":
            sparse.save_npz(path, rows, compressed=False)
        else:
            write_h5ad(path, rows)
    found = measured(tmp_path / f"small_{name}", tmp_path / name)
    assert found[:3] == (n, d, by_row / 2)
    assert found[3] < 48 < (X.data.nbytes + X.indices.nbytes >> 20) / 1.5
