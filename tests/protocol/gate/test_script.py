"""Scripts: which operations may come, in which order, how often."""

from itertools import product

import pytest

from eigenfed.protocol.gate.script import Script, either, optional, repeat, sequence


def admits(script: Script, asked: str) -> bool:
    """Tell whether operations, a letter each, may come in this order and then be all."""
    at: Script | None = script
    for name in asked:
        at = None if at is None else at.after(name)
    return at is not None and at.may_end


def begins(script: Script, asked: str) -> bool:
    """Tell whether operations may come in this order, whatever follows."""
    at: Script | None = script
    for name in asked:
        at = None if at is None else at.after(name)
    return at is not None


def language(script: Script, letters: str = "abc", longest: int = 5) -> set[str]:
    """All words that a script admits."""
    words = (product(letters, repeat=length) for length in range(longest + 1))
    return {"".join(w) for each in words for w in each if admits(script, "".join(w))}


def test_a_sequence_comes_once_in_its_order() -> None:
    assert language(sequence("a", "b", "c")) == {"abc"}
    assert language(sequence()) == {""}
    assert language(sequence("a", sequence("b", sequence()), "c")) == {"abc"}


def test_either_is_one_of_several() -> None:
    assert language(either("a", "b")) == {"a", "b"}
    assert language(either("a", sequence("b", "c"), sequence())) == {"a", "bc", ""}


@pytest.mark.parametrize(("least", "most"), [(0, 0), (0, 1), (1, 1), (0, 3), (2, 3), (3, 3)])
def test_a_repetition_comes_from_least_to_most_times(least: int, most: int) -> None:
    assert language(repeat("a", least, most)) == {"a" * n for n in range(least, most + 1)}
    pairs = repeat(sequence("a", "b"), least, most)
    assert language(pairs, longest=6) == {"ab" * n for n in range(least, most + 1)}


def test_an_option_may_be_left_out() -> None:
    assert language(sequence("a", optional("b"), "c")) == {"abc", "ac"}
    assert language(optional(sequence("a", "b"))) == {"", "ab"}


def test_repetitions_of_choices_are_counted_together() -> None:
    words = {"".join(w) for n in range(1, 4) for w in product("ab", repeat=n)}
    assert language(repeat(either("a", "b"), 1, 3)) == words


def test_both_ways_stay_open_while_both_fit() -> None:
    """The next operation may belong to the part at hand or to the one after it."""
    ambiguous = sequence(repeat("a", 0, 2), "a", "b")
    assert language(ambiguous) == {"ab", "aab", "aaab"}
    branching = either(sequence("a", "b"), sequence("a", "c"))
    assert language(branching) == {"ab", "ac"}
    nested = repeat(sequence(optional("a"), optional("b")), 0, 2)
    assert {"", "a", "b", "ab", "ba", "aa", "bb", "abab", "aab", "abb", "bab"} <= language(nested)


def test_nothing_follows_the_end() -> None:
    done = sequence("a").after("a")
    assert done is not None
    assert done.may_end
    assert done.after("a") is None


def test_a_prefix_is_not_the_whole() -> None:
    script = sequence("a", repeat("b", 2, 3))
    assert begins(script, "ab")
    assert not admits(script, "ab")
    assert not begins(script, "b")
    assert not begins(script, "abbbb")


def test_large_limits_cost_nothing_until_they_are_used() -> None:
    script: Script | None = sequence(repeat(either("a", "b"), 0, 10**9), "c")
    for name in "ab" * 500:
        assert script is not None
        script = script.after(name)
    assert script is not None
    assert len(repr(script)) < 10_000
    end = script.after("c")
    assert end is not None
    assert end.may_end
