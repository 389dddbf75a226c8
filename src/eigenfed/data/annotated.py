"""Results in the places of a ``.h5ad`` file where users of anndata look for them.

==============================  ===============================================================
``obsm["X_pca"]``               the rows' scores, n x k
``varm["PCs"]``                 the components, features x k; 0 where a feature was not used
``uns["pca"]["variance"]``      by component
``uns["pca"]["variance_ratio"]``
``uns["pca"]["params"]``        whether rows were centred and scaled, and the method
==============================  ===============================================================
"""

import os
import secrets
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.extras import needed
from eigenfed.data.h5ad import h5ad_names
from eigenfed.errors import DataError, EigenfedError, InputError

_SLOTS = ("obsm/X_pca", "varm/PCs", "uns/pca")


@dataclass(frozen=True, eq=False, repr=False)
class Slots:
    """What goes into the file.

    Attributes
    ----------
    scores : ndarray of shape (n, k)
    components : ndarray of shape (k, d)
    features : sequence of str
        Names of the d features, which the file has too.
    variance, variance_ratio : ndarray of shape (k,)
    params : mapping of str to bool or str
    """

    scores: npt.NDArray[Any]
    components: npt.NDArray[Any]
    features: Sequence[str]
    variance: npt.NDArray[Any]
    variance_ratio: npt.NDArray[Any]
    params: Mapping[str, bool | str]


def check_slots_free(path: Path, *, force: bool) -> None:
    """Refuse a file that has such results already, unless they may be replaced.

    Raises
    ------
    InputError
    DataError
        If the file cannot be opened.
    """
    h5py = needed("h5py", extra="anndata", path=path)
    try:
        with h5py.File(path, "r") as file:
            taken = [slot for slot in _SLOTS if slot in file]
    except OSError:
        raise DataError(f"{path} is no whole .h5ad file. Write it again.") from None
    if taken and not force:
        raise InputError(
            f"{path} has {taken[0]} already, and nothing is overwritten. Remove it, or pass "
            "--force to replace it."
        )


def write_slots(path: Path, slots: Slots) -> None:
    """Write results into a ``.h5ad`` file: all of them, or none.

    They go into a copy, which then takes the file's place, so that nobody sees half of them and a
    full disk costs nothing. What else is in the file stays.

    Parameters
    ----------
    path : Path
    slots : Slots

    Raises
    ------
    InputError
        If the file lacks a feature or has another number of rows.
    DataError
        If the file cannot be written.
    """
    h5py = needed("h5py", extra="anndata", path=path)
    places = {name: place for place, name in enumerate(h5ad_names(path))}
    absent = [name for name in slots.features if name not in places]
    if absent:
        raise InputError(
            f"{path} lacks the feature {absent[0]!r} of the components. Bring the file that was "
            "fitted."
        )
    whole = np.zeros((len(places), len(slots.components)), slots.components.dtype)
    whole[[places[name] for name in slots.features]] = slots.components.T
    # Through a link, the file that it leads to is replaced and the link stays.
    target = path.resolve()
    copy = target.with_name(f".{target.name}.new-{secrets.token_hex(4)}")
    try:
        shutil.copy2(target, copy)
        with h5py.File(copy, "r+") as file:
            _check_rows(path, file, len(slots.scores))
            _put(file, slots, whole)
        with copy.open("rb") as written:
            os.fsync(written.fileno())
        copy.replace(target)
    except EigenfedError:
        raise
    except (OSError, RuntimeError, KeyError, ValueError, TypeError):
        raise DataError(
            f"{path} could not be written, and is as it was. Check that it is a whole .h5ad file, "
            "that its folder may be written to, and that there is room for a copy of it."
        ) from None
    finally:
        copy.unlink(missing_ok=True)


def _check_rows(path: Path, file: Any, n: int) -> None:
    index = file["obs"][file["obs"].attrs["_index"]]
    found = len(index["values"] if hasattr(index, "keys") else index)
    if found != n:
        raise InputError(
            f"{path} has {found} rows and there are {n} scores. Bring the file that was fitted."
        )


def _put(file: Any, slots: Slots, components: npt.NDArray[Any]) -> None:
    for slot in _SLOTS:
        if slot in file:
            del file[slot]
    _array(_group(file, "obsm"), "X_pca", slots.scores)
    _array(_group(file, "varm"), "PCs", components)
    found = _group(_group(file, "uns"), "pca")
    _array(found, "variance", slots.variance)
    _array(found, "variance_ratio", slots.variance_ratio)
    params = _group(found, "params")
    for name, value in slots.params.items():
        kind = "string" if isinstance(value, str) else "numeric-scalar"
        params[name] = value
        params[name].attrs.update({"encoding-type": kind, "encoding-version": "0.2.0"})


def _group(parent: Any, name: str) -> Any:
    group = parent.require_group(name)
    if "encoding-type" not in group.attrs:
        group.attrs.update({"encoding-type": "dict", "encoding-version": "0.1.0"})
    return group


def _array(parent: Any, name: str, values: npt.NDArray[Any]) -> None:
    stored = parent.create_dataset(name, data=values)
    stored.attrs.update({"encoding-type": "array", "encoding-version": "0.2.0"})
