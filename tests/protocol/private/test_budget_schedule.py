"""What each request of a private run spends, and in which order they come."""

from itertools import groupby, product
from typing import Any

import pytest

from eigenfed.errors import InputError
from eigenfed.privacy.privacy_terms import Privacy
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.private.budget_schedule import (
    list_spends,
    private_script,
    split_budget,
    split_start,
)
from eigenfed.protocol.private.private_site import OPS
from eigenfed.protocol.study import Study
from federation import study_of

CHOICES = [
    {"clip": clip, "count": count, "shares": shares, "center": center, "scale": scale, "by": by}
    for clip, count, shares, center, scale, by in product(
        (None, 1.0),
        ("public", "private"),
        (None, {"scree": 0.0}, {"covariance": 5.0, "mean": 0.2}),
        (True, False),
        (True, False),
        ("covariance", "power"),
    )
]


def study(**choice: Any) -> Study:
    terms = {name: choice[name] for name in ("clip", "count", "shares")}
    privacy = Privacy(1.0, 1e-6, trust="local", **terms)
    return study_of(
        "a", 2, choice["by"], center=choice["center"], scale=choice["scale"], privacy=privacy
    )


@pytest.mark.parametrize("choice", CHOICES, ids=range(len(CHOICES)))
def test_the_parts_add_up_to_the_whole_and_none_is_free(choice: dict[str, Any]) -> None:
    steps = list_spends(study(**choice))
    assert sum(step.fraction for step in steps) == pytest.approx(1.0, abs=1e-12)
    assert all(step.fraction > 0.0 for step in steps)
    assert sum(split_budget(study(**choice)).values()) == pytest.approx(1.0, abs=1e-12)
    assert {step.op for step in steps} <= {op.name for op in OPS}


@pytest.mark.parametrize("choice", CHOICES, ids=range(len(CHOICES)))
def test_the_script_is_the_schedule_after_the_numbers_of_rows(choice: dict[str, Any]) -> None:
    of = study(**choice)
    script: Script | None = private_script(of)
    for name in ("rows", *(step.op for step in list_spends(of))):
        assert script is not None
        assert [op.name for op in OPS if script.after(op.name) is not None] == [name]
        assert not script.may_end
        script = script.after(name)
    assert script is not None
    assert script.may_end


def order(**choice: Any) -> list[tuple[str, int]]:
    """The operations in their order, and how often each comes in a row."""
    given = {"clip": None, "count": "public", "shares": None, "center": True, "scale": False}
    steps = list_spends(study(**{**given, "by": "covariance", **choice}))
    return [
        (op.removeprefix("private_"), len(list(run))) for op, run in groupby(s.op for s in steps)
    ]


def test_the_order_is_searched_averaged_and_multiplied() -> None:
    norms, scree = ("norms", 1), ("scree", 1)
    found = [("start", 1), norms, ("total", 1)]
    assert order() == [*found, ("scatter", 1), scree]
    assert order(count="private") == order()
    assert order(by="power") == [*found, ("product", 2), scree]
    assert order(clip=1.0) == [("total", 1), ("scatter", 1), norms, scree]
    assert order(clip=1.0, count="private") == [("count", 1), *order(clip=1.0)]
    assert order(clip=1.0, center=False) == [("scatter", 1), norms, scree]
    assert order(center=False) == [("start", 1), ("scatter", 1), scree]
    assert order(clip=1.0, scale=True) == [("total", 1), ("scatter", 1)]
    assert order(clip=1.0, shares={"scree": 0.0}) == [("total", 1), ("scatter", 1)]


def test_the_first_reply_spends_what_its_parts_may() -> None:
    for choice in CHOICES:
        of = study(**choice)
        parts, split = split_start(of), split_budget(of)
        assert set(parts) <= {"counts", "total", "count"}
        assert bool(parts) == (choice["clip"] is None)
        if parts:
            assert list_spends(of)[0].fraction == pytest.approx(sum(parts.values()))
            assert parts.get("count") == split.get("count")
            assert ("total" in parts) == choice["center"]


def test_a_larger_share_is_a_larger_part() -> None:
    choice = {"clip": 1.0, "count": "public", "center": True, "scale": False, "by": "covariance"}
    usual = split_budget(study(**choice, shares=None))
    more = split_budget(study(**choice, shares={"mean": 0.9}))
    assert more["mean"] > usual["mean"]
    assert more["covariance"] < usual["covariance"]


def test_only_the_scree_may_be_free_of_charge() -> None:
    with pytest.raises(InputError, match="gives 'mean' 0, and the run cannot do without it"):
        list_spends(study_of("a", 1, privacy=Privacy(1.0, 1e-6, clip=1.0, shares={"mean": 0.0})))


def test_a_study_without_privacy_has_no_schedule() -> None:
    with pytest.raises(InputError, match="no differential privacy"):
        list_spends(study_of("a", 1))
