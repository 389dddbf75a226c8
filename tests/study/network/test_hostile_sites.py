"""A site that signs what it sends, and sends what no rows have."""

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from eigenfed.arrays import Arrays
from eigenfed.errors import ProtocolError
from eigenfed.protocol.messages import Message
from eigenfed.transport.bundles import COORDINATOR, Bundle, name_site, sign_bundle
from network_runs import Network


def let_lie(network: Network, op: str, lie: Callable[[Arrays], Arrays]) -> None:
    """Let the site south change its replies to an operation, and sign them."""
    identity = network.identities["south"]

    def carry(name: str, answer: Callable[[bytes], bytes], data: bytes) -> bytes:
        reply = answer(data)
        bundle = Bundle.from_bytes(reply)
        if name != "south" or (bundle.manifest.kind, bundle.manifest.operation) != ("reply", op):
            return reply
        found = Message.from_bytes(bundle.message, "reply")
        arrays = {**found.arrays, **lie(found.arrays)}
        return sign_bundle(
            Message("reply", found.run, found.round_, op, arrays).to_bytes(),
            identity,
            sender=name_site("south"),
            recipient=COORDINATOR,
            answers=bundle.manifest.answers,
        )

    network.carry = carry


@pytest.mark.parametrize(
    ("method", "op", "field"),
    [
        ("covariance", "moments", "n"),
        ("covariance", "scatter", "triangle"),
        ("krylov", "product", "product"),
        ("factors", "scatter_factor", "factor"),
    ],
)
@pytest.mark.parametrize("number", [np.nan, np.inf])
def test_a_number_that_is_not_finite_is_refused_with_the_name_of_the_site(
    method: str, op: str, field: str, number: float, tmp_path: Path
) -> None:
    network = Network(tmp_path, method=method)

    def lie(arrays: Arrays) -> Arrays:
        wrong = arrays[field].copy()
        wrong.reshape(-1)[-1] = number
        return {field: wrong}

    let_lie(network, op, lie)
    with pytest.raises(ProtocolError, match=f"'south' to '{op}' has a number that is not finite"):
        network.run()
    network.carry = lambda name, answer, data: answer(data)
    assert network.run().resumed, "nothing of the lie is in the transcript"


@pytest.mark.filterwarnings("ignore:overflow encountered:RuntimeWarning")
def test_numbers_that_overflow_in_the_computation_end_the_run_in_words(tmp_path: Path) -> None:
    network = Network(tmp_path, method="factors")
    let_lie(
        network,
        "scatter_factor",
        lambda arrays: {"factor": np.full_like(arrays["factor"], 1e308)},
    )
    with pytest.raises(ProtocolError, match="one has sent numbers that no rows have"):
        network.run()


@pytest.mark.parametrize(
    "lie",
    [{"n": np.array([-41.0])}, {"lost": np.array([-1.0])}, {"s": np.float64(1.0).reshape(())}],
    ids=["negative weight", "negative loss", "no list"],
)
def test_a_summary_with_impossible_numbers_is_refused(lie: Arrays, tmp_path: Path) -> None:
    network = Network(tmp_path, method="merge", study="certify = false\n")
    let_lie(network, "summarise", lambda _: lie)
    with pytest.raises(ProtocolError, match="summary of site 'south'"):
        network.run()
