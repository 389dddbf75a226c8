"""The facts about a fitted estimator, as values that JSON can hold."""

import math
from collections.abc import Iterable
from dataclasses import asdict
from importlib.metadata import version
from numbers import Integral
from platform import python_version
from typing import Any

import numpy as np

from eigenfed.arrays import Array
from eigenfed.data.harmonise import CLASSES
from eigenfed.data.steps import write_steps
from eigenfed.estimators.pca_fit import PCAFit
from eigenfed.linalg.sampling import (
    bound_turns,
    compare_with_independent,
    estimate_turns,
    find_noise_edge,
)
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.privacy.release import Reveals
from eigenfed.protocol.exact.by_site import compare_sites
from eigenfed.protocol.method import Method, all_methods, as_method
from eigenfed.study.results.json_types import to_json_types
from eigenfed.transport.engine import as_engine

FORMAT = 1
_LEAST_FREEDOM = 8
"""Rows, less one, below which nothing is said about other samples."""
_NONE_MISSING = 1e-9
"""Fraction of a feature's entries that sums in fixed point may differ by where none is missing."""
_PACKAGES = ("eigenfed", "numpy", "scipy", "scikit-learn", "cryptography")


def describe_fit(pca: PCAFit, sites: Iterable[str]) -> dict[str, Any]:
    """Return the facts about a fitted estimator that ``result.json`` holds.

    Parameters
    ----------
    pca : PCAFit
        Fitted.
    sites : iterable of str
        Names of the sites.

    Examples
    --------
    >>> import numpy as np
    >>> pca = PCAFit(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> facts = describe_fit(pca, ["a", "b"])
    >>> facts["n"], facts["d"], facts["k"], facts["rounds"], facts["privacy"]
    (6, 3, 1, 2, None)
    """
    k, d = pca.components_.shape
    facts = {
        "format": FORMAT,
        "method": pca.method_,
        "reason": pca.reason_,
        "sites": sorted(sites),
        "n": pca.n_samples_,
        "d": d,
        "k": k,
        "center": pca.center,
        "scale": pca.settings_["scale"],
        "prepare": _describe_preparation(pca),
        "secure": pca.settings_["secure"],
        "split": pca.split,
        "engine": pca.engine_,
        "run": next((reply.run for sent in pca.egress_.values() for reply in sent), None),
        "seed": pca.random_state if isinstance(pca.random_state, Integral) else None,
        "asked": {
            **_describe_method(pca.method),
            **{name: pca.settings_[name] for name in ("tol", "stop")},
            "max_rounds": pca.max_rounds,
            "certify": "auto" if pca.certify is True else pca.certify,
            "wire": as_engine(pca.transport).wire,
            "privacy": _describe_privacy(pca.privacy),
        },
        "named": hasattr(pca, "feature_names_in_"),
        "missing": _describe_missing(pca),
        "eigenvalues": pca.explained_variance_,
        "ratios": pca.explained_variance_ratio_,
        "total_variance": pca.total_variance_,
        **_describe_sampling(pca),
        "rounds": pca.n_rounds_,
        "bytes_up": pca.bytes_up_,
        "bytes_down": pca.bytes_down_,
        "certificate": pca.certificate_,
        "privacy": pca.privacy_,
        "signal": pca.signal_,
        "leakage": pca.leakage_._asdict(),
        "by_site": _describe_sites(pca),
        "versions": {"python": python_version()} | {name: version(name) for name in _PACKAGES},
    }
    plain: dict[str, Any] = to_json_types(facts)
    return plain


def sends_covariance(name: str) -> bool:
    """Return whether each site sends its whole covariance under a method of this name.

    Examples
    --------
    >>> sends_covariance("covariance"), sends_covariance("krylov")
    (True, False)
    """
    method = all_methods().get(name)
    return method is not None and any(op.release.reveals is Reveals.SCATTER for op in method.ops)


def _describe_method(method: Method | str) -> dict[str, Any]:
    """Return the name of a method and the options that differ from their defaults."""
    found = as_method(method)
    if isinstance(found, str):
        return {"method": found, "options": {}}
    return {"method": found.name, "options": found.options}


def _describe_privacy(privacy: Privacy | Published | None) -> dict[str, Any] | None:
    return None if privacy is None else {"name": type(privacy).__name__} | asdict(privacy)


def _describe_preparation(pca: PCAFit) -> dict[str, Any] | None:
    """Return the steps as text, the number of features before them, and what steps removed."""
    known = pca.preparation_
    if not known.steps:
        return None
    found: dict[str, Any] = {"steps": write_steps(known.steps), "features": pca.n_features_in_}
    if known.attrition:
        found["attrition"] = [asdict(row) for row in known.attrition]
    if known.matched is not None:
        found["matched"] = dict(zip(CLASSES, known.matched.tolist(), strict=True))
    return found


def _describe_missing(pca: PCAFit) -> dict[str, Any] | None:
    """Return how many entries are missing, by weight, and where most are; None if unknown."""
    if pca.n_observed_ is None or pca.privacy_ is not None:
        return None
    missing = np.maximum(1.0 - pca.n_observed_ / max(pca._total_weight, 1e-300), 0.0)
    missing[missing < _NONE_MISSING] = 0.0
    most = int(missing.argmax())
    place = most if pca.selected_features_ is None else int(pca.selected_features_[most])
    names = getattr(pca, "feature_names_in_", None)
    return {
        "fraction": float(missing.mean()),
        "features": int(np.count_nonzero(missing)),
        "most": float(missing[most]),
        "most_in": f"x{place}" if names is None else str(names[place]),
    }


def _describe_sites(pca: PCAFit) -> dict[str, Any] | None:
    if pca.by_site_ is None:
        return None
    found = compare_sites(pca.by_site_)
    return {
        "explained": found.explained,
        "sites": {
            site: {
                "rows": level.weight,
                "contribution": found.contribution[site],
                "shift": found.shift[site],
            }
            for site, level in pca.by_site_.items()
        },
    }


def _describe_sampling(pca: PCAFit) -> dict[str, Any]:
    """Return further variances, the edge of noise, and how far a new sample turns components.

    Not for private runs, whose variances contain the noise of the mechanism.
    """
    unknown = {"further": [], "further_exact": False, "noise_edge": None}
    unknown |= {"remaining_noise_edge": None, "sampling_angles": None, "confidence_angles": None}
    freedom = pca.n_samples_ - bool(pca.center)
    total = pca.total_variance_
    if pca.privacy_ is not None or freedom < _LEAST_FREEDOM or not total > 0.0:
        return unknown
    variances = np.concatenate([pca.explained_variance_, pca.further_variance_]).astype(np.float64)
    arguments = variances, total, float(freedom), pca.components_.shape[1]
    k = len(pca.components_)
    return {
        "further": pca.further_variance_,
        "further_exact": sends_covariance(pca.method_),
        "noise_edge": compare_with_independent(*arguments),
        "remaining_noise_edge": find_noise_edge(*arguments),
        "sampling_angles": estimate_turns(*arguments)[:k],
        "confidence_angles": _add_certificate(bound_turns(*arguments)[:k], pca),
    }


def _add_certificate(angles: Array, pca: PCAFit) -> Array | None:
    """Add the angle by which the computation may be off; None if that is unknown."""
    if pca.certificate_ is None:
        return None
    return np.minimum(angles + pca.certificate_.angles, math.pi / 2)
