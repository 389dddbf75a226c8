"""A run that was interrupted goes on from its transcript as if nothing had been."""

import errno
import hashlib
import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from counting import Counting, CountRequest
from eigenfed.arrays import Arrays, Container
from eigenfed.errors import DataError, InputError, ProtocolError, SiteLost
from eigenfed.protocol.core import TOTAL, Call, Protocol, Replies, call_each, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import RemainderRequest
from eigenfed.protocol.exact.moments import MomentsRequest, SquaresRequest, collect_moments
from eigenfed.protocol.exact.products import ProductRequest
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import registered
from eigenfed.protocol.study import Study
from eigenfed.transport.transcript import Transcript
from federation import coordinated, gates, opened, study_of
from oracles import pooled, power_law

D, ROUNDS = 20, 5
X = power_law(90, D, 1.0, seed=2)
STUDY = study_of("abc", 4, "krylov", tol=1e-9, max_rounds=3, scale=True)
PRODUCT = Call(ProductRequest(basis=np.eye(3)))
CALLS: tuple[Call[Any], ...] = (
    Call(MomentsRequest(), summed=True),
    PRODUCT,
    Call(RemainderRequest(products=1), to=("a",)),
)
OUTCOMES: tuple[Replies | SiteLost, ...] = (
    {TOTAL: {"n": np.array([3.0]), "total": np.array([0.1, -0.2])}},
    {"a": {"product": np.eye(3)}, "b": {"product": 2 * np.eye(3)}},
    SiteLost(("a",), "remainder", 2),
)


class Crash(Exception):
    """The coordinator is gone."""


class Line:
    """A transport that can break before a round, and keeps the single replies it carried."""

    def __init__(self, sites: Mapping[str, Any], study: Study = STUDY) -> None:
        self.inner = opened(sites, study)
        self.breaks_at = -1
        self.asked: list[int] = []
        self.carried: list[npt.NDArray[Any]] = []

    @property
    def sites(self) -> tuple[str, ...]:
        return self.inner.sites

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        if round_ == self.breaks_at:
            raise Crash
        self.asked.append(round_)
        for site, reply in self.inner.exchange(round_, call):
            self.carried += reply.values()
            yield site, reply


def sites() -> dict[str, Site]:
    return gates({"a": X[:30], "b": X[30:60], "c": X[60:]})


def pca() -> Protocol[Decomposition]:
    return coordinated(STUDY, seed=1)


def assert_equal(got: Decomposition, expected: Decomposition) -> None:
    for name in ("components", "variances", "mean", "scale", "total_variance"):
        assert np.array_equal(getattr(got, name), getattr(expected, name)), name
    assert got.certificate is not None
    assert expected.certificate is not None
    assert got.certificate.angle_bound == expected.certificate.angle_bound


def assert_same(got: Replies | SiteLost | None, expected: Replies | SiteLost) -> None:
    if isinstance(expected, SiteLost):
        assert isinstance(got, SiteLost)
        assert (got.sites, str(got)) == (expected.sites, str(expected))
        return
    assert isinstance(got, dict)
    assert list(got) == list(expected)
    for site, reply in expected.items():
        assert list(got[site]) == list(reply)
        for name, array in reply.items():
            assert got[site][name].dtype == array.dtype
            assert got[site][name].shape == array.shape
            assert got[site][name].tobytes() == array.tobytes()


def written(path: Path, count: int = len(CALLS)) -> list[int]:
    """Write the first of the sample rounds; return the file's length after each record."""
    lengths = []
    with Transcript(path, run="sample") as record:
        lengths.append(path.stat().st_size)
        for round_ in range(count):
            record.keep(round_, CALLS[round_], OUTCOMES[round_])
            lengths.append(path.stat().st_size)
    return lengths


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run.transcript"


@pytest.fixture(scope="module")
def undisturbed() -> Decomposition:
    line = Line(sites())
    result = drive(pca(), line)
    assert line.asked == list(range(ROUNDS))
    return result


@pytest.mark.parametrize("at", range(ROUNDS))
def test_an_interrupted_run_resumes_bit_equal_and_asks_only_what_is_missing(
    at: int, path: Path, undisturbed: Decomposition
) -> None:
    people = sites()
    line = Line(people)
    line.breaks_at = at
    with Transcript(path) as record, pytest.raises(Crash):
        drive(pca(), line, record)
    line.breaks_at = -1
    with Transcript(path) as record:
        assert record.rounds == at
        assert_equal(drive(pca(), line, record), undisturbed)
    assert line.asked == list(range(ROUNDS))
    assert all(len(site.egress) == ROUNDS for site in people.values())


@pytest.mark.parametrize("at", range(ROUNDS))
def test_a_round_that_was_answered_and_not_kept_is_repeated_by_the_sites(
    at: int, path: Path, undisturbed: Decomposition, monkeypatch: pytest.MonkeyPatch
) -> None:
    people = sites()
    line = Line(people)
    keep = Transcript.keep

    def full(self: Transcript, round_: int, call: Call[Any], outcome: Replies | SiteLost) -> None:
        if round_ == at:
            raise OSError("disk full")
        keep(self, round_, call, outcome)

    with monkeypatch.context() as patch, Transcript(path) as record:
        patch.setattr(Transcript, "keep", full)
        with pytest.raises(OSError, match="disk full"):
            drive(pca(), line, record)
    with Transcript(path) as record:
        assert_equal(drive(pca(), line, record), undisturbed)
    assert line.asked == [*range(at + 1), *range(at, ROUNDS)]
    assert all(len(site.egress) == ROUNDS for site in people.values())


def test_a_finished_run_is_replayed_without_any_site(
    path: Path, undisturbed: Decomposition
) -> None:
    with Transcript(path) as record:
        drive(pca(), Line(sites()), record)
    nobody = Line(sites())
    nobody.breaks_at = 0
    with Transcript(path) as record:
        result = drive(pca(), nobody, record)
    assert_equal(result, undisturbed)
    assert nobody.asked == []
    scaled = (X - X.mean(axis=0)) / X.std(axis=0)
    np.testing.assert_allclose(result.variances, pooled(scaled).s[:4] ** 2 / 89)


def test_in_memory_a_run_resumes_too(undisturbed: Decomposition) -> None:
    line = Line(sites())
    line.breaks_at = 3
    with Transcript(None) as record:
        with pytest.raises(Crash):
            drive(pca(), line, record)
        line.breaks_at = -1
        assert_equal(drive(pca(), line, record), undisturbed)
        assert record.rounds == ROUNDS
    assert line.asked == list(range(ROUNDS))


class Falters:
    """A site that cannot be reached once."""

    def __init__(self, site: Site, at: int) -> None:
        self.site, self.at, self.asked = site, at, 0

    def answer(self, data: bytes) -> bytes:
        self.asked += Message.from_bytes(data, "request", "open").kind == "request"
        if self.asked == self.at:
            raise ConnectionError
        return self.site.answer(data)


def surviving() -> Protocol[tuple[tuple[str, ...], list[int]]]:
    """Ask four times, of those who are left, and tell who was lost and all the counts."""
    left: tuple[str, ...] = ("a", "b", "c")
    lost: tuple[str, ...] = ()
    counts = []
    for _ in range(4):
        try:
            replies = yield from call_each(Call(CountRequest(), to=left))
        except SiteLost as error:
            lost = error.sites
            left = tuple(site for site in left if site not in lost)
            continue
        counts.append(sum(reply.rows for reply in replies.values()))
    return lost, counts


@pytest.mark.parametrize("at", range(4))
def test_a_survived_loss_is_replayed(at: int, path: Path) -> None:
    people: dict[str, Any] = sites()
    people["b"] = Falters(people["b"], at=2)
    with registered(Counting):
        line = Line(people, study_of("abc", 1, Counting()))
        # The method begins after the moments.
        dict(line.inner.exchange(0, Call(MomentsRequest())))
        people["b"].asked = 0
        line.breaks_at = at + 1
        with Transcript(path) as record, pytest.raises(Crash):
            drive(surviving(), Later(line), record)
        line.breaks_at = -1
        with Transcript(path) as record:
            # The lost site could answer again by now; the run has gone on without it.
            assert drive(surviving(), Later(line), record) == (("b",), [90, 60, 60])
    assert line.asked == [1, 2, 3, 4]


class Later:
    """Counts rounds from the second on."""

    def __init__(self, line: Line) -> None:
        self.line, self.sites = line, line.sites

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        return self.line.exchange(round_ + 1, call)


def test_of_a_sum_only_the_total_is_kept(path: Path) -> None:
    def mixed() -> Protocol[None]:
        yield Call(MomentsRequest(), summed=True)
        yield Call(SquaresRequest(mean=np.zeros(D)))

    line = Line(sites())
    with Transcript(path) as record:
        drive(mixed(), line, record)
    data = path.read_bytes()
    summed, single = line.carried[:9], line.carried[9:]
    totals = [sum(summed[i::3]) for i in range(3)]
    assert totals[2] == pytest.approx(X.sum(axis=0))
    assert all(np.asarray(total).tobytes() in data for total in totals)
    assert len(single) == 3
    assert all(array.tobytes() in data for array in single)
    assert not any(array.tobytes() in data for array in summed if array.size > 1)


def test_single_replies_to_a_call_for_a_sum_are_not_taken(path: Path) -> None:
    with Transcript(path) as record:
        size = path.stat().st_size
        with pytest.raises(ProtocolError, match=r"^Round 0 requested a sum of 'moments'"):
            record.keep(0, CALLS[0], {"a": {"n": np.ones(1)}, "b": {"n": np.ones(1)}})
        assert path.stat().st_size == size
        assert record.rounds == 0


def test_what_could_not_be_read_again_is_not_written(path: Path) -> None:
    with Transcript(path) as record:
        with pytest.raises(InputError, match="has dtype complex128"):
            record.keep(0, CALLS[1], {"a": {"z": np.ones(2, dtype=np.complex128)}})
        record.keep(0, CALLS[1], OUTCOMES[1])
    with Transcript(path) as record:
        assert record.rounds == 1


def test_rounds_are_kept_once_and_in_order() -> None:
    with Transcript(None) as record:
        record.keep(0, CALLS[0], OUTCOMES[0])
        for round_ in (0, 2):
            with pytest.raises(ProtocolError, match=rf"^Round {round_} cannot follow the 1 rounds"):
                record.keep(round_, CALLS[0], OUTCOMES[0])


def test_a_replayed_total_is_its_caller_s_own() -> None:
    with Transcript(None) as record:
        record.keep(0, CALLS[0], OUTCOMES[0])
        for _ in range(2):
            replies = record.replay(0, CALLS[0])
            assert isinstance(replies, dict)
            assert replies[TOTAL]["n"][0] == 3.0
            replies[TOTAL]["n"] += 1.0


@pytest.mark.parametrize(
    ("round_", "call", "message"),
    [
        (
            0,
            Call(SquaresRequest(mean=np.zeros(3)), summed=True),
            r"in round 0 that has 'moments' and the run requests 'squares'\.",
        ),
        (
            0,
            Call(MomentsRequest()),
            "in round 0 that has 'moments' and the run requests 'moments', with",
        ),
        (1, Call(ProductRequest(basis=np.eye(3) + 1e-16 * np.ones((3, 3)))), "in round 1 that has"),
        (2, Call(RemainderRequest(products=1), to=("b",)), "in round 2 that has 'remainder'"),
    ],
    ids=["op", "summed", "arrays", "sites"],
)
def test_a_run_that_departs_from_its_transcript_is_refused(
    round_: int, call: Call[Any], message: str, path: Path
) -> None:
    written(path)
    with Transcript(path) as record, pytest.raises(ProtocolError, match=message):
        record.replay(round_, call)


def test_a_run_with_other_settings_is_refused_before_it_asks(path: Path) -> None:
    def other() -> Protocol[Any]:
        return (yield from collect_moments(plain_sum, replace(STUDY, center=False)))

    line = Line(sites())
    with Transcript(path) as record:
        drive(pca(), line, record)
    with Transcript(path) as record, pytest.raises(ProtocolError, match="in round 1 that has 'sq"):
        drive(other(), line, record)
    assert line.asked == list(range(ROUNDS))


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1))
def test_a_torn_last_record_is_cut_off_and_written_again(share: float, tmp_path: Path) -> None:
    path = tmp_path / "torn"
    path.unlink(missing_ok=True)
    lengths = written(path)
    cut = lengths[0] + round(share * (lengths[-1] - lengths[0]))
    os.truncate(path, cut)
    whole = sum(length <= cut for length in lengths) - 1
    with Transcript(path, run="sample") as record:
        assert record.rounds == whole
        assert path.stat().st_size == lengths[whole]
        for round_ in range(whole):
            assert_same(record.replay(round_, CALLS[round_]), OUTCOMES[round_])
        for round_ in range(whole, len(CALLS)):
            assert record.replay(round_, CALLS[round_]) is None
            record.keep(round_, CALLS[round_], OUTCOMES[round_])
    fresh = tmp_path / "fresh"
    fresh.unlink(missing_ok=True)
    written(fresh)
    assert path.read_bytes() == fresh.read_bytes()


@settings(max_examples=100, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(share=st.floats(0, 1, exclude_max=True), bit=st.integers(0, 7))
def test_any_flipped_bit_is_refused_and_the_file_left_alone(
    share: float, bit: int, tmp_path: Path
) -> None:
    path = tmp_path / "flipped"
    path.unlink(missing_ok=True)
    written(path)
    data = bytearray(path.read_bytes())
    data[int(share * len(data))] ^= 1 << bit
    path.write_bytes(data)
    with pytest.raises(DataError, match="is not a transcript, or a corrupt one"):
        Transcript(path)
    assert path.read_bytes() == data


def test_a_missing_or_doubled_round_is_refused(path: Path) -> None:
    lengths = written(path)
    data = path.read_bytes()
    for middle, at in ((b"", lengths[1]), (2 * data[lengths[1] : lengths[2]], lengths[2])):
        path.write_bytes(data[: lengths[1]] + middle + data[lengths[2] :])
        with pytest.raises(DataError, match=rf"a round is missing or doubled at byte {at}\."):
            Transcript(path)


@pytest.mark.parametrize(
    ("container", "message"),
    [
        (Container("transcript", 2, {"run": "r"}, {}), "have transcript format 2 and this"),
        (Container("summary", 1, {"run": "r"}, {}), "hold a 'summary' where a 'transcript'"),
        (Container("transcript", 1, {"ran": "r"}, {}), "lacks a field or has an unknown one"),
    ],
)
def test_other_versions_and_kinds_are_refused(
    container: Container, message: str, path: Path
) -> None:
    data = container.to_bytes()
    length = len(data).to_bytes(8, "little")
    path.write_bytes(length + hashlib.blake2b(length, digest_size=8).digest() + data)
    with pytest.raises(DataError, match=message):
        Transcript(path)


@pytest.mark.parametrize(
    "data", [b"x", b"hello, world: 25 bytes long", b"\0" * 64, b"eigenfed" * 9]
)
def test_a_foreign_file_is_refused_and_left_alone(data: bytes, path: Path) -> None:
    path.write_bytes(data)
    with pytest.raises(DataError, match="is not a transcript, or a corrupt one"):
        Transcript(path)
    assert path.read_bytes() == data


def test_an_empty_file_becomes_a_transcript(path: Path) -> None:
    path.touch()
    written(path)
    with Transcript(path) as record:
        assert record.rounds == len(CALLS)


def test_the_run_keeps_its_name_and_another_s_is_refused(path: Path) -> None:
    with Transcript(path) as record:
        name = record.run
    assert len(name) == 32
    with Transcript(path, run=name) as record:
        assert record.run == name
    with pytest.raises(ProtocolError, match=rf"of the run '{name}' and not of 'other'\."):
        Transcript(path, run="other")


def test_only_the_owner_can_read_it(path: Path) -> None:
    Transcript(path).close()
    assert path.stat().st_mode & 0o077 == 0


def test_it_keeps_what_it_is_about_and_the_account_that_ends_it(path: Path) -> None:
    with Transcript(path, about={"study": "9f86"}) as record:
        record.keep(0, CALLS[0], OUTCOMES[0])
        assert record.account is None
        record.finish({"bytes": 9})
        with pytest.raises(ProtocolError, match=r"^Round 1 cannot follow the 1 rounds"):
            record.keep(1, CALLS[1], OUTCOMES[1])
    with Transcript(path, about={"study": "other"}) as record:
        assert (record.about, record.account) == ({"study": "9f86"}, {"bytes": 9})
        assert record.rounds == 1
        assert_same(record.replay(0, CALLS[0]), OUTCOMES[0])


def test_nothing_may_follow_the_end(path: Path) -> None:
    with Transcript(path) as record:
        start = path.stat().st_size
        record.finish({})
    data = path.read_bytes()
    path.write_bytes(data + data[start:])
    with pytest.raises(DataError, match="a record follows the end of the run"):
        Transcript(path)


names = st.text(max_size=5)
arrays = st.builds(
    lambda dtype, shape, seed: np.random.default_rng(seed).integers(0, 99, shape).astype(dtype),
    st.sampled_from(["<f8", "<f4", "<i8", "|u1"]),
    st.lists(st.integers(0, 3), max_size=3),
    st.integers(0, 9),
)


@settings(max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    outcome=st.one_of(
        st.dictionaries(names, st.dictionaries(names, arrays, max_size=3), max_size=3),
        st.lists(names, unique=True).map(lambda sites: SiteLost(tuple(sites), "product", 0)),
    )
)
def test_any_outcome_comes_back_as_it_was(outcome: Replies | SiteLost, tmp_path: Path) -> None:
    path = tmp_path / "any"
    path.unlink(missing_ok=True)
    with Transcript(path) as record:
        record.keep(0, PRODUCT, outcome)
        assert_same(record.replay(0, PRODUCT), outcome)
    with Transcript(path) as record:
        assert_same(record.replay(0, PRODUCT), outcome)


def test_a_full_disk_begins_no_transcript(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fill(_: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as full:
        full.setattr(os, "fsync", fill)
        with pytest.raises(OSError, match="No space left"):
            Transcript(path, run="r1")
    assert list(path.parent.iterdir()) == []
    with Transcript(path, run="r1") as record:
        assert record.run == "r1"
