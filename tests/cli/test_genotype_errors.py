"""What goes wrong with genotype files is told in one line, with a way out."""

from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from command_line import answer, eigenfed
from genotype_files import draw_genotypes, write_plink

D = 40


def write_sites(folder: Path) -> list[Path]:
    copies = draw_genotypes(np.random.default_rng(0), [20, 25, 30], D)
    parts = zip("abc", np.split(copies, [20, 45]), strict=True)
    return [
        write_plink(folder / f"{name}.bed", part, people=[f"{name}{i}" for i in range(len(part))])
        for name, part in parts
    ]


def move(folder: Path, shift: int, count: int = D) -> None:
    """Move the first variants of a site, as in another build of the genome."""
    path = folder / "b.bim"
    rows = [line.split("\t") for line in path.read_text().splitlines()]
    for row in rows[:count]:
        row[3] = str(int(row[3]) + shift)
    path.write_text("".join("\t".join(row) + "\n" for row in rows))


def rename_alleles(folder: Path) -> None:
    path = folder / "b.bim"
    path.write_text(path.read_text().replace("\tA\tG\n", "\tT\tC\n"))


def make_ambiguous(folder: Path) -> None:
    """Have every variant with alleles that are the same on both strands, swapped at one site."""
    for name in "abc":
        path = folder / f"{name}.bim"
        pair = "\tT\tA\n" if name == "b" else "\tA\tT\n"
        path.write_text(path.read_text().replace("\tA\tG\n", pair))


def make_equal(folder: Path) -> None:
    for name, n in (("a", 20), ("b", 25), ("c", 30)):
        write_plink(folder / f"{name}.bed", np.zeros((n, D), np.int8))


def nothing(folder: Path) -> None:
    """Leave all files as they are."""


class Fault(NamedTuple):
    """What is done to the files, the options of a fit, and what it then says."""

    cause: Callable[[Path], object]
    options: tuple[str, ...]
    words: str


FAULTS = {
    "no .bim": Fault(lambda f: (f / "b.bim").unlink(), (), "three files of one name"),
    "another build": Fault(
        lambda f: move(f, 5), (), "40 of 40 variants have other chromosomes or positions at site"
    ),
    "another build than the manifest": Fault(
        lambda f: move(f, 5), ("--manifest", "a.bim"), "refer to the same build of the genome."
    ),
    "other alleles": Fault(rename_alleles, (), "Match their variants to a manifest, a .bim file"),
    "one allele": Fault(make_equal, (), "No variant has both alleles among the people"),
    "a wrong manifest": Fault(nothing, ("--manifest", "a.fam"), "a.fam must be a .bim file"),
    "an empty manifest": Fault(
        lambda f: (f / "e.bim").write_text(""), ("--manifest", "e.bim"), "e.bim has no variants"
    ),
    "no manifest": Fault(
        nothing,
        ("--ambiguous", "keep"),
        "--ambiguous keep is about variants that are matched to a manifest. Drop it, or pass "
        "--manifest FILE.",
    ),
    "alleles of both strands": Fault(
        make_ambiguous,
        ("--manifest", "a.bim"),
        "a.bed: of 40 variants of the manifest, 40 ambiguous. None can be used: A and T, or C and "
        "G, do not tell which strand was read. Pass --ambiguous keep if all sites have read the "
        "same.",
    ),
    "too many components": Fault(nothing, ("-k", "41"), "-k 41 must be at most 40"),
    "nobody": Fault(
        lambda f: (f / "few").write_text("x y\n"), ("--keep", "few"), "are left by the lists"
    ),
    "no variant": Fault(nothing, ("--prepare", "maf:0.5"), "maf:0.5 "),
    "privacy": Fault(
        nothing,
        ("--epsilon", "1", "--delta", "1e-6"),
        "cannot be combined with privacy. Drop --epsilon.",
    ),
}


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_told_with_its_remedy(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files = write_sites(Path())
    fault = FAULTS[name]
    fault.cause(Path())
    count = () if "-k" in fault.options else ("-k", "2")
    run = eigenfed("fit", *files, *count, *fault.options)
    assert run.exit_code != 0
    assert "Unexpected" not in run.stderr
    assert fault.words in run.stderr, run.stderr


def test_a_part_of_a_plink_file_names_the_whole(tmp_path: Path) -> None:
    files = write_sites(tmp_path)
    run = eigenfed("fit", files[0].with_suffix(".bim"), "-k", 1)
    assert f"Pass {files[0]}." in run.stderr


def test_alleles_of_both_strands_are_kept_on_request(tmp_path: Path) -> None:
    files = write_sites(tmp_path)
    call = ("fit", *files, "-k", 2, "--seed", 0, "--no-secure")
    wanted = answer(*call, "--prepare", "matched")["eigenvalues"]
    make_ambiguous(tmp_path)
    manifest = ("--manifest", tmp_path / "a.bim", "--ambiguous", "keep")
    run = eigenfed(*call, *manifest)
    assert "b.bed: of 40 variants of the manifest, 40 swapped." in run.stderr
    turned = 2 - np.split(draw_genotypes(np.random.default_rng(0), [20, 25, 30], D), [20, 45])[1]
    write_plink(files[1], turned, people=[f"b{i}" for i in range(25)])
    make_ambiguous(tmp_path)
    np.testing.assert_allclose(answer(*call, *manifest)["eigenvalues"], wanted, rtol=1e-6)


def test_notes_tell_what_lists_and_a_manifest_leave(tmp_path: Path) -> None:
    files = write_sites(tmp_path)
    (tmp_path / "gone").write_text("fa1 a1\nfb3 b3\nelse where\n")
    (tmp_path / "kin").write_text("fa2 a2\n")
    (tmp_path / "some").write_text("rs1\nrs2\nrs3\n")
    move(tmp_path, 7, count=30)
    lists = ["--remove", tmp_path / "gone", "--no-fit", tmp_path / "kin"]
    lists += ["--exclude-variants", tmp_path / "some", "--manifest", tmp_path / "a.bim"]
    run = eigenfed("fit", *files, "-k", 2, *lists)
    assert run.exit_code == 0, run.stderr
    assert "a.bed: of 20 people, 1 left out and 1 projected only; of 40 variants, 3" in run.stderr
    assert "c.bed: of 30 people, 0 left out and 0 projected only" in run.stderr
    assert "30 absent. Check that both refer to the same build of the genome." in run.stderr
