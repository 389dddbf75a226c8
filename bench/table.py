"""One line of the table, and how a ratio is measured on a noisy machine."""

import time
from collections.abc import Callable
from dataclasses import dataclass

_PAUSE_S = 0.05


@dataclass(frozen=True)
class Line:
    """A measured ratio and its target.

    Attributes
    ----------
    name : str
        What was measured, against what.
    ratio : float
    rule : {"at least", "at most", "report", "skipped"}
        Which side of `target` the ratio must be on; "skipped" if nothing was measured.
    target : float
    accurate : bool
        Whether the answer was right; a ratio of a wrong answer is not shown.
    detail : str
        Absolute figures and accuracy.
    """

    name: str
    ratio: float
    rule: str
    target: float
    accurate: bool
    detail: str

    @property
    def verdict(self) -> str:
        """Whether the target was met."""
        if not self.accurate:
            return "refused"
        if self.rule in ("report", "skipped"):
            return "-" if self.rule == "report" else "skipped"
        met = self.ratio >= self.target if self.rule == "at least" else self.ratio <= self.target
        return "met" if met else "missed"

    def __str__(self) -> str:
        is_shown = self.accurate and self.rule != "skipped"
        shown = f"{self.ratio:8.2f}" if is_shown else "       -"
        target = f"{self.rule} {self.target:g}" if self.rule in ("at least", "at most") else ""
        return f"{self.name:<58}{shown}   {target:<14}{self.verdict:<9}{self.detail}"


def fastest(*jobs: Callable[[], object], repeats: int = 5) -> list[float]:
    """Run the jobs in turn and return the shortest time of each, in seconds.

    Taking turns puts a slow spell of the machine on all of them.
    """
    return _least(time.perf_counter, jobs, repeats)


def least_cpu(*jobs: Callable[[], object], repeats: int = 5) -> list[float]:
    """Run the jobs in turn and return the least processor time of each, of all threads together.

    Unlike the time of day, it hardly depends on what else the machine does. Threads that wait by
    spinning count: compare jobs with BLAS on one thread. Those of earlier work are waited for.
    """
    _wait_for_idle_threads()
    return _least(time.process_time, jobs, repeats)


def _wait_for_idle_threads() -> None:
    """Wait until no thread of this process runs: BLAS's spin for a while after a product."""
    spent = 1.0
    while spent > 0.1 * _PAUSE_S:
        start = time.process_time()
        time.sleep(_PAUSE_S)
        spent = time.process_time() - start


def _least(
    clock: Callable[[], float], jobs: tuple[Callable[[], object], ...], repeats: int
) -> list[float]:
    best = [float("inf")] * len(jobs)
    for _ in range(repeats):
        for i, job in enumerate(jobs):
            start = clock()
            job()
            best[i] = min(best[i], clock() - start)
    return best
