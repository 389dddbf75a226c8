"""What costs of methods are made of: blocks of rows, the leakage meter, threads.

The factors with which methods use them were measured, and tests hold them to within 30 % of real
peaks.
"""

from eigenfed.protocol.method import Cost, Shape

SKINNY = 4.0
"""How many times longer a multiplication takes with few columns: it waits for memory."""

_BLOCK_BYTES = 12 << 20
_METER_BYTES = 128 << 20


def block_bytes(shape: Shape) -> float:
    """Return the bytes of the rows that are worked on at a time."""
    return min(shape.rows_bytes, float(_BLOCK_BYTES))


def block_count(shape: Shape) -> int:
    """Return how many blocks of rows the largest site has."""
    return int(-(-shape.rows_bytes // _BLOCK_BYTES))


def meter_bytes(shape: Shape, answered: int) -> float:
    """Return the bytes of the directions that the leakage meter keeps."""
    return min(shape.column_bytes(answered), float(_METER_BYTES))


def replies_in_hand(shape: Shape) -> int:
    """Return how many replies a coordinator holds at a time."""
    return min(shape.sites, 2 * shape.cores + 1)


def product_site_bytes(shape: Shape, answered: int, known: int) -> float:
    """Return what a site needs for products: the meter keeps directions and images.

    Parameters
    ----------
    shape : Shape
    answered : int
        Directions answered about in all.
    known : int
        Directions that the certificate is about.
    """
    meter = meter_bytes(shape, answered)
    return 2.0 * meter + max(
        1.4 * shape.column_bytes(known) + block_bytes(shape),
        min(block_count(shape), shape.cores) * block_bytes(shape),
    )


def product_work(shape: Shape, answered: int, width: int) -> float:
    """Return the multiplications of products: with the rows and back, and keeping blocks apart."""
    d = float(shape.features)
    return answered * (SKINNY * 4.0 * shape.rows * d + 4.0 * d * max(width, answered / 2.0))


def iterated_cost(shape: Shape, width: int, rounds: int, held: float) -> Cost:
    """Return what one block of directions a round takes.

    Parameters
    ----------
    shape : Shape
    width : int
        Directions of a block.
    rounds : int
        Usual number of rounds, where the shape does not tell it.
    held : float
        How many blocks the coordinator holds, beside the replies that come in.
    """
    rounds = shape.products or rounds
    answered = rounds * width
    return Cost(
        rounds + shape.certify,
        answered,
        float(shape.features) * answered,
        product_site_bytes(shape, answered, width),
        (held + replies_in_hand(shape)) * shape.column_bytes(width),
        product_work(shape, answered, width),
    )
