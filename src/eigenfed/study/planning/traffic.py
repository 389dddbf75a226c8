"""Traffic of a run: the real protocol on model sites, with every message measured.

A model site has two rows for each feature, one the negative of the other, so that its table is
sparse and its covariance is diagonal with any desired eigenvalues. Public random starts are
rotation invariant, so the number of rounds is that of any rows with these eigenvalues.

A model has fewer features than the real study. An array dimension as long as the model's number of
features is counted as the real number of features.
"""

import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import Loci, find_loci
from eigenfed.data.source import Source
from eigenfed.data.summarized_rows import SummarizedRows
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.leakage import Meter
from eigenfed.privacy.secagg.identity import Identity
from eigenfed.protocol.core import drive
from eigenfed.protocol.exact.stream_summary import ask_message
from eigenfed.protocol.messages import Message
from eigenfed.protocol.pca import pca
from eigenfed.protocol.private.budget_schedule import require_privacy
from eigenfed.protocol.study import Study
from eigenfed.transport.local import Answering, LocalTransport

_LEAST_MODEL_ROWS = 24
_MOST_DRAWN = 1000


@dataclass(frozen=True)
class Exchange:
    """A request to a site and its reply: the operation, and the bytes each way."""

    site: str
    round: int
    op: str
    down: int
    up: int


@dataclass(frozen=True, eq=False)
class TrafficTrace:
    """All messages of a run, and what they revealed.

    Attributes
    ----------
    exchanges : tuple of Exchange
    products : int
        Rounds of products that the method took.
    directions : int
        Number of directions along which the most exposed site revealed its covariance.
    variance_fraction : float
        Fraction of its variance along those directions.
    """

    exchanges: tuple[Exchange, ...]
    products: int
    directions: int
    variance_fraction: float

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len({exchange.round for exchange in self.exchanges})

    @property
    def largest(self) -> int:
        """Bytes of the largest message."""
        return max(max(exchange.down, exchange.up) for exchange in self.exchanges)

    def sum_by_site(self) -> dict[str, tuple[int, int]]:
        """Return the bytes up and down of each site."""
        sums: dict[str, tuple[int, int]] = {}
        for exchange in self.exchanges:
            up, down = sums.get(exchange.site, (0, 0))
            sums[exchange.site] = up + exchange.up, down + exchange.down
        return sums


@dataclass(eq=False)
class _MeasuredSite:
    """A model site that records the size of its messages with the real number of features."""

    name: str
    site: Answering
    real: Mapping[int, int]
    exchanges: list[Exchange]

    def answer(self, data: bytes) -> bytes:
        """Answer one request; the message that opens the run is not counted."""
        reply = self.site.answer(data)
        call = Message.from_bytes(data, "request", "open")
        if call.kind == "open":
            return reply
        down = self._measure(data, call)
        up = self._measure(reply, Message.from_bytes(reply, "reply"))
        self.exchanges.append(Exchange(self.name, call.round_, call.label, down, up))
        return reply

    def _measure(self, data: bytes, message: Message) -> int:
        more = (
            _count_entries(array.shape, self.real) * array.itemsize - array.nbytes
            for array in message.arrays.values()
        )
        return len(data) + sum(more)


def _count_entries(shape: Sequence[int], real: Mapping[int, int]) -> int:
    """Return the number of entries of an array with the real number of features.

    Parameters
    ----------
    shape : sequence of int
    real : mapping of int to int
        The real number of features for each number of features of the model.

    Examples
    --------
    >>> _count_entries((101, 8), {101: 1000}), _count_entries((5151,), {101: 1000})
    (8000, 500500)
    """
    lengths = {m * (m + 1) // 2: d * (d + 1) // 2 for m, d in real.items()} | dict(real)
    count = 1
    for length in shape:
        count *= lengths.get(length, length)
    return count


def simulate_traffic(
    study: Study,
    rows: dict[str, int],
    values: Array,
    real: int,
    *,
    drawn: bool = False,
) -> TrafficTrace:
    """Run an exact study on model sites and record its messages.

    Parameters
    ----------
    study : Study
        With its method.
    rows : dict of str to int
        Number of rows of each model site.
    values : ndarray of shape (features,)
        Eigenvalues of the models.
    real : int
        The real number of features.
    drawn : bool
        Whether rows are drawn at random instead, so that sites differ by chance and have no more
        directions than rows. This matters if sites send directions of their own.

    Examples
    --------
    >>> import numpy as np
    >>> study = Study(("a", "b"), 2, "covariance")
    >>> trace = simulate_traffic(study, {"a": 50}, np.array([3.0, 2.0, 1.0]), real=3)
    >>> trace.rounds, [exchange.op for exchange in trace.exchanges]
    (2, ['moments', 'scatter'])
    """
    rng = np.random.default_rng(0)
    sources = {
        name: _draw_source(values, n, rng) if drawn else _make_source(values, n)
        for name, n in rows.items()
    }
    if not study.chosen.merges_streams():
        return _run(study, sources, {len(values): real})
    sources = {name: _summarise(source, study.k) for name, source in sources.items()}
    trace = _run(study, sources, {len(values): real})
    # A stream is asked with one message that opens the run as well.
    asked = len(ask_message(uuid.uuid4().hex, study, Identity.generate(), known=0.0))
    exchanges = tuple(replace(exchange, down=asked) for exchange in trace.exchanges)
    return replace(trace, exchanges=exchanges)


def simulate_preparation(
    study: Study, sites: Sequence[str], real: Mapping[int, int], features: int
) -> TrafficTrace:
    """Run a study that prepares rows on model sites, for the messages of the preparation.

    Parameters
    ----------
    study : Study
        With its method and with steps that the model can have.
    sites : sequence of str
    real : mapping of int to int
        The real number of features for each number of features of the model.
    features : int
        Number of features of the model, before the preparation.
    """
    rng = np.random.default_rng(0)
    if study.filters_variants:
        return _run(study, {name: _draw_genotypes(features, rng) for name in sites}, real)
    # Features differ in scale, as they mostly do: secure sums then request small ones again.
    scales = np.logspace(0.0, -8.0, features)
    sources = {name: Source(rng.uniform(0.0, scales, (8, features))) for name in sites}
    return _run(study, sources, real)


def simulate_private_traffic(
    study: Study, sites: Sequence[str], features: int, real: int
) -> TrafficTrace:
    """Run a private study on model sites: its traffic depends neither on rows nor on noise."""
    rng = np.random.default_rng(0)
    # The model's random rows are too few for real noise: a huge epsilon keeps the run from failing.
    privacy = replace(
        require_privacy(study),
        epsilon=1e4,
        colluders=0,
        dropouts=0,
        if_missing="mean",
        public_center=None,
        public_scale=None,
    )
    shape = (max(_LEAST_MODEL_ROWS, 2 * study.k), features)
    sources = {name: Source(rng.standard_normal(shape)) for name in sites}
    return _run(replace(study, privacy=privacy), sources, {features: real})


def _run(study: Study, sources: dict[str, Source], real: Mapping[int, int]) -> TrafficTrace:
    run = federation(replace(study, sites=tuple(sorted(sources))), sources, Conditions())
    exchanges: list[Exchange] = []
    measured = {
        name: _MeasuredSite(name, site, real, exchanges) for name, site in run.sites.items()
    }
    transport = LocalTransport(measured, run=run.transport.run)
    transport.open_with(run.opening)
    rng = np.random.default_rng(0)
    loci = find_loci(next(iter(sources.values())).X)
    found = drive(pca(run.study, rng=rng, total=run.total, loci=loci), transport)
    directions, fraction = _measure_leakage(site.meter for site in run.sites.values())
    return TrafficTrace(tuple(exchanges), found.products, directions, fraction)


def _measure_leakage(meters: Iterable[Meter]) -> tuple[int, float]:
    """Return the largest number of directions and fraction of variance that a site revealed."""
    read = [(round(meter.rank_fraction * meter.d), meter.variance_fraction) for meter in meters]
    return max(rank for rank, _ in read), max(fraction for _, fraction in read)


def _draw_genotypes(features: int, rng: np.random.Generator) -> Source:
    packed = rng.integers(0, 256, (features, 2), dtype=np.uint8)
    loci = Loci(np.ones(features, dtype=np.int64), np.arange(features))
    return Source(replace(Genotypes.of(packed, 8), loci=loci))


def _make_source(values: Array, n: int) -> Source:
    """Make rows whose covariance is diagonal with these values, weighted to count as n rows."""
    spread = sparse.diags_array(np.sqrt(values))
    table = sparse.csr_array(sparse.vstack([spread, -spread]))
    return Source(table, np.full(table.shape[0], n / table.shape[0]))


def _summarise(source: Source, k: int) -> Source:
    """Return a summary of a model's rows, as a stream of k components keeps it."""
    dense, weights = source.block(slice(None))
    summary = Summary.empty(source.d, 2 * k).update(dense, weights)
    return Source(SummarizedRows(summary))


def _draw_source(values: Array, n: int, rng: np.random.Generator) -> Source:
    return Source(rng.standard_normal((min(n, _MOST_DRAWN), len(values))) * np.sqrt(values))
