"""What there is to say of a fitted estimator, as JSON can hold it."""

import math
from collections.abc import Iterable, Mapping
from dataclasses import asdict, is_dataclass
from importlib.metadata import version
from numbers import Integral
from platform import python_version
from typing import Any

import numpy as np

from eigenfed.estimators.federated import FederatedPCA
from eigenfed.privacy.guarantee import Privacy
from eigenfed.privacy.published_claims import Published
from eigenfed.protocol.exact.by_site import compared
from eigenfed.protocol.method import Method, as_method

FORMAT = 1
_PACKAGES = ("eigenfed", "numpy", "scipy", "scikit-learn", "cryptography")


def described(pca: FederatedPCA, sites: Iterable[str]) -> dict[str, Any]:
    """Return what there is to say of a fitted estimator, ready for JSON.

    Parameters
    ----------
    pca : FederatedPCA
    sites : iterable of str

    Examples
    --------
    >>> import numpy as np
    >>> pca = FederatedPCA(1).fit_sites({"a": np.eye(3), "b": 2 * np.eye(3)})
    >>> facts = described(pca, ["a", "b"])
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
        "scale": pca.scale,
        "secure": pca.secure,
        "split": pca.split,
        "engine": "in_process",
        "seed": pca.random_state if isinstance(pca.random_state, Integral) else None,
        "asked": {
            **_method(pca.method),
            **{name: getattr(pca, name) for name in ("tol", "stop", "max_rounds", "certify")},
            "privacy": _terms(pca.privacy),
        },
        "named": hasattr(pca, "feature_names_in_"),
        "eigenvalues": pca.explained_variance_,
        "ratios": pca.explained_variance_ratio_,
        "total_variance": _total_variance(pca),
        "rounds": pca.n_rounds_,
        "bytes_up": pca.bytes_up_,
        "bytes_down": pca.bytes_down_,
        "certificate": pca.certificate_,
        "privacy": pca.privacy_,
        "signal": pca.signal_,
        "leakage": pca.leakage_._asdict(),
        "by_site": _by_site(pca),
        "versions": {"python": python_version()} | {name: version(name) for name in _PACKAGES},
    }
    described: dict[str, Any] = plain(facts)
    return described


def _method(method: Method | str) -> dict[str, Any]:
    """Return the name of a method and the options that differ from their defaults."""
    found = as_method(method)
    if isinstance(found, str):
        return {"method": found, "options": {}}
    return {"method": found.name, "options": found.options}


def _terms(privacy: Privacy | Published | None) -> dict[str, Any] | None:
    return None if privacy is None else {"name": type(privacy).__name__} | asdict(privacy)


def _by_site(pca: FederatedPCA) -> dict[str, Any] | None:
    if pca.by_site_ is None:
        return None
    found = compared(pca.by_site_)
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


def _total_variance(pca: FederatedPCA) -> float:
    if pca.certificate_ is not None:
        return pca.certificate_.total_variance
    rest = pca.n_features_in_ - len(pca.components_)
    return float(pca.explained_variance_.sum()) + rest * pca.noise_variance_


def plain(value: Any) -> Any:
    """Turn a value into what JSON has: null for NaN and infinity, lists for arrays.

    Examples
    --------
    >>> import numpy as np
    >>> plain({"a": np.array([1.0, np.nan]), "b": float("inf"), "c": np.int64(3)})
    {'a': [1.0, None], 'b': None, 'c': 3}
    """
    if is_dataclass(value) and not isinstance(value, type):
        return plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        return plain(value.tolist())
    if isinstance(value, list | tuple | set | frozenset):
        entries = sorted(value) if isinstance(value, set | frozenset) else value
        return [plain(entry) for entry in entries]
    return None if isinstance(value, float) and not math.isfinite(value) else value
