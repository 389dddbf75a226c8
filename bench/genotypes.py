"""PCA of genotypes over three sites against plink on the pooled file, as whole processes.

Processor time of whole processes, start and imports included, at the same leading eigenvalues. Ours
does what the command line does, and writes what plink writes: eigenvalues, and vectors of people.
The command writes loadings, scores and a report besides: it has a line of its own. The
pooled file is the one that EIGENFED_GENOTYPES names without its suffix, as the simulator of five
populations writes it (2500 people x 97607 variants); comparisons are left out without it, and those
with a program that is not installed. Growth is measured on random genotypes.
"""

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from threadpoolctl import threadpool_limits

from bench.table import Line, least_cpu
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.readers.plink import read_plink
from eigenfed.linalg.genotype import adjoin_tile, load_kernels, multiply_tile
from eigenfed.linalg.genotype_codes import decode_rows

K, SITES, LEADING = 10, 3, 3
_WRONG = 1e-3
_PEERS = (
    ("plink1.9 --pca 10", ("plink1.9", "--pca", str(K)), 8.0),
    ("plink2 --pca 10", ("plink2", "--pca", str(K)), 7.0),
    ("plink2 --pca 10 approx", ("plink2", "--pca", str(K), "approx"), 12.0),
)
_FIT = """
import gc
import sys
import numpy as np
from eigenfed.data.files import open_table
from eigenfed.estimators.pca_fit import PCAFit
out, rounds, *files = sys.argv[1:]
tables = {str(i): open_table(path) for i, path in enumerate(files)}
pca = PCAFit(10, random_state=0, max_rounds=int(rounds)).fit_sites(tables)
for site, table in tables.items():
    units = pca.transform_aligned(table.source.X) / pca.singular_values_
    with open(f"{out}.{site}.eigenvec", "w") as file:
        for person, row in zip(table.row_ids, units.tolist()):
            file.write(person + " " + " ".join(f"{number:.6g}" for number in row) + "\\n")
status = open("/proc/self/status").read().split()
open(f"{out}.peak", "w").write(status[status.index("VmHWM:") + 1])
np.savetxt(f"{out}.eigenval", pca.explained_variance_ * (pca.n_samples_ - 1) / pca.n_features_in_)
gc.freeze()  # as the command ends
"""
_WINDOW, _R2 = "200kb", 0.2
_PRUNE = """
import gc
import sys
from eigenfed.data.files import open_table
from eigenfed.estimators.pca_fit import PCAFit
out, step, *files = sys.argv[1:]
tables = {str(i): open_table(path) for i, path in enumerate(files)}
pca = PCAFit(1, random_state=0, prepare=[step], secure=False, max_rounds=1, certify=False)
kept = pca.fit_sites(tables).selected_features_
names = next(iter(tables.values())).plink.variants.identifier
open(out, "w").write("\\n".join(names[kept]) + "\\n")
gc.freeze()
"""


class Cost(NamedTuple):
    """Processor seconds and peak memory of a process."""

    cpu_s: float
    peak_mb: float


def run(command: list[str]) -> Cost:
    """Run a process to its end and return what it took."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    _, status, used = os.wait4(process.pid, 0)
    if os.waitstatus_to_exitcode(status) != 0:
        error = process.stderr.read().decode() if process.stderr is not None else ""
        raise RuntimeError(f"{command[0]} failed: {error[-500:]}")
    return Cost(used.ru_utime + used.ru_stime, 0.0)


def fit(files: list[str], out: Path, rounds: int = 50) -> Cost:
    cost = run([sys.executable, "-c", _FIT, str(out), str(rounds), *files])
    # What a child says of itself: rusage counts the memory of its parent before it started.
    return cost._replace(peak_mb=float(Path(f"{out}.peak").read_text()) / 1024)


def pack(codes: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Pack codes, variants x people, into bytes of four."""
    padded = np.pad(codes, ((0, 0), (0, -codes.shape[1] % 4)))
    packed = np.zeros((len(codes), padded.shape[1] // 4), np.uint8)
    for place in range(4):
        packed |= padded[:, place::4] << np.uint8(2 * place)
    return packed


def write_sites(source: Path, folder: Path) -> list[str]:
    """Split the people of a file over three sites at random."""
    pooled = read_plink(source)
    n = len(pooled.samples)
    lines = source.with_suffix(".fam").read_text().splitlines()
    sites = np.random.default_rng(0).integers(0, SITES, n)
    raw = np.asarray(pooled.genotypes.packed)
    codes = np.stack([raw >> np.uint8(s) & 3 for s in (0, 2, 4, 6)], axis=2)
    codes = codes.reshape(len(raw), -1)[:, :n]
    files = []
    for site in range(SITES):
        path = folder / f"site{site}.bed"
        path.write_bytes(b"\x6c\x1b\x01" + pack(codes[:, sites == site]).tobytes())
        shutil.copy(source.with_suffix(".bim"), path.with_suffix(".bim"))
        own = [line for line, here in zip(lines, sites == site, strict=True) if here]
        path.with_suffix(".fam").write_text("\n".join(own) + "\n")
        files.append(str(path))
    return files


def compare(source: Path, folder: Path) -> Iterator[Line]:
    files = write_sites(source, folder)
    fit(files, folder / "warm", 1)  # numba compiles once for a machine
    peers = [peer for peer in _PEERS if shutil.which(peer[1][0])]
    ours, theirs = Cost(float("inf"), 0.0), {name: float("inf") for name, _, _ in peers}
    for _ in range(2):
        ours = min(ours, fit(files, folder / "ours"))
        for name, words, _ in peers:
            out = str(folder / name.replace(" ", "_"))
            bare = str(source.with_suffix(""))
            command = [*words, "--bfile", bare, "--threads", "2", "--out", out]
            theirs[name] = min(theirs[name], run(command).cpu_s)
    found = np.loadtxt(folder / "ours.eigenval")[:LEADING]
    for name, _, target in peers:
        expected = np.loadtxt(folder / f"{name.replace(' ', '_')}.eigenval")[:LEADING]
        apart = float(np.abs(found / expected - 1.0).max())
        yield Line(
            f"{name} / three sites, 2500x97607",
            theirs[name] / ours.cpu_s,
            "at least",
            target,
            apart < _WRONG,
            f"{theirs[name]:.1f} s / {ours.cpu_s:.1f} s; eigenvalues within {apart:.0e}",
        )
    yield Line(
        "peak memory of that process, MB", ours.peak_mb, "at most", 600.0, True, "start included"
    )
    command = [sys.executable, "-m", "eigenfed", "fit", *files, "-k", str(K), "-o"]
    whole = run([*command, str(folder / "out"), "-q"])
    yield Line(
        "eigenfed fit with report / the same in Python",
        whole.cpu_s / ours.cpu_s,
        "report",
        0.0,
        True,
        f"{whole.cpu_s:.1f} s",
    )
    if shutil.which("plink2"):
        yield compare_pruning(source, files, folder)


def compare_pruning(source: Path, files: list[str], folder: Path) -> Line:
    """Compare pruning over sites, with a PCA of one round after it, with that of plink2."""
    step, bare = f"ld:{_WINDOW}:{_R2}", str(source.with_suffix(""))
    ours = theirs = float("inf")
    words = ["--indep-pairwise", _WINDOW, str(_R2), "--bfile", bare, "--threads", "2"]
    for _ in range(3):
        command = [sys.executable, "-c", _PRUNE, str(folder / "kept"), step, *files]
        ours = min(ours, run(command).cpu_s)
        theirs = min(theirs, run(["plink2", *words, "--out", str(folder / "plink2")]).cpu_s)
    kept, expected = ((folder / name).read_text() for name in ("kept", "plink2.prune.in"))
    return Line(
        f"{step} over three sites / plink2 --indep-pairwise",
        ours / theirs,
        "report",
        0.0,
        set(kept.split()) == set(expected.split()),
        f"{ours:.1f} s / {theirs:.2f} s; {len(kept.split())} variants, the same",
    )


def draw_packed(variants: int, people: int) -> npt.NDArray[np.uint8]:
    """Draw bytes of four genotypes, none of them missing."""
    rng = np.random.default_rng(0)
    whole = np.array([0, 2, 3], np.uint8)
    some = pack(whole[rng.choice(3, (4096, people), p=(0.1, 0.3, 0.6))])
    return np.concatenate([np.roll(some, i, axis=1) for i in range(-(-variants // 4096))])[
        :variants
    ]


def compare_kernel(people: int, directions: int = 12) -> Line:
    """Compare a product with sgemm on tiles that are decoded beforehand."""
    variants, step = 8192, 256
    packed = draw_packed(variants, people)
    values = np.random.default_rng(0).standard_normal((variants, 4)).astype(np.float32)
    basis = np.random.default_rng(1).standard_normal((variants, directions)).astype(np.float32)
    kernels, flags = load_kernels(True), np.zeros(variants, np.bool_)
    tiles = [
        decode_rows(
            packed[i : i + step], values[i : i + step].astype(np.float64), np.arange(people)
        ).T.astype(np.float32)
        for i in range(0, variants, step)
    ]
    parts = [basis[i : i + step] for i in range(0, variants, step)]

    def ours() -> npt.NDArray[np.float32]:
        sided = multiply_tile(packed, values, basis, kernels)
        adjoin_tile(packed, sided, flags, kernels)
        return sided

    def peer() -> npt.NDArray[np.float32]:
        sided = np.zeros((people, directions), np.float32)
        for tile, part in zip(tiles, parts, strict=True):
            sided += tile.T @ part
        for tile in tiles:
            tile @ sided
        return sided

    with threadpool_limits(1):
        fast, gemm = least_cpu(ours, peer, repeats=7)
    expected = peer()
    apart = float(np.abs(ours()[:people] - expected).max() / np.abs(expected).max())
    return Line(
        f"speed of X'(XQ) / sgemm on decoded tiles, {people} people, l={directions}",
        gemm / fast,
        "at least",
        0.5,
        apart < 1e-4,
        f"{1e3 * fast:.0f} ms / {1e3 * gemm:.0f} ms; apart {apart:.0e}",
    )


def write_random(folder: Path, variants: int, people: int = 2500) -> list[str]:
    files = []
    for site in range(SITES):
        own = people // SITES + (site < people % SITES)
        path = folder / f"r{variants}_{site}.bed"
        packed = np.roll(draw_packed(variants, own), site, axis=0)
        path.write_bytes(b"\x6c\x1b\x01" + packed.tobytes())
        names = "".join(f"1\tv{j}\t0\t{j + 1}\tA\tG\n" for j in range(variants))
        path.with_suffix(".bim").write_text(names)
        people_of = "".join(f"f{site} p{i} 0 0 0 -9\n" for i in range(own))
        path.with_suffix(".fam").write_text(people_of)
        assert isinstance(read_plink(path).genotypes, Genotypes)
        files.append(str(path))
    return files


def growth(folder: Path) -> Iterator[Line]:
    rounds, few, many = 4, 100_000, 1_000_000
    idle = run([sys.executable, "-c", "import eigenfed.estimators.pca_fit"]).cpu_s
    costs = [fit(write_random(folder, d), folder / "random", rounds) for d in (few, many)]
    used = [cost.cpu_s - idle for cost in costs]
    yield Line(
        "time of 1,000,000 variants / ten times that of 100,000",
        used[1] / used[0] / 10.0,
        "at most",
        1.2,
        True,
        f"{used[1]:.1f} s / {used[0]:.1f} s, {rounds} rounds, 2500 people",
    )
    yield Line(
        "peak memory of 1,000,000 variants, MB", costs[1].peak_mb, "at most", 3000.0, True, ""
    )


def lines() -> Iterator[Line]:
    for people in (833, 2500):
        yield compare_kernel(people - people % 4)
    with tempfile.TemporaryDirectory() as name:
        named = os.environ.get("EIGENFED_GENOTYPES")
        if named is not None:
            yield from compare(Path(f"{named}.bed"), Path(name))
        yield from growth(Path(name))


if __name__ == "__main__":
    begun = time.perf_counter()
    for line in lines():
        print(line, flush=True)
    print(f"{time.perf_counter() - begun:.0f} s")
