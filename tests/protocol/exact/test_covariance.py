"""The whole covariance in one round: equal to the pooled one, with rows read once if it can be."""

from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.protocol.exact.covariance import ScatterRequest, scatter
from eigenfed.protocol.exact.moments import MomentsRequest
from federation import deviations, fitted, gate, in_sites, run, talk

RNG = np.random.default_rng(0)
ROWS = RNG.standard_normal((300, 6)) * [9, 5, 3, 2, 1, 0.5] + 100.0


@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("scale", [True, False])
@pytest.mark.parametrize("kind", ["plain", "weighted", "missing", "sparse", "mixed"])
@pytest.mark.parametrize("sizes", [[300], [150, 100, 50], [250, 40, 8, 2]])
def test_the_decomposition_is_that_of_all_rows(
    kind: str, center: bool, scale: bool, sizes: list[int]
) -> None:
    X, w = ROWS.copy(), np.ones(len(ROWS))
    tables: dict[str, Any] = in_sites(X, sizes)
    weights: dict[str, Array] = {}
    if kind == "missing":
        X[::7, 2] = np.nan
        tables = in_sites(X, sizes)
    if kind in ("weighted", "mixed"):
        weights = {"s00": np.random.default_rng(1).random(sizes[0])}
        w[: sizes[0]] = weights["s00"]
    if kind in ("sparse", "mixed"):
        last = list(tables)[-1]
        tables = {**tables, last: sparse.csr_array(tables[last])}
    found, _ = fitted(tables, 3, "auto", center=center, scale=scale, weights=weights)
    around = deviations(X, w, center=center, scale=scale)
    _, s, vt = np.linalg.svd(around, full_matrices=False)
    assert found.method == "covariance"
    np.testing.assert_allclose(found.variances, s[:3] ** 2 / (w.sum() - 1), rtol=1e-10)
    overlap = np.abs(np.sum(found.components * vt[:3], axis=1))
    np.testing.assert_allclose(overlap, np.ones(3), rtol=0, atol=1e-10)


def rows_read(
    monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], method: str = "auto", **settings: bool
) -> int:
    """Rows that all sites together have taken up during a run, but for the look for gaps."""
    read = []
    block = Source.stored_block

    def counted(self: Source, span: slice) -> Array:
        read.append(span.stop - span.start)
        return block(self, span)

    with monkeypatch.context() as patch:
        patch.setattr(Source, "stored_block", counted)
        fitted(tables, 2, method, **settings)
    return sum(read)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("method", ["auto", "covariance"])
def test_rows_are_read_once_but_for_the_first_block(
    monkeypatch: pytest.MonkeyPatch, method: str, scale: bool
) -> None:
    monkeypatch.setattr("eigenfed.data.source._BLOCK_BYTES", 25 * 6 * 8)
    tables = in_sites(ROWS, [200, 100])
    assert rows_read(monkeypatch, tables, method, scale=scale) == 300 + 2 * 25


def test_a_site_with_few_rows_has_its_totals_from_the_look_for_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = in_sites(ROWS[:40].copy(), [20, 20])
    assert rows_read(monkeypatch, tables) == 40
    for table in tables.values():
        table[3, 1] = np.nan
    assert rows_read(monkeypatch, tables) == 2 * 40


def test_what_a_site_keeps_is_gone_once_it_has_answered() -> None:
    talking = talk(gate("a", ROWS), 2, "covariance")
    first = talking.reply(MomentsRequest())
    kept = talking.state.scatter
    assert kept is not None
    assert kept.matrix.shape == (6, 6)
    request = ScatterRequest(mean=first.total / first.count, scale=np.ones(6))
    once = talking.reply(request).triangle
    assert talking.state.scatter is None
    terms = talking.site._runs["r"].terms
    twice = scatter.run(Source.of(ROWS), request, talking.state, terms).reply.triangle
    np.testing.assert_allclose(once, twice, rtol=0, atol=1e-12 * np.abs(once).max())


@pytest.mark.parametrize(
    "method", ["factors", "krylov", "randomized", "subspace", "power", "merge"]
)
def test_other_methods_keep_no_scatter(method: str) -> None:
    talking = talk(gate("a", ROWS), 2, method)
    talking.reply(MomentsRequest())
    assert talking.state.scatter is None
    _, transport, sites = run(in_sites(ROWS, 2), 2, method)
    states = [site._runs[transport.run].state for site in sites.values()]
    assert len(states) == 2
    assert all(state.scatter is None for state in states)
