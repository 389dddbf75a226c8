"""One hypothesis profile: the same examples on every machine, no clock; and what is slow."""

import pytest
from hypothesis import HealthCheck, settings

from slow import is_slow

settings.register_profile(
    "eigenfed",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("eigenfed")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark slow tests, before tests are chosen by their marks."""
    for item in items:
        if is_slow(item.nodeid):
            item.add_marker(pytest.mark.slow)
