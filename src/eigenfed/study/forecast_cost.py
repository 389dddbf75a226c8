"""Memory and work of a run, by its sizes: what the methods hold at their peak, and multiply.

The factors were measured, and tests hold them to within 30 % of real peaks.
"""

import os
from dataclasses import dataclass

_FLOAT = 8
_BLOCK_BYTES = 12 << 20
_METER_BYTES = 128 << 20
_ROOM_BYTES = 64 << 20
_FLOPS_PER_S = 5e9
_ITERATIONS = 10


@dataclass(frozen=True)
class Sizes:
    """What memory and work follow from.

    Attributes
    ----------
    n : int
        Rows of the largest site.
    d, k : int
    sites : int
    method : str
    products : int
        Rounds of products.
    private : bool
    """

    n: int
    d: int
    k: int
    sites: int
    method: str
    products: int
    private: bool

    @property
    def width(self) -> int:
        """Number of directions in one product."""
        if self.private:
            return min(2 * self.k, self.d)
        wide = {"krylov": max(self.k, 8), "power": self.k + 5, "merge": 2 * self.k}
        return min(wide.get(self.method, self.k), self.d)

    @property
    def answered(self) -> int:
        """Columns of directions that a site answers about in all."""
        if self.method == "randomized":
            return 2 * _ITERATIONS * self.k + 2 * self.k
        if self.method == "merge":
            return 2 * self.width
        return self.products * self.width

    @property
    def block(self) -> int:
        """Bytes of the rows that are worked on at a time."""
        return min(self.rows_bytes, _BLOCK_BYTES)

    @property
    def rows_bytes(self) -> int:
        """Bytes of the rows of the largest site, dense."""
        return self.n * self.d * _FLOAT

    @property
    def square(self) -> int:
        """Bytes of a matrix of features by features."""
        return self.d * self.d * _FLOAT

    def columns(self, count: int) -> int:
        """Return the bytes of so many directions."""
        return self.d * count * _FLOAT


def site_bytes(sizes: Sizes) -> float:
    """Return what a site needs beside its rows.

    Examples
    --------
    >>> site_bytes(Sizes(3000, 2000, 4, 3, "covariance", 1, private=True))
    166400000.0
    """
    block, square = sizes.block, sizes.square
    if sizes.private and sizes.method == "covariance":
        return max(5.2 * square, 5.0 * block + square)
    if sizes.private:
        wide = sizes.columns(sizes.width)
        return max(5.0 * block + 1.9 * wide, 12.0 * wide)
    if sizes.method == "covariance":
        blocks = -(-sizes.rows_bytes // _BLOCK_BYTES)
        return max(min(blocks, _cores() + 3) * square + 2.0 * block, 2.2 * square)
    if sizes.method == "merge":
        return max(22.0 * sizes.columns(sizes.width), 4.0 * block)
    # The meter keeps directions and images, and makes a basis of them for the certificate.
    meter = min(sizes.columns(sizes.answered), _METER_BYTES)
    known = sizes.answered if sizes.method == "krylov" else sizes.width
    return max(6.8 * meter + 1.4 * sizes.columns(known), 2.0 * meter + 1.5 * (_cores() + 1) * block)


def coordinator_bytes(sizes: Sizes) -> float:
    """Return what the coordinator needs.

    Examples
    --------
    >>> coordinator_bytes(Sizes(3000, 2000, 4, 3, "covariance", 1, private=False))
    80000000.0
    """
    in_hand = min(sizes.sites, 2 * _cores() + 1)
    wide = sizes.columns(sizes.width)
    if sizes.method == "covariance":
        own = 2.0 if sizes.private else 1.0
        return (own + 0.5 * in_hand) * sizes.square
    if sizes.private:
        return (6.0 + in_hand) * wide
    match sizes.method:
        case "krylov":
            return sizes.columns(_room(sizes)) + 2.6 * sizes.columns(sizes.answered)
        case "randomized":
            return 4.2 * sizes.columns(_ITERATIONS * sizes.k)
        case "merge":
            return (6.0 + 1.7 * sizes.sites) * wide
        case "power":
            return (10.0 + in_hand) * wide
        case _:
            return (6.3 + in_hand) * wide


def _room(sizes: Sizes) -> int:
    """Columns that a Lanczos basis has made room for: twice as many whenever they run out."""
    room = max(2 * sizes.width, _ROOM_BYTES // sizes.columns(1))
    while room < sizes.answered:
        room = 2 * (room // sizes.width) * sizes.width
    return min(room, sizes.d)


def compute_s(sizes: Sizes) -> float:
    """Return the seconds of arithmetic, at the largest site and then at the coordinator.

    It takes five thousand million operations a second, a modest machine.

    Examples
    --------
    >>> compute_s(Sizes(5000, 1000, 4, 3, "covariance", 1, private=False))
    1.8
    """
    n, d, width = float(sizes.n), float(sizes.d), float(sizes.width)
    if sizes.method == "covariance":
        work = n * d * d + 4.0 * d**3
    else:
        # Multiplying with the rows and back, and keeping directions apart.
        work = sizes.answered * (4.0 * n * d + 4.0 * d * max(width, sizes.answered / 2.0))
    return work / _FLOPS_PER_S


def network_s(
    rounds: float, all_bytes: float, latency_ms: float | None, bandwidth_mbps: float | None
) -> float:
    """Return the seconds on the wire: rounds there and back, and all bytes on one link.

    The coordinator's link is taken to carry the messages of all sites, one after the other.

    Examples
    --------
    >>> network_s(10, 1_000_000, latency_ms=40, bandwidth_mbps=8)
    1.4
    """
    waiting = 0.0 if latency_ms is None else rounds * latency_ms / 1e3
    sending = 0.0 if bandwidth_mbps is None else 8.0 * all_bytes / (bandwidth_mbps * 1e6)
    return waiting + sending


def _cores() -> int:
    """As many threads work on blocks, and on replies, as this machine has processors."""
    return os.cpu_count() or 1
