"""Bundles: what is signed, and everything that must not pass for one."""

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.errors import DataError
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.messages import Message
from eigenfed.transport.bundles import COORDINATOR, Bundle, Manifest, name_site, sign_bundle

MINE = Identity.from_bytes(bytes(range(32)))
MESSAGE = Message("reply", "r1", 3, "product", {"images": np.ones((4, 2))}).to_bytes()
DATA = sign_bundle(MESSAGE, MINE, sender=name_site("north"), recipient=COORDINATOR, answers="ab")
START = len(b"eigenfed bundle 1\n")


def test_the_first_lines_can_be_read_by_anybody() -> None:
    first, second, *_ = DATA.split(b"\n")
    assert first == b"eigenfed bundle 1"
    manifest = json.loads(second)
    assert manifest["from"] == "site north"
    assert manifest["to"] == "coordinator"
    assert manifest["arrays"] == {"images": [4, 2]}
    assert (manifest["kind"], manifest["round"], manifest["operation"]) == ("reply", 3, "product")


def test_a_bundle_comes_back_as_it_was_signed() -> None:
    bundle = Bundle.from_bytes(DATA)
    assert bundle.message == MESSAGE
    assert bundle.to_bytes() == DATA
    assert bundle.is_signed_by(MINE.public)
    assert not bundle.is_signed_by(Identity.generate().public)


@given(st.integers(0, len(DATA) - 1), st.integers(1, 255))
def test_a_changed_byte_is_refused_or_voids_the_signature(place: int, change: int) -> None:
    altered = bytearray(DATA)
    altered[place] ^= change
    try:
        bundle = Bundle.from_bytes(bytes(altered))
    except DataError:
        return
    assert not bundle.is_signed_by(MINE.public)


@given(st.integers(0, len(DATA) - 1))
def test_a_bundle_that_is_cut_short_is_refused(length: int) -> None:
    with pytest.raises(DataError):
        Bundle.from_bytes(DATA[:length])


@pytest.mark.parametrize(
    "changes",
    [
        {"arrays": {"images": [4, 3]}},
        {"size": 1},
        {"round": 4},
        {"operation": "moments"},
        {"kind": "request"},
        {"more": 1},
        {"sha256": "00"},
        {"arrays": None},
        {"from": 3},
    ],
)
def test_a_manifest_that_does_not_describe_its_message_is_refused(
    changes: dict[str, object],
) -> None:
    end = DATA.index(b"\n", START)
    record = json.loads(DATA[START:end]) | changes
    line = json.dumps(record, sort_keys=True, separators=(",", ":")).encode()
    try:
        bundle = Bundle.from_bytes(DATA[:START] + line + DATA[end:])
    except DataError:
        return
    assert not bundle.is_signed_by(MINE.public)


@pytest.mark.parametrize(
    "line",
    [b"[" * 60_000, b'{"a":' * 10_000, b"x" * 70_000, b"{}", b"[]", b"null", b'"\\ud800"', b"NaN"],
)
def test_hostile_manifests_are_refused(line: bytes) -> None:
    end = DATA.index(b"\n", START)
    with pytest.raises(DataError):
        Bundle.from_bytes(DATA[:START] + line + DATA[end:])


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("round", 3.0),
        ("round", True),
        ("size", float(len(MESSAGE))),
        ("arrays", {"images": [4.0, 2]}),
        ("from", 3),
        ("to", ["site north"]),
        ("answers", 0),
    ],
)
def test_a_manifest_with_fields_of_other_types_is_refused(field: str, value: object) -> None:
    end = DATA.index(b"\n", START)
    known = json.loads(DATA[START:end])
    line = json.dumps(known | {field: value}, sort_keys=True, separators=(",", ":")).encode()
    with pytest.raises(DataError):
        Bundle.from_bytes(DATA[:START] + line + DATA[end:])


def test_a_manifest_is_not_made_of_something_else() -> None:
    with pytest.raises(DataError):
        Manifest.of(b"no message", sender="a", recipient="b")
