"""FedPower without noise: local power iterations and averages of them ([Guo2024] Alg. 1 to 3).

===========  ==================================================================================
coordinator  sums over participating sites of D'W D Z T, d x r, where Z is a site's basis after its
             local steps and T aligns it with the baseline site; with alignment also the
             baseline's Z, d x r, and each site's weight, which sampling needs too
site         the common basis from which local steps start, and with alignment the baseline's Z
===========  ==================================================================================

With one step between averages this is the distributed power method ([Guo2024] Alg. 1), which
converges to the pooled components. More local steps save rounds at first and leave an error floor,
since each site moves towards its own components; reducing the steps to one ([Guo2024] eq. 3.15)
removes it. Local steps do not protect the rows: what leaves after them is still the scatter times
directions, and adding noise to it would not give differential privacy.

Departures from [Guo2024]: rows are centred at the mean of all sites; the start is orthonormal in
every case, as in its Alg. 1; the baseline is the site with most rows, as its text says, where
``1 = argmin p_i`` is a slip for argmax. Every run ends with an average, so the output line of
Alg. 2 and 3 is the last average itself; the line for scheme 2 lacks the weights p_i, which the
average here has. The components are Ritz vectors from one exact product with the whole basis.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, TypeVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import Argument, InputError, Parts, SiteLost
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.orthonormal import sines
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import (
    finish_with_product,
    make_products,
    measure_basis,
    rayleigh_ritz,
)
from eigenfed.protocol.exact.power_site import OPS as LOCAL_OPS
from eigenfed.protocol.exact.power_site import (
    LocalProductRequest,
    WalkReply,
    WalkRequest,
    WeightRequest,
)
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.products import Products
from eigenfed.protocol.gate.script import Script, either, optional, repeat, sequence
from eigenfed.protocol.method import Cost, Method, Run, Shape, iterated_cost
from eigenfed.protocol.study import Study

R = TypeVar("R")

_EXTRA_DIRECTIONS = 5
_ALIGN = ("procrustes", "sign", "none")
_PARTICIPATION = ("full", "scheme1", "scheme2")
_USUAL_ROUNDS = 30
_MOST_STEPS = 1000
_REPEATS = 4
"""A site answers up to so many times the planned rounds, since rounds repeat if sites are lost."""


@dataclass(frozen=True, repr=False)
class Power(Method):
    """Power iterations at the sites, with an average after every few local steps.

    Attributes
    ----------
    local_steps : int
        Steps p for each average, including the averaged one; 1 is the distributed power method.
    align : {"procrustes", "sign", "none"}
        How sites align their bases with the baseline's before the average ([Guo2024] eq. 3.2 and
        3.16). Alignment costs one more round for each average after two steps or more.
    decay : bool
        Whether the steps decrease by one with each average, down to one ([Guo2024] eq. 3.15).
    participation : {"full", "scheme1", "scheme2"}
        All sites in each average; some, sampled with replacement in proportion to their rows; or
        some, sampled uniformly without replacement ([Guo2024] section 3.2). With sampling the
        iteration does not converge but stays in a neighbourhood, so a run uses all its rounds.
    sites_per_round : int or None
        Number of sites sampled; None with full participation.

    Examples
    --------
    >>> from itertools import islice
    >>> list(islice(Power(local_steps=3).schedule(), 5))
    [3, 2, 1, 1, 1]
    """

    name: ClassVar[str] = "power"
    summary: ClassVar[str] = "power iterations with local steps between averages"
    citation: ClassVar[str | None] = "Guo et al. 2024, Alg. 1 to 3"
    ops = (*LOCAL_OPS, *PRODUCT_OPS, *CERTIFICATE_OPS)
    private: ClassVar[bool] = True
    own_directions: ClassVar[bool] = True
    iterates: ClassVar[bool] = True
    random_start: ClassVar[bool] = True

    local_steps: int = 4
    align: str = "procrustes"
    decay: bool = True
    participation: str = "full"
    sites_per_round: int | None = None

    def __post_init__(self) -> None:
        check_count("local_steps", self.local_steps, "Pass 1 to average after each step.")
        if self.local_steps > _MOST_STEPS:
            raise InputError(
                Argument("local_steps", self.local_steps),
                f" must be at most {_MOST_STEPS}: a site computes all of them for one answer",
                remedy="Average more often.",
            )
        _check_choice("align", self.align, _ALIGN)
        _check_choice("participation", self.participation, _PARTICIPATION)
        if not isinstance(self.decay, bool):
            raise InputError(f"decay={self.decay!r} must be True or False. Pass one of them.")
        if self.is_full and self.sites_per_round is not None:
            raise InputError(
                f"sites_per_round={self.sites_per_round!r} must be None with full participation. "
                "Leave it out, or choose participation='scheme1' or 'scheme2'."
            )
        if not self.is_full:
            if self.sites_per_round is None:
                raise InputError(
                    f"sites_per_round=None must be a number with participation="
                    f"{self.participation!r}. Pass the number of sites to sample for each average."
                )
            check_count("sites_per_round", self.sites_per_round, "Sample one site or more.")

    def sums_only(self) -> bool:
        """Whether sums over sites are enough: without a baseline and without sampling."""
        return not self.needs_single_replies

    def instead_of(self) -> Parts:
        """Return what to do if only sums over sites are available."""
        all_sites = "" if self.is_full else ", with all sites in each average"
        return f"Pass Power(local_steps=1){all_sites}."

    def width(self, k: int, d: int) -> int:
        """Return the number of directions iterated: k + 5, as in [Guo2024] Table 3 for k = 5."""
        return min(k + _EXTRA_DIRECTIONS, d)

    def check_run(self, n_sites: int) -> None:
        """Raise if more sites are to be sampled without replacement than there are."""
        wanted = self.sites_per_round or 0
        if self.participation == "scheme2" and wanted > n_sites:
            raise InputError(
                f"sites_per_round={wanted} must be at most {n_sites}, the number of sites, if "
                "they are sampled without replacement. Sample fewer, or choose "
                "participation='scheme1'."
            )

    def script(self, study: Study, d: int) -> Script:
        """Return the script: a weight, local steps and averages, products, and the certificate."""
        is_aligned = self.count_rounds(self.local_steps) > 1
        # What one site has walked to is sent where the others align with it, and nowhere else.
        steps = either("local_walk", "local_product") if is_aligned else either("local_product")
        return sequence(
            optional("site_weight") if self.needs_single_replies else sequence(),
            repeat(steps, 0, _REPEATS * study.max_rounds),
            repeat("product", 0, study.max_rounds),
            optional("remainder"),
        )

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Iterate on k + 5 directions and average, until a stopping rule holds.

        With one step per average and all sites, stop when the residuals of the components are
        within the tolerance. With a fixed number of local steps and all sites, stop when the
        average no longer changes, which says nothing about its error. Otherwise use all rounds.
        `max_rounds` counts the rounds in which sites send matrices: an average counts one, or two
        if aligned, and the last product one. Rounds repeated for lost sites are not included.

        Raises
        ------
        SiteLost
            If a site is lost with full participation, or while all are needed: at the beginning,
            and for the last product. A sampled site that is lost is left out of that average only.
        """
        self.check_run(len(run.sites))
        averages, d, k = _Averages(make_products(run), self, run), run.d, run.k
        products, most = averages.products, run.study.max_rounds
        basis = np.linalg.qr(run.rng.standard_normal((d, self.width(k, d)))).Q
        if self.needs_single_replies:
            yield from averages.collect_weights()
        leading = np.zeros((0, d))
        for steps in self.schedule():
            if self.is_full and steps == 1:
                return (
                    yield from _run_distributed(
                        products, basis, k, run.tol, most, bool(run.certify)
                    )
                )
            if products.rounds + self.count_rounds(steps) >= most:
                break
            average = yield from averages.average(basis, steps)
            if average is None:
                continue
            basis = np.linalg.qr(average).Q
            earlier, leading = leading, np.linalg.svd(average, full_matrices=False).U[:, :k].T
            is_unchanged = len(earlier) > 0 and (
                sines(leading, earlier)[0] <= math.sin(math.radians(run.tol))
            )
            if is_unchanged and self.is_full and not self.decay:
                break
        return (
            yield from finish_with_product(
                products, basis, k, tol=run.tol, certify=bool(run.certify)
            )
        )

    def cost(self, shape: Shape) -> Cost:
        """Return the cost of one block of directions each round."""
        width = self.width(shape.components, shape.features)
        return iterated_cost(shape, width, _USUAL_ROUNDS, held=10.0)

    @property
    def is_full(self) -> bool:
        """Whether all sites participate in each average."""
        return self.participation == "full"

    @property
    def needs_single_replies(self) -> bool:
        """Whether a baseline is chosen or sites are sampled, both by the weights of the sites."""
        return not self.is_full or self.count_rounds(self.local_steps) > 1

    def count_rounds(self, steps: int) -> int:
        """Return the number of rounds of one average: two if it is aligned."""
        return 2 if steps > 1 and self.align != "none" else 1

    def schedule(self) -> Iterator[int]:
        """Yield the number of steps of each average, without end."""
        for earlier in count():
            yield max(self.local_steps - earlier, 1) if self.decay else self.local_steps

    def draw_factors(self, weights: dict[str, float], rng: np.random.Generator) -> dict[str, float]:
        """Sample the sites of one average, with the factor of each one's Y ([Guo2024] section 3.2).

        Parameters
        ----------
        weights : dict of str to float
            Weight of the rows of every site.
        rng : numpy Generator

        Returns
        -------
        dict of str to float
            Sampled sites with rows; the expected factor is ``p_i``, the site's fraction of rows.

        Examples
        --------
        >>> import numpy as np
        >>> options = Power(participation="scheme2", sites_per_round=2)
        >>> options.draw_factors({"a": 3.0, "b": 1.0}, np.random.default_rng(0))
        {'a': 0.75, 'b': 0.25}
        """
        m, sampled = len(weights), self.sites_per_round or len(weights)
        fractions = np.array(list(weights.values())) / sum(weights.values())
        if self.participation == "scheme1":
            factors = rng.multinomial(sampled, fractions) / sampled
        else:
            factors = np.zeros(m)
            factors[rng.choice(m, sampled, replace=False)] = m / sampled
            factors *= fractions
        return {name: float(f) for name, f in zip(weights, factors, strict=True) if f > 0}


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}={value!r} must be one of {', '.join(known)}. Choose one.")


def _run_distributed(
    products: Products, basis: Array, k: int, tol: float, max_rounds: int, certify: bool
) -> Protocol[Decomposition]:
    """Run the distributed power method ([Guo2024] Alg. 1); each product also gives residuals."""
    while True:
        image = yield from products.of(basis)
        ritz = measure_basis(products, basis, image, k)
        products.angle = ritz.largest_angle()
        if products.rounds >= max_rounds or ritz.reaches(tol):
            return (yield from rayleigh_ritz(products, basis, image, k, tol=tol, certify=certify))
        basis = np.linalg.qr(image).Q


@dataclass(eq=False)
class _Averages:
    """Requests averages after local steps.

    Attributes
    ----------
    products : Products
        Counts the rounds.
    options : Power
    run : Run
    weights : dict of str to float
        Weight of each site's rows, in sorted order, if it is needed.
    """

    products: Products
    options: Power
    run: Run
    weights: dict[str, float] = field(default_factory=dict)

    def collect_weights(self) -> Protocol[None]:
        """Send the mean and scale to all sites, and collect their weights."""
        replies = yield from call_each(Call(WeightRequest(**self.run.frame())))
        self.weights = {name: replies[name].weight for name in sorted(replies)}

    def average(self, basis: Array, steps: int) -> Protocol[Array | None]:
        """Return the average of the sites' products, up to a factor, or None if all are lost."""
        options = self.options
        factors = {} if options.is_full else options.draw_factors(self.weights, self.run.rng)
        present = tuple(factors) or tuple(self.weights)
        fields: dict[str, Any] = {"start": basis, "steps": steps - 1}
        if options.count_rounds(steps) > 1:
            walk = WalkRequest(**fields, **self.run.frame())
            reference, present = yield from self._request_reference(walk, present)
            if reference is None:
                return None
            fields = {"reference": reference}
        request = LocalProductRequest(**fields, **self.run.frame())
        # With full participation the factor p_i / n_i is the same 1 / n for all: none is sent.
        each = {name: replace(request, share=f / self.weights[name]) for name, f in factors.items()}
        answer, _ = yield from self._request(self.products.total, Call(request, each=each), present)
        return None if answer is None else answer.product

    def _request_reference(
        self, walk: WalkRequest, present: tuple[str, ...]
    ) -> Protocol[tuple[Array | None, tuple[str, ...]]]:
        """Request local steps; return the baseline's basis and the sites that have taken them.

        If the baseline is lost, the next largest site takes its place and the steps are repeated.
        """
        while present:
            baseline = max(present, key=self.weights.__getitem__)
            call: Call[WalkReply] = Call(walk, each={baseline: replace(walk, shown=True)})
            replies, _ = yield from self._request(call_each, call, present)
            present = tuple(replies or ())
            if replies is not None and baseline in replies:
                return replies[baseline].basis, present
        return None, ()

    def _request(
        self, how: Callable[[Call[Any]], Protocol[R]], call: Call[Any], present: tuple[str, ...]
    ) -> Protocol[tuple[R | None, tuple[str, ...]]]:
        """Send a request to all sites, or to those present; repeat it without sites that are lost.

        Returns
        -------
        answer : object
            None if all sites are lost.
        present : tuple of str
            The sites that have answered.
        """
        if self.options.is_full:
            self.products.rounds += 1
            return (yield from how(call)), present
        while present:
            self.products.rounds += 1
            try:
                return (yield from how(replace(call, to=present, quorum=1))), present
            except SiteLost as lost:
                if not set(present) & set(lost.sites):
                    raise
                present = tuple(name for name in present if name not in lost.sites)
        return None, ()
