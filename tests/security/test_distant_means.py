"""A mean is the coordinator's: however distant it is, it moves rows and does nothing else."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.data.shifted_rows import ShiftedRows
from eigenfed.data.source import Source
from eigenfed.protocol.exact.covariance import Covariance, ScatterRequest
from eigenfed.protocol.exact.factors import ScatterFactorRequest, factorise
from eigenfed.protocol.exact.frame_rows import prepare_rows, view_site
from eigenfed.protocol.exact.merge import SummaryRequest
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest
from eigenfed.protocol.exact.orthonormalise import GramRequest, OntoRequest
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.exact.spectrum import unpack_symmetric
from eigenfed.protocol.exact.subspace import SidedProductRequest
from eigenfed.protocol.method import find_method
from eigenfed.protocol.operations import State
from eigenfed.protocol.study import Study
from hostile import Lone

N, D = 40, 6


@pytest.mark.parametrize("power", [0, 30, 52, 54])
def test_a_summary_is_that_of_the_rows_and_not_of_what_rounding_left(power: int) -> None:
    """Subtracting 2**53 left two numbers of a feature, and the summary counted the rows of each."""
    rows = np.random.default_rng(3).standard_normal((N, D))
    lone = Lone.of(rows, Study(("a",), D, "merge"))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["n"]
    mean[1] -= 1.5 * 2.0**power
    reply = lone.reply(SummaryRequest(mean=mean, scale=np.ones(D)))
    around = rows - rows.mean(axis=0)
    scatter = (reply["vt"].T * reply["s"] ** 2) @ reply["vt"]
    np.testing.assert_allclose(scatter, around.T @ around, atol=1e-10)
    np.testing.assert_allclose(reply["mean"], rows.mean(axis=0) - mean, atol=1e-12)


@pytest.mark.parametrize("gap", [False, True])
@pytest.mark.parametrize("scaled", [False, True])
@pytest.mark.parametrize("name", ["krylov", "subspace", "randomized"])
def test_two_distant_means_that_cancel_leave_no_single_row(
    name: str, scaled: bool, gap: bool
) -> None:
    """Of entries below half a digit of 2**56 nothing was left, and the reply was the other row."""
    rows = np.random.default_rng(3).standard_normal((N, D))
    rows[7, 1] = 9.0
    if gap:
        rows[3, 3] = np.nan
    lone = Lone.of(rows, Study(("a",), 2, name, scale=scaled))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean, scale = totals["total"] / totals["count"], np.ones(D)
    around = np.nan_to_num(rows - mean)
    mean[1:3] = -(2.0**56)
    if scaled:
        lone.reply(SquaresRequest(mean=mean))
        # Others may be as large as they like: the distance of each feature counts.
        scale[0] = 1e-30
    basis = np.zeros((D, 1))
    basis[1:3, 0] = np.sqrt(0.5), -np.sqrt(0.5)
    kind = ProductRequest if name == "krylov" else SidedProductRequest
    seen = lone.reply(kind(basis=basis, mean=mean, scale=scale))["product"][3:, 0]
    np.testing.assert_allclose(seen, around[:, 3:].T @ (around @ basis)[:, 0], rtol=1e-9)


@pytest.mark.parametrize("name", ["covariance", "single", "factors"])
def test_nor_the_difference_of_two_columns_of_a_scatter(name: str) -> None:
    """Of eight rows it was one, to the last digit; of more, rounding errors hid it."""
    rows = np.random.default_rng(3).standard_normal((8, 20))
    rows[7, 1] = 20.0
    is_single = name == "single"
    method = Covariance(precision="single") if is_single else find_method(name)
    lone = Lone.of(rows, Study(("a",), 2, method))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["n"]
    around = rows - mean
    mean[1:3] = -(2.0**27) if is_single else -(2.0**56)
    frame: dict[str, Any] = {"mean": mean, "scale": np.ones(20)}
    if name == "factors":
        factor = lone.reply(ScatterFactorRequest(**frame))["factor"]
        seen = factor[:, 3:].T @ (factor[:, 1] - factor[:, 2])
    else:
        whole = unpack_symmetric(lone.reply(ScatterRequest(**frame))["triangle"], 20)
        seen = (whole[:, 1] - whole[:, 2])[3:]
    exact = around[:, 3:].T @ (around[:, 1] - around[:, 2])
    np.testing.assert_allclose(seen, exact, rtol=1e-4 if is_single else 1e-10)


@pytest.mark.parametrize("how", ["dense", "sparse", "weighted", "with gaps"])
def test_products_about_a_distant_mean_are_those_of_the_rows(how: str) -> None:
    rng = np.random.default_rng(3)
    rows, weights = rng.standard_normal((N, D)), rng.uniform(0.0, 3.0, N)
    mean, basis = np.r_[0.0, 2.0**20, rng.standard_normal(D - 2)], np.eye(D)[:, :3]
    if how == "with gaps":
        rows[3, 2:4] = np.nan
    source = Source.of(
        sparse.csr_array(rows) if how == "sparse" else rows,
        weights=weights if how == "weighted" else None,
    )
    _, frame, state = prepare_rows(source, State(sent=(mean, np.full(D, 2.0))))
    view = prepare_rows(source, state)[0]
    assert frame.shifted is view
    centred = np.nan_to_num((rows - mean) / 2.0)
    weighed = centred * (weights[:, None] if how == "weighted" else 1.0)
    sided = centred @ basis
    np.testing.assert_allclose(view.multiply(basis), sided, rtol=1e-12)
    np.testing.assert_allclose(view.adjoint(sided), weighed.T @ sided, rtol=1e-12)
    np.testing.assert_allclose(view.product(basis), weighed.T @ sided, rtol=1e-12)
    np.testing.assert_allclose(view.scatter(), weighed.T @ centred, rtol=1e-12)


LIES: dict[str, dict[int, tuple[float, float]]] = {
    "no lie": {},
    "a distant mean": {2: (2.0**60, 1.0)},
    "a mean at some distance": {2: (2.0**30, 1.0)},
    "two distant means": {1: (2.0**70, 1.0), 2: (-(2.0**60), 1.0)},
    "a huge feature": {0: (0.0, 1e-60)},
    "a huge feature and a distant mean": {0: (0.0, 1e-60), 2: (2.0**60, 1.0)},
    "tiny features": dict.fromkeys(range(1, 20), (0.0, 1e100)),
}


def turn_rows() -> tuple[Any, Any]:
    """Return rows, of which one alone has a feature, and others with the same mean and scatter."""
    rng, n = np.random.default_rng(3), 8
    rows = rng.standard_normal((n, 20))
    rows[:, 0] = np.eye(n)[3]
    around = np.linalg.qr(np.column_stack([np.ones(n), rng.random((n, n - 1))])).Q
    inside = np.eye(n)
    inside[1:, 1:] = np.linalg.qr(rng.standard_normal((n - 1, n - 1))).Q
    return rows, around @ inside @ around.T @ rows


def tell(lie: str, rows: Any) -> tuple[Any, Any]:
    mean, scale = rows.mean(axis=0), np.ones(20)
    for place, (away, units) in LIES[lie].items():
        mean[place] -= away
        scale[place] = units
    return mean, scale


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("kind", ["dense", "sparse", "weighted"])
def test_a_factor_follows_from_the_scatter_whatever_a_coordinator_sends(
    kind: str, lie: str
) -> None:
    """Rows that rounding made equal had a known rotation: the factor was the rows themselves."""
    rows, turned = turn_rows()
    mean, scale = tell(lie, rows)
    seen = []
    for table in (rows, turned):
        weights = np.full(8, 2.0) if kind == "weighted" else None
        source = Source.of(sparse.csr_array(table) if kind == "sparse" else table, weights=weights)
        view, _ = view_site(source, State(sent=(mean, scale)))
        seen.append(factorise(view)[:, 1:] * scale[1:])
    one, same = seen
    np.testing.assert_allclose(one, same, atol=1e-6 * np.abs(one).max(axis=0).min())


@pytest.mark.parametrize("lie", LIES)
def test_a_summary_follows_from_it_too(lie: str) -> None:
    """The digits below the errors of its singular vectors were those of the first row."""
    rows, turned = turn_rows()
    mean, scale = tell(lie, rows)
    seen = []
    for table in (rows, turned):
        lone = Lone.of(table, Study(("a",), 7, "merge", scale=True))
        lone.open()
        lone.reply(MomentsRequest())
        lone.reply(SquaresRequest(mean=mean))
        reply = lone.reply(SummaryRequest(mean=mean, scale=scale))
        seen.append(reply["vt"] * reply["s"][:, None] * scale)
    one, same = seen
    signs = np.sign(np.sum(one * same / scale**2, axis=1, keepdims=True))
    np.testing.assert_allclose(one[:, 1:], (signs * same)[:, 1:], atol=1e-9)
    directions = reply["vt"][reply["s"] > 0.0]
    assert not np.signbit(directions[directions == 0.0]).any()


def begin_sided(rows: Any) -> tuple[Lone, dict[str, Any]]:
    method = find_method("subspace", {"orthonormalise": "each", "by": "gram_schmidt"})
    lone = Lone.of(rows, Study(("a",), 2, method, max_rounds=50))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["count"]
    mean[0] -= 2.0**62
    return lone, {"mean": mean, "scale": np.ones(D)}


@pytest.mark.parametrize("kind", ["dense", "sparse"])
def test_row_vectors_are_not_rounded_to_what_a_distant_mean_adds_to_each_row(kind: str) -> None:
    """A row above a bound was left of a column of G, and differences of replies were that row."""
    rows = np.random.default_rng(3).standard_normal((N, D))
    rows[:, 4] = 1.0
    rows[7, 1] = 9.0
    around = rows - rows.mean(axis=0)
    seen = []
    for weight in (0.9, 0.3):
        lone, frame = begin_sided(sparse.csr_array(rows) if kind == "sparse" else rows)
        basis = np.zeros((D, 2))
        basis[:2, 0], basis[3, 1] = (2.0**-7, weight), 1.0
        basis[4, 0] = np.sqrt(1.0 - 2.0**-14 - weight**2)
        opening = {"basis": basis, "triangle": 0.5 * np.eye(2), **frame}
        gram = lone.reply(GramRequest(**opening))["gram"]
        onto = lone.reply(OntoRequest(norms=np.ones(1)))["onto"]
        product = lone.reply(SidedProductRequest())["product"]
        np.testing.assert_allclose(onto, gram[:1, 1], rtol=1e-12)
        seen.append((product[[2, 3, 5], 0], gram[0, 1]))
    (high, high_inner), (low, low_inner) = seen
    exact = 2.0 * 0.6 * around[:, [2, 3, 5]].T @ around[:, 1]
    np.testing.assert_allclose(high - low, exact, rtol=1e-9)
    assert high_inner - low_inner == pytest.approx(4.0 * 0.6 * around[:, 1] @ around[:, 3])


def test_how_single_rows_are_rounded_does_not_show_in_sums_times_a_distant_mean() -> None:
    """A faint direction rounds up the rows above a bound: a distant mean would show how many."""
    rng = np.random.default_rng(3)
    rows = np.zeros((N, D))
    rows[: N // 2, 1] = 1.0
    rows[: N // 2, 2] = rng.integers(0, 9, N // 2)
    far = 2.0**56
    mean = rows.mean(axis=0) - np.r_[far, np.zeros(D - 1)]
    rows[0, 0] = 2.0**-30
    _, _, state = prepare_rows(Source.of(sparse.csr_array(rows)), State(sent=(mean, np.ones(D))))
    view = prepare_rows(Source.of(sparse.csr_array(rows)), state)[0]
    assert isinstance(view, ShiftedRows)
    plain, faint = np.eye(D)[:, 1:2], np.r_[0.0, 1.0, 2.0**-53, np.zeros(D - 3)][:, None]
    sums = view.near_rows.adjoint(np.ones((N, 1)))
    change = view.product(faint)[0] - view.product(plain)[0]
    np.testing.assert_allclose(change, far * (sums.T @ (faint - plain))[0], atol=1e-6)


@pytest.mark.parametrize("kind", ["dense", "sparse", "sparse, scaled", "sparse with gaps"])
@pytest.mark.parametrize("power", [0, 12, 27, 40, 52])
def test_the_meter_knows_products_about_a_distant_mean(power: int, kind: str) -> None:
    """It took what cancellation had left for the image of a direction, which is known then."""
    rows = np.random.default_rng(3).standard_normal((N, D))
    if kind != "dense":
        rows[np.random.default_rng(4).random((N, D)) < 0.4] = 0.0
    if "gaps" in kind:
        rows[3, 4] = np.nan
    given = rows if kind == "dense" else sparse.csr_array(rows)
    lone = Lone.of(given, Study(("a",), 2, "krylov", scale="scaled" in kind))
    lone.open()
    totals = lone.reply(MomentsRequest())
    mean = totals["total"] / totals["count"]
    around, scale = np.nan_to_num(rows - mean), np.ones(D)
    if "scaled" in kind:
        lone.reply(SquaresRequest(mean=mean))
        scale[2] = 4.0
    mean[1] += 1.7 * 2.0**power
    lone.reply(ProductRequest(basis=np.eye(D)[:, 1:3], mean=mean, scale=scale))
    meter = lone.site.meter.settled()
    np.testing.assert_allclose(meter.images, around.T @ (around @ meter.basis), atol=1e-8)


@pytest.mark.parametrize("name", ["krylov", "merge"])
def test_sparse_rows_with_gaps_about_a_distant_mean_answer_as_dense_ones(name: str) -> None:
    rng = np.random.default_rng(3)
    rows = np.where(rng.random((N, D)) < 0.6, rng.standard_normal((N, D)) + 1.0, 0.0)
    rows[3, 4] = np.nan
    counted, seen = [], []
    for given in (rows, sparse.csr_array(rows)):
        lone = Lone.of(given, Study(("a",), 2, name))
        lone.open()
        totals = lone.reply(MomentsRequest())
        mean = totals["total"] / totals["count"]
        mean[[1, 4]] += 2.0**40, 0.5
        if name == "krylov":
            request = ProductRequest(basis=np.eye(D)[:, 2:5], mean=mean, scale=np.ones(D))
            seen.append(lone.reply(request)["product"])
        else:
            reply = lone.reply(SummaryRequest(mean=mean, scale=np.ones(D)))
            seen.append((reply["vt"].T * reply["s"] ** 2) @ reply["vt"])
        counted.append(lone.site.meter.settled())
    np.testing.assert_allclose(np.delete(seen[1], 1, 0), np.delete(seen[0], 1, 0), atol=1e-9)
    dense, found = counted
    signs = np.sign(np.sum(dense.basis * found.basis, axis=0))
    np.testing.assert_allclose(found.basis * signs, dense.basis, atol=1e-9)
    np.testing.assert_allclose(found.images * signs, dense.images, atol=1e-7)
    assert np.abs(dense.images).max() < N * 20.0
