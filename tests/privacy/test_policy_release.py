"""What a site allows, and the declarations of all operations: the table that a reviewer reads."""

from dataclasses import FrozenInstanceError, dataclass

import pytest

from eigenfed.data.source import Source
from eigenfed.errors import InputError
from eigenfed.privacy.policy import Policy
from eigenfed.privacy.release import Leaves, Release, Reveals
from eigenfed.protocol.method import all_methods
from eigenfed.protocol.method_registry import all_operations
from eigenfed.protocol.operations import Answer, Request, State, Terms, op

OPS = all_operations()


def test_a_policy_without_limits_allows_every_method() -> None:
    policy = Policy()
    assert all(policy.allows(name) for name in all_methods())
    limits = (policy.max_rank_fraction, policy.max_variance_fraction, policy.max_rounds)
    assert limits == (1.0, 1.0, None)
    assert not policy.limits_leakage


def test_only_what_is_listed_is_allowed() -> None:
    policy = Policy(methods=frozenset({"krylov", "merge"}))
    allowed = {name for name in all_methods() if policy.allows(name)}
    assert allowed == {"krylov", "merge"}
    assert not policy.allows("a method of a later release")


def test_either_limit_on_leakage_is_one() -> None:
    assert Policy(max_rank_fraction=0.9).limits_leakage
    assert Policy(max_variance_fraction=0.9).limits_leakage


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
        ("remainder", Reveals.REMAINDER),
    ],
)
def test_what_the_exact_methods_reveal(name: str, reveals: Reveals) -> None:
    assert OPS[name].release.reveals is reveals
    assert OPS[name].release.leaves is Leaves.SUM_ONLY


@dataclass(frozen=True)
class Nothing:
    """A reply without anything in it."""


class SilentRequest(Request[Nothing]):
    """Ask for nothing."""

    op, reply = "silent", Nothing


def test_declaring_keeps_the_function_its_name_and_its_request() -> None:
    release = Release("nothing", "0", Leaves.EXACT, Reveals.COUNTS)

    def silent(
        source: Source, request: SilentRequest, state: State, terms: Terms
    ) -> Answer[Nothing]:
        return Answer(Nothing(), state)

    declared = op(release)(silent)
    assert (declared.name, declared.run, declared.release) == ("silent", silent, release)
    assert declared.request is SilentRequest

    def loud(source: Source, request: SilentRequest, state: State, terms: Terms) -> Answer[Nothing]:
        return Answer(Nothing(), state)

    with pytest.raises(InputError, match="'loud' names the operation 'silent'"):
        op(release)(loud)


def test_every_request_names_the_operation_that_takes_it() -> None:
    for name, known in OPS.items():
        assert known.request.op == name
        assert known.request.__doc__
        assert known.request.reply.__doc__
