"""Shares of a secret: enough of them bring it back, fewer tell nothing."""

from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from eigenfed.errors import DataError, InputError
from eigenfed.privacy.secagg.shamir import PRIME, SHARE_BYTES, recover_secret, split

SECRET = bytes(range(32))


def is_probably_prime(n: int) -> bool:
    """Miller and Rabin, to 20 bases."""
    odd, twos = n - 1, 0
    while odd % 2 == 0:
        odd, twos = odd // 2, twos + 1
    for base in (2, 3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67, 71):
        x = pow(base, odd, n)
        if x in (1, n - 1):
            continue
        for _ in range(twos - 1):
            x = x * x % n
            if x == n - 1:
                break
        else:
            return False
    return True


def test_the_field_is_the_first_above_every_secret() -> None:
    assert is_probably_prime(PRIME)
    assert not any(is_probably_prime(n) for n in range(2**256 + 1, PRIME))


@given(st.binary(min_size=32, max_size=32), st.integers(2, 9), st.data())
def test_any_threshold_of_shares_bring_the_secret_back(
    secret: bytes, threshold: int, data: st.DataObject
) -> None:
    points = data.draw(st.lists(st.integers(1, 60), min_size=threshold, max_size=12, unique=True))
    shares = dict(zip(points, split(secret, threshold, points), strict=True))
    chosen = data.draw(st.permutations(points))[: data.draw(st.integers(threshold, len(points)))]
    assert recover_secret({x: shares[x] for x in chosen}, threshold) == secret


@pytest.mark.parametrize("secret", [bytes(32), b"\xff" * 32])
def test_every_group_of_threshold_holders_is_enough(secret: bytes) -> None:
    points = [1, 2, 3, 4, 5]
    shares = dict(zip(points, split(secret, 3, points), strict=True))
    for group in combinations(points, 3):
        assert recover_secret({x: shares[x] for x in group}, 3) == secret


def test_one_share_less_fits_every_secret() -> None:
    """With a share missing, each secret is that of exactly one value of the missing share."""
    shares = dict(zip([1, 2, 3], split(SECRET, 3, [1, 2, 3]), strict=True))
    held = {1: shares[1], 2: shares[2]}
    found = {recover_secret({**held, 3: x.to_bytes(SHARE_BYTES, "big")}, 3) for x in range(40)}
    assert len(found) == 40
    # The secret is linear in the missing share: any secret is reached by some value of it.
    at_0, at_1 = (
        int.from_bytes(recover_secret({**held, 3: x.to_bytes(SHARE_BYTES, "big")}, 3), "big")
        for x in (0, 1)
    )
    other = int.from_bytes(b"another secret altogether......!", "big")
    needed = (other - at_0) * pow(at_1 - at_0, -1, PRIME) % PRIME
    forged = {**held, 3: needed.to_bytes(SHARE_BYTES, "big")}
    assert recover_secret(forged, 3) == b"another secret altogether......!"


def test_two_sharings_of_one_secret_have_nothing_in_common() -> None:
    first, second = split(SECRET, 2, [1, 2, 3]), split(SECRET, 2, [1, 2, 3])
    assert not set(first) & set(second)
    assert {len(share) for share in first + second} == {SHARE_BYTES}


def test_too_few_shares_are_refused() -> None:
    shares = split(SECRET, 3, [1, 2, 3])
    with pytest.raises(DataError, match="There are 2 secret shares and 3 are needed"):
        recover_secret({1: shares[0], 2: shares[1]}, 3)


@pytest.mark.parametrize(
    "share", [b"", bytes(32), bytes(34), PRIME.to_bytes(33, "big"), b"\xff" * 33]
)
def test_a_malformed_share_is_named_by_its_point(share: bytes) -> None:
    good = split(SECRET, 2, [1, 2])
    with pytest.raises(DataError, match="The secret share at point 2 is malformed"):
        recover_secret({1: good[0], 2: share}, 2)


def test_shares_that_lead_past_every_secret_are_refused() -> None:
    """2^256 is in the field and no secret."""
    beyond = (2**256).to_bytes(SHARE_BYTES, "big")
    with pytest.raises(DataError, match="do not belong together"):
        recover_secret({1: beyond, 2: beyond}, 2)


@pytest.mark.parametrize(
    ("secret", "threshold", "points", "message"),
    [
        (b"short", 2, [1, 2], "has 5 bytes and must have 32"),
        (SECRET, 1, [1, 2], "threshold=1 must be at least 2"),
        (SECRET, 3, [1, 2], "threshold=3 must be at least 2 and at most 2"),
        (SECRET, 2, [1, 1], "distinct and at least 1"),
        (SECRET, 2, [0, 1], "distinct and at least 1"),
        (SECRET, 2, [1, PRIME], "distinct and at least 1"),
    ],
)
def test_what_would_give_the_secret_away_is_refused(
    secret: bytes, threshold: int, points: list[int], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        split(secret, threshold, points)
