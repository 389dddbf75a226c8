"""A private PCA over sites: what it spends, what sites refuse whoever asks, what comes out."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pytest
from scipy import stats
from sklearn.datasets import load_digits

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, ProtocolError, SiteRefused
from eigenfed.linalg.angles import sines
from eigenfed.privacy.grid import grid_for
from eigenfed.privacy.ledger import Budget, Ledger
from eigenfed.privacy.noise import Noise
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.sensitivity import RELATIONS
from eigenfed.privacy.terms import SHARES, Privacy
from eigenfed.protocol.core import drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.private import private_pca
from eigenfed.protocol.private_site import private_scatter
from eigenfed.protocol.private_sums import Spender
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.site import Site
from eigenfed.protocol.totals import plain_sum
from eigenfed.transport.local import LocalTransport
from secured import Coordinator, secured

DIGITS: Array = load_digits().data.astype(np.float64)
DELTA = 1e-5


def made(n: int = 3000, d: int = 6, seed: int = 0) -> Array:
    """Rows about a mean, with two strong directions."""
    rng = np.random.default_rng(seed)
    turn = np.linalg.qr(rng.standard_normal((d, d))).Q
    sizes = np.array([5.0, 3.0] + [0.5] * (d - 2))
    rows: Array = (rng.standard_normal((n, d)) * sizes) @ turn + np.arange(d)
    return rows


@dataclass
class Ran:
    """A run, and the sites that it ran over."""

    found: Decomposition
    transport: LocalTransport
    ledgers: list[Ledger]
    sites: dict[str, Site]


def gates(X: Array, privacy: Privacy, count: int = 3) -> tuple[dict[str, Site], list[Ledger]]:
    policy = Policy(
        budget=Budget(privacy.epsilon, privacy.delta, privacy.relation),
        trusts_coordinator=privacy.trust == "central",
    )
    ledgers = [Ledger(None) for _ in range(count)]
    parts = enumerate(np.array_split(X, count))
    sites = {
        f"s{i}": Site(f"s{i}", Source.of(part), policy=policy, ledger=ledgers[i])
        for i, part in parts
    }
    return sites, ledgers


def run(
    X: Array,
    privacy: Privacy,
    *,
    k: int = 2,
    method: str = "auto",
    center: bool = True,
    scale: bool = False,
    over: tuple[dict[str, Site], list[Ledger]] | None = None,
) -> Ran:
    sites, ledgers = over or gates(X, privacy)
    transport = LocalTransport(sites)
    protocol = private_pca(
        privacy,
        k,
        method=method,
        center=center,
        scale=scale,
        tol=1e-9,
        sites=transport.sites,
        rng=np.random.default_rng(1),
        total=plain_sum,
    )
    return Ran(drive(protocol, transport), transport, ledgers, sites)


# What is spent ----------------------------------------------------------------------------------

WAYS = {
    "everything found": ({}, {}, 24),
    "public clip": ({"clip": 20.0}, {}, 8),
    "not centred": ({}, {"center": False}, 14),
    "public clip, not centred": ({"clip": 20.0}, {"center": False}, 7),
    "power": ({}, {"method": "power"}, 25),
    "scaled": ({}, {"scale": True}, 19),
    "without a scree": ({"shares": {"scree": 0.0}}, {}, 19),
}


@pytest.mark.parametrize("relation", RELATIONS)
@pytest.mark.parametrize("trust", ["local", "central"])
@pytest.mark.parametrize("way", WAYS)
def test_a_run_spends_exactly_what_it_claims_in_as_many_rounds_as_it_should(
    way: str, trust: str, relation: str
) -> None:
    terms, asked, rounds = WAYS[way]
    privacy = Privacy(8.0, DELTA, trust=trust, relation=relation, **terms)  # type: ignore[arg-type]
    ran = run(made(), privacy, **asked)  # type: ignore[arg-type]
    assert ran.transport.rounds == rounds
    said = ran.found.privacy
    assert said is not None
    assert sum(said.budget.values()) == pytest.approx(1.0)
    for ledger in ran.ledgers:
        totals = ledger.totals("data")
        assert totals.relation == relation
        assert totals.epsilon == pytest.approx(8.0, rel=1e-8) == said.epsilon
        assert totals.spends == rounds - 1
        assert ledger.verify().sound


def test_the_budget_is_split_by_its_shares() -> None:
    assert sum(SHARES.values()) == pytest.approx(1.0)
    privacy = Privacy(2.0, DELTA, trust="local", shares={"mean": 0.3, "covariance": 0.6})
    said = run(made(), privacy).found.privacy
    assert said is not None
    assert said.budget["covariance"] == pytest.approx(2 * said.budget["mean"])


def test_a_second_run_on_the_same_rows_is_refused_by_the_ledger() -> None:
    X, privacy = made(), Privacy(2.0, DELTA, trust="local")
    over = gates(X, privacy)
    run(X, privacy, over=over)
    with pytest.raises(SiteRefused, match="'budget'"):
        run(X, privacy, over=over)


@pytest.mark.parametrize("asked", [2.0001, 3.0])
def test_a_run_that_asks_for_more_than_a_site_allows_is_stopped(asked: float) -> None:
    X = made()
    over = gates(X, Privacy(2.0, DELTA, trust="local"))
    with pytest.raises(SiteRefused, match="'budget'"):
        run(X, Privacy(asked, DELTA, trust="local"), over=over)
    totals = over[1][0].totals("data")
    assert totals.epsilon is not None
    assert totals.epsilon <= 2.0 * (1 + 1e-9)


# What a site refuses, whoever asks --------------------------------------------------------------

D = 6
GRID = grid_for(1000, D)
ASK: Arrays = {
    "center": np.zeros(D),
    "radius": np.array([5.0]),
    "grid": np.array([GRID]),
    "basis": np.eye(D)[:, :2],
    "components": np.eye(D)[:2],
    "update_clip": np.array([1.0]),
    "privacy.mu": np.array([0.1]),
    "privacy.parties": np.array([1]),
    "privacy.relation": np.array([0]),
}
NOISED = ("private_within", "private_total", "private_scatter", "private_product", "private_scree")


def gate(
    X: Array | None = None,
    *,
    budget: Budget | None = None,
    weights: Array | None = None,
    trusts: bool = False,
    ledger: Ledger | None = None,
) -> Site:
    source = Source.of(made(1000, D) if X is None else X, weights=weights)
    policy = Policy(budget=budget or Budget(1.0, DELTA), trusts_coordinator=trusts)
    return Site("s", source, policy=policy, ledger=ledger)


def told(site: Site, op: str, changed: Mapping[str, object], round_: int = 0) -> Message:
    arrays = ASK | {name: np.asarray(value) for name, value in changed.items()}
    data = Message("ask", "run", round_, op, arrays).to_bytes()
    return Message.from_bytes(site.answer(data), "reply", "refusal")


@pytest.mark.parametrize("op", NOISED)
@pytest.mark.parametrize(
    ("changed", "code"),
    [
        ({"privacy.mu": [0.5]}, "budget"),
        ({"privacy.mu": [0.0]}, "malformed"),
        ({"privacy.mu": [-0.1]}, "malformed"),
        ({"privacy.mu": [np.nan]}, "malformed"),
        ({"privacy.mu": [np.inf]}, "malformed"),
        ({"privacy.parties": [-1]}, "malformed"),
        ({"privacy.parties": [0]}, "untrusted"),
        ({"privacy.parties": [2]}, "unmasked"),
        ({"privacy.parties": [10**6]}, "unmasked"),
        ({"privacy.relation": [2]}, "failed"),
        ({"center": np.zeros((1000, D))}, "failed"),
        ({"radius": [np.nan]}, "failed"),
    ],
)
def test_an_ask_that_would_void_the_guarantee_is_refused_and_costs_nothing(
    op: str, changed: Mapping[str, object], code: str
) -> None:
    ledger = Ledger(None)
    answer = told(gate(ledger=ledger), op, changed)
    assert (answer.kind, answer.label) == ("refusal", code)
    assert not answer.arrays
    assert ledger.totals("data").spends == 0


@pytest.mark.parametrize(
    ("op", "changed"),
    [
        ("private_product", {"basis": 2 * np.eye(D)[:, :2]}),
        ("private_product", {"update_clip": [-1e-6]}),
        ("private_scree", {"components": np.ones((2, D))}),
        ("private_total", {"grid": [2 * GRID]}),
        ("private_scatter", {"grid": [1]}),
    ],
)
def test_an_ask_on_which_the_sensitivity_would_not_hold_is_refused(
    op: str, changed: Mapping[str, object]
) -> None:
    assert told(gate(ledger=Ledger(None)), op, {}).kind == "reply"
    assert told(gate(ledger=Ledger(None)), op, changed).label == "failed"


@pytest.mark.parametrize("op", NOISED)
def test_without_a_ledger_no_noised_reply_leaves(op: str) -> None:
    assert told(gate(), op, {}).label == "ledger"


@pytest.mark.parametrize("op", NOISED)
def test_weights_and_gaps_are_refused(op: str) -> None:
    gap = made(1000, D)
    gap[3, 2] = np.nan
    assert told(gate(gap, ledger=Ledger(None)), op, {}).label == "failed"
    weighted = gate(weights=np.ones(1000), ledger=Ledger(None))
    assert told(weighted, op, {}).label == "failed"


def test_asks_end_where_the_budget_does() -> None:
    """0.268 is the whole mu of (1, 1e-5): seven asks at 0.1 fit into it."""
    ledger = Ledger(None)
    site = gate(ledger=ledger)
    codes = [told(site, "private_within", {}, round_).label for round_ in range(10)]
    assert codes == ["private_within"] * 7 + ["budget"] * 3
    totals = ledger.totals("data")
    assert totals.epsilon is not None
    assert totals.epsilon <= 1.0


def test_an_ask_for_the_weaker_relation_counts_double() -> None:
    ledger = Ledger(None)
    site = gate(ledger=ledger)
    assert told(site, "private_total", {"privacy.relation": [1]}).kind == "reply"
    assert ledger.totals("data").mu == pytest.approx(0.2)


def test_a_retry_brings_the_same_noise_and_is_paid_for_once() -> None:
    ledger = Ledger(None)
    site = gate(ledger=ledger)
    first, again = (told(site, "private_scatter", {}) for _ in range(2))
    np.testing.assert_array_equal(first.arrays["triangle"], again.arrays["triangle"])
    assert ledger.totals("data").spends == 1
    restarted = gate(ledger=ledger)
    once_more = told(restarted, "private_scatter", {})
    np.testing.assert_array_equal(first.arrays["triangle"], once_more.arrays["triangle"])
    assert ledger.totals("data").spends == 1
    assert told(restarted, "private_scatter", {"radius": [6.0]}).label == "answered"


def test_only_a_site_that_trusts_the_coordinator_sends_sums_without_noise() -> None:
    ledger = Ledger(None)
    bare = told(gate(trusts=True, ledger=ledger), "private_scatter", {"privacy.parties": [0]})
    exact = private_scatter.run(Source.of(made(1000, D)), ASK, {})
    np.testing.assert_array_equal(bare.arrays["triangle"], exact.reply["triangle"])
    assert ledger.totals("data").mu == pytest.approx(0.1)


def test_what_leaves_is_the_sum_with_noise_of_the_size_that_was_paid_for() -> None:
    """Over many entries, on and beside the diagonal apart: 1 and sqrt(1/2) of the sensitivity."""
    d = 60
    X = made(500, d)
    ask = {"center": np.zeros(d), "grid": [grid_for(500, d)]}
    sent = told(gate(X, ledger=Ledger(None)), "private_scatter", ask).arrays["triangle"]
    assert sent.dtype == np.int64
    payload = ASK | {name: np.asarray(value) for name, value in ask.items()}
    exact = private_scatter.run(Source.of(X), payload, {})
    assert exact.noise is not None
    relative = exact.noise.relative["triangle"]
    noise = (sent - exact.reply["triangle"]) / (relative * exact.noise.sensitivity / 0.1)
    for part in (relative == 1.0, relative < 1.0):
        squares = float(np.sum(noise[part] ** 2))
        chance = stats.chi2.cdf(squares, int(part.sum()))
        assert 1e-6 < chance < 1 - 1e-6
    assert set(np.unique(relative)) == {1.0, math.sqrt(0.5)}


def test_no_refusal_hangs_on_a_part_of_the_noise() -> None:
    """In a secure sum a site adds a part only: a bound set low must not tell of it, nor retries."""
    federation = secured(
        {name: made(50, D) for name in "abc"}, policy=Policy(budget=Budget(1.0, DELTA))
    )
    it = Coordinator(federation)
    ledger = Ledger(None)
    federation.sites["a"] = Site(
        "a",
        Source.of(made(50, D)),
        policy=Policy(budget=Budget(1.0, DELTA)),
        identity=federation.identities["a"],
        roster=federation.roster,
        ledger=ledger,
    )
    envelope = it.envelope() | it.shared(it.keyed())["a"]
    sent = {name: array for name, array in envelope.items() if "bound" not in name}
    low = {"secure.bound.count": np.array([1])}
    ask = ASK | {"privacy.parties": np.array([3])} | sent | low
    first = it.reply("a", "private_within", ask)
    assert first["count"].dtype == np.int64
    assert ledger.totals("data").spends == 1
    fraction = {"secure.bound.count": np.array([1e9]), "secure.number": np.array([1])}
    assert it.code("a", "private_within", ask | fraction) == "bounds"


# What a run refuses -----------------------------------------------------------------------------


def test_a_delta_that_gives_rows_away_is_refused_before_anything_is_spent() -> None:
    X = made(1000)
    privacy = Privacy(1.0, 1e-3, trust="local")
    over = gates(X, privacy)
    with pytest.raises(InputError, match=r"delta=0.001 must be below 1/n = 0.001"):
        run(X, privacy, over=over)
    assert over[1][0].totals("data").spends == 0


def test_too_few_rows_to_find_a_clip_are_refused() -> None:
    with pytest.raises(ProtocolError, match="60 rows are too few to be counted privately"):
        run(made(60), Privacy(1.0, DELTA, trust="local"))
    public = Privacy(1.0, DELTA, trust="local", clip=20.0, shares={"scree": 0.0})
    assert run(made(60), public).found.n == 60


@pytest.mark.parametrize("factor", [0.0, 1e-12, 1e15])
def test_rows_that_are_far_out_of_range_are_refused(factor: float) -> None:
    with pytest.raises(ProtocolError, match=r"not between 2\^-24 and 2\^40"):
        run(factor * made(), Privacy(8.0, DELTA, trust="central"))


@pytest.mark.parametrize("name", ["radius", "mean", "clip", "covariance"])
def test_a_share_of_nothing_for_what_is_needed_is_refused(name: str) -> None:
    X, privacy = made(), Privacy(2.0, DELTA, trust="local", shares={name: 0.0})
    over = gates(X, privacy)
    with pytest.raises(InputError, match=f"shares gives '{name}' 0"):
        run(X, privacy, over=over)
    assert over[1][0].totals("data").spends == 0


def test_scaling_needs_the_covariance() -> None:
    with pytest.raises(InputError, match="scale=True under privacy needs method='covariance'"):
        run(made(), Privacy(1.0, DELTA, trust="central"), method="power", scale=True)


def test_scaling_by_variances_under_their_noise_is_refused() -> None:
    X = made()
    X[:, 3:] = 0.0  # three, as one may stand out by chance
    with pytest.raises(ProtocolError, match="under three deviations"):
        run(X, Privacy(1.0, DELTA, trust="central"), scale=True)


# What comes out ---------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["covariance", "power"])
def test_next_to_no_noise_gives_the_components_of_the_rows(method: str) -> None:
    """With a clip beyond all rows nothing is clipped, and what is left is rounding."""
    X = made(20_000)
    privacy = Privacy(300.0, DELTA, trust="central", clip=60.0)
    found = run(X, privacy, method=method).found
    centred = X - X.mean(axis=0)
    exact = np.linalg.svd(centred, full_matrices=False)
    assert sines(found.components, exact.Vh[:2]).max() < 0.01
    np.testing.assert_allclose(found.mean, X.mean(axis=0), atol=0.02)
    np.testing.assert_allclose(found.variances, exact.S[:2] ** 2 / (len(X) - 1), rtol=0.02)
    assert found.total_variance == pytest.approx(X.var(axis=0, ddof=1).sum(), rel=0.02)


def test_the_same_public_seed_brings_other_noise() -> None:
    privacy = Privacy(2.0, DELTA, trust="local")
    one, other = (run(made(), privacy).found for _ in range(2))
    assert not np.array_equal(one.components, other.components)
    assert not np.array_equal(one.mean, other.mean)


def test_zeroing_out_needs_less_noise_than_replacing() -> None:
    def deviation(relation: str, trust: str = "central", sites: int = 1) -> float:
        privacy = Privacy(1.0, DELTA, relation=relation, trust=trust)
        held = {f"s{i}": 100 for i in range(sites)}
        return Spender(privacy, plain_sum, held).deviation(Noise(1.0), 0.5)

    assert deviation("replace_one") == deviation("zero_out")  # of one sensitivity
    noises = {r: private_scatter.run(Source.of(made(50, D)), _related(r), {}) for r in RELATIONS}
    replaced, zeroed = (noises[r].noise for r in RELATIONS)
    assert replaced is not None
    assert zeroed is not None
    assert replaced.sensitivity == pytest.approx(math.sqrt(2) * zeroed.sensitivity)
    # Every site's own noise on the sum, against one coordinator's.
    assert deviation("replace_one", "local", 9) == pytest.approx(3 * deviation("replace_one"))


def _related(relation: str) -> Arrays:
    return ASK | {"privacy.relation": np.array([RELATIONS.index(relation)])}


def captured(components: Array, covariance: Array) -> float:
    best = np.linalg.eigvalsh(covariance)[-len(components) :].sum()
    return float(np.trace(components @ covariance @ components.T) / best)


def test_utility_on_digits_follows_trust_relation_and_method() -> None:
    """Epsilon 2: about 0.967 central, 0.982 zeroed out, 0.91 local, 0.89 by the power method."""
    covariance = np.cov(DIGITS.T)

    def mean(method: str = "auto", **terms: str) -> float:
        privacy = Privacy(2.0, DELTA, **terms)  # type: ignore[arg-type]
        runs = (run(DIGITS, privacy, k=10, method=method) for _ in range(5))
        return float(np.mean([captured(r.found.components, covariance) for r in runs]))

    central, local = mean(trust="central"), mean(trust="local")
    assert central > 0.955
    assert 0.8 < local < central
    assert mean(trust="central", relation="zero_out") > central
    assert 0.7 < mean("power", trust="central") < central
