"""Collusion and dropouts are two numbers: who carries the noise, and what holds against whom."""

import math
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import pytest
from dp_accounting.pld import privacy_loss_mechanism
from scipy import stats

from eigenfed import FederatedPCA
from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.errors import DataError, PrivacyError, SiteLost, SiteRefused
from eigenfed.privacy.dp.accounting import epsilon_of, mu_of
from eigenfed.privacy.dp.discrete_gaussian import Noise
from eigenfed.privacy.guarantee import Statement, epsilons_against, state_guarantee
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.secagg.collusion import count_tolerable
from eigenfed.privacy.secagg.masking import KeyPair, Mask, add_masks, derive_key
from eigenfed.privacy.secagg.shamir import recover_secret
from eigenfed.protocol.core import Call, Protocol, call_each, drive
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message, pack
from eigenfed.protocol.operations import State, Terms
from eigenfed.protocol.private.noisy_sums import Spender
from eigenfed.protocol.private.private_site import MomentRequest, RowsRequest, private_scatter
from eigenfed.protocol.secure.aggregation import SecureSum
from eigenfed.protocol.secure.participant import Participant
from eigenfed.protocol.secure.sum_format import Purpose, mask_sign, masked_fields, stack_rows
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import LocalTransport
from private_runs import COORDINATOR, Summing, made

pytestmark = pytest.mark.usefixtures("seeded_noise")

DELTA = 1e-5
D, ROWS = 60, 30


def study_of(sites: int, colluders: int = 0, dropouts: int = 0) -> Study:
    """One noised second moment, of rows clipped to a public norm."""
    privacy = Privacy(
        1.0, DELTA, clip=20.0, shares={"scree": 0.0}, colluders=colluders, dropouts=dropouts
    )
    names = tuple(f"s{i}" for i in range(sites))
    return Study(names, 2, "covariance", center=False, privacy=privacy)


def privacy_of(study: Study) -> Privacy:
    assert isinstance(study.privacy, Privacy)
    return study.privacy


def tables_of(study: Study) -> dict[str, Array]:
    return {name: made(ROWS, D, seed) for seed, name in enumerate(study.sites)}


def request_of(study: Study) -> MomentRequest:
    return MomentRequest(center=np.zeros(D), radius=20.0, n=ROWS * len(study.sites))


def noise_of(study: Study) -> Noise:
    noise = request_of(study).noise(Terms(study, ROWS, D), State())
    assert noise is not None
    return noise


# Whose noise is in a sum ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts"), [(3, 0, 0), (3, 1, 0), (4, 0, 1), (10, 1, 1), (10, 3, 2)]
)
def test_each_site_adds_one_part_of_what_the_honest_survivors_must_carry(
    sites: int, colluders: int, dropouts: int
) -> None:
    parts = Privacy(1.0, DELTA, colluders=colluders, dropouts=dropouts).parties(sites)
    assert parts == sites - colluders - dropouts
    noise, mu = Noise(1e6), mu_of(1.0, DELTA)
    drawn = noise.add_to({"x": np.zeros(40_000, dtype=np.int64)}, mu, parts)["x"]
    squares = float(np.sum((drawn / (1e6 / mu)) ** 2)) * parts
    assert 1e-6 < stats.chi2.cdf(squares, drawn.size) < 1 - 1e-6


@dataclass
class Gone:
    """A site that is out of reach from one operation on."""

    site: Site
    from_op: str
    gone: bool = False

    def answer(self, data: bytes) -> bytes:
        self.gone |= Message.from_bytes(data, "request", "open").label == self.from_op
        if self.gone:
            raise ConnectionError
        return self.site.answer(data)


@dataclass
class Opened:
    """A sum that was opened, and what its colluders knew of it."""

    total: Array
    summed: tuple[str, ...]
    parts: dict[str, Arrays] = field(default_factory=dict)


def opened_sum(study: Study, monkeypatch: pytest.MonkeyPatch, lost: tuple[str, ...] = ()) -> Opened:
    """Sum the second moment over sites, of which some are lost when it is asked for."""
    it, known = Summing.of(study, tables_of(study)), {}
    masking = Participant.mask

    def mask(self: Participant, place: Any, asked: bytes, reply: Arrays, *a: Any, **k: Any) -> Any:
        known[self._site] = {name: values.copy() for name, values in reply.items()}
        return masking(self, place, asked, reply, *a, **k)

    monkeypatch.setattr(Participant, "mask", mask)
    gone = {name: Gone(it.sites[name], "private_scatter") for name in lost}
    transport = LocalTransport({**it.sites, **gone})
    transport.open_with(open_message(transport.run, study, study.chosen, COORDINATOR))
    total = SecureSum(it.roster, run=transport.run, ahead=1)
    request, noise = request_of(study), noise_of(study)

    def protocol() -> Protocol[Array]:
        replies = yield from call_each(Call(RowsRequest()))
        held = {site: reply.n for site, reply in replies.items() if reply.n is not None}
        spender = Spender(study, total, held)
        found = yield from spender.request_sum(request, noise, 1.0, float(request.grid(D)) ** 2)
        return found

    found = drive(protocol(), transport)
    return Opened(found, total.summed, known)


def left_over(study: Study, opened: Opened, colluders: tuple[str, ...]) -> Array:
    """What colluders cannot take out of a sum though they know all honest rows: in deviations."""
    rest = opened.total.copy()
    tables, request = tables_of(study), request_of(study)
    for name in opened.summed:
        if name in colluders:
            rest -= opened.parts[name]["triangle"]
        else:
            terms = Terms(study, ROWS, D)
            answer = private_scatter.run(Source.of(tables[name]), request, State(), terms)
            rest -= pack(answer.reply)["triangle"]
    noise = noise_of(study)
    scaled: Array = rest / (noise.relative["triangle"] * noise.sensitivity / privacy_of(study).mu)
    return scaled


def is_variance(scaled: Array, variance: float) -> bool:
    """Whether numbers have a variance, as far as they tell: a third more or less is seen."""
    chance = float(stats.chi2.cdf(np.sum(scaled**2) / variance, scaled.size))
    return 1e-6 < chance < 1 - 1e-6


CASES = [(3, 0, 0), (3, 1, 0), (4, 1, 1), (5, 0, 1), (7, 2, 2)]


@pytest.mark.parametrize(("sites", "colluders", "dropouts"), CASES)
def test_honest_survivors_alone_carry_all_the_noise(
    monkeypatch: pytest.MonkeyPatch, sites: int, colluders: int, dropouts: int
) -> None:
    """Exactly as many are lost as may be, and all colluders are among those that are left."""
    study = study_of(sites, colluders, dropouts)
    lost, mean = study.sites[:dropouts], study.sites[sites - colluders :]
    opened = opened_sum(study, monkeypatch, lost)
    assert set(opened.summed) == set(study.sites) - set(lost)
    scaled = left_over(study, opened, mean)
    assert is_variance(scaled, 1.0)
    assert not is_variance(scaled, 0.7)
    # To the outside, the colluders' parts are noise as well.
    outside = (sites - dropouts) / (sites - colluders - dropouts)
    assert is_variance(left_over(study, opened, ()), outside)


def test_while_nobody_is_lost_there_is_more_noise_than_needed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_of(4, 1, 1)
    opened = opened_sum(study, monkeypatch)
    assert is_variance(left_over(study, opened, ("s3",)), 3 / 2)


def test_one_colluder_more_than_was_reckoned_with_leaves_less_noise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """What the statement says of a participant: 2 of 3 parts are left at three sites."""
    study = study_of(3)
    opened = opened_sum(study, monkeypatch)
    assert is_variance(left_over(study, opened, ("s2",)), 2 / 3)


# What is not opened -----------------------------------------------------------------------------


@pytest.mark.parametrize(("sites", "dropouts", "lost"), [(4, 0, 1), (7, 1, 2), (10, 2, 3)])
def test_a_sum_over_fewer_survivors_is_not_signed(sites: int, dropouts: int, lost: int) -> None:
    """The threshold of secure sums would allow it; the study's noise does not."""
    study = study_of(sites, 0, dropouts)
    it = Summing.of(study, tables_of(study))
    assert {message.kind for message in it.opened().values()} == {"reply"}
    it.replies("rows", {name: {} for name in study.sites})
    it.masked(request_of(study))
    few, enough = study.sites[lost:], study.sites[dropouts:]
    assert len(few) >= it.roster.threshold
    assert {message.label for message in it.signed(few).values()} == {"few_sites"}
    signatures = it.signed(enough)
    assert {message.kind for message in signatures.values()} == {"reply"}
    # Signatures of the longer list do not open the shorter one.
    assert {message.label for message in it.unmasked(few, signatures, few).values()} == {
        "survivors"
    }
    opening = it.unmasked(enough, signatures, enough)
    assert {message.kind for message in opening.values()} == {"reply"}


def test_colluders_cannot_sign_honest_sites_away() -> None:
    """A coordinator with 2 colluders calls 2 of 7 lost, where 1 may be: nobody else opens it."""
    study = study_of(7, 2, 1)
    it = Summing.of(study, tables_of(study))
    it.opened()
    it.replies("rows", {name: {} for name in study.sites})
    it.masked(request_of(study))
    few, mean = study.sites[2:], study.sites[5:]
    assert len(few) == it.roster.threshold
    listed = {
        "number": np.array([it.number]),
        "survivors": it.flags(few),
    }
    asked = it.request("sum_survivors", dict.fromkeys(few, listed))
    assert {message.label for message in asked.values()} == {"few_sites"}
    forged = {
        name: Message("reply", "", 0, "", {"signature": np.zeros(64, dtype=np.uint8)})
        for name in few
    }
    honest = tuple(name for name in few if name not in mean)
    assert {message.label for message in it.unmasked(few, forged, honest).values()} == {"survivors"}


def masked_run(study: Study, monkeypatch: pytest.MonkeyPatch) -> tuple[Summing, dict[str, Any]]:
    """Lead all sites to their masked replies; return what each has masked, and its words."""
    it, bare = Summing.of(study, tables_of(study)), {}
    masking = Participant.mask

    def mask(self: Participant, place: Any, asked: bytes, reply: Arrays, *a: Any, **k: Any) -> Any:
        bare[self._site] = reply["triangle"].copy()
        return masking(self, place, asked, reply, *a, **k)

    monkeypatch.setattr(Participant, "mask", mask)
    it.opened()
    it.replies("rows", {name: {} for name in study.sites})
    return it, {"bare": bare, "words": it.masked(request_of(study))}


def last_sum(it: Summing, name: str) -> Any:
    """The sum that a colluding site has masked last, with the shares that it holds."""
    found = it.sites[name]._participant
    assert found is not None
    return found._runs[it.run].last


def two_lists(it: Summing, honest: tuple[str, ...], mean: tuple[str, ...]) -> dict[str, Any]:
    """Open two lists: one half of the honest sites hears that their first site was lost."""
    known, victim, named = last_sum(it, mean[0]), honest[0], it.roster.sites
    parts: dict[str, dict[str, bytes]] = {"seed": {}, "key": {}}
    half = (len(honest) + 1) // 2
    lists = {"seed": (named, honest[:half]), "key": (named[1:], honest[half:])}
    for kind, (there, told) in lists.items():
        listed = {"number": np.array([it.number]), "survivors": it.flags(there)}
        signed = it.replies("sum_survivors", dict.fromkeys(told, listed))
        statement = Purpose(it.run, it.roster).survivors(it.number, known.digest, frozenset(there))
        signatures = {name: signed[name]["signature"].tobytes() for name in told}
        signatures |= {name: it.identities[name].sign(statement) for name in mean}
        rows = stack_rows([signatures[name] for name in named if name in signatures])
        fields = {**listed, "signers": it.flags(signatures), "signatures": rows}
        opened = it.request("sum_unmask", dict.fromkeys(told, fields))
        parts[kind] = {
            name: reply.arrays["shares"][named.index(victim)].tobytes()
            for name, reply in opened.items()
            if reply.kind == "reply"
        }
    return parts


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts"), [(7, 4, 0), (7, 5, 0), (7, 2, 1), (7, 3, 1), (5, 2, 1)]
)
def test_noise_is_shared_out_only_while_colluders_cannot_unmask_a_single_reply(
    monkeypatch: pytest.MonkeyPatch, sites: int, colluders: int, dropouts: int
) -> None:
    """Alone, a reply has one part of the noise. A quorum unmasks it, or two that overlap."""
    study = study_of(sites, colluders, dropouts)
    threshold = 2 * sites // 3 + 1
    safe = colluders <= count_tolerable(sites, threshold, dropouts)
    if not safe:
        refused = Summing.of(study, tables_of(study)).opened()
        assert {message.label for message in refused.values()} == {"few_sites"}
        monkeypatch.setattr(Privacy, "check_sites", lambda *_: None)
    it, sent = masked_run(study, monkeypatch)
    named = it.roster.sites
    honest, mean = named[: sites - colluders], named[sites - colluders :]
    victim, known = honest[0], last_sum(it, mean[0])
    parts = two_lists(it, honest, mean) if dropouts else {"seed": {}, "key": {}}
    secrets = {}
    for kind, given in parts.items():
        held = {name: getattr(last_sum(it, name).batch.held[0][victim], kind) for name in mean}
        points = {it.roster.place(name) + 1: share for name, share in {**held, **given}.items()}
        with suppress(DataError):
            secrets[kind] = recover_secret(points, threshold)
    assert (len(secrets) < 2) == safe
    if safe:
        return
    purpose, pair = Purpose(it.run, it.roster), KeyPair(secrets["key"])
    masks = [Mask(derive_key(secrets["seed"], purpose.own(0, known.digest, victim)), -1)]
    for name in named[1:]:
        agreed = pair.agreed(known.batch.peers[name].masks[0])
        key = derive_key(agreed, purpose.pair(0, known.digest, victim, name))
        masks.append(Mask(key, -mask_sign(victim, name)))
    words = {name: array.copy() for name, array in sent["words"][victim].items()}
    add_masks(masks, masked_fields(words))
    np.testing.assert_array_equal(words["triangle"], sent["bare"][victim])


def test_a_run_that_loses_more_sites_than_may_be_ends_without_a_sum(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    study = study_of(7, 0, 1)
    with pytest.raises(SiteLost):
        opened_sum(study, monkeypatch, study.sites[:2])


@pytest.mark.parametrize(
    ("sites", "colluders", "dropouts"), [(3, 3, 0), (3, 2, 0), (4, 2, 1), (4, 0, 2), (6, 9, 9)]
)
def test_a_study_that_leaves_nobody_to_add_noise_is_refused_when_it_is_opened(
    sites: int, colluders: int, dropouts: int
) -> None:
    """Split over none, there would be no noise at all."""
    study = study_of(sites, colluders, dropouts)
    it = Summing.of(study, tables_of(study))
    assert {message.label for message in it.opened().values()} == {"few_sites"}
    with pytest.raises(PrivacyError, match="must be at most"):
        FederatedPCA(2, center=False, privacy=study.privacy).fit_sites(tables_of(study))


def test_a_site_may_want_more_colluders_to_be_reckoned_with() -> None:
    study = study_of(5, 1)
    tables = tables_of(study)
    it = Summing.of(study, tables)
    assert it.opened()["s0"].kind == "reply"
    wary = replace(it.sites["s0"]._policy, colluders=2)
    refusing = Summing.of(study, tables, policy=wary)
    assert {message.label for message in refusing.opened().values()} == {"collusion"}
    with pytest.raises(SiteRefused, match="'collusion'"):
        FederatedPCA(2, center=False, privacy=study.privacy).fit_sites(
            tables, policies={"s0": wary}
        )


# What is said of it -----------------------------------------------------------------------------

SAID: dict[str, tuple[Mapping[str, Any], int, float, float]] = {
    "three sites": ({}, 3, 1.0, 3 / 2),
    "ten sites": ({}, 10, 1.0, 10 / 9),
    "a colluder": ({"colluders": 1}, 3, 2 / 3, 1.0),
    "a dropout": ({"dropouts": 1}, 4, 1.0, 3 / 2),
    "both": ({"colluders": 1, "dropouts": 1}, 5, 3 / 4, 1.0),
    "more of both": ({"colluders": 3, "dropouts": 2}, 10, 5 / 8, 1.0),
}


@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
@pytest.mark.parametrize("name", SAID)
def test_epsilon_holds_against_outsiders_and_participants_as_the_noise_left_tells(
    name: str, epsilon: float
) -> None:
    """Closed form, with numeric privacy losses of dp-accounting for its judge."""
    terms, sites, outside, inside = SAID[name]
    privacy = Privacy(epsilon, DELTA, **terms)
    for found, squared in zip(epsilons_against(privacy, sites), (outside, inside), strict=True):
        mu = mu_of(epsilon, DELTA) * math.sqrt(squared)
        assert found == pytest.approx(epsilon_of(DELTA, mu), rel=1e-12)
        loss = privacy_loss_mechanism.GaussianPrivacyLoss(1 / mu)
        assert loss.get_delta_for_epsilon(found) == pytest.approx(DELTA, rel=1e-6)


@pytest.mark.parametrize(("delta", "known"), [(1e-5, 1.2499), (1e-6, 1.2447), (1e-8, 1.2388)])
def test_at_three_sites_without_colluders_a_participant_knows_a_third_of_the_noise(
    delta: float, known: float
) -> None:
    """Epsilon 1 is about 1.25 against him, and nothing but 1 against others."""
    outsiders, participants = epsilons_against(Privacy(1.0, delta), 3)
    assert outsiders == pytest.approx(1.0, abs=1e-9)
    assert participants == pytest.approx(known, abs=5e-5)


def test_no_number_of_colluders_reckoned_with_weakens_the_guarantee() -> None:
    for sites in range(3, 12):
        for dropouts in range((sites - 1) // 3 + 1):
            threshold = 2 * sites // 3 + 1
            most = count_tolerable(sites, threshold, dropouts)
            assert most >= 1
            with pytest.raises(PrivacyError, match=f"must be at most {most}"):
                Privacy(1.0, DELTA, colluders=most + 1, dropouts=dropouts).check_sites(
                    sites, threshold
                )
            for colluders in range(1, most + 1):
                privacy = Privacy(1.0, DELTA, colluders=colluders, dropouts=dropouts)
                privacy.check_sites(sites, threshold)
                outsiders, participants = epsilons_against(privacy, sites)
                assert outsiders < participants == pytest.approx(1.0, rel=1e-9)


def test_where_each_site_or_the_coordinator_adds_all_of_it_sites_learn_nothing_of_noise() -> None:
    assert epsilons_against(Privacy(1.0, DELTA, trust="local"), 5) == (1.0, 1.0)
    assert epsilons_against(Privacy(1.0, DELTA, trust="central"), 5) == (1.0, math.inf)


def said_of(privacy: Privacy, sites: int) -> Statement:
    return state_guarantee(privacy, n=100, sites=sites, mechanism="m", budget={"covariance": 1.0})


def test_the_statement_never_rounds_an_epsilon_down() -> None:
    """1.2447, in three digits, is 1.25: 1.24 would promise more than holds."""
    said = said_of(Privacy(1.0, 1e-6), 3)
    assert said.epsilon_participants == pytest.approx(1.24472, abs=1e-5)
    assert "epsilon is 1.25." in said.text
    third = said_of(Privacy(1.0 / 3.0, 1e-6), 3)
    assert third.text.startswith("Everything released is (epsilon=0.333334, delta=1e-06)-")


def test_the_statement_is_about_one_run_and_says_that_others_add_to_it() -> None:
    last = said_of(Privacy(1.0, DELTA), 3).text.splitlines()[-1]
    assert "other releases of the same rows, which add to epsilon" in last
    assert "ledgers have the totals of all runs" in last


def test_the_statement_gives_both_numbers_and_says_against_whom() -> None:
    said = said_of(Privacy(1.0, DELTA), 3)
    assert (said.epsilon_outsiders, said.epsilon_participants) == epsilons_against(
        Privacy(1.0, DELTA), 3
    )
    assert "who sees the results only, epsilon is 1; against 1 of the 3 sites" in said.text
    assert "which knows its own part of the noise, epsilon is 1.25." in said.text
    assert "at most 0 sites drop out of a sum and at most 0 collude" in said.text
    reckoned = said_of(Privacy(1.0, DELTA, colluders=2, dropouts=1), 7)
    assert "against 2 of the 7 sites" in reckoned.text
    assert reckoned.epsilon_participants == pytest.approx(1.0, rel=1e-9)
    assert (
        "the coordinator, who sees the sums without noise"
        in said_of(Privacy(1.0, DELTA, trust="central"), 3).text
    )
    assert "outside the study" not in said_of(Privacy(1.0, DELTA, trust="local"), 3).text


def test_a_fit_says_what_holds_against_whom() -> None:
    study = study_of(5, 1, 1)
    run = FederatedPCA(2, center=False, privacy=study.privacy).fit_sites(tables_of(study))
    assert run.privacy_ is not None
    assert run.privacy_.epsilon == 1.0
    assert run.privacy_.epsilon_participants == pytest.approx(1.0, rel=1e-9)
    expected = epsilon_of(DELTA, mu_of(1.0, DELTA) * math.sqrt(3 / 4))
    assert run.privacy_.epsilon_outsiders == pytest.approx(expected, rel=1e-12)
