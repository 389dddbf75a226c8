"""PLINK files on the command line: fitted, written as plink writes them, and projected onto."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pytest

from command_line import eigenfed
from genotype_files import draw_genotypes, write_plink

D, K = 300, 3
SITES = {"a": 40, "b": 33, "c": 22}


def draw() -> npt.NDArray[np.int8]:
    """Draw genotypes of all sites, with both alleles of every variant."""
    copies = draw_genotypes(np.random.default_rng(5), list(SITES.values()), D)
    copies[0] = 1
    return copies


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three files, one of each population, and their result in ``out``."""
    place = tmp_path_factory.mktemp("genotypes")
    copies = draw()
    starts = np.cumsum([0, *SITES.values()])
    for site, start, stop in zip(SITES, starts, starts[1:], strict=False):
        people = [f"{site}{row}" for row in range(start, stop)]
        write_plink(place / f"{site}.bed", copies[start:stop], people=people)
    write_plink(place / "all.bed", copies)
    files = [str(place / f"{site}.bed") for site in SITES]
    run = eigenfed("fit", *files, "-k", str(K), "--seed", "1", "-o", str(place / "out"))
    assert run.exit_code == 0, run.output
    return place


def read_vectors(path: Path) -> npt.NDArray[np.float64]:
    rows = [line.split() for line in path.read_text().splitlines() if not line.startswith("#")]
    return np.array([row[2:] for row in rows], dtype=np.float64)


def test_each_site_has_its_rows_of_unit_vectors_in_both_flavours(folder: Path) -> None:
    scores = folder / "out" / "scores"
    for site, n in SITES.items():
        lines = (scores / f"{site}.eigenvec").read_text().splitlines()
        assert lines[0].startswith("## unit vectors U")
        assert lines[1].split("\t") == ["#FID", "IID", "PC1", "PC2", "PC3"]
        assert len(lines) == n + 2
        plain = (scores / f"{site}.plink1.eigenvec").read_text()
        assert plain == "\n".join(lines[2:]).replace("\t", " ") + "\n"
        assert plain.split()[0].startswith(f"f{site}")
    units = np.concatenate([read_vectors(scores / f"{site}.eigenvec") for site in SITES])
    np.testing.assert_allclose(np.linalg.norm(units, axis=0), 1.0, rtol=1e-4)


def test_eigenvalues_are_those_of_plink_and_come_with_their_sum(folder: Path) -> None:
    facts = json.loads((folder / "out" / "result.json").read_text())
    assert facts["scale"] == "genotype"
    assert (facts["asked"]["tol"], facts["asked"]["stop"]) == (0.05, "separated")
    path = folder / "out" / "components.eigenval"
    factor = (sum(SITES.values()) - 1) / D
    np.testing.assert_allclose(np.loadtxt(path), np.array(facts["eigenvalues"]) * factor, rtol=1e-5)
    total = float(path.read_text().splitlines()[-1].split()[-1])
    assert total == pytest.approx(facts["total_variance"] * factor, rel=1e-4)
    assert not (folder / "out" / "loadings.csv").exists()


def test_plink2_scores_the_loadings_as_we_project(folder: Path) -> None:
    plink2 = shutil.which("plink2")
    if plink2 is None:
        pytest.skip("plink2 is not installed: install Debian's plink2 and libopenblas0-pthread")
    out = folder / "out"
    command = [plink2, "--bfile", str(folder / "a"), "--read-freq", str(out / "components.afreq")]
    command += ["--score", str(out / "components.eigenvec.allele"), "2", "5", "header-read"]
    command += ["no-mean-imputation", "variance-standardize", "cols=scoresums"]
    command += ["--score-col-nums", f"6-{5 + K}", "--out", str(folder / "scored")]
    subprocess.run(command, check=True, capture_output=True)
    lines = (folder / "scored.sscore").read_text().splitlines()
    sums = np.array([line.split()[-K:] for line in lines[1:]], dtype=np.float64)
    np.testing.assert_allclose(sums, np.load(out / "scores" / "a.npy"), rtol=1e-3, atol=1e-3)


def test_sites_differ_by_ancestry_and_not_by_units(folder: Path, tmp_path: Path) -> None:
    page = (folder / "out/report.html").read_text("utf-8")
    assert "Check ancestry and genotyping before you interpret" in page
    assert "check ancestry, genotyping and recruitment." in page
    assert "--center site" not in page  # it cannot be combined with their scale
    few = tmp_path / "few"
    few.write_text("fa0 a0\nfa1 a1\nfb40 b40\nfb41 b41\n")
    files = [folder / "a.bed", folder / "b.bed"]
    run = eigenfed("fit", *files, "-k", 1, "--keep", few, "-o", tmp_path / "out")
    assert "differences between sites" in run.stdout
    assert "check ancestry and genotyping first" in run.stdout


def test_new_people_are_projected_also_where_the_other_allele_is_counted(folder: Path) -> None:
    out, scores = str(folder / "out"), folder / "out" / "scores" / "a.npy"
    run = eigenfed("project", out, str(folder / "a.bed"), "-o", str(folder / "a.csv"))
    assert run.exit_code == 0, run.output
    assert "closer to 0 than those of fitted people, by factors of about 0." in run.output
    written = (folder / "a.csv").read_text().splitlines()
    assert written[1].startswith("fa0 a0,")
    copies = draw()[: SITES["a"]]
    order = np.random.default_rng(0).permutation(D)
    turned = write_plink(
        folder / "turned.bed",
        (2 - copies)[:, order].astype(np.int8),
        variants=[f"rs{j}" for j in order],
        alleles=[("G", "A")] * D,
    )
    run = eigenfed("project", out, str(turned), "-o", str(folder / "turned.npy"))
    assert run.exit_code == 0, run.output
    np.testing.assert_allclose(np.load(folder / "turned.npy"), np.load(scores), atol=1e-4)
    lacking = write_plink(folder / "few.bed", copies[:, :9])
    run = eigenfed("project", out, str(lacking))
    assert run.exit_code != 0
    assert "lacks 291 of the 300 variants" in run.output


def test_lists_apply_to_all_files_and_to_no_table(folder: Path, tmp_path: Path) -> None:
    files = [str(folder / f"{site}.bed") for site in SITES]
    (tmp_path / "few").write_text("rs1\nrs2\nrs3\nrs4\n")
    (tmp_path / "kin").write_text("fa3 a3\nfb50 b50\n")
    lists = ["--extract", str(tmp_path / "few"), "--no-fit", str(tmp_path / "kin")]
    run = eigenfed("fit", *files, "-k", "2", *lists, "--json")
    assert run.exit_code == 0, run.output
    assert json.loads(run.stdout)["d"] == 4
    (tmp_path / "t.csv").write_text("x,y\n1,2\n3,5\n4,4\n")
    run = eigenfed("fit", str(tmp_path / "t.csv"), "-k", "1", *lists)
    assert run.exit_code != 0
    assert "--extract requires a file of kind .bed" in run.output
    run = eigenfed("fit", files[0], "-k", "1", "--ambiguous", "keep")
    assert "matched to a manifest. Drop it, or pass --manifest FILE." in run.output


def test_the_demo_finds_simulated_ancestry(tmp_path: Path) -> None:
    run = eigenfed("demo", "--gwas", "-o", str(tmp_path / "demo"), "--json")
    assert run.exit_code == 0, run.output
    data = json.loads(run.stdout)
    assert data["converged"] == 2
    assert data["ancestry"] > 0.95
    assert data["angle"] < np.radians(0.1)
    removed = {row["step"]: row["removed"] for row in data["result"]["prepare"]["attrition"]}
    assert len(removed) == 6
    assert all(count > 50 for step, count in removed.items() if step != "variants of the study")
    matched = data["result"]["prepare"]["matched"]
    assert min(matched[name] for name in ("same", "swapped", "flipped", "ambiguous", "absent")) > 0
    page = " ".join((tmp_path / "demo" / "report.html").read_text().split())
    for words in (
        "2 of 4 converged",
        "PC1 and PC2 are clear of other components, and within 0.05 degrees",
        "PC3 and PC4 are not",
        "the default for genotypes",
        "Variants removed by each step",
        "740 of 740 rows",
        "What left each site",
        "counts of genotypes by variant",
    ):
        assert words in page, words
