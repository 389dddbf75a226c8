"""Write and read result folders; writing is atomic.

==================  ==============================================================================
result.json         method, sizes, variances, rounds, bytes, certificate, privacy, leakage, versions
components.npy      k x d, orthonormal rows in order of decreasing variance
mean.npy            d, subtracted from each row
scale.npy           d, by which each centred row was divided; only if features were scaled
features.txt        d lines, one name each; x0, x1, ... if the features have no names
inputs.txt          the names of all features before a preparation; only if it selects some
selected.npy        d, the positions of the selected features among those; likewise
center.npy          d, the mean of each feature in a standardisation; only if there is one
spread.npy          d, the standard deviation of each feature; likewise
scores/*.npy        n x k for each site, its projected rows; not written by private runs, as
                    projections of records are not private
scores/*.rows.json  the identifiers of those rows, if the data file has them; *.missing.json has
                    the number of missing entries of each feature, if some are missing;
                    *.means.json the features whose mean differs most from that of all rows;
                    *.labels.json the group of each row, if rows have one
loadings.csv        the components with the names of the features; see `csv_tables`. Those of
                    genotypes are in files of plink instead; see `plink_files`
variances.csv       variance, fraction of the total and cumulative fraction of each component
run.jsonl           one line for each request and for each reply, a start line and an end line
report.html         the shared report; run.json has its content for programs
sites/*.html        a report for each site, with its own rows
sites/*.csv         the scores of a site with the identifiers of its rows
multiqc/            the shared report for MultiQC
==================  ==============================================================================

JSON has neither NaN nor infinity: null represents both, where no bound or guarantee is known.
"""

import json
import secrets
import shutil
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from types import NoneType
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from eigenfed.data.genotypes import Variants
from eigenfed.data.prepared_rows import Preparation
from eigenfed.data.readers.npy import map_npy
from eigenfed.data.safe_files import check_writable, parse_strict_json, read_part
from eigenfed.data.steps import SelectVariable, Standardize, as_steps
from eigenfed.data.variant_steps import VariantStep
from eigenfed.errors import Argument, DataError, InputError, Name, Pass
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.privacy.ledger.ledger_state import Totals
from eigenfed.protocol.study import BY_SITE, GENOTYPE
from eigenfed.study.results.csv_tables import write_tables
from eigenfed.study.results.earlier_results import upgrade_facts
from eigenfed.study.results.facts import FORMAT, describe_fit
from eigenfed.study.results.json_types import to_json_types
from eigenfed.study.results.plink_files import SHARED_FILES, write_plink_files
from eigenfed.study.results.run_log import log_lines
from eigenfed.study.scores import Projected, write_own_files

if TYPE_CHECKING:
    from eigenfed.estimators.federated import FederatedPCA

Fit = TypeVar("Fit", bound=PCAFit)

ESSENTIAL_FILES = (
    "result.json",
    "components.npy",
    "mean.npy",
    "scale.npy",
    "observed.npy",
    "features.txt",
    "inputs.txt",
    "selected.npy",
    "center.npy",
    "spread.npy",
    "run.jsonl",
)
"""What everybody may see, and all other files but scores follow from."""
_PARTS = {
    *ESSENTIAL_FILES,
    *SHARED_FILES,
    "loadings.csv",
    "variances.csv",
    "scores",
    "report.html",
    "run.json",
    "sites",
    "multiqc",
}


@dataclass(frozen=True, eq=False, repr=False)
class Result:
    """A result read from its folder.

    Attributes
    ----------
    facts : dict
        The content of ``result.json``.
    components : ndarray of shape (k, d)
    mean : ndarray of shape (d,)
    scale : ndarray of shape (d,) or None
    labels : tuple of str
        Names of the features, or x0, x1, ... if they have none.
    names : tuple of str or None
        Names of all features before a preparation; None if they have none.
    preparation : Preparation
    observed : ndarray of shape (d,) or None
        Number of people whose genotype is known, by variant; None for other features.
    """

    facts: dict[str, Any]
    components: npt.NDArray[Any]
    mean: npt.NDArray[Any]
    scale: npt.NDArray[Any] | None
    labels: tuple[str, ...]
    names: tuple[str, ...] | None
    preparation: Preparation
    observed: npt.NDArray[Any] | None = None

    def estimator(self) -> "FederatedPCA":
        """Return an estimator whose `transform` equals that of the fitted one."""
        from eigenfed.estimators.federated import FederatedPCA  # with all of scikit-learn

        return self._restore(FederatedPCA)

    def projector(self) -> PCAFit:
        """Return the fit, to project rows whose columns are the features in their order."""
        return self._restore(PCAFit)

    def _restore(self, kind: type[Fit]) -> Fit:
        k, d = self.components.shape
        pca = kind(k, center=self.facts["center"], scale=self.scale is not None)
        pca.components_, pca.mean_ = self.components, self.mean
        pca.scale_ = np.ones(d) if self.scale is None else self.scale
        prepare = self.facts["prepare"]
        pca.n_features_in_ = d if prepare is None else prepare["features"]
        pca.prepare = list(self.preparation.steps) or None
        pca.preparation_ = self.preparation
        pca.selected_features_ = self.preparation.selected
        pca.method_ = self.facts["method"]
        for name, kept in (("variance", "eigenvalues"), ("variance_ratio", "ratios")):
            setattr(pca, f"explained_{name}_", np.array(self.facts[kept], dtype=np.float64))
        pca.n_samples_, pca.n_observed_ = self.facts["n"], self.observed
        pca.total_variance_ = self.facts["total_variance"]
        if self.names is not None:
            pca.feature_names_in_ = np.asarray(self.names, dtype=object)
        return pca


def check_free(folder: Path, *, force: bool) -> None:
    """Refuse a folder that is not empty, unless it holds an earlier result and `force` is set.

    One that cannot be made is refused too.

    Raises
    ------
    InputError
        Also with `force`, if the folder holds files that are not part of a result.
    """
    if folder.name in ("", ".."):
        raise InputError(f"{folder} has no name of its own. Name a new folder inside it.")
    if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
        raise InputError(f"{folder} exists and is not a folder. Name another folder.")
    check_writable(folder.parent)
    found = {entry.name for entry in folder.iterdir()} if folder.exists() else set()
    if not found:
        return
    if not force:
        raise InputError(
            f"Folder {folder} is not empty",
            remedy=(
                *("Name another folder, or ", Pass("force", True)),
                " to replace an earlier result.",
            ),
        )
    foreign = sorted(found - _PARTS)
    if foreign or "result.json" not in found:
        other = repr(foreign[0]) if foreign else "no result.json"
        raise InputError(
            f"Folder {folder} contains {other}, so it is not a result folder, and ",
            *(Name("force"), " replaces only those"),
            remedy="Name another folder.",
        )


def write_result(
    folder: Path,
    pca: PCAFit,
    *,
    sites: Iterable[str],
    rows: Mapping[str, Projected] | None = None,
    share_scores: Collection[str] = (),
    ledgers: Mapping[str, Totals] | None = None,
    study: str | None = None,
    command: Sequence[str] | None = None,
    date: str | None = None,
    variants: Variants | None = None,
    force: bool = False,
) -> dict[str, Any]:
    """Write a result folder atomically.

    Parameters
    ----------
    folder : Path
        A folder that does not exist, is empty, or with `force` holds an earlier result.
    pca : PCAFit
        Fitted.
    sites : iterable of str
        Names of the sites.
    rows : mapping of str to Projected, optional
        The projected rows of each site, n x k, and their identifiers. Not for a private run.
    share_scores : collection of str
        Sites whose rows the shared report may show as points.
    ledgers : mapping of str to Totals, optional
        Totals of the sites' ledgers after this run.
    study : str, optional
        Name of the study.
    command : sequence of str, optional
        The command line, for repeating the run.
    date : str, optional
        The day of the run.
    variants : Variants, optional
        Those of the components, if they are of genotypes: the files of plink are then written too.
    force : bool, default=False

    Returns
    -------
    dict
        The content of ``result.json``.
    """
    if rows is not None and pca.privacy_ is not None:
        raise InputError("Scores of records are not private. Leave them out of a private result.")
    names = _select_names(pca, _feature_names(pca))
    sites = sorted(sites)
    for site in sites:
        if Path(site).name != site:
            raise _make_name_error(site)
    accounts = {s: _describe_totals(t) for s, t in (ledgers or {}).items()}
    facts = describe_fit(pca, sites) | {
        "study": study,
        "command": None if command is None else list(command),
        "date": date,
        "scores": rows is not None,
        "shown_scores": _check_shared(share_scores, rows or {}),
        "ledgers": None if ledgers is None else to_json_types(accounts),
    }
    check_free(folder, force=force)
    with _replace_folder(folder) as new:
        _write_json(new / "result.json", facts)
        np.save(new / "components.npy", pca.components_)
        np.save(new / "mean.npy", pca.mean_)
        if facts["scale"]:
            np.save(new / "scale.npy", pca.scale_)
        _write_names(new / "features.txt", names)
        _write_preparation(new, pca)
        (new / "run.jsonl").write_text("".join(log_lines(facts, pca)), "utf-8")
        write_tables(new, pca, names, loadings=variants is None)
        if rows is not None:
            (new / "scores").mkdir()
            for site, found in rows.items():
                write_own_files(new / "scores", _check_file_name(site), found, _feature_names(pca))
        if variants is not None:
            if pca.n_observed_ is not None:
                np.save(new / "observed.npy", pca.n_observed_)
            write_plink_files(new, pca, variants, rows or {})
    return facts


def _check_shared(share_scores: Collection[str], rows: Mapping[str, Projected]) -> list[str]:
    unknown = sorted(set(share_scores) - rows.keys())
    if unknown:
        raise InputError(
            Argument("share_scores", unknown[0]),
            " must name a site whose scores are written, which are "
            f"{', '.join(map(repr, sorted(rows))) or 'none'}",
            remedy="Drop it.",
        )
    return sorted(set(share_scores))


def _describe_totals(totals: Totals) -> dict[str, Any]:
    return asdict(totals) | {"epsilon": totals.epsilon, "text": totals.text}


def _feature_names(pca: PCAFit) -> list[str]:
    names = getattr(pca, "feature_names_in_", None)
    if names is None:
        return [f"x{place}" for place in range(pca.n_features_in_)]
    listed = list(map(str, names))
    if not all(listed) or len("\n".join(listed).splitlines()) != len(listed):
        raise InputError(
            "The name of a feature is empty or contains a line break, and features.txt holds one "
            "name per line. Rename the feature."
        )
    return listed


def _select_names(pca: PCAFit, names: list[str]) -> list[str]:
    """Return the names of the features that the components are about."""
    selected = pca.selected_features_
    return names if selected is None else [names[place] for place in selected]


def _write_names(path: Path, names: Iterable[str]) -> None:
    path.write_text("".join(f"{name}\n" for name in names), "utf-8")


def _write_preparation(folder: Path, pca: PCAFit) -> None:
    known = pca.preparation_
    if known.selected is not None:
        _write_names(folder / "inputs.txt", _feature_names(pca))
        np.save(folder / "selected.npy", known.selected)
    if known.center is not None and known.spread is not None:
        np.save(folder / "center.npy", known.center)
        np.save(folder / "spread.npy", known.spread)


def _check_file_name(site: str) -> str:
    if site in ("", ".", "..") or not site.isprintable() or "/" in site or "\\" in site:
        raise _make_name_error(site)
    return site


def _make_name_error(site: str) -> InputError:
    return InputError(f"The site name {site!r} is not a valid file name. Rename the site.")


def _write_json(path: Path, facts: Mapping[str, Any] | list[str]) -> None:
    path.write_text(json.dumps(facts, indent=2, allow_nan=False) + "\n", "utf-8")


@contextmanager
def _replace_folder(folder: Path) -> Iterator[Path]:
    """Yield a temporary folder beside `folder`, and rename it to `folder` on success."""
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
        If a part is missing, damaged, of another format, or inconsistent with the others.
    """
    facts = _read_facts(folder)
    components, mean = _read_array(folder, "components.npy"), _read_array(folder, "mean.npy")
    scale = _read_array(folder, "scale.npy") if facts["scale"] else None
    labels = tuple(_read_text(folder, "features.txt").split("\n")[:-1])
    known, inputs = _read_preparation(folder, facts, labels)
    has_observed = (folder / "observed.npy").is_file()
    observed = _read_array(folder, "observed.npy") if has_observed else None
    k, d = facts["k"], facts["d"]
    by_feature = [array for array in (mean, scale, observed) if array is not None]
    shapes = [(components, (k, d)), *((array, (d,)) for array in by_feature)]
    if any(array.shape != shape for array, shape in shapes) or len(labels) != d:
        raise DataError(
            f"The files of the result in {folder} do not match: result.json says {k} components "
            f"of {d} features. Fit again, or get a complete copy."
        )
    names = inputs if facts["named"] else None
    return Result(facts, components, mean, scale, labels, names, known, observed)


def _read_preparation(
    folder: Path, facts: dict[str, Any], labels: tuple[str, ...]
) -> tuple[Preparation, tuple[str, ...]]:
    """Read the steps with their figures, and the names of the features before them."""
    if facts["prepare"] is None:
        return Preparation(), labels
    d, inputs = facts["prepare"]["features"], labels
    try:
        known = Preparation(as_steps(facts["prepare"]["steps"]))
    except InputError:
        raise _unreadable(folder, "result.json") from None
    if any(isinstance(step, SelectVariable | VariantStep) for step in known.steps):
        known = known.with_selected(_read_selected(folder, d))
        inputs = tuple(_read_text(folder, "inputs.txt").split("\n")[:-1])
    if any(isinstance(step, Standardize) for step in known.steps):
        center, spread = (_read_array(folder, f"{part}.npy") for part in ("center", "spread"))
        shapes = center.shape == spread.shape == (known.width(d),)
        if not shapes or not (spread > 0.0).all():
            raise _unreadable(folder, "spread.npy")
        known = known.with_moments(center, spread)
    if len(inputs) != d or known.width(d) != facts["d"]:
        raise _unreadable(folder, "inputs.txt")
    return known, inputs


def _read_selected(folder: Path, d: int) -> npt.NDArray[np.int64]:
    try:
        found = np.array(map_npy(folder / "selected.npy"))
    except (OSError, DataError):
        raise _unreadable(folder, "selected.npy") from None
    is_valid = found.dtype == np.int64 and found.ndim == 1 and 0 < len(found) <= d
    if not is_valid or found.min() < 0 or found.max() >= d or not (np.diff(found) > 0).all():
        raise _unreadable(folder, "selected.npy")
    return found


def _read_facts(folder: Path) -> dict[str, Any]:
    text = _read_text(folder, "result.json")
    try:
        facts = parse_strict_json(text)
    except ValueError:
        facts = None
    if not _is_result(facts):
        raise DataError(
            f"{folder / 'result.json'} is not a result of format {FORMAT}. Name a folder written "
            "by eigenfed fit -o."
        )
    return upgrade_facts(facts)


def _is_result(facts: Any) -> bool:
    """Return whether all fields are present that an estimator is restored from."""
    kinds = {"method": str, "named": bool}
    if not isinstance(facts, dict) or facts.get("format") != FORMAT:
        return False
    k, d = facts.get("k"), facts.get("d")
    return (
        all(isinstance(facts.get(name), kind) for name, kind in kinds.items())
        and (isinstance(facts.get("center"), bool) or facts.get("center") == BY_SITE)
        and (isinstance(facts.get("scale"), bool) or facts.get("scale") == GENOTYPE)
        and type(k) is type(d) is int
        and 1 <= k <= d
        and all(_are_numbers(facts.get(name), k) for name in ("eigenvalues", "ratios"))
        and _are_numbers([facts.get("n", ""), facts.get("total_variance", "")], 2)
        and isinstance(facts.get("privacy", ""), dict | NoneType)
        and _is_preparation(facts.get("prepare"), d)
    )


def _is_preparation(prepare: Any, d: int) -> bool:
    if prepare is None:
        return True
    return (
        isinstance(prepare, dict)
        and isinstance(prepare.get("steps"), list)
        and type(prepare.get("features")) is int
        and prepare["features"] >= d
    )


def _are_numbers(values: Any, k: int) -> bool:
    return (
        isinstance(values, list)
        and len(values) == k
        and all(type(value) in (int, float, type(None)) for value in values)
    )


def _read_text(folder: Path, part: str) -> str:
    try:
        return read_part(folder / part).decode("utf-8")
    except (OSError, UnicodeDecodeError):
        raise _unreadable(folder, part) from None


def _read_array(folder: Path, part: str) -> npt.NDArray[Any]:
    try:
        stored = map_npy(folder / part)
    except (OSError, DataError):
        raise _unreadable(folder, part) from None
    if stored.dtype not in (np.float64, np.float32) or not np.isfinite(stored).all():
        raise _unreadable(folder, part)
    return np.array(stored)


def _unreadable(folder: Path, part: str) -> DataError:
    return DataError(
        f"{folder / part} is missing or cannot be read. Name a folder written by eigenfed fit -o."
    )
