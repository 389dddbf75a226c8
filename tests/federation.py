"""Sites in this process and runs over them, for tests of protocols."""

import gzip
import os
from collections.abc import Callable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from eigenfed.arrays import Array, Arrays
from eigenfed.data.source import Source
from eigenfed.protocol.core import Ask, Protocol, drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.moments import Moments, all_moments
from eigenfed.protocol.pca import Plan, pca
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.site import Site
from eigenfed.protocol.totals import plain_sum
from eigenfed.transport.local import LocalTransport

DATA = Path(os.environ.get("EIGENFED_DATA", Path(__file__).parents[2] / "shared/data"))


def fitted(
    tables: dict[str, Any],
    plan: Plan,
    weights: dict[str, Array] | None = None,
    wire: str = "float64",
) -> tuple[Decomposition, LocalTransport]:
    """Run a plan on tables behind the gates of sites."""
    sites = {
        name: Site(name, Source.of(table, weights=(weights or {}).get(name)), wire=wire)
        for name, table in tables.items()
    }
    transport = LocalTransport(sites, wire=wire)
    rng = np.random.default_rng(0)
    return drive(pca(plan, sites=transport.sites, rng=rng), transport), transport


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

    def __init__(self, sites: Mapping[str, Site]) -> None:
        self._sites = dict(sorted(sites.items()))

    @property
    def sites(self) -> tuple[str, ...]:
        return tuple(self._sites)

    def ask(self, round_: int, ask: Ask) -> Iterator[tuple[str, Arrays]]:
        assert ask.to is None
        assert not ask.each
        data = Message("ask", "run", round_, ask.op, ask.for_site("")).to_bytes()
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


def local(tables: Mapping[str, Any]) -> tuple[LocalTransport, dict[str, Site]]:
    """Put tables behind the gates of sites."""
    sites = {name: Site(name, Source.of(table)) for name, table in tables.items()}
    return LocalTransport(sites), sites


def run(
    method: Callable[[Moments], Protocol[Decomposition]],
    tables: Mapping[str, Any],
    *,
    scale: bool = False,
) -> tuple[Decomposition, LocalTransport, dict[str, Site]]:
    """Run moments and a method over sites."""
    transport, sites = local(tables)
    return drive(after_moments(method, scale=scale), transport), transport, sites


def after_moments(
    method: Callable[[Moments], Protocol[Decomposition]], *, scale: bool = False
) -> Protocol[Decomposition]:
    """Sum moments, and run a method on them."""
    moments = yield from all_moments(plain_sum, center=True, scale=scale)
    return (yield from method(moments))


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
