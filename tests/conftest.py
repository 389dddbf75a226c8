"""One hypothesis profile: the same examples on every machine, no clock; and what is slow."""

import os
import secrets
import sys
import threading
from collections.abc import Generator
from pathlib import Path

if "PYTEST_XDIST_WORKER" in os.environ:
    # Test processes share the cores: more BLAS threads in each would only compete. It must be set
    # before numpy is loaded; tests of threads set their number themselves.
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from xdist.remote import Producer
from xdist.scheduler import LoadScopeScheduling

from eigenfed.privacy.dp.discrete_gaussian import discrete_gaussian
from slow import SLOW, is_measured, is_slow

settings.register_profile(
    "eigenfed",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("eigenfed")


SHARING = (
    "tests/browser/",
    "tests/docs/test_site.py",
    "tests/transport/test_nvflare_network.py",
)
"""Tests that share what takes long to make run in one process; all others in whichever is free."""


class _Scheduling(LoadScopeScheduling):
    """Sends tests to processes one by one, and those that share something together."""

    def _split_scope(self, nodeid: str) -> str:
        return next((start for start in SHARING if nodeid.startswith(start)), nodeid)


def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """Replace xdist's groups, which need the names of tests to be assignable."""
    return _Scheduling(config, log)


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Do not even import the files that are slow as a whole, if slow tests are left out."""
    leaves_out_slow = "not slow" in config.getoption("markexpr", "")
    file = collection_path.relative_to(config.rootpath).as_posix()
    return True if leaves_out_slow and SLOW.get(file) == () else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, before tests are chosen by their marks."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Do not measure the coverage of slow tests, which repeat what quick ones cover too.

    Measuring would double their time. (The marker no_cover has no effect in worker processes.)
    """
    if is_measured(item.nodeid):
        return (yield)
    own, of_threads = sys.gettrace(), threading.gettrace()
    sys.settrace(None)
    threading.settrace(None)
    try:
        return (yield)
    finally:
        threading.settrace(of_threads)
        sys.settrace(own)


@pytest.fixture
def seeded_noise(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make noise the same in every run, for tests of statistical outcomes.

    Sites answer one after the other, so that they draw in a fixed order. That real noise comes from
    the operating system is tested where it is drawn.
    """
    bits = np.random.default_rng(7).bytes
    monkeypatch.setattr(discrete_gaussian, "__defaults__", (bits,))
    monkeypatch.setattr(secrets, "token_bytes", bits)
    monkeypatch.setattr(os, "cpu_count", lambda: 1)
