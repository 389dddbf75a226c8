"""The command line of a running command, by which a report says how its run was made."""

import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import click

_NOT_RECORDED = {"as_json", "quiet", "debug", "force", "watch", "watch_port"}
"""Options without influence on the result."""


def describe_command() -> dict[str, Any]:
    """Return the command line of the running command, and the date."""
    return {
        "command": _list_arguments(click.get_current_context()),
        "date": datetime.now(UTC).date().isoformat(),
    }


def _list_arguments(context: click.Context) -> list[str]:
    """Return the command line of a running command, without defaults.

    Relative paths are kept as typed. Absolute paths would tell readers of the report about the
    machine: with one of them, all paths are given from the folder that contains the input files.
    """
    words = context.command_path.split()
    given = _list_given(context)
    shorten = _choose_paths([value for _, values in given for value in values])
    for parameter, values in given:
        if isinstance(parameter, click.Argument):
            # A file may have the name of an option.
            words += [f"./{word}" if word[:1] == "-" else word for word in map(shorten, values)]
        elif isinstance(values[0], bool):
            words += parameter.opts[:1] if values[0] else parameter.secondary_opts[:1]
        else:
            words += [word for value in values for word in (parameter.opts[0], shorten(value))]
    return words


def _list_given(context: click.Context) -> list[tuple[click.Parameter, list[Any]]]:
    """Return the parameters that differ from their defaults, each with its values."""
    default = click.core.ParameterSource.DEFAULT
    given: dict[str, tuple[click.Parameter, list[Any]]] = {}
    for parameter in context.command.params:
        name = parameter.name or ""
        # Of two options for one value, such as --center and --no-center, the first can say it.
        if name in (*_NOT_RECORDED, *given) or context.get_parameter_source(name) is default:
            continue
        value = context.params[name]
        is_list = isinstance(value, tuple)
        if is_list and not (parameter.multiple or parameter.nargs == -1):
            value, is_list = ",".join(map(str, value)), False
        given[name] = parameter, list(value) if is_list else [value]
    return list(given.values())


def _choose_paths(values: list[Any]) -> Callable[[Any], str]:
    """Return a function that writes values so that no absolute path remains."""
    paths = [value for value in values if isinstance(value, Path)]
    if not any(path.is_absolute() for path in paths):
        return str
    inputs = [os.path.abspath(path) for path in paths if path.is_file()]
    folder = Path(os.path.commonpath([os.path.dirname(path) for path in inputs]))

    def shorten(value: Any) -> str:
        if not isinstance(value, Path):
            return str(value)
        path = Path(os.path.abspath(value))
        # Paths below the root are absolute in all but the first character.
        apart = folder == Path(folder.anchor) or not path.is_relative_to(folder)
        return path.name if apart else str(path.relative_to(folder))

    return shorten
