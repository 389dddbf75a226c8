"""What a site does in FedPower: power steps of its own, and the step that is averaged.

===========  ==================================================================================
coordinator  D'W D Z T of one site or summed, d x r, where Z is where the site's own steps led and
             T turns it towards the baseline site; of the baseline also Z; the weight of the rows
site         the common basis that the steps start from, and with alignment the baseline's Z
===========  ==================================================================================

Local steps are no protection: what leaves after them still is the site's scatter times directions.
"""

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.data.prepared import Prepared
from eigenfed.data.source import Source
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.products import prepared


@op(Release("weight of the rows", "1", Leaves.EXACT, Reveals.COUNTS))
def site_weight(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the sum of the weights of the site's rows."""
    _, state = prepared(source, payload, state)
    weight = float(source.n if source.weights is None else source.weights.sum())
    return Answer({"weight": np.array([weight])}, state)


@op(Release("basis after local steps, of one site", "d x l", Leaves.EXACT, Reveals.DIRECTIONS))
def local_walk(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Take the local steps, keep where they led, and reply with it only where that is asked.

    What leaves spans the images of the last step but is not they; the meter counts it as if it
    were.
    """
    view, state = prepared(source, payload, state)
    before, images, basis = _walked(view, payload)
    state = {**state, "basis": basis}
    trace = float(state["trace"][0])
    if "shown" not in payload:
        nothing = np.zeros((source.d, 0))
        return Answer({}, state, nothing, nothing, trace)
    return Answer({"basis": basis}, state, before, images, trace)


@op(Release("scatter times aligned basis", "d x l", Leaves.SUM_ONLY, Reveals.DIRECTIONS))
def local_product(source: Source, payload: Arrays, state: Arrays) -> Answer:
    """Return the step to be averaged, from local steps turned to the baseline's if it is given."""
    view, state = prepared(source, payload, state)
    if "reference" in payload:
        basis = _turned(state["basis"], payload["reference"], signs=bool(payload["signs"][0]))
    else:
        *_, basis = _walked(view, payload)
    images = view.product(basis)
    share = float(payload["share"][0]) if "share" in payload else 1.0
    return Answer({"product": share * images}, state, basis, images, float(state["trace"][0]))


OPS = (site_weight, local_walk, local_product)


def _walked(view: Prepared, payload: Arrays) -> tuple[Array, Array, Array]:
    """Take the local steps: the last one's basis, the scatter times it, and where that led.

    The first two have no columns where there is no step to take.
    """
    basis: Array = payload["start"]
    before = images = np.zeros((len(basis), 0))
    for _ in range(int(payload["steps"][0])):
        before, images = basis, view.product(basis)
        basis = np.linalg.qr(images).Q
    return before, images, basis


def _turned(basis: Array, reference: Array, *, signs: bool) -> Array:
    """Turn a basis towards the reference by an orthogonal matrix, or only by signs."""
    overlap = basis.T @ reference
    if signs:
        return basis * np.where(overlap.diagonal() < 0, -1.0, 1.0)
    left, _, right = np.linalg.svd(overlap)
    turned: Array = basis @ (left @ right)
    return turned
