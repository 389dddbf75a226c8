"""A whole federated PCA: moments, then the method that was asked for or that fits."""

import math
from dataclasses import dataclass, replace

import numpy as np

from eigenfed.errors import InputError
from eigenfed.protocol.by_site import levels
from eigenfed.protocol.core import Protocol
from eigenfed.protocol.covariance import Covariance, covariance
from eigenfed.protocol.krylov import krylov
from eigenfed.protocol.moments import Moments, all_moments
from eigenfed.protocol.one_shot import Merge, merge, one_shot_basis
from eigenfed.protocol.power import power
from eigenfed.protocol.power_options import Power
from eigenfed.protocol.randomized import randomized
from eigenfed.protocol.result import Decomposition
from eigenfed.protocol.subspace import Subspace, subspace
from eigenfed.protocol.totals import Total, plain_sum

METHODS = ("auto", "covariance", "krylov", "randomized", "subspace", "power", "merge")
Method = str | Covariance | Merge | Power | Subspace

_FEW_FEATURES = 2000


@dataclass(frozen=True)
class Plan:
    """What to compute, and how far to go.

    Attributes
    ----------
    k : int
        Number of components.
    method : str, Covariance, Merge, Power or Subspace
    center, scale : bool
    tol : float
        Largest residual, relative to the first eigenvalue.
    stop : {"all", "separated"}
    max_rounds : int
        Most rounds of products.
    certify : bool
    whole_allowed : bool
        Whether every site answers with its whole scatter; "auto" asks for it only then.
    wire : {"float64", "float32"}
        Precision of the floats in messages, as the transport and the sites have it.
    by_site : bool
        Ask each site, at the end, where its rows lie on the components.
    """

    k: int
    method: Method = "auto"
    center: bool = True
    scale: bool = False
    tol: float = 2e-8
    stop: str = "all"
    max_rounds: int = 50
    certify: bool = True
    whole_allowed: bool = True
    wire: str = "float64"
    by_site: bool = False


def chosen(plan: Plan, d: int) -> tuple[Method, str]:
    """Return the method to use and the reason, in words.

    Examples
    --------
    >>> chosen(Plan(k=3), d=50)
    ('covariance', '50 features: one round of 1275 numbers a site is the shortest way')
    """
    if plan.method != "auto":
        return plan.method, "asked for by name"
    if d > _FEW_FEATURES:
        return "krylov", f"{d} features: a covariance of {d * (d + 1) // 2} numbers is too many"
    if not plan.whole_allowed:
        return "krylov", "the policy of a site keeps its whole covariance back"
    numbers = d * (d + 1) // 2
    return "covariance", f"{d} features: one round of {numbers} numbers a site is the shortest way"


def check_summable(method: Method) -> None:
    """Refuse a method that needs the replies of single sites, or a precision that sums lack.

    Examples
    --------
    >>> check_summable("krylov")
    >>> check_summable("merge")
    Traceback (most recent call last):
    eigenfed.errors.InputError: method='merge' needs replies of single sites, ...
    """
    match method:
        case "merge" | Merge():
            remedy = "method='covariance' or 'krylov'"
        case Covariance() if method.is_single:
            raise InputError(
                f"method={method!r} does not go with secure sums, which have a precision of their "
                "own. Pass method='covariance'."
            )
        case "power":
            remedy = "Power(local_steps=1)"
        case Power() if method.needs_single_replies:
            remedy = "Power(local_steps=1), with all sites in each average"
        case Subspace(start="merge"):
            remedy = "Subspace(start='random')"
        case _:
            return
    raise InputError(
        f"method={method!r} needs replies of single sites, which secure sums do not give. "
        f"Pass {remedy}."
    )


def _whole_up_to(plan: Plan) -> float:
    """Up to how many features the whole scatter will be asked for."""
    if isinstance(plan.method, Covariance):
        return 0.0 if plan.method.is_single else math.inf
    if plan.method == "covariance":
        return math.inf
    return float(_FEW_FEATURES) if plan.method == "auto" and plan.whole_allowed else 0.0


def pca(
    plan: Plan,
    *,
    sites: tuple[str, ...],
    rng: np.random.Generator,
    total: Total = plain_sum,
) -> Protocol[Decomposition]:
    """Run a federated PCA of rows that are split over sites.

    Parameters
    ----------
    plan : Plan
    sites : tuple of str
        Names of the sites, sorted.
    rng : numpy Generator
        For public starts.
    total : Total
        How sums over sites are made.
    """
    if total.bounded:
        check_summable(plan.method)
    moments = yield from all_moments(
        total,
        center=plan.center,
        scale=plan.scale,
        whole_up_to=_whole_up_to(plan),
        wire=plan.wire,
    )
    method, why = chosen(plan, len(moments.mean))
    found = yield from _run(method, plan, moments, sites, rng, total)
    found = replace(found, method=_name(method), why=why)
    return replace(found, by_site=(yield from levels(found))) if plan.by_site else found


def _run(
    method: Method,
    plan: Plan,
    moments: Moments,
    sites: tuple[str, ...],
    rng: np.random.Generator,
    total: Total,
) -> Protocol[Decomposition]:
    tol, k = plan.tol, plan.k
    match method:
        case "covariance" | Covariance():
            options = method if isinstance(method, Covariance) else Covariance()
            return (
                yield from covariance(
                    moments, k, options=options, tol=tol, certify=plan.certify, total=total
                )
            )
        case "krylov":
            return (
                yield from krylov(
                    moments,
                    k,
                    tol=tol,
                    stop=plan.stop,
                    max_rounds=plan.max_rounds,
                    certify=plan.certify,
                    rng=rng,
                    total=total,
                )
            )
        case "randomized":
            return (
                yield from randomized(
                    moments, k, tol=tol, certify=plan.certify, rng=rng, total=total
                )
            )
        case "subspace" | Subspace():
            steps = method if isinstance(method, Subspace) else Subspace()
            start = None
            if steps.start == "merge":
                start = yield from one_shot_basis(moments, k, options=Merge())
            return (
                yield from subspace(
                    moments,
                    k,
                    options=steps,
                    tol=tol,
                    max_rounds=plan.max_rounds,
                    certify=plan.certify,
                    rng=rng,
                    total=total,
                    start=start,
                )
            )
        case "power" | Power():
            return (
                yield from power(
                    moments,
                    k,
                    options=method if isinstance(method, Power) else Power(),
                    tol=tol,
                    max_rounds=plan.max_rounds,
                    certify=plan.certify,
                    rng=rng,
                    total=total,
                    sites=sites,
                )
            )
        case "merge" | Merge():
            return (
                yield from merge(
                    moments,
                    k,
                    options=method if isinstance(method, Merge) else Merge(),
                    tol=tol,
                    certify=plan.certify,
                    total=total,
                )
            )
        case _:
            raise InputError(
                f"method={method!r} must be one of {', '.join(map(repr, METHODS))}, or a value "
                "such as Power(local_steps=4). Pass one of them."
            )


def _name(method: Method) -> str:
    return method if isinstance(method, str) else type(method).__name__.lower()
