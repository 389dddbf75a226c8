"""Containers come back exactly as they went, or are refused with a DataError that says why."""

import hashlib
import io
import json
import math
import pickle
import re
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from eigenfed.arrays import Container
from eigenfed.errors import DataError, EigenfedError, InputError

UNREADABLE = re.escape("The data are corrupt: the header cannot be read. Fetch them again.")
TOO_LONG = re.escape("The data are corrupt: the header is too long. Fetch them again.")
FOREIGN = re.escape(
    "The data were not written by eigenfed: their signature is missing. "
    "Pass a file that eigenfed wrote, such as a summary, or the output of to_bytes()."
)
CHECKSUM = re.escape("The data are corrupt: the checksum does not match. Fetch them again.")
VALID: Mapping[str, Any] = {"kind": "note", "version": 1, "scalars": {}, "arrays": []}


def read(data: bytes) -> Container:
    return Container.from_bytes(data, kind="note", version=1)


def round_trip(**arrays: npt.NDArray[Any]) -> Mapping[str, npt.NDArray[Any]]:
    return read(Container("note", 1, {}, arrays).to_bytes()).arrays


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).digest()[:16]


def forged(header: bytes, payload: bytes = b"") -> bytes:
    """Write a container by hand, with any header and the checksum that fits it."""
    return sealed(b"eigenfed" + len(header).to_bytes(8, "little") + header + payload)


def altered(**changes: Any) -> bytes:
    header = json.dumps({**VALID, **changes}).encode()
    return header + b" " * (-len(header) % 8)


def small() -> bytes:
    arrays = {"x": np.array([1.5, -2.0]), "y": np.array([1], dtype=np.float32)}
    return Container("note", 1, {"n": 3.0, "whole": True}, arrays).to_bytes()


def cut_short(given: int) -> str:
    return rf"^The data are truncated: {given} bytes where \d+ are needed\. Fetch them again\.$"


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int64, np.uint8])
@pytest.mark.parametrize(
    "shape", [(0,), (1,), (3,), (0, 4), (4, 0), (2, 3), (2, 1, 3), (1, 2, 3, 2)]
)
def test_arrays_come_back_bit_for_bit(dtype: npt.DTypeLike, shape: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    given = rng.integers(0, 256, shape).astype(dtype)
    if given.dtype.kind == "f":
        given += rng.standard_normal(shape).astype(dtype)
    found = round_trip(x=given, following=np.array([7.0]))
    assert found["x"].dtype == np.dtype(dtype)
    assert found["x"].dtype.isnative
    assert found["x"].shape == shape
    assert found["x"].tobytes() == given.tobytes()
    np.testing.assert_array_equal(found["following"], [7.0])


def test_nan_infinity_negative_zero_and_subnormal_entries_come_back() -> None:
    given = np.array([np.nan, np.inf, -np.inf, -0.0, 5e-324, 1.7976931348623157e308])
    assert round_trip(x=given)["x"].tobytes() == given.tobytes()


def test_several_arrays_keep_names_order_and_values() -> None:
    given: dict[str, npt.NDArray[Any]] = {
        "single": np.arange(3, dtype=np.float32),
        "bytes": np.array([0, 7, 255], dtype=np.uint8),
        "whole": np.array([-(2**63), 2**63 - 1]),
        "empty": np.zeros((0, 2)),
        "double": np.arange(4.0).reshape(2, 2),
        "": np.ones(1, dtype=np.float32),
    }
    found = round_trip(**given)
    assert list(found) == list(given)
    for name, array in given.items():
        np.testing.assert_array_equal(found[name], array)


def test_no_arrays_and_no_scalars_come_back_as_none() -> None:
    found = read(Container("note", 1, {}, {}).to_bytes())
    assert (found.kind, found.version) == ("note", 1)
    assert (dict(found.scalars), dict(found.arrays)) == ({}, {})


def test_memory_layout_and_byte_order_change_neither_values_nor_bytes() -> None:
    plain = np.arange(12.0).reshape(3, 4)
    padded = np.full((6, 8), -1.0)
    padded[::2, ::-2] = plain
    layouts = [
        plain,
        np.asfortranarray(plain),
        padded[::2, ::-2],
        plain.astype(">f8"),
        plain.T.copy().T,
    ]
    written = [Container("note", 1, {}, {"x": layout}).to_bytes() for layout in layouts]
    assert set(written) == {written[0]}
    np.testing.assert_array_equal(read(written[0]).arrays["x"], plain)


@pytest.mark.parametrize("dtype", [">f8", ">f4", ">i8"])
def test_big_endian_input_is_read_as_native_numbers(dtype: str) -> None:
    given = np.array([1, -2, 300], dtype=dtype)
    found = round_trip(x=given)["x"]
    assert found.dtype.isnative
    np.testing.assert_array_equal(found, [1, -2, 300])


@pytest.mark.parametrize(
    "scalar",
    [True, False, 0, 1, -1, 2**53 + 1, 10**30, 0.0, -0.0, 1.0, 0.1, 1 / 3, 5e-324, 1.7e308, -1e-7],
)
def test_numbers_come_back_exactly_and_of_the_same_type(scalar: float) -> None:
    found = read(Container("note", 1, {"value": scalar}, {}).to_bytes()).scalars["value"]
    assert type(found) is type(scalar)
    assert found == scalar
    assert isinstance(found, int | float)
    assert math.copysign(1.0, found) == math.copysign(1.0, scalar)


@pytest.mark.parametrize(
    "text", ["", "krylov", "3.0", "NaN", "\u00e9\u4e2d\U0001f600", '"}\n\\', "\0"]
)
def test_text_comes_back_exactly(text: str) -> None:
    found = read(Container("note", 1, {"value": text}, {}).to_bytes()).scalars["value"]
    assert found == text


@pytest.mark.parametrize(
    "scalar", [math.nan, math.inf, -math.inf, 10**400, -(10**5000), None, [1]], ids=type
)
def test_a_scalar_that_could_not_be_read_is_not_written(scalar: Any) -> None:
    message = (
        r"^The scalar 'value' must be text, a boolean, a finite float or an integer of at "
        r"most 1024 bits\. Convert it first\.$"
    )
    with pytest.raises(InputError, match=message):
        Container("note", 1, {"value": scalar}, {}).to_bytes()


@pytest.mark.parametrize(
    "array",
    [
        np.zeros(2, dtype=np.int32),
        np.zeros(2, dtype=np.float16),
        np.zeros(2, dtype=complex),
        np.array([True]),
        np.array(["canary"]),
        np.array([987654.321, None], dtype=object),
    ],
    ids=lambda array: str(array.dtype),
)
def test_an_array_that_could_not_be_read_is_not_written(array: npt.NDArray[Any]) -> None:
    message = (
        f"The array 'x' has dtype {array.dtype} and must be float64, float32, int64 or uint8. "
        "Convert it first."
    )
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        Container("note", 1, {}, {"fine": np.zeros(1), "x": array}).to_bytes()


def test_layout_is_the_one_that_is_documented() -> None:
    header = (
        b'{"kind": "note", "version": 7, "scalars": {"n": 2.5}, '
        b'"arrays": [["x", "<f4", [3]], ["y", "<i8", [1]]]}'
    )
    header += b" " * (-len(header) % 8)
    payload = np.array([1, 2, 3], dtype="<f4").tobytes() + bytes(4) + (9).to_bytes(8, "little")
    arrays = {"x": np.array([1, 2, 3], dtype=np.float32), "y": np.array([9])}
    assert Container("note", 7, {"n": 2.5}, arrays).to_bytes() == forged(header, payload)


def test_same_values_give_same_bytes() -> None:
    assert small() == small()


def test_reading_and_writing_again_changes_no_byte() -> None:
    assert read(small()).to_bytes() == small()


@pytest.mark.parametrize("size", [0, 1, 1000, 100_000])
def test_overhead_is_small_and_the_length_a_multiple_of_eight(size: int) -> None:
    arrays = {name: np.zeros(size) for name in ("mean", "s", "vt")}
    data = Container("summary", 1, {"n": 1.0, "energy": 2.0}, arrays).to_bytes()
    assert len(data) - 3 * 8 * size < 256
    assert len(data) % 8 == 0


def test_arrays_that_were_read_refuse_writing() -> None:
    with pytest.raises(ValueError, match="read-only"):
        read(small()).arrays["x"][0] = 0.0


def test_the_error_is_one_of_eigenfed_and_a_value_error() -> None:
    with pytest.raises(DataError) as caught:
        read(b"")
    assert isinstance(caught.value, EigenfedError)
    assert isinstance(caught.value, ValueError)


def numpy_file() -> bytes:
    file = io.BytesIO()
    np.save(file, np.zeros(3))
    return file.getvalue()


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0",
        b"E",
        b"eigenfeD" + small()[8:],
        b"\0" + small(),
        small()[1:],
        bytes(100),
        pickle.dumps({"x": 1}),
        numpy_file(),
        b'{"kind": "note"}',
    ],
    ids=[
        "empty",
        "nul",
        "letter",
        "other mark",
        "shifted",
        "beheaded",
        "zeros",
        "pickle",
        "npy",
        "json",
    ],
)
def test_foreign_bytes_are_refused(data: bytes) -> None:
    with pytest.raises(DataError, match=f"^{FOREIGN}$"):
        read(data)


@pytest.mark.parametrize("length", range(1, len(small())))
def test_every_truncation_is_called_cut_short(length: int) -> None:
    with pytest.raises(DataError, match=cut_short(length)):
        read(small()[:length])


def test_truncation_names_the_length_that_is_needed() -> None:
    needed = len(small())
    with pytest.raises(DataError, match=f": {needed - 1} bytes where {needed} are needed"):
        read(small()[:-1])


@pytest.mark.parametrize("mask", [*(1 << bit for bit in range(8)), 0xFF])
def test_every_flipped_byte_is_found(mask: int) -> None:
    whole = small()
    for place in range(len(whole)):
        data = bytearray(whole)
        data[place] ^= mask
        with pytest.raises(DataError, match=r"^The data (are corrupt|are truncated|were not)"):
            read(bytes(data))


@pytest.mark.parametrize("place", [-1, -16, -17, -24])
def test_flips_outside_the_header_are_found_by_the_checksum(place: int) -> None:
    data = bytearray(small())
    data[place] ^= 1
    with pytest.raises(DataError, match=f"^{CHECKSUM}$"):
        read(bytes(data))


@pytest.mark.parametrize("tail", [b"\0", b"\n", bytes(8), bytes(16), small()])
def test_trailing_bytes_are_refused(tail: bytes) -> None:
    whole = len(small())
    message = (
        f"The data are corrupt: {whole + len(tail)} bytes where {whole} are expected. "
        "Fetch them again."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        read(small() + tail)


def test_another_kind_is_refused_and_both_are_named() -> None:
    message = "The data hold a 'note' where a 'summary' is expected. Pass another file."
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Container.from_bytes(small(), kind="summary", version=1)


@pytest.mark.parametrize(("written", "wanted"), [(2, 1), (1, 2), (0, 1), (-1, 1)])
def test_another_version_is_refused_and_both_are_named(written: int, wanted: int) -> None:
    data = Container("note", written, {}, {}).to_bytes()
    message = (
        f"The data have note format {written} and this release of eigenfed reads format {wanted}. "
        "Use the same release on both sides."
    )
    with pytest.raises(DataError, match=f"^{re.escape(message)}$"):
        Container.from_bytes(data, kind="note", version=wanted)


def test_corruption_is_told_before_kind_and_version() -> None:
    data = bytearray(Container("other", 2, {}, {}).to_bytes())
    data[-1] ^= 1
    with pytest.raises(DataError, match=f"^{CHECKSUM}$"):
        read(bytes(data))


def test_a_header_written_by_hand_is_read_when_it_is_right() -> None:
    payload = np.array([4.0, 5.0]).tobytes()
    found = read(forged(altered(scalars={"n": 3}, arrays=[["x", "<f8", [2]]]), payload))
    assert found.scalars == {"n": 3}
    np.testing.assert_array_equal(found.arrays["x"], [4.0, 5.0])


@pytest.mark.parametrize(
    "header",
    [b"", b" ", b"not json", b"{", b"null", b"3", b"[]", b'"kind"', b"\xff\xfe\xfd", b"{}"],
)
def test_a_header_that_is_no_json_object_is_refused(header: bytes) -> None:
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(header))


@pytest.mark.parametrize("key", sorted(VALID))
def test_a_header_without_one_of_its_keys_is_refused(key: str) -> None:
    header = json.dumps({name: VALID[name] for name in VALID if name != key}).encode()
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(header))


def test_a_header_with_a_foreign_key_is_refused() -> None:
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(altered(pickled=True)))


@pytest.mark.parametrize(
    "changes",
    [
        {"kind": 1},
        {"kind": None},
        {"kind": ["note"]},
        {"version": "1"},
        {"version": 1.0},
        {"version": True},
        {"version": None},
        {"scalars": []},
        {"scalars": None},
        {"scalars": {"n": None}},
        {"scalars": {"n": [1.0]}},
        {"scalars": {"n": {}}},
        {"scalars": {"n": math.nan}},
        {"scalars": {"n": math.inf}},
        {"scalars": {"n": -math.inf}},
        {"scalars": {"fine": 1.0, "n": math.nan}},
        {"arrays": {}},
        {"arrays": None},
        {"arrays": "x"},
        {"arrays": ["x<f"]},
        {"arrays": [{"name": "x"}]},
        {"arrays": [[]]},
        {"arrays": [["x", "<f8"]]},
        {"arrays": [["x", "<f8", [0], 0]]},
        {"arrays": [[1, "<f8", [0]]]},
        {"arrays": [["x", "<f8", [0]], ["y", "<f8"]]},
    ],
    ids=repr,
)
def test_a_header_with_a_value_of_the_wrong_type_is_refused(changes: dict[str, Any]) -> None:
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(altered(**changes)))


@pytest.mark.parametrize("number", [b"1e999", b"-1e999", b"1" * 5000])
def test_a_scalar_beyond_the_range_of_numbers_is_refused(number: bytes) -> None:
    header = altered(scalars={"n": 0}).replace(b'"n": 0', b'"n": ' + number)
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(header))


@pytest.mark.parametrize(
    "dtype",
    [
        "|O",
        "<f2",
        "<f16",
        "<i4",
        "<u8",
        "<c16",
        "|S8",
        "|i1",
        "|b1",
        "|V8",
        ">f8",
        "=f8",
        "float64",
        "",
        8,
        None,
        ["<f8"],
    ],
)
def test_an_unknown_dtype_is_refused(dtype: Any) -> None:
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(altered(arrays=[["x", dtype, [1]]]), bytes(8)))


@pytest.mark.parametrize(
    "shape",
    [
        1,
        None,
        "1",
        {},
        [-1],
        [1, -1],
        [1.0],
        [True],
        [None],
        ["1"],
        [[1]],
        [1 << 48],
        [0, 1 << 48],
        [1] * 5,
    ],
    ids=repr,
)
def test_an_impossible_shape_is_refused(shape: Any) -> None:
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(altered(arrays=[["x", "<f8", shape]]), bytes(8)))


@pytest.mark.parametrize(
    "shape", [[3], [2, 2], [(1 << 48) - 1], [1 << 47] * 4, [1 << 32, 1 << 32]], ids=repr
)
def test_a_shape_beyond_the_bytes_that_are_there_is_called_cut_short(shape: list[int]) -> None:
    data = forged(altered(arrays=[["x", "<f8", shape]]), bytes(16))
    with pytest.raises(DataError, match=cut_short(len(data))):
        read(data)


def test_an_array_may_not_reach_into_the_checksum() -> None:
    data = forged(altered(arrays=[["x", "<f8", [2]]]), b"")
    with pytest.raises(DataError, match=cut_short(len(data))):
        read(data)


@pytest.mark.parametrize("size", [(1 << 20) + 1, 1 << 32, (1 << 64) - 1])
def test_a_header_longer_than_a_mebibyte_is_refused_unread(size: int) -> None:
    header = altered()
    data = sealed(b"eigenfed" + size.to_bytes(8, "little") + header)
    with pytest.raises(DataError, match=f"^{TOO_LONG}$"):
        read(data)


def test_a_header_of_one_mebibyte_is_still_read() -> None:
    header = altered()
    assert read(forged(header + b" " * ((1 << 20) - len(header)))).kind == "note"


def test_a_header_longer_than_the_data_is_called_cut_short() -> None:
    data = sealed(b"eigenfed" + (1000).to_bytes(8, "little") + altered())
    with pytest.raises(DataError, match=rf": {len(data)} bytes where 1032 are needed\."):
        read(data)


@pytest.mark.parametrize("opening", [b"[", b'{"kind":'])
def test_a_header_nested_beyond_reason_is_refused(opening: bytes) -> None:
    with pytest.raises(DataError, match=f"^{UNREADABLE}$"):
        read(forged(opening * 100_000))


def test_an_empty_array_of_impossible_lengths_is_refused() -> None:
    with pytest.raises(DataError):
        read(forged(altered(arrays=[["x", "<f8", [1 << 40, 1 << 40, 0]]])))


def test_an_array_without_dimensions_keeps_its_shape() -> None:
    assert round_trip(x=np.array(3.0))["x"].shape == ()


def test_bytes_known_to_be_intact_have_no_checksum_made_again() -> None:
    data = bytearray(small())
    data[-1] ^= 1
    with pytest.raises(DataError, match=f"^{CHECKSUM}$"):
        read(bytes(data))
    found = Container.from_bytes(bytes(data), kind="note", version=1, intact=True)
    np.testing.assert_array_equal(found.arrays["x"], [1.5, -2.0])


def test_bytes_known_to_be_intact_still_have_to_be_of_the_kind_and_of_full_length() -> None:
    with pytest.raises(DataError, match="where a 'summary' is expected"):
        Container.from_bytes(small(), kind="summary", version=1, intact=True)
    with pytest.raises(DataError, match="truncated"):
        Container.from_bytes(small()[:-1], kind="note", version=1, intact=True)
