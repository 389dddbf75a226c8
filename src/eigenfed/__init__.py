"""Principal components of data that cannot be pooled."""

import logging

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
from eigenfed.privacy.terms import Privacy
from eigenfed.protocol.one_shot import Merge
from eigenfed.protocol.power import Power
from eigenfed.protocol.subspace import Subspace

# What goes wrong at a site may be said in words that hold data: without a handler of the host's
# own, the words go nowhere rather than to whatever terminal is there.
logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = [
    "DataError",
    "EigenfedError",
    "FederatedPCA",
    "InputError",
    "Merge",
    "Policy",
    "Power",
    "Privacy",
    "ProtocolError",
    "SiteLost",
    "SiteRefused",
    "StreamingPCA",
    "Subspace",
    "Summary",
]
