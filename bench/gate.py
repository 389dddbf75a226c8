"""The cost of checking a request at a site, relative to that of answering it."""

from collections.abc import Iterator

import numpy as np
from threadpoolctl import threadpool_limits

from bench.table import Line, fastest
from eigenfed.data.source import Source
from eigenfed.privacy.leakage import Meter
from eigenfed.protocol.exact.moments import MomentsRequest, moments
from eigenfed.protocol.exact.products import ProductRequest, product
from eigenfed.protocol.operations import State, Terms
from eigenfed.protocol.study import Study

_N, _D, _K, _SITES = 60_000, 784, 10, 5


def lines() -> Iterator[Line]:
    rng = np.random.default_rng(0)
    source = Source.of(rng.standard_normal((_N // _SITES, _D)))
    study = Study(tuple("abcde"), _K, "krylov")
    terms, meter = Terms(study, source.n, _D), Meter.empty(_D)
    state = moments.run(source, MomentsRequest(), State(), terms).state
    basis = np.linalg.qr(rng.standard_normal((_D, _K))).Q
    request = ProductRequest(basis=basis, mean=np.zeros(_D), scale=np.ones(_D))

    def check() -> None:
        request.check(terms, state)
        meter.counted(basis, np.ones(_D))

    agreed = request.apply_to(terms, state)
    warm = product.run(source, request, agreed, terms).state
    with threadpool_limits(1):
        checking, working = fastest(check, lambda: product.run(source, request, warm, terms))
    images = product.run(source, request, warm, terms).reply.product
    error = float(np.abs(images - source.X.T @ (source.X @ basis)).max() / np.abs(images).max())
    yield Line(
        f"percent of a product spent on checking it, d={_D}, {_SITES} sites",
        100.0 * checking / working,
        "at most",
        2.0,
        error < 1e-9,
        f"{1e6 * checking:.0f} us of {1e3 * working:.1f} ms; the product is off by {error:.0e}",
    )
