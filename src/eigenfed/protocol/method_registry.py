"""Registration of all methods, the script and operations of a study, and the choice of "auto".

A new method is a class in a module of its own and one line here; everything else reads the
registry (`eigenfed.protocol.method.all_methods`).
"""

from dataclasses import replace
from typing import Any

from eigenfed.privacy.policy import Policy
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.component_count import is_open
from eigenfed.protocol.cost_rates import time_messages
from eigenfed.protocol.exact import by_site, moments, own_means, quality_control, stages, vertical
from eigenfed.protocol.exact.covariance import Covariance
from eigenfed.protocol.exact.factors import Factors
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.randomized import Randomized
from eigenfed.protocol.exact.subspace import Subspace
from eigenfed.protocol.gate.script import Script, optional, sequence
from eigenfed.protocol.method import Method, Shape, all_methods, register
from eigenfed.protocol.operations import Op
from eigenfed.protocol.private import private_site
from eigenfed.protocol.private.budget_schedule import private_script
from eigenfed.protocol.published import published_pca
from eigenfed.protocol.study import GENOTYPE, Study

for _method in (Covariance, Factors, Krylov, Randomized, Subspace, Power, Merge):
    register(_method)

_AS_GOOD = 1.2
"""Ratio of predicted times up to which the method with the fewest rounds is preferred."""
_MOST_NUMBERS = 2_001_000.0
"""Largest covariance that a private run requests, in numbers per site: 2000 features."""
_UNTOLD = (Reveals.NOTHING, Reveals.SIZE, Reveals.RANGE)
"""What leaves each site by itself in secure aggregation: keys, sizes and magnitudes."""


def build_script(study: Study, d: int) -> Script:
    """Return the script of a site for a study that has its method.

    Parameters
    ----------
    study : Study
    d : int
        Number of the site's features.
    """
    if isinstance(study.privacy, Published):
        return published_pca.published_script(study)
    if isinstance(study.privacy, Privacy):
        return private_script(study)
    if study.split == "features":
        return vertical.features_script(study)
    if study.chosen.merges_streams():
        return study.chosen.script(study, d)
    last = optional("own_level") if study.by_site else sequence()
    return sequence(stages.moments_script(study), study.chosen.script(study, d), last)


def list_operations(study: Study) -> dict[str, Op[Any, Any]]:
    """Return the operations of a study's script, by name.

    Those of a method that reveal something and leave no sum have no place in secure aggregation,
    whatever the script of the method says.
    """
    if isinstance(study.privacy, Published):
        found: tuple[Op[Any, Any], ...] = (*moments.OPS, *published_pca.OPS)
    elif isinstance(study.privacy, Privacy):
        found = private_site.OPS
    elif study.split == "features":
        found = vertical.OPS
    else:
        first = (*moments.OPS, *quality_control.OPS, *own_means.OPS)
        found = (*first, *study.chosen.ops, *by_site.OPS)
    return {op.name: op for op in found if not (study.masked and _must_be_open(op.release))}


def _must_be_open(release: Release) -> bool:
    """Return whether a reply tells of a single site's rows, so that no sum can carry it."""
    return release.leaves is Leaves.EXACT and release.reveals not in _UNTOLD


def all_operations() -> dict[str, Op[Any, Any]]:
    """Return all operations of all studies, by name: everything that can ever leave a site."""
    shared: tuple[Op[Any, Any], ...] = (
        *moments.OPS,
        *own_means.OPS,
        *quality_control.OPS,
        *vertical.OPS,
        *by_site.OPS,
        *private_site.OPS,
        *published_pca.OPS,
    )
    own = [op for method in all_methods().values() for op in method.ops]
    return {op.name: op for op in [*shared, *own]}


def may_choose(study: Study, method: Method) -> bool:
    """Return whether "auto" may choose a method for a study."""
    found = list_candidates(study)
    return method in found or (
        _may_fit(study) and any(candidate.may_become(method) for candidate in found)
    )


def list_candidates(study: Study) -> list[Method]:
    """Return the methods that "auto" chooses from, all with their default options."""
    if isinstance(study.privacy, Privacy):
        return [Covariance()] if study.scale else [Covariance(), Power()]
    if study.split == "features":
        return [Krylov()]
    automatic = [method() for method in all_methods().values() if method.automatic]
    found = [method for method in automatic if method.sums_only() or not study.masked]
    return [m for m in found if m.finds_count()] if is_open(study.components) else found


def choose_method(
    study: Study, shape: Shape, policies: tuple[Policy, ...] = ()
) -> tuple[Method, str]:
    """Return the method of a study, chosen if it is "auto", and the reason as text.

    Parameters
    ----------
    study : Study
    shape : Shape
        Sizes of the run.
    policies : tuple of Policy, optional
        Policies of the sites, as far as they are known.

    Examples
    --------
    >>> study = Study(("a", "b"), 3)
    >>> choose_method(study, Shape(rows=5000, features=50, components=3, sites=2))[0].name
    'covariance'
    >>> choose_method(study, Shape(rows=200, features=5000, components=3, sites=2))[0].name
    'krylov'
    """
    if isinstance(study.method, Method):
        is_usual = study.scale == GENOTYPE and study.method == Krylov()
        return study.method, "the default for genotypes" if is_usual else "requested by name"
    found = list_candidates(study)
    if _may_fit(study):
        found = [_fit(method, shape) for method in found]
    allowed = [m for m in found if _is_allowed(m, shape, policies)]
    if len(allowed) == 1 and len(found) > 1:
        return allowed[0], f"the policy of a site allows only {allowed[0].name}"
    if isinstance(study.privacy, Privacy):
        # One noised covariance is more accurate than noised products, as long as it can be sent.
        small = found[0].cost(shape).numbers <= _MOST_NUMBERS
        best = found[0] if small or len(found) == 1 else found[1]
        # The number of rows may be private: it neither decides this nor appears in the reason.
        return best, _reason(best, replace(shape, rows=0))
    seconds = {method: predict_seconds(method, shape) for method in allowed or found}
    least = min(seconds.values())
    close = [method for method, predicted in seconds.items() if predicted <= _AS_GOOD * least]
    best = min(close, key=lambda method: method.cost(shape).rounds)
    return best, _reason(best, shape)


def _may_fit(study: Study) -> bool:
    """Return whether processor time decides on options: if sums are plain, and all must converge.

    Each round of secure aggregation takes several messages, and components within the bulk of a
    spectrum, or of a number that is to be found, are set apart from nothing.
    """
    plain = study.split == "samples" and study.privacy is None and not study.masked
    return plain and study.stop == "all" and not is_open(study.components)


def _fit(method: Method, shape: Shape) -> Method:
    """Return the method with options that suit the sizes, if they save time."""
    fitted = method.fit_to(shape)
    if fitted == method or predict_seconds(method, shape) <= predict_seconds(fitted, shape):
        return method
    return fitted


def _is_allowed(method: Method, shape: Shape, policies: tuple[Policy, ...]) -> bool:
    reveals_all = method.cost(shape).answered >= shape.features
    return all(
        policy.allows(method.name) and not (reveals_all and policy.limits_leakage)
        for policy in policies
    )


def predict_seconds(method: Method, shape: Shape) -> float:
    """Return the seconds of one processor that all sites and the coordinator take together."""
    cost = method.cost(shape)
    # The moments are a round as well.
    messages = time_messages(cost.rounds + 1, cost.numbers, shape.sites, secure=shape.secure)
    return shape.sites * cost.site_s + cost.coordinator_s + messages


def _reason(method: Method, shape: Shape) -> str:
    d = shape.features
    if method.name == "covariance":
        numbers = d * (d + 1) // 2
        return f"{d} features: one round of {numbers} numbers per site costs least"
    sizes = f"{d} features and {shape.rows} rows" if shape.rows else f"{d} features"
    if method.name == "factors":
        return f"{sizes} at the largest site: one round of factors costs least"
    return f"{sizes}: products cost less than the whole covariance"
