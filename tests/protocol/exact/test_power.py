"""FedPower against plain numpy twins, on sites that differ, drop out, or have hardly any rows."""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from typing import Any

import numpy as np
import pytest
from scipy import sparse
from scipy.linalg import orthogonal_procrustes

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import InputError, SiteLost
from eigenfed.linalg.orthonormal import sines
from eigenfed.linalg.threads import one_blas_thread
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.core import Call, Protocol, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.moments import Moments, MomentsRequest
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.power_site import (
    OPS,
    LocalProductRequest,
    WalkRequest,
    WeightRequest,
    local_product,
    local_walk,
)
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import Run
from eigenfed.protocol.operations import Request, State, Terms
from eigenfed.protocol.study import Study
from eigenfed.transport.local import Answering, LocalTransport
from federation import Talk, coordinated, gate, mnist, opened, opening, study_of, talk
from oracles import pooled, power_law


class Recording(LocalTransport):
    """Keeps every call."""

    def __init__(self, sites: dict[str, Answering]) -> None:
        super().__init__(sites)
        self.calls: list[Call[Any]] = []

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        self.calls.append(call)
        return super().exchange(round_, call)

    def sent(self, op: str, field: str) -> list[Any]:
        """Return what requests for an operation brought in a field."""
        found = (getattr(call.request, field) for call in self.calls if call.op == op)
        return [value for value in found if value is not None]


class Flaky:
    """A site that is away in some of the calls for averages."""

    def __init__(self, site: Site, away: Callable[[int], bool]) -> None:
        self._site, self._away, self._count = site, away, 0
        self.missed = 0

    def answer(self, data: bytes) -> bytes:
        if Message.from_bytes(data, "request", "open").label in ("local_walk", "local_product"):
            self._count += 1
            if self._away(self._count):
                self.missed += 1
                raise ConnectionError
        return self._site.answer(data)


def named(parts: Sequence[Any]) -> dict[str, Site]:
    names = [f"s{i:02}" for i in range(len(parts))]
    policy = Policy(min_rows=0)
    return {n: gate(n, part, policy=policy) for n, part in zip(names, parts, strict=True)}


def planned(sites: Iterable[str], k: int, options: Power, **settings: Any) -> Study:
    return study_of(sites, k, options, **{"certify": False, **settings})


def driven(sites: dict[str, Answering], k: int, options: Power, **settings: Any) -> Decomposition:
    study = planned(sites, k, options, **settings)
    return drive(coordinated(study), opened(sites, study))


def fitted(
    parts: Sequence[Any], k: int, options: Power, **settings: Any
) -> tuple[Decomposition, Recording, dict[str, Site]]:
    sites = named(parts)
    transport, study = Recording(dict(sites)), planned(sites, k, options, **settings)
    transport.open_with(opening(transport.run, study))
    return drive(coordinated(study), transport), transport, sites


def error(result: Decomposition, rows: Array) -> float:
    with one_blas_thread:
        return float(sines(result.components, pooled(rows).vt[: len(result.components)])[0])


def uneven(seed: int = 3, d: int = 12) -> list[Array]:
    rows = power_law(150, d, 2.0, seed) + 5.0
    return np.split(rows, [20, 90])


def differing(seed: int, m: int = 10, rows: int = 100, d: int = 60) -> list[Array]:
    """Sites with a decaying spectrum like that of MNIST, each with its own units."""
    units = np.exp(0.25 * np.random.default_rng(seed).standard_normal((m, d)))
    together = power_law(m * rows, d, 1.5, seed)
    return [part * unit for part, unit in zip(np.split(together, m), units, strict=True)]


def scatters(parts: Sequence[Array]) -> list[Array]:
    mean = np.concatenate(parts).mean(axis=0)
    return [(part - mean).T @ (part - mean) for part in parts]


def first_basis(d: int, k: int, seed: int = 0) -> Array:
    draws = np.random.default_rng(seed).standard_normal((d, min(k + 5, d)))
    basis: Array = np.linalg.qr(draws)[0]
    return basis


def twin_average(parts: Sequence[Array], basis: Array, steps: int, align: str) -> Array:
    """One average of [Guo2024] Alg. 2 as it is printed, with the largest site as baseline."""
    n = sum(len(part) for part in parts)
    local = [scatter / len(part) for scatter, part in zip(scatters(parts), parts, strict=True)]
    walked = []
    for m in local:
        z = basis
        for _ in range(steps - 1):
            z = np.linalg.qr(m @ z)[0]
        walked.append(z)
    reference = walked[int(np.argmax([len(part) for part in parts]))]
    average = np.zeros_like(basis)
    for part, m, z in zip(parts, local, walked, strict=True):
        turn = np.eye(z.shape[1])
        if align == "procrustes":
            turn = np.asarray(orthogonal_procrustes(z, reference)[0], dtype=np.float64)
        if align == "sign":
            turn = np.diag(np.sign(np.sum(z * reference, axis=0)))
        average += len(part) / n * (m @ z @ turn)
    return average


def test_one_step_is_the_distributed_power_method_iterate_by_iterate() -> None:
    parts = uneven()
    rows = np.concatenate(parts)
    result, transport, _ = fitted(parts, 2, Power(local_steps=1), max_rounds=9, tol=0.0)
    covariance, z = np.cov(rows.T), first_basis(12, 2)
    asked = transport.sent("product", "basis")
    assert len(asked) == result.products == 9
    for basis in asked:
        np.testing.assert_allclose(basis, z, rtol=0, atol=1e-9)
        z = np.linalg.qr(covariance @ z)[0]


def test_one_step_requests_nothing_but_sums() -> None:
    _, transport, _ = fitted(uneven(), 2, Power(local_steps=1), certify=True)
    assert {call.op for call in transport.calls} == {"moments", "product", "remainder"}
    assert all(call.summed for call in transport.calls)


def test_one_step_stops_on_the_residual_and_its_certificate_is_true() -> None:
    rows = np.concatenate(uneven())
    result, transport, _ = fitted(uneven(), 2, Power(local_steps=1), certify=True, tol=1e-6)
    known, grade = pooled(rows), result.certificate
    assert grade is not None
    assert grade.converged.all()
    assert result.products < 30
    assert transport.rounds == result.products + 2
    np.testing.assert_allclose(result.variances, known.s[:2] ** 2 / 149, rtol=1e-9)
    np.testing.assert_allclose(result.total_variance, known.energy / 149, rtol=1e-12)
    assert error(result, rows) <= np.sin(grade.angle_bound) < 1e-4


@pytest.mark.parametrize("align", ["procrustes", "sign", "none"])
@pytest.mark.parametrize("decay", [True, False])
def test_averages_are_those_of_the_paper(align: str, decay: bool) -> None:
    parts = uneven()
    options = Power(local_steps=3, align=align, decay=decay)
    _, transport, _ = fitted(parts, 2, options, max_rounds=9, tol=0.0)
    op = "local_product" if align == "none" else "local_walk"
    z = first_basis(12, 2)
    starts, steps = transport.sent(op, "start"), transport.sent(op, "steps")
    assert len(starts) == (2 if decay else 8 if align == "none" else 4)
    for start, taken in zip(starts, steps, strict=True):
        np.testing.assert_allclose(start, z, rtol=0, atol=1e-8)
        z = np.linalg.qr(twin_average(parts, z, taken + 1, align))[0]


def test_steps_fall_to_one_as_in_equation_3_15() -> None:
    # t = p, p + (p-1), ... are the synchronous steps; their differences are the schedule.
    expected = [sum(max(4 - i, 1) for i in range(end + 1)) for end in range(7)]
    assert np.cumsum(list(islice(Power(local_steps=4).schedule(), 7))).tolist() == expected
    assert list(islice(Power(local_steps=4, decay=False).schedule(), 3)) == [4, 4, 4]
    _, transport, _ = fitted(uneven(), 2, Power(local_steps=4))
    assert [steps + 1 for steps in transport.sent("local_walk", "steps")] == [4, 3, 2]
    assert transport.sent("product", "basis")


def test_the_baseline_is_the_site_with_most_rows() -> None:
    _, transport, sites = fitted(uneven(), 2, Power(local_steps=3))
    shown = [set(call.each) for call in transport.calls if call.op == "local_walk"]
    assert shown == [{"s01"}] * 2
    released = {
        name: [e.shapes for e in site.egress if e.op == "local_walk"]
        for name, site in sites.items()
    }
    assert released == {"s00": [{}] * 2, "s01": [{"basis": (12, 7)}] * 2, "s02": [{}] * 2}


def test_alignment_is_counted_in_rounds_floats_and_meter() -> None:
    parts, budget = differing(0, m=4, d=60), 5
    aligned, with_walks, sites = fitted(parts, 2, Power(4, decay=False), max_rounds=budget)
    plain, without, _ = fitted(parts, 2, Power(4, "none", decay=False), max_rounds=budget)
    # Moments and weights come on top; two averages of two rounds, or four of one; last product.
    assert aligned.products == plain.products == budget
    assert with_walks.rounds == budget + 2
    assert without.rounds == budget + 1
    matrix, sums = 60 * 7, 4 * (1 + 2 * 60)
    assert with_walks.floats_up == sums + 4 + 2 * (matrix + 4 * matrix) + 4 * (matrix + 1)
    assert without.floats_up == sums + 4 * 4 * matrix + 4 * (matrix + 1)
    ranks = {name: site.meter.basis.shape[1] for name, site in sites.items()}
    # The baseline answers twice an average, the others once; and all to the last product.
    assert ranks == {"s00": 5 * 7, "s01": 3 * 7, "s02": 3 * 7, "s03": 3 * 7}


def test_what_is_declared_is_the_scatter_times_the_directions() -> None:
    part = uneven()[0]
    source, scatter = Source.of(part), scatters([part])[0]
    terms = Terms(study_of("a", 2, Power(3)), *part.shape)
    state = State(sent=(part.mean(axis=0), np.ones(12)))
    start = first_basis(12, 2)
    walk = WalkRequest(start=start, steps=2, shown=True)
    walked = local_walk.run(source, walk, state, terms)
    turn = LocalProductRequest(reference=first_basis(12, 2, seed=5), share=0.25)
    product = local_product.run(source, turn, walked.state, terms)
    unaligned = local_product.run(source, LocalProductRequest(start=start, steps=2), state, terms)
    for revealed in (walked.revealed, product.revealed, unaligned.revealed):
        assert revealed is not None
        np.testing.assert_allclose(revealed.images, scatter @ revealed.directions, atol=1e-10)
        assert revealed.trace == pytest.approx(scatter.trace())
    assert walked.revealed is not None
    assert walked.reply.basis is not None
    assert product.revealed is not None
    spanned = np.linalg.qr(walked.revealed.images)[0]
    assert sines(walked.reply.basis.T, spanned.T)[0] < 1e-12
    np.testing.assert_array_equal(product.reply.product, 0.25 * product.revealed.images)


def test_full_participation_without_alignment_runs_on_sums_alone() -> None:
    parts = uneven()
    result, transport, _ = fitted(parts, 2, Power(3, "none"))
    assert all(call.summed for call in transport.calls)
    assert error(result, np.concatenate(parts)) < 1e-6


def test_alignment_lowers_the_floor_of_local_steps() -> None:
    floors = {
        align: [
            error(
                fitted(parts, 5, Power(4, align, decay=False), max_rounds=17)[0],
                np.concatenate(parts),
            )
            for parts in map(differing, range(3))
        ]
        for align in ("procrustes", "sign", "none")
    }
    nearest, signs, none = (np.exp(np.log(f).mean()) for f in floors.values())
    assert max(floors["procrustes"]) < 0.05
    assert nearest < 0.5 * signs
    assert signs < 0.8 * none


def test_falling_steps_remove_the_floor() -> None:
    parts = differing(0)
    rows = np.concatenate(parts)
    falling, transport, _ = fitted(parts, 5, Power(4))
    assert error(falling, rows) < 1e-4
    assert transport.rounds <= 32
    assert error(fitted(parts, 5, Power(4, decay=False))[0], rows) > 1e-3


def test_floors_on_mnist_at_half_resolution() -> None:
    pixels = mnist().reshape(-1, 14, 2, 14, 2)
    rows = pixels[::5].mean(axis=(2, 4)).reshape(-1, 196) / 255
    parts = np.split(rows, 10)
    floors = [
        error(fitted(parts, 5, Power(4, align, decay=False), max_rounds=rounds)[0], rows)
        for align, rounds in (("procrustes", 25), ("sign", 25), ("none", 13))
    ]
    assert 1e-3 < floors[0] < 0.5 * floors[1]
    assert floors[1] < floors[2]
    falling, transport, _ = fitted(parts, 5, Power(4), tol=1e-6)
    assert error(falling, rows) < 1e-4
    assert transport.rounds <= 32


def test_a_fixed_number_of_steps_ends_when_the_average_rests() -> None:
    part = power_law(60, 10, 3.0, seed=4)
    # Sites with the same rows have no floor.
    result, transport, _ = fitted([part, part], 1, Power(4, decay=False), tol=1e-7)
    assert transport.rounds < 20
    assert error(result, part) < 1e-6


@pytest.mark.parametrize("scheme", ["scheme1", "scheme2"])
@pytest.mark.parametrize("align", ["procrustes", "none"])
def test_sampled_sites_come_to_a_neighbourhood(scheme: str, align: str) -> None:
    parts = np.split(power_law(1600, 20, 2.0, seed=5), 8)
    options = Power(3, align, participation=scheme, sites_per_round=4)
    result, transport, _ = fitted(parts, 2, options, max_rounds=25)
    assert error(result, np.concatenate(parts)) < 0.03
    assert result.products == 25
    averages = [call for call in transport.calls if call.op == "local_product"]
    assert all(call.to is not None and 1 <= len(call.to) <= 4 for call in averages)
    assert len({call.to for call in averages}) > 3
    if scheme == "scheme2":
        assert {len(call.to or ()) for call in averages} == {4}


@pytest.mark.parametrize("scheme", ["scheme1", "scheme2"])
def test_samples_are_unbiased(scheme: str) -> None:
    weights = {"a": 50.0, "b": 30.0, "c": 20.0, "d": 0.0}
    options = Power(participation=scheme, sites_per_round=2)
    rng = np.random.default_rng(8)
    draws = [options.draw_factors(weights, rng) for _ in range(4000)]
    mean = [np.mean([draw.get(name, 0.0) for draw in draws]) for name in weights]
    np.testing.assert_allclose(mean, [0.5, 0.3, 0.2, 0.0], rtol=0, atol=0.02)
    if scheme == "scheme1":
        assert {round(sum(draw.values()), 12) for draw in draws} == {1.0}
    else:
        assert {draw["a"] for draw in draws if "a" in draw} == {4 / 2 * 0.5}


@pytest.mark.parametrize("scheme", ["scheme1", "scheme2"])
def test_a_sampled_average_is_what_the_draw_says(scheme: str) -> None:
    parts = uneven()
    options = Power(1, participation=scheme, sites_per_round=2)
    _, transport, _ = fitted(parts, 2, options, max_rounds=4)
    rng = np.random.default_rng(0)
    z = np.linalg.qr(rng.standard_normal((12, 7)))[0]
    weights = {"s00": 20.0, "s01": 70.0, "s02": 60.0}
    local = {
        name: scatter / weights[name]
        for name, scatter in zip(weights, scatters(parts), strict=True)
    }
    for start in transport.sent("local_product", "start"):
        np.testing.assert_allclose(start, z, rtol=0, atol=1e-9)
        factors = options.draw_factors(weights, rng)
        z = np.linalg.qr(sum(f * local[name] for name, f in factors.items()) @ z)[0]


@pytest.mark.parametrize("scheme", ["scheme1", "scheme2"])
@pytest.mark.parametrize("align", ["procrustes", "none"])
def test_sampled_runs_survive_sites_that_drop_out(scheme: str, align: str) -> None:
    parts = np.split(power_law(1200, 20, 2.0, seed=6), [300, 450, 600, 750, 900, 1050])
    sites = named(parts)
    # The largest site, which is the baseline when drawn, is away most often.
    flaky = {
        "s00": Flaky(sites["s00"], lambda asked: asked % 2 == 1),
        "s01": Flaky(sites["s01"], lambda asked: asked % 3 == 0),
        "s02": Flaky(sites["s02"], lambda asked: asked > 2),
    }
    options = Power(3, align, participation=scheme, sites_per_round=3)
    result = driven({**sites, **flaky}, 2, options, max_rounds=30)
    assert all(site.missed > 0 for site in flaky.values())
    assert error(result, np.concatenate(parts)) < 0.08


def test_an_average_that_nobody_answers_is_left_out() -> None:
    parts = uneven()
    sites = named(parts)
    flaky = {name: Flaky(site, lambda asked: asked == 1) for name, site in sites.items()}
    options = Power(2, participation="scheme2", sites_per_round=3)
    result = driven(dict(flaky), 2, options, max_rounds=12)
    assert [site.missed for site in flaky.values()] == [1, 1, 1]
    assert result.products == 12
    assert error(result, np.concatenate(parts)) < 1e-3


def started(options: Power, weights: Sequence[float]) -> Protocol[Decomposition]:
    """Bring a run to its first call for a matrix, by hand."""
    moments = Moments(float(sum(weights)), np.zeros(3), np.ones(3))
    study = planned("abcdef"[: len(weights)], 1, options, tol=1e-8, max_rounds=20)
    run = options.run(Run(study, moments, study.sites, np.random.default_rng(0), plain_sum))
    assert next(run).op == "site_weight"
    return run


def test_a_lost_site_thrown_in_is_dropped_for_the_round_only() -> None:
    options = Power(1, participation="scheme2", sites_per_round=3)
    run = started(options, [2.0, 2.0, 2.0])
    replies = {name: {"weight": np.array([2.0])} for name in "abc"}
    assert run.send(replies).to == ("a", "b", "c")
    again = run.throw(SiteLost(("b",), "local_product", 2))
    assert (again.op, again.to, again.quorum) == ("local_product", ("a", "c"), 1)
    following = run.send({"": {"product": np.eye(3)}})
    assert following.to == ("a", "b", "c")
    assert run.throw(SiteLost(("a", "b", "c"), "local_product", 4)).to == ("a", "b", "c")
    with pytest.raises(SiteLost):
        run.throw(SiteLost(("z",), "local_product", 5))


def test_a_lost_baseline_is_replaced_by_the_next_largest() -> None:
    run = started(Power(2, participation="scheme2", sites_per_round=3), [1.0, 3.0, 2.0])
    weights = {"a": 1.0, "b": 3.0, "c": 2.0}
    call = run.send({name: {"weight": np.array([w])} for name, w in weights.items()})
    assert set(call.each) == {"b"}
    call = run.send({"a": {}, "c": {}})
    assert (call.op, call.to, set(call.each)) == ("local_walk", ("a", "c"), {"c"})
    call = run.send({"a": {}, "c": {"basis": np.eye(3)}})
    assert (call.op, call.to) == ("local_product", ("a", "c"))


def test_full_participation_does_not_go_on_without_a_site() -> None:
    sites = named(uneven())
    flaky = Flaky(sites["s02"], lambda asked: True)
    with pytest.raises(SiteLost, match="No answer from s02 to 'local_walk'"):
        driven({**sites, "s02": flaky}, 2, Power())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"local_steps": 0}, "local_steps=0 must be an integer of at least 1."),
        ({"local_steps": 10**12}, "local_steps=1000000000000 must be at most 1000: a site"),
        ({"local_steps": 2.5}, "local_steps=2.5 must be an integer"),
        ({"align": "opt"}, "align='opt' must be one of procrustes, sign, none. Choose one."),
        ({"decay": 0.5}, "decay=0.5 must be True or False."),
        ({"participation": "some"}, "participation='some' must be one of full, scheme1, scheme2."),
        ({"sites_per_round": 3}, "sites_per_round=3 must be None with full participation."),
        ({"participation": "scheme1"}, "sites_per_round=None must be a number with participation"),
        (
            {"participation": "scheme2", "sites_per_round": 0},
            "sites_per_round=0 must be an integer of at least 1.",
        ),
    ],
)
def test_options_that_break_a_rule_are_refused(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=re.escape(message)):
        Power(**arguments)


def test_more_sites_than_there_are_cannot_be_drawn_without_replacement() -> None:
    message = "sites_per_round=4 must be at most 3, the number of sites"
    with pytest.raises(InputError, match=message):
        fitted(uneven(), 2, Power(participation="scheme2", sites_per_round=4))
    drawn = Power(participation="scheme1", sites_per_round=4)
    assert fitted(uneven(), 2, drawn, max_rounds=9)[0].products == 9


@pytest.mark.parametrize(
    "options",
    [
        Power(1),
        Power(3),
        Power(3, "sign", decay=False),
        Power(3, "none"),
        Power(3, participation="scheme1", sites_per_round=2),
    ],
)
def test_nothing_of_the_rows_side_leaves(options: Power) -> None:
    _, _, sites = fitted(uneven(), 2, options, max_rounds=10, certify=True)
    shapes = {s for site in sites.values() for e in site.egress for s in e.shapes.values()}
    assert shapes <= {(1,), (12,), (12, 7)}
    assert (12, 7) in shapes


def test_sparse_sites_agree_with_dense_ones() -> None:
    rng = np.random.default_rng(9)
    parts = [np.where(rng.random((n, 15)) < 0.3, power_law(n, 15, 1.0, n), 0.0) for n in (40, 25)]
    dense, _, _ = fitted(parts, 2, Power(3))
    sparser, _, _ = fitted([sparse.csr_array(part) for part in parts], 2, Power(3))
    assert error(sparser, np.concatenate(parts)) < 1e-6
    np.testing.assert_allclose(sparser.components, dense.components, rtol=0, atol=1e-8)


@pytest.mark.parametrize("align", ["procrustes", "sign", "none"])
def test_sites_with_fewer_rows_than_components_take_part(align: str) -> None:
    rows = power_law(83, 12, 2.0, seed=10)
    parts = [rows[:2], rows[2:3], rows[3:], rows[:0]]
    result, _, _ = fitted(parts, 4, Power(4, align), max_rounds=100)
    assert error(result, rows) < 1e-6


def test_weighted_rows_count_as_often_as_they_weigh() -> None:
    parts = uneven()
    weights = [np.arange(len(part)) % 3 for part in parts]
    repeated = [np.repeat(part, w, axis=0) for part, w in zip(parts, weights, strict=True)]
    sites: dict[str, Answering] = {
        f"s{i}": gate(f"s{i}", part, weights=w.astype(float))
        for i, (part, w) in enumerate(zip(parts, weights, strict=True))
    }
    result = driven(sites, 2, Power(3))
    expected, _, _ = fitted(repeated, 2, Power(3))
    np.testing.assert_allclose(result.components, expected.components, rtol=0, atol=1e-10)
    np.testing.assert_allclose(result.variances, expected.variances, rtol=1e-10)


def test_rows_without_spread_end_at_once() -> None:
    result, _, _ = fitted([np.ones((4, 6)), np.ones((3, 6))], 2, Power(2))
    np.testing.assert_array_equal(result.variances, np.zeros(2))
    np.testing.assert_allclose(result.components @ result.components.T, np.eye(2), atol=1e-14)


@pytest.mark.parametrize("max_rounds", [1, 2, 3, 4])
@pytest.mark.parametrize(
    "options", [Power(4), Power(1), Power(4, participation="scheme1", sites_per_round=1)]
)
def test_rounds_never_exceed_the_budget(options: Power, max_rounds: int) -> None:
    result, _, _ = fitted(uneven(), 2, options, max_rounds=max_rounds)
    assert 1 <= result.products <= max_rounds
    assert result.components.shape == (2, 12)


def test_runs_repeat_bit_for_bit() -> None:
    options = Power(3, participation="scheme1", sites_per_round=2)
    first, second = (fitted(uneven(), 2, options, max_rounds=9)[0] for _ in range(2))
    np.testing.assert_array_equal(first.components, second.components)


def test_without_alignment_no_site_shows_its_basis() -> None:
    parts = uneven()
    result, _, sites = fitted(parts, 2, Power(3, "none"))
    assert error(result, np.concatenate(parts)) < 1e-6
    assert all("local_walk" not in [e.op for e in site.egress] for site in sites.values())


def test_a_site_that_allows_other_methods_only_takes_no_step() -> None:
    site = gate("a", uneven()[0], policy=Policy(methods=frozenset({"covariance", "krylov"})))
    assert Talk(site, study_of("a", 2, Power(3))).opens() == "method"
    assert Talk(site, study_of("a", 2, "krylov")).opens() == ""


@pytest.mark.parametrize(
    "request_",
    [
        WalkRequest(start=first_basis(12, 2), steps=4),
        WalkRequest(start=first_basis(12, 2), steps=2**62),
        WalkRequest(start=first_basis(12, 2), steps=-1),
        WalkRequest(start=2.0 * first_basis(12, 2), steps=2),
        WalkRequest(start=np.eye(12), steps=2),
        LocalProductRequest(start=first_basis(12, 2)),
        LocalProductRequest(steps=2),
        LocalProductRequest(start=first_basis(12, 2), steps=2, share=0.0),
        LocalProductRequest(start=first_basis(12, 2), steps=2, share=1.5),
        LocalProductRequest(reference=first_basis(12, 2)),
    ],
    ids=range(10),
)
def test_steps_that_the_study_s_method_does_not_take_are_refused(request_: Request[Any]) -> None:
    talking = talk(gate("a", uneven()[0]), 2, Power(4))
    talking.reply(MomentsRequest())
    talking.reply(WeightRequest(mean=np.zeros(12), scale=np.ones(12)))
    assert talking.code(request_) == "invalid"
    talking.reply(WalkRequest(start=first_basis(12, 2), steps=3))


def test_operations_are_declared() -> None:
    table = {op.name: (op.release.leaves.value, op.release.reveals.value) for op in OPS}
    assert table == {
        "site_weight": ("exact", "counts"),
        "local_walk": ("exact", "directions"),
        "local_product": ("sum only", "directions"),
    }
