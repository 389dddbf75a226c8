"""What a result folder holds, written at once or not at all, and read again.

==================  ==============================================================================
result.json         method, sizes, variances, rounds, bytes, certificate, privacy, leakage, versions
components.npy      k x d, orthonormal rows by falling variance
mean.npy            d, what was subtracted
scale.npy           d, by what was divided; only where features were scaled
features.txt        d lines, a name each; x0, x1, ... where the features have none
scores/*.npy        n x k for each site, its rows on the components; never of a private run, as
                    projections of records are not private
scores/*.rows.json  what those rows are called, where the files say so
run.jsonl           a line for each ask and for each reply that left a site, and one at either end
report.html         the page for everybody, and what it shows as run.json
sites/*.html        a page for each site alone
multiqc/            the same for MultiQC
==================  ==============================================================================

JSON has neither NaN nor infinity: null stands for both, where no bound or no guarantee is known.
"""

import json
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import Any

import numpy as np
import numpy.typing as npt

from eigenfed.data.readers.npy import mapped
from eigenfed.data.safe_files import read_part, strict_json
from eigenfed.errors import Argument, DataError, InputError
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.privacy.ledger.accounts import Totals
from eigenfed.study.results.facts import FORMAT, described, plain
from eigenfed.study.results.run_log import log_lines
from eigenfed.study.scores import Projected

_PARTS = {
    "result.json",
    "components.npy",
    "mean.npy",
    "scale.npy",
    "features.txt",
    "scores",
    "run.jsonl",
    "report.html",
    "run.json",
    "sites",
    "multiqc",
}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A result as it was read from its folder.

    Attributes
    ----------
    facts : dict
        What ``result.json`` says.
    components : ndarray of shape (k, d)
    mean : ndarray of shape (d,)
    scale : ndarray of shape (d,) or None
    names : tuple of str or None
        The features' names; None where they have none.
    """

    facts: dict[str, Any]
    components: npt.NDArray[Any]
    mean: npt.NDArray[Any]
    scale: npt.NDArray[Any] | None
    names: tuple[str, ...] | None

    def estimator(self) -> FederatedPCA:
        """Return an estimator that projects as the one that was fitted did."""
        k, d = self.components.shape
        pca = FederatedPCA(k, center=self.facts["center"], scale=self.scale is not None)
        pca.components_, pca.mean_ = self.components, self.mean
        pca.scale_ = np.ones(d) if self.scale is None else self.scale
        pca.n_features_in_ = d
        pca.method_ = self.facts["method"]
        for name, kept in (("variance", "eigenvalues"), ("variance_ratio", "ratios")):
            setattr(pca, f"explained_{name}_", np.array(self.facts[kept], dtype=np.float64))
        if self.names is not None:
            pca.feature_names_in_ = np.asarray(self.names, dtype=object)
        return pca


def check_free(folder: Path, *, force: bool) -> None:
    """Refuse a folder in which something is, unless it is an earlier result and `force` is set.

    Raises
    ------
    InputError
        Also with `force`, if the folder holds what no result has.
    """
    if folder.name in ("", ".."):
        raise InputError(f"{folder} has no name of its own. Name a new folder inside it.")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} is there and is no folder. Name another one.")
    if not folder.parent.is_dir():
        raise InputError(
            f"{folder.parent} is no folder, and {folder.name} is to go there. Make it."
        )
    found = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if not found:
        return
    if not force:
        raise InputError(
            f"{folder} is not empty, and nothing is overwritten. Name another folder, or pass "
            "--force to replace an earlier result."
        )
    foreign = sorted(found - _PARTS)
    if foreign or "result.json" not in found:
        other = repr(foreign[0]) if foreign else "no result.json"
        raise InputError(
            f"{folder} holds {other}, so it is no result, and --force replaces results only. Name "
            "another folder."
        )


def write_result(
    folder: Path,
    pca: FederatedPCA,
    *,
    sites: Iterable[str],
    rows: Mapping[str, Projected] | None = None,
    share_scores: Collection[str] = (),
    ledgers: Mapping[str, Totals] | None = None,
    study: str | None = None,
    command: Sequence[str] | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a result folder: all of it, or nothing.

    Parameters
    ----------
    folder : Path
        Not there, empty, or with `force` an earlier result.
    pca : FederatedPCA
        Fitted.
    sites : iterable of str
    rows : mapping of str to Projected, optional
        Each site's rows on the components, n x k, and what they are called. Not for a private run.
    share_scores : collection of str
        Sites whose rows the page for everybody may show as points.
    ledgers : mapping of str to Totals, optional
        What some sites' ledgers come to with this run.
    study : str, optional
        Name of the study.
    command : sequence of str, optional
        What was typed, for whoever repeats it.
    force : bool, default=False

    Returns
    -------
    dict
        What ``result.json`` says.
    """
    if rows is not None and pca.privacy_ is not None:
        raise InputError("Scores of records are not private. Leave them out of a private result.")
    names = _names(pca)
    sites = sorted(sites)
    facts = described(pca, sites) | {
        "study": study,
        "command": None if command is None else list(command),
        "scores": rows is not None,
        "shown_scores": _shown(share_scores, rows or {}),
        "ledgers": None if ledgers is None else plain({s: _account(t) for s, t in ledgers.items()}),
    }
    check_free(folder, force=force)
    with _at_once(folder) as new:
        _write_json(new / "result.json", facts)
        np.save(new / "components.npy", pca.components_)
        np.save(new / "mean.npy", pca.mean_)
        if pca.scale:
            np.save(new / "scale.npy", pca.scale_)
        (new / "features.txt").write_text("".join(f"{name}\n" for name in names), "utf-8")
        (new / "run.jsonl").write_text("".join(log_lines(facts, pca)), "utf-8")
        if rows is not None:
            (new / "scores").mkdir()
            for site, found in rows.items():
                np.save(new / "scores" / f"{_file_name(site)}.npy", found.scores)
                if found.row_ids is not None:
                    _write_json(new / "scores" / f"{site}.rows.json", list(found.row_ids))
    return facts


def _shown(share_scores: Collection[str], rows: Mapping[str, Projected]) -> list[str]:
    strange = sorted(set(share_scores) - rows.keys())
    if strange:
        raise InputError(
            Argument("share_scores", strange[0]),
            " must name a site whose scores are written, and they are of "
            f"{', '.join(map(repr, sorted(rows))) or 'none'}",
            remedy="Drop it.",
        )
    return sorted(set(share_scores))


def _account(totals: Totals) -> dict[str, Any]:
    return asdict(totals) | {"epsilon": totals.epsilon, "text": totals.text}


def _names(pca: FederatedPCA) -> list[str]:
    names = getattr(pca, "feature_names_in_", None)
    if names is None:
        return [f"x{place}" for place in range(pca.n_features_in_)]
    if any(len(str(name).splitlines()) != 1 for name in names):
        raise InputError(
            "A feature's name is empty or has a line break, and features.txt holds a name a line. "
            "Rename it."
        )
    return [str(name) for name in names]


def _file_name(site: str) -> str:
    if site in ("", ".", "..") or not site.isprintable() or "/" in site or "\\" in site:
        raise InputError(f"The site's name {site!r} is no file's name. Rename the site.")
    return site


def _write_json(path: Path, facts: dict[str, Any] | list[str]) -> None:
    path.write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", "utf-8")


@contextmanager
def _at_once(folder: Path) -> Iterator[Path]:
    """Give a new folder beside the one that is wanted, and put it there when all went well."""
    mark = secrets.token_hex(4)
    new, old = (folder.with_name(f".{folder.name}.{kind}-{mark}") for kind in ("new", "old"))
    new.mkdir()
    try:
        yield new
        if folder.exists():
            folder.rename(old)
        new.rename(folder)
    except BaseException:
        shutil.rmtree(new, ignore_errors=True)
        if old.exists() and not folder.exists():
            old.rename(folder)
        raise
    shutil.rmtree(old, ignore_errors=True)


def read_result(folder: Path) -> Result:
    """Read a result folder.

    Raises
    ------
    DataError
        If a part is absent, damaged, of another format, or does not fit the others.
    """
    facts = _facts(folder)
    components, mean = _array(folder, "components.npy"), _array(folder, "mean.npy")
    scale = _array(folder, "scale.npy") if facts["scale"] else None
    names = _text(folder, "features.txt").split("\n")[:-1]
    k, d = facts["k"], facts["d"]
    shapes = [(components, (k, d)), (mean, (d,))] + ([] if scale is None else [(scale, (d,))])
    if any(array.shape != shape for array, shape in shapes) or len(names) != d:
        raise DataError(
            f"The parts of the result in {folder} do not fit together: result.json says {k} "
            f"components of {d} features. Fit again, or fetch a whole copy."
        )
    return Result(facts, components, mean, scale, tuple(names) if facts["named"] else None)


def _facts(folder: Path) -> dict[str, Any]:
    text = _text(folder, "result.json")
    try:
        facts = strict_json(text)
    except ValueError:
        facts = None
    if not _is_sound(facts):
        raise DataError(
            f"{folder / 'result.json'} is no result of format {FORMAT}. Name the folder that "
            "eigenfed fit -o wrote."
        )
    checked: dict[str, Any] = facts
    for earlier, name in _RENAMED.items():
        if earlier in checked:
            checked[name] = checked.pop(earlier)
    for name, added in _LATER.items():
        if isinstance(checked.get(name), dict):
            checked[name] = added | checked[name]
    return checked


_RENAMED = {"clarity": "signal"}
"""Keys of release 0.1, and what they are called now."""

_LATER: dict[str, dict[str, Any]] = {
    "asked": {"options": {}},
    "privacy": {"epsilon_outsiders": None, "epsilon_participants": None},
}
"""What results of release 0.1 do not have, and what stands for it."""


def _is_sound(facts: Any) -> bool:
    """Say whether there is what an estimator is made of."""
    kinds = {"method": str, "center": bool, "scale": bool, "named": bool}
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        return False
    k, d = facts.get("k"), facts.get("d")
    return (
        all(isinstance(facts.get(name), kind) for name, kind in kinds.items())
        and type(k) is type(d) is int
        and 1 <= k <= d
        and all(_are_numbers(facts.get(name), k) for name in ("eigenvalues", "ratios"))
        and isinstance(facts.get("privacy", ""), dict | NoneType)
    )


def _are_numbers(values: Any, k: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == k
        and all(type(value) in (int, float, type(None)) for value in values)
    )


def _text(folder: Path, part: str) -> str:
    try:
        return read_part(folder / part).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise _unreadable(folder, part) from None


def _array(folder: Path, part: str) -> npt.NDArray[Any]:
    try:
        stored = mapped(folder / part)
    except (OSError, DataError):
        raise _unreadable(folder, part) from None
    if stored.dtype not in (np.float64, np.float32) or not np.isfinite(stored).all():
        raise _unreadable(folder, part)
    return np.array(stored)


def _unreadable(folder: Path, part: str) -> DataError:
    return DataError(
        f"{folder / part} is not there or cannot be read. Name the folder that eigenfed fit -o "
        "wrote."
    )
