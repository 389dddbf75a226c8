"""Steps of a preparation: as values, as text, and in which order."""

import pytest

from eigenfed.data.prepare_step import PrepareStep
from eigenfed.data.steps import (
    STEPS,
    Log1p,
    NormalizeCounts,
    SelectVariable,
    Standardize,
    as_steps,
    count_features,
    write_steps,
)
from eigenfed.errors import InputError
from eigenfed.linalg.dispersion import FLAVORS


@pytest.mark.parametrize(
    ("text", "step"),
    [
        ("normalize", NormalizeCounts()),
        ("normalize:1000000", NormalizeCounts(1e6)),
        ("normalize:0.1", NormalizeCounts(0.1)),
        ("log1p", Log1p()),
        ("select", SelectVariable()),
        ("select:50", SelectVariable(50)),
        ("select:50:cell_ranger", SelectVariable(50, "cell_ranger")),
        ("standardize", Standardize()),
        ("standardize:3.5", Standardize(3.5)),
        ("standardize:10:1", Standardize(10, ddof=1)),
    ],
)
def test_text_and_values_are_the_same_steps(text: str, step: PrepareStep) -> None:
    assert as_steps([text]) == as_steps([step]) == (step,)
    assert as_steps(write_steps([step])) == (step,)


def test_every_step_has_a_name_and_a_summary() -> None:
    assert {name: step.name for name, step in STEPS.items()} == {name: name for name in STEPS}
    assert all(step.summary for step in STEPS.values())
    assert all(SelectVariable(flavor=flavor) for flavor in FLAVORS)


@pytest.mark.parametrize(
    ("prepare", "match"),
    [
        ("log1p", r"prepare has type str and must be a list of steps\. Pass a list, such as"),
        (Log1p(), "prepare has type Log1p and must be a list"),
        ([3], "prepare holds a value of type int"),
        (["scale"], r"prepare='scale' must be the name of a step.*'normalize', 'log1p', 'select'"),
        (["select 9"], r"and its options after colons\. .* For example, 'select:2000'"),
        (["log1p:2"], "too many colons: 'log1p' takes no options"),
        (["select:1:variance:2"], "takes at most 2 options: n_features, flavor"),
        (["select:many"], r"n_features='many' of the step 'select' must be an integer of at least"),
        (["select:2.5"], r"n_features=2\.5 of the step 'select' must be an integer"),
        (["select:0"], "n_features=0 of the step 'select' must be an integer of at least 1"),
        (["select:5:best"], "flavor='best' of the step 'select' must be one of 'variance'"),
        (["normalize:-1"], r"target=-1\.0 of the step 'normalize' must be a positive number"),
        (["normalize:nan"], "target=nan of the step 'normalize' must be a positive number"),
        (["standardize:inf"], "clip=inf of the step 'standardize' must be a positive number"),
        (["standardize:1:2"], "ddof=2 of the step 'standardize' must be 0 or 1"),
        (["select:5", "select:3"], "the step 'select' more than once"),
        (["standardize", "log1p"], "a step after 'standardize', which must come last"),
        (["log1p"] * 17, "prepare has 17 steps and may have 16"),
    ],
)
def test_what_is_not_a_preparation_is_refused(prepare: object, match: str) -> None:
    with pytest.raises(InputError, match=match):
        as_steps(prepare)


def test_selection_decides_the_number_of_features() -> None:
    steps = as_steps(["log1p", "select:10"])
    assert count_features(steps, 40) == 10
    assert count_features(steps, 4) == 4
    assert count_features((), 4) == 4
    assert as_steps(None) == ()
