"""Whatever a site answers is fixed by what its meter says it told: nothing else of the rows leaks.

Two tables with the same number of rows, the same mean, the same trace and the same scatter on all
directions that the meter counted must give the same replies to the same lies.
"""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array
from eigenfed.audit.hostile_coordinator import observe
from eigenfed.audit.lies import generate_lies
from eigenfed.errors import EigenfedError
from eigenfed.protocol.core import drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.method import find_method
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import LocalTransport
from hostile import COORDINATOR, RUN, Lone, sites_of

N, D, K = 60, 40, 2
NEVER = 1e-300


def table() -> Array:
    rng = np.random.default_rng(0)
    return rng.standard_normal((N, D)) * np.geomspace(3.0, 0.3, D) + rng.standard_normal(D)


def twin(rows: Array, told: Array) -> Array:
    """Return other rows with the same mean and trace, and the same scatter times what was told.

    Parameters
    ----------
    rows : ndarray of shape (n, d)
    told : ndarray of shape (d, r)
        Orthonormal columns.
    """
    mean = rows.mean(axis=0)
    around = rows - mean
    scatter = around.T @ around
    # Orthogonal to what was told the scatter may be anything; half its least value keeps it one.
    left = np.linalg.svd(told, full_matrices=True)[0][:, told.shape[1] :]
    size = 0.5 * np.linalg.eigvalsh(scatter)[0]
    other = scatter + size * (np.outer(left[:, 0], left[:, 0]) - np.outer(left[:, 1], left[:, 1]))
    frame = around @ np.linalg.inv(np.linalg.cholesky(scatter)).T
    made: Array = frame @ np.linalg.cholesky(other).T + mean
    return made


CASES: dict[str, dict[str, Any]] = {
    "krylov": {"method": "krylov"},
    "uncentred": {"method": "krylov", "center": False},
    "power": {"method": find_method("power", {"local_steps": 1})},
}


def requests_of(study: Study, rows: Array, seed: int) -> list[bytes]:
    """Return the messages of a run in which lies are told wherever they are believed."""
    rng = np.random.default_rng(seed)
    sent: list[bytes] = []

    class Liar:
        """A site that is told lies, and answers for the rows."""

        def __init__(self) -> None:
            self.site = sites_of({"a": rows}, study)["a"]()

        def answer(self, data: bytes) -> bytes:
            message = Message.from_bytes(data, "request", "open")
            if message.kind == "request":
                lies = [lie for how, lie in generate_lies(data) if _may_pass(how)]
                for lie in rng.permutation(np.array(lies, dtype=object))[:12]:
                    reply = self.site.answer(lie)
                    if observe(reply).kind == "reply":
                        sent.append(lie)
                        return reply
            sent.append(data)
            return self.site.answer(data)

    transport = LocalTransport({"a": Liar()}, run=RUN, workers=1)
    transport.open_with(open_message(RUN, study, study.method, COORDINATOR))
    # A coordinator that lies may well fall over its own lies.
    with suppress(EigenfedError, ValueError, FloatingPointError, np.linalg.LinAlgError):
        drive(pca(study, rng=np.random.default_rng(seed)), transport)
    return sent


def _may_pass(how: str) -> bool:
    return any(word in how for word in ("a little off", "swapped", "times -1", "times 2", "first"))


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("seed", range(8))
def test_replies_follow_from_what_the_meter_counted(name: str, seed: int) -> None:
    study = Study(("a",), K, tol=NEVER, max_rounds=3, **CASES[name])
    rows = table()
    sent = requests_of(study, rows, seed)
    first = sites_of({"a": rows}, study)["a"]()
    replies = [Message.from_bytes(first.answer(data), "reply", "refusal") for data in sent]
    told = first.meter.settled().basis
    assert 0 < told.shape[1] < D - 2
    second = sites_of({"a": twin(rows, told)}, study)["a"]()
    for data, reply in zip(sent, replies, strict=True):
        other = Message.from_bytes(second.answer(data), "reply", "refusal")
        assert (reply.kind, reply.label) == (other.kind, other.label)
        if reply.label == "remainder":
            continue  # one number about the rest, which the meter counts as such
        for field, values in reply.arrays.items():
            size = max(float(np.abs(values).max()), 1.0)
            np.testing.assert_allclose(other.arrays[field], values, atol=1e-9 * size, rtol=1e-9)


def test_a_reply_that_was_not_counted_would_be_found() -> None:
    """The twin differs where it may: one more direction tells the tables apart."""
    rows = table()
    lone = Lone.of(rows, Study(("a",), K, "krylov"))
    told = np.linalg.qr(np.random.default_rng(1).standard_normal((D, 4))).Q
    around, other = rows - rows.mean(axis=0), twin(rows, told)
    other = other - other.mean(axis=0)
    np.testing.assert_allclose(other.T @ (other @ told), around.T @ (around @ told), atol=1e-9)
    assert np.abs(other.T @ other - around.T @ around).max() > 1e-2
    assert lone.open().kind == "reply"
