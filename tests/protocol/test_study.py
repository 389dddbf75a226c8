"""A study is one run of bytes, and any change of it is another."""

import json
from dataclasses import fields, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.errors import DataError, InputError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.secagg.identity import Identity, is_signed
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.subspace import Subspace
from eigenfed.protocol.messages import Message, unpack
from eigenfed.protocol.published import DPdisPCA, ModSuLQ, NoisyFedPower, StreamingModSuLQ
from eigenfed.protocol.study import (
    Opening,
    Study,
    open_message,
    opening_statement,
    read_method,
)

PLAIN = Study(("a", "b"), 2)
OTHERS: dict[str, Any] = {
    "sites": ("a", "b", "c"),
    "components": 3,
    "method": Power(local_steps=2),
    "name": "other",
    "split": "features",
    "center": False,
    "scale": True,
    "secure": True,
    "by_site": True,
    "privacy": Privacy(1.0, 1e-6, shares={"scree": 0.1}, dropouts=1),
    "tol": 1e-9,
    "stop": "separated",
    "max_rounds": 51,
    "certify": False,
    "wire": "float32",
    "features": "9f86d081",
    "prepare": ("normalize:500", "log1p", "select:9:variance", "standardize:3"),
}
STUDIES = [
    PLAIN,
    *(replace(PLAIN, **{name: value}) for name, value in OTHERS.items()),
    replace(PLAIN, method="krylov"),
    replace(PLAIN, method=Subspace(start="merge", by="gram_schmidt")),
    replace(PLAIN, method=Merge(oversample=3)),
    replace(PLAIN, privacy=Privacy(1.0, 1e-6, clip=2.0, trust="local", count="private")),
    replace(PLAIN, privacy=DPdisPCA(1.0, 1e-6, clip=1.0)),
    replace(PLAIN, privacy=ModSuLQ(1.0, 1e-6, clip=1.0)),
    replace(
        PLAIN, privacy=StreamingModSuLQ(1.0, 1e-6, clip=1.0, batch=50, rank=3, energy=(0.1, 0.9))
    ),
    replace(PLAIN, privacy=NoisyFedPower(1.0, 1e-6, iterations=3)),
    replace(PLAIN, name='\u00e9 \u2028 "quoted"'),
]


def test_every_field_is_tried() -> None:
    assert OTHERS.keys() == {field.name for field in fields(Study)}


@pytest.mark.parametrize("study", STUDIES, ids=range(len(STUDIES)))
def test_a_study_comes_back_as_it_was(study: Study) -> None:
    again = Study.from_bytes(study.to_bytes())
    assert again == study
    assert again.to_bytes() == study.to_bytes()
    assert again.digest == study.digest
    assert study.to_bytes().isascii()


def test_the_digest_changes_with_every_field() -> None:
    digests = {study.digest for study in STUDIES}
    assert len(digests) == len(STUDIES)
    assert all(len(digest) == 64 for digest in digests)


def test_options_at_their_defaults_do_not_show() -> None:
    assert replace(PLAIN, method="power").digest == replace(PLAIN, method=Power()).digest


def rewritten(**changes: Any) -> bytes:
    """The plain study, with some fields as a hostile writer has them, written canonically."""
    record = {**json.loads(PLAIN.to_bytes()), **changes}
    return json.dumps(record, sort_keys=True, separators=(",", ":")).encode()


def test_the_writer_of_these_tests_writes_as_the_study_does() -> None:
    assert rewritten() == PLAIN.to_bytes()


TERMS = json.loads(replace(PLAIN, privacy=OTHERS["privacy"]).to_bytes())["privacy"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[]",
        b"\xff",
        b"[" * 100_000,
        b"1" * 5000,
        PLAIN.to_bytes()[:-1],
        PLAIN.to_bytes() + b" ",
        b" " + PLAIN.to_bytes(),
        PLAIN.to_bytes().replace(b'"auto"', b'"\\u0061uto"'),
        json.dumps(json.loads(PLAIN.to_bytes()), indent=1).encode(),
        b" " * (2 << 20),
        rewritten(format=2),
        rewritten(format=None),
        rewritten(more=1),
        rewritten(sites=[]),
        rewritten(sites="ab"),
        rewritten(sites=[1, 2]),
        rewritten(sites=None),
        rewritten(sites=["a", "a"]),
        rewritten(components=0),
        rewritten(components=-1),
        rewritten(components=1.5),
        rewritten(components=True),
        rewritten(components="2"),
        rewritten(components=None),
        rewritten(max_rounds=0),
        rewritten(max_rounds=1e9),
        rewritten(max_rounds=True),
        rewritten(tol="1e-8"),
        rewritten(tol=float("nan")),
        rewritten(tol=float("inf")),
        rewritten(tol=-1.0),
        rewritten(center=1),
        rewritten(scale="yes"),
        rewritten(secure=None),
        rewritten(by_site=0),
        rewritten(certify=[]),
        rewritten(name={"a": 1}),
        rewritten(name=7),
        rewritten(features=None),
        rewritten(split="both"),
        rewritten(split=["samples"]),
        rewritten(stop="never"),
        rewritten(wire="float16"),
        rewritten(method=None),
        rewritten(method="auto"),
        rewritten(method={"name": "none"}),
        rewritten(method={"name": ["power"]}),
        rewritten(method={"name": "power"}),
        rewritten(method={"name": "power", "options": {"local_steps": 0}}),
        rewritten(method={"name": "power", "options": {"local_steps": "4"}}),
        rewritten(method={"name": "power", "options": {"local_steps": 4}}),
        rewritten(method={"name": "power", "options": {"other": 4}}),
        rewritten(method={"name": "power", "options": [1]}),
        rewritten(privacy={}),
        rewritten(privacy={"kind": "Study"}),
        rewritten(privacy={"kind": "Published"}),
        rewritten(privacy={"kind": "Privacy"}),
        rewritten(privacy={**TERMS, "epsilon": 0.0}),
        rewritten(privacy={**TERMS, "epsilon": float("nan")}),
        rewritten(privacy={**TERMS, "epsilon": True}),
        rewritten(privacy={**TERMS, "delta": 2.0}),
        rewritten(privacy={**TERMS, "trust": "nobody"}),
        rewritten(privacy={**TERMS, "dropouts": -1}),
        rewritten(privacy={**TERMS, "shares": {"other": 1.0}}),
        rewritten(privacy={**TERMS, "shares": [1.0]}),
        rewritten(privacy={**TERMS, "more": 1}),
    ],
    ids=range(69),
)
def test_hostile_bytes_are_no_study(data: bytes) -> None:
    with pytest.raises(DataError, match="not a study as written by this release"):
        Study.from_bytes(data)


@given(st.binary(max_size=200))
def test_random_bytes_are_no_study(data: bytes) -> None:
    with pytest.raises(DataError):
        Study.from_bytes(data)


@given(at=st.integers(0, len(PLAIN.to_bytes()) - 1), byte=st.integers(0, 255))
def test_a_changed_byte_is_another_study_or_none(at: int, byte: int) -> None:
    data = bytearray(PLAIN.to_bytes())
    data[at] = byte
    try:
        study = Study.from_bytes(bytes(data))
    except DataError:
        return
    assert (study == PLAIN) == (bytes(data) == PLAIN.to_bytes())


@pytest.mark.parametrize(
    ("settings", "why"),
    [
        ({"components": 0}, "components of a study must be an integer of at least 1"),
        ({"max_rounds": 0}, "at least one site and one round"),
        ({"sites": ()}, "at least one site and one round"),
        ({"split": "rows"}, "split of a study must be one of samples, features"),
        ({"method": "none"}, "method='none' must be one of 'auto', 'covariance'"),
    ],
)
def test_a_study_that_makes_no_sense_cannot_be_made(settings: dict[str, Any], why: str) -> None:
    with pytest.raises(InputError, match=why):
        replace(PLAIN, **settings)


def test_a_study_is_masked_where_it_or_its_privacy_says_so() -> None:
    assert not PLAIN.masked
    assert replace(PLAIN, secure=True).masked
    assert replace(PLAIN, privacy=Privacy(1.0, 1e-6)).masked
    assert not replace(PLAIN, privacy=Privacy(1.0, 1e-6, trust="local")).masked
    assert not replace(PLAIN, privacy=DPdisPCA(1.0, 1e-6, clip=1.0)).masked


def test_a_method_left_open_must_be_chosen_first() -> None:
    with pytest.raises(InputError, match="must be chosen before it is opened"):
        _ = PLAIN.chosen
    assert PLAIN.with_method(Power()).chosen == Power()


def test_an_opening_is_signed_for_its_run_study_and_method() -> None:
    coordinator = Identity.generate()
    message = Message.from_bytes(open_message("r1", PLAIN, Power(2), coordinator), "open")
    opening = unpack(Opening, message.arrays)
    assert (message.run, message.label) == ("r1", "open")
    assert opening.coordinator.tobytes() == coordinator.public
    signed = opening.study.tobytes(), opening.method.tobytes()
    assert Study.from_bytes(signed[0]) == PLAIN
    assert read_method(signed[1]) == Power(2)
    signature = opening.signature.tobytes()
    assert is_signed(coordinator.public, opening_statement("r1", *signed), signature)
    assert not is_signed(coordinator.public, opening_statement("r2", *signed), signature)


@pytest.mark.parametrize(
    "data", [b"", b"null", b"[]", b'{"name": "x"}', b'{"name": "power"}', b"[" * 9999, b"\xff"]
)
def test_an_opening_of_no_method_is_refused(data: bytes) -> None:
    with pytest.raises(DataError, match="does not name a known method"):
        read_method(data)


def test_an_opening_that_lacks_a_field_is_refused() -> None:
    message = Message.from_bytes(open_message("r", PLAIN, Power(), Identity.generate()), "open")
    for name in message.arrays:
        fewer = {n: array for n, array in message.arrays.items() if n != name}
        with pytest.raises(DataError):
            unpack(Opening, replace(message, arrays=fewer).arrays)
    with pytest.raises(DataError):
        unpack(Opening, {**message.arrays, "more": np.zeros(1)})
