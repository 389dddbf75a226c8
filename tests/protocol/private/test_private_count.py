"""A number of rows that tells of them: it leaves with noise only, and nothing hangs on it."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats

from eigenfed import FederatedPCA
from eigenfed.arrays import Array
from eigenfed.data.files import open_source
from eigenfed.data.source import Source
from eigenfed.errors import InputError, SiteRefused
from eigenfed.privacy.dp.accounting import mu_of
from eigenfed.privacy.dp.sensitivity import COUNT_UNIT, RELATIONS
from eigenfed.privacy.ledger.ledger import Budget, Ledger
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import BUDGET_FRACTIONS, Privacy
from eigenfed.protocol.core import plain_sum
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.method import Shape
from eigenfed.protocol.method_registry import choose_method
from eigenfed.protocol.operations import Op, State
from eigenfed.protocol.private.budget_schedule import (
    Spend,
    list_spends,
    split_budget,
    split_start,
)
from eigenfed.protocol.private.noisy_sums import Spender
from eigenfed.protocol.private.private_site import CountRequest, RowsRequest, StartRequest
from eigenfed.protocol.private.reply_noise import START_GRID, noise_of_start
from eigenfed.protocol.study import Study
from private_runs import (
    COUNTING,
    RADIUS,
    REST,
    Asking,
    D,
    apart,
    asking,
    fitting,
    in_parts,
    made,
    request_for,
    run,
    terms_of,
)

pytestmark = pytest.mark.usefixtures("seeded_noise")

DELTA = 1e-6


def study_of(count: str, method: str = "covariance", **terms: Any) -> Study:
    privacy = Privacy(1.0, DELTA, trust="local", count=count, **terms)
    return Study(("a",), 2, method, privacy=privacy)


# What leaves, and what it costs -----------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "filtered", "fields"),
    [("public", False, {"n", "d"}), ("private", False, {"d"}), ("private", True, {"d"})],
)
def test_only_a_public_number_of_rows_leaves_as_it_is(
    count: str, filtered: bool, fields: set[str]
) -> None:
    it = asking(study_of(count), Source.of(made(77)), ledger=Ledger(None), filtered=filtered)
    assert it.opened().kind == "reply"
    reply = it.reply(RowsRequest())
    assert reply.keys() == fields
    assert reply["d"] == 6
    if count == "public":
        assert reply["n"] == 77


@pytest.mark.parametrize("method", ["covariance", "power"])
def test_the_schedule_begins_with_the_number_and_pays_for_it(method: str) -> None:
    split = split_budget(study_of("private", method))
    assert split["count"] == pytest.approx(
        BUDGET_FRACTIONS["count"] / (1 + BUDGET_FRACTIONS["count"])
    )
    assert sum(split.values()) == pytest.approx(1.0)
    steps = list_spends(study_of("private", method))
    assert split_start(study_of("private", method))["count"] == split["count"]
    assert "count" not in split_start(study_of("public", method))
    assert [step.op for step in steps] == [
        step.op for step in list_spends(study_of("public", method))
    ]
    assert sum(step.fraction for step in steps) == pytest.approx(1.0)
    public = study_of("private", method, clip=3.0)
    assert list_spends(public)[0] == Spend("private_count", split_budget(public)["count"])


def test_a_count_has_the_noise_that_was_paid_for() -> None:
    study, n, trials = study_of("private", clip=20.0), 500, 150
    source, mu, noise = Source.of(made(n)), 0.0, []
    for _ in range(trials):
        ledger = Ledger(None)
        it = asking(study, source, ledger=ledger, filtered=True)
        it.opened()
        it.reply(RowsRequest())
        reply = it.reply(CountRequest())
        assert reply.keys() == {"count"}
        noise.append(int(reply["count"][0]) - n * COUNT_UNIT)
        mu = ledger.totals("data").mu
    assert mu == pytest.approx(mu_of(1.0, DELTA) * split_budget(study)["count"] ** 0.5)
    squares = float(np.sum((np.array(noise) / (COUNT_UNIT / mu)) ** 2))
    assert 1e-6 < stats.chi2.cdf(squares, trials) < 1 - 1e-6


def test_a_run_reckons_with_the_noisy_number_and_says_so() -> None:
    privacy = Privacy(2.0, DELTA, trust="central", count="private")
    found = run(
        Study(("s0", "s1", "s2"), 2, "covariance", privacy=privacy), in_parts(made(6000))
    ).found
    assert 5000 < found.n < 7000
    assert found.privacy is not None
    assert f"the number of rows was released with noise ({found.n:.0f})" in found.privacy.text


def test_a_fit_keeps_no_exact_number_of_rows() -> None:
    """Of many fits some are off: the number is the noisy one, in a pickle too."""
    tables = in_parts(made(3000))
    privacy = Privacy(1.0, DELTA, trust="central", count="private", clip=20.0)
    fits = [
        FederatedPCA(2, privacy=privacy).fit_sites(tables, filtered=["s0", "s2"]) for _ in range(4)
    ]
    assert {fit.n_samples_ for fit in fits} != {3000}
    for fit in fits:
        assert fit.privacy_ is not None
        assert f"({fit.n_samples_})" in fit.privacy_.text
        assert pickle.loads(pickle.dumps(fit)).n_samples_ == fit.n_samples_


def test_the_choice_of_a_private_method_neither_tells_nor_hangs_on_the_number_of_rows() -> None:
    privacy = Privacy(1.0, DELTA, trust="local", count="private")
    study = Study(("a",), 2, privacy=privacy)
    for features in (10, 100_000):
        found = {
            choose_method(study, Shape(rows=n, features=features, components=2, sites=1))
            for n in (1, 31_337, 10**9)
        }
        assert len(found) == 1
        ((method, reason),) = found
        assert "31337" not in reason
        assert method.name == ("covariance" if features == 10 else "power")


# Rows that were chosen by what is in them -------------------------------------------------------


def test_a_site_with_filtered_rows_refuses_to_publish_how_many() -> None:
    ledger = Ledger(None)
    it = asking(study_of("public"), Source.of(made(77)), ledger=ledger, filtered=True)
    refused = it.opened()
    assert (refused.kind, refused.label) == ("refusal", "count")
    assert it.code(RowsRequest()) == "closed"
    assert it.site.egress == []
    assert ledger.totals("data").spends == 0
    taking = asking(study_of("private"), Source.of(made(77)), ledger=ledger, filtered=True)
    assert taking.opened().kind == "reply"


def test_an_estimator_is_told_which_sites_are_filtered() -> None:
    tables, private = in_parts(made(3000)), FederatedPCA(2)
    private.set_params(privacy=Privacy(2.0, DELTA, trust="local"))
    with pytest.raises(SiteRefused, match="'count'"):
        private.fit_sites(tables, filtered=["s1"])
    with pytest.raises(InputError, match=r"filtered names \['s9'\], which are not sites"):
        private.fit_sites(tables, filtered=["s9"])
    private.set_params(privacy=Privacy(2.0, DELTA, trust="local", count="private"))
    assert private.fit_sites(tables, filtered=["s1"]).components_.shape == (2, 6)


def passing(rows: Array) -> Source:
    """The rows whose first entry is at least 0."""
    return Source.of(rows[rows[:, 0] >= 0.0])


entries = st.floats(-3 * RADIUS, 3 * RADIUS)
some_row = st.lists(entries, min_size=D, max_size=D).map(np.array)


@given(
    row=some_row,
    other=some_row,
    op=st.sampled_from(COUNTING),
    relation=st.sampled_from(RELATIONS),
)
def test_a_row_that_no_longer_passes_the_filter_moves_no_sum_further_than_stated(
    row: Array, other: Array, op: Op[Any, Any], relation: str
) -> None:
    """Replaced by one that does not pass, it is replaced by none; the sites' n differs by one."""
    row[0], other[0] = abs(row[0]), -1.0 - abs(other[0])
    tables = [passing(np.vstack([np.abs(REST), changed])) for changed in (row, other)]
    assert [source.n for source in tables] == [len(REST) + 1, len(REST)]
    terms, request = terms_of(relation, "private"), fitting(op)
    noise = request.noise(terms, State())
    assert noise is not None
    replies = [pack(op.run(source, request, State(), terms).reply) for source in tables]
    assert apart(replies[0], replies[1], noise) <= 1.0


def test_the_count_moves_by_all_of_its_sensitivity_when_a_row_fails_the_filter() -> None:
    request, terms = CountRequest(), terms_of("replace_one", "private")
    noise = request.noise(terms, State())
    assert noise is not None
    tables = [passing(np.vstack([np.abs(REST), [x, 0.0, 0.0]])) for x in (1.0, -1.0)]
    one, other = (pack(COUNTING[0].run(source, request, State(), terms).reply) for source in tables)
    assert apart(one, other, noise) == 1.0


def seen_of(it: Asking, n: int) -> list[tuple[Any, ...]]:
    """All that shows from outside of a whole run but the numbers themselves."""
    d, seen = 6, [visible(it.opened())]
    for op in ("rows", *(step.op for step in list_spends(it.study))):
        seen.append(visible(it.request(request_for(it.study, op, d, n))))
    return seen


def visible(message: Message) -> tuple[Any, ...]:
    shapes = {name: (array.shape, array.dtype.str) for name, array in message.arrays.items()}
    return message.kind, message.label, shapes, len(message.to_bytes())


@pytest.mark.parametrize("method", ["covariance", "power"])
@pytest.mark.parametrize("asked", [1, 149, 150, 151, 301, 1 << 30])
def test_whatever_number_is_named_codes_sizes_and_order_are_those_of_one_row_less(
    asked: int, method: str
) -> None:
    """Also where the asker, or the site's own least number, would be just between both."""
    study = study_of("private", method)
    policy = Policy(budget=Budget(1.0, DELTA), min_rows=301)
    seen = [
        seen_of(
            asking(study, Source.of(made(n)), ledger=Ledger(None), policy=policy, filtered=True),
            asked,
        )
        for n in (301, 300)
    ]
    assert seen[0] == seen[1]
    assert {line[0] for line in seen[0]} == {"reply"}


def test_the_least_number_of_rows_holds_where_it_is_public() -> None:
    policy = Policy(budget=Budget(1.0, DELTA), min_rows=301)
    for count in ("public", "private"):
        for n, kind in ((300, "refusal"), (301, "reply")):
            it = asking(study_of(count), Source.of(made(n)), ledger=Ledger(None), policy=policy)
            assert it.opened().kind == kind


def test_rows_of_a_file_with_where_are_filtered_rows(tmp_path: Path) -> None:
    """The whole way: a file, its condition, and a row that is changed so that it fails it."""
    rows = np.column_stack([np.linspace(18, 80, 120), made(120, 2)])
    counts = []
    for age in (50.0, 17.0):
        rows[7, 0] = age
        path = tmp_path / f"{age:.0f}.csv"
        np.savetxt(path, rows, delimiter=",", header="age,x,y", comments="")
        source = open_source(path, columns=["x", "y"], where=["age >= 18"])
        counts.append(source.n)
        it = asking(study_of("public"), source, ledger=Ledger(None), filtered=True)
        assert it.opened().label == "count"
        it = asking(study_of("private"), source, ledger=Ledger(None), filtered=True)
        assert it.opened().kind == "reply"
        assert it.reply(RowsRequest()).keys() == {"d"}
    assert counts == [120, 119]


def test_sums_over_very_many_sites_fit_a_word() -> None:
    """The bound on their sum was taken for one on each, and 256 sites or more were refused."""
    sites = tuple(f"s{i}" for i in range(2000))
    study = Study(sites, 2, "covariance", privacy=Privacy(1.0, DELTA, count="private"))
    fraction, noise = list_spends(study)[0].fraction, noise_of_start(study, D)
    spender = Spender(study, plain_sum, {})
    call = next(spender.start(StartRequest(), noise, fraction, float(START_GRID)))
    assert call.largest is not None
    assert call.largest * len(sites) < 2**62
