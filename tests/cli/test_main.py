"""What every command has in common: help, exit codes, where words go, and what is imported."""

import contextlib
import json
import os
import subprocess
import sys
from pathlib import Path

import click
import numpy as np
import pytest

import eigenfed as package
from command_line import as_csv, as_npy, eigenfed, rows
from eigenfed.cli import audit_command as audit
from eigenfed.cli import options
from eigenfed.cli.main import cli
from eigenfed.privacy.privacy_terms import COUNTS, TRUSTS
from eigenfed.study.audits.distinguishing import PUBLISHED
from genotype_files import draw_genotypes, write_plink


def commands(group: click.Group = cli, path: tuple[str, ...] = ()) -> list[tuple[str, ...]]:
    found = []
    for name, command in group.commands.items():
        if isinstance(command, click.Group):
            found += commands(command, (*path, name))
        else:
            found.append((*path, name))
    return found


def real(*arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "eigenfed", *arguments],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, **environment},
    )


def test_a_hint_follows_a_full_stop() -> None:
    run = eigenfed("stream", "nowhere.csv", "-k", 1)
    assert run.stderr.endswith("No such file or directory. See 'eigenfed stream --help'.\n")
    run = eigenfed("fit", "nowhere.csv", "-k", 1)
    assert run.stderr.endswith("does not exist. See 'eigenfed fit --help'.\n")


def test_the_commands_are_those_that_work() -> None:
    assert {" ".join(path) for path in commands()} == {
        "init",
        "cache",
        "plan",
        "fit",
        "project",
        "report",
        "stream",
        "merge",
        "network admit",
        "network init",
        "network join",
        "network show",
        "site approve",
        "site run",
        "site show",
        "site withdraw",
        "coordinate",
        "drop show",
        "ledger create",
        "ledger release",
        "ledger show",
        "ledger verify",
        "audit reconstruct",
        "audit epsilon",
        "audit membership",
        "audit coordinator",
        "demo",
    }


@pytest.mark.parametrize("path", commands(), ids=" ".join)
def test_help_of_each_command_teaches_with_a_line_that_can_be_copied(path: tuple[str, ...]) -> None:
    run = eigenfed(*path, "--help")
    assert run.exit_code == 0
    _, examples = run.stdout.split("Example", 1)
    assert f"eigenfed {' '.join(path)}" in examples
    for option in ("--json", "--quiet", "--debug"):
        assert option in run.stdout


def test_every_example_in_help_names_options_that_exist() -> None:
    for path in commands():
        command: click.Command = cli
        for name in path:
            assert isinstance(command, click.Group)
            command = command.commands[name]
        known = {option for parameter in command.params for option in parameter.opts}
        for line in (command.epilog or "").splitlines():
            words = line.partition(f"eigenfed {' '.join(path)} ")[2].split()
            used = {word for word in words if word.startswith("-") and word != "-"}
            assert used <= known, line


def test_help_imports_nothing_heavy() -> None:
    code = """
import sys
from eigenfed.cli.main import cli
try:
    cli(["--help"])
finally:
    print(*sorted(sys.modules))
"""
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    imported = set(run.stdout.splitlines()[-1].split())
    assert "click" in imported
    heavy = {"numpy", "scipy", "sklearn", "rich", "pandas", "pyarrow", "cryptography"}
    assert not imported & (heavy | {"jinja2", "h5py", "jsonschema", "pydantic"})


def modules_of(*words: object) -> set[str]:
    """Run a command in a new process, and return all that it has imported."""
    code = """
import sys
from eigenfed.cli.main import cli
try:
    cli(sys.argv[1:])
finally:
    print(*sorted(sys.modules))
"""
    command = [sys.executable, "-c", code, *map(str, words)]
    run = subprocess.run(command, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    return set(run.stdout.splitlines()[-1].split())


def test_a_fit_loads_no_library_that_it_does_not_use(tmp_path: Path) -> None:
    unused = {"sklearn", "pandas", "scipy.stats", "scipy.optimize", "h5py", "rich", "polars"}
    rng, out = np.random.default_rng(0), tmp_path / "out"
    for name, n in {"a": 30, "b": 20}.items():
        write_plink(tmp_path / f"{name}.bed", draw_genotypes(rng, [n], 40))
        table = rng.standard_normal((n, 3))
        np.savetxt(tmp_path / f"{name}.csv", table, delimiter=",", header="x,y,z", comments="")
    tables = [tmp_path / "a.csv", tmp_path / "b.csv"]
    loaded = modules_of("fit", *tables, "-k", 2, "-o", out)
    assert "scipy.linalg" in loaded
    assert not loaded & (unused | {"numba"})
    assert not modules_of("project", out, tables[0]) & (unused | {"numba"})
    files = [tmp_path / "a.bed", tmp_path / "b.bed"]
    loaded = modules_of("fit", *files, "-k", 2, "-o", tmp_path / "ancestry")
    assert "numba" in loaded
    assert not loaded & unused


def test_the_program_says_its_version() -> None:
    from importlib.metadata import version

    assert eigenfed("--version").stdout == f"eigenfed {version('eigenfed')}\n"
    assert package.__version__ == version("eigenfed")


@pytest.mark.parametrize("group", [(), ("ledger",), ("audit",)])
def test_a_group_without_a_command_shows_its_help(group: tuple[str, ...]) -> None:
    run = eigenfed(*group)
    assert (run.exit_code, run.stdout) == (2, "")
    assert run.stderr == eigenfed(*group, "--help").stdout


def test_the_shell_gets_completions() -> None:
    words = {"COMP_WORDS": "eigenfed fit --me", "COMP_CWORD": "2"}
    found = real(_EIGENFED_COMPLETE="bash_complete", **words)
    assert found.stdout == "plain,--method\n"


def test_a_wrong_call_is_one_line_and_exits_with_2(tmp_path: Path) -> None:
    (path,) = as_npy(tmp_path, rows(), ("a",))
    calls: dict[str, list[object]] = {
        "eigenfed: No such command 'nothing'. See 'eigenfed --help'.": ["nothing"],
        "eigenfed: Missing option '-k'. See 'eigenfed fit --help'.": ["fit", path],
        "eigenfed: --epsilon requires --delta. Pass --delta 1e-6, for example. "
        "See 'eigenfed fit --help'.": [
            "fit",
            path,
            "-k",
            2,
            "--epsilon",
            1,
        ],
        "eigenfed: --patience limits how long sites are waited for, and --once does not wait. "
        "Drop one of them. See 'eigenfed coordinate --help'.": [
            *("coordinate", path, "-o", tmp_path / "r", "--once", "--patience", 5),
        ],
    }
    for message, arguments in calls.items():
        run = eigenfed(*arguments)
        assert run.exit_code == 2
        assert run.stderr == message + "\n"
        assert run.stdout == ""


def test_a_failure_is_one_line_without_a_traceback(tmp_path: Path) -> None:
    (path,) = as_npy(tmp_path, rows(), ("a",))
    run = real("fit", str(path), "-k", "40")
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.startswith("eigenfed: -k 40 must be at most 6, ")
    assert run.stderr.endswith("Lower -k.\n")
    assert run.stderr.count("\n") == 1


def test_debug_shows_the_traceback_and_keeps_the_code(tmp_path: Path) -> None:
    (path,) = as_npy(tmp_path, rows(), ("a",))
    run = eigenfed("fit", path, "-k", 40, "--debug")
    assert run.exit_code == 2
    assert "Traceback (most recent call last)" in run.stderr
    assert run.stderr.splitlines()[-1].startswith("eigenfed: -k 40 must be at most 6")


def test_a_failure_is_one_json_object_too(tmp_path: Path) -> None:
    (path,) = as_npy(tmp_path, rows(), ("a",))
    run = eigenfed("fit", path, "-k", 40, "--json")
    said = json.loads(run.stdout)
    assert said["exit"] == run.exit_code == 2
    assert run.stderr == f"eigenfed: {said['error']}\n"


@pytest.mark.parametrize(
    "words",
    [
        ("fit", "no_such_file.npy", "-k", 2),
        ("fit", "--json"),
        ("fit", "--no-such-option"),
        ("stream", "-k", 2, "--every", 3),
        ("site", "run"),
        ("no_such_command",),
    ],
)
def test_wrong_usage_is_one_json_object_too(words: tuple[object, ...]) -> None:
    run = eigenfed(*words, "--json")
    said = json.loads(run.stdout)
    assert said == {"error": run.stderr.removeprefix("eigenfed: ").strip(), "exit": 2}
    assert run.exit_code == 2


@pytest.mark.parametrize("number", ["nan", "inf"])
@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("--tol", ("fit", __file__, "-k", 2)),
        ("--forgetting", ("stream", "-k", 1)),
        ("--patience", ("coordinate", __file__, "-o", "r")),
        *((name, ("plan",)) for name in ("--decay", "--offset", "--latency-ms")),
        ("--bandwidth-mbps", ("plan",)),
    ],
)
def test_a_number_that_is_not_finite_is_refused(
    option: str, words: tuple[object, ...], number: str
) -> None:
    run = eigenfed(*words, option, number)
    assert run.exit_code == 2
    assert f"Invalid value for '{option}': {number} is not " in run.stderr


def test_an_unexpected_error_is_named_and_its_text_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = as_npy(tmp_path, rows(), ("a",))

    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("the patient's age is 93")

    monkeypatch.setattr("eigenfed.estimators.pca_fit.PCAFit.fit_sites", broken)
    run = eigenfed("fit", path, "-k", 2)
    assert run.exit_code == 1
    assert "RuntimeError" in run.stderr
    assert "93" not in run.output


def test_a_file_that_cannot_be_written_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device", str(tmp_path / "s"))

    monkeypatch.setattr("eigenfed.data.safe_files.os.fsync", full)
    run = eigenfed("stream", "-k", 1, "-o", tmp_path / "s", given="1 2\n3 4\n")
    assert run.exit_code == 1
    assert run.stderr.startswith(f"eigenfed: {tmp_path / 's'}: No space left on device. ")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="needs a full disk")
@pytest.mark.parametrize("flags", [(), ("--json",)])
def test_output_that_cannot_be_written_is_an_error_in_words(flags: tuple[str, ...]) -> None:
    with open("/dev/full", "wb") as full:
        run = subprocess.run(
            [sys.executable, "-m", "eigenfed", "stream", "-k", "1", *flags],
            input=b"1 2\n3 5\n",
            stdout=full,
            stderr=subprocess.PIPE,
            check=False,
        )
    words = b"eigenfed: The output cannot be written: No space left on device.\n"
    assert (run.returncode, run.stderr) == (1, words)


def test_quiet_leaves_the_result_only(tmp_path: Path) -> None:
    table = rows(20)
    table[3, 2] = np.nan
    lines = as_csv(tmp_path / "a.csv", table).read_text()
    loud = eigenfed("stream", "-k", 2, "--header", given=lines)
    quiet = eigenfed("stream", "-k", 2, "--header", "--quiet", given=lines)
    assert loud.stderr == "eigenfed: 1 missing entry counts as the mean of the rows before.\n"
    assert quiet.stderr == ""
    assert quiet.stdout == loud.stdout


def test_choices_are_those_of_the_library() -> None:
    """They are written out, as importing them would bring everything."""
    assert options.TRUSTS == TRUSTS
    assert options.COUNTS == COUNTS
    assert tuple(PUBLISHED) == audit.PUBLISHED


def test_it_can_be_called_without_leaving() -> None:
    assert cli.main(["--version"], standalone_mode=False) == 0


_AT_ONCE = """
from eigenfed.cli import main, progress
progress._AFTER_S = 0.0
main.main()
"""
"""The program, whose progress is shown before a second is over."""


def test_on_a_terminal_the_rounds_are_shown_beside_the_result(tmp_path: Path) -> None:
    files = as_npy(tmp_path, rows(), ("a", "b"))
    call = ["fit", *map(str, files), "-k", "2", "--method", "krylov", "--json"]
    shown = {}
    for flag in ("--json", "--quiet"):
        ours, theirs = os.openpty()
        run = subprocess.run(
            [sys.executable, "-c", _AT_ONCE, *call, flag],
            stdout=subprocess.PIPE,
            stderr=theirs,
            check=True,
            env={**os.environ, "TERM": "xterm"},
        )
        os.close(theirs)
        shown[flag] = b""
        with contextlib.suppress(OSError):  # the end of a terminal that nobody holds any more
            while part := os.read(ours, 65536):
                shown[flag] += part
        os.close(ours)
        assert json.loads(run.stdout)["method"] == "krylov"
    assert b"round" in shown["--json"]
    assert shown["--quiet"] == b""


def test_interrupted_it_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (path,) = as_npy(tmp_path, rows(), ("a",))

    def stopped(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("eigenfed.estimators.pca_fit.PCAFit.fit_sites", stopped)
    run = eigenfed("fit", path, "-k", 2, "-o", tmp_path / "out", "--json")
    assert run.exit_code == json.loads(run.stdout)["exit"] == 1
    assert "Interrupted; nothing more was written" in run.stderr
    assert not (tmp_path / "out").exists()
