"""A tree of regions answers as one merge of the newest summaries, however reports arrive."""

from functools import reduce

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenfed import StreamingPCA, Summary
from eigenfed.arrays import Array, Container
from eigenfed.errors import DataError, InputError, ProtocolError
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.exact.tree import Region, RegionReport
from oracles import pooled, power_law

D, RANK = 6, 3


def summary_of(rows: Array, rank: int = RANK) -> Summary:
    return Summary.empty(rows.shape[1], rank).update(rows)


def rows_of(leaf: int, version: int) -> Array:
    """All rows that a leaf has seen by a version; each version saw three more."""
    rng = np.random.default_rng(leaf)
    rows: Array = rng.standard_normal((3 * version, D)) + 3 * rng.standard_normal(D)
    return rows


def report_of(leaf: int, version: int) -> RegionReport:
    return RegionReport(f"leaf-{leaf}", version, summary_of(rows_of(leaf, version)))


def direct(reports: dict[str, RegionReport], rank: int = RANK) -> Summary:
    """Merge in sorted order of names, without any region."""
    parts = [reports[leaf].summary for leaf in sorted(reports)]
    return reduce(Summary.merge, parts, Summary.empty(parts[0].d, rank))


def newest(reports: list[RegionReport]) -> dict[str, RegionReport]:
    found: dict[str, RegionReport] = {}
    for report in reports:
        if report.leaf not in found or report.version > found[report.leaf].version:
            found[report.leaf] = report
    return found


def within_bounds(summary: Summary, X: Array) -> None:
    truth = pooled(X)
    kept = np.zeros(len(truth.s))
    kept[: len(summary.s)] = summary.s[: len(truth.s)]
    rounding = 1e-9 * truth.energy
    assert summary.n == pytest.approx(truth.n)
    np.testing.assert_allclose(summary.mean, truth.mean, atol=1e-9)
    assert summary.energy == pytest.approx(truth.energy)
    assert np.all(kept**2 <= truth.s**2 + rounding)
    assert np.all(truth.s**2 <= kept**2 + summary.lost + rounding)


arrivals = st.lists(st.tuples(st.integers(0, 4), st.integers(1, 4)), min_size=1, max_size=25)


@given(arrivals=arrivals, seed=st.integers(0, 2**32 - 1))
def test_any_order_with_duplicates_and_stale_versions_gives_the_same_bits(
    arrivals: list[tuple[int, int]], seed: int
) -> None:
    reports = [report_of(leaf, version) for leaf, version in arrivals]
    again = np.random.default_rng(seed).permutation(np.repeat(np.arange(len(reports)), 2))
    one, other = Region("north", RANK), Region("north", RANK)
    for report in reports:
        one.receive(report)
    for i in again:
        other.receive(RegionReport.from_bytes(reports[i].to_bytes()))
    expected = direct(newest(reports)).to_bytes()
    assert one.summary().to_bytes() == expected
    assert other.summary().to_bytes() == expected
    assert one.report().to_bytes() == other.report().to_bytes()


@given(arrivals=arrivals)
def test_the_answer_at_any_time_is_that_of_what_has_arrived(
    arrivals: list[tuple[int, int]],
) -> None:
    region, held, version = Region("north", RANK), dict[str, RegionReport](), 0
    for leaf, number in arrivals:
        report = report_of(leaf, number)
        before = held.get(report.leaf)
        is_news = before is None or number > before.version
        assert region.receive(report) is is_news
        if is_news:
            held[report.leaf] = report
        assert region.summary().to_bytes() == direct(held).to_bytes()
        assert region.leaves == tuple(sorted(held))
        assert (region.report().version > version) is is_news
        version = region.report().version
        rows = [rows_of(int(name[5:]), found.version) for name, found in held.items()]
        within_bounds(region.summary(), np.concatenate(rows))


def build(shape: list[int], rank: int) -> tuple[list[list[Region]], list[list[int]]]:
    """Regions by level, the root first, and the parent of each region and leaf."""
    levels, parents, width = [], [], 1
    for depth, fan_out in enumerate(shape):
        levels.append([Region(f"region-{depth}-{i:02d}", rank) for i in range(width)])
        width *= fan_out
        parents.append([i // fan_out for i in range(width)])
    return levels, parents


def folded(
    levels: list[list[Region]], parents: list[list[int]], leaves: dict[int, RegionReport], rank: int
) -> Summary:
    """Merge the tree level by level with plain merges, from the leaves up."""
    below = {i: report.summary for i, report in leaves.items()}
    for depth in range(len(levels) - 1, -1, -1):
        above: dict[int, Summary] = {}
        for i in sorted(below):
            parent = parents[depth][i]
            start = above.get(parent, Summary.empty(below[i].d, rank))
            above[parent] = start.merge(below[i])
        below = above
    return below[0]


@given(
    shape=st.lists(st.integers(1, 4), min_size=1, max_size=3),
    seed=st.integers(0, 2**32 - 1),
    lost=st.floats(0.0, 0.6),
)
@settings(max_examples=60)
def test_a_tree_of_any_depth_and_fan_out_equals_the_merge_of_its_newest_leaves(
    shape: list[int], seed: int, lost: float
) -> None:
    """Messages are lost, doubled and reordered; in the end every link gets its newest through."""
    rng = np.random.default_rng(seed)
    levels, parents = build(shape, RANK)
    leaves: dict[int, RegionReport] = {}
    wires: list[list[bytes]] = [[] for _ in levels]
    for _ in range(30):
        leaf = int(rng.integers(len(parents[-1])))
        version = leaves[leaf].version + 1 if leaf in leaves else 1
        report = RegionReport(f"leaf-{leaf:02d}", version, summary_of(rows_of(leaf, version)))
        leaves[leaf] = report
        if rng.random() >= lost:
            levels[-1][parents[-1][leaf]].receive(RegionReport.from_bytes(report.to_bytes()))
        depth = int(rng.integers(len(levels)))
        for region in levels[depth]:
            if depth and region.leaves:
                wires[depth].append(region.report().to_bytes())
        rng.shuffle(wires[depth])
        for data in wires[depth][:2]:
            late = RegionReport.from_bytes(data)
            levels[depth - 1][parents[depth - 1][int(late.leaf[-2:])]].receive(late)
    for leaf, report in leaves.items():
        levels[-1][parents[-1][leaf]].receive(report)
    for depth in range(len(levels) - 1, 0, -1):
        for i, region in enumerate(levels[depth]):
            if region.leaves:
                levels[depth - 1][parents[depth - 1][i]].receive(region.report())
    root = levels[0][0].summary()
    assert root.to_bytes() == folded(levels, parents, leaves, RANK).to_bytes()
    rows = np.concatenate([rows_of(leaf, report.version) for leaf, report in leaves.items()])
    within_bounds(root, rows)


def test_a_tree_of_enough_rank_is_pooled_pca() -> None:
    X = power_law(400, 10, 1.0) + np.repeat(np.arange(8.0), 50)[:, None]
    root = Region("root", 10)
    for half in (0, 1):
        region = Region(f"half-{half}", 10)
        for i, rows in enumerate(np.array_split(np.array_split(X, 2)[half], 4)):
            region.receive(RegionReport(f"leaf-{i}", 1, summary_of(rows, 10)))
        root.receive(region.report())
    truth = pooled(X)
    assert sines(root.summary().vt[:3], truth.vt[:3])[0] < 1e-10
    np.testing.assert_allclose(root.summary().s, truth.s, rtol=1e-8)


def test_a_lost_leaf_means_older_data_only() -> None:
    region = Region("north", RANK)
    for leaf, version in [(0, 1), (1, 1), (0, 2), (0, 3)]:
        region.receive(report_of(leaf, version))
    within_bounds(region.summary(), np.concatenate([rows_of(0, 3), rows_of(1, 1)]))


def test_a_version_that_goes_back_is_left_aside() -> None:
    region = Region("north", RANK)
    assert region.receive(report_of(0, 3))
    before = region.summary().to_bytes()
    assert not region.receive(report_of(0, 2))
    assert not region.receive(RegionReport("leaf-0", 3, summary_of(np.ones((9, D)))))
    assert region.summary().to_bytes() == before


def test_a_region_that_starts_again_does_not_hide_what_its_parent_has() -> None:
    region, parent = Region("north", RANK), Region("root", RANK)
    for leaf in (0, 1):
        region.receive(report_of(leaf, 2))
    assert parent.receive(region.report())
    full = parent.summary().n
    again = Region("north", RANK)
    again.receive(report_of(0, 2))
    assert not parent.receive(again.report())
    again.receive(report_of(1, 3))
    assert parent.receive(again.report())
    assert parent.summary().n == full + 3


def test_devices_with_streams_of_their_own_are_leaves() -> None:
    X = power_law(600, 8, 2.0, seed=1)
    streams = {f"d{i}": StreamingPCA(n_components=2) for i in range(3)}
    region = Region("north", 8)
    for version, block in enumerate(np.array_split(X, 12), start=1):
        name = f"d{version % 3}"
        streams[name].partial_fit(block)
        region.receive(RegionReport(name, version, streams[name].summary_))
        within_bounds(region.summary(), np.concatenate(np.array_split(X, 12)[:version]))
    assert sines(region.summary().vt[:2], pooled(X).vt[:2])[0] < 1e-6


def test_a_region_keeps_one_summary_a_leaf() -> None:
    region = Region("north", RANK)
    for version in range(1, 50):
        region.receive(RegionReport("a", version, summary_of(np.ones((version, D)))))
    assert region.leaves == ("a",)
    assert region.summary().n == 49


def test_rows_that_are_not_centred_stay_so() -> None:
    region = Region("north", RANK)
    empty = Summary.empty(D, RANK, centered=False)
    for leaf in (0, 1):
        region.receive(RegionReport(f"leaf-{leaf}", 1, empty.update(rows_of(leaf, 1))))
    truth = pooled(np.concatenate([rows_of(0, 1), rows_of(1, 1)]), centered=False)
    assert not region.summary().centered
    assert region.summary().energy == pytest.approx(truth.energy)


def test_before_any_report_there_is_no_answer() -> None:
    with pytest.raises(ProtocolError, match="No leaf of region 'north' has reported"):
        Region("north", RANK).summary()
    with pytest.raises(ProtocolError, match="No leaf of region 'north' has reported"):
        Region("north", RANK).report()


@pytest.mark.parametrize(
    "summary",
    [
        summary_of(np.ones((2, D + 1))),
        Summary.empty(D, RANK, centered=False).update(np.ones((2, D))),
    ],
)
def test_a_summary_that_does_not_fit_is_refused_and_changes_nothing(summary: Summary) -> None:
    region = Region("north", RANK)
    region.receive(report_of(0, 1))
    with pytest.raises(DataError, match="The report of leaf 'odd' has"):
        region.receive(RegionReport("odd", 1, summary))
    assert region.leaves == ("leaf-0",)


def envelope(**changes: object) -> bytes:
    """A report with some of its parts replaced, and a sound checksum."""
    inside = np.frombuffer(summary_of(np.ones((2, D))).to_bytes(), np.uint8)
    parts: dict[str, object] = {"leaf": "a", "version": 1, "summary": inside, **changes}
    kept = {name: part for name, part in parts.items() if part is not None}
    arrays = {name: part for name, part in kept.items() if isinstance(part, np.ndarray)}
    scalars = {name: part for name, part in kept.items() if name not in arrays}
    return Container("report", 1, scalars, arrays).to_bytes()  # type: ignore[arg-type]


def test_the_envelope_of_these_tests_is_sound_when_nothing_is_changed() -> None:
    assert RegionReport.from_bytes(envelope()).leaf == "a"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not a report",
        summary_of(np.ones((2, D))).to_bytes(),
        envelope()[:-1],
        envelope() + b"\0",
        envelope(leaf=None),
        envelope(leaf=""),
        envelope(leaf=3),
        envelope(version=None),
        envelope(version=0),
        envelope(version=-2),
        envelope(version=1.0),
        envelope(version=True),
        envelope(more=1),
        envelope(summary=None),
        envelope(summary=np.zeros(3)),
        envelope(summary=np.zeros(8, np.uint8)),
        envelope(extra=np.zeros(3)),
    ],
)
def test_malformed_reports_are_refused(data: bytes) -> None:
    with pytest.raises(DataError):
        RegionReport.from_bytes(data)


@given(place=st.integers(0, 10**6), bit=st.integers(0, 7))
def test_a_flipped_bit_is_found(place: int, bit: int) -> None:
    data = bytearray(report_of(0, 1).to_bytes())
    data[place % len(data)] ^= 1 << bit
    with pytest.raises(DataError):
        RegionReport.from_bytes(bytes(data))


@pytest.mark.parametrize(("leaf", "version"), [("", 1), ("a", 0), ("a", -1), ("a", 1.5)])
def test_a_report_without_name_or_version_cannot_be_made(leaf: str, version: int) -> None:
    with pytest.raises(InputError, match="must be a"):
        RegionReport(leaf, version, summary_of(np.ones((2, D))))


@pytest.mark.parametrize(("name", "rank"), [("", 3), ("a", 0)])
def test_a_region_without_name_or_rank_cannot_be_made(name: str, rank: int) -> None:
    with pytest.raises(InputError, match="must be a"):
        Region(name, rank)
