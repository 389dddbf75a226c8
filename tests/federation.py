"""Sites in this process and runs over them, for tests of protocols."""

import gzip
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.core import Call, Protocol, Total, drive, plain_sum
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.gate.gate import Site
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.messages import Message, pack, unpack
from eigenfed.protocol.method import Cost, Method, Run, Shape
from eigenfed.protocol.method_registry import choose_method
from eigenfed.protocol.operations import Op, R, Request, State
from eigenfed.protocol.pca import pca
from eigenfed.protocol.study import Study, open_message
from eigenfed.transport.local import Answering, LocalTransport

T = TypeVar("T")

DATA = Path(os.environ.get("EIGENFED_DATA", Path(__file__).parents[2] / "shared/data"))
COORDINATOR = Identity.generate()
"""Who opens the runs of tests; their sites have pinned this key."""


class Ran(NamedTuple):
    """What came of a run, and what it went through."""

    found: Decomposition
    transport: LocalTransport
    sites: dict[str, Site]


def study_of(
    names: Iterable[str], components: int, method: Method | str = "covariance", **settings: Any
) -> Study:
    """A study of these sites."""
    return Study(tuple(sorted(names)), components, method, **settings)


def gate(
    name: str,
    table: Any,
    *,
    weights: Array | None = None,
    policy: Policy | None = None,
    **more: Any,
) -> Site:
    """A table behind the gate of a site that answers the coordinator of these tests."""
    source = table if isinstance(table, Source) else Source.of(table, weights=weights)
    return Site(name, source, coordinator=COORDINATOR.public, policy=policy, **more)


def gates(
    tables: Mapping[str, Any],
    *,
    weights: Mapping[str, Array] | None = None,
    policies: Mapping[str, Policy] | None = None,
    **more: Any,
) -> dict[str, Site]:
    """Put tables behind the gates of sites."""
    weights, policies = weights or {}, policies or {}
    return {
        name: gate(name, table, weights=weights.get(name), policy=policies.get(name), **more)
        for name, table in tables.items()
    }


def opening(run: str, study: Study) -> bytes:
    """The message that opens a run of a study whose method is chosen."""
    return open_message(run, study, study.method, COORDINATOR)


def opened(sites: Mapping[str, Answering], study: Study, **settings: Any) -> LocalTransport:
    """A transport that opens a run of the study at the sites."""
    transport = LocalTransport(sites, **{"wire": study.wire, **settings})
    transport.open_with(opening(transport.run, study))
    return transport


def run(
    tables: Mapping[str, Any],
    components: int,
    method: Method | str = "covariance",
    *,
    weights: Mapping[str, Array] | None = None,
    policies: Mapping[str, Policy] | None = None,
    seed: int = 0,
    **settings: Any,
) -> Ran:
    """Run a study on tables behind the gates of sites."""
    study = study_of(tables, components, method, **settings)
    sites = gates(tables, weights=weights, policies=policies, wire=study.wire)
    study = with_method(study, sites)
    transport = opened(sites, study)
    return Ran(drive(coordinated(study, seed=seed), transport), transport, sites)


def fitted(
    tables: Mapping[str, Any], components: int, method: Method | str = "covariance", **settings: Any
) -> tuple[Decomposition, LocalTransport]:
    """Run a study, and return what was found and what carried it."""
    ran = run(tables, components, method, **settings)
    return ran.found, ran.transport


def with_method(study: Study, sites: Mapping[str, Site]) -> Study:
    """Choose the method of a study, where it is left open."""
    sources = [site._source for site in sites.values()]
    shape = Shape(
        rows=max(source.n for source in sources),
        features=max(source.d for source in sources),
        components=study.k,
        sites=len(sources),
    )
    return study.with_method(choose_method(study, shape)[0])


def coordinated(
    study: Study, *, seed: int = 0, total: Total = plain_sum
) -> Protocol[Decomposition]:
    """The coordinator's half of a study, from a seed."""
    return pca(study, rng=np.random.default_rng(seed), total=total)


def watched(protocol: Protocol[T], seen: Callable[[Call[Any]], None]) -> Protocol[T]:
    """Run a protocol, and look on after each ask that was answered."""
    try:
        call = next(protocol)
        while True:
            replies = yield call
            seen(call)
            call = protocol.send(replies)
    except StopIteration as end:
        found: T = end.value
        return found


@dataclass(frozen=True, repr=False)
class Testing(Method):
    """A method of operations that a test brings; subclasses name them and say when they come."""

    __test__: ClassVar[bool] = False

    name: ClassVar[str] = "testing"
    summary: ClassVar[str] = "operations of a test"
    ops: ClassVar[tuple[Op[Any, Any], ...]] = ()
    asked: ClassVar[Script]

    def script(self, study: Study, d: int) -> Script:
        """Return what the test asks."""
        return self.asked

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Leave the asking to the test."""
        raise NotImplementedError

    def cost(self, shape: Shape) -> Cost:
        """Cost nothing."""
        return Cost(0, 0, 0.0, 0.0, 0.0, 0.0, 0.0)


@dataclass
class Talk:
    """A run at one site, asked by hand: every message crosses as bytes."""

    site: Site
    study: Study
    run: str = "r"
    round_: int = field(default=-1, init=False)

    def opens(self) -> str:
        """Open the run, and return the code of a refusal, or nothing."""
        message = self.answered(opening(self.run, self.study))
        return message.label if message.kind == "refusal" else ""

    def answered(self, data: bytes) -> Message:
        return Message.from_bytes(self.site.answer(data), "reply", "refusal")

    def written(self, request: Request[Any], round_: int) -> bytes:
        return Message("request", self.run, round_, request.op, pack(request)).to_bytes()

    def send(self, op: str, arrays: Arrays, round_: int | None = None) -> Message:
        """Send any arrays under any name."""
        self.round_ = self.round_ + 1 if round_ is None else round_
        return self.answered(Message("request", self.run, self.round_, op, arrays).to_bytes())

    def request(self, request: Request[Any], round_: int | None = None) -> Message:
        return self.send(request.op, pack(request), round_)

    def reply(self, request: Request[R], round_: int | None = None) -> R:
        """Ask what must be answered."""
        message = self.request(request, round_)
        assert message.kind == "reply", message.label
        found: R = unpack(request.reply, message.arrays)
        return found

    def code(self, request: Request[Any], round_: int | None = None) -> str:
        """Ask what must be refused, and return with which code."""
        message = self.request(request, round_)
        assert message.kind == "refusal"
        assert not message.arrays
        return message.label

    @property
    def state(self) -> State:
        """What the site keeps of the run."""
        return self.site._runs[self.run].state


def talk(
    site: Site, components: int, method: Method | str, run: str = "r", **settings: Any
) -> Talk:
    """Open a run of a study of one site, to be asked by hand."""
    talking = Talk(site, study_of([site.name], components, method, **settings), run)
    assert talking.opens() == ""
    return talking


def deviations(X: Array, weights: Array, *, center: bool, scale: bool) -> Array:
    """Deviations of all rows in one place, 0 where missing, with the roots of the weights."""
    there = ~np.isnan(X)
    count = weights @ there
    mean = weights @ np.where(there, X, 0.0) / count if center else np.zeros(X.shape[1])
    around = np.where(there, X - mean, 0.0)
    if scale:
        around = around / np.sqrt(weights @ around**2 / count)
    return np.sqrt(weights)[:, None] * around


class InTurn:
    """Asks one site after the other where the run is: messages cross as bytes, without threads."""

    def __init__(self, sites: Mapping[str, Site], study: Study) -> None:
        self._sites = dict(sorted(sites.items()))
        for site in self._sites.values():
            Message.from_bytes(site.answer(opening("run", study)), "reply")

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def exchange(self, round_: int, call: Call[Any]) -> Iterator[tuple[str, Arrays]]:
        assert call.to is None
        assert not call.differs
        data = Message("request", "run", round_, call.op, call.for_site("")).to_bytes()
        for name, site in self._sites.items():
            answer = site.answer(data, intact=True)
            yield name, Message.from_bytes(answer, "reply", intact=True).arrays


def in_sites(X: Any, sizes: list[int] | int) -> dict[str, Any]:
    """Cut rows into sites of these sizes, or into so many nearly equal ones."""
    if isinstance(sizes, int):
        edges = np.linspace(0, X.shape[0], sizes + 1).astype(int)
    else:
        edges = np.cumsum([0, *sizes])
    return {f"s{i:02}": X[a:b] for i, (a, b) in enumerate(pairwise(edges))}


def mnist() -> Array:
    """The 10000 test images of MNIST, or a skip where they are not."""
    path = DATA / "mnist/t10k-images-idx3-ubyte.gz"
    if not path.exists():
        pytest.skip("MNIST is not there: set EIGENFED_DATA to a folder with mnist/")
    with gzip.open(path) as file:
        pixels = np.frombuffer(file.read(), np.uint8, offset=16)
    return pixels.reshape(-1, 784).astype(np.float64)


def mnist_like(n: int = 1500, d: int = 784, seed: int = 0) -> Array:
    """Rows whose leading variances fall as those of MNIST do."""
    shares = [9.7, 7.1, 6.2, 5.4, 4.9, 4.3, 3.3, 2.9, 2.8, 2.35, 2.1, 2.0, 1.7, 1.7, 1.6, 1.5]
    tail = 1.5 * (16 / np.arange(17, d + 1)) ** 1.6
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.standard_normal((d, d)))[0]
    rows = rng.standard_normal((n, d))
    if n > d:
        # Whitened, so that the sample has the spectrum and not only its population.
        rows = np.linalg.qr(rows - rows.mean(axis=0)).Q * np.sqrt(n - 1)
    spectrum = np.sqrt(np.concatenate([shares, tail]))
    images: Array = (rows * spectrum) @ basis.T + rng.uniform(0, 3, d)
    return images
