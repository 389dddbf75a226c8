"""Variants filtered over sites are those filtered in one place, by our own oracle and by plink2."""

import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from eigenfed import FederatedPCA, Policy
from eigenfed.arrays import Arrays
from eigenfed.data.files import FileTable, open_table
from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.loci import Loci
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers.plink import PlinkFile, read_plink
from eigenfed.data.source import Source
from eigenfed.data.steps import as_steps
from eigenfed.errors import InputError, ProtocolError, SiteRefused
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.release import Reveals
from eigenfed.protocol.core import TOTAL, plain_sum
from eigenfed.protocol.exact.quality_control import collect_variants
from eigenfed.protocol.exact.variant_counts import VariantCountsRequest
from eigenfed.protocol.exact.variant_products import VariantProductsRequest
from eigenfed.protocol.study import Study
from federation import DATA
from genotype_files import draw_genotypes, write_plink
from hostile import Lone
from oracles import enumerate_midp, prune_plainly

Copies = npt.NDArray[np.int8]
D, SIZES = 160, (40, 61, 83)
STEPS = ["call_rate:0.95", "maf:0.1", "hwe:1e-3", "ld:12:0.4"]


def draw(seed: int = 0) -> Copies:
    """Draw people whose variants are linked, and some variants that filters must remove."""
    rng = np.random.default_rng(seed)
    copies = draw_genotypes(rng, [sum(SIZES)], D)
    for j in range(1, D):
        if j % 4:
            linked = rng.random(len(copies)) < 0.7
            copies[linked, j] = copies[linked, j - 1]
    copies[:, 5] = copies[:, 6] = 0
    copies[:3, 6] = 1
    copies[:, 20] = np.where(rng.random(len(copies)) < 0.5, 0, 2)
    copies[rng.random(len(copies)) < 0.1, 30] = -1
    copies[rng.random(copies.shape) < 0.01] = -1
    order: Copies = copies[rng.permutation(len(copies))]
    return order


def split(copies: Copies) -> list[Copies]:
    return np.split(copies, np.cumsum(SIZES)[:-1])


def write_sites(folder: Path, copies: Copies, **others: Mapping[str, Any]) -> dict[str, Path]:
    """Write the sites a, b and c, with other settings for some."""
    return {
        name: write_plink(
            folder / f"{name}.bed",
            part,
            people=[f"{name}{i}" for i in range(len(part))],
            **others.get(name, {}),
        )
        for name, part in zip("abc", split(copies), strict=True)
    }


def filter_plainly(copies: Copies, steps: Sequence[str] = STEPS) -> list[int]:
    """Return the variants that the steps keep, one after the other, on the pooled table."""
    x = np.where(copies < 0, np.nan, copies.astype(np.float64))
    mean = np.nanmean(x, axis=0)
    maf = np.minimum(mean, 2 - mean) / 2
    kept = []
    for j in range(copies.shape[1]):
        two, one, none = (int(np.sum(copies[:, j] == c)) for c in (2, 1, 0))
        is_called = two + one + none >= 0.95 * len(copies)
        if is_called and maf[j] >= 0.1 and enumerate_midp(two, one, none) >= 1e-3:
            kept.append(j)
    if "ld:12:0.4" not in steps:
        return kept
    centred = np.nan_to_num(x - mean)[:, kept]
    squares = np.sqrt(np.sum(centred**2, axis=0))
    r2 = (centred.T @ centred / np.outer(squares, squares)) ** 2
    ends = [min(start + 12, len(kept)) for start in range(len(kept))]
    alive = prune_plainly(r2, ends, maf[kept], 0.4)
    return [place for place, flag in zip(kept, alive, strict=True) if flag]


def fit(sites: Mapping[str, Any], **settings: Any) -> FederatedPCA:
    given: dict[str, Any] = {"prepare": STEPS, "random_state": 0, "tol": 1e-3, "stop": "all"}
    return FederatedPCA(3, **(given | settings)).fit_sites(sites)


def list_kept(pca: FederatedPCA) -> list[int]:
    assert pca.selected_features_ is not None
    kept: list[int] = pca.selected_features_.tolist()
    return kept


@pytest.fixture(scope="module")
def copies() -> Copies:
    return draw()


@pytest.fixture(scope="module")
def reference(copies: Copies, tmp_path_factory: pytest.TempPathFactory) -> FederatedPCA:
    return fit(write_sites(tmp_path_factory.mktemp("sites"), copies))


def check_same(found: FederatedPCA, expected: FederatedPCA) -> None:
    assert list_kept(found) == list_kept(expected)
    np.testing.assert_allclose(found.explained_variance_, expected.explained_variance_, rtol=1e-5)
    assert sines(found.components_, expected.components_).max() < 2e-3


def test_what_is_kept_is_what_a_plain_loop_over_pooled_rows_keeps(
    copies: Copies, reference: FederatedPCA, tmp_path: Path
) -> None:
    expected = filter_plainly(copies)
    assert reference.settings_["secure"] is True
    assert list_kept(reference) == expected
    assert len(expected) < len(filter_plainly(copies, STEPS[:-1])) < D - 3
    table = reference.preparation_.attrition
    assert [row.step for row in table[2:]] == [
        "call_rate:0.95",
        "maf:0.1",
        "hwe:0.001",
        "ld:12:0.4",
    ]
    assert table[-1].left == len(expected) == reference.components_.shape[1]
    assert sum(row.removed for row in table) == D - len(expected)
    assert all(row.removed for row in table[2:])
    pooled = write_plink(tmp_path / "pooled.bed", copies)
    check_same(fit({"all": pooled}), reference)
    check_same(fit(write_sites(tmp_path, copies), secure=False), reference)
    chosen = read_plink(pooled).take_variants(np.array(expected))
    alone = FederatedPCA(3, random_state=0, tol=1e-3, stop="all").fit_sites({"all": chosen.source})
    np.testing.assert_allclose(alone.explained_variance_, reference.explained_variance_, rtol=1e-5)
    scores = reference.transform_aligned(read_plink(pooled).genotypes)
    np.testing.assert_allclose(scores, alone.transform_aligned(chosen.genotypes), atol=2e-2)


def test_only_sums_leave_under_secure_aggregation_and_the_meter_counts_entries(
    reference: FederatedPCA,
) -> None:
    for left in reference.egress_.values():
        by_op = {entry.op: entry for entry in left}
        assert by_op["variant_counts"].masked
        assert by_op["variant_products"].masked
        assert by_op["variant_products"].release.reveals is Reveals.ENTRIES
    assert reference.leakage_.rank_fraction > 0.2


def test_swapped_flipped_and_absent_variants_change_nothing_else(
    copies: Copies, tmp_path: Path
) -> None:
    alleles = [("A", "G"), ("C", "T"), ("A", "C")] * (D // 3) + [("A", "T")]
    parts = split(copies)
    turned = np.where(parts[1] < 0, -1, 2 - parts[1]).astype(np.int8)
    complement = dict(zip("ACGT", "TGCA", strict=True))
    manifest = write_plink(tmp_path / "study.bed", copies[:4], alleles=alleles)
    same = write_sites(tmp_path, copies, **{name: {"alleles": alleles} for name in "abc"})
    (tmp_path / "other").mkdir()
    other = {
        "a": write_plink(tmp_path / "other/a.bed", parts[0], alleles=alleles),
        "b": write_plink(
            tmp_path / "other/b.bed", turned, alleles=[(a2, a1) for a1, a2 in alleles]
        ),
        "c": write_plink(
            tmp_path / "other/c.bed",
            parts[2],
            alleles=[(complement[a1], complement[a2]) for a1, a2 in alleles],
            variants=[f"own{j}" for j in range(D)],
        ),
    }

    def match(paths: Mapping[str, Path], **settings: Any) -> FederatedPCA:
        filters = GenotypeFilters(manifest=manifest.with_suffix(".bim"))
        options = ReadOptions(filters=filters)
        tables = {name: open_table(path, options=options) for name, path in paths.items()}
        return fit(tables, **settings)

    expected = match(same)
    found = match(other)
    check_same(found, expected)
    matched = found.preparation_.matched
    assert matched is not None
    assert matched.tolist() == [D - 1, D - 1, D - 1, 0, 3, 0, 0, 0]
    lines = other["c"].with_suffix(".bim").read_text().splitlines()
    lines[list_kept(expected)[3]] = "9\tgone\t0\t5\tA\tG"
    other["c"].with_suffix(".bim").write_text("\n".join(lines) + "\n")
    less = match(other, prepare=STEPS[:-1])
    more = match(same, prepare=STEPS[:-1])
    gone = list_kept(expected)[3]
    assert set(list_kept(more)) - set(list_kept(less)) == {gone}
    assert less.preparation_.attrition[1].removed == 2
    with pytest.raises(InputError, match="'matched'"):
        match(other, prepare=None)


def test_processes_and_people_who_are_not_fitted(copies: Copies, tmp_path: Path) -> None:
    paths = write_sites(tmp_path, copies)
    listed = tmp_path / "relatives"
    listed.write_text("".join(f"f{p} {p}\n" for p in ("a1", "b2", "c3", "c9")))
    options = ReadOptions(filters=GenotypeFilters(no_fit=listed))
    tables: dict[str, FileTable] = {n: open_table(p, options=options) for n, p in paths.items()}
    found = fit(tables)
    rows = np.concatenate([np.arange(n) for n in SIZES])
    sites = np.repeat(list("abc"), SIZES)
    names = [f"{site}{row}" for site, row in zip(sites, rows, strict=True)]
    without = copies[~np.isin(names, ["a1", "b2", "c3", "c9"])]
    assert list_kept(found) == filter_plainly(without)
    there = fit(paths, transport="processes", secure=False, certify=False)
    assert list_kept(there) == filter_plainly(copies)


def test_an_empty_set_is_an_error_with_its_table(copies: Copies, tmp_path: Path) -> None:
    paths = write_sites(tmp_path, copies)
    with pytest.raises(ProtocolError, match=r"(?s)No variant is left.*maf:0.5 +\d+ +0\n"):
        fit(paths, prepare=["call_rate:1", "maf:0.5"])
    with pytest.raises(ProtocolError, match="3 components need more variants than are left"):
        fit(paths, prepare=["ld:200:1e-9", "maf"][:1])
    with pytest.raises(InputError, match="is for genotypes"):
        fit({"a": np.eye(4)}, prepare=["maf"], scale=False)
    with pytest.raises(InputError, match="cannot be combined with center"):
        fit(paths, prepare=["maf"], center=False)
    few = {name: Policy(min_counted=50) for name in "abc"}
    pca = FederatedPCA(2, prepare=["maf"], secure=False)
    with pytest.raises(SiteRefused, match="few people"):
        pca.fit_sites(paths, policies=few)
    assert FederatedPCA(2, prepare=["maf"]).fit_sites(paths, policies=few).settings_["secure"]


def test_variants_out_of_order_are_not_pruned(copies: Copies, tmp_path: Path) -> None:
    for name, path in write_sites(tmp_path, copies).items():
        lines = path.with_suffix(".bim").read_text().splitlines()
        lines[3], lines[4] = lines[4], lines[3]
        path.with_suffix(".bim").write_text("\n".join(lines) + "\n")
        source = read_plink(path).source
        with pytest.raises(InputError, match="sorted by chromosome and position"):
            fit({name: source})
        assert len(list_kept(fit({name: source}, prepare=["maf:0.1"]))) > 3
        request = VariantProductsRequest(passed=np.arange(D), mean=np.ones(D))
        study = Study((name,), 2, "krylov", prepare=as_steps(STEPS))
        lone = Lone.of(source, study)
        lone.open()
        lone.reply(VariantCountsRequest())
        assert lone.request(request).code == "invalid"
    with pytest.raises(InputError, match="require genotypes"):
        next(collect_variants(plain_sum, study, None))
    protocol = collect_variants(
        plain_sum, study, Loci(np.ones(1, dtype=int), np.ones(1, dtype=int))
    )
    next(protocol)
    with pytest.raises(ProtocolError, match="other variants than the study"):
        protocol.send({TOTAL: lone_reply(source, study)})


def lone_reply(source: Source, study: Study) -> Arrays:
    lone = Lone.of(source, study)
    lone.open()
    return lone.reply(VariantCountsRequest())


def run_plink(*arguments: object) -> None:
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed")
    subprocess.run([program, *map(str, arguments)], check=True, capture_output=True)


def find_file(folder: str, name: str) -> PlinkFile:
    path = DATA / folder / f"{name}.bed"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: set EIGENFED_DATA to a folder with {folder}/")
    return read_plink(path)


def split_people(opened: PlinkFile, count: int) -> dict[str, Any]:
    groups = np.random.default_rng(0).permutation(len(opened.samples)) % count
    found = {}
    for group in range(count):
        rows = np.flatnonzero(groups == group)
        source = opened.source
        table = source.X.select_people(rows)
        found[f"site{group}"] = type(source)(table, None, source.names)
    return found


@pytest.mark.parametrize(
    ("folder", "name", "steps", "options"),
    [
        (
            "genotypes_1kg",
            "1kg_phase1_thinned",
            ["maf:0.05", "hwe:1e-20", "ld:2000kb:0.02"],
            ["--maf", 0.05, "--hwe", "1e-20", "midp", "--indep-pairwise", "2000kb", 0.02],
        ),
        (
            "sim_genotypes",
            "sim300",
            ["call_rate:0.985", "maf:0.05", "hwe:1e-4"],
            ["--geno", 0.015, "--maf", 0.05, "--hwe", "1e-4", "midp", "--write-snplist"],
        ),
    ],
)
def test_filters_keep_what_plink2_keeps(
    folder: str, name: str, steps: list[str], options: list[object], tmp_path: Path
) -> None:
    opened = find_file(folder, name)
    prefix, out = DATA / folder / name, tmp_path / "out"
    run_plink("--bfile", prefix, *options, "--out", out, "--threads", 1)
    written = out.with_suffix(".prune.in" if "--indep-pairwise" in options else ".snplist")
    expected = set(written.read_text().split())
    pca = FederatedPCA(2, prepare=steps, certify=False, tol=5.0, random_state=0)
    pca.fit_sites(split_people(opened, 3))
    found = set(opened.variants.identifier[list_kept(pca)])
    assert 100 < len(expected) < len(opened.variants)
    assert found == expected


def test_p_values_are_those_of_plink2(tmp_path: Path) -> None:
    opened = find_file("sim_genotypes", "sim300")
    prefix, out = DATA / "sim_genotypes/sim300", tmp_path / "out"
    run_plink("--bfile", prefix, "--hardy", "midp", "--out", out, "--threads", 1)
    lines = [line.split("\t") for line in out.with_suffix(".hardy").read_text().splitlines()]
    expected = np.array([float(line[-1]) for line in lines[1:]])
    from eigenfed.linalg.hardy_weinberg import find_hardy_weinberg_p

    counts = opened.genotypes.counts
    found = find_hardy_weinberg_p(counts.two, counts.one, counts.none)
    np.testing.assert_allclose(found, expected, rtol=1e-5)
