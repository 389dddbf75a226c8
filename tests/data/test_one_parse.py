"""Each file is parsed once on the way from a command to its result, and its header read twice."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.csv
import pyarrow.parquet
import pytest

from command_line import answer, as_csv, eigenfed, rows
from eigenfed.data import cache, files
from eigenfed.estimators.federated import FederatedPCA
from table_files import write_parquet

SITES = ("north", "south", "island")


@pytest.fixture(params=["in memory", "mapped"])
def small(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> bool:
    """Whether tables stay in memory."""
    if request.param == "mapped":
        monkeypatch.setattr(cache, "_SMALL_BYTES", 1)
    return bool(request.param == "in memory")


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How often contents were parsed and headers were read, by anybody, over all files."""
    counts: Counter[str] = Counter()

    def count(owner: Any, name: str, what: str) -> None:
        function = getattr(owner, name)

        def counting(*arguments: Any, **options: Any) -> Any:
            counts[what] += 1
            return function(*arguments, **options)

        monkeypatch.setattr(owner, name, counting)

    for reader in ("open_csv", "read_csv"):
        count(pyarrow.csv, reader, "contents")
    count(pyarrow.parquet.ParquetFile, "iter_batches", "contents")
    for kind in (".csv", ".parquet"):
        header = files._HEADERS[kind]

        def read(path: Path, options: Any, header: Any = header) -> Any:
            counts["headers"] += 1
            return header(path, options)

        monkeypatch.setitem(files._HEADERS, kind, read)
    return counts


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    names = ("age", "bmi", "hdl", "ldl", "sbp", "dbp")
    turned = (names, names[::-1], names)
    return [
        as_csv(tmp_path / f"{site}.csv", rows(90, seed=seed), columns)
        for seed, (site, columns) in enumerate(zip(SITES, turned, strict=True))
    ]


@pytest.mark.parametrize("flags", [(), ("--column", "bmi", "--column", "age"), ("--no-center",)])
def test_a_fit_with_scores_parses_each_file_once(
    tmp_path: Path, paths: list[Path], reads: Counter[str], small: bool, flags: tuple[str, ...]
) -> None:
    answer("fit", *paths, "-k", 2, "-o", tmp_path / "out", *flags)
    assert reads["contents"] == len(SITES)
    assert reads["headers"] <= 2 * len(SITES)
    assert len(list((tmp_path / "out" / "scores").glob("*.npy"))) == len(SITES)


def test_the_scores_of_a_fit_are_those_of_a_projection(
    tmp_path: Path, paths: list[Path], small: bool
) -> None:
    answer("fit", *paths, "-k", 2, "-o", tmp_path / "out")
    for path in paths:
        answer("project", tmp_path / "out", path, "-o", tmp_path / "own.npy", "--force")
        np.testing.assert_array_equal(
            np.load(tmp_path / "out" / "scores" / f"{path.stem}.npy"), np.load(tmp_path / "own.npy")
        )


def test_a_projection_parses_its_file_once(
    tmp_path: Path, paths: list[Path], reads: Counter[str], small: bool
) -> None:
    answer("fit", *paths, "-k", 2, "-o", tmp_path / "out")
    reads.clear()
    if not small:
        files.forget_cache(paths[0])
    answer("project", tmp_path / "out", paths[0], "-o", tmp_path / "own.npy")
    assert reads["contents"] == 1
    assert reads["headers"] <= 2


def test_a_rehearsal_parses_each_file_once(
    tmp_path: Path, paths: list[Path], reads: Counter[str], small: bool
) -> None:
    study = tmp_path / "study.toml"
    study.write_text(f'name = "heart"\nsites = {json.dumps(SITES)}\ncomponents = 2\n')
    sites = [path.with_suffix(".toml") for path in paths]
    for path, site in zip(paths, sites, strict=True):
        site.write_text(f'name = "{path.stem}"\ndata = "{path.name}"\n[policy]\nmin_rows = 2\n')
    answer("fit", "--study", study, *sites, "-o", tmp_path / "out")
    assert reads["contents"] == len(SITES)
    assert reads["headers"] <= 2 * len(SITES)


def test_a_parquet_file_is_read_once_too(tmp_path: Path, reads: Counter[str], small: bool) -> None:
    paths = [tmp_path / f"{site}.parquet" for site in SITES]
    for seed, path in enumerate(paths):
        write_parquet(path, rows(90, seed=seed))
    answer("fit", *paths, "-k", 2, "-o", tmp_path / "out")
    assert reads["contents"] == len(SITES)
    assert reads["headers"] <= 2 * len(SITES)


def test_scores_are_made_without_a_copy_of_the_estimator(
    tmp_path: Path, paths: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_: FederatedPCA) -> Any:
        raise AssertionError

    monkeypatch.setattr(FederatedPCA, "__getstate__", refuse)
    said = answer("fit", *paths, "-k", 2, "-o", tmp_path / "out")
    assert json.loads((tmp_path / "out" / "result.json").read_text())["k"] == said["k"] == 2


def test_sites_that_differ_are_refused_by_their_headers_alone(
    tmp_path: Path, paths: list[Path], reads: Counter[str]
) -> None:
    as_csv(paths[1], rows(90), ("age", "BMI", "hdl", "ldl", "sbp", "dbp"))
    run = eigenfed("fit", *paths, "-k", 2)
    assert run.exit_code == 2
    assert "The sites differ in 'BMI' (only at 'south')" in run.stderr
    assert reads["contents"] == 0
    common = answer("fit", *paths, "-k", 2, "--features", "common")
    assert (common["d"], reads["contents"]) == (5, len(SITES))
