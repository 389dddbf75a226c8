"""Small matrix products on one BLAS thread, large ones on as many as the process allows.

Products of a few hundred rows gain nothing from more threads and lose up to 100x when the
machine is busy. One thread also makes their results repeat bit for bit whatever the machine has.
"""

import threading
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType

import scipy.linalg  # noqa: F401  # its BLAS must be loaded before the controller looks for it
from threadpoolctl import OpenBLASController, ThreadpoolController

_LARGE_FLOPS = 1e8


class _BlasPin:
    """A re-entrant limit that many Python threads may hold at once.

    BLAS thread counts belong to the process. threadpoolctl's own context restores what it found
    on entry, so two overlapping ones can leave the process at one thread for good; here the first
    holder sets the limit and the last one lifts it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._controller: ThreadpoolController | None = None

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                if self._controller is None:
                    self._controller = ThreadpoolController()
                _release_control()
                self._limit = self._controller.limit(limits=1, user_api="blas")
                _release_control()
            self._holders += 1

    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        with self._lock:
            self._holders -= 1
            if self._holders == 0:
                _release_control()
                self._limit.restore_original_limits()
                _release_control()


def _release_control() -> None:
    """Let every thread set limits again: since 3.8 threadpoolctl obeys the first one only."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


one_blas_thread = _BlasPin()
"""Context in which BLAS runs on one thread: ``with one_blas_thread: ...``."""


def threads_for(flops: float) -> AbstractContextManager[None]:
    """Return a context with one BLAS thread for a small job and no limit for a large one.

    Examples
    --------
    >>> threads_for(1e6) is one_blas_thread
    True
    """
    return one_blas_thread if flops < _LARGE_FLOPS else nullcontext()
