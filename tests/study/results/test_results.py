"""A result folder: whole or not there, and read as it was written."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from eigenfed import FederatedPCA, Privacy
from eigenfed.errors import DataError, InputError
from eigenfed.study.results.facts import describe_fit
from eigenfed.study.results.json_types import to_json_types
from eigenfed.study.results.result_folder import check_free, read_result, write_result
from eigenfed.study.scores import Projected

X = np.random.default_rng(0).standard_normal((60, 4)) * [4, 3, 2, 1] + 9
SITES = {"a": X[:20], "b": X[20:45], "c": X[45:]}


def written(folder: Path, **settings: Any) -> FederatedPCA:
    pca = FederatedPCA(2, **settings).fit_sites(SITES)
    write_result(folder, pca, sites=SITES)
    return pca


def test_a_result_that_is_read_projects_as_the_one_that_was_fitted(tmp_path: Path) -> None:
    for name, settings in {
        "plain": {},
        "scaled": {"scale": True},
        "raw": {"center": False},
    }.items():
        pca = written(tmp_path / name, **settings)
        result = read_result(tmp_path / name)
        again = result.estimator()
        np.testing.assert_array_equal(again.transform(X), pca.transform(X))
        assert (result.scale is None) == (not pca.settings_["scale"])
        assert result.names is None
        assert again.get_params()["center"] == pca.center


def test_names_are_kept_in_their_order(tmp_path: Path) -> None:
    frames = {name: pd.DataFrame(t, columns=["d", "a", "c", "ß x"]) for name, t in SITES.items()}
    pca = FederatedPCA(2).fit_sites(frames)
    write_result(tmp_path / "r", pca, sites=frames)
    result = read_result(tmp_path / "r")
    assert result.names == ("d", "a", "c", "ß x")
    mixed = frames["a"][["a", "ß x", "d", "c"]]
    np.testing.assert_array_equal(result.estimator().transform(mixed), pca.transform(frames["a"]))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"secure": True},
        {"center": "site"},
        {"method": "krylov"},
        {"prepare": ["select:3:variance"]},
    ],
    ids=str,
)
def test_missing_entries_are_counted_over_all_sites(settings: dict[str, Any]) -> None:
    holes = np.hstack([X, np.full((60, 1), 7.0)])
    holes[5:50, 2], holes[:6, 0] = np.nan, np.nan
    parts = {"a": holes[:20], "b": holes[20:45], "c": holes[45:]}
    frames = {name: pd.DataFrame(part, columns=list("pqrst")) for name, part in parts.items()}
    weights = {"a": np.full(20, 3.0), "b": np.full(25, 0.0), "c": np.full(15, 2.0)}
    pca = FederatedPCA(2, **settings).fit_sites(frames, sample_weight=weights)
    found = describe_fit(pca, frames)["missing"]
    lost = 15 * 3.0 + 5 * 2.0, 6 * 3.0
    kept = 3 if "prepare" in settings else 5
    assert found["features"] == 2
    assert (found["most"], found["most_in"]) == (pytest.approx(lost[0] / 90), "r")
    assert found["fraction"] == pytest.approx(sum(lost) / 90 / kept)
    assert describe_fit(FederatedPCA(2, **settings).fit_sites(SITES), SITES)["missing"] == {
        "fraction": 0.0,
        "features": 0,
        "most": 0.0,
        "most_in": "x0",
    }


def test_missing_entries_are_not_counted_where_noise_hides_them() -> None:
    holes = {name: np.where(rows > 12.0, np.nan, rows) for name, rows in SITES.items()}
    pca = FederatedPCA(1, privacy=Privacy(50.0, 1e-4)).fit_sites(holes)
    assert describe_fit(pca, SITES)["missing"] is None


def test_single_precision_stays(tmp_path: Path) -> None:
    pca = FederatedPCA(2).fit_sites({"a": X.astype(np.float32)})
    write_result(tmp_path / "r", pca, sites=["a"])
    assert read_result(tmp_path / "r").components.dtype == np.float32


def test_the_facts_are_json_without_nan(tmp_path: Path) -> None:
    flat = np.eye(3) - 1 / 3
    pca = FederatedPCA(1).fit_sites({"a": flat, "b": -flat})
    assert pca.certificate_ is not None
    assert not np.isfinite(pca.certificate_.angle_bound)
    write_result(tmp_path / "r", pca, sites=["a", "b"])
    text = (tmp_path / "r/result.json").read_text()
    facts = json.loads(text, parse_constant=lambda name: pytest.fail(f"{name} in JSON"))
    assert facts["certificate"]["angle_bound"] is None
    assert facts["versions"]["numpy"] == np.__version__


def test_the_total_variance_is_known_without_a_certificate() -> None:
    pca = FederatedPCA(2).fit_sites(SITES)
    known = describe_fit(pca, SITES)["total_variance"]
    pca.certificate_ = None
    facts = describe_fit(pca, SITES)
    assert facts["certificate"] is None
    assert facts["total_variance"] == pytest.approx(known)


def test_sets_and_tuples_become_lists() -> None:
    assert to_json_types({"a": (1, 2), "b": frozenset("ba"), "c": np.array([[1.5]])}) == {
        "a": [1, 2],
        "b": ["a", "b"],
        "c": [[1.5]],
    }


def test_a_write_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pca = written(tmp_path / "before")
    kept = {path.name: path.read_bytes() for path in (tmp_path / "before").iterdir()}

    def full(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("eigenfed.study.results.result_folder.np.save", full)
    for name, force in {"new": False, "before": True}.items():
        with pytest.raises(OSError, match="No space"):
            write_result(tmp_path / name, pca, sites=SITES, force=force)
    assert [path.name for path in tmp_path.iterdir()] == ["before"]
    assert {path.name: path.read_bytes() for path in (tmp_path / "before").iterdir()} == kept


def test_a_folder_that_cannot_be_put_in_place_leaves_the_earlier_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pca = written(tmp_path / "r")
    kept = (tmp_path / "r/result.json").read_bytes()
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".new-" in self.name:
            raise OSError(5, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    with pytest.raises(OSError, match="Input/output"):
        write_result(tmp_path / "r", pca, sites=SITES, force=True)
    assert [path.name for path in tmp_path.iterdir()] == ["r"]
    assert (tmp_path / "r/result.json").read_bytes() == kept


def test_an_empty_folder_is_taken(tmp_path: Path) -> None:
    (tmp_path / "r").mkdir()
    written(tmp_path / "r")
    assert read_result(tmp_path / "r").facts["k"] == 2


def test_force_replaces_results_and_nothing_else(tmp_path: Path) -> None:
    pca = written(tmp_path / "r", scale=True)
    (tmp_path / "r/scores").mkdir()
    write_result(tmp_path / "r", FederatedPCA(1).fit_sites(SITES), sites=SITES, force=True)
    assert not (tmp_path / "r/scale.npy").exists()
    (tmp_path / "r/thesis.txt").write_text("years of work")
    with pytest.raises(InputError, match=r"contains 'thesis\.txt', so it is not a result"):
        write_result(tmp_path / "r", pca, sites=SITES, force=True)
    assert (tmp_path / "r/thesis.txt").exists()
    (tmp_path / "half").mkdir()
    (tmp_path / "half/mean.npy").touch()
    with pytest.raises(InputError, match=r"contains no result\.json"):
        check_free(tmp_path / "half", force=True)


def test_places_that_are_no_new_folder_are_refused(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "link").symlink_to(tmp_path)
    for path, message in {
        tmp_path / "file": "is not a folder",
        tmp_path / "link": "is not a folder",
        tmp_path / "no/where": "no does not exist. Create it first",
        Path(): "has no name of its own",
        tmp_path / "..": "has no name of its own",
    }.items():
        with pytest.raises(InputError, match=message):
            check_free(path, force=True)


def test_scores_of_a_private_run_are_never_written(tmp_path: Path) -> None:
    private = Privacy(90.0, 1e-3, clip=20.0)
    pca = FederatedPCA(1, privacy=private).fit_sites(SITES)
    with pytest.raises(InputError, match="not private"):
        write_result(tmp_path / "r", pca, sites=SITES, rows={"a": Projected(X, None)})
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["", "..", "a/b", "a\\b", "a\nb"])
def test_a_site_that_is_no_file_name_is_refused(tmp_path: Path, name: str) -> None:
    pca = FederatedPCA(2).fit_sites(SITES)
    with pytest.raises(InputError, match="not a valid file name"):
        write_result(tmp_path / "r", pca, sites=[name], rows={name: Projected(X, None)})
    assert list(tmp_path.iterdir()) == []


def test_a_name_with_a_line_break_is_refused(tmp_path: Path) -> None:
    frame = pd.DataFrame(X, columns=["a", "b\nc", "d", "e"])
    pca = FederatedPCA(2).fit_sites({"s": frame})
    with pytest.raises(InputError, match="line break"):
        write_result(tmp_path / "r", pca, sites=["s"])


def damaged(folder: Path, part: str, how: str) -> None:
    path = folder / part
    match how:
        case "absent":
            path.unlink()
        case "cut":
            path.write_bytes(path.read_bytes()[:-9])
        case "empty":
            path.write_bytes(b"")
        case "not finite":
            np.save(path, np.load(path) * np.nan)
        case "text":
            np.save(path, np.array(["a", "b"]))
        case "short":
            np.save(path, np.load(path)[:-1])
        case "format 2":
            path.write_text(path.read_text().replace('"format": 1', '"format": 2'))
        case "no k":
            path.write_text(path.read_text().replace('"k": 2', '"k": "two"'))
        case "a list":
            path.write_text("[]")
        case "latin":
            path.write_bytes("\xe4\n".encode("latin-1"))


@pytest.mark.parametrize(
    ("part", "how"),
    [
        ("result.json", "absent"),
        ("result.json", "cut"),
        ("result.json", "empty"),
        ("result.json", "format 2"),
        ("result.json", "no k"),
        ("result.json", "a list"),
        ("components.npy", "absent"),
        ("components.npy", "cut"),
        ("components.npy", "empty"),
        ("components.npy", "short"),
        ("components.npy", "text"),
        ("mean.npy", "not finite"),
        ("mean.npy", "short"),
        ("features.txt", "empty"),
        ("features.txt", "latin"),
        ("scale.npy", "absent"),
    ],
)
def test_a_damaged_result_is_refused(tmp_path: Path, part: str, how: str) -> None:
    written(tmp_path / "r", scale=True)
    read_result(tmp_path / "r")
    damaged(tmp_path / "r", part, how)
    with pytest.raises(DataError, match=str(tmp_path)):
        read_result(tmp_path / "r")
