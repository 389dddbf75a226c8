"""The whole covariance in one round: equal to the pooled one, with rows read once if it can be."""

from functools import partial
from typing import Any

import numpy as np
import pytest
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.protocol.messages import Message
from eigenfed.protocol.pca import Plan
from eigenfed.protocol.site import Site
from federation import deviations, fitted, in_sites

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
    plan = Plan(k=3, center=center, scale=scale)
    found, _ = fitted(tables, plan, weights)
    around = deviations(X, w, center=center, scale=scale)
    _, s, vt = np.linalg.svd(around, full_matrices=False)
    assert found.method == "covariance"
    np.testing.assert_allclose(found.variances, s[:3] ** 2 / (w.sum() - 1), rtol=1e-10)
    overlap = np.abs(np.sum(found.components * vt[:3], axis=1))
    np.testing.assert_allclose(overlap, np.ones(3), rtol=0, atol=1e-10)


def rows_read(monkeypatch: pytest.MonkeyPatch, tables: dict[str, Any], plan: Plan) -> int:
    """Rows that all sites together have taken up during a run, but for the look for gaps."""
    read = []
    block = Source.block

    def counted(self: Source, span: slice) -> tuple[Array, Array | None]:
        read.append(span.stop - span.start)
        return block(self, span)

    with monkeypatch.context() as patch:
        patch.setattr(Source, "block", counted)
        fitted(tables, plan)
    return sum(read)


@pytest.mark.parametrize("scale", [False, True])
@pytest.mark.parametrize("method", ["auto", "covariance"])
def test_rows_are_read_once_but_for_the_first_block(
    monkeypatch: pytest.MonkeyPatch, method: str, scale: bool
) -> None:
    monkeypatch.setattr("eigenfed.data.source._BLOCK_BYTES", 25 * 6 * 8)
    tables = in_sites(ROWS, [200, 100])
    plan = Plan(k=2, method=method, scale=scale)
    assert rows_read(monkeypatch, tables, plan) == 300 + 2 * 25


def test_a_site_with_few_rows_has_its_totals_from_the_look_for_gaps(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tables = in_sites(ROWS[:40].copy(), [20, 20])
    assert rows_read(monkeypatch, tables, Plan(k=2)) == 40
    for table in tables.values():
        table[3, 1] = np.nan
    assert rows_read(monkeypatch, tables, Plan(k=2)) == 2 * 40


def asked(site: Site, round_: int, op: str, arrays: dict[str, Array]) -> Message:
    data = site.answer(Message("ask", "r", round_, op, arrays).to_bytes())
    return Message.from_bytes(data, "reply", "refusal")


def test_what_a_site_keeps_is_gone_once_it_has_answered() -> None:
    site = Site("a", Source.of(ROWS))
    ask = partial(asked, site)
    first = ask(0, "moments", {"whole_up_to": np.array([6.0])})
    mean = first.arrays["total"] / first.arrays["count"]
    kept = site._runs["r"].state
    assert kept["kept_scatter"].shape == (6, 6)
    payload = {"mean": mean, "scale": np.ones(6)}
    once = ask(1, "scatter", payload).arrays["triangle"]
    assert not any(name.startswith("kept") for name in site._runs["r"].state)
    twice = ask(2, "scatter", payload).arrays["triangle"]
    np.testing.assert_allclose(once, twice, rtol=0, atol=1e-12 * np.abs(once).max())


@pytest.mark.parametrize("payload", [{}, {"whole_up_to": np.array([5.0])}])
def test_nothing_is_kept_where_the_scatter_will_not_be_asked_for(payload: dict[str, Array]) -> None:
    site = Site("a", Source.of(ROWS))
    asked(site, 0, "moments", payload)
    assert "kept_scatter" not in site._runs["r"].state


@pytest.mark.parametrize("method", ["krylov", "randomized", "subspace", "power", "merge"])
def test_other_methods_keep_no_scatter(method: str) -> None:
    _, transport = fitted(in_sites(ROWS, 2), Plan(k=2, method=method))
    states = [
        run.state
        for site in transport._sites.values()
        if isinstance(site, Site)
        for run in site._runs.values()
    ]
    assert len(states) == 2
    assert not any("kept_scatter" in state for state in states)
