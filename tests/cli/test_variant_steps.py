"""Filters of variants on the command line, in a study file, in the result and in the report."""

import json
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

from command_line import answer, eigenfed
from eigenfed.data.readers.plink import read_plink
from eigenfed.errors import DataError
from eigenfed.report.repeat import write_command, write_python
from eigenfed.study.config import read_study
from eigenfed.study.results.result_folder import read_result
from genotype_files import draw_genotypes, write_plink

STEPS = ("call_rate:0.9", "maf:0.02", "ld:5:0.8")
FLAGS = [word for step in STEPS for word in ("--prepare", step)]
D = 60


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with three sites, of which one counts the other alleles, and a result."""
    folder = tmp_path_factory.mktemp("cohorts")
    copies = draw_genotypes(np.random.default_rng(0), [30, 40, 50], D, missing=0.01)
    copies[:, 7] = copies[:, 8]
    copies[:, 9] = 0
    for name, part in zip("abc", np.split(copies, [30, 70]), strict=True):
        turned = name == "b"
        kept = np.where(part < 0, -1, 2 - part).astype(np.int8) if turned else part
        write_plink(
            folder / f"{name}.bed",
            kept,
            people=[f"{name}{i}" for i in range(len(part))],
            alleles=[("G", "A") if turned else ("A", "G")] * D,
        )
    files = [folder / f"{name}.bed" for name in "abc"]
    manifest = folder / "a.bim"
    run = eigenfed(
        *("fit", *files, "-k", 2, *FLAGS, "--manifest", manifest, "-o", folder / "result")
    )
    assert run.exit_code == 0, run.stderr
    assert "58 of 60 features kept" in run.stdout
    assert "maf:0.02                     1    59\n" in run.stdout
    assert "ld:5:0.8                     1    58\n" in run.stdout
    assert "in sums over all sites only" in run.stdout
    return folder


def test_the_result_has_the_attrition_table_and_projects(home: Path) -> None:
    facts = json.loads((home / "result/result.json").read_text())
    assert facts["secure"] is True
    assert facts["prepare"]["steps"] == list(STEPS)
    assert facts["prepare"]["attrition"][-1] == {"step": "ld:5:0.8", "removed": 1, "left": 58}
    assert facts["prepare"]["matched"]["swapped"] == D
    kept = read_result(home / "result")
    assert kept.preparation.width(D) == 58
    assert "rs9_A" not in kept.labels
    lines = (home / "result/components.eigenvec.allele").read_text().splitlines()
    assert len(lines) == 1 + 58
    frequencies = [
        line.split("\t") for line in (home / "result/components.afreq").read_text().splitlines()
    ]
    assert frequencies[0] == ["#CHROM", "ID", "REF", "ALT", "ALT_FREQS", "OBS_CT"]
    known = sum(read_plink(home / f"{name}.bed").genotypes.counts.observed[0] for name in "abc")
    assert frequencies[1][5] == str(2 * known)
    new = answer("project", home / "result", home / "a.bed")["scores"]
    np.testing.assert_allclose(np.load(home / "result/scores/a.npy"), new, atol=1e-5)


def test_new_people_need_only_the_variants_with_loadings(home: Path, tmp_path: Path) -> None:
    places = [8, 9, 20, 21]  # the first two were removed by steps
    copies = read_plink(home / "a.bed").genotypes[:]
    copies = np.nan_to_num(copies, nan=-1.0).astype(np.int8)
    kept = np.delete(np.arange(D), places[:2])
    few = write_plink(tmp_path / "few.bed", copies[:, kept], variants=[f"rs{j}" for j in kept])
    new = answer("project", home / "result", few)
    np.testing.assert_allclose(new["scores"], np.load(home / "result/scores/a.npy"), atol=1e-5)
    assert (new["absent"], len(new["shrinkage"])) == (0, 2)
    kept = np.delete(np.arange(D), places)
    lacking = write_plink(tmp_path / "l.bed", copies[:, kept], variants=[f"rs{j}" for j in kept])
    positions = [line.split("\t") for line in (home / "a.bim").read_text().splitlines()]
    lines = ["\t".join(positions[j]) + "\n" for j in kept]
    lacking.with_suffix(".bim").write_text("".join(lines))
    run = eigenfed("project", home / "result", lacking)
    assert "lacks 2 of the 58 variants" in run.stderr
    assert "Match them to a manifest" in run.stderr
    run = eigenfed("project", home / "result", lacking, "--manifest", home / "a.bim")
    assert run.exit_code == 0, run.stderr
    assert "lacks 2 of the 58 variants of the components" in run.stderr


def test_plink2_scores_what_is_left_as_we_do(home: Path, tmp_path: Path) -> None:
    plink2 = shutil.which("plink2")
    if plink2 is None:
        pytest.skip("plink2 is not installed: install Debian's plink2 and libopenblas0-pthread")
    result = home / "result"
    # `b` counts the other alleles: plink turns them too.
    command = [plink2, "--bfile", home / "b", "--read-freq", result / "components.afreq"]
    command += ["--score", result / "components.eigenvec.allele", "2", "5", "header-read"]
    command += ["no-mean-imputation", "variance-standardize", "cols=scoresums"]
    command += ["--score-col-nums", "6-7"]
    subprocess.run(
        [*map(str, command), "--out", str(tmp_path / "s")], check=True, capture_output=True
    )
    lines = (tmp_path / "s.sscore").read_text().splitlines()
    sums = np.array([line.split()[-2:] for line in lines[1:]], dtype=np.float64)
    np.testing.assert_allclose(sums, np.load(result / "scores/b.npy"), rtol=1e-3, atol=1e-3)


def test_the_report_shows_what_was_removed_and_how_to_repeat_it(home: Path) -> None:
    page = (home / "result/report.html").read_text()
    for words in (
        "Variants removed by each step",
        "usable at every site",
        "the same alleles, the other one counted",
        "covariances of neighbouring variants",
    ):
        assert words in page, words
    facts = json.loads((home / "result/result.json").read_text())
    assert "--secure --manifest manifest.bim --prepare call_rate:0.9" in str(write_command(facts))
    opened = facts | {"secure": False}
    assert "--no-secure --manifest" in str(write_command(opened))
    assert "secure=False, prepare=['call_rate:0.9'" in write_python(opened)


def test_a_study_file_matches_variants_and_sums_securely_by_default(home: Path) -> None:
    study = home / "study.toml"
    steps = ", ".join(f'"{step}"' for step in STEPS)
    text = 'name = "s"\nsites = ["a", "b", "c"]\ncomponents = 2\nmanifest = "a.bim"\n'
    study.write_text(f"{text}prepare = [{steps}]\n")
    for name in "abc":
        (home / f"{name}.toml").write_text(
            f'name = "{name}"\ndata = "{name}.bed"\n[policy]\nmin_rows = 20\n'
        )
    sites = [home / f"{name}.toml" for name in "abc"]
    facts = answer("fit", "--study", study, *sites)
    assert facts["secure"] is True
    assert facts["prepare"]["matched"]["swapped"] == D
    assert read_study(study).study.features != ""
    digest = read_study(study).study.digest
    study.write_text(f'{text}ambiguous = "keep"\nprepare = [{steps}]\n')
    assert read_study(study).study.digest != digest
    study.write_text(f"{text}secure = false\nprepare = [{steps}]\n")
    run = eigenfed("fit", "--study", study, *sites)
    assert "too few people to send counts" in run.stderr
    numbers = "{ a = 30, b = 40, c = 50 }"
    study.write_text(f"{text}prepare = [{steps}]\n[expected]\nrows = {numbers}\nfeatures = {D}\n")
    audit = eigenfed("audit", "coordinator", sites[1], study)
    assert "None of the reactions depended on the rows" in audit.stdout, audit.stderr
    assert f"(40 rows, {D} features, method {facts['method']})" in audit.stdout
    assert "how many people have which genotype. And they learn sums of products" in audit.stdout
    bare = text.replace('manifest = "a.bim"\n', "")
    for wrong, words in (
        (text, "no step for variants"),
        (bare + 'prepare = ["maf"]\nambiguous = "keep"\n', "requires a manifest of variants"),
    ):
        study.write_text(wrong)
        with pytest.raises(DataError, match=words):
            read_study(study)


def test_a_plan_counts_the_products_in_the_windows_of_the_manifest(home: Path) -> None:
    study = home / "planned.toml"
    text = 'name = "s"\nsites = ["a", "b", "c"]\ncomponents = 2\nmanifest = "a.bim"\n'
    expected = "[expected]\nrows = { a = 30, b = 40, c = 50 }\n"
    for window, pairs in (("5", 4 * D - 10), ("5kb", 50 * D - 50 * 51 // 2)):
        steps = f'["autosomes", "exclude_long_range_ld", "maf", "ld:{window}:0.8"]'
        study.write_text(f"{text}prepare = {steps}\n{expected}")
        shown = " ".join(eigenfed("plan", study).stdout.split())
        assert f"at most {pairs} products of neighbouring variants, in 1 sum." in shown
        assert "in sums over all sites only" in shown
        assert "which stay in a file of" in shown
    alone = eigenfed("plan", "--rows", "30,40,50", "--features", D, "-k", 2, "--prepare", "ld")
    assert "They are not included" in alone.stdout, alone.stderr


def test_without_steps_a_manifest_keeps_what_every_site_has(home: Path) -> None:
    files = [home / f"{name}.bed" for name in "abc"]
    facts = answer("fit", *files, "-k", 2, "--manifest", home / "b.bim", "--no-secure")
    assert facts["prepare"]["steps"] == ["matched"]
    assert (facts["d"], facts["secure"]) == (D, False)
