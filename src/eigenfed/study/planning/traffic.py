"""What would cross the wire: the real protocol, run on model sites, and overheard.

A model site has two rows for each feature, one the negative of the other, so that its covariance is
diagonal with any eigenvalues that are wanted and the table is sparse. Public starts are random in
all directions alike: rounds are those of any rows with these eigenvalues. Few features stand for
many: what is as long as a model's features, in any message, is as long as the real ones there.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy import sparse

from eigenfed.arrays import Array
from eigenfed.data.source import Source
from eigenfed.estimators.in_process import Conditions, federation
from eigenfed.privacy.leakage import Meter
from eigenfed.protocol.core import drive
from eigenfed.protocol.messages import Message
from eigenfed.protocol.pca import pca
from eigenfed.protocol.private.budget_schedule import terms_of
from eigenfed.protocol.study import Study
from eigenfed.transport.local import Answering, LocalTransport

_LEAST_MODEL_ROWS = 24
_MOST_DRAWN = 1000


@dataclass(frozen=True)
class Crossing:
    """One ask and its reply: the site, the operation, and the bytes each way."""

    site: str
    round: int
    op: str
    down: int
    up: int


@dataclass(frozen=True, eq=False)
class TrafficTrace:
    """All that crossed in a run.

    Attributes
    ----------
    crossings : tuple of Crossing
    products : int
        Rounds of products that the method took.
    directions : int
        Rank of all directions that a site has answered about.
    variance_fraction : float
        Share of its variance that those tell.
    """

    crossings: tuple[Crossing, ...]
    products: int
    directions: int
    variance_fraction: float

    @property
    def rounds(self) -> int:
        """Asks to the sites."""
        return len({crossing.round for crossing in self.crossings})

    @property
    def largest(self) -> int:
        """Bytes of the largest message."""
        return max(max(crossing.down, crossing.up) for crossing in self.crossings)

    def of_sites(self) -> dict[str, tuple[int, int]]:
        """Return the bytes up and down of each site."""
        found: dict[str, tuple[int, int]] = {}
        for crossing in self.crossings:
            up, down = found.get(crossing.site, (0, 0))
            found[crossing.site] = up + crossing.up, down + crossing.down
        return found


@dataclass(eq=False)
class _Overheard:
    """A site of a model, with what it is asked and answers measured as of the real features."""

    name: str
    site: Answering
    features: int
    real: int
    crossings: list[Crossing]

    def answer(self, data: bytes) -> bytes:
        """Answer one request; the message that opens the run passes uncounted."""
        reply = self.site.answer(data)
        call = Message.from_bytes(data, "request", "open")
        if call.kind == "open":
            return reply
        down, up = self._sized(data, call), self._sized(reply, Message.from_bytes(reply, "reply"))
        self.crossings.append(Crossing(self.name, call.round_, call.label, down, up))
        return reply

    def _sized(self, data: bytes, message: Message) -> int:
        if self.features == self.real:
            return len(data)
        more = (
            _stretched(array.shape, self.features, self.real) * array.itemsize - array.nbytes
            for array in message.arrays.values()
        )
        return len(data) + sum(more)


def _stretched(shape: Sequence[int], features: int, real: int) -> int:
    """Count the entries that an array has with the real number of features.

    Examples
    --------
    >>> _stretched((101, 8), features=101, real=1000), _stretched((5151,), 101, 1000)
    (8000, 500500)
    """
    lengths = {features: real, features * (features + 1) // 2: real * (real + 1) // 2}
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
    """Run an exact study on model sites and write down what crosses.

    Parameters
    ----------
    study : Study
        With its method.
    rows : dict of str to int
        Numbers of rows of the model sites, which stand for those of the study.
    values : ndarray of shape (features,)
        Eigenvalues of the models.
    real : int
        Number of features that they stand for.
    drawn : bool
        Whether rows are drawn at random instead, so that sites differ as by chance, and have no
        more directions than rows: it matters where sites answer about directions of their own.

    Examples
    --------
    >>> import numpy as np
    >>> study = Study(("a", "b"), 2, "covariance")
    >>> trace = simulate_traffic(study, {"a": 50}, np.array([3.0, 2.0, 1.0]), real=3)
    >>> trace.rounds, [crossing.op for crossing in trace.crossings]
    (2, ['moments', 'scatter'])
    """
    rng = np.random.default_rng(0)
    sources = {
        name: _drawn(values, n, rng) if drawn else _model(values, n) for name, n in rows.items()
    }
    return _driven(study, sources, real)


def simulate_private_traffic(
    study: Study, sites: Sequence[str], features: int, real: int
) -> TrafficTrace:
    """Run a private study on model sites: what crosses depends neither on rows nor on noise."""
    rng = np.random.default_rng(0)
    # So little noise is for the model alone, which has no one's rows and too few for real noise.
    privacy = replace(terms_of(study), epsilon=1e4, colluders=0, dropouts=0)
    shape = (max(_LEAST_MODEL_ROWS, 2 * study.components), features)
    sources = {name: Source(rng.standard_normal(shape)) for name in sites}
    return _driven(replace(study, privacy=privacy), sources, real)


def _driven(study: Study, sources: dict[str, Source], real: int) -> TrafficTrace:
    run = federation(replace(study, sites=tuple(sorted(sources))), sources, Conditions())
    features = next(iter(sources.values())).d
    crossings: list[Crossing] = []
    heard = {
        name: _Overheard(name, site, features, real, crossings) for name, site in run.sites.items()
    }
    transport = LocalTransport(heard, run=run.transport.run)
    transport.open_with(run.opening)
    rng = np.random.default_rng(0)
    found = drive(pca(run.study, rng=rng, total=run.total), transport)
    directions, share = _told(site.meter for site in run.sites.values())
    return TrafficTrace(tuple(crossings), found.products, directions, share)


def _told(meters: Iterable[Meter]) -> tuple[int, float]:
    """Return what the most open site has told: directions, and the share of its variance."""
    read = [(round(meter.rank_fraction * meter.d), meter.variance_fraction) for meter in meters]
    return max(rank for rank, _ in read), max(share for _, share in read)


def _model(values: Array, n: int) -> Source:
    """Make rows whose covariance is diagonal with these values, weighted to count as n rows."""
    spread = sparse.diags_array(np.sqrt(values))
    table = sparse.csr_array(sparse.vstack([spread, -spread]))
    return Source(table, np.full(table.shape[0], n / table.shape[0]))


def _drawn(values: Array, n: int, rng: np.random.Generator) -> Source:
    return Source(rng.standard_normal((min(n, _MOST_DRAWN), len(values))) * np.sqrt(values))
