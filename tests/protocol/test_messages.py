"""Messages as bytes: what goes in comes out, and nothing else comes in."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from eigenfed.arrays import Container, Scalar
from eigenfed.errors import DataError, InputError
from eigenfed.protocol import messages
from eigenfed.protocol.messages import VERSION, Message, check_wire

KINDS = ("request", "reply", "refusal")
arrays = hnp.arrays(
    st.sampled_from([np.float64, np.int64, np.uint8]),
    hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=4),
)


def example() -> Message:
    return Message("reply", "run-1", 4, "product", {"a": np.arange(6.0).reshape(3, 2) / 7})


@settings(max_examples=40)
@given(
    kind=st.sampled_from(KINDS),
    run=st.text(max_size=20),
    round_=st.integers(-1, 2**40),
    label=st.text(max_size=20),
    named=st.dictionaries(st.text(max_size=8), arrays, max_size=3),
)
def test_messages_come_back_as_they_were(
    kind: str, run: str, round_: int, label: str, named: dict[str, npt.NDArray[Any]]
) -> None:
    sent = Message(kind, run, round_, label, named)
    got = Message.from_bytes(sent.to_bytes(), kind)
    assert (got.kind, got.run, got.round_, got.label) == (kind, run, round_, label)
    assert list(got.arrays) == list(named)
    for name, array in named.items():
        assert got.arrays[name].dtype == array.dtype
        np.testing.assert_array_equal(got.arrays[name], array)


def test_the_same_message_is_the_same_bytes() -> None:
    assert example().to_bytes() == example().to_bytes()


@pytest.mark.parametrize("order", ["C", "F"])
def test_order_and_strides_do_not_show(order: Any) -> None:
    table = np.arange(12.0).reshape(3, 4)
    laid = np.asarray(table, order=order)
    plain = Message("request", "r", 0, "x", {"a": table}).to_bytes()
    assert Message("request", "r", 0, "x", {"a": laid}).to_bytes() == plain
    skipped = np.repeat(table, 2, axis=1)[:, ::2]
    assert Message("request", "r", 0, "x", {"a": skipped}).to_bytes() == plain


def test_not_a_number_and_infinity_cross() -> None:
    odd = np.array([np.nan, np.inf, -np.inf, -0.0])
    got = Message.from_bytes(
        Message("request", "r", 0, "x", {"a": odd}).to_bytes(), "request"
    ).arrays["a"]
    np.testing.assert_array_equal(got.view(np.int64), odd.view(np.int64))


def test_a_narrow_wire_rounds_floats_once_and_leaves_whole_numbers() -> None:
    values = np.random.default_rng(0).standard_normal(1000)
    whole = np.array([2**53 + 1, -3])
    sent = Message("reply", "r", 0, "x", {"v": values, "w": whole})
    got = Message.from_bytes(sent.to_bytes("float32"), "reply")
    assert got.arrays["v"].dtype == np.float64
    np.testing.assert_array_equal(got.arrays["v"], values.astype(np.float32).astype(np.float64))
    np.testing.assert_array_equal(got.arrays["w"], whole)
    saved = len(sent.to_bytes()) - len(sent.to_bytes("float32"))
    assert saved == 4 * 1000
    again = Message("reply", "r", 0, "x", dict(got.arrays)).to_bytes("float32")
    assert again == sent.to_bytes("float32")


@pytest.mark.parametrize("kind", KINDS)
def test_another_kind_than_expected_is_refused(kind: str) -> None:
    data = Message(kind, "r", 0, "x", {}).to_bytes()
    others = [other for other in KINDS if other != kind]
    for expected in ([others[0]], [others[1]], others):
        with pytest.raises(DataError, match=f"{kind!r}"):
            Message.from_bytes(data, *expected)
    assert Message.from_bytes(data, *KINDS).kind == kind


def test_a_kind_in_the_text_of_a_field_does_not_pass_for_the_kind() -> None:
    data = Message("request", '"kind": "reply"', 0, '"kind": "reply"', {}).to_bytes()
    with pytest.raises(DataError):
        Message.from_bytes(data, "reply", "refusal")


def test_cut_at_any_length_it_is_refused() -> None:
    data = example().to_bytes()
    for length in range(len(data)):
        with pytest.raises(DataError):
            Message.from_bytes(data[:length], "reply")
    with pytest.raises(DataError):
        Message.from_bytes(data + b"\0", "reply")


def test_changed_at_any_byte_it_is_refused() -> None:
    data = example().to_bytes()
    for place in range(len(data)):
        changed = bytearray(data)
        changed[place] ^= 1
        with pytest.raises(DataError):
            Message.from_bytes(bytes(changed), "reply")


def test_too_long_a_message_is_refused_by_its_length(monkeypatch: pytest.MonkeyPatch) -> None:
    data = example().to_bytes()
    monkeypatch.setattr(messages, "MAX_BYTES", len(data))
    Message.from_bytes(data, "reply")
    monkeypatch.setattr(messages, "MAX_BYTES", len(data) - 1)
    with pytest.raises(DataError, match=f"{len(data)} bytes"):
        Message.from_bytes(data, "reply")


FIELDS: dict[str, Scalar] = {"run": "r", "round": 0, "label": "x"}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"run": "r", "round": 0},
        {**FIELDS, "extra": 1},
        {**FIELDS, "round": 0.0},
        {**FIELDS, "round": True},
        {**FIELDS, "round": "0"},
        {**FIELDS, "run": 1},
        {**FIELDS, "label": False},
    ],
)
def test_missing_foreign_or_mistyped_fields_are_refused(fields: dict[str, Scalar]) -> None:
    Message.from_bytes(Container("request", VERSION, FIELDS, {}).to_bytes(), "request")
    with pytest.raises(DataError, match="field"):
        Message.from_bytes(Container("request", VERSION, fields, {}).to_bytes(), "request")


def test_another_version_is_refused_naming_both() -> None:
    data = Container("request", VERSION + 1, FIELDS, {}).to_bytes()
    with pytest.raises(DataError, match=rf"format {VERSION + 1} .* format {VERSION}\b"):
        Message.from_bytes(data, "request")


def test_a_wire_of_another_precision_is_refused() -> None:
    with pytest.raises(InputError, match="wire='float16' must be 'float64' or 'float32'"):
        check_wire("float16")


def test_a_number_beyond_single_precision_is_refused_and_never_becomes_infinite() -> None:
    message = Message("reply", "r", 0, "product", {"product": np.array([1.0, -1e39])})
    assert message.to_bytes()
    with pytest.raises(InputError, match="larger than single precision allows"):
        message.to_bytes("float32")
