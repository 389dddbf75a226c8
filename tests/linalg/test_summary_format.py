"""Each rule that a summary obeys is checked on the way in: every one is broken here once."""

import base64
import json
import math
import re
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Container
from eigenfed.errors import DataError
from eigenfed.linalg.summary import Summary
from eigenfed.linalg.summary_format import _RULES, read_fields, write_fields

SCALARS = ("n", "energy", "lost", "rank", "centered")
ARRAYS = ("mean", "s", "vt")

FIELDS = "a field is missing, unknown or of another type"
SHAPES = "the shapes of mean (d,), s (r,) and vt (r, d) or the rank do not match"
NAMES = "the names are not different texts, one for each feature"
FINITE = "a number is not finite"
WEIGHT = "n is negative"
ORDER = "s is negative or not in decreasing order"
ORTHONORMAL = "the rows of vt are not orthonormal"
ENERGY = "energy or lost contradict s"
EMPTY = "n is 0 but other fields are not"
CENTRE = "centered is false but the mean is not 0"


def sound() -> dict[str, Any]:
    """Return the fields of a summary with nothing wrong about them."""
    return {
        "n": 7.5,
        "energy": 14.0,
        "lost": 0.75,
        "rank": 3,
        "centered": True,
        "mean": np.array([1.0, -2.0, 0.5]),
        "s": np.array([3.0, 2.0]),
        "vt": np.array([[0.6, 0.8, 0.0], [0.0, 0.0, -1.0]]),
    }


def forged(fields: dict[str, Any], kind: str = "summary", version: int = 1) -> bytes:
    """Write any fields, with the checksum that fits them."""
    scalars = {name: value for name, value in fields.items() if not isinstance(value, np.ndarray)}
    arrays = {name: value for name, value in fields.items() if isinstance(value, np.ndarray)}
    return Container(kind, version, scalars, arrays).to_bytes()


def refusal(rule: str) -> str:
    return f"^{re.escape(f'The data are not a valid summary: {rule}. Write them again.')}$"


def assert_refused(fields: dict[str, Any], rule: str) -> None:
    with pytest.raises(DataError, match=refusal(rule)):
        Summary.from_bytes(forged(fields))


def test_fields_that_are_sound_come_back() -> None:
    fields = read_fields(forged(sound()))
    assert fields.keys() == {*sound(), "names"}
    for name, value in sound().items():
        np.testing.assert_array_equal(fields[name], value)
    assert Summary.from_bytes(forged(sound())).n == 7.5


def test_what_is_written_is_a_container_of_kind_summary_and_version_one() -> None:
    data = write_fields(sound())
    container = Container.from_bytes(data, kind="summary", version=1)
    assert tuple(container.scalars) == SCALARS
    assert tuple(container.arrays) == ARRAYS
    assert data == forged({name: sound()[name] for name in (*SCALARS, *ARRAYS)})


def test_numpy_scalars_are_written_as_plain_ones() -> None:
    fields = {**sound(), "rank": np.int64(3), "n": np.float32(7.5), "energy": 14, "lost": 0}
    found = read_fields(write_fields(fields))
    assert [type(found[name]) for name in SCALARS] == [float, float, float, int, bool]


def test_every_rule_is_broken_below() -> None:
    assert set(_RULES) == {
        FIELDS,
        SHAPES,
        NAMES,
        FINITE,
        WEIGHT,
        ORDER,
        ORTHONORMAL,
        ENERGY,
        EMPTY,
        CENTRE,
    }


@pytest.mark.parametrize("name", [*SCALARS, *ARRAYS])
def test_an_absent_field_is_refused(name: str) -> None:
    fields = sound()
    del fields[name]
    assert_refused(fields, FIELDS)


@pytest.mark.parametrize("value", [1.0, np.zeros(2)], ids=["scalar", "array"])
def test_a_foreign_field_is_refused(value: Any) -> None:
    assert_refused({**sound(), "note": value}, FIELDS)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("n", 7),
        ("n", True),
        ("n", np.array([7.5])),
        ("energy", 14),
        ("lost", 0),
        ("rank", 3.0),
        ("rank", True),
        ("centered", 1),
        ("centered", 1.0),
    ],
)
def test_a_scalar_of_another_type_is_refused(name: str, value: Any) -> None:
    assert_refused({**sound(), name: value}, FIELDS)


@pytest.mark.parametrize(
    "name",
    [
        "mean",
        "s",
        "vt",
    ],
)
def test_a_number_in_place_of_an_array_is_refused(name: str) -> None:
    assert_refused({**sound(), name: 1.0}, SHAPES)


@pytest.mark.parametrize(
    "changes",
    [
        {"mean": np.zeros(2)},
        {"mean": np.zeros(4)},
        {"mean": np.zeros((3, 1))},
        {"mean": np.zeros(0), "vt": np.zeros((2, 0))},
        {"s": np.array([3.0])},
        {"s": np.array([3.0, 2.0, 0.5])},
        {"s": np.array([[3.0, 2.0]])},
        {"s": np.zeros(0)},
        {"vt": np.eye(3)},
        {"vt": np.eye(2, 3)[:1]},
        {"vt": np.eye(3, 2)},
        {"vt": np.array([0.6, 0.8, 0.0])},
        {"vt": np.eye(2, 3)[None]},
        {"rank": 1},
        {"rank": 0},
        {"rank": -1},
        {"mean": np.zeros(3, dtype=np.float32)},
        {"s": np.array([3.0, 2.0], dtype=np.float32)},
        {"s": np.array([3, 2])},
        {"vt": np.eye(2, 3, dtype=np.float32)},
    ],
    ids=repr,
)
def test_arrays_that_do_not_fit_are_refused(changes: dict[str, Any]) -> None:
    assert_refused({**sound(), **changes}, SHAPES)


def test_as_many_directions_as_the_rank_are_accepted() -> None:
    assert len(Summary.from_bytes(forged({**sound(), "rank": 2})).s) == 2


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("name", ARRAYS)
def test_a_number_that_is_not_finite_is_refused(name: str, value: float) -> None:
    fields = sound()
    fields[name].flat[0] = value
    assert_refused(fields, FINITE)


@pytest.mark.parametrize("n", [-1.0, -5e-324])
def test_a_negative_weight_is_refused(n: float) -> None:
    assert_refused({**sound(), "n": n}, WEIGHT)


def test_a_weight_of_zero_is_accepted() -> None:
    assert Summary.from_bytes(Summary.empty(3, 2).to_bytes()).n == 0.0


@pytest.mark.parametrize("s", [[2.0, 3.0], [3.0, -2.0], [-2.0, -3.0], [3.0, 3.0000001]])
def test_singular_values_out_of_order_are_refused(s: list[float]) -> None:
    assert_refused({**sound(), "s": np.array(s), "energy": 100.0}, ORDER)


def test_equal_singular_values_and_zeros_are_accepted() -> None:
    for s in ([3.0, 3.0], [3.0, 0.0], [0.0, 0.0]):
        fields = {**sound(), "s": np.array(s), "energy": 100.0}
        np.testing.assert_array_equal(Summary.from_bytes(forged(fields)).s, s)


@pytest.mark.parametrize(
    "vt",
    [
        [[0.6, 0.8, 0.0], [0.6, 0.8, 0.0]],
        [[0.6, 0.8, 0.0], [0.0, 0.0, 0.0]],
        [[0.6, 0.8, 0.0], [0.0, 0.0, -1.00000001]],
        [[0.6, 0.8, 0.0], [0.0, 1e-8, 1.0]],
        [[6.0, 8.0, 0.0], [0.0, 0.0, -1.0]],
    ],
    ids=repr,
)
def test_rows_that_are_not_orthonormal_are_refused(vt: list[list[float]]) -> None:
    assert_refused({**sound(), "vt": np.array(vt)}, ORTHONORMAL)


def test_rows_orthonormal_up_to_rounding_are_accepted() -> None:
    fields = sound()
    fields["vt"][1, 1] = 1e-11
    assert Summary.from_bytes(forged(fields)).d == 3


@pytest.mark.parametrize(
    "changes",
    [
        {"energy": 12.9999},
        {"energy": 0.0},
        {"energy": -14.0},
        {"lost": -1e-6},
        {"lost": 1.0001},
        {"lost": 14.0},
    ],
    ids=repr,
)
def test_energy_and_lost_that_contradict_the_singular_values_are_refused(
    changes: dict[str, Any],
) -> None:
    assert_refused({**sound(), **changes}, ENERGY)


@pytest.mark.parametrize(
    "changes",
    [
        {"energy": 13.0 * (1 - 1e-12), "lost": 0.0},
        {"lost": 1.0},
        {"lost": 1.0 + 1e-12},
        {"lost": 0.0},
    ],
    ids=repr,
)
def test_energy_and_lost_that_agree_up_to_rounding_are_accepted(changes: dict[str, Any]) -> None:
    assert Summary.from_bytes(forged({**sound(), **changes})).d == 3


def test_another_kind_or_version_is_refused() -> None:
    with pytest.raises(DataError, match="hold a 'note' where a 'summary' is expected"):
        read_fields(forged(sound(), kind="note"))
    with pytest.raises(
        DataError, match="have summary format 3 and this release of eigenfed reads format 2"
    ):
        read_fields(forged(sound(), version=3))


def encode(names: object) -> np.ndarray[Any, Any]:
    return np.frombuffer(json.dumps(names).encode(), np.uint8)


def test_names_come_back_and_without_them_the_format_is_that_of_old_releases() -> None:
    plain = Summary.from_bytes(forged(sound()))
    assert plain.names is None
    assert plain.to_bytes() == forged(sound())
    named = plain.with_names(["a", "b", "c"])
    assert Summary.from_bytes(named.to_bytes()).names == ("a", "b", "c")
    assert named.to_bytes() == forged({**sound(), "names": encode(["a", "b", "c"])}, version=2)


@pytest.mark.parametrize(
    "names",
    [
        encode(["a", "b"]),
        encode(["a", "b", "a"]),
        encode(["a", "b", 3]),
        encode(["a", "b", "c" * 1001]),
        encode({"a": 1, "b": 2, "c": 3})[:-1],
        encode(3),
        encode(["a", "b", "c"]).astype(np.int64),
        "text",
    ],
    ids=str,
)
def test_names_that_do_not_name_each_feature_are_refused(names: Any) -> None:
    with pytest.raises(DataError, match=refusal(NAMES)):
        read_fields(forged({**sound(), "names": names}, version=2))
    with pytest.raises(DataError, match=refusal(NAMES)):
        read_fields(forged({**sound(), "names": names}))


def test_a_refusal_quotes_no_number_of_the_data() -> None:
    fields = {**sound(), "mean": np.array([987654.321, 0.0, 0.0]), "n": -987654.321}
    with pytest.raises(DataError) as caught:
        read_fields(forged(fields))
    assert "987654" not in str(caught.value)


def test_a_rank_below_one_is_refused_also_without_directions() -> None:
    nothing = {"s": np.zeros(0), "vt": np.zeros((0, 3)), "rank": 0}
    assert_refused({**sound(), **nothing}, SHAPES)


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"vt": np.array([[1e300, 0.0, 0.0], [0.0, 1e300, 0.0]])}, ORTHONORMAL),
        ({"s": np.array([1e200, 1e200])}, ENERGY),
    ],
    ids=["vt", "s"],
)
def test_numbers_too_large_to_square_are_refused_without_a_warning(
    changes: dict[str, Any], rule: str
) -> None:
    assert_refused({**sound(), **changes}, rule)


def test_a_mean_of_rows_that_are_not_centred_is_refused() -> None:
    assert_refused({**sound(), "centered": False}, CENTRE)
    uncentred = {**sound(), "centered": False, "mean": np.zeros(3)}
    assert not Summary.from_bytes(forged(uncentred)).centered


@pytest.mark.parametrize(
    "known",
    [
        {"energy": 5.0},
        {"energy": 4.0, "s": np.array([2.0]), "vt": np.eye(3)[:1]},
        {"s": np.array([0.0]), "vt": np.eye(3)[:1]},
        {"mean": np.array([0.0, 1.0, 0.0])},
    ],
    ids=["energy", "direction", "direction of no length", "mean"],
)
def test_no_rows_have_nothing(known: dict[str, Any]) -> None:
    nothing = {"energy": 0.0, "mean": np.zeros(3), "s": np.zeros(0), "vt": np.zeros((0, 3))}
    empty = {**sound(), "n": 0.0, "lost": 0.0, **nothing}
    assert Summary.from_bytes(forged(empty)).n == 0.0
    assert_refused({**empty, **known}, EMPTY)


RELEASE_0_1 = (
    "ZWlnZW5mZWTgAAAAAAAAAHsia2luZCI6ICJzdW1tYXJ5IiwgInZlcnNpb24iOiAxLCAic2NhbGFycyI6IHsibiI6"
    "IDMuMCwgImVuZXJneSI6IDMwLjY2NjY2NjY2NjY2NjY2NCwgImxvc3QiOiAzLjA5NDk2MDE2NjIwOTQ1NDYsICJy"
    "YW5rIjogMSwgImNlbnRlcmVkIjogdHJ1ZX0sICJhcnJheXMiOiBbWyJtZWFuIiwgIjxmOCIsIFsyXV0sIFsicyIs"
    "ICI8ZjgiLCBbMV1dLCBbInZ0IiwgIjxmOCIsIFsxLCAyXV1dfSAgICAg////////D0CrqqqqqqoCQK79x9TlABVA"
    "r28gj5/07r8br8AwujfQP6zs8Ssy+8Cix07H70rfZLM="
)
"""A summary of the rows (1, 2), (3, 4) and (8, 1) of rank 1, as release 0.1 wrote it."""


def test_a_summary_of_release_0_1_is_read() -> None:
    summary = Summary.from_bytes(base64.b64decode(RELEASE_0_1))
    again = Summary.empty(d=2, rank=1).update([[1.0, 2.0], [3.0, 4.0], [8.0, 1.0]])
    assert (summary.n, summary.rank) == (3.0, 1)
    for name in ("mean", "s", "vt"):
        np.testing.assert_allclose(getattr(summary, name), getattr(again, name), rtol=1e-12)
