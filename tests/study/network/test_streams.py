"""Streaming sites between machines: which summaries leave a site, and what becomes of them."""

import os
import uuid
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed import Region, RegionReport
from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.linalg.orthonormal import flip_signs
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.leakage import Meter
from eigenfed.protocol.exact.stream_summary import ask_message
from eigenfed.protocol.messages import Message
from eigenfed.protocol.study import open_message
from eigenfed.study.config import read_site, read_study
from eigenfed.study.network.approvals import approve_study
from eigenfed.study.network.key_files import read_identity
from eigenfed.study.network.network_folder import coordinator_folder
from eigenfed.study.network.study_terms import describe_terms
from eigenfed.study.network.summary_collection import Arrival, SummaryCollection
from eigenfed.study.planning.traffic import simulate_traffic
from eigenfed.study.rehearsal import read_rehearsal
from eigenfed.transport.bundles import Bundle
from network_streams import METHOD, NAMES, StreamNetwork, summarise


@pytest.fixture
def network(tmp_path: Path) -> StreamNetwork:
    return StreamNetwork(tmp_path)


def take(collection: SummaryCollection, site: str) -> Arrival:
    """Ask a site, and end the run if it has sent a summary."""
    arrival = collection.ask(site)
    if not arrival.code:
        collection.forget(site)
        assert collection.close(arrival, {}) == ""
    return arrival


def ask_directly(network: StreamNetwork, site: str, run: str, known: float = 0.0) -> Message:
    """Ask as a coordinator does that keeps to no rule."""
    study = network.parties.study
    identity = read_identity(coordinator_folder(study) / "coordinator.key")
    data = ask_message(run, study.study, identity, known=known)
    return Message.from_bytes(network.sites[site].service.answer(data), "reply", "refusal")


def test_the_result_is_the_merge_of_the_summaries_bit_for_bit(network: StreamNetwork) -> None:
    collection = network.collection()
    assert [take(collection, name).is_new for name in NAMES] == [True] * 3
    summary, pca, sites = collection.merge()
    region = Region("all", rank=5)
    for name in NAMES:
        region.receive(RegionReport(name, 20, summarise(network.rows[name][:20]).truncate(4)))
    merged = replace(region.summary(), names=None)
    assert sites == ("island", "north", "south")
    assert replace(summary, names=None).to_bytes() == merged.to_bytes()
    assert pca.components_.tobytes() == flip_signs(merged.vt[:2]).tobytes()
    assert pca.n_samples_ == 60
    assert (pca.n_rounds_, pca.certificate_ is not None) == (1, True)


def test_the_certificate_bounds_the_distance_to_all_rows(network: StreamNetwork) -> None:
    collection = network.collection()
    for name in NAMES:
        take(collection, name)
    _, pca, _ = collection.merge()
    variances, vt = network.pooled(dict.fromkeys(NAMES, 20))
    cosines = np.linalg.svd(pca.components_ @ vt[:2].T, compute_uv=False)
    angle = np.arccos(min(cosines[-1], 1.0))
    grade = pca.certificate_
    assert grade is not None
    assert grade.basis == "rigorous"
    assert 0.0 < angle <= grade.angle_bound < 0.1
    assert np.all(pca.explained_variance_ <= variances[:2] + 1e-12)
    assert pca.total_variance_ == pytest.approx(variances.sum())


def test_a_stream_is_asked_in_vain_until_it_has_grown_enough(network: StreamNetwork) -> None:
    collection = network.collection()
    codes = []
    for seen in (20, 29, 30, 39, 40):
        network.grow("north", seen)
        codes.append(take(collection, "north").code)
    assert codes == ["", "waiting", "", "waiting", ""]
    assert take(collection, "north").code == "used_up"
    assert network.released("north") == [(1, 20.0), (2, 30.0), (3, 40.0)]
    network.check_ledgers()


def test_a_site_requires_its_own_least_number_of_new_rows(tmp_path: Path) -> None:
    network = StreamNetwork(tmp_path, method='{ name = "merge", max_summaries = 9 }')
    collection = network.collection()
    codes = []
    # The policy has min_rows = 5, and the study requires nothing.
    for seen in (4, 5, 9, 10):
        network.grow("north", seen)
        codes.append(take(collection, "north").code)
    assert codes == ["waiting", "", "waiting", ""]


def test_a_hostile_coordinator_gets_no_state_between_two_releases(network: StreamNetwork) -> None:
    first = ask_directly(network, "north", "run 0")
    replies = set()
    for seen in range(21, 30):
        network.grow("north", seen)
        for known in (0.0, 20.0, -1.0, float("nan"), 1e9):
            answer = ask_directly(network, "north", uuid.uuid4().hex, known)
            if answer.kind == "reply":
                replies.add(b"".join(answer.arrays[key].tobytes() for key in sorted(answer.arrays)))
            else:
                assert answer.label == "waiting"
    assert replies == {b"".join(first.arrays[key].tobytes() for key in sorted(first.arrays))}
    assert {version for version, _ in network.released("north")} == {1}


@pytest.mark.parametrize(
    ("change", "code"),
    [
        ({"known": None}, "malformed"),
        ({"known": np.zeros((2, 2))}, "malformed"),
        ({"more": np.zeros(1)}, "malformed"),
        ({"signature": np.zeros(64, np.uint8)}, "unsigned"),
        ({"coordinator": np.zeros(32, np.uint8)}, "unsigned"),
        ({"method": np.frombuffer(b'{"name": "auto"}', np.uint8)}, "unsigned"),
        ({"study": np.zeros(9, np.uint8)}, "unapproved"),
    ],
)
def test_a_request_that_was_changed_reaches_no_row(
    change: dict[str, Any], code: str, network: StreamNetwork
) -> None:
    study = network.parties.study
    identity = read_identity(coordinator_folder(study) / "coordinator.key")
    message = Message.from_bytes(ask_message("run", study.study, identity, known=0.0), "request")
    arrays = {name: array for name, array in (message.arrays | change).items() if array is not None}
    data = Message("request", "run", 0, message.label, arrays).to_bytes()
    answer = Message.from_bytes(network.sites["north"].service.answer(data), "reply", "refusal")
    assert (answer.kind, answer.label) == ("refusal", code)
    assert network.released("north") == []
    assert ask_directly(network, "north", "run").kind == "reply"


def test_a_run_that_is_opened_by_hand_gets_no_other_summary(network: StreamNetwork) -> None:
    study = network.parties.study
    identity = read_identity(coordinator_folder(study) / "coordinator.key")
    service = network.sites["north"].service
    opening = open_message("run", study.study, study.study.chosen, identity)
    first = ask_directly(network, "north", "first")
    network.grow("north", 25)
    assert Message.from_bytes(service.answer(opening), "refusal").label == "script"
    bare = Message("request", "run", 0, "summarise_stream", {}).to_bytes()
    assert Message.from_bytes(service.answer(bare), "refusal").label == "malformed"
    again = ask_directly(network, "north", "run")
    assert again.arrays["vt"].tobytes() == first.arrays["vt"].tobytes()
    assert ask_directly(network, "north", "other", known=20.0).label == "waiting"


def test_what_is_answered_depends_on_the_number_of_rows_alone(tmp_path: Path) -> None:
    seen = []
    for place, scale in enumerate((1.0, 1e3)):
        network = StreamNetwork(tmp_path / str(place))
        network.rows = {name: scale * rows[::-1] for name, rows in network.rows.items()}
        behaviour: list[tuple[str, str, dict[str, tuple[int, ...]]]] = []
        for count in (20, 25, 30, 20, 40, 40):
            network.grow("north", count)
            answer = ask_directly(network, "north", f"run {len(behaviour)}", known=20.0)
            shapes = {name: array.shape for name, array in answer.arrays.items()}
            behaviour.append((answer.kind, answer.label, shapes))
        seen.append(behaviour)
    assert seen[0] == seen[1]
    assert [label for _, label, _ in seen[0]][3] == "unready"


def test_a_request_that_is_repeated_gets_the_same_bytes_also_after_a_restart(
    network: StreamNetwork,
) -> None:
    replies = []

    def carry(name: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
        replies.append(answer(data))
        return replies[-1]

    network.carry = carry
    collection = network.collection()
    assert collection.ask("north").is_new
    network.grow("north", 40)
    assert not collection.ask("north").is_new
    network.sites["north"].restart()
    assert not network.collection().ask("north").is_new
    messages = {Bundle.from_bytes(reply).message for reply in replies}
    assert len(messages) == 1
    assert network.released("north") == [(1, 20.0)]
    collection.forget("north")
    assert collection.ask("north").is_new
    assert network.released("north") == [(1, 20.0), (2, 40.0)]


def test_a_run_from_before_a_restart_is_answered_from_its_own_summary(
    network: StreamNetwork,
) -> None:
    ask_directly(network, "north", "first")
    network.grow("north", 30)
    second = ask_directly(network, "north", "second")
    network.sites["north"].restart()
    network.grow("north", 40)
    assert ask_directly(network, "north", "second").to_bytes() == second.to_bytes()
    # Who asks in another run has given up the one before.
    assert ask_directly(network, "north", "first").kind == "refusal"
    assert network.sites["north"].ledger.recall_names("data") == ("second",)
    assert not network.sites["north"].ledger.held("data")
    kept = network.parties.site("north").network / "streams"
    assert len(list(kept.iterdir())) == 1


def test_kept_summaries_are_removed_when_nobody_can_ask_for_them(network: StreamNetwork) -> None:
    collection = network.collection()
    for seen in (20, 30, 40):
        network.grow("north", seen)
        take(collection, "north")
    kept = network.parties.site("north").network / "streams"
    assert len(list(kept.iterdir())) == 1
    assert kept.stat().st_mode & 0o077 == 0


def test_a_coordinator_that_lost_its_state_gets_the_last_summary_again(
    network: StreamNetwork,
) -> None:
    collection = network.collection()
    for seen in (20, 30, 40):
        network.grow("north", seen)
        take(collection, "north")
    study = network.parties.study
    (report,) = (coordinator_folder(study) / "summaries").rglob("north.report")
    report.write_bytes(report.read_bytes()[:-1])
    with pytest.raises(DataError, match="the site sends its last summary again"):
        network.collection()
    report.unlink()
    collection = network.collection()
    assert take(collection, "north").is_new
    assert take(collection, "north").code == "used_up"
    assert network.released("north")[-2:] == [(3, 40.0), (3, 40.0)]


def test_two_studies_get_the_same_states_of_a_stream(network: StreamNetwork) -> None:
    collection = network.collection()
    take(collection, "north")
    home = network.parties.home
    study = home / "coordinator" / "study.toml"
    other = study.read_text().replace('"heart"', '"lung"').replace("min_new_rows = 10", "")
    (home / "other.toml").write_text(other.replace("max_summaries = 3,", "max_summaries = 3"))
    lung = read_study(home / "other.toml")
    approve_study(lung, network.parties.site("north"))
    identity = read_identity(coordinator_folder(network.parties.study) / "coordinator.key")

    def ask(run: str) -> Message:
        data = ask_message(run, lung.study, identity, known=0.0)
        return Message.from_bytes(network.sites["north"].service.answer(data), "reply", "refusal")

    network.grow("north", 22)
    assert float(ask("one").arrays["n"][0]) == 20.0
    network.grow("north", 26)
    assert float(ask("two").arrays["n"][0]) == 26.0
    # The study heart requires ten rows between two summaries, and lung has made one after six.
    assert take(collection, "north").code == "waiting"
    network.grow("north", 35)
    assert take(collection, "north").is_new
    weights = sorted({weight for _, weight in network.released("north")})
    assert min(np.diff(weights)) >= 5


def test_a_stream_that_shrank_or_was_damaged_sends_nothing(
    network: StreamNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    collection = network.collection()
    take(collection, "north")
    network.grow("north", 15)
    assert take(collection, "north").code == "unready"
    assert "give the new stream another dataset" in caplog.text
    path = network.parties.home / "north" / "rows.summary"
    path.write_bytes(path.read_bytes()[:-9])
    assert take(collection, "north").code == "unready"
    path.unlink()
    assert take(collection, "north").code == "waiting"
    network.grow("north", 30)
    assert take(collection, "north").is_new


def test_a_summary_of_other_features_sends_nothing(
    network: StreamNetwork, caplog: pytest.LogCaptureFixture
) -> None:
    path = network.parties.home / "north" / "rows.summary"
    rows = network.rows["north"][:20]
    wrong = {
        "lacks 1 of the 5": summarise(rows).with_names(["age", "bmi", "hdl", "ldl", "other"]),
        "has 4 features": Summary.empty(4, 2).update(rows[:, :4]),
        "was made with --no-center": Summary.empty(5, 2, centered=False).update(rows),
    }
    collection = network.collection()
    for text, summary in wrong.items():
        path.write_bytes(summary.to_bytes())
        assert collection.ask("north").code == "unready"
        assert text in caplog.text
    path.write_bytes(summarise(rows).reorder([4, 3, 2, 1, 0]).to_bytes())
    assert collection.ask("north").is_new
    assert np.allclose(collection.merge()[0].mean, rows.mean(axis=0))


def test_a_stream_that_forgets_counts_by_its_weight(network: StreamNetwork) -> None:
    path = network.parties.home / "north" / "rows.summary"
    rows = network.rows["north"]
    collection = network.collection()
    take(collection, "north")
    fading = summarise(rows[:20])
    for row in rows[20:38]:
        fading = fading.update(row[None], decay=0.9)
    path.write_bytes(fading.to_bytes())
    assert fading.n < 20
    assert take(collection, "north").code == "unready"


def test_every_summary_is_metered_on_its_own(tmp_path: Path) -> None:
    network = StreamNetwork(tmp_path)
    file = tmp_path / "north" / "site.toml"
    file.write_text(file.read_text() + "max_rank_fraction = 0.9\n")
    network.sites["north"].restart()
    collection = network.collection()
    assert take(collection, "north").is_new
    kept = network.sites["north"].ledger.meter("data")
    assert kept is not None
    assert Meter.from_bytes(kept).rank == 4
    # Four more of five directions would be 8 in all: the scatter is not the one of before.
    network.grow("north", 40)
    assert take(collection, "north").code == "leakage"


def test_a_site_that_withdrew_its_approval_sends_nothing(network: StreamNetwork) -> None:
    for path in (network.parties.site("north").network / "approved").iterdir():
        path.unlink()
    assert network.collection().ask("north").code == "unapproved"


def test_a_site_with_rows_and_a_study_of_rows_do_not_mix_with_summaries(
    tmp_path: Path, network: StreamNetwork
) -> None:
    site = tmp_path / "north" / "site.toml"
    rows = tmp_path / "north" / "rows.toml"
    rows.write_text(site.read_text().replace("rows.summary", "rows.csv"))
    terms = describe_terms(network.parties.study, read_site(rows))
    assert set(terms.refusals) == {"not_a_stream"}
    terms = describe_terms(network.parties.study, read_site(site))
    assert terms.refusals == {}
    assert terms.leaves == {"summary of a stream": "from this site alone"}
    assert "up to 3 leave this site" in dict(terms.lines)["summaries"]
    krylov = tmp_path / "krylov.toml"
    study = tmp_path / "coordinator" / "study.toml"
    krylov.write_text(study.read_text().replace(METHOD, '"krylov"'))
    terms = describe_terms(read_study(krylov), read_site(site))
    assert set(terms.refusals) == {"not_a_stream"}
    with pytest.raises(DataError, match=r"data is a summary, and .* needs rows"):
        read_rehearsal(krylov, [site])
    with pytest.raises(InputError, match=r"Use eigenfed coordinate, or merge the files here"):
        read_rehearsal(study, [site])
    site.write_text(site.read_text().replace("[policy]", 'where = ["age > 3"]\n[policy]'))
    with pytest.raises(DataError, match="where is about rows, and data is a summary"):
        read_site(site)


@pytest.mark.parametrize(
    "more", ["scale = true", "center = false", "by_site = true", "deadline_s = 9.0"]
)
def test_settings_that_need_rows_cannot_be_combined_with_streams(more: str, tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    text = f'name = "heart"\nsites = ["a", "b"]\ncomponents = 2\nmethod = {METHOD}\n{more}\n'
    path.write_text(text)
    with pytest.raises(DataError, match=f"{more.split()[0]} cannot be combined with max_summaries"):
        read_study(path)


def test_a_forged_or_mistaken_summary_is_refused(network: StreamNetwork) -> None:
    collection = network.collection()

    def carry(name: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
        return answer(data)[:-3] + b"abc"

    network.carry = carry
    with pytest.raises(ProtocolError, match="is damaged"):
        collection.ask("north")
    assert collection.sites == ()
    with pytest.raises(ProtocolError, match="No leaf of region 'heart' has reported"):
        collection.merge()


class Crash(BaseException):
    """The end of a process."""


@pytest.mark.parametrize(
    "change",
    [
        {"mean": np.full(5, 1e160)},
        {"n": 1e200},
        {"energy": 1e308, "lost": 1e307},
        {"mean": np.full(5, 1e100), "n": 1e101},
    ],
    ids=["mean", "weight", "energy", "weighted mean"],
)
def test_a_summary_that_no_other_could_be_merged_with_is_refused_and_not_kept(
    network: StreamNetwork, change: dict[str, Any]
) -> None:
    summary = summarise(network.rows["south"][:20])
    path = network.parties.home / "south" / "rows.summary"
    path.write_bytes(replace(summary, **change).to_bytes())
    collection = network.collection()
    for name in ("north", "island"):
        take(collection, name)
    with pytest.raises(ProtocolError, match="'south' holds numbers that are too large"):
        collection.ask("south")
    assert collection.merge()[2] == ("island", "north")
    assert network.collection().sites == ("island", "north")


@pytest.mark.parametrize(
    "step",
    [
        "study.network.stream_releases.write_at_once",
        "privacy.ledger.ledger.Ledger.summarise",
        "study.network.stream_releases.StreamReleases._remove_old",
        "privacy.ledger.ledger.Ledger.commit",
        "privacy.ledger.ledger.Ledger.forget_replies",
    ],
)
def test_a_crash_at_any_step_costs_no_release_and_reveals_no_other(
    step: str, network: StreamNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def crash(*_: object, **__: object) -> None:
        raise Crash

    with monkeypatch.context() as patch:
        patch.setattr(f"eigenfed.{step}", crash)
        with pytest.raises(Crash):
            ask_directly(network, "north", "run")
    network.sites["north"].restart()
    network.grow("north", 23)
    found = ask_directly(network, "north", "run")
    again = ask_directly(network, "north", "other")
    assert found.arrays["vt"].tobytes() == again.arrays["vt"].tobytes()
    assert len({version for version, _ in network.released("north")}) == 1
    assert not network.sites["north"].ledger.held("data")
    network.check_ledgers()


def test_rounds_and_bytes_are_as_forecast(network: StreamNetwork) -> None:
    collection = network.collection()
    for name in NAMES:
        take(collection, name)
    pca = collection.merge()[1]
    rows = dict.fromkeys(NAMES, 20)
    study = network.parties.study.study
    planned = simulate_traffic(study, rows, np.array([5.0, 4.0, 3.0, 2.0, 1.0]), real=5)
    assert planned.rounds == pca.n_rounds_ == 1
    for name in NAMES:
        up, down = planned.sum_by_site()[name]
        assert up == pca.rounds_[0].received[name]
        assert down == pca.rounds_[0].sent[name]


def test_the_site_keeps_a_copy_of_the_result_and_forgets_the_run(network: StreamNetwork) -> None:
    collection = network.collection()
    arrival = collection.ask("north")
    assert network.sites["north"].ledger.recall_names("data") == (arrival.run,)
    assert "not part of a result" not in collection.close(arrival, {})
    assert network.sites["north"].ledger.recall_names("data") == ()
    assert os.listdir(network.parties.home / "north").count("results") == 0


def test_a_broken_disk_at_the_site_costs_no_release(
    network: StreamNetwork, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(path: Path, data: bytes) -> None:
        raise OSError("no space")

    with monkeypatch.context() as patch:
        patch.setattr("eigenfed.study.network.stream_releases.write_at_once", fail)
        assert network.collection().ask("north").code == "unready"
    assert network.released("north") == []
    assert network.collection().ask("north").is_new
