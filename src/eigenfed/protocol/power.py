"""FedPower: power iterations at the sites, averaged now and then (004 Alg. 1 to 3, no noise).

===========  ==================================================================================
coordinator  sums over the sites asked of D'W D Z T, d x r, where Z is where a site's own steps
             led and T turns it towards the baseline site; with alignment also the baseline's
             Z, d x r, and each site's weight; likewise each weight where sites are sampled
site         the common basis that the steps start from, and with alignment the baseline's Z
===========  ==================================================================================

With one step between averages this is the distributed power method (004 Alg. 1): sums of products
as everywhere, which converge to the pooled components. More steps save rounds at first and leave
an error floor, since each site walks towards its own components; letting the steps fall to one
(004 eq. 3.15) removes it. Local steps are no protection: what leaves after them still is the
site's scatter times directions, and no noise on it would be differential privacy.

Where we depart from 004: deviations are from the mean of all sites; the start is orthonormal in
every case, as in its Alg. 1; the baseline is the site with most rows, as its text says, where
``1 = argmin p_i`` is a slip for argmax. Every run ends at an average, so that the output line of
Alg. 2 and 3 is the last average itself; there scheme 2 lacks the weights p_i, which our average
has. The components are then made of one exact product with the whole basis.
"""

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import TypeVar

import numpy as np

from eigenfed.arrays import Array, Arrays
from eigenfed.errors import InputError, SiteLost
from eigenfed.linalg.angles import sines
from eigenfed.linalg.orthonormal import column_lengths
from eigenfed.protocol.core import Ask, Protocol, Replies
from eigenfed.protocol.finish import finished, ritz
from eigenfed.protocol.moments import Moments
from eigenfed.protocol.power_options import Power
from eigenfed.protocol.products import Products, relative
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.totals import Total

R = TypeVar("R")

_EXTRA_DIRECTIONS = 5


def power(
    moments: Moments,
    k: int,
    *,
    options: Power,
    tol: float,
    max_rounds: int,
    certify: bool,
    rng: np.random.Generator,
    total: Total,
    sites: tuple[str, ...],
) -> Protocol[Decomposition]:
    """Iterate on k + 5 directions (as 004 Table 3 does for k = 5) and average until it is done.

    Done means: where all sites take each step together, that the residuals of the components are
    within `tol`; where all sites take a fixed number of local steps, that the average rests, which
    says nothing of its error; else that the rounds are used up.

    Parameters
    ----------
    moments : Moments
    k : int
        Number of components.
    options : Power
    tol : float
        Largest residual, relative to the first eigenvalue.
    max_rounds : int
        Most rounds in which matrices come from sites: an average counts one, or two if aligned,
        and the last product one. Rounds repeated for lost sites come on top.
    certify : bool
        Ask once more for the bound on the angle.
    rng : numpy Generator
        For the first basis, and for drawing sites.
    total : Total
        How sums are made.
    sites : tuple of str
        All sites of the run.

    Raises
    ------
    InputError
        If more sites are to be drawn without replacement than there are.
    SiteLost
        If a site is lost with full participation, or while all are needed: at the beginning, and
        for the last product. A sampled site that is lost is left out of that one average.
    """
    wanted = options.sites_per_round or 0
    if options.participation == "scheme2" and wanted > len(sites):
        raise InputError(
            f"sites_per_round={wanted} must be at most {len(sites)}, the number of sites, where "
            "they are drawn without replacement. Draw fewer, or choose participation='scheme1'."
        )
    run = _Averages(Products(moments, total), options, rng, moments.arrays)
    d = len(moments.mean)
    basis = np.linalg.qr(rng.standard_normal((d, min(k + _EXTRA_DIRECTIONS, d)))).Q
    if options.needs_single_replies:
        yield from run.meet()
    leading = np.zeros((0, d))
    for steps in options.schedule():
        if options.is_full and steps == 1:
            return (yield from _distributed(run.products, basis, k, tol, max_rounds, certify))
        if run.products.rounds + options.cost(steps) >= max_rounds:
            break
        average = yield from run.average(basis, steps)
        if average is None:
            continue
        basis = np.linalg.qr(average).Q
        earlier, leading = leading, np.linalg.svd(average, full_matrices=False).U[:, :k].T
        rests = len(earlier) > 0 and sines(leading, earlier)[0] <= tol
        if rests and options.is_full and not options.decay:
            break
    return (yield from finished(run.products, basis, k, tol=tol, certify=certify))


def _distributed(
    products: Products, basis: Array, k: int, tol: float, max_rounds: int, certify: bool
) -> Protocol[Decomposition]:
    """Take all steps together (004 Alg. 1): each product also tells the residuals, for nothing."""
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
    return relative(column_lengths(left), values[0])


def _single(ask: Ask) -> Protocol[Replies]:
    return (yield ask)


@dataclass(eq=False)
class _Averages:
    """Asks for averages after local steps.

    Attributes
    ----------
    products : Products
        Counts the rounds.
    options : Power
    rng : numpy Generator
    greeting : mapping of str to ndarray
        The mean and scale, until sites have them.
    weights : dict of str to float
        Of each site's rows, in sorted order, where they are needed.
    """

    products: Products
    options: Power
    rng: np.random.Generator
    greeting: Arrays
    weights: dict[str, float] = field(default_factory=dict)

    def meet(self) -> Protocol[None]:
        """Tell all sites the mean and scale, and learn their weights."""
        replies = yield Ask("site_weight", self._greeting())
        self.weights = {name: float(replies[name]["weight"][0]) for name in sorted(replies)}

    def average(self, basis: Array, steps: int) -> Protocol[Array | None]:
        """Return the average of the sites' last steps, of any length, or None if all are lost."""
        factors = {} if self.options.is_full else self.options.factors(self.weights, self.rng)
        standing = tuple(factors) or tuple(self.weights)
        # With full participation the factor p_i / n_i is the same 1 / n for all: none is sent.
        share = {name: {"share": np.array([f / self.weights[name]])} for name, f in factors.items()}
        payload = {"start": basis, "steps": np.array([steps - 1]), **self._greeting()}
        if self.options.cost(steps) > 1:
            found, standing = yield from self._reference(Ask("local_walk", payload), standing)
            if found is None:
                return None
            signs = np.array([int(self.options.align == "sign")])
            payload = {"reference": found, "signs": signs}
        bounds = {"product": self.products.moments.most}
        ask = Ask("local_product", payload, each=share, bounds=bounds)
        answer, _ = yield from self._asked(self.products.total, ask, standing)
        return None if answer is None else answer["product"]

    def _reference(
        self, walk: Ask, standing: tuple[str, ...]
    ) -> Protocol[tuple[Array | None, tuple[str, ...]]]:
        """Have local steps taken, and return the baseline's basis and who else has come there."""
        while standing:
            baseline = max(standing, key=self.weights.__getitem__)
            ask = replace(walk, each={baseline: {"shown": np.ones(1)}})
            replies, _ = yield from self._asked(_single, ask, standing)
            standing = tuple(replies or ())
            if replies is not None and baseline in replies:
                return replies[baseline]["basis"], standing
        return None, ()

    def _asked(
        self, how: Callable[[Ask], Protocol[R]], ask: Ask, standing: tuple[str, ...]
    ) -> Protocol[tuple[R | None, tuple[str, ...]]]:
        """Ask all sites, or those standing: then without the lost, until somebody answers."""
        if self.options.is_full:
            self.products.rounds += 1
            return (yield from how(ask)), standing
        while standing:
            self.products.rounds += 1
            try:
                return (yield from how(replace(ask, to=standing, quorum=1))), standing
            except SiteLost as lost:
                if not set(standing) & set(lost.sites):
                    raise
                standing = tuple(name for name in standing if name not in lost.sites)
        return None, ()

    def _greeting(self) -> Arrays:
        greeting, self.greeting = self.greeting, {}
        return greeting
