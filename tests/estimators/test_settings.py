"""Constructor arguments: what they mean for the stream, and what is refused."""

import math
import re
from decimal import Decimal
from typing import Any

import numpy as np
import pytest

from eigenfed.errors import InputError
from eigenfed.estimators.streaming import StreamingPCA
from eigenfed.estimators.validation import stream_settings
from eigenfed.linalg.stream import StreamSettings


def settings(d: int = 600, **changes: Any) -> StreamSettings:
    return stream_settings({**StreamingPCA().get_params(), **changes}, d)


def assert_refused(message: str, **changes: Any) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        settings(**changes)


def test_defaults_keep_two_of_at_least_ten_directions() -> None:
    found = settings()
    assert found == StreamSettings(
        k=2, oversample=None, centered=True, forgetting=1.0, exact=False, energy=None
    )


def test_arguments_reach_the_stream() -> None:
    found = settings(
        n_components=5,
        oversample=3,
        center=False,
        forgetting=0.9,
        rank="adaptive",
        energy=[0.02, 0.2],
        memory="gram",
    )
    assert found == StreamSettings(
        k=5, oversample=3, centered=False, forgetting=0.9, exact=True, energy=(0.02, 0.2)
    )


def test_numpy_numbers_become_plain_ones() -> None:
    found = settings(n_components=np.int64(3), oversample=np.uint8(0), forgetting=np.float32(0.5))
    assert (found.k, found.oversample, found.forgetting) == (3, 0, 0.5)
    assert [type(value) for value in (found.k, found.oversample, found.forgetting)] == [
        int,
        int,
        float,
    ]


@pytest.mark.parametrize(
    ("d", "changes", "exact"),
    [
        (1, {"n_components": 1}, True),
        (512, {}, True),
        (513, {}, False),
        (640, {"n_components": 40}, True),
        (641, {"n_components": 40}, False),
        (520, {"oversample": 63}, True),
        (521, {"oversample": 63}, False),
        (512, {"rank": "adaptive"}, False),
        (512, {"memory": "low_rank"}, False),
        (5000, {"memory": "gram"}, True),
        (5000, {"memory": "gram", "rank": "adaptive"}, True),
        (5000, {}, False),
    ],
)
def test_few_features_are_kept_exactly(d: int, changes: dict[str, Any], exact: bool) -> None:
    assert settings(d, **changes).exact is exact


@pytest.mark.parametrize("value", ["Fixed", "", None, 1, ["fixed"]])
def test_an_unknown_rank_is_refused(value: Any) -> None:
    assert_refused(
        f"rank={value!r} must be one of 'fixed', 'adaptive'. Pass one of them.", rank=value
    )


@pytest.mark.parametrize("value", ["exact", "", None, 0, True])
def test_an_unknown_memory_is_refused(value: Any) -> None:
    assert_refused(
        f"memory={value!r} must be one of 'auto', 'low_rank', 'gram'. Pass one of them.",
        memory=value,
    )


@pytest.mark.parametrize("value", [0, -1, 2.0, 1.0, 0.0, "2", True, math.nan, np.float64(2.0)])
def test_what_is_no_number_of_components_is_refused(value: Any) -> None:
    assert_refused(
        f"n_components={value!r} must be an integer of at least 1, a fraction of the variance "
        "between 0 and 1, None, 'all' or 'auto'. Pass one of them.",
        n_components=value,
    )


def test_more_components_than_features_are_refused() -> None:
    assert settings(3, n_components=3).k == 3
    assert_refused(
        "n_components=4 must be at most 3, the number of features (n_features=3). "
        "Lower n_components.",
        d=3,
        n_components=4,
    )


@pytest.mark.parametrize("value", [-1, 1.0, "1", False, math.inf])
def test_what_is_no_oversampling_is_refused(value: Any) -> None:
    assert_refused(
        f"oversample={value!r} must be an integer of at least 0. "
        "Pass None to track twice n_components.",
        oversample=value,
    )


@pytest.mark.parametrize("value", [1, 1.0, 0.5, 5e-324, np.float64(0.25)])
def test_forgetting_lies_above_zero_and_reaches_one(value: Any) -> None:
    assert settings(forgetting=value).forgetting == value


@pytest.mark.parametrize(
    "value", [0, 0.0, -0.1, 1.1, 2, math.nan, math.inf, None, "1", Decimal("0.5"), 1j, True]
)
def test_what_is_no_forgetting_is_refused(value: Any) -> None:
    assert_refused(
        f"forgetting={value!r} must be a number above 0 and at most 1. Pass 1.0 to forget nothing.",
        forgetting=value,
    )


@pytest.mark.parametrize("value", [0, 1, None, "yes", np.True_])
def test_a_center_that_is_no_bool_is_refused(value: Any) -> None:
    assert_refused(f"center={value!r} must be True or False. Pass one of them.", center=value)


@pytest.mark.parametrize("value", [None, 0, 2**32 - 1, np.random.RandomState(0)])
def test_every_random_state_of_scikit_learn_is_accepted(value: Any) -> None:
    assert settings(random_state=value) == settings()


@pytest.mark.parametrize("value", ["seed", 1.5, -1, 2**32, 10**400, object()])
def test_what_is_no_random_state_is_refused(value: Any) -> None:
    assert_refused(
        f"random_state={value!r} must be None, an integer or a numpy RandomState. "
        "Pass one of them.",
        random_state=value,
    )


@pytest.mark.parametrize("value", [(0.01, 0.1), [0.2, 0.9], np.array([1e-9, 0.5]), (0.5, 0.75)])
def test_energy_bounds_are_two_shares_in_order(value: Any) -> None:
    assert settings(rank="adaptive", energy=value).energy == tuple(value)


@pytest.mark.parametrize(
    "value",
    [
        (0.1, 0.01),
        (0.1, 0.1),
        (0.0, 0.1),
        (-0.1, 0.1),
        (0.1, 1.0),
        (1, 10),
        (0.1,),
        (0.01, 0.1, 0.2),
        (),
        0.1,
        None,
        "ab",
        (None, 0.1),
        (math.nan, 0.1),
        (0.1, math.nan),
        ("0.01", "0.1"),
        (0.1, 10**400),
    ],
    ids=repr,
)
def test_what_are_no_energy_bounds_is_refused(value: Any) -> None:
    assert_refused(
        f"energy={value!r} must be two numbers with 0 < lower < upper < 1. "
        "Pass (0.01, 0.10) for the bounds of one and ten percent.",
        rank="adaptive",
        energy=value,
    )


def test_energy_bounds_do_not_matter_where_the_rank_is_fixed() -> None:
    assert settings(energy=(0.3, 0.4)).energy is None
    with pytest.raises(InputError, match="energy='anything' must be two numbers"):
        settings(energy="anything")


@pytest.mark.parametrize(
    "changes",
    [{"forgetting": 10**400}, {"rank": "adaptive", "energy": (0.01, 10**400)}],
    ids=["forgetting", "energy"],
)
def test_an_int_beyond_the_range_of_floats_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(InputError):
        settings(**changes)
