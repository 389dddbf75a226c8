"""Principal components of data that cannot be pooled.

Estimators import scikit-learn, which takes over a second: each name is imported when it is first
used, so that a site's process and the command line start at once.
"""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

from eigenfed.errors import (
    BudgetExceeded,
    DataError,
    EigenfedError,
    InputError,
    NoiseWarning,
    PrivacyError,
    ProtocolError,
    SiteLost,
    SiteRefused,
)

if TYPE_CHECKING:
    from eigenfed.data.steps import Log1p, NormalizeCounts, SelectVariable, Standardize
    from eigenfed.data.variant_steps import (
        Autosomes,
        CallRate,
        ExcludeLongRangeLd,
        HardyWeinberg,
        Matched,
        MinorAlleleFrequency,
        PruneLd,
    )
    from eigenfed.estimators.federated import FederatedPCA
    from eigenfed.estimators.federated_svd import FederatedSVD
    from eigenfed.estimators.streaming import StreamingPCA
    from eigenfed.linalg.summary import Summary
    from eigenfed.privacy.ledger.entries import Budget
    from eigenfed.privacy.policy import Policy
    from eigenfed.privacy.privacy_terms import Privacy
    from eigenfed.protocol.exact.covariance import Covariance
    from eigenfed.protocol.exact.factors import Factors
    from eigenfed.protocol.exact.krylov import Krylov
    from eigenfed.protocol.exact.merge import Merge
    from eigenfed.protocol.exact.power import Power
    from eigenfed.protocol.exact.randomized import Randomized
    from eigenfed.protocol.exact.subspace import Subspace
    from eigenfed.protocol.exact.tree import Region, RegionReport
    from eigenfed.report.from_python import write_report

    __version__: str

# A site's own log may hold error texts with data in them: without a handler of the host program
# they go nowhere, rather than to standard error as logging would have it.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "Autosomes",
    "Budget",
    "BudgetExceeded",
    "CallRate",
    "Covariance",
    "DataError",
    "EigenfedError",
    "ExcludeLongRangeLd",
    "Factors",
    "FederatedPCA",
    "FederatedSVD",
    "HardyWeinberg",
    "InputError",
    "Krylov",
    "Log1p",
    "Matched",
    "Merge",
    "MinorAlleleFrequency",
    "NoiseWarning",
    "NormalizeCounts",
    "Policy",
    "Power",
    "Privacy",
    "PrivacyError",
    "ProtocolError",
    "PruneLd",
    "Randomized",
    "Region",
    "RegionReport",
    "SelectVariable",
    "SiteLost",
    "SiteRefused",
    "Standardize",
    "StreamingPCA",
    "Subspace",
    "Summary",
    "methods",
    "write_report",
]

_HOMES = {
    "Log1p": "data.steps",
    "NormalizeCounts": "data.steps",
    "Autosomes": "data.variant_steps",
    "CallRate": "data.variant_steps",
    "ExcludeLongRangeLd": "data.variant_steps",
    "HardyWeinberg": "data.variant_steps",
    "Matched": "data.variant_steps",
    "MinorAlleleFrequency": "data.variant_steps",
    "PruneLd": "data.variant_steps",
    "SelectVariable": "data.steps",
    "Standardize": "data.steps",
    "FederatedPCA": "estimators.federated",
    "FederatedSVD": "estimators.federated_svd",
    "StreamingPCA": "estimators.streaming",
    "Summary": "linalg.summary",
    "Budget": "privacy.ledger.entries",
    "Policy": "privacy.policy",
    "Privacy": "privacy.privacy_terms",
    "Covariance": "protocol.exact.covariance",
    "Factors": "protocol.exact.factors",
    "Krylov": "protocol.exact.krylov",
    "Merge": "protocol.exact.merge",
    "Power": "protocol.exact.power",
    "Randomized": "protocol.exact.randomized",
    "Region": "protocol.exact.tree",
    "RegionReport": "protocol.exact.tree",
    "Subspace": "protocol.exact.subspace",
    "write_report": "report.from_python",
}


def methods() -> dict[str, str]:
    """Return the methods by name, each with its summary in one line.

    Examples
    --------
    >>> import eigenfed
    >>> eigenfed.methods()["krylov"]
    'block Lanczos on products: few rounds, nothing of size d x d'
    """
    from eigenfed.protocol.method import all_methods

    return {name: method.summary for name, method in all_methods().items()}


if not TYPE_CHECKING:  # a type checker would take any name for one of the package's

    def __getattr__(name: str) -> Any:
        if name == "__version__":
            from importlib.metadata import version

            return version(__name__)
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        value = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        globals()[name] = value
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
