"""Missing entries under privacy: whether a row has one shows nowhere, and it counts as the centre.

A refusal that hangs on a gap would tell of one row without any noise.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.linalg.orthonormal import sines
from eigenfed.privacy.dp.sensitivity import RELATIONS
from eigenfed.privacy.ledger.ledger import Ledger
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.operations import Op, State
from eigenfed.protocol.private.budget_schedule import list_spends
from eigenfed.protocol.study import Study
from private_runs import (
    CENTER,
    COUNTING,
    RADIUS,
    REST,
    Asking,
    D,
    Pair,
    Summing,
    asking,
    fitting,
    in_parts,
    made,
    request_for,
    run,
    terms_of,
)

pytestmark = pytest.mark.usefixtures("seeded_noise")

N, FEATURES = 300, 6


def whole(X: Array) -> Array:
    return X


def one_gap(X: Array) -> Array:
    X[17, 2] = np.nan
    return X


def an_empty_row(X: Array) -> Array:
    X[17] = np.nan
    return X


def an_empty_column(X: Array) -> Array:
    X[:, 2] = np.nan
    return X


def nothing_there(X: Array) -> Array:
    return np.full_like(X, np.nan)


GAPS: tuple[Callable[[Array], Array], ...] = (
    one_gap,
    an_empty_row,
    an_empty_column,
    nothing_there,
)


def study_of(method: str, trust: str = "local", **terms: Any) -> Study:
    sites = ("a", "b", "c") if trust == "secure_sum" else ("a",)
    privacy = Privacy(1.0, 1e-5, trust=trust, **terms)
    return Study(sites, 2, method, privacy=privacy)


# What shows ------------------------------------------------------------------------------------


def visible(message: Message) -> tuple[Any, ...]:
    shapes = {name: (array.shape, array.dtype.str) for name, array in message.arrays.items()}
    return message.kind, message.label, shapes, len(message.to_bytes())


def seen_of(it: Asking, ledger: Ledger) -> list[tuple[Any, ...]]:
    """All that shows from outside of a whole run but the numbers themselves; and what it cost."""
    seen = [visible(it.opened())]
    for op in ("rows", *(step.op for step in list_spends(it.study)), "rows"):
        seen.append(visible(it.request(request_for(it.study, op, FEATURES, N))))
    return [*seen, (ledger.totals("data").spends, ledger.held("data"))]


@pytest.mark.parametrize("gaps", GAPS, ids=lambda gaps: gaps.__name__)
@pytest.mark.parametrize("count", ["public", "private"])
@pytest.mark.parametrize("method", ["covariance", "power"])
def test_codes_sizes_and_order_are_those_of_whole_rows(
    gaps: Callable[[Array], Array], method: str, count: str
) -> None:
    seen = []
    for table in (whole, gaps):
        ledger = Ledger(None)
        source = Source.of(table(made(N, FEATURES)))
        it = asking(study_of(method, count=count), source, ledger=ledger)
        seen.append(seen_of(it, ledger))
        assert source.has_missing == (table is gaps)
    assert seen[0] == seen[1]
    kinds = [line[0] for line in seen[0][:-1]]
    assert kinds == ["reply"] * (len(kinds) - 1) + ["refusal"]


@pytest.mark.parametrize("gaps", GAPS, ids=lambda gaps: gaps.__name__)
def test_a_trusted_coordinator_is_sent_sums_all_the_same(gaps: Callable[[Array], Array]) -> None:
    study = study_of("covariance", "central", clip=9.0, shares={"scree": 0.0})
    for table in (whole, gaps):
        it = asking(study, Source.of(table(made(N, FEATURES))), ledger=Ledger(None))
        it.opened()
        for op in ("rows", "private_total", "private_scatter"):
            assert it.request(request_for(study, op, FEATURES, N)).kind == "reply"


@pytest.mark.parametrize("gaps", GAPS, ids=lambda gaps: gaps.__name__)
def test_masked_replies_are_those_of_whole_rows(gaps: Callable[[Array], Array]) -> None:
    study = study_of("covariance", "secure_sum", clip=9.0, shares={"scree": 0.0})
    seen = []
    for table in (whole, gaps):
        tables = {name: made(N, FEATURES) for name in study.sites}
        it = Summing.of(study, tables | {"a": table(made(N, FEATURES))})
        shown = [visible(message) for message in it.opened().values()]
        it.replies("rows", {name: {} for name in study.sites})
        for op in ("private_total", "private_scatter"):
            masked = it.masked(request_for(study, op, FEATURES, 3 * N))
            shown += [
                (name, {n: (a.shape, a.dtype.str) for n, a in reply.items()})
                for name, reply in masked.items()
            ]
            signatures = it.signed(study.sites)
            opening = it.unmasked(study.sites, signatures, study.sites)
            shown += [visible(m) for m in (*signatures.values(), *opening.values())]
        seen.append(shown)
    assert seen[0] == seen[1]


# What it counts as -----------------------------------------------------------------------------


@pytest.mark.parametrize("op", COUNTING, ids=lambda op: str(op.name))
@pytest.mark.parametrize("as_sparse", [False, True])
def test_a_missing_entry_counts_as_the_centre(op: Op[Any, Any], as_sparse: bool) -> None:
    rng = np.random.default_rng(4)
    gaps = REST.copy()
    gaps[rng.random(REST.shape) < 0.3] = np.nan
    # The first request of a run is about the origin: no mean is known yet.
    center = np.zeros(D) if op.name == "private_start" else CENTER
    filled = np.where(np.isnan(gaps), center, gaps)
    terms, request = terms_of("replace_one"), fitting(op)
    source = Source.of(sparse.csr_array(gaps) if as_sparse else gaps)
    found, wanted, without = (
        pack(op.run(table, request, State(), terms).reply)
        for table in (source, Source.of(filled), Source.of(REST))
    )
    for name, values in wanted.items():
        np.testing.assert_array_equal(found[name], values)
        if op.name != "private_count":
            assert np.any(values != without[name])


entries = st.one_of(
    st.floats(-3 * RADIUS, 3 * RADIUS),
    st.sampled_from([np.nan, np.nan, 0.0, -1e300, 1.7e308]),
)
some_row = st.lists(entries, min_size=D, max_size=D).map(np.array)


@given(
    row=some_row,
    other=some_row,
    op=st.sampled_from(COUNTING),
    relation=st.sampled_from(RELATIONS),
)
def test_rows_with_gaps_move_no_sum_further_than_stated(
    row: Array, other: Array, op: Op[Any, Any], relation: str
) -> None:
    second = other if relation == "replace_one" else None
    assert Pair(op, fitting(op), row, second, relation).moved <= 1.0


def test_a_run_on_rows_with_gaps_finds_their_components() -> None:
    X = made(6000)
    gaps = X.copy()
    gaps[np.random.default_rng(1).random(X.shape) < 0.02] = np.nan
    privacy = Privacy(8.0, 1e-5, trust="local")
    study = Study(("s0", "s1", "s2"), 2, "covariance", privacy=privacy)
    found = run(study, in_parts(gaps)).found
    exact = np.linalg.svd(X - X.mean(axis=0), full_matrices=False).Vh[:2]
    assert np.isfinite(found.components).all()
    assert sines(found.components, exact).max() < 0.3
