"""The registry of methods, their options, and how people write them."""

from typing import Any

import pytest

from counting import Counting
from eigenfed.errors import InputError
from eigenfed.protocol.exact.covariance import Covariance
from eigenfed.protocol.exact.merge import Merge
from eigenfed.protocol.exact.power import Power
from eigenfed.protocol.exact.randomized import Randomized
from eigenfed.protocol.exact.subspace import Subspace
from eigenfed.protocol.gate.script import Script
from eigenfed.protocol.method import (
    Method,
    Shape,
    all_methods,
    as_method,
    find_method,
    option_defaults,
    option_types,
    read_option,
    register,
    registered,
)
from eigenfed.protocol.method_registry import all_operations, build_script, list_operations
from federation import study_of

NAMES = ["covariance", "factors", "krylov", "randomized", "subspace", "power", "merge"]
SHAPE = Shape(rows=500, features=60, components=4, sites=3)


def test_all_methods_are_there_in_their_order() -> None:
    assert list(all_methods()) == NAMES
    assert all(cls.name == name for name, cls in all_methods().items())


def test_the_registry_cannot_be_written_to() -> None:
    with pytest.raises(TypeError):
        all_methods()["mine"] = Counting  # type: ignore[index]


def test_a_method_is_registered_for_a_while_and_under_one_name_only() -> None:
    with registered(Counting):
        assert list(all_methods()) == [*NAMES, "counting"]
        assert as_method("counting") == Counting()
        with pytest.raises(InputError, match="A method named 'counting' is already"):
            register(Counting)
    assert list(all_methods()) == NAMES
    with pytest.raises(RuntimeError), registered(Counting):
        raise RuntimeError
    assert list(all_methods()) == NAMES


def test_no_method_is_named_auto() -> None:
    class Auto(Counting):
        name = "auto"

    with pytest.raises(InputError, match="A method named 'auto' is already"), registered(Auto):
        pass


@pytest.mark.parametrize("name", NAMES)
def test_a_method_by_its_name_has_its_defaults(name: str) -> None:
    method = find_method(name)
    assert method == all_methods()[name]()
    assert method.options == {}
    assert option_defaults(type(method)).keys() == option_types(type(method)).keys()
    assert as_method(name) == method
    assert as_method(method) is method
    assert method.summary


def test_auto_stays_open() -> None:
    assert as_method("auto") == "auto"


@pytest.mark.parametrize("name", ["", "Krylov", "none", "None"])
def test_an_unknown_name_is_refused_with_all_names(name: str) -> None:
    with pytest.raises(InputError, match=r"must be one of 'auto', 'covariance', .*'merge'"):
        as_method(name)


def test_what_is_no_method_is_refused() -> None:
    with pytest.raises(InputError, match="must be one of"):
        as_method(3)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("method", "options"),
    [
        (Covariance(precision="single"), {"precision": "single"}),
        (Power(local_steps=2, decay=False), {"local_steps": 2, "decay": False}),
        (Merge(oversample=0), {"oversample": 0}),
        (Subspace(by="gram_schmidt"), {"by": "gram_schmidt"}),
        (Randomized(3), {"iterations": 3}),
        (Power(), {}),
    ],
)
def test_options_that_differ_from_their_defaults_make_the_method(
    method: Method, options: dict[str, Any]
) -> None:
    assert method.options == options
    assert find_method(method.name, options) == method
    names = {type(method).__name__: type(method)}
    assert eval(repr(method), names) == method


@pytest.mark.parametrize(
    ("name", "options", "why"),
    [
        ("power", {"steps": 3}, "The method 'power' has no option 'steps'"),
        ("krylov", {"tol": 3}, "The method 'krylov' has no option 'tol'. It has block."),
        ("factors", {"tol": 3}, "The method 'factors' has no option 'tol'. It has none."),
        ("power", {"local_steps": "3"}, "of the method 'power' must be of type int"),
        ("power", {"local_steps": True}, "of the method 'power' must be of type int"),
        ("power", {"local_steps": 2.0}, "of the method 'power' must be of type int"),
        ("power", {"decay": 1}, "of the method 'power' must be of type bool"),
        ("power", {"align": None}, "of the method 'power' must be of type str"),
        ("power", {"sites_per_round": "x"}, "must be of type int or None"),
        ("power", {"align": "best"}, "align='best' must be one of"),
    ],
)
def test_options_that_a_method_does_not_take_are_refused(
    name: str, options: dict[str, Any], why: str
) -> None:
    with pytest.raises(InputError, match=why):
        find_method(name, options)


@pytest.mark.parametrize(
    ("name", "option", "text", "value"),
    [
        ("power", "local_steps", "3", 3),
        ("power", "local_steps", "3.5", "3.5"),
        ("power", "local_steps", "many", "many"),
        ("power", "decay", "false", False),
        ("power", "decay", "True", True),
        ("power", "decay", "0", "0"),
        ("power", "align", "sign", "sign"),
        ("power", "align", "3", "3"),
        ("power", "sites_per_round", "none", None),
        ("power", "sites_per_round", "None", None),
        ("power", "sites_per_round", "4", 4),
        ("merge", "oversample", "2", 2),
        ("merge", "oversample", "none", None),
        ("merge", "unknown", "3", "3"),
        ("covariance", "precision", "none", "none"),
    ],
)
def test_options_are_read_as_people_type_them(
    name: str, option: str, text: str, value: object
) -> None:
    found = read_option(all_methods()[name], option, text)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize("name", NAMES)
def test_a_script_names_only_operations_that_the_study_has(name: str) -> None:
    """Whatever the script may have next, at any point of some walks through it, can be answered."""
    for settings in ({}, {"scale": True}, {"by_site": True}, {"certify": False}):
        study = study_of("ab", 3, name, max_rounds=3, **settings)
        known, everything = list_operations(study), all_operations()
        at: list[Script] = [build_script(study, 20)]
        for _ in range(8):
            reached: dict[str, Script] = {}
            for script in at:
                for op in everything:
                    following = script.after(op)
                    if following is not None:
                        reached[op] = following
            assert reached.keys() <= known.keys()
            at = list(reached.values())


@pytest.mark.parametrize("name", NAMES)
def test_costs_grow_with_the_sizes(name: str) -> None:
    method = find_method(name)
    small = method.cost(SHAPE)
    wide = method.cost(Shape(rows=500, features=600, components=4, sites=3))
    tall = method.cost(Shape(rows=50_000, features=60, components=4, sites=3))
    assert small.rounds >= 1
    assert wide.numbers > small.numbers
    assert wide.site_s > small.site_s
    assert wide.coordinator_s > small.coordinator_s
    assert tall.site_s > small.site_s
    assert tall.numbers == small.numbers
    bare = method.cost(Shape(rows=500, features=60, components=4, sites=3, certify=False))
    assert bare.rounds <= small.rounds


def test_directions_at_a_time_never_exceed_the_features() -> None:
    for name in NAMES:
        assert 1 <= find_method(name).width(5, 3) <= 3
