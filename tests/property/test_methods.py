"""What holds of every method in the registry."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from eigenfed.arrays import Array
from eigenfed.protocol.method import (
    all_methods,
    find_method,
    option_defaults,
    option_types,
    read_option,
)
from methods import check_against_pooled

METHODS = tuple(all_methods())


def tables(seed: int, n: int, d: int, sites: int) -> dict[str, Array]:
    rng = np.random.default_rng(seed)
    X = rng.standard_normal((n, d)) * 0.5 ** np.arange(d) + rng.standard_normal(d)
    return {f"s{i}": part for i, part in enumerate(np.array_split(X, sites))}


@pytest.mark.parametrize("name", METHODS)
@given(
    seed=st.integers(0, 10**6), n=st.integers(30, 90), d=st.integers(4, 12), sites=st.integers(1, 5)
)
@settings(max_examples=10)
def test_a_certificate_holds_against_all_rows_in_one_place(
    name: str, seed: int, n: int, d: int, sites: int
) -> None:
    check_against_pooled(find_method(name), tables(seed, n, d, sites), 2)


@pytest.mark.parametrize("name", METHODS)
def test_what_needs_sums_only_runs_in_secure_sums(name: str) -> None:
    method = find_method(name)
    if method.sums_only():
        check_against_pooled(method, tables(0, 60, 8, 3), 2, secure=True)


@pytest.mark.parametrize("name", METHODS)
def test_a_method_says_what_others_show_of_it(name: str) -> None:
    cls = all_methods()[name]
    assert cls.name == name
    assert cls.summary.strip() == cls.summary
    assert 10 < len(cls.summary) <= 80
    assert "\n" not in cls.summary
    defaults = option_defaults(cls)
    assert set(defaults) == set(option_types(cls))
    for option, value in defaults.items():
        assert read_option(cls, option, str(value)) == value
