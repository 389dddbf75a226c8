"""To be written."""

from eigenfed.protocol.ops import Op

OPS: tuple[Op, ...] = ()
