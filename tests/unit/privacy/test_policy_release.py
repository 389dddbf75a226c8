"""What a site allows, and the declarations of all operations: the table that a reviewer reads."""

from dataclasses import FrozenInstanceError

import pytest

from eigenfed.arrays import Arrays
from eigenfed.data.source import Source
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.ops import Answer, op
from eigenfed.protocol.registry import OPS


def test_a_policy_without_limits_allows_every_operation() -> None:
    policy = Policy()
    assert all(policy.allows(name) for name in OPS)
    limits = (policy.max_rank_fraction, policy.max_variance_fraction, policy.max_rounds)
    assert limits == (1.0, 1.0, None)


def test_only_what_is_forbidden_is_refused() -> None:
    policy = Policy(forbidden=frozenset({"scatter", "squares"}))
    allowed = {name for name in OPS if policy.allows(name)}
    assert allowed == OPS.keys() - {"scatter", "squares"}


def test_policies_and_declarations_cannot_be_changed_later() -> None:
    with pytest.raises(FrozenInstanceError):
        Policy().max_rounds = 5  # type: ignore[misc]
    with pytest.raises(FrozenInstanceError):
        Release("a", "1", Leaves.EXACT, Reveals.COUNTS).kind = "b"  # type: ignore[misc]


def test_every_operation_is_declared_under_its_own_name() -> None:
    for name, known in OPS.items():
        assert known.name == name
        assert name.isidentifier()
        assert known.release.kind
        assert known.release.shape
        assert isinstance(known.release.leaves, Leaves)
        assert isinstance(known.release.reveals, Reveals)
        assert known.run.__doc__


@pytest.mark.parametrize(
    ("name", "reveals"),
    [
        ("moments", Reveals.MEANS),
        ("squares", Reveals.DIAGONAL),
        ("product", Reveals.DIRECTIONS),
        ("scatter", Reveals.SCATTER),
        ("remainder", Reveals.BOUND),
    ],
)
def test_what_the_exact_methods_reveal(name: str, reveals: Reveals) -> None:
    assert OPS[name].release.reveals is reveals
    assert OPS[name].release.leaves is Leaves.SUM_ONLY


def test_declaring_keeps_the_function_and_its_name() -> None:
    release = Release("nothing", "0", Leaves.EXACT, Reveals.COUNTS)

    def silent(source: Source, payload: Arrays, state: Arrays) -> Answer:
        return Answer({}, state)

    declared = op(release)(silent)
    assert (declared.name, declared.run, declared.release) == ("silent", silent, release)
