"""Five thousand small fits of all methods: no finite bound is exceeded, no convergence is wrong.

The oracle works in extended precision: covariances and Jacobi rotations with 64 bits of mantissa
and exponents beyond those of float64, so that ties, offsets and scales are seen as they are.
"""

import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from scipy import sparse

from eigenfed import FederatedPCA
from eigenfed.arrays import Array, Arrays
from eigenfed.errors import ProtocolError
from eigenfed.protocol.core import Call, drive
from eigenfed.protocol.decomposition import Certificate
from eigenfed.protocol.exact.covariance import Covariance
from eigenfed.protocol.exact.factors import Factors
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.randomized import Randomized
from eigenfed.protocol.exact.subspace import Subspace
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import Method
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study
from federation import InTurn, gates, study_of

pytestmark = pytest.mark.skipif(
    np.finfo(np.longdouble).nmant < 63, reason="needs extended precision"
)

METHODS: dict[str, list[Method | str]] = {
    "covariance": ["covariance", Covariance(precision="single")],
    "krylov": ["krylov", Krylov(block=3)],
    "factors": [Factors()],
    "randomized": [Randomized(iterations=2), Randomized(iterations=5)],
    "subspace": [
        Subspace(),
        Subspace(criterion="change"),
        Subspace(start="merge"),
        Subspace(orthonormalise="each"),
        Subspace(orthonormalise="each", by="gram_schmidt"),
        Subspace(by="gram_schmidt"),
    ],
    "power": [Power(local_steps=1), Power(local_steps=3), Power(local_steps=2, decay=True)],
    "merge": [Merge(), Merge(weighting="none"), Merge(oversample=2)],
}
KINDS = [*("plain", "one_hot", "rank", "constant", "near_tie", "steep", "time_stamp"), "axes"]
KINDS.append("integers")
FORMS = ["dense", "dense", "dense", "sparse", "wire", "single"]
BATCHES = {"covariance": 1400, "krylov": 1400, "randomized": 300, "subspace": 600}
BATCHES |= {"power": 400, "merge": 500, "factors": 400}
WHOLE = {"secure": 60, "features": 140}
TIED, TIED_FEATURES = 300, (9, 12, 17)
REPEATED = 120


class EachInTurn(InTurn):
    """Also carries requests to some of the sites, different ones to each, and narrow floats."""

    def __init__(self, sites: Mapping[str, Site], study: Study) -> None:
        super().__init__(sites, study)
        self._wire = study.wire

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        for name in self._sites if call.to is None else call.to:
            request = Message("request", "run", round_, call.op, call.for_site(name))
            answer = self._sites[name].answer(request.to_bytes(self._wire), intact=True)
            yield name, Message.from_bytes(answer, "reply", intact=True).arrays


@dataclass(frozen=True)
class Fit:
    """One problem, and what came of it."""

    kind: str
    method: Method | str
    rows: Array
    scaled: bool
    tol: float
    components: Array
    grade: Certificate


def make_rows(rng: np.random.Generator) -> tuple[str, Array, int]:
    """Return rows of one of the kinds that rounding decides about, and a number of components."""
    d, n = int(rng.integers(2, 8)), int(rng.integers(6, 30))
    k = int(rng.integers(1, min(n, d) + 1))
    plain = rng.standard_normal((n, d))
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    kind = str(rng.choice(KINDS))
    match kind:
        case "one_hot":
            rows = np.eye(d)[np.arange(d * max(n // d, 2)) % d]
        case "rank":
            rows = plain[:, : max(k - 1, 1)] @ rng.standard_normal((max(k - 1, 1), d))
        case "constant":
            rows = np.full((n, d), float(rng.standard_normal()))
            rows[:, 0] += rng.integers(0, 2, n)
        case "near_tie":
            gap = 10.0 ** -rng.integers(2, 15)
            spread = np.where(np.arange(d) < k, 1.0 + gap, 1.0)
            rows = np.linalg.qr(plain - plain.mean(axis=0)).Q[:, :d]
            rows = (rows * spread[: rows.shape[1]]) @ turn[: rows.shape[1]]
        case "steep":
            rows = (plain * 10.0 ** -(rng.integers(1, 5) * np.arange(d))) @ turn
        case "time_stamp":
            rows = plain * 0.8 ** np.arange(d)
            rows[:, -1] *= 1e5
        case "integers":
            rows = rng.integers(-2, 3, (n, d)).astype(float)
        case "axes":
            rows = np.repeat(np.diag(rng.integers(1, 4, d).astype(float)), 4, axis=0)
            rows *= np.tile([1.0, -1.0], len(rows) // 2)[:, None]
        case _:
            rows = (plain * 0.7 ** np.arange(d)) @ turn
    return kind, rows, min(k, *rows.shape)


def make_tied_rows(rng: np.random.Generator) -> tuple[str, Array, int]:
    """Return rows with more features than a block has, and eigenvalues that are nearly tied."""
    d = int(rng.choice(TIED_FEATURES))
    apart = 10.0 ** -float(rng.integers(4, 14)) * rng.standard_normal(d)
    sizes = np.sqrt(np.sort(rng.integers(1, 5, d) + apart)[::-1])
    rows = sizes[:, None] * np.linalg.qr(rng.standard_normal((d, d))).Q
    return "tied", np.vstack([rows, -rows]), int(rng.integers(1, 7))


def move(rng: np.random.Generator, rows: Array, *, far: int = 150) -> Array:
    """Shift rows by up to a million standard deviations, or scale them by up to 1e150."""
    choice, moved = rng.integers(0, 6), rows
    if choice == 0:
        offset = (float(rows.std()) or 1.0) * 10.0 ** rng.integers(0, 7)
        moved = rows + offset * rng.standard_normal(rows.shape[1])
    elif choice <= 2:
        ends = [-far, 5 - far, far - 5, far]
        power = rng.integers(-far, far + 1) if choice == 1 else rng.choice(ends)
        moved = rows / (float(np.abs(rows).max()) or 1.0) * 10.0 ** float(power)
    return moved


def cut(rng: np.random.Generator, rows: Array, least: int = 1) -> dict[str, Array]:
    count = int(rng.integers(least, 4))
    edges = np.sort(rng.integers(1, max(len(rows), 2), count - 1))
    return {f"s{i}": part for i, part in enumerate(np.split(rows, edges)) if len(part)}


def draw_terms(rng: np.random.Generator) -> dict[str, Any]:
    return {
        "tol": float(10.0 ** -rng.integers(0, 9)),
        "max_rounds": int(rng.choice([2, 4, 8, 20])),
        "certify": str(rng.choice(["auto", "auto", "rigorous"])),
        "scale": bool(rng.integers(0, 5) == 0),
    }


def fit_in_turn(
    rng: np.random.Generator,
    method: Method | str,
    make: Callable[[np.random.Generator], tuple[str, Array, int]] = make_rows,
) -> Fit | None:
    """Fit rows of one of the forms, or return None where Gram-Schmidt says that it cannot."""
    kind, rows, k = make(rng)
    form, terms = str(rng.choice(FORMS)), draw_terms(rng)
    # Squares of a column must be numbers: 1e-300 in double precision, 1e-38 on a narrow wire.
    far = {"wire": 15, "single": 15}.get(form, 140 if terms["scale"] else 150)
    rows = move(rng, rows, far=far)
    if form == "single":
        rows = rows.astype(np.float32)
    sites: dict[str, Any] = cut(rng, rows)
    if form == "sparse":
        sites = {name: sparse.csr_array(part) for name, part in sites.items()}
    if form == "wire":
        terms["wire"] = "float32"
    study = study_of(sites, k, method, **terms)
    opened = EachInTurn(gates(sites, wire=study.wire), study)
    try:
        found = drive(pca(study, rng=rng), opened)
    except ProtocolError as error:
        if "Gram-Schmidt cannot continue" in str(error):
            return None
        raise
    assert found.certificate is not None
    return Fit(
        f"{kind} {form}",
        method,
        rows.astype(float),
        terms["scale"],
        terms["tol"],
        found.components,
        found.certificate,
    )


def fit_whole(rng: np.random.Generator, what: str) -> Fit:
    """Fit with secure aggregation, or sites that hold features."""
    kind, rows, k = make_rows(rng)
    terms = draw_terms(rng)
    rows = move(rng, rows, far=140 if terms["scale"] else 150)
    if what == "secure":
        method: str | Method = ("covariance", "krylov")[int(rng.integers(0, 2))]
        sites: Mapping[str, Array] = {
            f"s{i}": part for i, part in enumerate(np.array_split(rows, 3))
        }
        settings: dict[str, Any] = {"secure": True}
    else:
        method, edge = "krylov", int(rng.integers(1, rows.shape[1]))
        sites = {"a": rows[:, :edge], "b": rows[:, edge:]}
        settings = {"split": "features"}
        terms["scale"] = False
    keys = {name: np.arange(len(rows)) for name in sites} if what == "features" else None
    fitted = FederatedPCA(k, method=method, random_state=0, **settings, **terms)
    fitted.fit_sites(sites, keys=keys)
    assert fitted.certificate_ is not None
    return Fit(
        kind,
        method,
        rows,
        terms["scale"],
        terms["tol"],
        fitted.components_,
        fitted.certificate_,
    )


def compute_covariance(fit: Fit) -> Array:
    """Return the covariance in extended precision."""
    wide = fit.rows.astype(np.longdouble)
    centred = wide - wide.mean(axis=0)
    # A constant column of floats that do not add up exactly is still constant.
    centred[:, np.ptp(fit.rows, axis=0) == 0.0] = 0.0
    if fit.scaled:
        deviations = np.sqrt((centred * centred).sum(axis=0) / (len(wide) - 1))
        centred = centred / np.where(deviations > 0.0, deviations, 1.0)
    covariance: Array = centred.T @ centred / (len(wide) - 1)
    return covariance


def rotate_jacobi(matrices: Array) -> tuple[Array, Array]:
    """Diagonalise many symmetric matrices at once, in the precision that they are in."""
    count, d, _ = matrices.shape
    a, v = matrices.copy(), np.tile(np.eye(d, dtype=matrices.dtype), (count, 1, 1))
    for _ in range(40):
        largest = 0.0
        for p in range(d - 1):
            for q in range(p + 1, d):
                off, difference = a[:, p, q], a[:, q, q] - a[:, p, p]
                largest = max(largest, float(np.abs(off).max()))
                with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                    cotangent = difference / (2 * off)
                    sign = np.where(cotangent >= 0, 1, -1)
                    t = sign / (np.abs(cotangent) + np.sqrt(cotangent * cotangent + 1))
                t = np.where(np.isfinite(t) & (off != 0), t, 0).astype(a.dtype)
                c = 1 / np.sqrt(t * t + 1)
                s = t * c
                for array in (a, v):
                    x, y = array[:, :, p].copy(), array[:, :, q].copy()
                    array[:, :, p] = c[:, None] * x - s[:, None] * y
                    array[:, :, q] = s[:, None] * x + c[:, None] * y
                x, y = a[:, p, :].copy(), a[:, q, :].copy()
                a[:, p, :] = c[:, None] * x - s[:, None] * y
                a[:, q, :] = s[:, None] * x + c[:, None] * y
        if largest <= 1e-17 * float(np.abs(a).max()):
            break
    values = np.einsum("ijj->ij", a)
    order = np.argsort(-values, axis=1)
    return (
        np.take_along_axis(values, order, axis=1),
        np.take_along_axis(v, order[:, None, :], axis=2),
    )


def find_faults(fits: list[Fit]) -> tuple[list[str], int, int]:
    """Compare fits with the oracle; return what is wrong, and how many bounds are finite."""
    faults: list[str] = []
    finite, converged = 0, 0
    by_size: dict[int, list[Fit]] = {}
    for fit in fits:
        by_size.setdefault(fit.rows.shape[1], []).append(fit)
    for group in by_size.values():
        matrices = np.stack([compute_covariance(fit) for fit in group])
        peaks = np.abs(matrices).max(axis=(1, 2))
        matrices = matrices / np.where(peaks > 0, peaks, 1)[:, None, None]
        for fit, values, vectors in zip(group, *rotate_jacobi(matrices), strict=True):
            faults += _judge(fit, values, vectors)
            finite += math.isfinite(fit.grade.angle_bound)
            converged += int(fit.grade.converged.sum())
    return faults, finite, converged


def _judge(fit: Fit, values: Array, vectors: Array) -> Iterator[str]:
    k, x = len(fit.components), fit.components.T.astype(np.longdouble)
    where = f"{fit.kind} {fit.method} {fit.rows.shape} k={k} scaled={fit.scaled} tol={fit.tol}"
    uncertain = 1e-18 * float(values[0])
    if math.isfinite(fit.grade.angle_bound) and k < len(values):
        gap = max(float(values[k - 1] - values[k]), 1e-300)
        outside = (vectors[:, k:].T @ x).astype(float)
        sine = min(float(np.linalg.norm(outside, 2)), 1.0)
        if math.asin(sine) > fit.grade.angle_bound + uncertain / gap + 4e-16:
            yield f"{where}: {math.asin(sine)} exceeds {fit.grade}"
    for i in np.flatnonzero(fit.grade.converged):
        cosines = np.abs(vectors.T @ x[:, i])
        nearest = values[int(np.argmax(cosines))]
        same = np.abs(values - nearest) <= 1e-15 * values[0]
        sine = float(np.sqrt(np.sum(cosines[~same] ** 2)))
        if math.degrees(sine) > fit.tol * 1.0001 + 1e-13:
            yield f"{where}: component {i} is {math.degrees(sine)} degrees off"


@pytest.mark.parametrize("name", METHODS)
def test_no_bound_is_exceeded_and_no_convergence_is_wrong(name: str) -> None:
    rng = np.random.default_rng(len(name))
    choices = METHODS[name]
    drawn = (fit_in_turn(rng, choices[i % len(choices)]) for i in range(BATCHES[name]))
    fits = [fit for fit in drawn if fit is not None]
    faults, finite, converged = find_faults(fits)
    assert faults == []
    assert finite > len(fits) // 4
    assert converged > len(fits) // 4


@pytest.mark.parametrize("what", WHOLE)
def test_secure_sums_and_sites_with_features_are_certified_too(what: str) -> None:
    rng = np.random.default_rng(len(what))
    faults, finite, _ = find_faults([fit_whole(rng, what) for _ in range(WHOLE[what])])
    assert faults == []
    assert finite > WHOLE[what] // 4


def test_nearly_tied_components_of_narrow_blocks_are_certified_too() -> None:
    rng = np.random.default_rng(9)
    choices: list[Method | str] = ["krylov", Krylov(block=3), Krylov(block=4), Subspace()]
    drawn = (fit_in_turn(rng, choices[i % 4], make_tied_rows) for i in range(TIED))
    faults, finite, converged = find_faults([fit for fit in drawn if fit is not None])
    assert faults == []
    assert finite > TIED // 4
    assert converged > TIED // 4


def draw_repeated_rows(rng: np.random.Generator) -> tuple[Array, npt.NDArray[np.intp]]:
    """Return a few different rows, and which of them each of many rows is."""
    d, different = int(rng.integers(2, 5)), int(rng.integers(2, 7))
    kinds = [
        rng.standard_normal((different, d)),
        np.eye(d)[np.arange(different) % d],
        rng.integers(0, 10, (different, d)) / 10.0,
    ]
    rows = kinds[int(rng.integers(0, 3))] + rng.choice([0.0, 0.0, 1.0]) * rng.standard_normal(d)
    n = int(rng.choice([300, 3000, 30_000]))
    return rows, np.sort(rng.choice(different, n, p=rng.dirichlet(np.ones(different))))


def test_equal_rows_whose_rounding_errors_add_up_are_certified_too() -> None:
    rng, faults = np.random.default_rng(3), []
    methods: list[Method | str] = ["covariance", "krylov", Factors()]
    for i in range(REPEATED):
        rows, which = draw_repeated_rows(rng)
        rows *= rng.random(rows.shape) < rng.choice([0.6, 1.0])
        k, scaled, center = int(rng.integers(1, rows.shape[1])), i % 2 == 0, i % 3 > 0
        tables: dict[str, Any] = cut(rng, rows[which])
        if i % 4 < 3:
            tables = {name: sparse.csr_array(part) for name, part in tables.items()}
        study = study_of(tables, k, methods[i % 3], scale=scaled, center=center)
        found = drive(pca(study, rng=rng), EachInTurn(gates(tables), study))
        assert found.certificate is not None
        wide, counts = rows.astype(np.longdouble), np.bincount(which, minlength=len(rows))
        wide -= center * (counts @ wide / counts.sum())
        wide[:, (rows[counts > 0] == rows[which[0]]).all(axis=0) & center] = 0.0
        spread = np.sqrt(counts @ wide**2 / counts.sum())
        wide /= np.where(scaled & (spread > 0.0), spread, 1.0)
        _, vectors = rotate_jacobi(((wide.T * counts) @ wide / counts.sum())[None])
        outside = (vectors[0][:, k:].T @ found.components.T).astype(float)
        sine = min(float(np.linalg.norm(outside, 2)), 1.0)
        if sine > math.sin(min(found.certificate.angle_bound, math.pi / 2)):
            faults.append(f"{i} {methods[i % 3]} {len(which)} {found.certificate}")
    assert faults == []


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_rows_of_many_equal_features_at_sites_with_features_are_certified_too(seed: int) -> None:
    rng, each = np.random.default_rng(seed), np.array([200_000, 60_000, 40_000])
    different = rng.integers(1, 10, (15, 3)) / 10.0
    rows = np.repeat(different, each, axis=1)
    sites = {"a": sparse.csr_array(rows[:, :150_000]), "b": sparse.csr_array(rows[:, 150_000:])}
    fitted = FederatedPCA(1, split="features", center=False, random_state=0)
    fitted.fit_sites(sites, keys={name: np.arange(15) for name in sites})
    assert fitted.certificate_ is not None
    wide = different.astype(np.longdouble)
    values, vectors = rotate_jacobi(((wide * each) @ wide.T)[None])
    first = wide.T @ vectors[0][:, 0] / np.sqrt(values[0][0])
    found = fitted.components_[0].astype(np.longdouble)
    off = found - np.repeat(first, each) * (np.repeat(first, each) @ found)
    assert float(np.sqrt(off @ off)) <= math.sin(fitted.certificate_.angle_bound)
