"""The table of all operations a site knows: what a reviewer reads."""

from eigenfed.protocol import (
    by_site,
    certificate,
    covariance,
    features,
    local_steps,
    moments,
    one_shot,
    orthonormalise,
    private_site,
    products,
    published,
    randomized,
    sealing,
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
        randomized,
        local_steps,
        one_shot,
        features,
        by_site,
        private_site,
        published,
        sealing,
    )
    for op in module.OPS
}
