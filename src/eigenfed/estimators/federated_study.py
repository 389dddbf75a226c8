"""The study that an estimator's parameters describe, or what is wrong with them."""

import os
from collections.abc import Mapping
from typing import Any

import numpy as np

from eigenfed.data.genotypes import Genotypes
from eigenfed.data.loci import find_loci
from eigenfed.data.source import Source
from eigenfed.data.steps import as_steps, count_features, filters_variants
from eigenfed.errors import Argument, InputError, Name, Pass, PrivacyError
from eigenfed.estimators.setting_conflicts import (
    check_by_site,
    check_prepared,
    check_private,
    check_recordable,
    check_scaled,
    check_secure,
    check_wire_use,
)
from eigenfed.linalg.checks import check_choice, check_count, check_flag
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.secagg.identity import LEAST_SITES
from eigenfed.protocol.component_count import ALL, Components, as_components, is_open
from eigenfed.protocol.exact.krylov import Krylov
from eigenfed.protocol.method import Method, as_method
from eigenfed.protocol.study import BY_SITE, GENOTYPE, GENOTYPE_TOL, TOL, Study


def check_split(split: str, keys: Any, sample_weight: Any, features: str) -> None:
    """Refuse arguments of a fit that the other split has."""
    by_columns = split == "features"
    if keys is not None and not by_columns:
        raise InputError("keys requires split='features', which matches rows. Drop keys.")
    if by_columns and (sample_weight is not None or features != "same"):
        raise InputError("sample_weight and features require split='samples'. Drop them.")


def resolve_auto(parameters: Mapping[str, Any], sources: Mapping[str, Source]) -> dict[str, Any]:
    """Replace the parameters that are "auto" by what suits the rows.

    Parameters
    ----------
    parameters : mapping
        Those of `FederatedPCA`, by name.
    sources : mapping of str to Source

    Raises
    ------
    InputError
        If only some sources hold genotypes, or if the scale of genotypes is asked of other rows.
    """
    packed = [isinstance(source.X, Genotypes) for source in sources.values()]
    if any(packed) and not all(packed):
        raise InputError(
            "Some sites have genotypes and others have not, and their features cannot be the same. "
            "Pass .bed files, or tables, for all of them."
        )
    if all(packed):
        _check_same_places(sources)
    # A search over parameters may pass numpy's numbers and flags.
    found = {
        name: value.item() if isinstance(value, np.generic) else value
        for name, value in parameters.items()
    }
    if isinstance(found["secure"], str) and found["secure"] == "auto":
        found["secure"] = prefers_secure(found, len(sources))
    suits = {"scale": False, "tol": TOL, "stop": "all"}
    if any(packed):
        suits = {
            "scale": GENOTYPE,
            "tol": GENOTYPE_TOL,
            "stop": "separated",
            "method": Krylov.name,
        }
    for name, value in suits.items():
        if isinstance(found[name], str) and found[name] == "auto":
            found[name] = value
    if any(packed) and found["scale"] == GENOTYPE:
        _check_genotypes(found)
    elif found["scale"] == GENOTYPE:
        raise InputError(
            Argument("scale", GENOTYPE), " is for genotypes", remedy="Pass .bed files, or True."
        )
    return found


def _check_same_places(sources: Mapping[str, Source]) -> None:
    """Refuse sites that place variants of the same name differently."""
    named = list(sources.items())
    for name, source in named[1:]:
        first, own = find_loci(named[0][1].X), find_loci(source.X)
        if first is None or own is None or len(first) != len(own):
            continue
        moved = (first.chromosome != own.chromosome) | (first.position != own.position)
        if moved.any():
            raise InputError(
                f"{np.count_nonzero(moved)} of {len(own)} variants have other chromosomes or "
                f"positions at site {name!r} than at {named[0][0]!r}, as in different builds of "
                "the genome. Convert one of the files to the other's build."
            )


def _check_genotypes(parameters: Mapping[str, Any]) -> None:
    """Refuse what genotypes cannot be combined with."""
    conflicts = (
        ("privacy", parameters["privacy"] is not None),
        ("prepare", not _prepares_variants(parameters)),
        ("split", parameters["split"] != "samples"),
        ("center", parameters["center"] is not True),
    )
    for name, is_given in conflicts:
        if is_given:
            raise InputError(
                "Scaling by allele frequencies, the default for genotypes, cannot be combined with "
                f"{name}",
                remedy=("Drop ", Name(name), "."),
            )


def prefers_secure(parameters: Mapping[str, Any], n_sites: int) -> bool:
    """Return whether secure aggregation is the default: to filter variants, where it can be used.

    Counts of the genotypes of a site say who is among its people.
    """
    method = as_method(parameters["method"])
    return (
        filters_variants(as_steps(parameters.get("prepare")))
        and n_sites >= LEAST_SITES
        and parameters["privacy"] is None
        and parameters["split"] == "samples"
        and (isinstance(method, str) or method.sums_only())
    )


def _prepares_variants(parameters: Mapping[str, Any]) -> bool:
    """Return whether there are no steps, or only steps for variants."""
    steps = as_steps(parameters.get("prepare"))
    return not steps or filters_variants(steps)


def make_study(
    parameters: Mapping[str, Any],
    sources: Mapping[str, Source],
    *,
    n: int,
    d: int,
    by_site: bool,
    wire: str,
) -> Study:
    """Check the parameters, and return the study that the sites approve.

    Parameters
    ----------
    parameters : mapping
        Those of `FederatedPCA`, by name.
    sources : mapping of str to Source
    n, d : int
        Number of rows and of features.
    by_site : bool
        Whether sites report where their rows lie on the components.
    wire : {"float64", "float32"}
    """
    steps = as_steps(parameters.get("prepare"))
    d = count_features(steps, d)
    components = as_components(parameters["n_components"])
    if isinstance(components, int) and components > min(n, d):
        raise InputError(
            Argument("n_components", components),
            f" must be at most {min(n, d)}, the smaller of the number of samples "
            f"(n_samples={n}) and of features (n_features={d})",
            remedy=("Lower ", Name("n_components"), "."),
        )
    if components == ALL and any(source.weights is not None for source in sources.values()):
        # The coordinator learns the sum of the weights, and not how many rows there are.
        components = min(n, d)
    method = _check_parameters(parameters)
    _check_count(components, method, parameters)
    secure, privacy, split = (parameters[name] for name in ("secure", "privacy", "split"))
    if secure:
        check_secure(len(sources), split, method)
    if privacy is not None:
        check_private(privacy, sources, split=split, method=method, secure=secure)
        if isinstance(privacy, Published) and parameters["scale"]:
            raise InputError("scale=True cannot be used with a published mechanism. Drop it.")
    if by_site:
        check_by_site(secure, privacy, split)
    study = Study(
        tuple(sorted(sources)),
        components,
        method,
        split=split,
        center=parameters["center"],
        scale=parameters["scale"],
        secure=secure,
        by_site=by_site,
        privacy=privacy,
        tol=float(parameters["tol"]),
        stop=parameters["stop"],
        max_rounds=int(parameters["max_rounds"]),
        certify=parameters["certify"],
        wire=wire,
        prepare=steps,
    )
    check_prepared(study, sources)
    check_wire_use(study)
    if parameters["transcript"] is not None:
        check_recordable(privacy)
    if isinstance(privacy, Privacy):
        check_scaled(study)
    return study


def _check_count(
    components: Components, method: Method | str, parameters: Mapping[str, Any]
) -> None:
    """Refuse a number of components that follows from the rows where that is not possible."""
    if isinstance(components, int):
        return
    given = Argument("n_components", parameters["n_components"])
    if parameters["privacy"] is not None:
        raise PrivacyError(
            given,
            " cannot be combined with privacy, whose noise is shared out for a number of "
            "components that is known beforehand",
            remedy="Pass an integer.",
        )
    if parameters["split"] == "features":
        raise InputError(
            given, " cannot be combined with split='features'", remedy="Pass an integer."
        )
    if is_open(components) and isinstance(method, Method) and not method.finds_count():
        raise InputError(
            given,
            " cannot be combined with ",
            method.as_argument(),
            ", which needs the number of components before it starts",
            remedy=("Pass an integer, or ", Pass("method", "auto"), "."),
        )


def _check_center(parameters: Mapping[str, Any]) -> None:
    center = parameters["center"]
    if not isinstance(center, bool) and center != BY_SITE:
        raise InputError(
            Argument("center", center), " must be True, False or 'site'", remedy="Pass one of them."
        )
    if center != BY_SITE:
        return
    if parameters["privacy"] is not None:
        raise PrivacyError(
            Argument("center", BY_SITE),
            " cannot be combined with privacy: how far one row changes sums about the mean of its "
            "own site is not proven",
            remedy="Centre by the mean of all rows.",
        )
    if parameters["split"] == "features":
        raise InputError(
            Argument("center", BY_SITE),
            " requires split='samples': a feature is at one site as a whole",
            remedy="Centre by the mean of all rows.",
        )


def _check_parameters(parameters: Mapping[str, Any]) -> Method | str:
    split, transcript = parameters["split"], parameters["transcript"]
    method = as_method(parameters["method"])
    check_choice("split", split, ("samples", "features"))
    if split == "features" and isinstance(method, Method) and method != Krylov():
        raise InputError(
            method.as_argument(),
            " cannot be combined with ",
            Argument("split", "features"),
            remedy=(Pass("method", "krylov"), "."),
        )
    check_choice("stop", parameters["stop"], ("auto", "all", "separated"))
    check_count("max_rounds", parameters["max_rounds"], "Allow one round or more.")
    if not isinstance(transcript, str | os.PathLike | None):
        raise InputError(
            f"transcript has type {type(transcript).__name__} and must be a path or None. "
            "Pass one of them."
        )
    _check_center(parameters)
    check_flag("whiten", parameters["whiten"])
    check_flag("secure", parameters["secure"], "auto")
    if parameters["scale"] != GENOTYPE:
        check_flag("scale", parameters["scale"], "auto", GENOTYPE)
    if parameters["certify"] not in ("auto", "rigorous"):
        check_flag("certify", parameters["certify"], "auto", "rigorous")
    tol = parameters["tol"]
    if type(tol) not in (int, float) or not 0.0 < tol < 90.0:
        raise InputError(
            f"tol={tol!r} must be a number between 0 and 90: it is an angle in degrees. Pass 1e-4."
        )
    return method
