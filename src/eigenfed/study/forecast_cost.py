"""Memory and time of a run, by what its method takes; for private runs, what theirs does.

The factors were measured, and tests hold them to within 30 % of real peaks.
"""

from eigenfed.protocol.method import Cost, Method, Shape
from eigenfed.protocol.method_cost import block_bytes, product_work, replies_in_hand

_WORK_PER_S = 5e9


def private_cost(method: Method, shape: Shape) -> Cost:
    """Return what a method takes under differential privacy.

    Parameters
    ----------
    method : Method
        One that sends its whole covariance, or one that iterates: two products with twice as many
        directions as components.
    shape : Shape

    Examples
    --------
    >>> from eigenfed import Covariance
    >>> shape = Shape(rows=3000, features=2000, components=4, sites=3)
    >>> private_cost(Covariance(), shape).site_bytes
    166400000.0
    """
    d, block = float(shape.features), block_bytes(shape)
    if not method.iterates:
        square = shape.square_bytes
        return Cost(
            1,
            shape.features,
            d * (d + 1) / 2,
            max(5.2 * square, 5.0 * block + square),
            (2.0 + 0.5 * replies_in_hand(shape)) * square,
            float(shape.rows) * d * d + 4.0 * d**3,
        )
    rounds, width = shape.products or 2, min(2 * shape.components, shape.features)
    wide, answered = shape.column_bytes(width), rounds * width
    return Cost(
        rounds,
        answered,
        d * answered,
        max(5.0 * block + 1.9 * wide, 12.0 * wide),
        (6.0 + replies_in_hand(shape)) * wide,
        product_work(shape, answered, width),
    )


def compute_s(cost: Cost) -> float:
    """Return the seconds of arithmetic, at the largest site and then at the coordinator.

    It takes five thousand million operations a second, a modest machine.

    Examples
    --------
    >>> from eigenfed import Covariance
    >>> shape = Shape(rows=5000, features=1000, components=4, sites=3)
    >>> compute_s(Covariance().cost(shape))
    1.8
    """
    return cost.work / _WORK_PER_S


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
