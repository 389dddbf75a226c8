"""Data given to an estimator is checked, and what is refused is never quoted."""

import re
from datetime import date
from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
import scipy.sparse

from eigenfed.data.source import stored
from eigenfed.errors import InputError
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.estimators.streaming import StreamingPCA
from eigenfed.estimators.validation import validate_rows
from eigenfed.linalg.checks import is_bounded

MARK = 987654.321
TEXT = "canary 987654"

COMPLEX = "Complex data not supported: X must hold real numbers. Pass the real part."
DIMENSIONS = (
    "X must have 2 dimensions, rows and features. Reshape your data with X.reshape(1, -1) "
    "if it is one record."
)
INFINITY = (
    "X holds infinity or a number too large for its dtype, and must be finite or NaN. "
    "Drop or clip those entries."
)
NAN = (
    "X holds NaN, which is imputed by the mean, and center=False keeps none. "
    "Impute it first or pass center=True."
)
WORDS = "X holds text and must hold numbers. Convert or drop those columns."
COLUMN = "X has columns that do not hold numbers: 'a'. Convert or drop them."
TOO_LARGE = "The block holds numbers too large to square in float64. Rescale it to below 1e150."


def first(X: Any, **params: Any) -> Any:
    return validate_rows(StreamingPCA(**params), X, reset=True)


def assert_refused(X: Any, message: str, **params: Any) -> None:
    """Check the whole message, and that it quotes nothing, not even in what it came from."""
    with pytest.raises(InputError, match=f"^{re.escape(message)}$") as caught:
        first(X, **params)
    assert "987654" not in str(caught.value)
    assert "canary" not in str(caught.value)
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (np.float64, np.float64),
        (np.float32, np.float32),
        (np.float16, np.float64),
        (np.int8, np.float64),
        (np.uint64, np.float64),
        (bool, np.float64),
        (object, np.float64),
    ],
)
def test_real_numbers_become_double_unless_they_are_single(
    given: npt.DTypeLike, expected: npt.DTypeLike
) -> None:
    checked = first(np.array([[0, 1], [1, 1]], dtype=given))
    assert checked.dtype == expected
    np.testing.assert_array_equal(checked, [[0.0, 1.0], [1.0, 1.0]])


def test_lists_and_frames_become_arrays() -> None:
    for X in ([[1, 2], [3, 4]], pd.DataFrame([[1, 2], [3, 4]]), pl.DataFrame([[1, 3], [2, 4]])):
        checked = first(X)
        assert type(checked) is np.ndarray
        np.testing.assert_array_equal(checked, [[1.0, 2.0], [3.0, 4.0]])


@pytest.mark.parametrize(
    "kind",
    [
        scipy.sparse.csr_array,
        scipy.sparse.csr_matrix,
        scipy.sparse.csc_array,
        scipy.sparse.coo_array,
        scipy.sparse.lil_array,
        scipy.sparse.dok_array,
    ],
)
def test_sparse_input_becomes_sparse_rows(kind: Any) -> None:
    checked = first(kind(np.diag([1.0, 2.0])))
    assert checked.format == "csr"
    np.testing.assert_array_equal(checked.toarray(), np.diag([1.0, 2.0]))


def test_nan_is_accepted_where_it_is_imputed() -> None:
    given = np.array([[np.nan, 1.0], [2.0, np.nan]])
    np.testing.assert_array_equal(first(given), given)
    np.testing.assert_array_equal(first(scipy.sparse.csr_array(given)).toarray(), given)
    np.testing.assert_array_equal(
        first(pd.DataFrame({"a": pd.array([1, None], "Int64")})), [[1], [np.nan]]
    )


@pytest.mark.parametrize("as_type", [np.array, scipy.sparse.csr_array, pd.DataFrame])
def test_nan_is_refused_where_there_is_no_mean(as_type: Any) -> None:
    assert_refused(as_type([[MARK, np.nan]]), NAN, center=False)


def test_the_first_batch_sets_the_features() -> None:
    pca = StreamingPCA()
    validate_rows(pca, pd.DataFrame({"b": [1.0], "a": [2.0]}), reset=True)
    assert pca.n_features_in_ == 2
    assert list(pca.feature_names_in_) == ["b", "a"]


@pytest.mark.parametrize("frame", [pd.DataFrame, pl.DataFrame], ids=["pandas", "polars"])
def test_later_frames_are_aligned_by_name(frame: Any) -> None:
    pca = StreamingPCA()
    validate_rows(pca, frame({"b": [1.0], "a": [2.0]}), reset=True)
    checked = validate_rows(pca, frame({"a": [4.0], "b": [3.0]}), reset=False)
    np.testing.assert_array_equal(checked, [[3.0, 4.0]])


def test_a_new_first_batch_forgets_the_names_of_the_old_one() -> None:
    pca = StreamingPCA()
    validate_rows(pca, pd.DataFrame({"b": [1.0], "a": [2.0]}), reset=True)
    validate_rows(pca, pd.DataFrame({"x": [1.0], "y": [2.0], "z": [3.0]}), reset=True)
    assert list(pca.feature_names_in_) == ["x", "y", "z"]


def test_a_later_frame_of_other_columns_is_refused_by_name() -> None:
    pca = StreamingPCA()
    validate_rows(pca, pd.DataFrame({"a": [1.0], "b": [2.0]}), reset=True)
    message = (
        "X lacks the columns 'b' and has the unknown columns 'c'. "
        "Bring the 2 columns that were there first, in any order."
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        validate_rows(pca, pd.DataFrame({"a": [MARK], "c": [MARK]}), reset=False)


@pytest.mark.parametrize("as_type", [np.array, scipy.sparse.csr_array])
def test_a_later_batch_of_another_width_is_refused(as_type: Any) -> None:
    pca = StreamingPCA()
    validate_rows(pca, np.ones((1, 2)), reset=True)
    message = (
        "X has 3 features, but StreamingPCA is expecting 2 features as input. "
        "Pass the features that it was fitted with."
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$") as caught:
        validate_rows(pca, as_type([[MARK, 1.0, 2.0]]), reset=False)
    assert "987654" not in str(caught.value)


@pytest.mark.parametrize("X", [MARK, [MARK, 1.0], np.full(3, MARK), pl.Series([MARK])], ids=repr)
def test_what_has_not_two_dimensions_is_refused(X: Any) -> None:
    assert_refused(X, DIMENSIONS)


@pytest.mark.parametrize(
    "X",
    [
        np.array([[MARK + 1j]]),
        scipy.sparse.csr_array(np.array([[MARK + 1j]])),
        pd.DataFrame({"a": [MARK + 1j]}),
    ],
    ids=["array", "sparse", "frame"],
)
def test_complex_numbers_are_refused(X: Any) -> None:
    assert_refused(X, COMPLEX)


@pytest.mark.parametrize("entry", [np.inf, -np.inf])
@pytest.mark.parametrize("center", [True, False])
@pytest.mark.parametrize("as_type", [np.array, scipy.sparse.csr_array, pd.DataFrame, np.float32])
def test_infinity_is_refused(entry: float, center: bool, as_type: Any) -> None:
    assert_refused(as_type([[MARK, entry]]), INFINITY, center=center)


@pytest.mark.parametrize(
    "X",
    [
        [[TEXT, "1"]],
        np.array([[TEXT, "1"]]),
        np.array([[TEXT.encode(), b"1"]]),
        np.array([[TEXT, 1.0]], dtype=object),
        [["is expecting canary", "1"]],
        pd.DataFrame({"a": [TEXT], "b": [1.0]}),
        pd.DataFrame({"a": pd.array([TEXT], dtype="string")}),
        pd.DataFrame({"a": pd.Categorical([TEXT])}),
        pl.DataFrame({"a": [TEXT], "b": [MARK]}),
        TEXT,
    ],
    ids=[
        "list",
        "array",
        "bytes",
        "object",
        "sly",
        "pandas",
        "pandas string",
        "category",
        "polars",
        "str",
    ],
)
def test_text_is_refused_unquoted(X: Any) -> None:
    assert_refused(X, COLUMN if hasattr(X, "columns") else WORDS)


@pytest.mark.parametrize(
    ("X", "pattern"),
    [
        (np.full((2, 2, 2), MARK), r"^Found array with dim 3, while dim <= 2 is required"),
        (np.zeros((0, 3)), r"^Found array with 0 sample\(s\) .*minimum of 1 is required"),
        (np.zeros((3, 0)), r"^Found array with 0 feature\(s\) .*minimum of 1 is required"),
        (pd.Series([MARK]), r"^Expected a 2-dimensional container but got .*Series"),
    ],
    ids=["three dimensions", "no rows", "no features", "series"],
)
def test_texts_of_scikit_learn_that_quote_nothing_pass_through(X: Any, pattern: str) -> None:
    with pytest.raises(InputError, match=pattern) as caught:
        first(X)
    assert "987654" not in str(caught.value)


@pytest.mark.parametrize(
    "X",
    [
        np.array([[{"canary": MARK}]], dtype=object),
        pd.DataFrame({"a": pd.to_datetime(["2026-01-01"]), "b": [MARK]}),
        {"canary": [MARK]},
        [[MARK, MARK + 1j]],
        np.array([[date(2026, 1, 1), MARK]], dtype=object),
    ],
    ids=["objects", "dates beside numbers", "dict", "complex in a list", "date objects"],
)
def test_objects_of_other_types_are_refused_unquoted(X: Any) -> None:
    with pytest.raises((InputError, TypeError)) as caught:
        first(X)
    for quoted in ("987654", "canary", "2026"):
        assert quoted not in str(caught.value)


def test_a_column_that_comes_twice_is_refused() -> None:
    message = "X has the columns 'a' more than once. Rename or drop them."
    with pytest.raises(InputError, match=f"^{re.escape(message)}$") as caught:
        first(pd.DataFrame([[MARK, 1.0]], columns=["a", "a"]))
    assert "987654" not in str(caught.value)


@pytest.mark.parametrize("as_type", [np.array, scipy.sparse.csr_array, pd.DataFrame])
def test_numbers_too_large_to_square_are_refused(as_type: Any) -> None:
    with pytest.raises(InputError, match=f"^{re.escape(TOO_LARGE)}$") as caught:
        first(as_type([[MARK, 1e155]]))
    assert "987654" not in str(caught.value)


@pytest.mark.parametrize(
    ("values", "bounded"),
    [
        ([0.0, -1.0], True),
        ([1e150, -1e150], True),
        ([1e155], False),
        ([-1e155], False),
        ([np.nan, 1.0], True),
        ([np.nan, 1e150], True),
        ([np.nan, 1.1e150], False),
        ([], True),
        ([[1.0, 2.0], [3.0, 1e200]], False),
    ],
)
def test_bounded_values_can_be_squared_and_summed(values: Any, bounded: bool) -> None:
    assert is_bounded(np.array(values)) is bounded


@pytest.mark.parametrize("values", [[3e38, -3e38], [np.nan, 1.0]], ids=["large", "gaps"])
def test_single_precision_is_bounded_also_where_its_own_squares_are_not(
    values: list[float],
) -> None:
    assert is_bounded(np.array(values, dtype=np.float32))


def test_stored_values_are_the_explicit_ones() -> None:
    dense = np.array([[0.0, 3.0], [0.0, 0.0]])
    assert stored(dense) is dense
    np.testing.assert_array_equal(stored(scipy.sparse.csr_array(dense)), [3.0])


@pytest.mark.parametrize(
    ("X", "pattern"),
    [
        (
            [[MARK, 1.0], [MARK]],
            r"^X has rows of different lengths and must be a table\. Give every",
        ),
        ([[10**400, 1.0], [MARK, 2.0]], r"^X holds infinity or a number too large for its dtype"),
        (
            np.ma.masked_equal([[MARK, 1.0]], 1.0),
            r"^X has masked entries, and masks are not supported",
        ),
    ],
    ids=["ragged", "huge", "masked"],
)
def test_what_would_be_lost_or_cannot_be_a_table_is_refused(X: Any, pattern: str) -> None:
    with pytest.raises(InputError, match=pattern) as caught:
        first(X)
    assert "987654" not in str(caught.value)


def test_a_masked_array_with_nothing_masked_is_an_array() -> None:
    assert first(np.ma.masked_greater([[1.0, 2.0]], 5.0)).shape == (1, 2)


def test_aligned_rows_need_no_names_and_are_checked_as_others() -> None:
    frame = pd.DataFrame(np.arange(12.0).reshape(4, 3) ** 2, columns=["a", "b", "c"])
    pca = FederatedPCA(1).fit(frame)
    np.testing.assert_array_equal(pca.transform_aligned(frame.to_numpy()), pca.transform(frame))
    with pytest.raises(InputError, match="X holds infinity"):
        pca.transform_aligned(np.full((1, 3), np.inf))
    with pytest.raises(InputError, match=r"too large|beyond|above"):
        pca.transform_aligned(np.full((1, 3), 1e200))


@pytest.mark.parametrize(
    ("scores", "message"),
    [
        ([MARK, 1.0], DIMENSIONS),
        ([[MARK, np.nan]], "X holds NaN or infinity and must be finite. Drop those rows."),
        ([[TEXT, "b"]], WORDS),
        ([[MARK, 1.0, 2.0]], "X has 3 columns and must have 2, one for each component"),
    ],
)
def test_scores_that_are_refused_are_never_quoted(scores: Any, message: str) -> None:
    pca = FederatedPCA(2).fit(np.random.default_rng(0).standard_normal((20, 4)))
    with pytest.raises(InputError, match=re.escape(message)) as caught:
        pca.inverse_transform(scores)
    assert "987654" not in str(caught.value)
