"""One table written as every kind of file, by code that is not under test."""

import gzip
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from scipy import sparse

from eigenfed.arrays import Array


def names_of(d: int) -> list[str]:
    return [f"x{j}" for j in range(d)]


def ids_of(n: int) -> list[str]:
    return [f"row {i}" for i in range(n)]


def csv_text(X: Array, names: Sequence[str], ids: Sequence[str] | None = None) -> str:
    """Each number as the shortest text that gives it back; NaN as an empty cell."""
    lines = [",".join(["id", *names] if ids else names)]
    for i, row in enumerate(X.tolist()):
        cells = ["" if np.isnan(value) else repr(value) for value in row]
        lines.append(",".join([ids[i], *cells] if ids else cells))
    return "\n".join(lines) + "\n"


def write_csv(path: Path, X: Array) -> None:
    path.write_text(csv_text(X, names_of(X.shape[1])))


def write_csv_gz(path: Path, X: Array) -> None:
    path.write_bytes(gzip.compress(csv_text(X, names_of(X.shape[1])).encode()))


def write_parquet(path: Path, X: Array, **options: Any) -> None:
    columns = dict(zip(names_of(X.shape[1]), X.T.copy(), strict=True))
    pq.write_table(pa.table(columns), path, **options)


def write_h5ad(path: Path, X: Any, names: Sequence[str] | None = None, **options: Any) -> None:
    """The layout of anndata 0.12, as read from a file that it wrote."""
    n, d = X.shape
    with h5py.File(path, "w") as file:
        for frame, index in (("obs", ids_of(n)), ("var", names or names_of(d))):
            group = file.create_group(frame)
            group.attrs.update({"_index": "_index", "encoding-type": "dataframe"})
            group["_index"] = np.array(index, dtype=h5py.string_dtype())
        if not sparse.issparse(X):
            file.create_dataset("X", data=X, **options).attrs["encoding-type"] = "array"
            return
        table: Any = X
        group = file.create_group("X")
        group.attrs.update({"encoding-type": f"{table.format}_matrix", "shape": table.shape})
        for part in ("data", "indices", "indptr"):
            group.create_dataset(part, data=getattr(table, part), **options)


def write_svm(path: Path, X: Array) -> None:
    rows = [
        " ".join([f"{i % 2}", *(f"{j + 1}:{value!r}" for j, value in enumerate(row) if value != 0)])
        for i, row in enumerate(X.tolist())
    ]
    path.write_text("\n".join(rows) + "\n")


WRITERS: dict[str, Callable[[Path, Array], None]] = {
    "dense.npy": np.save,
    "columns.npy": lambda path, X: np.save(path, np.asfortranarray(X)),
    "swapped.npy": lambda path, X: np.save(path, X.astype(">f8")),
    "dense.npz": lambda path, X: np.savez(path, X=X),
    "columns.npz": lambda path, X: np.savez_compressed(path, X=np.asfortranarray(X)),
    "csr.npz": lambda path, X: sparse.save_npz(path, sparse.csr_array(X)),
    "csc.npz": lambda path, X: sparse.save_npz(path, sparse.csc_matrix(X)),
    "coo.npz": lambda path, X: sparse.save_npz(path, sparse.coo_array(X), compressed=False),
    "table.csv": write_csv,
    "table.csv.gz": write_csv_gz,
    "TABLE.CSV": write_csv,
    "table.parquet": write_parquet,
    "groups.parquet": lambda path, X: write_parquet(path, X, row_group_size=2),
    "dense.h5ad": write_h5ad,
    "chunks.h5ad": lambda path, X: write_h5ad(path, X, chunks=(1, 1), compression="gzip"),
    "csr.h5ad": lambda path, X: write_h5ad(path, sparse.csr_array(X)),
    "csc.h5ad": lambda path, X: write_h5ad(path, sparse.csc_array(X)),
    "rows.svm": write_svm,
}
NAMED = tuple(name for name in WRITERS if name.lower().split(".")[1] in ("csv", "parquet", "h5ad"))
