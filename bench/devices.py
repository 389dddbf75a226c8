"""A tree of devices: cost of a merge in regions, by the number of devices.

Every device summarises a few rows of its own and sends the summary as bytes; a region merges those
of `_FAN_OUT` devices and reports to its parent as a device does. Devices are simulated one after
the other, so that only the reports that a real region would hold are in memory.
"""

import resource
import time
import tracemalloc
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from threadpoolctl import threadpool_limits

from bench.table import Line
from eigenfed import Region, RegionReport, Summary
from eigenfed.arrays import Array
from eigenfed.linalg.orthonormal import sines

_COUNTS = (1_000, 10_000, 100_000)
_FAN_OUT, _ROWS, _D, _RANK, _K = 100, 20, 30, 10, 3
_SPREAD = np.r_[9.0, 6.0, 4.0, np.full(_D - _K, 0.1)]
_PEAK_DEVICES = 10_000


class Tree:
    """Simulated devices, the regions above them, and the pooled scatter to compare with.

    Parameters
    ----------
    devices : int
    """

    def __init__(self, devices: int) -> None:
        self._rng = np.random.default_rng(0)
        self._devices = devices
        self.busiest = 0
        self.scatter = np.zeros((_D, _D))
        self.total = np.zeros(_D)

    def merge(self) -> Summary:
        """Return the summary at the root."""
        return RegionReport.from_bytes(self._report_region("root", self._devices)).summary

    def _report_region(self, name: str, devices: int) -> bytes:
        """Return the report of a region as its parent receives it."""
        region, received = Region(name, _RANK), 0
        below = -(-devices // _FAN_OUT) if devices > _FAN_OUT else 1
        for leaf, start in enumerate(range(0, devices, below)):
            label = f"{name}.{leaf}"
            count = min(below, devices - start)
            data = self._report_device(label) if count == 1 else self._report_region(label, count)
            received += len(data)
            region.receive(RegionReport.from_bytes(data))
        self.busiest = max(self.busiest, received)
        return region.report().to_bytes()

    def _report_device(self, name: str) -> bytes:
        level = self._rng.standard_normal(_D) * _SPREAD
        rows = level + self._rng.standard_normal((_ROWS, _D)) * _SPREAD
        self.scatter += rows.T @ rows
        self.total += rows.sum(axis=0)
        summary = Summary.empty(_D, _RANK).update(rows)
        return RegionReport(name, _ROWS, summary).to_bytes()

    def pooled(self) -> Array:
        """Return the first components of all rows together, (k, d)."""
        n = self._devices * _ROWS
        mean = self.total / n
        _, vectors = np.linalg.eigh(self.scatter - n * np.outer(mean, mean))
        return vectors[:, : -_K - 1 : -1].T


@dataclass(frozen=True)
class Measured:
    """Cost and accuracy of one tree."""

    seconds: float
    busiest: int
    sine: float
    bound: float


def measure(devices: int) -> Measured:
    tree, start = Tree(devices), time.process_time()
    merged = tree.merge()
    seconds = time.process_time() - start
    sine = float(sines(merged.vt[:_K], tree.pooled())[0])
    return Measured(seconds, tree.busiest, sine, merged.sine_bound(_K))


def measure_peak(devices: int) -> int:
    """Return the largest memory in use by Python objects and arrays, in bytes."""
    tracemalloc.start()
    try:
        Tree(devices).merge()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def lines() -> Iterator[Line]:
    with threadpool_limits(1):
        found = [measure(count) for count in _COUNTS]
        peaks = [measure_peak(count) for count in (_PEAK_DEVICES // 10, _PEAK_DEVICES)]
    few, many = found[1], found[-1]
    accurate = all(tree.sine <= tree.bound < 1.0 for tree in found)
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    yield Line(
        f"{_COUNTS[-1]} devices / {_COUNTS[1]} devices, per device, fan-out {_FAN_OUT}",
        many.seconds / few.seconds * _COUNTS[1] / _COUNTS[-1],
        "at most",
        1.3,
        accurate,
        f"{many.seconds:.0f} s; busiest node receives {many.busiest / 1e3:.0f} kB; process at "
        f"{resident:.0f} MB; sine {many.sine:.1e}, bound {many.bound:.1e}",
    )
    yield Line(
        f"peak memory of {_PEAK_DEVICES} devices / {_PEAK_DEVICES // 10}",
        peaks[1] / peaks[0],
        "at most",
        3.0,
        accurate,
        f"{peaks[1] / 1e6:.1f} MB: regions hold the reports of their leaves only",
    )
