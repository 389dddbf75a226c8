"""The table of all operations a site knows: what a reviewer reads."""

from eigenfed.protocol import (
    certificate,
    covariance,
    moments,
    one_shot,
    orthonormalise,
    power,
    products,
    subspace,
)
from eigenfed.protocol.ops import Op

OPS: dict[str, Op] = {
    op.name: op
    for module in (
        moments,
        products,
        covariance,
        certificate,
        orthonormalise,
        subspace,
        power,
        one_shot,
    )
    for op in module.OPS
}
