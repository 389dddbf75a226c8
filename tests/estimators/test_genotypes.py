"""PCA of genotypes over sites is that of the pooled file, and plink2's where nothing is missing."""

import math
import shutil
import subprocess
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from eigenfed import FederatedPCA, Privacy
from eigenfed.data.files import open_table
from eigenfed.data.genotype_filters import GenotypeFilters
from eigenfed.data.read_options import ReadOptions
from eigenfed.data.readers.plink import PlinkFile, read_plink
from eigenfed.errors import InputError
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from federation import DATA
from genotype_files import draw_genotypes, write_plink

D = 600
POPULATIONS = (20, 61, 83)

Floats = npt.NDArray[np.float64]


def standardize(copies: npt.NDArray[Any]) -> Floats:
    """Return genotypes centred, scaled by allele frequency, and 0 where one is missing."""
    x = np.where(copies < 0, np.nan, copies.astype(np.float64))
    mean = np.nanmean(x, axis=0)
    scale = np.sqrt(mean * (1 - mean / 2))
    found: Floats = np.nan_to_num((x - mean) / np.where(scale > 0, scale, 1.0), nan=0.0)
    return found


def decompose(copies: npt.NDArray[Any], k: int) -> tuple[Floats, Floats]:
    """Return plink's eigenvalues and unit sample vectors of a pooled table; -1 is missing."""
    z = standardize(copies)
    values, vectors = np.linalg.eigh(z @ z.T / z.shape[1])
    return values[::-1][:k], vectors[:, ::-1][:, :k]


def to_plink(pca: FederatedPCA) -> Floats:
    """Return the eigenvalues of XX'/m, which plink writes."""
    found: Floats = pca.explained_variance_ * (pca.n_samples_ - 1) / pca.n_features_in_
    return found


def find_angles(scores: Floats, vectors: Floats) -> Floats:
    """Return the angles between columns, in degrees."""
    unit = scores / np.linalg.norm(scores, axis=0)
    inner = np.abs(np.sum(unit * vectors / np.linalg.norm(vectors, axis=0), axis=0))
    degrees: Floats = np.degrees(np.arccos(np.minimum(inner, 1.0)))
    return degrees


def write_sites(
    folder: Path, copies: npt.NDArray[np.int8], sites: npt.NDArray[Any]
) -> dict[str, Path]:
    return {
        f"s{site}": write_plink(
            folder / f"s{site}.bed",
            copies[sites == site],
            people=[f"person-{row}" for row in np.flatnonzero(sites == site)],
        )
        for site in np.unique(sites)
    }


def gather_scores(pca: FederatedPCA, files: Mapping[str, Any], sites: npt.NDArray[Any]) -> Floats:
    scores = np.empty((len(sites), pca.n_components_))
    for name, file in files.items():
        opened = read_plink(file) if isinstance(file, Path) else file
        scores[[f"s{site}" == name for site in sites]] = pca.transform_aligned(opened.genotypes)
    return scores


@pytest.fixture(scope="module")
def copies() -> npt.NDArray[np.int8]:
    drawn = draw_genotypes(np.random.default_rng(3), POPULATIONS, D, missing=0.01)
    drawn[:, 17] = 2  # a variant with a single allele
    return drawn


@pytest.fixture(scope="module")
def by_population() -> npt.NDArray[np.int64]:
    return np.repeat(np.arange(3), POPULATIONS)


@pytest.mark.parametrize(
    ("method", "secure"),
    [
        ("auto", False),
        ("auto", True),
        ("randomized", False),
        ("randomized", True),
        ("subspace", True),
        ("merge", False),
        ("covariance", False),
    ],
)
def test_sites_of_one_population_each_give_the_pooled_components(
    copies: npt.NDArray[np.int8],
    by_population: npt.NDArray[np.int64],
    tmp_path: Path,
    method: str,
    secure: bool,
) -> None:
    files = write_sites(tmp_path, copies, by_population)
    pca = FederatedPCA(2, method=method, secure=secure, random_state=0).fit_sites(files)
    values, vectors = decompose(copies, 2)
    # A merge sends summaries once, and what they leave out is lost.
    rtol, degrees = (0.02, 5.0) if method == "merge" else (1e-3, 0.1)
    np.testing.assert_allclose(to_plink(pca), values, rtol=rtol)
    scores = gather_scores(pca, files, by_population)
    assert find_angles(scores, vectors).max() < degrees
    # Scores are U times the singular values.
    np.testing.assert_allclose(np.linalg.norm(scores, axis=0), np.sqrt(values * D), rtol=rtol)
    assert pca.total_variance_ == pytest.approx(
        sum(decompose(copies, len(copies))[0]) * D / (len(copies) - 1)
    )


def test_the_default_is_krylov_that_stops_at_components_apart_from_others(
    copies: npt.NDArray[np.int8], by_population: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    files = write_sites(tmp_path, copies, by_population)
    pca = FederatedPCA(6, random_state=0).fit_sites(files)
    assert pca.method_ == "krylov"
    assert pca.settings_ == {"scale": "genotype", "tol": 0.05, "stop": "separated", "secure": False}
    assert pca.certificate_ is not None
    assert pca.certificate_.converged.tolist() == [True, True] + [False] * 4
    all_of_them = FederatedPCA(6, stop="all", random_state=0).fit_sites(files)
    assert pca.n_rounds_ < all_of_them.n_rounds_
    assert pca.feature_names_in_[:2].tolist() == ["rs0_A", "rs1_A"]
    rigorous = FederatedPCA(2, certify="rigorous", random_state=0).fit_sites(files)
    assert rigorous.certificate_ is not None
    vectors = np.linalg.svd(standardize(copies), full_matrices=False)[2][:2]
    sines = np.linalg.svd(
        rigorous.components_ - rigorous.components_ @ vectors.T @ vectors, compute_uv=False
    )
    assert sines[0] <= math.sin(rigorous.certificate_.angle_bound)


def test_single_precision_errs_by_less_than_the_certificate_adds(
    copies: npt.NDArray[np.int8], tmp_path: Path
) -> None:
    from eigenfed.data.packed_rows import view_rows
    from eigenfed.protocol.exact.frame_checks import find_genotype_scale
    from eigenfed.protocol.exact.moments import Moments
    from eigenfed.protocol.exact.rounding import bound_rounding

    source = read_plink(write_plink(tmp_path / "a.bed", copies)).source
    n, count, total = source.totals()
    mean = total / count
    scale = find_genotype_scale(mean)
    basis = np.linalg.qr(np.random.default_rng(0).standard_normal((D, 12))).Q
    views = [view_rows(source, mean, scale, single=single) for single in (True, False)]
    images = [view.product(basis) / (n - 1) for view in views]
    error = np.linalg.norm(images[0] - images[1], 2)
    variance = float(views[1].squares().sum()) / (n - 1)
    bound = bound_rounding(Moments(n, mean, scale, single=True), variance)
    assert error < bound
    assert bound < 3e-3 * np.linalg.norm(images[1], 2)


def test_relatives_are_projected_and_not_fitted(
    copies: npt.NDArray[np.int8], by_population: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    files = write_sites(tmp_path, copies, by_population)
    out = np.zeros(len(copies), np.bool_)
    out[[3, 30, 31, 100]] = True
    listed = tmp_path / "relatives"
    listed.write_text("".join(f"fperson-{row} person-{row}\n" for row in np.flatnonzero(out)))
    options = ReadOptions(filters=GenotypeFilters(no_fit=listed))
    tables = {name: open_table(path, options=options) for name, path in files.items()}
    pca = FederatedPCA(2, random_state=0).fit_sites(tables)
    values, vectors = decompose(copies[~out], 2)
    np.testing.assert_allclose(pca.explained_variance_ * (len(copies) - 5) / D, values, rtol=1e-3)
    scores = np.concatenate(
        [pca.transform_aligned(tables[name].source.X) for name in sorted(tables)]
    )
    assert len(scores) == len(copies) == pca.n_samples_ + 4
    assert find_angles(scores[~out], vectors).max() < 0.1


def test_a_site_that_counts_the_other_alleles_gives_the_same_answer_once_swapped(
    copies: npt.NDArray[np.int8], by_population: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    files: dict[str, Any] = dict(write_sites(tmp_path, copies, by_population))
    expected = FederatedPCA(2, random_state=0).fit_sites(files)
    turned = np.where(copies < 0, copies, 2 - copies)[by_population == 1]
    swapped = write_plink(tmp_path / "swapped.bed", turned, alleles=[("G", "A")] * D)
    with pytest.raises(InputError, match="The sites differ"):
        FederatedPCA(2).fit_sites(files | {"s1": swapped})
    matched = read_plink(swapped).take_variants(np.arange(D), np.ones(D, np.bool_))
    pca = FederatedPCA(2, random_state=0).fit_sites(files | {"s1": matched.source})
    np.testing.assert_allclose(pca.components_, expected.components_, atol=1e-6)


def test_child_processes_and_other_scales_give_the_components_of_a_table(
    copies: npt.NDArray[np.int8], by_population: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    files = write_sites(tmp_path, copies, by_population)
    here = FederatedPCA(2, random_state=0).fit_sites(files)
    there = FederatedPCA(2, random_state=0, transport="processes").fit_sites(files)
    np.testing.assert_array_equal(there.components_, here.components_)
    x = np.where(copies < 0, np.nan, copies.astype(np.float64))
    for scale in (False, True):
        pca = FederatedPCA(2, scale=scale, tol=1e-4, random_state=0).fit_sites(files)
        table = FederatedPCA(2, scale=scale).fit(x, groups=by_population)
        np.testing.assert_allclose(pca.explained_variance_, table.explained_variance_, rtol=1e-9)


def test_what_genotypes_cannot_be_combined_with_is_refused(
    copies: npt.NDArray[np.int8], by_population: npt.NDArray[np.int64], tmp_path: Path
) -> None:
    files = write_sites(tmp_path, copies, by_population)
    cases: tuple[tuple[dict[str, Any], str], ...] = (
        ({"privacy": Privacy(epsilon=1.0, delta=1e-6)}, "privacy"),
        ({"prepare": ["log1p"]}, "prepare"),
        ({"center": False}, "center"),
    )
    for parameters, words in cases:
        with pytest.raises(InputError, match=f"cannot be combined with {words}"):
            FederatedPCA(2, **parameters).fit_sites(files)
    with pytest.raises(InputError, match="is for genotypes"):
        FederatedPCA(2, scale="genotype").fit_sites({"a": np.eye(4)})
    packed = open_table(files["s1"]).source
    plain = replace(packed, X=packed.X[:])
    with pytest.raises(InputError, match="Some sites have genotypes"):
        FederatedPCA(2).fit_sites({"a": files["s0"], "b": plain})


@pytest.mark.parametrize("secure", [False, True])
def test_no_number_about_a_person_leaves_a_site(
    copies: npt.NDArray[np.int8],
    by_population: npt.NDArray[np.int64],
    tmp_path: Path,
    secure: bool,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    files = write_sites(tmp_path, copies, by_population)
    left: list[Message] = []
    answer = Site.answer

    def record(site: Site, data: bytes, *, intact: bool = False) -> bytes:
        reply = answer(site, data, intact=intact)
        left.append(Message.from_bytes(reply, "reply", intact=True))
        return reply

    monkeypatch.setattr(Site, "answer", record)
    pca = FederatedPCA(2, secure=secure, random_state=0).fit_sites(files)
    scores = gather_scores(pca, files, by_population)
    shapes = {side for reply in left for array in reply.arrays.values() for side in array.shape}
    assert D in shapes
    assert not shapes & set(POPULATIONS)
    for reply in left:
        for array in reply.arrays.values():
            numbers = np.asarray(array, np.float64).ravel()
            if numbers.size >= D:
                assert not np.isclose(numbers[:, None], scores.ravel()[None, ::7], rtol=1e-9).any()
            assert b"person-" not in array.tobytes()


# Real and simulated genotypes ---------------------------------------------------------------------

PANEL = "integrated_call_samples_v3.20130502.ALL.panel"


def _find(folder: str, name: str) -> PlinkFile:
    path = DATA / folder / f"{name}.bed"
    if not path.exists():
        pytest.skip(f"{path.name} is not there: set EIGENFED_DATA to a folder with {folder}/")
    return read_plink(path)


def _run_plink2(file: PlinkFile, folder: Path, k: int) -> tuple[Floats, Floats]:
    program = shutil.which("plink2")
    if program is None:
        pytest.skip("plink2 is not installed: install Debian's plink2 and libopenblas0-pthread")
    prefix = file.path.with_suffix("")
    command = [program, "--bfile", str(prefix), "--pca", str(k), "--threads", "1"]
    command += ["--out", str(folder / "p")]
    subprocess.run(command, check=True, capture_output=True)
    rows = (folder / "p.eigenvec").read_text().splitlines()[1:]
    return np.loadtxt(folder / "p.eigenval"), np.array([row.split()[2:] for row in rows], float)


def _split(file: PlinkFile, sites: npt.NDArray[Any]) -> dict[str, PlinkFile]:
    return {
        f"s{site}": replace(
            file,
            genotypes=file.genotypes.select_people(sites == site),
            samples=file.samples.take(sites == site),
            fitted=file.fitted[sites == site],
        )
        for site in np.unique(sites)
    }


def test_a_thousand_genomes_have_the_components_of_plink2_however_they_are_split(
    tmp_path: Path,
) -> None:
    file, k = _find("genotypes_1kg", "1kg_phase1_thinned"), 10
    panel = DATA / "genotypes_1kg" / PANEL
    values, vectors = _run_plink2(file, tmp_path, k)
    groups = dict(line.split()[:3:2] for line in panel.read_text().splitlines()[1:])
    rng = np.random.default_rng(0)
    small = np.where(rng.permutation(len(file.samples)) < 20, 1, 0)
    splits = {
        "3": rng.integers(0, 3, len(file.samples)),
        "10": rng.integers(0, 10, len(file.samples)),
        "by population": np.array([groups.get(name, "none") for name in file.samples.person]),
        "20 people": small + 2 * (rng.random(len(small)) < 0.5) * (small == 0),
    }
    for sites in splits.values():
        parts = _split(file, sites)
        pca = FederatedPCA(k, secure=len(parts) == 3, random_state=0).fit_sites(
            {name: part.source for name, part in parts.items()}
        )
        clear = np.append(values[:-1] > 1.1 * values[1:], False)
        clear[1:] &= values[:-1][: k - 1] > 1.1 * values[1:]
        assert clear.sum() >= 5
        np.testing.assert_allclose(to_plink(pca)[clear], values[clear], rtol=1e-3)
        scores = gather_scores(pca, parts, sites)
        assert find_angles(scores, vectors)[clear].max() < 0.1
        assert pca.certificate_ is not None
        assert pca.certificate_.converged[clear].sum() >= 4


def test_missing_genotypes_differ_from_plink_by_its_divisor_only(tmp_path: Path) -> None:
    file, k = _find("sim_genotypes", "sim300"), 3
    families = np.unique(file.samples.family, return_inverse=True)[1]
    pca = FederatedPCA(k, random_state=0).fit_sites(
        {name: part.source for name, part in _split(file, families).items()}
    )
    expected, vectors = decompose(np.nan_to_num(file.genotypes[:], nan=-1.0), k)
    np.testing.assert_allclose(to_plink(pca), expected, rtol=1e-3)
    assert find_angles(pca.transform_aligned(file.genotypes), vectors).max() < 0.1
    values, _ = _run_plink2(file, tmp_path, k)
    np.testing.assert_allclose(to_plink(pca), values, rtol=0.025)
