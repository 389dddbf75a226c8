"""StreamingPCA against the PCA of all rows at once."""

import pickle

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.decomposition import PCA, IncrementalPCA
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from eigenfed import EigenfedError, InputError, StreamingPCA, Summary
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines
from oracles import pooled

MEMORIES = ("auto", "low_rank", "gram")


def rows(n: int = 500, d: int = 12, *, offset: float = 3.0, seed: int = 0) -> Array:
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    X: Array = (rng.standard_normal((n, d)) / np.arange(1, d + 1)) @ basis + offset
    return X


def assert_same_state(a: StreamingPCA, b: StreamingPCA) -> None:
    for name in ("components_", "singular_values_", "mean_", "explained_variance_ratio_"):
        np.testing.assert_array_equal(getattr(a, name), getattr(b, name))


@parametrize_with_checks(  # type: ignore[untyped-decorator]
    [
        StreamingPCA(),
        StreamingPCA(memory="low_rank"),
        StreamingPCA(memory="gram", center=False, forgetting=0.99),
        StreamingPCA(rank="adaptive"),
    ],
    expected_failed_checks=lambda estimator: (
        {
            "check_sample_weight_equivalence_on_dense_data": (
                "forgetting counts rows: a row given twice is two rows old to the one before it"
            ),
            "check_sample_weight_equivalence_on_sparse_data": (
                "forgetting counts rows: a row given twice is two rows old to the one before it"
            ),
        }
        if estimator.forgetting < 1.0
        else {}
    ),
)
def test_scikit_learn_contract(estimator: StreamingPCA, check: object) -> None:
    assert callable(check)
    check(estimator)


@pytest.mark.parametrize("memory", MEMORIES)
def test_equals_pooled_pca(memory: str) -> None:
    X = rows()
    exact = PCA(5).fit(X)
    ours = StreamingPCA(5, memory=memory)
    for batch in np.array_split(X, 23):
        ours.partial_fit(batch)
    assert sines(ours.components_, exact.components_)[0] < 1e-8
    np.testing.assert_allclose(ours.components_, exact.components_, atol=1e-8)
    for name in (
        "explained_variance_",
        "explained_variance_ratio_",
        "singular_values_",
        "mean_",
        "noise_variance_",
    ):
        np.testing.assert_allclose(getattr(ours, name), getattr(exact, name), rtol=1e-9)
    np.testing.assert_allclose(ours.transform(X), exact.transform(X), atol=1e-7)
    np.testing.assert_allclose(
        ours.inverse_transform(ours.transform(X)),
        exact.inverse_transform(exact.transform(X)),
        atol=1e-7,
    )
    assert ours.n_samples_seen_ == 500


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("forgetting", [1.0, 0.98])
@pytest.mark.parametrize("sizes", [[1] * 300, [300], [7, 150, 1, 142], [100] * 3])
def test_batches_change_nothing_to_the_last_bit(
    memory: str, forgetting: float, sizes: list[int]
) -> None:
    X = rows(300, 40)
    whole = StreamingPCA(3, memory=memory, forgetting=forgetting).fit(X)
    parts = StreamingPCA(3, memory=memory, forgetting=forgetting)
    for batch in np.split(X, np.cumsum(sizes)[:-1]):
        parts.partial_fit(batch)
        parts.components_  # noqa: B018  # reading must not move the internal blocks
    assert_same_state(whole, parts)


@pytest.mark.parametrize("memory", MEMORIES)
def test_forgetting_is_a_weight_by_age_in_rows(memory: str) -> None:
    X = rows(400, 8)
    forgetting = 0.97
    ours = StreamingPCA(3, memory=memory, forgetting=forgetting)
    for batch in np.array_split(X, 17):
        ours.partial_fit(batch)
    ages = np.arange(399, -1, -1.0)
    exact = pooled(X, forgetting**ages)
    np.testing.assert_allclose(ours.summary_.n, exact.n, rtol=1e-12)
    np.testing.assert_allclose(ours.mean_, exact.mean, rtol=1e-9)
    np.testing.assert_allclose(ours.singular_values_, exact.s[:3], rtol=1e-9)
    assert sines(ours.components_, exact.vt[:3])[0] < 1e-8


def test_forgetting_follows_a_change() -> None:
    before, after = np.zeros((2000, 20)), np.zeros((500, 20))
    rng = np.random.default_rng(3)
    before[:, 0], after[:, 5] = rng.standard_normal(2000) * 10, rng.standard_normal(500)
    kept = StreamingPCA(1).partial_fit(before).partial_fit(after)
    faded = StreamingPCA(1, forgetting=0.98).partial_fit(before).partial_fit(after)
    assert np.argmax(np.abs(kept.components_[0])) == 0
    assert np.argmax(np.abs(faded.components_[0])) == 5


@pytest.mark.parametrize("memory", MEMORIES)
def test_weights_stand_for_repeated_rows(memory: str) -> None:
    X = rows(120, 6)
    weights = np.random.default_rng(1).integers(0, 4, 120)
    weighted = StreamingPCA(2, memory=memory).fit(X, sample_weight=weights)
    repeated = StreamingPCA(2, memory=memory).fit(np.repeat(X, weights, axis=0))
    np.testing.assert_allclose(weighted.components_, repeated.components_, atol=1e-8)
    np.testing.assert_allclose(
        weighted.explained_variance_, repeated.explained_variance_, rtol=1e-10
    )
    assert weighted.n_samples_seen_ == 120


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("as_sparse", [sparse.csr_array, sparse.csc_array, sparse.coo_matrix])
def test_sparse_is_dense(memory: str, as_sparse: type) -> None:
    X = sparse.random_array((300, 30), density=0.1, rng=np.random.default_rng(0)).toarray()
    dense = StreamingPCA(3, memory=memory).fit(X)
    ours = StreamingPCA(3, memory=memory).partial_fit(as_sparse(X[:71]))
    ours.partial_fit(as_sparse(X[71:]))
    assert_same_state(ours, dense)
    np.testing.assert_allclose(ours.transform(as_sparse(X)), dense.transform(X))


def test_first_batch_of_one_row() -> None:
    pca = StreamingPCA(3, memory="low_rank").partial_fit([[1.0, 2.0, 3.0, 4.0]])
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-15)
    np.testing.assert_array_equal(pca.explained_variance_, np.zeros(3))
    np.testing.assert_array_equal(pca.explained_variance_ratio_, np.zeros(3))
    np.testing.assert_array_equal(pca.mean_, [1, 2, 3, 4])
    np.testing.assert_array_equal(pca.transform([[1.0, 2.0, 3.0, 4.0]]), np.zeros((1, 3)))
    assert pca.noise_variance_ == 0.0


@pytest.mark.parametrize("memory", MEMORIES)
def test_few_distinct_rows_complete_the_basis(memory: str) -> None:
    pca = StreamingPCA(3, memory=memory).fit([[0.0, 1.0, 0.0, 0.0], [0.0, 5.0, 0.0, 0.0]])
    np.testing.assert_allclose(pca.components_[0], [0, 1, 0, 0], atol=1e-15)
    np.testing.assert_allclose(pca.components_ @ pca.components_.T, np.eye(3), atol=1e-15)
    np.testing.assert_allclose(pca.explained_variance_ratio_, [1, 0, 0], atol=1e-15)


@pytest.mark.parametrize("memory", MEMORIES)
def test_uncentred_is_a_singular_value_decomposition(memory: str) -> None:
    X = rows()
    exact = pooled(X, centered=False)
    ours = StreamingPCA(4, center=False, memory=memory).fit(X)
    np.testing.assert_array_equal(ours.mean_, np.zeros(12))
    np.testing.assert_allclose(ours.singular_values_, exact.s[:4], rtol=1e-9)
    assert sines(ours.components_, exact.vt[:4])[0] < 1e-8


def test_float32_gives_float32() -> None:
    X = rows().astype(np.float32)
    pca = StreamingPCA(2).partial_fit(X[:100]).partial_fit(X[100:])
    for name in ("components_", "mean_", "explained_variance_", "singular_values_"):
        assert getattr(pca, name).dtype == np.float32
    assert pca.transform(X).dtype == np.float32
    assert pca.partial_fit(X.astype(np.float64)).components_.dtype == np.float64


def test_ratios_never_exceed_one_and_count_what_is_not_shown() -> None:
    X = rows(1000, 200)
    pca = StreamingPCA(5, memory="low_rank").fit(X)
    exact = PCA(5).fit(X)
    assert pca.explained_variance_ratio_.sum() <= 1.0
    np.testing.assert_allclose(
        pca.explained_variance_ratio_, exact.explained_variance_ratio_, rtol=1e-3
    )


# Missing entries


def with_gaps(X: Array, share: float = 0.1, seed: int = 5) -> Array:
    holes = np.random.default_rng(seed).random(X.shape) < share
    return np.where(holes, np.nan, X)


@pytest.mark.parametrize("memory", MEMORIES)
def test_missing_entries_are_imputed_and_counted(memory: str) -> None:
    X = with_gaps(rows(2000, 6))
    pca = StreamingPCA(2, memory=memory)
    for batch in np.array_split(X, 9):
        pca.partial_fit(batch)
    np.testing.assert_array_equal(pca.n_missing_, np.isnan(X).sum(axis=0))
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    exact = PCA(2).fit(filled)
    assert sines(pca.components_, exact.components_)[0] < 1e-2
    np.testing.assert_allclose(pca.explained_variance_, exact.explained_variance_, rtol=1e-2)
    np.testing.assert_allclose(pca.mean_, exact.mean_, rtol=1e-2)


def test_missing_entries_score_as_the_mean() -> None:
    X = rows()
    pca = StreamingPCA(2).fit(X)
    holed = X.copy()
    holed[:, 3] = np.nan
    filled = X.copy()
    filled[:, 3] = pca.mean_[3]
    np.testing.assert_allclose(pca.transform(holed), pca.transform(filled), atol=1e-12)
    np.testing.assert_allclose(
        pca.transform(sparse.csr_array(holed)), pca.transform(filled), atol=1e-12
    )


@pytest.mark.parametrize("memory", MEMORIES)
def test_a_sensor_that_starts_late_makes_no_variance_by_starting(memory: str) -> None:
    X = rows(600, 5, offset=1000.0)
    X[:, 4] = 1000.0
    late = X.copy()
    late[:400, 4] = np.nan
    pca = StreamingPCA(2, memory=memory)
    for batch in np.array_split(late, 13):
        pca.partial_fit(batch)
    np.testing.assert_allclose(pca.components_[:, 4], 0.0, atol=1e-9)
    assert pca.mean_[4] == pytest.approx(1000.0)
    assert pca.n_missing_[4] == 400


def test_nan_without_a_mean_is_refused() -> None:
    with pytest.raises(InputError, match="center=False keeps none"):
        StreamingPCA(center=False).fit([[1.0, np.nan, 2.0]])


# Data frames


def frame(X: Array) -> pd.DataFrame:
    return pd.DataFrame(X, columns=[f"x{i}" for i in range(X.shape[1])])


def test_frames_are_aligned_by_name() -> None:
    X = frame(rows())
    straight = StreamingPCA(3).partial_fit(X[:100]).partial_fit(X[100:])
    mixed = StreamingPCA(3).partial_fit(X[:100]).partial_fit(X.iloc[100:, ::-1])
    assert_same_state(straight, mixed)
    np.testing.assert_array_equal(mixed.feature_names_in_, X.columns)
    np.testing.assert_array_equal(mixed.transform(X.iloc[:, ::-1]), straight.transform(X))


def test_polars_frames_are_aligned_by_name() -> None:
    X = frame(rows())
    polar = pl.DataFrame({name: X[name].to_numpy() for name in X.columns})
    pca = StreamingPCA(3).partial_fit(polar[:100]).partial_fit(polar[100:, ::-1])
    assert_same_state(pca, StreamingPCA(3).fit(X))


def test_frames_with_other_columns_are_refused() -> None:
    X = frame(rows())
    pca = StreamingPCA().fit(X)
    with pytest.raises(InputError, match="X lacks the columns 'x3' and has the unknown columns"):
        pca.partial_fit(X.rename(columns={"x3": "y"}))
    with pytest.raises(InputError, match="X lacks the columns 'x0', 'x1'"):
        pca.transform(X.iloc[:, 2:])
    with pytest.raises(InputError, match="more than once"):
        StreamingPCA().fit(pd.concat([X, X], axis=1))


def test_output_names_and_frames() -> None:
    X = frame(rows())
    pca = StreamingPCA(2).set_output(transform="pandas")
    scores = pca.fit_transform(X)
    assert list(scores.columns) == ["streamingpca0", "streamingpca1"]
    assert list(pca.get_feature_names_out()) == list(scores.columns)


# Life as an estimator


def test_pickle_goes_on_where_it_stopped() -> None:
    X = rows(300, 200)
    pca = StreamingPCA(4).partial_fit(X[:111])
    again = pickle.loads(pickle.dumps(pca))
    assert_same_state(again.partial_fit(X[111:]), pca.partial_fit(X[111:]))


def test_clone_and_fit_start_anew() -> None:
    X = rows()
    pca = StreamingPCA(2).fit(X + 5)
    assert not hasattr(clone(pca), "components_")
    assert_same_state(pca.fit(X), StreamingPCA(2).fit(X))


def test_in_a_pipeline() -> None:
    X = rows()
    scores = make_pipeline(StandardScaler(), StreamingPCA(2)).fit_transform(X)
    exact = make_pipeline(StandardScaler(), PCA(2)).fit_transform(X)
    np.testing.assert_allclose(np.abs(scores), np.abs(exact), atol=1e-8)


def test_unfitted_says_so() -> None:
    pca = StreamingPCA()
    with pytest.raises(NotFittedError):
        pca.components_  # noqa: B018
    with pytest.raises(NotFittedError):
        pca.transform([[1.0, 2.0]])


def test_random_state_changes_nothing() -> None:
    X = rows()
    assert_same_state(StreamingPCA(random_state=0).fit(X), StreamingPCA(random_state=1).fit(X))


# Merging


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("other_memory", MEMORIES)
def test_merge_is_the_pca_of_both(memory: str, other_memory: str) -> None:
    X, Y = rows(), rows(300, offset=-20.0, seed=1)
    ours = StreamingPCA(3, memory=memory, oversample=9).fit(X)
    ours.merge(StreamingPCA(3, memory=other_memory, oversample=9).fit(Y))
    exact = PCA(3).fit(np.vstack([X, Y]))
    assert sines(ours.components_, exact.components_)[0] < 1e-7
    np.testing.assert_allclose(ours.explained_variance_, exact.explained_variance_, rtol=1e-9)
    assert ours.n_samples_seen_ == 800
    again = StreamingPCA(3, memory=memory, oversample=9).fit(X)
    assert again.partial_fit(Y).components_ == pytest.approx(ours.components_, abs=1e-7)


def test_merge_takes_summaries_from_devices() -> None:
    X, Y = rows(), rows(300, offset=-20.0, seed=1)
    sent = [StreamingPCA(3, oversample=9).fit(part).summary_.to_bytes() for part in (X, Y)]
    centre = StreamingPCA(3)
    for data in sent:
        centre.merge(Summary.from_bytes(data))
    exact = PCA(3).fit(np.vstack([X, Y]))
    assert sines(centre.components_, exact.components_)[0] < 1e-7
    assert centre.n_samples_seen_ == 800
    np.testing.assert_allclose(centre.transform(X), exact.transform(X), atol=1e-6)


def test_merge_aligns_by_name() -> None:
    X, Y = frame(rows()), frame(rows(300, offset=-20.0, seed=1))
    ours = StreamingPCA(3).fit(X).merge(StreamingPCA(3).fit(Y.iloc[:, ::-1]))
    straight = StreamingPCA(3).fit(X).merge(StreamingPCA(3).fit(Y))
    np.testing.assert_allclose(ours.components_, straight.components_, atol=1e-9)
    taken = StreamingPCA(3).merge(ours)
    np.testing.assert_array_equal(taken.feature_names_in_, X.columns)
    with pytest.raises(InputError, match="other lacks the columns 'x1'"):
        ours.merge(StreamingPCA(3).fit(Y.rename(columns={"x1": "z"})))


def test_merge_leaves_the_other_alone() -> None:
    here, there = StreamingPCA().fit(rows()), StreamingPCA().fit(rows(seed=1))
    before = there.components_.copy()
    here.merge(there).partial_fit(rows(seed=2))
    np.testing.assert_array_equal(there.components_, before)
    assert there.n_samples_seen_ == 500


@pytest.mark.parametrize(
    ("other", "message"),
    [
        (StreamingPCA().fit(rows(d=5)), "other has 5 features and must have 12"),
        (Summary.empty(5, 2), "other has 5 features and must have 12"),
        (StreamingPCA(center=False).fit(rows()), "other has center=False and must have center=Tr"),
        ("text", "other has type str and must be a StreamingPCA or a Summary"),
    ],
)
def test_merge_of_what_does_not_fit_is_refused(other: StreamingPCA, message: str) -> None:
    with pytest.raises(InputError, match=message):
        StreamingPCA().fit(rows()).merge(other)


def test_merge_of_an_unfitted_stream_is_refused() -> None:
    with pytest.raises(NotFittedError):
        StreamingPCA().fit(rows()).merge(StreamingPCA())


# Bad input


@pytest.mark.parametrize(
    ("X", "message"),
    [
        ([1.0, 2.0], "X must have 2 dimensions.*Reshape your data"),
        ([[1.0, np.inf]], "X holds infinity.*Drop or clip"),
        ([[1e160, 1.0]], "too large to square in float64. Rescale"),
        (np.array([[1j, 2.0]]), "Complex data not supported.*Pass the real part"),
        ([["a", "b"]], "X holds text and must hold numbers"),
        (np.array([["a", 1.0]], dtype=object), "X holds text and must hold numbers"),
        (np.zeros((0, 2)), "0 sample"),
        (np.zeros((3, 0)), "0 feature"),
        ([[1.0, 2.0], [3.0]], "X has rows of different lengths"),
        ([[10**400, 2.0], [3.0, 4.0]], "X holds infinity or a number too large"),
        (np.ma.masked_less([[1.0, 2.0], [3.0, 4.0]], 2), "X has masked entries"),
    ],
)
def test_bad_batches_are_refused(X: npt.ArrayLike, message: str) -> None:
    with pytest.raises(InputError, match=message):
        StreamingPCA(1).fit(X)
    fitted = StreamingPCA(1).fit([[1.0, 2.0], [2.0, 1.0]])
    with pytest.raises(InputError, match=message):
        fitted.partial_fit(X)
    assert fitted.n_samples_seen_ == 2


@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"n_components": 13}, "n_components=13 must be at most 12, the number of features"),
        ({"n_components": 0}, "n_components=0 must be an integer of at least 1"),
        ({"n_components": 1.5}, "n_components=1.5 must be an integer"),
        ({"forgetting": 0.0}, "forgetting=0.0 must be a number above 0 and at most 1"),
        ({"forgetting": 1.1}, "forgetting=1.1 must be"),
        ({"rank": "adaptive", "energy": (0.1, 0.01)}, "0 < lower < upper < 1"),
        ({"rank": "adaptive", "energy": 3}, "0 < lower < upper < 1"),
        ({"energy": (1, 2)}, r"energy=\(1, 2\) must be two numbers with 0 < lower < upper < 1"),
        ({"n_components": None, "energy": None}, "energy=None must be two numbers"),
        ({"rank": "free"}, "rank='free' must be one of 'fixed', 'adaptive'"),
        ({"memory": "huge"}, "memory='huge' must be one of"),
        ({"oversample": -1}, "oversample=-1 must be an integer of at least 0"),
        ({"center": "yes"}, "center='yes' must be True or False"),
        ({"random_state": "a"}, "random_state='a' must be"),
    ],
)
def test_bad_parameters_are_refused(parameters: dict[str, object], message: str) -> None:
    with pytest.raises(EigenfedError, match=message):
        StreamingPCA(**parameters).fit(rows())  # type: ignore[arg-type]


def test_another_number_of_features_is_refused() -> None:
    pca = StreamingPCA().fit(rows())
    for method in (pca.partial_fit, pca.transform):
        with pytest.raises(InputError, match="X has 7 features, but StreamingPCA is expecting 12"):
            method(np.zeros((2, 7)))
    with pytest.raises(InputError, match="X has 3 columns and must have 2"):
        pca.inverse_transform(np.zeros((2, 3)))


@pytest.mark.parametrize("X", [rows(), rows().tolist(), frame(rows())])
def test_a_parameter_changed_between_batches_is_refused(X: npt.ArrayLike) -> None:
    pca = StreamingPCA().fit(X)
    pca.set_params(forgetting=0.9)
    with pytest.raises(InputError, match="A parameter was changed after rows were added"):
        pca.partial_fit(X)
    assert pca.fit(X).forgetting == 0.9


@pytest.mark.parametrize(
    "weights", [np.ones(3), -np.ones(500), np.full(500, np.nan), np.ones((500, 1)), ["a"] * 500]
)
def test_bad_weights_are_refused(weights: npt.ArrayLike) -> None:
    with pytest.raises(InputError, match="sample_weight"):
        StreamingPCA().fit(rows(), sample_weight=weights)


# The claims


def test_closer_to_optimal_than_incremental_pca() -> None:
    X = rows(4000, 200)
    ours, theirs = StreamingPCA(10, memory="low_rank"), IncrementalPCA(10)
    for batch in np.array_split(X, 40):
        ours.partial_fit(batch)
        theirs.partial_fit(batch)
    exact = pooled(X)
    best = exact.energy - np.sum(exact.s[:10] ** 2)
    around = X - exact.mean

    def above(components: Array) -> float:
        return float(exact.energy - np.sum((around @ components.T) ** 2)) / best - 1.0

    assert above(ours.components_) < 0.02 * above(theirs.components_)


@pytest.mark.parametrize("memory", MEMORIES)
def test_the_bound_on_the_angle_holds(memory: str) -> None:
    rows = np.random.default_rng(6).standard_normal((900, 40)) * 0.8 ** np.arange(40)
    pca = StreamingPCA(3, memory=memory).partial_fit(rows[:2])
    assert pca.sine_bound_ == np.inf
    pca.partial_fit(rows[2:])
    truth = np.linalg.svd(rows - rows.mean(axis=0), full_matrices=False)[2][:3]
    sine = np.linalg.norm(pca.components_ - pca.components_ @ truth.T @ truth, 2)
    assert sine <= pca.sine_bound_ < (0.1 if memory == "low_rank" else 1e-11)


def test_more_directions_than_features_need_no_more_memory() -> None:
    X = np.random.default_rng(0).standard_normal((50, 5))
    many = StreamingPCA(2, oversample=10**12, memory="low_rank").fit(X)
    whole = StreamingPCA(2, oversample=3, memory="low_rank").fit(X)
    np.testing.assert_allclose(many.components_, whole.components_, atol=1e-12)
