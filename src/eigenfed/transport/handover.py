"""A source through a pipe, in checked parts of a few megabytes."""

import json
from multiprocessing.connection import Connection
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import sparse

from eigenfed.arrays import Container
from eigenfed.data.source import Source

VERSION = 1
_PART_BYTES = 4 << 20


def send_source(pipe: Connection, source: Source) -> None:
    """Send a source in parts, each a `Container`: dense or sparse, with weights and names."""
    X = source.X
    # Rows of the other memory order would go through other BLAS kernels, with other last bits.
    turned = not source.is_sparse and X.flags.f_contiguous and not X.flags.c_contiguous
    arrays: dict[str, npt.NDArray[Any]] = {"X": X.T if turned else X}
    if source.is_sparse:
        arrays = {"data": X.data, "indices": X.indices, "indptr": X.indptr}
    if source.weights is not None:
        arrays["weights"] = source.weights
    described = {
        "shape": X.shape,
        "turned": bool(turned),
        "names": source.names,
        "arrays": [[name, array.dtype.str, array.shape] for name, array in arrays.items()],
    }
    header = Container("source", VERSION, {}, {"described": as_bytes(described)})
    pipe.send_bytes(header.to_bytes())
    for array in arrays.values():
        step = max(1, _PART_BYTES // max(1, array[:1].nbytes))
        for start in range(0, len(array), step):
            part = array[start : start + step]
            sent = part if part.dtype.kind == "f" else part.astype(np.int64)
            pipe.send_bytes(Container("part", VERSION, {}, {"part": sent}).to_bytes())


def receive_source(pipe: Connection) -> Source:
    """Put together what `send_source` sent."""
    header = Container.from_bytes(pipe.recv_bytes(), kind="source", version=VERSION)
    described = json.loads(header.arrays["described"].tobytes())
    arrays = {}
    for name, dtype, shape in described["arrays"]:
        arrays[name] = array = np.empty(shape, dtype)
        start = 0
        while start < len(array):
            part = Container.from_bytes(pipe.recv_bytes(), kind="part", version=VERSION)
            rows = part.arrays["part"]
            array[start : start + len(rows)] = rows
            start += len(rows)
    X: Any = arrays.get("X")
    if X is None:
        stored = (arrays["data"], arrays["indices"], arrays["indptr"])
        X = sparse.csr_array(stored, shape=tuple(described["shape"]))
    names = described["names"]
    return Source(X.T if described["turned"] else X, arrays.get("weights"), names and tuple(names))


def as_bytes(values: Any) -> npt.NDArray[np.uint8]:
    """JSON as an array: a header has no room for the names of a million features."""
    return np.frombuffer(json.dumps(values).encode(), np.uint8)
