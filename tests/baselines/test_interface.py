"""What holds for all four comparators alike."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from eigenfed import baselines
from eigenfed.arrays import Array
from eigenfed.baselines import FrequentDirections, Grouse, PowerStream, Spirit
from eigenfed.baselines.tracker import SubspaceTracker
from eigenfed.errors import InputError

D = 7
SCALES = np.array([8.0, 4.0, 2.0, 0.5, 0.4, 0.3, 0.2])

FACTORIES: dict[str, Callable[[], SubspaceTracker]] = {
    "frequent_directions": lambda: FrequentDirections(3),
    "grouse": lambda: Grouse(3, random_state=0),
    "grouse_with_step": lambda: Grouse(3, step_size=0.1, random_state=0),
    "power_stream": lambda: PowerStream(3, block_size=11, random_state=0),
    "spirit": lambda: Spirit(3, forgetting=0.99),
}

all_trackers = pytest.mark.parametrize("make", FACTORIES.values(), ids=FACTORIES.keys())


def stream(n: int = 300, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    rotation = np.linalg.qr(rng.standard_normal((D, D))).Q
    rows: Array = (rng.standard_normal((n, D)) * SCALES) @ rotation
    return rows


def fed_in_parts(tracker: SubspaceTracker, rows: Array, cuts: list[int]) -> SubspaceTracker:
    for part in np.split(rows, cuts):
        tracker.partial_fit(part)
    return tracker


def test_package_exports_the_four_comparators() -> None:
    names = ["FrequentDirections", "Grouse", "PowerStream", "Spirit"]
    assert set(names) < set(baselines.__all__)
    assert all(issubclass(getattr(baselines, name), SubspaceTracker) for name in names)


@all_trackers
def test_components_are_orthonormal_rows(make: Callable[[], SubspaceTracker]) -> None:
    components = make().partial_fit(stream()).components_
    k = len(components)
    assert components.shape == (k, D)
    assert components.dtype == np.float64
    np.testing.assert_allclose(components @ components.T, np.eye(k), atol=1e-13)


@all_trackers
def test_number_of_components_is_as_asked_unless_it_adapts(
    make: Callable[[], SubspaceTracker],
) -> None:
    tracker = make().partial_fit(stream())
    if not isinstance(tracker, Spirit):
        assert len(tracker.components_) == tracker.n_components == 3


@all_trackers
def test_largest_entry_of_each_component_is_positive(make: Callable[[], SubspaceTracker]) -> None:
    components = make().partial_fit(stream()).components_
    largest = np.abs(components).argmax(axis=1)
    assert (components[np.arange(len(components)), largest] > 0).all()


@pytest.mark.parametrize("name", ["frequent_directions", "power_stream", "spirit"])
def test_components_come_in_order_of_power(name: str) -> None:
    rows = stream(3000)
    powers = np.square(rows @ FACTORIES[name]().partial_fit(rows).components_.T).sum(axis=0)
    assert (np.diff(powers) < 0).all()


@all_trackers
@pytest.mark.parametrize(
    "cuts",
    [[1], [150], list(range(1, 300)), [2, 13, 14, 130, 299]],
    ids=["one_first", "halves", "row_by_row", "uneven"],
)
def test_any_partition_gives_the_same_bits(
    make: Callable[[], SubspaceTracker], cuts: list[int]
) -> None:
    rows = stream()
    whole, parts = make().partial_fit(rows), fed_in_parts(make(), rows, cuts)
    assert parts.n_rows_ == whole.n_rows_ == 300
    np.testing.assert_array_equal(parts.components_, whole.components_)


@all_trackers
def test_reading_the_components_changes_nothing(make: Callable[[], SubspaceTracker]) -> None:
    rows, reader = stream(), make()
    reader.partial_fit(rows[:100]).components_[:] = 0.0
    reader.partial_fit(rows[100:])
    np.testing.assert_array_equal(reader.components_, make().partial_fit(rows).components_)


@all_trackers
def test_the_callers_rows_are_neither_kept_nor_changed(make: Callable[[], SubspaceTracker]) -> None:
    rows = stream()
    given = rows.copy()
    tracker = make().partial_fit(given[:150])
    np.testing.assert_array_equal(given, rows)
    given[:150] = 1.0
    np.testing.assert_array_equal(
        tracker.partial_fit(given[150:]).components_, make().partial_fit(rows).components_
    )


@all_trackers
def test_rows_are_not_centred(make: Callable[[], SubspaceTracker]) -> None:
    mean = np.full(D, 10.0)
    components = make().partial_fit(stream() / 10 + mean).components_
    # the mean is the principal direction of rows taken as given
    assert np.linalg.norm(components @ mean) > 0.999 * np.linalg.norm(mean)


@all_trackers
def test_other_dtypes_layouts_and_lists_give_the_same_bits(
    make: Callable[[], SubspaceTracker],
) -> None:
    rows = np.round(10 * stream()).astype(np.int64)
    expected = make().partial_fit(rows.astype(np.float64)).components_
    others: list[Any] = [rows, rows.astype(np.float32), rows.tolist(), np.asfortranarray(rows)]
    for other in others:
        np.testing.assert_array_equal(make().partial_fit(other).components_, expected)


@all_trackers
def test_rows_of_zeros_leave_a_valid_basis(make: Callable[[], SubspaceTracker]) -> None:
    components = make().partial_fit(np.zeros((50, D))).components_
    np.testing.assert_allclose(components @ components.T, np.eye(len(components)), atol=1e-13)


@all_trackers
@pytest.mark.parametrize("scale", [1e-60, 1e58])
def test_extreme_scales_leave_a_valid_basis(
    make: Callable[[], SubspaceTracker], scale: float
) -> None:
    components = make().partial_fit(scale * stream()).components_
    np.testing.assert_allclose(components @ components.T, np.eye(len(components)), atol=1e-10)


@all_trackers
def test_as_many_components_as_features(make: Callable[[], SubspaceTracker]) -> None:
    tracker = make().partial_fit(stream()[:, :3])
    k = len(tracker.components_)
    assert k == 3 or isinstance(tracker, Spirit)
    gram = tracker.components_ @ tracker.components_.T
    np.testing.assert_allclose(gram, np.eye(k), atol=1e-13)


@all_trackers
def test_components_before_any_rows_are_refused(make: Callable[[], SubspaceTracker]) -> None:
    with pytest.raises(InputError, match=r"components_ needs at least 1 row and \w+ has seen 0\."):
        _ = make().components_


@all_trackers
def test_a_change_of_features_is_refused(make: Callable[[], SubspaceTracker]) -> None:
    tracker = make().partial_fit(stream())
    with pytest.raises(InputError, match="X has 6 features and must have 7"):
        tracker.partial_fit(stream()[:, :6])


@all_trackers
def test_more_components_than_features_are_refused(make: Callable[[], SubspaceTracker]) -> None:
    with pytest.raises(InputError, match="n_components=3 must be at most 2, the number of feature"):
        make().partial_fit(stream()[:, :2])


BAD_BLOCKS: dict[str, tuple[Any, str]] = {
    "one_dimension": (np.ones(D), r"X has shape \(7,\) and must be a table"),
    "three_dimensions": (np.ones((2, 2, D)), r"X has shape \(2, 2, 7\) and must be a table"),
    "no_rows": (np.ones((0, D)), r"X has shape \(0, 7\) and must be a table"),
    "no_columns": (np.ones((3, 0)), r"X has shape \(3, 0\) and must be a table"),
    "text": ([["a"] * D], "X has dtype <U1 and must hold real numbers"),
    "objects": (np.full((2, D), None), "X has dtype object and must hold real numbers"),
    "complex": (np.full((2, D), 1j), "X has dtype complex128 and must hold real numbers"),
    "infinity": (np.full((2, D), np.inf), "X must have magnitudes of at most 1e"),
    "too_large": (np.full((2, D), -1e61), "X must have magnitudes of at most 1e"),
}


@all_trackers
@pytest.mark.parametrize(("block", "message"), BAD_BLOCKS.values(), ids=BAD_BLOCKS.keys())
def test_bad_blocks_are_refused_and_change_nothing(
    make: Callable[[], SubspaceTracker], block: Any, message: str
) -> None:
    rows, tracker = stream(), make()
    for part in np.split(rows, 2):
        with pytest.raises(InputError, match=message):
            tracker.partial_fit(block)
        tracker.partial_fit(part)
    np.testing.assert_array_equal(tracker.components_, make().partial_fit(rows).components_)


@pytest.mark.parametrize("name", ["frequent_directions", "power_stream", "spirit"])
def test_missing_entries_are_refused_where_they_have_no_meaning(name: str) -> None:
    rows = stream()
    rows[5, 3] = np.nan
    with pytest.raises(InputError, match="X must not contain NaN"):
        FACTORIES[name]().partial_fit(rows)


@pytest.mark.parametrize("make", [FrequentDirections, Grouse, PowerStream, Spirit])
@pytest.mark.parametrize("value", [0, -1, 2.0, True, None, "3"])
def test_bad_numbers_of_components_are_refused(
    make: Callable[[Any], SubspaceTracker], value: Any
) -> None:
    with pytest.raises(InputError, match=r"n_components=.* must be an integer of at least 1"):
        make(value)


@pytest.mark.parametrize("make", [Grouse, PowerStream])
def test_the_seed_decides_the_result(make: Callable[..., SubspaceTracker]) -> None:
    def components(random_state: int | None) -> Array:
        return make(3, random_state=random_state).partial_fit(stream(20)).components_

    np.testing.assert_array_equal(components(5), components(5))
    assert not np.array_equal(components(5), components(6))
    assert not np.array_equal(components(None), components(None))


@pytest.mark.parametrize("make", [Grouse, PowerStream])
@pytest.mark.parametrize("value", [-1, 0.5, True])
def test_bad_seeds_are_refused(make: Callable[..., SubspaceTracker], value: Any) -> None:
    with pytest.raises(InputError, match=r"random_state=.* must be an integer of at least 0"):
        make(3, random_state=value)
