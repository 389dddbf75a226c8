"""FedPower: power iterations at the sites, averaged now and then ([Guo2024] Alg. 1 to 3, no noise).

===========  ==================================================================================
coordinator  sums over the sites asked of D'W D Z T, d x r, where Z is where a site's own steps
             led and T turns it towards the baseline site; with alignment also the baseline's
             Z, d x r, and each site's weight; likewise each weight where sites are sampled
site         the common basis that the steps start from, and with alignment the baseline's Z
===========  ==================================================================================

With one step between averages this is the distributed power method ([Guo2024] Alg. 1): sums of
products as everywhere, which converge to the pooled components. More steps save rounds at first and
leave an error floor, since each site walks towards its own components; letting the steps fall to
one ([Guo2024] eq. 3.15) removes it. Local steps are no protection: what leaves after them still is
the site's scatter times directions, and no noise on it would be differential privacy.

Where we depart from [Guo2024]: deviations are from the mean of all sites; the start is orthonormal
in every case, as in its Alg. 1; the baseline is the site with most rows, as its text says, where
``1 = argmin p_i`` is a slip for argmax. Every run ends at an average, so that the output line of
Alg. 2 and 3 is the last average itself; there scheme 2 lacks the weights p_i, which our average
has. The components are then made of one exact product with the whole basis.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from typing import Any, ClassVar, TypeVar

import numpy as np

from eigenfed.arrays import Array
from eigenfed.errors import InputError, Parts, SiteLost
from eigenfed.linalg.checks import check_count
from eigenfed.linalg.orthonormal import column_norms, sines
from eigenfed.protocol.core import Call, Protocol, call_each
from eigenfed.protocol.decomposition import Decomposition
from eigenfed.protocol.exact.certificate import OPS as CERTIFICATE_OPS
from eigenfed.protocol.exact.certificate import finished, products_of, ritz
from eigenfed.protocol.exact.local_steps import OPS as LOCAL_OPS
from eigenfed.protocol.exact.local_steps import (
    LocalProductRequest,
    WalkReply,
    WalkRequest,
    WeightRequest,
)
from eigenfed.protocol.exact.products import OPS as PRODUCT_OPS
from eigenfed.protocol.exact.products import Products, relative
from eigenfed.protocol.gate.script import Script, either, optional, repeat, sequence
from eigenfed.protocol.method import Cost, Method, Run, Shape, iterated_cost
from eigenfed.protocol.study import Study

R = TypeVar("R")

_EXTRA_DIRECTIONS = 5
_ALIGN = ("procrustes", "sign", "none")
_PARTICIPATION = ("full", "scheme1", "scheme2")
_USUAL_ROUNDS = 30
_REPEATS = 4
"""How many times as many rounds as planned a site answers, where others are lost and it is asked
again."""


@dataclass(frozen=True, repr=False)
class Power(Method):
    """Power iterations at the sites, averaged now and then.

    Attributes
    ----------
    local_steps : int
        Steps p up to and with each average; 1 is the distributed power method.
    align : {"procrustes", "sign", "none"}
        How sites turn their steps towards the baseline's before the average ([Guo2024] eq. 3.2 and
        3.16). Aligning costs one more round for each average after two steps or more.
    decay : bool
        Whether the steps fall by one with each average until they are one ([Guo2024] eq. 3.15).
    participation : {"full", "scheme1", "scheme2"}
        All sites in each average; some, drawn with replacement by their share of the rows; or some,
        drawn evenly without replacement ([Guo2024] section 3.2). A sample never comes to rest: it
        stays in a neighbourhood, and the run takes all of its rounds.
    sites_per_round : int or None
        How many are drawn; None with full participation.

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
                    f"{self.participation!r}. Say how many sites to draw for each average."
                )
            check_count("sites_per_round", self.sites_per_round, "Draw one site or more.")

    def sums_only(self) -> bool:
        """Whether sums are all it needs: no baseline is chosen, and no sites are drawn."""
        return not self.needs_single_replies

    def instead_of(self) -> Parts:
        """Return what to do where only sums can be had."""
        all_sites = "" if self.is_full else ", with all sites in each average"
        return f"Pass Power(local_steps=1){all_sites}."

    def width(self, k: int, d: int) -> int:
        """Return how many directions are iterated: k + 5, as [Guo2024] Table 3 does for k = 5."""
        return min(k + _EXTRA_DIRECTIONS, d)

    def check_run(self, n_sites: int) -> None:
        """Refuse to draw more sites without replacement than there are."""
        wanted = self.sites_per_round or 0
        if self.participation == "scheme2" and wanted > n_sites:
            raise InputError(
                f"sites_per_round={wanted} must be at most {n_sites}, the number of sites, where "
                "they are drawn without replacement. Draw fewer, or choose "
                "participation='scheme1'."
            )

    def script(self, study: Study, d: int) -> Script:
        """Return a weight, local steps and averages, products, and the certificate."""
        steps = either("local_walk", "local_product")
        return sequence(
            optional("site_weight") if self.needs_single_replies else sequence(),
            repeat(steps, 0, _REPEATS * study.max_rounds),
            repeat("product", 0, study.max_rounds),
            optional("remainder"),
        )

    def run(self, run: Run) -> Protocol[Decomposition]:
        """Iterate on k + 5 directions and average until it is done.

        Done means: where all sites take each step together, that the residuals of the components
        are within the tolerance; where all sites take a fixed number of local steps, that the
        average rests, which says nothing of its error; else that the rounds are used up.
        `max_rounds` counts the rounds in which matrices come from sites: an average counts one, or
        two if aligned, and the last product one. Rounds repeated for lost sites come on top.

        Raises
        ------
        SiteLost
            If a site is lost with full participation, or while all are needed: at the beginning,
            and for the last product. A sampled site that is lost is left out of that one average.
        """
        self.check_run(len(run.sites))
        averages, d, k = _Averages(products_of(run), self, run), run.d, run.k
        products, most = averages.products, run.study.max_rounds
        basis = np.linalg.qr(run.rng.standard_normal((d, self.width(k, d)))).Q
        if self.needs_single_replies:
            yield from averages.meet()
        leading = np.zeros((0, d))
        for steps in self.schedule():
            if self.is_full and steps == 1:
                return (yield from _distributed(products, basis, k, run.tol, most, run.certify))
            if products.rounds + self.rounds_of(steps) >= most:
                break
            average = yield from averages.average(basis, steps)
            if average is None:
                continue
            basis = np.linalg.qr(average).Q
            earlier, leading = leading, np.linalg.svd(average, full_matrices=False).U[:, :k].T
            rests = len(earlier) > 0 and sines(leading, earlier)[0] <= run.tol
            if rests and self.is_full and not self.decay:
                break
        return (yield from finished(products, basis, k, tol=run.tol, certify=run.certify))

    def cost(self, shape: Shape) -> Cost:
        """Count one block a round, with as many local steps as come before an average."""
        width = self.width(shape.components, shape.features)
        return iterated_cost(shape, width, _USUAL_ROUNDS, held=10.0)

    @property
    def is_full(self) -> bool:
        """Whether all sites take part in each average."""
        return self.participation == "full"

    @property
    def needs_single_replies(self) -> bool:
        """Whether a baseline is chosen or sites are drawn, by the weights of single sites."""
        return not self.is_full or self.rounds_of(self.local_steps) > 1

    def rounds_of(self, steps: int) -> int:
        """Return the rounds of one average."""
        return 2 if steps > 1 and self.align != "none" else 1

    def schedule(self) -> Iterator[int]:
        """Yield the steps up to and with each average, without end."""
        for earlier in count():
            yield max(self.local_steps - earlier, 1) if self.decay else self.local_steps

    def factors(self, weights: dict[str, float], rng: np.random.Generator) -> dict[str, float]:
        """Draw the sites of one average, and the factor of each one's Y ([Guo2024] section 3.2).

        Parameters
        ----------
        weights : dict of str to float
            Weight of the rows of every site.
        rng : numpy Generator

        Returns
        -------
        dict of str to float
            Of the sites drawn that have rows; the expectation is ``p_i``, the site's share.

        Examples
        --------
        >>> import numpy as np
        >>> options = Power(participation="scheme2", sites_per_round=2)
        >>> options.factors({"a": 3.0, "b": 1.0}, np.random.default_rng(0))
        {'a': 0.75, 'b': 0.25}
        """
        m, drawn = len(weights), self.sites_per_round or len(weights)
        shares = np.array(list(weights.values())) / sum(weights.values())
        if self.participation == "scheme1":
            found = rng.multinomial(drawn, shares) / drawn
        else:
            found = np.zeros(m)
            found[rng.choice(m, drawn, replace=False)] = m / drawn
            found *= shares
        return {name: float(f) for name, f in zip(weights, found, strict=True) if f > 0}


def _check_choice(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InputError(f"{name}={value!r} must be one of {', '.join(known)}. Choose one.")


def _distributed(
    products: Products, basis: Array, k: int, tol: float, max_rounds: int, certify: bool
) -> Protocol[Decomposition]:
    """Take all steps together ([Guo2024] Alg. 1); each product also gives the residuals."""
    while True:
        image = yield from products.of(basis)
        products.residual = _largest_residual(basis, image, k)
        if products.rounds >= max_rounds or products.residual <= tol:
            return (yield from ritz(products, basis, image, k, tol=tol, certify=certify))
        basis = np.linalg.qr(image).Q


def _largest_residual(basis: Array, image: Array, k: int) -> float:
    """Return the largest residual of the first k Ritz pairs, relative to the first value."""
    onto = basis.T @ image
    values, vectors = np.linalg.eigh((onto + onto.T) / 2)
    values, vectors = values[: -k - 1 : -1], vectors[:, : -k - 1 : -1]
    left = image @ vectors - (basis @ vectors) * values
    return relative(column_norms(left), values[0])


@dataclass(eq=False)
class _Averages:
    """Asks for averages after local steps.

    Attributes
    ----------
    products : Products
        Counts the rounds.
    options : Power
    run : Run
    weights : dict of str to float
        Of each site's rows, in sorted order, where they are needed.
    """

    products: Products
    options: Power
    run: Run
    weights: dict[str, float] = field(default_factory=dict)

    def meet(self) -> Protocol[None]:
        """Tell all sites the mean and scale, and learn their weights."""
        replies = yield from call_each(Call(WeightRequest(**self.run.frame())))
        self.weights = {name: replies[name].weight for name in sorted(replies)}

    def average(self, basis: Array, steps: int) -> Protocol[Array | None]:
        """Return the average of the sites' last steps, of any length, or None if all are lost."""
        options = self.options
        factors = {} if options.is_full else options.factors(self.weights, self.run.rng)
        standing = tuple(factors) or tuple(self.weights)
        fields: dict[str, Any] = {"start": basis, "steps": steps - 1}
        if options.rounds_of(steps) > 1:
            walk = WalkRequest(**fields, **self.run.frame())
            found, standing = yield from self._reference(walk, standing)
            if found is None:
                return None
            fields = {"reference": found}
        request = LocalProductRequest(**fields, **self.run.frame())
        # With full participation the factor p_i / n_i is the same 1 / n for all: none is sent.
        each = {name: replace(request, share=f / self.weights[name]) for name, f in factors.items()}
        answer, _ = yield from self._asked(self.products.total, Call(request, each=each), standing)
        return None if answer is None else answer.product

    def _reference(
        self, walk: WalkRequest, standing: tuple[str, ...]
    ) -> Protocol[tuple[Array | None, tuple[str, ...]]]:
        """Have local steps taken, and return the baseline's basis and who else has come there."""
        while standing:
            baseline = max(standing, key=self.weights.__getitem__)
            call: Call[WalkReply] = Call(walk, each={baseline: replace(walk, shown=True)})
            replies, _ = yield from self._asked(call_each, call, standing)
            standing = tuple(replies or ())
            if replies is not None and baseline in replies:
                return replies[baseline].basis, standing
        return None, ()

    def _asked(
        self, how: Callable[[Call[Any]], Protocol[R]], call: Call[Any], standing: tuple[str, ...]
    ) -> Protocol[tuple[R | None, tuple[str, ...]]]:
        """Ask all sites, or those standing: then without the lost, until somebody answers."""
        if self.options.is_full:
            self.products.rounds += 1
            return (yield from how(call)), standing
        while standing:
            self.products.rounds += 1
            try:
                return (yield from how(replace(call, to=standing, quorum=1))), standing
            except SiteLost as lost:
                if not set(standing) & set(lost.sites):
                    raise
                standing = tuple(name for name in standing if name not in lost.sites)
        return None, ()
