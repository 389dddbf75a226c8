"""A hostile coordinator learns nothing from a quality control of genotypes but what is declared."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from eigenfed.audit.hostile_coordinator import repeat_lies
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import Loci
from eigenfed.data.source import Source
from eigenfed.data.steps import as_steps
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Reveals
from eigenfed.privacy.revealed_products import RevealedEntries
from eigenfed.privacy.secagg import fixed_point
from eigenfed.protocol.core import Call, call_each, drive
from eigenfed.protocol.exact.magnitude import MagnitudeRequest, compute_limits
from eigenfed.protocol.exact.moments import MomentsRequest
from eigenfed.protocol.exact.variant_counts import VariantCountsRequest
from eigenfed.protocol.exact.variant_products import VariantProductsRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.study import Study
from hostile import Lone, sites_of, walk
from secured import secured

N, D = 24, 12
SITES = ("a", "b", "c")
STEPS = ["call_rate:0.5", "maf:0.01", "hwe:1e-9", "ld:4:0.9"]


def genotypes(seed: int, *, n: int = N, matched: bool = True) -> Source:
    """People of random genotypes, all codes alike: about a quarter is missing."""
    rng = np.random.default_rng(seed)
    table = Genotypes.of(rng.integers(0, 256, (D, n // 4), dtype=np.uint8), n)
    loci = Loci(np.repeat([1, 2], D // 2), np.arange(D))
    counts = np.array([D - 2, 2, 0, 0, 0, 0, 0, 0]) if matched else None
    return Source(replace(table, loci=replace(loci, matched=counts)))


def harmonised(seed: int) -> Source:
    """People whose site lacks a variant, counts other alleles, and projects two without a fit."""
    rng, source = np.random.default_rng(seed + 50), genotypes(seed)
    places = rng.permutation(D)
    places[rng.integers(D)] = -1
    counts = np.bincount(rng.integers(0, 7, D - 1), minlength=8) + np.eye(8, dtype=int)[7]
    table = replace(
        source.X,
        places=places,
        swapped=rng.random(D) < 0.5,
        loci=replace(source.X.loci, matched=counts),
    )
    weights = np.ones(N)
    weights[rng.choice(N, 2, replace=False)] = 0.0
    return Source(table, weights)


def study_of(**settings: Any) -> Study:
    given: dict[str, Any] = {
        "method": "krylov",
        "prepare": STEPS,
        "scale": "genotype",
        "max_rounds": 2,
    }
    return Study(SITES, 2, tol=1e-300, **(given | settings))


def check_counted(site: Site, asked: Message, reply: Message) -> None:
    """See to it that whatever is answered was counted."""
    if asked.kind == "open":
        return
    meter, reveals = site.meter, site.egress[-1].release.reveals.value
    told = {
        "genotype counts": meter.diagonal and meter.means,
        "entries": meter.entries > 0,
        "means": meter.means,
        "directions": bool(meter.pending or meter.settled_basis.shape[1]),
        "range": meter.numbers > 0,
        "bound": meter.numbers > 0,
        "nothing": True,
    }
    assert told[reveals], reveals


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("eigenfed.protocol.gate.gate._log.disabled", True)
    monkeypatch.setattr("eigenfed.protocol.gate.gate._MOST_REFUSALS", 10**9)
    monkeypatch.setattr("eigenfed.protocol.exact.variant_products.TILE_PAIRS", 10)


@pytest.mark.usefixtures("patient")
@pytest.mark.parametrize("secure", [False, True])
def test_what_is_seen_of_a_site_does_not_depend_on_its_genotypes(secure: bool) -> None:
    study, lies = study_of(secure=secure), 0
    # Within secure sums a site with too few people to send counts takes part, and answers alike.
    policy = Policy(min_counted=N + 1 if secure else N - 2)
    tables = {name: harmonised(place) for place, name in enumerate(SITES)}
    steps = walk(tables, study, "a", check_counted, policy=policy)
    assert [step.op for step in steps].count("variant_products") == 2
    other = sites_of(tables | {"a": harmonised(9)}, study, policy=policy)["a"]
    for step, lie, outcome in repeat_lies(steps, other):
        lies += 1
        if "aborted" not in (lie.outcome.code, outcome.code):
            assert lie.outcome == outcome, (step.op, lie.how)
    assert lies > (1900 if secure else 600)


def test_windows_are_the_studys_and_every_tile_is_sent_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("eigenfed.protocol.exact.variant_products.TILE_PAIRS", 10)
    lone = Lone.of(genotypes(0), study_of())
    lone.open()
    first = VariantProductsRequest(passed=np.arange(D), mean=np.ones(D))
    assert lone.request(first).code == "script"
    lone.reply(VariantCountsRequest())
    assert lone.request(VariantCountsRequest()).code == "script"
    for passed, mean in (
        (np.arange(D)[::-1], np.ones(D)),
        (np.array([3, 3]), np.ones(2)),
        (np.array([-1, 3]), np.ones(2)),
        (np.array([3, D]), np.ones(2)),
        (np.zeros(0, dtype=np.int64), np.ones(0)),
        (np.arange(D), np.full(D, 2.1)),
        (np.arange(D), np.full(D, -0.1)),
        (np.arange(D), np.ones(D - 1)),
        (np.arange(D), None),
        (None, None),
    ):
        assert lone.request(VariantProductsRequest(passed=passed, mean=mean)).code == "invalid"
    passed = np.delete(np.arange(D), 4)
    sizes = [len(lone.reply(replace(first, passed=passed, mean=np.ones(D - 1)))["products"])]
    sizes += [len(lone.reply(VariantProductsRequest())["products"]) for _ in range(2)]
    # Windows of four variants, in two chromosomes of five and six: nothing else can be asked for.
    assert sum(sizes) == (3 + 3 + 2 + 1) + (3 + 3 + 3 + 2 + 1)
    assert lone.site.meter.entries == sum(sizes)
    assert lone.site.meter.rank > 1
    assert lone.request(VariantProductsRequest()).code == "invalid"
    assert lone.request(MomentsRequest()).code == "invalid"
    assert lone.request(MomentsRequest(selected=np.array([2, 4]))).code == "invalid"
    assert lone.request(MomentsRequest(selected=np.array([4.0, 5.0]).astype(int))).code == "invalid"
    assert lone.request(MomentsRequest(selected=np.array([2, 5]))).kind == "reply"


def test_products_are_within_the_limits_of_the_policy() -> None:
    def ask(fraction: float, n: int = N) -> str:
        lone = Lone.of(genotypes(0, n=n), study_of(), policy=Policy(max_rank_fraction=fraction))
        lone.open()
        lone.reply(VariantCountsRequest())
        return lone.request(VariantProductsRequest(passed=np.arange(D), mean=np.ones(D))).code

    assert ask(0.5) == ""
    assert ask(0.1) == "leakage"
    # With fewer people than variants in a window, products determine the whole scatter.
    assert ask(0.99, n=4) == ""
    narrow = study_of(prepare=["ld:6:0.5"])
    lone = Lone.of(genotypes(0, n=4), narrow, policy=Policy(max_rank_fraction=0.99))
    lone.open()
    lone.reply(VariantCountsRequest())
    request = VariantProductsRequest(passed=np.arange(D), mean=np.ones(D))
    assert lone.request(request).code == "leakage"


def test_products_of_variants_are_not_within_a_limit_on_the_variance() -> None:
    """All entries of the scatter left, and the meter had no products to complete."""
    wide, policy = study_of(prepare=["ld:40:0.5"]), Policy(max_variance_fraction=0.9)
    asked = VariantProductsRequest(passed=np.arange(D), mean=np.ones(D))
    lone = Lone.of(genotypes(0), wide, policy=policy)
    lone.open()
    lone.reply(VariantCountsRequest())
    assert lone.request(asked).code == "leakage"
    counted = Meter.empty(4).count_reply(Reveals.ENTRIES, RevealedEntries(10))
    assert counted.rank_fraction == counted.variance_fraction == 1.0


def test_counts_of_few_people_leave_within_secure_aggregation_only() -> None:
    careful = Policy(min_counted=N + 1)
    assert Lone.of(genotypes(0), study_of(), policy=careful).open().code == "few_counted"
    # Without a step that filters variants, totals are the counts of their alleles.
    assert Lone.of(genotypes(0), study_of(prepare=()), policy=careful).open().code == "few_counted"
    enough = replace(careful, min_counted=N)
    assert Lone.of(genotypes(0), study_of(), policy=enough).open().kind == "reply"
    some = replace(genotypes(0), weights=(np.arange(N) % 2).astype(np.float64))
    assert Lone.of(some, study_of(), policy=enough).open().code == "few_counted"
    secure = study_of(secure=True)
    site = sites_of({name: genotypes(0) for name in SITES}, secure, policy=careful)["a"]()
    assert Lone(site, secure).open().kind == "reply"
    forbids = Policy(steps=frozenset({"maf"}))
    assert Lone.of(genotypes(0), study_of(), policy=forbids).open().code == "prepare"
    dense = Lone.of(np.ones((N, D)), study_of(scale=False))
    assert dense.open().code == "prepare"


def test_means_of_variants_do_not_show_how_products_are_rounded() -> None:
    """With means as small as a step each site's copies of two variants were placed by bisection."""
    federation = secured({name: genotypes(place) for place, name in enumerate(SITES)})
    study = federation.study("krylov", 2, prepare=as_steps(["ld:12:0.9"]), scale="genotype")
    transport = federation.transport(study)
    total = federation.total(transport)

    def ask_about_steps() -> Any:
        replies = yield from call_each(Call(MagnitudeRequest()))
        entry, weight = replies["a"].entry, replies["a"].weight + 40
        limits = compute_limits(entry, weight, len(SITES), D)
        total.agree(limits)
        yield from total(Call(VariantCountsRequest(entry=entry, weight=weight)))
        mean = np.full(D, 2.0**-20)
        request = VariantProductsRequest(passed=np.arange(D), mean=mean)
        answer = yield from total(Call(request))
        error = fixed_point.error(request.bounds(limits)["products"], len(SITES))
        return answer.products, 2.0 * float(error) / len(SITES)

    shown, step = drive(ask_about_steps(), transport)
    assert step < 0.01, "whole numbers need no rounding"
    away = (shown - np.rint(shown)) / step
    # Without noise each of them is 0: the means make far less than a step.
    assert len(set(np.rint(away))) > 7
    assert np.abs(away).max() < 30
