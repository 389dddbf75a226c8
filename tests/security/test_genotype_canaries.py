"""Nothing about a person is in what sites send, share, or say when they fail."""

import json
import logging
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from command_line import eigenfed
from eigenfed.arrays import Array
from eigenfed.protocol.gate.gate import Site
from eigenfed.study.network.results_sent import read_sent_files
from genotype_files import draw_genotypes, write_plink

D, SIZES = 90, {"a": 31, "b": 47, "c": 103}
STEPS = ("call_rate:0.5", "maf:0.01", "ld:8:0.9")
CANARY = "CANARY"
"""Part of the names of all people, and of nothing else."""


def write_sites(folder: Path) -> dict[str, Path]:
    """Write three sites whose people have names that can be found again."""
    copies = draw_genotypes(np.random.default_rng(2), list(SIZES.values()), D, missing=0.01)
    parts = np.split(copies, np.cumsum(list(SIZES.values()))[:-1])
    return {
        name: write_plink(
            folder / f"{name}.bed", part, people=[f"{CANARY}{name}{i}" for i in range(len(part))]
        )
        for name, part in zip(SIZES, parts, strict=True)
    }


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    return write_sites(tmp_path_factory.mktemp("sites"))


def find_numbers(scores: Array) -> set[bytes]:
    """Return numbers about people as a page or a file might have them."""
    written = {f"{number:.4g}" for number in scores.ravel().tolist() if abs(number) < 10}
    return {text.encode() for text in written if len(text.lstrip("-0.")) >= 4}


@pytest.mark.parametrize("flags", [["--secure"], ["--no-secure"]])
def test_what_is_shared_names_nobody_and_has_no_score(
    sites: dict[str, Path],
    tmp_path: Path,
    flags: list[str],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    sent: list[bytes] = []
    answer = Site.answer

    def record(site: Site, data: bytes, *, intact: bool = False) -> bytes:
        sent.append(answer(site, data, intact=intact))
        return sent[-1]

    monkeypatch.setattr(Site, "answer", record)
    caplog.set_level(logging.DEBUG)
    out = tmp_path / "out"
    steps = [word for step in STEPS for word in ("--prepare", step)]
    manifest = sites["a"].with_suffix(".bim")
    run = eigenfed(
        "fit", *sites.values(), "-k", 3, *flags, *steps, "--manifest", manifest, "-o", out
    )
    assert run.exit_code == 0, run.stderr
    own = {"scores", "sites"}
    shared = {
        path.relative_to(out): path.read_bytes()
        for path in out.rglob("*")
        if path.is_file() and path.relative_to(out).parts[0] not in own
    }
    assert {Path("report.html"), Path("components.afreq"), Path("result.json")} <= shared.keys()
    assert read_sent_files(out).keys() <= {str(path) for path in shared}
    scores = np.concatenate([np.load(out / "scores" / f"{name}.npy") for name in SIZES])
    units = scores / np.linalg.norm(scores, axis=0)
    # A number may be met by chance in a page; many of one kind may not.
    for path, data in shared.items():
        assert CANARY.encode() not in data, path
        for kind in (scores, units):
            numbers = find_numbers(kind)
            met = sum(number in data for number in numbers)
            assert met < 0.2 * len(numbers), path
    assert all(CANARY not in str(path) for path in shared)
    assert CANARY not in run.stdout + run.stderr + caplog.text
    assert any(CANARY in path.read_text() for path in (out / "scores").glob("*.eigenvec"))
    for data in sent:
        assert CANARY.encode() not in data
    assert len(sent) > 20


def swap_lines(path: Path, change: Callable[[list[str]], list[str]]) -> None:
    path.write_text("".join(f"{line}\n" for line in change(path.read_text().splitlines())))


FAULTS: dict[str, tuple[str, Callable[[list[str]], list[str]], str]] = {
    "a person twice": (
        ".fam",
        lambda lines: [lines[1], *lines[1:]],
        "names a person more than once",
    ),
    "a person less": (".fam", lambda lines: lines[5:], "three files that belong together"),
    "a field less": (".fam", lambda lines: [lines[0][:-3], *lines[1:]], "six fields on every line"),
    "a variant twice": (
        ".bim",
        lambda lines: [lines[1], *lines[1:]],
        "names a variant more than once",
    ),
    "no position": (
        ".bim",
        lambda lines: [line.replace("\t101\t", f"\t{CANARY}\t") for line in lines],
        "the fourth of a .bim file an integer",
    ),
}


@pytest.mark.parametrize("fault", FAULTS)
def test_no_error_about_a_file_quotes_it(tmp_path: Path, fault: str) -> None:
    paths = write_sites(tmp_path)
    suffix, change, words = FAULTS[fault]
    swap_lines(paths["b"].with_suffix(suffix), change)
    run = eigenfed("fit", *paths.values(), "-k", 2, "--json")
    assert run.exit_code != 0
    said = run.stdout + run.stderr
    assert words in said
    assert CANARY not in said
    assert "b.bed" in said or f"b{suffix}" in said
    assert json.loads(run.stdout or "{}").get("ok") is not True
