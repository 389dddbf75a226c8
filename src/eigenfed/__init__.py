"""Principal components of data that cannot be pooled."""

from eigenfed.errors import DataError, EigenfedError, InputError
from eigenfed.estimators.streaming import StreamingPCA
from eigenfed.linalg.summary import Summary

__all__ = ["DataError", "EigenfedError", "InputError", "StreamingPCA", "Summary"]
