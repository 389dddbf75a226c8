"""Principal components of data that cannot be pooled."""

from eigenfed.errors import (
    DataError,
    EigenfedError,
    InputError,
    ProtocolError,
    SiteLost,
    SiteRefused,
)
from eigenfed.estimators.federated import FederatedPCA
from eigenfed.estimators.streaming import StreamingPCA
from eigenfed.linalg.summary import Summary
from eigenfed.privacy.policy import Policy
from eigenfed.protocol.one_shot import Merge
from eigenfed.protocol.power import Power
from eigenfed.protocol.subspace import Subspace

__all__ = [
    "DataError",
    "EigenfedError",
    "FederatedPCA",
    "InputError",
    "Merge",
    "Policy",
    "Power",
    "ProtocolError",
    "SiteLost",
    "SiteRefused",
    "StreamingPCA",
    "Subspace",
    "Summary",
]
