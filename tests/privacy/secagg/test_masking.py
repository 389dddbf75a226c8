"""Keys in common, sealed messages, and streams that hide what they are added to."""

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

from eigenfed.errors import DataError
from eigenfed.privacy.secagg.masking import (
    KeyPair,
    Mask,
    add_masks,
    context,
    derive_key,
    seal,
    unseal,
)

KEY = bytes(range(32))
CHUNK = 1 << 14


def stream(key: bytes, words: int) -> np.ndarray[tuple[int], np.dtype[np.uint64]]:
    """ChaCha20's stream from its beginning, made in one piece."""
    made = (
        Cipher(algorithms.ChaCha20(key, bytes(16)), mode=None).encryptor().update(bytes(8 * words))
    )
    return np.frombuffer(made, "<u8").astype(np.uint64)


@pytest.mark.parametrize("words", [0, 1, 7, CHUNK - 1, CHUNK, CHUNK + 1, 3 * CHUNK + 5])
def test_a_mask_is_the_keys_stream(words: int) -> None:
    numbers = np.zeros(words, dtype=np.int64)
    add_masks([Mask(KEY, 1)], [numbers])
    np.testing.assert_array_equal(numbers.view(np.uint64), stream(KEY, words))


def test_one_stream_runs_through_all_arrays() -> None:
    shapes = [(3,), (), (2, 5), (0, 4), (CHUNK + 3,)]
    arrays = [np.zeros(shape, dtype=np.int64) for shape in shapes]
    add_masks([Mask(KEY, 1)], arrays)
    joined = np.concatenate([array.ravel() for array in arrays]).view(np.uint64)
    np.testing.assert_array_equal(joined, stream(KEY, joined.size))


def test_masks_add_up_whatever_their_number() -> None:
    keys = [bytes([i]) * 32 for i in range(5)]
    at_once, in_turn = (np.zeros(CHUNK + 9, dtype=np.int64) for _ in range(2))
    add_masks([Mask(key, (-1) ** i) for i, key in enumerate(keys)], [at_once])
    for i, key in enumerate(keys):
        add_masks([Mask(key, (-1) ** i)], [in_turn])
    np.testing.assert_array_equal(at_once, in_turn)
    add_masks([], [at_once])
    np.testing.assert_array_equal(at_once, in_turn)
    assert keys[1].hex() not in repr(Mask(keys[1], 1))


def test_what_is_added_can_be_taken_away_and_wraps_round() -> None:
    numbers = np.array([[np.iinfo(np.int64).max, np.iinfo(np.int64).min], [0, -1]])
    before = numbers.copy()
    add_masks([Mask(KEY, 1)], [numbers])
    assert (numbers != before).all()
    add_masks([Mask(KEY, -1)], [numbers])
    np.testing.assert_array_equal(numbers, before)


def test_masked_zeros_look_like_any_other_words() -> None:
    """Bits of the stream are ones in half of all cases, in every place of a word."""
    numbers = np.zeros(40_000, dtype=np.int64)
    add_masks([Mask(derive_key(KEY, b"x"), 1)], [numbers])
    bits = np.unpackbits(numbers.view(np.uint8).reshape(-1, 8), axis=1)
    assert np.abs(bits.mean(axis=0) - 0.5).max() < 0.5 * 6 / np.sqrt(len(numbers))


def test_two_parties_agree_and_a_third_does_not() -> None:
    a, b, c = (KeyPair.generate() for _ in range(3))
    assert a.agreed(b.public) == b.agreed(a.public) != a.agreed(c.public)
    assert KeyPair(a.private).public == a.public
    assert a.private.hex() not in repr(a) + str(vars(a))


@pytest.mark.parametrize("public", [bytes(32), (1).to_bytes(32, "little"), b"", b"x" * 31])
def test_keys_with_which_nothing_is_secret_are_refused(public: bytes) -> None:
    with pytest.raises(DataError, match="malformed or of low order"):
        KeyPair.generate().agreed(public)


def test_keys_differ_by_everything_that_they_are_for() -> None:
    purposes = [
        context("pair", "run", KEY, 1, "a", "b"),
        context("own", "run", KEY, 1, "a", "b"),
        context("pair", "other", KEY, 1, "a", "b"),
        context("pair", "run", bytes(32), 1, "a", "b"),
        context("pair", "run", KEY, 2, "a", "b"),
        context("pair", "run", KEY, "1", "a", "b"),
        context("pair", "run", KEY, b"1", "a", "b"),
        context("pair", "run", KEY, 1, "ab", ""),
        context("pair", "run", KEY, 1, "a"),
    ]
    assert len(set(purposes)) == len(purposes)
    keys = {derive_key(KEY, purpose) for purpose in purposes}
    assert len(keys) == len(purposes)
    assert {len(key) for key in keys} == {32}
    assert (
        derive_key(KEY, purposes[0])
        == derive_key(KEY, purposes[0])
        != derive_key(bytes(32), purposes[0])
    )


def test_a_sealed_message_opens_with_its_key_and_purpose_only() -> None:
    data = seal(KEY, b"a share", b"for b")
    assert b"a share" not in data
    assert unseal(KEY, data, b"for b") == b"a share"
    changed = bytes([data[0] ^ 1]) + data[1:]
    for key, text, purpose in (
        (bytes(32), data, b"for b"),
        (KEY, data, b"for c"),
        (KEY, changed, b"for b"),
        (KEY, data[:-1], b"for b"),
        (KEY, b"", b"for b"),
    ):
        with pytest.raises(DataError, match="changed, or is for another recipient"):
            unseal(key, text, purpose)
