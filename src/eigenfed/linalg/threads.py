"""Small matrix products on one BLAS thread, large ones on as many as the process allows.

Products of a few hundred rows gain nothing from more threads and become up to 100x slower on a
busy machine. One thread also makes their results repeat bit for bit on any number of cores. A sum
over blocks runs its blocks in Python threads, with BLAS on one thread in each: it repeats bit for
bit too, and slows down on a busy machine only in proportion to the load.
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from types import TracebackType
from typing import TypeVar

from threadpoolctl import LibController, OpenBLASController, ThreadpoolController

T = TypeVar("T")
R = TypeVar("R")

_LARGE_FLOPS = 1e8
_WORTH_THREADS_FLOPS = 5e7


class _BlasPin:
    """A re-entrant limit that many Python threads may hold at once.

    BLAS thread counts are per process. threadpoolctl's own context restores what it found on
    entry, so two overlapping ones can leave the process at one thread permanently; here the first
    holder sets the limit and the last one lifts it.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._holders = 0
        self._libraries: list[LibController] | None = None
        self._saw_scipy = False
        self._before: list[int] = []
        self.most = 1
        """Number of BLAS threads when the limit was set."""

    def __enter__(self) -> None:
        with self._lock:
            if self._holders == 0:
                # scipy brings a BLAS of its own, and may be imported after the first look.
                has_scipy = "scipy.linalg" in sys.modules
                if self._libraries is None or has_scipy > self._saw_scipy:
                    self._libraries = ThreadpoolController().select(user_api="blas").lib_controllers
                    self._saw_scipy = has_scipy
                self._before = [library.num_threads for library in self._libraries]
                self.most = max(self._before, default=1)
                self._set([1] * len(self._before))
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
                self._set(self._before)

    def _set(self, counts: list[int]) -> None:
        """Set each library's threads: the controller's own `limit` inspects them all, slowly."""
        _release_control()
        for library, count in zip(self._libraries or (), counts, strict=True):
            library.set_num_threads(count)
        _release_control()


def _release_control() -> None:
    """Let any thread set limits again: since 3.8 threadpoolctl obeys only the first one."""
    release = getattr(OpenBLASController, "clear_controlling_thread", None)
    if release is not None:
        release(force=True)


one_blas_thread = _BlasPin()
"""Context in which BLAS runs on one thread: ``with one_blas_thread: ...``."""


def limit_threads(flops: float) -> AbstractContextManager[None]:
    """Return a context that limits BLAS to one thread for a small job, and not for a large one.

    Examples
    --------
    >>> limit_threads(1e6) is one_blas_thread
    True
    """
    return one_blas_thread if flops < _LARGE_FLOPS else nullcontext()


def map_in_order(task: Callable[[T], R], items: Sequence[T], *, flops: float) -> Iterator[R]:
    """Apply a task to each item, in threads if the job is large, and yield the results in order.

    Parameters
    ----------
    task : callable
        Works in BLAS or numpy, which release the interpreter lock.
    items : sequence
    flops : float
        Size of the whole job. A large one is spread over as many threads as BLAS has in this
        process, with BLAS on one thread in each; few results are held at a time.

    Examples
    --------
    >>> list(map_in_order(abs, [-2, 1, -3], flops=1e9))
    [2, 1, 3]
    """
    with one_blas_thread:
        workers = min(one_blas_thread.most if flops >= _WORTH_THREADS_FLOPS else 1, len(items))
        if workers <= 1:
            yield from map(task, items)
            return
        held: deque[Future[R]] = deque()
        with ThreadPoolExecutor(workers) as pool:
            for item in items:
                held.append(pool.submit(task, item))
                if len(held) > workers:
                    yield held.popleft().result()
            while held:
                yield held.popleft().result()
