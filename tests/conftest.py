"""One hypothesis profile: the same examples on every machine, no clock."""

from hypothesis import HealthCheck, settings

settings.register_profile(
    "eigenfed",
    deadline=None,
    derandomize=True,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
settings.load_profile("eigenfed")
