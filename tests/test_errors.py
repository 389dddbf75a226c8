"""Errors know what the program exits with, and read right wherever they are shown."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest

import eigenfed.errors
from command_line import as_npy, rows
from command_line import eigenfed as run_eigenfed
from eigenfed import FederatedPCA, Privacy
from eigenfed.cli.output import OPTIONS
from eigenfed.errors import (
    FAULTS,
    PYTHON,
    Argument,
    Aside,
    BudgetExceeded,
    DataError,
    EigenfedError,
    InputError,
    Name,
    Part,
    Pass,
    PrivacyError,
    ProtocolError,
    Refusal,
    SiteLost,
    SiteRefused,
)
from eigenfed.privacy.ledger.entries import TEXTS, make_refusal
from eigenfed.protocol.messages import REFUSAL_TEXTS
from eigenfed.study.config.toml_errors import STUDY_KEYS, TABLE_KEYS, speaking_of_keys

TOO_MANY = InputError(
    Argument("n_components", 9),
    " must be at most 8, the number of features",
    remedy=("Lower ", Name("n_components"), "."),
)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (EigenfedError("Something."), 1),
        (InputError("It is wrong."), 2),
        (DataError("It is cut short."), 1),
        (ProtocolError("It went wrong."), 1),
        (SiteLost(("north",), "product", 3), 1),
        (SiteRefused("north", "leakage", "product", 3), 3),
        (SiteRefused("north", "budget", "private_scatter", 3), 3),
        (SiteRefused("north", "aborted", "product", 3), 1),
        (SiteRefused("north", "malformed", "product", 3), 1),
        (PrivacyError("It may not."), 3),
        (make_refusal("budget"), 3),
        (Refusal("ledger", "It cannot be used."), 1),
    ],
)
def test_no_for_the_sake_of_privacy_exits_with_3(error: EigenfedError, code: int) -> None:
    assert error.exit_code == code


def test_the_families_of_errors() -> None:
    assert issubclass(InputError, ValueError)
    assert issubclass(DataError, ValueError)
    assert issubclass(SiteLost, ProtocolError)
    assert issubclass(SiteRefused, ProtocolError)
    assert issubclass(BudgetExceeded, Refusal)
    assert issubclass(Refusal, PrivacyError)
    assert {type(make_refusal(code)) for code in TEXTS if code != "budget"} == {Refusal}
    assert type(make_refusal("budget")) is BudgetExceeded
    for name, kind in vars(eigenfed.errors).items():
        if (
            isinstance(kind, type)
            and issubclass(kind, Exception)
            and kind is not eigenfed.errors.NoiseWarning
        ):
            assert issubclass(kind, EigenfedError), name


def test_every_fault_is_a_code_with_a_meaning() -> None:
    assert set(REFUSAL_TEXTS) >= FAULTS


def test_one_error_reads_right_on_three_surfaces() -> None:
    rule = "must be at most 8, the number of features"
    assert str(TOO_MANY) == f"n_components=9 {rule}. Lower n_components."
    assert TOO_MANY.worded(OPTIONS) == f"-k 9 {rule}. Lower -k."
    assert TOO_MANY.worded(STUDY_KEYS) == f"components = 9 {rule}. Lower components."


def test_what_a_message_is_made_of_can_be_asked_for() -> None:
    error = TOO_MANY.with_prefix("Site 'north': ")
    assert str(error).startswith("Site 'north': n_components=9 must")
    for found in (TOO_MANY, error):
        assert (found.argument, found.value) == ("n_components", 9)
        assert found.rule == "must be at most 8, the number of features"
        assert found.remedy == "Lower n_components."
    plain = InputError("All of it is text.")
    assert (plain.argument, plain.value, plain.remedy) == (None, None, "")
    assert str(plain) == plain.rule == "All of it is text."
    named = InputError(Name("columns"), " is empty", remedy="Name one.")
    assert (named.argument, named.value, named.rule) == ("columns", None, "is empty")


@pytest.mark.parametrize(
    ("part", "python", "options", "keys"),
    [
        (Argument("secure", True), "secure=True", "--secure", "secure = true"),
        (Argument("center", False), "center=False", "--no-center", "center = false"),
        (Argument("scale", False), "scale=False", "no --scale", "scale = false"),
        (Argument("method", "merge"), "method='merge'", "--method merge", 'method = "merge"'),
        (Argument("epsilon", -1.0), "epsilon=-1.0", "--epsilon -1.0", "privacy.epsilon = -1.0"),
        (Argument("delta", 1e-6), "delta=1e-06", "--delta 1e-06", "privacy.delta = 1e-06"),
        (Argument("n_components", np.int64(9)), "n_components=9", "-k 9", "components = 9"),
        (Argument("id_column", "my id"), "id_column='my id'", "--id-column 'my id'", None),
        (Argument("tol", 2.0), "tol=2.0", "tol=2.0", "tol = 2.0"),
        (Name("random_state"), "random_state", "--seed", "seed"),
        (Name("clip"), "clip", "--clip", "privacy.clip"),
        (Name("secure"), "secure", "--secure", "secure"),
        (Pass("scale", False), "pass scale=False", "drop --scale", "set scale = false"),
        (Pass("center", True), "pass center=True", "drop --no-center", "set center = true"),
        (Pass("secure", True), "pass secure=True", "pass --secure", "set secure = true"),
        (Pass("id_column", None), "pass id_column=None", "drop --id-column", "leave id_column out"),
        (Pass("id_column", ""), "pass id_column=''", "pass --id-column ''", 'set id_column = ""'),
        (
            Pass("id_column", ...),
            "pass id_column=...",
            "pass --id-column NAME",
            "set id_column in the site's file",
        ),
        (
            Pass("columns", [...]),
            "pass columns=[...]",
            "pass --column NAME --column NAME ...",
            "list the features to use in the study file",
        ),
        (Aside(", or name them in groups"), ", or name them in groups", "", ""),
        ("a file of rows", "a file of rows", "a file of rows", "a file of rows"),
    ],
)
def test_each_surface_has_its_own_names(
    part: Part, python: str, options: str, keys: str | None
) -> None:
    error = InputError("Then ", part)
    assert error.worded(PYTHON) == f"Then {python}"
    assert error.worded(OPTIONS) == f"Then {options}"
    if keys is not None:
        assert error.worded(STUDY_KEYS) == f"Then {keys}"


def test_advice_begins_a_sentence_with_a_capital() -> None:
    error = InputError(
        "It is so", remedy=(Pass("scale", False), ", or ", Pass("secure", True), ".")
    )
    assert str(error) == "It is so. Pass scale=False, or pass secure=True."
    assert error.worded(OPTIONS) == "It is so. Drop --scale, or pass --secure."
    assert str(InputError("So. ", Pass("scale", False))) == "So. Pass scale=False"


def test_of_one_table_the_names_within_it_are_said() -> None:
    assert InputError(Argument("epsilon", 0)).worded(TABLE_KEYS) == "epsilon = 0"


def test_what_is_wrong_in_a_file_is_no_wrong_call() -> None:
    with pytest.raises(DataError) as caught, speaking_of_keys("study.toml: "):
        raise TOO_MANY
    assert str(caught.value).startswith("study.toml: components = 9 must")
    assert caught.value.__cause__ is TOO_MANY
    with pytest.raises(PrivacyError) as refused, speaking_of_keys("study.toml: "):
        raise PrivacyError(Argument("secure", True), " needs more sites.")
    assert str(refused.value) == "study.toml: secure = true needs more sites."
    with pytest.raises(BudgetExceeded) as spent, speaking_of_keys("study.toml: "):
        raise make_refusal("budget")
    assert str(spent.value) == TEXTS["budget"]


def test_errors_can_be_copied_and_sent_to_other_processes() -> None:
    for again in (copy.copy(TOO_MANY), pickle.loads(pickle.dumps(TOO_MANY))):
        assert str(again) == str(TOO_MANY)
        assert again.worded(OPTIONS) == TOO_MANY.worded(OPTIONS)
        assert again.argument == "n_components"


def test_the_library_names_the_argument_the_value_the_rule_and_the_remedy() -> None:
    with pytest.raises(InputError) as caught:
        FederatedPCA(9).fit(np.eye(20)[:, :8])
    assert (caught.value.argument, caught.value.value) == ("n_components", 9)
    assert caught.value.rule.startswith("must be at most 8, the smaller of")
    assert caught.value.remedy == "Lower n_components."
    with pytest.raises(InputError) as caught:
        Privacy(epsilon=1.0, delta=2.0)
    assert (caught.value.argument, caught.value.value) == ("delta", 2.0)


@pytest.fixture
def sites(tmp_path: Path) -> list[Path]:
    table = np.hstack([rows(), rows(seed=1)[:, :2]])
    return as_npy(tmp_path, table, ("north", "south", "island"))


@pytest.mark.parametrize(
    ("command", "flags", "message"),
    [
        ("fit", ("-k", 9), "-k 9 must be at most 8, "),
        ("fit", ("-k", 9, "--secure"), "-k 9 must be at most 8, "),
        ("fit", ("-k", 9, "--epsilon", 1, "--delta", 1e-6), "-k 9 must be at most 8, "),
        ("fit", ("-k", 2, "--epsilon", 1, "--delta", 2.0), "--delta 2.0 must be above 0 and below"),
        ("fit", ("-k", 2, "--epsilon", 1, "--delta", 0.01), "--delta 0.01 must be below 1/n = "),
        ("audit reconstruct", ("-k", 9), "-k 9 must be at most 8, "),
        ("audit membership", ("-k", 9), "-k 9 must be at most 8, "),
        ("audit membership", ("--epsilon", 1, "--delta", 2.0), "--delta 2.0 must be above 0 and "),
        ("audit membership", ("--epsilon", 1, "--delta", 0.2), "--delta 0.2 must be below 1/n = "),
    ],
)
def test_a_wrong_k_or_delta_is_a_wrong_call(
    sites: list[Path], command: str, flags: tuple[object, ...], message: str
) -> None:
    run = run_eigenfed(*command.split(), *sites, *flags)
    assert run.exit_code == 2
    assert run.stdout == ""
    assert run.stderr.startswith(f"eigenfed: {message}")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("plan --rows 30,40 --features 8 -k 9", "-k 9 must be at most 8, "),
        ("plan --rows 30,40,50 --features 8 -k 2 --epsilon 1 --delta 2", "--delta 2.0 must be "),
        ("plan --rows 30,40,50 --features 8 -k 2 --epsilon 1 --delta 0.1", "--delta 0.1 must be "),
        ("audit epsilon --epsilon 1 --delta 2", "--delta 2.0 must be above 0 and below 1"),
        ("init --epsilon 1 --delta 2", "--delta 2.0 must be above 0 and below 1"),
    ],
)
def test_a_wrong_k_or_delta_is_a_wrong_call_without_files(
    arguments: str, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_eigenfed(*arguments.split())
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr.startswith(f"eigenfed: {message}")
    assert list(tmp_path.iterdir()) == []


def test_more_components_than_features_in_a_stream_are_a_wrong_call() -> None:
    run = run_eigenfed("stream", "-k", 9, given="1 2 3\n4 5 6\n")
    assert run.exit_code == 2
    assert run.stderr.startswith("eigenfed: -k 9 must be at most 3, ")
