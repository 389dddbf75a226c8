"""Small PLINK files for tests, written without the code that reads them."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import numpy.typing as npt

CODES = {2: 0, -1: 1, 1: 2, 0: 3}


def draw_genotypes(
    rng: np.random.Generator, populations: Sequence[int], d: int, *, missing: float = 0.0
) -> npt.NDArray[np.int8]:
    """Draw people of several populations whose allele frequencies differ; -1 is missing."""
    base = rng.uniform(0.1, 0.9, d)
    parts = []
    for n in populations:
        drifted = np.clip(base + 0.15 * rng.standard_normal(d), 0.02, 0.98)
        parts.append(rng.binomial(2, drifted, (n, d)))
    copies = np.concatenate(parts).astype(np.int8)
    copies[rng.random(copies.shape) < missing] = -1
    return copies


def write_plink(
    path: Path,
    copies: npt.NDArray[np.int8],
    *,
    people: Sequence[str] | None = None,
    variants: Sequence[str] | None = None,
    alleles: Sequence[tuple[str, str]] | None = None,
) -> Path:
    """Write people x variants as a .bed file and those beside it."""
    n, d = copies.shape
    people = people or [f"p{i}" for i in range(n)]
    variants = variants or [f"rs{j}" for j in range(d)]
    alleles = alleles or [("A", "G")] * d
    codes = np.vectorize(CODES.get)(copies.T).astype(np.uint8)
    codes = np.pad(codes, ((0, 0), (0, -n % 4)))
    packed = sum(codes[:, i::4] << np.uint8(2 * i) for i in range(4))
    path.write_bytes(b"\x6c\x1b\x01" + np.asarray(packed, np.uint8).tobytes())
    path.with_suffix(".fam").write_text("".join(f"f{p} {p} 0 0 0 -9\n" for p in people))
    lines = (
        f"1\t{name}\t0\t{100 * j + 1}\t{a1}\t{a2}\n"
        for j, (name, (a1, a2)) in enumerate(zip(variants, alleles, strict=True))
    )
    path.with_suffix(".bim").write_text("".join(lines))
    return path
