"""Columns are matched by name, never by position, and faults are told by name."""

import re
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from eigenfed import FederatedPCA, StreamingPCA
from eigenfed.errors import InputError
from eigenfed.estimators.inputs import align_columns, check_names

MARK = 987654.321
REMEDY = "Bring the {} columns that were there first, in any order."


def exactly(message: str) -> str:
    return f"^{re.escape(message)}$"


@pytest.fixture(params=[pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def frame(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.mark.parametrize(
    "X", [np.eye(2), [[1.0, 2.0]], scipy.sparse.csr_array(np.eye(2)), None, "text"], ids=repr
)
@pytest.mark.parametrize("names", [None, ["a", "b"]])
def test_what_has_no_columns_stays_as_it_is(X: Any, names: list[str] | None) -> None:
    assert align_columns(X, names) is X


def test_a_frame_stays_as_it_is_where_no_names_are_known(frame: Any) -> None:
    X = frame({"b": [1.0], "a": [2.0]})
    assert align_columns(X, None) is X


@pytest.mark.parametrize("as_type", [list, tuple, np.array])
def test_a_frame_in_the_right_order_stays_as_it_is(frame: Any, as_type: Any) -> None:
    X = frame({"b": [1.0], "a": [2.0]})
    assert align_columns(X, as_type(["b", "a"])) is X


def test_columns_are_put_into_the_order_of_the_names_with_their_values(frame: Any) -> None:
    X = frame({"c": [3.0, 6.0], "a": [1.0, 4.0], "b": [2.0, 5.0]})
    names: Any = np.array(["a", "b", "c"], dtype=object)
    ordered = align_columns(X, names)
    assert list(ordered.columns) == ["a", "b", "c"]
    np.testing.assert_array_equal(ordered.to_numpy(), [[1.0, 2.0, 3.0], [4.0, 5.0, 6.0]])
    assert list(X.columns) == ["c", "a", "b"]


def test_a_column_that_comes_twice_is_refused_also_where_no_names_are_known() -> None:
    X = pd.DataFrame([[MARK, 1.0, 2.0, 3.0, 4.0]], columns=["b", "a", "b", "c", "a"])
    message = "X has the columns 'a', 'b' more than once. Rename or drop them."
    for names in (None, ["a", "b", "c"]):
        with pytest.raises(InputError, match=exactly(message)) as caught:
            align_columns(X, names)
        assert "987654" not in str(caught.value)


@pytest.mark.parametrize(
    ("columns", "fault"),
    [
        (["a", "b"], "lacks the columns 'c'"),
        (["b"], "lacks the columns 'a', 'c'"),
        (["a", "b", "c", "d"], "has the unknown columns 'd'"),
        (["e", "a", "b", "c", "d"], "has the unknown columns 'd', 'e'"),
        (["a", "b", "C"], "lacks the columns 'c' and has the unknown columns 'C'"),
    ],
)
def test_a_frame_of_other_columns_is_refused_by_name(
    frame: Any, columns: list[str], fault: str
) -> None:
    X = frame({name: [MARK] for name in columns})
    with pytest.raises(InputError, match=exactly(f"X {fault}. {REMEDY.format(3)}")) as caught:
        align_columns(X, ["a", "b", "c"])
    assert "987654" not in str(caught.value)


def test_the_subject_of_a_fault_is_the_one_given() -> None:
    message = f"other lacks the columns 'b' and has the unknown columns 'c'. {REMEDY.format(2)}"
    with pytest.raises(InputError, match=exactly(message)):
        check_names("other", ["a", "c"], ["a", "b"])


def test_names_in_another_order_are_no_fault() -> None:
    check_names("X", ["b", "a"], ["a", "b"])


@pytest.mark.parametrize(
    ("count", "more"), [(4, ""), (5, ""), (6, " and 1 more"), (9, " and 4 more")]
)
def test_at_most_five_names_are_listed(count: int, more: str) -> None:
    names = [f"x{i}" for i in range(count)]
    listed = ", ".join(f"'x{i}'" for i in range(min(count, 5))) + more
    message = f"X lacks the columns {listed}. {REMEDY.format(count)}"
    with pytest.raises(InputError, match=exactly(message)):
        check_names("X", [], names)


def test_names_that_are_no_strings_are_listed_as_text() -> None:
    message = f"X has the unknown columns '(7, 1)', 'c'. {REMEDY.format(1)}"
    with pytest.raises(InputError, match=exactly(message)):
        check_names("X", ["a", (7, 1), "c"], ["a"])


@pytest.mark.parametrize(
    "types",
    [
        dict.fromkeys("abcd", "Int64"),
        dict.fromkeys("abcd", "Float64"),
        dict.fromkeys("abcd", "float64[pyarrow]"),
        {"a": "Int64", "b": "Float64", "c": "float32", "d": "int16"},
        dict.fromkeys("abcd", object),
    ],
    ids=str,
)
def test_columns_of_all_numeric_types_of_pandas_make_sites(types: Any) -> None:
    rows = np.round(10.0 * np.random.default_rng(0).standard_normal((50, 4)))
    plain = pd.DataFrame(rows, columns=list("abcd"))
    plain.loc[3, "b"] = np.nan
    plain["flag"] = rows[:, 0] > 0
    typed = plain.astype({**types, "flag": "boolean"})
    found = FederatedPCA(2).fit_sites({"u": typed[:20], "v": typed[20:]})
    wanted = FederatedPCA(2).fit(plain.astype(float))
    np.testing.assert_allclose(found.components_, wanted.components_, atol=1e-12)
    assert found.feature_names_in_.tolist() == plain.columns.tolist()


@pytest.mark.parametrize(
    ("convert", "message"),
    [
        (pl.DataFrame.lazy, "X is a LazyFrame and must hold rows. Pass X.collect()."),
        (
            pl.DataFrame.to_arrow,
            "X has columns and type Table, and must be a DataFrame of pandas or polars, or an "
            "array. Convert it first.",
        ),
    ],
)
def test_other_frames_are_refused_where_they_come_in(convert: Any, message: str) -> None:
    rows = pl.DataFrame({"a": [1.0, 2.0, 4.0], "b": [3.0, 5.0, 4.0]})
    pca, other = FederatedPCA(1), convert(rows)
    with pytest.raises(InputError, match=exactly(message)):
        pca.fit(other)
    with pytest.raises(InputError, match=exactly(f"Site 'a': {message}")):
        pca.fit_sites({"a": other})
    pca.fit(rows)
    with pytest.raises(InputError, match=exactly(message)):
        pca.transform(other)
    stream = StreamingPCA(1).partial_fit(rows)
    with pytest.raises(InputError, match=exactly(message)):
        stream.partial_fit(other)
