"""What a report is read from: a result folder, whole or refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from eigenfed.errors import DataError
from eigenfed.report.model import FEATURES_SHOWN, read_report
from eigenfed.report.site_scores import POINTS_SHOWN, read_scores
from eigenfed.study.results.result_folder import read_result
from reports import named, result, tables


def test_the_numbers_are_those_of_the_result(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(apart=3.0), by_site=True)
    report, facts = read_report(tmp_path / "r"), read_result(tmp_path / "r").facts
    assert [c.variance for c in report.components] == facts["eigenvalues"]
    assert [c.fraction for c in report.components] == facts["ratios"]
    assert report.components[-1].cumulative == pytest.approx(sum(facts["ratios"]), rel=1e-14)
    assert sum(site.bytes_up for site in report.sites) == facts["bytes_up"]
    assert sum(site.bytes_down for site in report.sites) == facts["bytes_down"]
    assert sum(sum(kind.bytes.values()) for kind in report.left) == facts["bytes_up"]
    assert [site.rows for site in report.sites] == [120.0, 127.0, 134.0]
    assert len(report.rounds) == facts["rounds"]
    assert report.converged == 3
    assert report.by_site is not None
    assert list(report.by_site.explained) == facts["by_site"]["explained"]
    assert report.by_site.by_chance == pytest.approx(2 / 380)


def test_every_reply_is_there_once(tmp_path: Path) -> None:
    result(tmp_path / "r", tables(), secure=True, method="krylov")
    report = read_report(tmp_path / "r")
    replies = [reply for found in report.replies.values() for reply in found]
    assert len(replies) == sum(kind.replies for kind in report.left)
    assert sum(reply.bytes for reply in replies) == report.facts["bytes_up"]
    assert {reply.masked for reply in replies if reply.op == "product"} == {True}
    assert report.by_site is None
    assert [site.rows for site in report.sites] == [None] * 3


def test_loadings_are_the_largest_entries_by_size(tmp_path: Path) -> None:
    result(tmp_path / "r", named(tables(d=40), ("first", "second")), k=2)
    report = read_report(tmp_path / "r")
    components = np.load(tmp_path / "r/components.npy")
    names = (tmp_path / "r/features.txt").read_text().split("\n")
    for found, row in zip(report.loadings, components, strict=True):
        order = np.argsort(-np.abs(row))[:FEATURES_SHOWN]
        assert [name for name, _ in found.features] == [names[i] for i in order]
        assert [weight for _, weight in found.features] == row[order].tolist()


def test_scores_are_summed_up_and_thinned(tmp_path: Path) -> None:
    rows = np.random.default_rng(0).standard_normal((3 * POINTS_SHOWN, 8)) + 5.0
    (tmp_path / "scores").mkdir()
    np.save(tmp_path / "scores/a.npy", rows)
    found = read_scores(tmp_path, ["a", "b"], [1.0] * 8)
    assert list(found) == ["a"]
    assert found["a"].rows == len(rows)
    np.testing.assert_allclose(found["a"].mean, rows.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(found["a"].sd, rows.std(axis=0), rtol=1e-12)
    np.testing.assert_array_equal(found["a"].points, rows[::3, :6])


def test_scores_that_are_not_of_the_result_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "scores/a.npy"
    path.parent.mkdir()
    for wrong in (np.zeros((4, 3)), np.zeros(4), np.full((4, 2), np.nan), np.zeros((4, 2), int)):
        np.save(path, wrong)
        with pytest.raises(
            DataError, match=r"a\.npy cannot be read, or does not belong to this result"
        ):
            read_scores(tmp_path, ["a"], [1.0, 1.0])
    path.write_bytes(b"no array")
    with pytest.raises(DataError, match="cannot be read"):
        read_scores(tmp_path, ["a"], [1.0, 1.0])


@pytest.mark.parametrize(
    ("key", "words"),
    [
        ("certificate", "do not belong to one complete run"),
        ("eigenvalues", "is not a result of format 1"),
        ("sites", "do not belong to one complete run"),
        ("by_site", "do not belong to one complete run"),
        ("shown_scores", "do not belong to one complete run"),
    ],
)
def test_a_result_without_a_part_of_it_is_refused(tmp_path: Path, key: str, words: str) -> None:
    result(tmp_path / "r", tables())
    path = tmp_path / "r/result.json"
    facts = json.loads(path.read_text())
    del facts[key]
    path.write_text(json.dumps(facts))
    with pytest.raises(DataError, match=words):
        read_report(tmp_path / "r")


def test_a_log_of_other_events_is_refused(tmp_path: Path) -> None:
    result(tmp_path / "r", tables())
    path = tmp_path / "r/run.jsonl"
    path.write_text(path.read_text().replace('"masked"', '"hidden"'))
    with pytest.raises(DataError, match="do not belong to one complete run"):
        read_report(tmp_path / "r")


def test_a_site_whose_name_leads_out_of_the_folder_is_refused(tmp_path: Path) -> None:
    result(tmp_path / "r", tables())
    for part in ("result.json", "run.jsonl"):
        path = tmp_path / "r" / part
        path.write_text(path.read_text().replace('"north"', '"../north"'))
    with pytest.raises(DataError, match="do not belong to one complete run"):
        read_report(tmp_path / "r")
